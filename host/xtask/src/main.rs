//! `cargo xtask`: the maintenance commands of this repository.
//!
//! It starts other programs (cargo, rustup, `conclave`) and moves files within the target folder.
//! It does not depend on the host's code, so it builds in seconds and works while the rest does not
//! compile.

mod arguments;
mod attacks;
mod bench;
mod both_stores;
mod cases;
mod changed;
mod checks;
mod components;
mod conformance;
mod counts;
mod demo;
mod dist;
mod doc_openings;
mod failure;
mod features;
mod figures;
mod files;
mod fuzz;
mod gates;
mod identifiers;
mod imports;
mod install;
mod languages;
mod layers;
mod locks;
mod needs;
mod nextest;
mod phase;
mod picture;
mod place;
mod postgres;
mod program;
mod progress;
mod python_plugin;
mod rust_text;
mod servers;
mod shared;
mod size;
mod soak;
mod sources;
mod surroundings;
mod test;
#[cfg(test)]
mod tests;
mod times;
mod toml;
mod type_size;
mod weight;

use std::env;
use std::process::ExitCode;

use failure::XtaskFailure;
use place::Checkout;

const USAGE: &str = "\
usage: cargo xtask COMMAND [OPTIONS]

  demo [QUESTION]    build, then let the stock plugins answer a question; no key, no network
      --folder PATH    about the files in this folder instead of this repository's documents
      --hostile        run the plugins that try to break out instead
      --cluster        two workers share a database; the one with the task is killed, and the other ends it (needs PostgreSQL)
  test               everything that CI checks: texts, format, clippy, and the tests in layers; the last line counts them
  test LAYER…        only these layers, from what is quickest to what needs most:
                     core, runtime, guests, suite, cli, docs, foreign (LiteLLM, MCP peers, Python and JavaScript)
  test FILTER…       only the tests whose names contain one of these; behind a layer's name, of those layers
      --busy N         with N loops beside it that take what the machine has
      --changed[=BASE] only what the changes since BASE can reach, by crate and by guest; without it, since the last commit
      --slowest N      and then list the N tests that took most time
      --crowded        in a home and a folder for temporary files that are full of stores, keys and configs
  features           compile the libraries and the program with none, each and all of their features, and fail at a warning
  attacks            try every attack that docs/reference/security.md lists, and count them
  build              the stock plugins, then the program `conclave` with them inside
      --release        slow to build, fast to run
  install            the program `conclave` for daily use: optimised, stock plugins compiled; 25 to 30 minutes on two cores
      --root PATH      below this folder instead of cargo's own
      --fast-build     in about half the time, for a slower program
  dist               that program in archives for other machines, which need no Rust, each with its checksum;
                     on Linux with glibc also a static one (x86_64-unknown-linux-musl)
      --target TRIPLE  only for this target; again for more
      --program FILE   pack this program, which was built already
      --out FOLDER     there instead of target/conclave/dist
  bench [ARGS…]      measure the host against bare wasmtime, plugins in each language, and the executors (--quick: a rough answer in seconds)
      --curves         how cost grows with history, plugins, tools, rooms, tasks, records and subscribers; 20 minutes
      --write-curves   the same, and draw docs/internals/growth.svg anew
  counts             count the instructions of the core's hot paths with valgrind, and compare them with those recorded
      --record         write tests/counts/counts.txt anew
  weight             weigh the program that `install` built last, and compare it with what is recorded
      --record         write tests/counts/weight.txt anew
  soak [ARGS…]       kill a busy host and cut its power, again and again, and look whether anything was lost or done twice
      --kills N        so often; 500 when neither this nor the next is given
      --power-cuts N   so often; 200 when neither is given; needs Linux and /dev/fuse
      --seed S         the numbers of an earlier soak, which names them
      --postgres       faults around three workers that share a PostgreSQL server, which it starts: kills, stops, a bad
                       network, lost acknowledgements, crashes of the server, failovers; exit code 3 without PostgreSQL
      --patroni        with --postgres: Patroni promotes the standby; exit code 3 without Patroni and etcd
      --server         1 000 readers and 200 runs of `conclave serve`, which is killed and drained under them;
                       --readers N, --runs N, --ends N, --stalled N (readers that never read)
      --faults N       of these so many; 300 when not said; --minutes N, within so many; 10 when not said
  fuzz [NAME|all] [SECONDS]   feed changed inputs to what reads strangers' text and bytes (docs/internals/fuzzing.md); 60 s each when not said
      --replay FILE    run one input again
      --plain          without libFuzzer, which needs a C++ compiler
      --keep           add to the corpus in the repository what reaches new code
  conformance FILE…  play the scenarios of these files (docs/reference/conformance.md); prints those that fail, and counts
      --only ID,…      these; `C-1*` is every id that begins so
      --config         print the configs that scenarios become instead
  guests             only the components that the tests run
  times [COMMAND…]   where the time of a cold demo, install and test goes; writes docs/internals/build-times.md
      --runs N         each so often; the median is recorded
  picture            draw docs/demo.svg and docs/trace.svg anew from what the program prints
      --pages          capture the server's pages in a Chromium instead, into docs/pictures

  --verbose          show cargo's own output instead of writing it to a log
  --help             this text

Exit codes: 0 all well · 1 something failed · 2 wrong usage · demo, conformance, soak and bench: what the program that they ran returned.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{}", failure.text.trim_end());
            ExitCode::from(failure.code)
        }
    }
}

type Run = fn(&Checkout, &[String]) -> Result<ExitCode, XtaskFailure>;

fn dispatch(arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    if times::is_wrapper(arguments.first()) {
        return times::run_compiler(arguments);
    }
    let Some((command, rest)) = arguments.split_first() else {
        return Err(XtaskFailure::usage(USAGE));
    };
    // Arguments after `--` belong to the program that the command runs.
    let own = rest.iter().take_while(|word| *word != "--");
    if matches!(command.as_str(), "--help" | "-h" | "help")
        || own.clone().any(|word| word == "--help" || word == "-h")
    {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let run: Run = match command.as_str() {
        "demo" => demo::run,
        "test" => test::run,
        "features" => features::run,
        "attacks" => attacks::run,
        "build" => components::run_build,
        "install" => install::run,
        "dist" => dist::run,
        "guests" => components::run_guests,
        "conformance" => conformance::run,
        "bench" => bench::run,
        "counts" => counts::run,
        "fuzz" => fuzz::run,
        "soak" => soak::run,
        "times" => times::run,
        "weight" => weight::run,
        "picture" => picture::run,
        unknown => {
            return Err(XtaskFailure::usage(format!(
                "`{unknown}` is no command of cargo xtask.\n\n{USAGE}"
            )));
        }
    };
    run(&Checkout::find()?, rest)
}
