//! `cargo xtask times`: where the processor time of a cold build goes. It runs `demo`, `install` or
//! `test` in an empty target folder, with this program as `RUSTC_WRAPPER`, and writes the figures to
//! `host/xtask/times.txt`, from which progress is estimated, and to a page.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::failure::XtaskFailure;
use crate::files;
use crate::phase::{self, spelled};
use crate::place::Checkout;

/// The variable with the file to which compilations and phases are appended.
const LOG: &str = "CONCLAVE_TIMES";
/// The figures of the last measured builds.
pub(crate) const RECORDED: &str = "host/xtask/times.txt";
const PAGE: &str = "docs/internals/build-times.md";
/// The commands that can be measured, with what the page calls them.
const MEASURED: [&str; 3] = ["demo", "install", "test"];
/// The rows of the table of crates, of each command.
const ROWS: usize = 15;
/// A stretch with one compiler alone that is shorter costs less than a row of the page.
const TAIL_MS: u64 = 3_000;

// -- The wrapper of rustc.

/// Whether cargo started this process in place of a compiler: the first argument is its path.
pub(crate) fn is_wrapper(first: Option<&String>) -> bool {
    let compilers = ["rustc", "clippy-driver"];
    let name = first.and_then(|path| Path::new(path).file_stem()).and_then(|stem| stem.to_str());
    env::var_os(LOG).is_some() && name.is_some_and(|name| compilers.contains(&name))
}

/// Runs the compiler, and appends what it compiled and its processor time to the log.
pub(crate) fn run_compiler(arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let Some((compiler, rest)) = arguments.split_first() else {
        return Err(XtaskFailure::usage("no compiler was named"));
    };
    let began = now();
    let mut command = Command::new(compiler);
    command.args(rest);
    let status = phase::status(&mut command)?;
    if let Some(unit) = CompiledUnit::of(rest) {
        // A build that is not measured completely shows in the totals; it must not fail.
        let _ = append(&format!(
            "unit\t{}\t{}\t{}\t{}\t{began}\t{}\t{}",
            unit.name,
            unit.kind,
            unit.target,
            unit.package,
            now(),
            child_time().as_millis()
        ));
    }
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// What one run of the compiler compiles.
#[derive(Debug, PartialEq, Eq)]
struct CompiledUnit {
    name: String,
    /// `lib`, `bin`, `proc-macro` and the like, `test`, or `check` without machine code.
    kind: String,
    /// `host`, or the target that was named.
    target: String,
    package: String,
}

impl CompiledUnit {
    /// `None` for cargo's questions about the compiler.
    fn of(arguments: &[String]) -> Option<Self> {
        let after = |word: &str| {
            let at = arguments.iter().position(|known| known == word)?;
            arguments.get(at + 1).cloned()
        };
        let name = after("--crate-name").filter(|name| name != "___")?;
        let has = |word: &str| arguments.iter().any(|known| known == word);
        let kind = if arguments.iter().any(|word| is_check(word)) {
            "check".to_owned()
        } else if has("--test") {
            "test".to_owned()
        } else {
            after("--crate-type").unwrap_or_else(|| "lib".to_owned())
        };
        let target = after("--target").unwrap_or_else(|| "host".to_owned());
        let package = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| name.clone());
        Some(Self { name, kind, target, package })
    }
}

fn is_check(argument: &str) -> bool {
    argument
        .strip_prefix("--emit=")
        .is_some_and(|kinds| !kinds.split(',').any(|kind| kind == "link"))
}

/// Appends the line of a phase to the log, if this command is being measured.
pub(crate) fn note_phase(what: &str, began: Instant, processor: Duration) {
    if env::var_os(LOG).is_some() {
        let _ = append(&format!(
            "phase\t{what}\t{}\t{}",
            began.elapsed().as_millis(),
            processor.as_millis()
        ));
    }
}

