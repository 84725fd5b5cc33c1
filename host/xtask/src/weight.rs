//! `cargo xtask weight`: figures of the build that depend on no machine's speed, held against
//! `tests/counts/weight.txt`: the crates of the demo and of the program, the test binaries that are
//! linked, the largest libraries and the stock components as the tests build them, the size of the
//! optimised program and of the files beside it.

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;

use crate::arguments;
use crate::failure::XtaskFailure;
use crate::figures::{FigureFile, Figures};
use crate::place::{Checkout, files_below};
use crate::program::{self, BuiltProgram, CodeTarget, ProgramBuild};
use crate::test;

const RECORDED: FigureFile = FigureFile {
    path: "tests/counts/weight.txt",
    title: "Crates, and sizes in bytes, written by `cargo xtask weight --record`.",
    heads: ["part", "now"],
    // The growth that no one has to explain.
    tolerance: 5,
    is_two_sided: false,
    remedy: "If it is meant, write tests/counts/weight.txt anew (`cargo xtask weight --record`) and say \
             in the commit what it is for.",
};
/// The rows, by name.
const DEMO_CRATES: &str = "crates-demo";
const PROGRAM_CRATES: &str = "crates-program";
const TEST_BINARIES: &str = "test-binaries";
const COMPONENTS: &str = "tested-components-bytes";
const PROGRAM: &str = "program-bytes";
const FILES: &str = "program-files-bytes";
/// The largest libraries. What rustc made of one without optimisation is its functions, the generic
/// ones once for each set of types, so it grows as the work of LLVM does.
const LIBRARIES: [&str; 5] = ["core", "runtime", "sdk", "mcp", "models"];

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let [record] = arguments::flags("weight", ["--record"], arguments)?;
    let build =
        ProgramBuild { profile: program::OPTIMISED, target: None, code: CodeTarget::ThisMachine };
    let mut weights = of_build(place)?;
    weights.extend(of_libraries(&test::built_artifacts(place)?));
    match build.last(place) {
        Some(built) => weights.extend(of_program(&built)),
        None => eprintln!("no optimised program is weighed: `cargo xtask install` builds it"),
    }
    RECORDED.record_or_compare(place, weights, record).map(|()| ExitCode::SUCCESS)
}

/// Fails if what the tests have just built weighs more than recorded.
pub(crate) fn check_build(place: &Checkout) -> Result<(), XtaskFailure> {
    RECORDED.compare(&of_build(place)?, &RECORDED.read(place)?)
}

/// Fails if a library that the tests have just built weighs more than recorded. `artifacts` are
/// cargo's messages about it.
pub(crate) fn check_libraries(place: &Checkout, artifacts: &str) -> Result<(), XtaskFailure> {
    RECORDED.compare(&of_libraries(artifacts), &RECORDED.read(place)?)
}

fn of_libraries(artifacts: &str) -> Figures {
    let files = paths_in(artifacts, ".rlib");
    let weigh = |library: &str| {
        let name = format!("/libconclave_{library}");
        // With a hash behind the name, unless it is one of those that cargo was asked for.
        let is_its = |rest: &str| rest.starts_with('-') || rest == ".rlib";
        let of_library = files
            .iter()
            .filter(|file| file.rsplit_once(&name).is_some_and(|(_, rest)| is_its(rest)));
        // Some are built twice, with different features.
        let bytes = of_library.filter_map(|file| fs::metadata(file).ok()).map(|file| file.len());
        Some((format!("library-{library}-bytes"), bytes.max()?))
    };
    LIBRARIES.into_iter().filter_map(weigh).collect()
}

/// Returns the paths with this ending in lines of JSON.
fn paths_in<'a>(json: &'a str, ending: &str) -> Vec<&'a str> {
    json.split('"').filter(|text| text.ends_with(ending)).collect()
}

fn of_build(place: &Checkout) -> Result<Figures, XtaskFailure> {
    // The component in Python is left out where pip cannot make it, and its size is its runtime's.
    let mut files = files_below(&place.stock(), ".wasm");
    files.retain(|file| !file.ends_with("python.wasm"));
    let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
    let components: u64 = sizes.map(|file| file.len()).sum();
    let mut weights = Figures::from([
        (DEMO_CRATES.to_owned(), crates(place, &["--no-default-features"])?),
        (PROGRAM_CRATES.to_owned(), crates(place, &[])?),
        (TEST_BINARIES.to_owned(), test_binaries(place)?),
    ]);
    if components > 0 {
        weights.insert(COMPONENTS.to_owned(), components);
    }
    Ok(weights)
}

/// Returns the number of crates that the program is made of on this machine, with its build scripts
/// and macros.
fn crates(place: &Checkout, features: &[&str]) -> Result<u64, XtaskFailure> {
    let mut command = place.cargo(["tree", "-p", "conclave-host", "--prefix", "none"]);
    command.args(["-e", "normal,build"]).args(features);
    let output = program::output_of(&mut command)?;
    let text = String::from_utf8_lossy(&output);
    // A crate with some more dependants is listed again, marked by `(*)`.
    let names = text.lines().filter_map(|line| line.split(" (").next());
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    Ok(names.len() as u64)
}

/// Returns the number of test binaries of the workspace. Each links the crates that it tests.
fn test_binaries(place: &Checkout) -> Result<u64, XtaskFailure> {
    let mut command = place.cargo(["metadata", "--no-deps", "--format-version", "1"]);
    let output = program::output_of(&mut command)?;
    // Each target says whether it is tested; the text of no other value can hold these quotes.
    Ok(String::from_utf8_lossy(&output).matches("\"test\":true").count() as u64)
}

fn of_program(built: &BuiltProgram) -> Figures {
    let (program, files) = built.weight();
    Figures::from([(PROGRAM.to_owned(), program), (FILES.to_owned(), files)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_found_in_cargos_messages() {
        let lines = "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/deps/libconclave_core-0a.rlib\",\"/t/deps/libconclave_core-0a.rmeta\"]}\n\
                     {\"executable\":\"/t/deps/core-1b\",\"filenames\":[]}\n";
        assert_eq!(paths_in(lines, ".rlib"), ["/t/deps/libconclave_core-0a.rlib"]);
        assert_eq!(of_libraries(lines), Figures::new(), "what is not there has no weight");
    }
}