fn append(line: &str) -> std::io::Result<()> {
    let Some(file) = env::var_os(LOG) else { return Ok(()) };
    // One write for the line: many compilers append to the same file.
    File::options().append(true).create(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// Returns the processor time of all ended children of this process, and of theirs. Zero where the
/// system does not tell it in `/proc`.
pub(crate) fn child_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&text).map(|ticks| Duration::from_millis(ticks * 10)).unwrap_or_default()
}

/// Returns `cutime` and `cstime` of a line of `proc(5)`, in ticks of 10 ms. The program's name in
/// parentheses may contain blanks.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

// -- The command.

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let (mut runs, mut commands) = (1, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--runs" => {
                runs = words
                    .next()
                    .and_then(|count| count.parse().ok())
                    .filter(|count| *count > 0)
                    .ok_or_else(|| XtaskFailure::usage("--runs needs a number, such as 3"))?;
            }
            known if MEASURED.contains(&known) => commands.push(known),
            other => {
                return Err(XtaskFailure::usage(format!(
                    "cargo xtask times does not know `{other}`: it takes {} and --runs N",
                    MEASURED.join(", ")
                )));
            }
        }
    }
    if commands.is_empty() {
        commands.extend(MEASURED);
    }
    let mut recorded = Recorded::read(place);
    for command in commands {
        let mut measured = Vec::new();
        for number in 1..=runs {
            eprintln!("cargo xtask {command}, cold, {number} of {runs} …");
            let build = ColdBuild::measure(place, command)?;
            eprintln!("    {}", build.totals());
            measured.push(build);
        }
        // The median by processor time.
        measured.sort_by_key(|build| build.processor_ms);
        recorded.replace(command, &measured[measured.len() / 2]);
        recorded.write(place)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures of one cold build.
#[derive(Debug, Default, PartialEq, Eq)]
struct ColdBuild {
    commit: String,
    cores: usize,
    wall_ms: u64,
    processor_ms: u64,
    phases: Vec<PhaseTime>,
    units: Vec<UnitTime>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PhaseTime {
    name: String,
    wall_ms: u64,
    processor_ms: u64,
}

/// A run of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnitTime {
    name: String,
    kind: String,
    target: String,
    package: String,
    began_ms: u64,
    ended_ms: u64,
    processor_ms: u64,
}

impl ColdBuild {
    fn measure(place: &Checkout, command: &str) -> Result<Self, XtaskFailure> {
        let folder = place.target.join("times").join(command);
        files::remove_folder(&folder)?;
        files::make_folder(&folder)?;
        let log = folder.join("times.log");
        let wrapper = env::current_exe()
            .map_err(|error| XtaskFailure::new(format!("xtask does not know its file: {error}")))?;
        let mut build =
            Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        build.args(["xtask", command]).current_dir(&place.root);
        if command == "install" {
            build.arg("--root").arg(folder.join("installed"));
        }
        build.env("CARGO_TARGET_DIR", folder.join("target")).env("RUSTC_WRAPPER", wrapper);
        // Nothing that an earlier run compiled or cached is found.
        build.env("XDG_CACHE_HOME", folder.join("cache")).env(LOG, &log);
        let output = folder.join("output.log");
        let (file, errors) = phase::open_log(&output)?;
        build.stdin(Stdio::null()).stdout(file).stderr(errors);
        let (began, before) = (Instant::now(), child_time());
        let status = phase::status(&mut build)?;
        let (wall, processor) = (began.elapsed(), child_time().saturating_sub(before));
        if !status.success() {
            return Err(XtaskFailure::new(format!(
                "cargo xtask {command} ended with {status}: {}",
                output.display()
            )));
        }
        let text = files::read(&log)?;
        let mut measured = Self::parse(&text);
        measured.commit = commit(place);
        measured.cores = std::thread::available_parallelism().map_or(1, usize::from);
        measured.wall_ms = millis(wall);
        measured.processor_ms = millis(processor);
        Ok(measured)
    }

    /// Reads the lines that `run_compiler` and `note_phase` append.
    fn parse(log: &str) -> Self {
        let mut build = Self::default();
        for line in log.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |text: &str| text.parse::<u64>().unwrap_or_default();
            match fields.as_slice() {
                ["phase", name, wall, processor] => build.phases.push(PhaseTime {
                    name: (*name).to_owned(),
                    wall_ms: number(wall),
                    processor_ms: number(processor),
                }),
                ["unit", name, kind, target, package, began, ended, processor] => {
                    build.units.push(UnitTime {
                        name: (*name).to_owned(),
                        kind: (*kind).to_owned(),
                        target: (*target).to_owned(),
                        package: (*package).to_owned(),
                        began_ms: number(began),
                        ended_ms: number(ended),
                        processor_ms: number(processor),
                    });
                }
                _ => {}
            }
        }
        build
    }

    fn totals(&self) -> String {
        format!(
            "{} on {} cores, {} of processor time, {} crates",
            spelled(Duration::from_millis(self.wall_ms)),
            self.cores,
            spelled(Duration::from_millis(self.processor_ms)),
            self.units.len()
        )
    }

    /// Returns the processor seconds of each crate, all its compilations for a target together, the
    /// costliest first.
    fn crates(&self) -> Vec<(String, String, u64, usize)> {
        let mut sums: BTreeMap<(String, String), (u64, usize)> = BTreeMap::new();
        for unit in &self.units {
            let target = match unit.kind.as_str() {
                "check" => format!("{}, checked", unit.target),
                "test" => format!("{}, tests", unit.target),
                _ => unit.target.clone(),
            };
            let sum = sums.entry((unit.package.clone(), target)).or_default();
            sum.0 += unit.processor_ms;
            sum.1 += 1;
        }
        let mut rows: Vec<_> = sums
            .into_iter()
            .map(|((package, target), (time, count))| (package, target, time, count))
            .collect();
        rows.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
        rows
    }

    /// Returns the stretches in which one compiler ran alone, longest first: the crate, and how long.
    fn tails(&self) -> Vec<(String, u64)> {
        let mut edges: Vec<(u64, bool, usize)> = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            edges.push((unit.began_ms, true, index));
            edges.push((unit.ended_ms, false, index));
        }
        edges.sort_by_key(|(at, begins, _)| (*at, *begins));
        let (mut active, mut lone_ms) = (Vec::new(), BTreeMap::<usize, u64>::new());
        let mut last = 0;
        for (at, begins, index) in edges {
            if let [only] = active.as_slice() {
                *lone_ms.entry(*only).or_default() += at - last;
            }
            if begins {
                active.push(index);
            } else {
                active.retain(|known| *known != index);
            }
            last = at;
        }
        let mut rows: Vec<(String, u64)> = lone_ms
            .into_iter()
            .filter(|(_, time)| *time >= TAIL_MS)
            .map(|(index, time)| {
                let unit = &self.units[index];
                (format!("{} ({}, {})", unit.name, unit.kind, unit.target), time)
            })
            .collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        rows
    }
}

fn commit(place: &Checkout) -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=10"]).current_dir(&place.root);
    let output = git.output().ok().filter(|output| output.status.success());
    output.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// -- What is recorded.

/// The recorded figures: for each command its lines, without the command's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    lines: BTreeMap<String, Vec<String>>,
    /// The parts of the page, by command.
    sections: BTreeMap<String, String>,
}

/// What is known about a command before it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) wall: Duration,
    pub(crate) cores: usize,
    /// The number of compiled crates, each once for a target.
    pub(crate) crates: usize,
    /// The processor time of each compilation, by package and target; in milliseconds.
    pub(crate) units: BTreeMap<(String, String), u64>,
}

impl Estimate {
    /// Returns the expected time on this machine, if its processors are as fast.
    pub(crate) fn wall_here(&self) -> Duration {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        // A build has serial stretches, so more cores than were measured do not help in proportion.
        let share = self.cores.max(1) as f64 / here.min(self.cores * 2).max(1) as f64;
        self.wall.mul_f64(share)
    }
}

impl Recorded {
    pub(crate) fn read(place: &Checkout) -> Self {
        let mut recorded = Self::parse(&place.read(RECORDED).unwrap_or_default());
        let page = place.read(PAGE).unwrap_or_default();
        for command in MEASURED {
            if let Some(section) = between(&page, &opening(command), &closing(command)) {
                recorded.sections.insert(command.to_owned(), section.to_owned());
            }
        }
        recorded
    }

    fn parse(text: &str) -> Self {
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((command, rest)) = line.split_once(' ') {
                lines.entry(command.to_owned()).or_default().push(rest.to_owned());
            }
        }
        Self { lines, sections: BTreeMap::new() }
    }

    /// Returns what is known about a command; `None` if it was never measured.
    pub(crate) fn estimate(&self, command: &str) -> Option<Estimate> {
        let mut estimate = Estimate::default();
        for line in self.lines.get(command)? {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields.as_slice() {
                ["wall", seconds] => {
                    estimate.wall = Duration::from_secs(seconds.parse().unwrap_or_default());
                }
                ["crates", crates] => estimate.crates = crates.parse().unwrap_or_default(),
                ["cores", cores] => estimate.cores = cores.parse().unwrap_or_default(),
                ["unit", package, target, time] => {
                    let key = ((*package).to_owned(), (*target).to_owned());
                    *estimate.units.entry(key).or_default() += time.parse::<u64>().unwrap_or(0);
                }
                _ => {}
            }
        }
        Some(estimate)
    }

    fn replace(&mut self, command: &str, build: &ColdBuild) {
        let mut lines = vec![
            format!("commit {}", build.commit),
            format!("cores {}", build.cores),
            format!("wall {}", build.wall_ms.div_ceil(1000)),
            format!("processor {}", build.processor_ms.div_ceil(1000)),
        ];
        let mut units: BTreeMap<(String, String), u64> = BTreeMap::new();
        for unit in &build.units {
            *units.entry((unit.package.clone(), unit.target.clone())).or_default() +=
                unit.processor_ms;
        }
        lines.push(format!("crates {}", units.len()));
        // What takes less is not worth a line: the estimate counts it as the smallest.
        lines.extend(
            units
                .iter()
                .filter(|(_, time)| **time >= 200)
                .map(|((package, target), time)| format!("unit {package} {target} {time}")),
        );
        self.lines.insert(command.to_owned(), lines);
        self.sections.insert(command.to_owned(), section(command, build));
    }

    fn write(&self, place: &Checkout) -> Result<(), XtaskFailure> {
        let mut text =
            "# Cold builds, written by `cargo xtask times`: seconds; for each package and target \
                        milliseconds of processor time.\n"
                .to_owned();
        for (command, lines) in &self.lines {
            for line in lines {
                let _ = writeln!(text, "{command} {line}");
            }
        }
        files::write(&place.root.join(RECORDED), &text)?;
        let mut page = HEAD.to_owned();
        for command in MEASURED {
            if let Some(section) = self.sections.get(command) {
                let _ = write!(page, "{}{section}{}\n\n", opening(command), closing(command));
            }
        }
        files::write(&place.root.join(PAGE), format!("{}\n", page.trim_end()))
    }
}

const HEAD: &str = "\
# Build times

For those who change what is built: where the time of a cold build goes. `cargo xtask times` writes this page, each part of it when
the command was measured (`cargo xtask times demo --runs 3` records the median of three): in an empty target folder and an empty
cache, with all crates downloaded. Times are of processors where nothing else is said, because they depend less on what else the
machine does. Gates that do not depend on the machine at all stand in `tests/counts/weight.txt`.

";

fn opening(command: &str) -> String {
    format!("<!-- {command} -->\n")
}

fn closing(command: &str) -> String {
    format!("<!-- end of {command} -->")
}

fn between<'a>(text: &'a str, opening: &str, closing: &str) -> Option<&'a str> {
    text.split_once(opening)?.1.split_once(closing).map(|(inside, _)| inside)
}

/// Returns the part of the page about a command.
fn section(command: &str, build: &ColdBuild) -> String {
    let seconds = |ms: u64| format!("{}.{}", ms / 1000, ms % 1000 / 100);
    let compilers: u64 = build.units.iter().map(|unit| unit.processor_ms).sum();
    let mut text = format!(
        "## cargo xtask {command}\n\n{}, at {}. Of the processor time {} s are {} runs of the compiler; the rest is C code, cargo, \
         and what the command runs.\n\n| phase | seconds | of processors |\n|---|---:|---:|\n",
        build.totals(),
        build.commit,
        seconds(compilers),
        build.units.len(),
    );
    for phase in &build.phases {
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            phase.name,
            seconds(phase.wall_ms),
            seconds(phase.processor_ms)
        );
    }
    text.push_str("\n| crate | for | compilations | seconds |\n|---|---|---:|---:|\n");
    let crates = build.crates();
    for (package, target, time, count) in crates.iter().take(ROWS) {
        let _ = writeln!(text, "| {package} | {target} | {count} | {} |", seconds(*time));
    }
    let rest: u64 = crates.iter().skip(ROWS).map(|row| row.2).sum();
    let more = crates.len().saturating_sub(ROWS);
    let _ = writeln!(text, "| {more} more | | | {} |", seconds(rest));
    let tails = build.tails();
    if tails.is_empty() {
        text.push_str("\nNo compiler ran alone for long.\n");
    } else {
        let rows: Vec<String> = tails
            .iter()
            .take(8)
            .map(|(name, time)| format!("{name} {} s", seconds(*time)))
            .collect();
        let _ = writeln!(text, "\nOne compiler alone: {}.", rows.join(" · "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, began_ms: u64, ended_ms: u64) -> UnitTime {
        UnitTime {
            name: name.to_owned(),
            kind: "lib".to_owned(),
            target: "host".to_owned(),
            package: name.to_owned(),
            began_ms,
            ended_ms,
            processor_ms: ended_ms - began_ms,
        }
    }

    #[test]
    fn the_time_of_children_stands_behind_the_name() {
        let stat = "7 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 11 12 250 50 20 0 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a"), None);
    }

    #[test]
    fn a_compilation_is_named_by_its_arguments() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let library = CompiledUnit::of(&words(
            "--crate-name a --emit=dep-info,metadata,link --crate-type lib --target wasm32-wasip2",
        ))
        .expect("a crate is named");
        assert_eq!((library.kind.as_str(), library.target.as_str()), ("lib", "wasm32-wasip2"));
        let kind = |text: &str| CompiledUnit::of(&words(text)).map(|unit| unit.kind);
        assert_eq!(kind("--crate-name a --test --emit=link").as_deref(), Some("test"));
        assert_eq!(kind("--crate-name a --emit=dep-info,metadata").as_deref(), Some("check"));
        assert_eq!(kind("--crate-name ___ --print=cfg"), None);
        assert_eq!(kind("-vV"), None);
    }

    #[test]
    fn a_compiler_alone_is_a_tail_for_as_long_as_it_is_alone() {
        let units = vec![unit("a", 0, 10_000), unit("b", 2_000, 5_000), unit("c", 10_000, 11_000)];
        let build = ColdBuild { units, ..ColdBuild::default() };
        assert_eq!(build.tails(), [("a (lib, host)".to_owned(), 7_000)]);
    }

    #[test]
    fn what_is_recorded_is_an_estimate_and_a_section_again() {
        let log =
            "phase\tbuilding\t1500\t2000\nunit\ta\tlib\thost\ta-package\t1000\t2500\t1400\nnoise\n";
        let mut build = ColdBuild::parse(log);
        (build.wall_ms, build.processor_ms, build.cores) = (61_000, 90_000, 2);
        let mut recorded = Recorded::default();
        recorded.replace("demo", &build);
        let estimate = recorded.estimate("demo").expect("demo was measured");
        assert_eq!((estimate.wall, estimate.cores), (Duration::from_secs(61), 2));
        assert_eq!(
            estimate.units,
            BTreeMap::from([(("a-package".to_owned(), "host".to_owned()), 1_400)])
        );
        assert!(recorded.sections["demo"].contains("| building | 1.5 | 2.0 |"));
        assert_eq!(recorded.estimate("test"), None);
    }
}
