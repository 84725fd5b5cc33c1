//! The phases of a long command. Each is one line on stderr with the time it took. Cargo's output
//! goes to a log, whose relevant part is shown on failure.

use std::env;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::XtaskFailure;
use crate::files;
use crate::place::Checkout;
use crate::progress::{BuildProgress, rounded};
use crate::times::{self, Recorded};

/// The maximum number of lines shown of a log: the first error with its context fits, a page of
/// errors stays in the file.
const SHOWN_LINES: usize = 60;

/// The known causes of failures by their text in a log, with their remedies.
const REMEDIES: [(&str, &str); 6] = [
    (
        "No space left on device",
        "The disk is full. `cargo clean` frees what earlier builds left; a build needs about 4 GB.",
    ),
    (
        "linker `cc` not found",
        "There is no C linker. Debian, Ubuntu: `apt install gcc`. Fedora: `dnf install gcc`. macOS: `xcode-select --install`.",
    ),
    (
        "Could not resolve host",
        "The first build downloads the crates named in Cargo.lock and needs the network (behind a proxy: set https_proxy).",
    ),
    (
        "failed to download",
        "The first build downloads the crates named in Cargo.lock and needs the network (behind a proxy: set https_proxy).",
    ),
    (
        "libfuzzer/Cargo.lock because --locked",
        "Dependencies changed. `cargo update --workspace --manifest-path tests/fuzz/libfuzzer/Cargo.toml`, and commit what that changes.",
    ),
    (
        "can't find crate for `core`",
        "The standard library for the target is missing or broken. `rustup target add wasm32-wasip2`, or once more after `rustup target remove wasm32-wasip2`.",
    ),
];

/// The numbered phases of one command.
pub(crate) struct Phases {
    place: Checkout,
    screen: StderrScreen,
    verbose: bool,
    total: usize,
    started: usize,
    progress: BuildProgress,
    /// Cargo's messages of all builds so far, and when the first of them began.
    messages: Vec<PathBuf>,
    builds_began: Option<Instant>,
}

/// A build by cargo, and the name of its log.
pub(crate) struct CargoBuild {
    pub(crate) log: &'static str,
    pub(crate) command: Command,
}

impl Phases {
    pub(crate) fn new(place: &Checkout, total: usize, verbose: bool) -> Self {
        let screen = StderrScreen::find();
        let progress = BuildProgress::default();
        Self {
            place: place.clone(),
            screen,
            verbose,
            total,
            started: 0,
            progress,
            messages: Vec::new(),
            builds_began: None,
        }
    }

    /// Says how long a first build takes, as far as it was measured, and estimates the remaining time
    /// while it runs.
    pub(crate) fn announce_first_build(&mut self, command: &str) {
        let Some(estimate) = Recorded::read(&self.place).estimate(command) else {
            eprintln!("The first build takes some minutes; later ones take seconds.");
            return;
        };
        eprintln!(
            "The first build takes about {} (measured on {} idle cores); later ones take seconds.",
            rounded(estimate.wall_here()),
            estimate.cores
        );
        self.progress = BuildProgress::new(estimate);
    }

    /// Runs a program to its end. Its output goes to `target/xtask/LOG.log`, or to the terminal
    /// with `--verbose`.
    pub(crate) fn run(
        &mut self,
        what: &str,
        log: &str,
        command: Command,
    ) -> Result<(), XtaskFailure> {
        self.run_or(what, log, command, None)
    }

    /// Runs builds by cargo at the same time, as one phase; on a terminal it counts the crates and
    /// estimates the rest. Builds of one profile folder wait for each other: name different ones.
    pub(crate) fn build(
        &mut self,
        what: &str,
        builds: Vec<CargoBuild>,
    ) -> Result<(), XtaskFailure> {
        self.messages.extend(builds.iter().map(|build| messages(&self.place, build.log)));
        let began = *self.builds_began.get_or_insert_with(Instant::now);
        self.phase(what, |phases, label| {
            if phases.verbose {
                return phases.screen.aloud(label, || {
                    builds.into_iter().try_for_each(|mut build| run_aloud(&mut build.command))
                });
            }
            let progress =
                || phases.progress.describe(&read_all(&phases.messages), began.elapsed());
            phases.screen.counting(label, &progress, || run_together(&phases.place, builds))
        })
    }

    /// Does the same as `run`; on failure the report ends with a remedy.
    pub(crate) fn run_or(
        &mut self,
        what: &str,
        log: &str,
        mut command: Command,
        remedy: Option<&str>,
    ) -> Result<(), XtaskFailure> {
        self.phase(what, |phases, label| {
            if phases.verbose {
                return phases.screen.aloud(label, || run_aloud(&mut command));
            }
            let work = || run_to_log(&phases.place, log, &mut command, remedy);
            phases.screen.quietly(label, work)
        })
    }

    /// Runs work within this process.
    pub(crate) fn check(
        &mut self,
        what: &str,
        work: impl FnOnce() -> Result<(), XtaskFailure>,
    ) -> Result<(), XtaskFailure> {
        self.phase(what, |phases, label| phases.screen.quietly(label, work))
    }

    /// Runs a phase, and notes its times for `cargo xtask times`.
    fn phase(
        &mut self,
        what: &str,
        work: impl FnOnce(&Self, &str) -> Result<(), XtaskFailure>,
    ) -> Result<(), XtaskFailure> {
        let label = self.label(what);
        let (began, processor) = (Instant::now(), times::child_time());
        let outcome = work(self, &label);
        times::note_phase(what, began, times::child_time().saturating_sub(processor));
        outcome
    }

    /// Announces the last phase, whose program uses the terminal itself.
    pub(crate) fn announce(&mut self, what: &str) {
        let label = self.label(what);
        eprintln!("{label}");
    }

    fn label(&mut self, what: &str) -> String {
        self.started += 1;
        let number = format!("[{}/{}]", self.started, self.total);
        format!("{} {what}", self.screen.dim(&number))
    }
}

/// Returns the file with cargo's messages of a build.
fn messages(place: &Checkout, log: &str) -> PathBuf {
    place.own().join(format!("{log}.json"))
}

fn read_all(files: &[PathBuf]) -> String {
    files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
}

/// Starts all builds, and waits for all. Returns the first failure.
fn run_together(place: &Checkout, builds: Vec<CargoBuild>) -> Result<(), XtaskFailure> {
    thread::scope(|scope| {
        let running: Vec<_> =
            builds.into_iter().map(|build| scope.spawn(move || run_build(place, build))).collect();
        let outcomes = running
            .into_iter()
            .map(|build| build.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        outcomes.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Runs a build. Cargo's messages about finished crates go to a file beside the log.
fn run_build(place: &Checkout, build: CargoBuild) -> Result<(), XtaskFailure> {
    let CargoBuild { log: name, mut command } = build;
    command.arg("--message-format=json-render-diagnostics");
    let log = log_of(place, name);
    let (_, errors) = open_log(&log)?;
    let (out, _) = open_log(&messages(place, name))?;
    run_into(&mut command, out, errors).map_err(|failure| explained(place, failure, &log, None))
}

/// Runs a phase before the numbered ones, such as a download of a missing part.
pub(crate) fn beforehand(
    place: &Checkout,
    what: &str,
    log: &str,
    command: Command,
) -> Result<(), XtaskFailure> {
    StderrScreen::find().quietly(what, || to_log(place, log, command))
}

/// Runs a part of a phase, whose output goes to `target/xtask/LOG.log`.
pub(crate) fn to_log(
    place: &Checkout,
    log: &str,
    mut command: Command,
) -> Result<(), XtaskFailure> {
    run_to_log(place, log, &mut command, None)
}

/// The capabilities of stderr.
#[derive(Clone, Copy)]
struct StderrScreen {
    /// Whether a line can be rewritten while the phase runs.
    live: bool,
    colours: bool,
}

impl StderrScreen {
    fn find() -> Self {
        let live =
            io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|kind| kind != "dumb");
        Self { live, colours: live && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    fn dim(self, text: &str) -> String {
        if self.colours { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn red(self, text: &str) -> String {
        if self.colours { format!("\x1b[31m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prints one line for the whole phase; on a terminal the seconds count up.
    fn quietly(
        self,
        label: &str,
        work: impl FnOnce() -> Result<(), XtaskFailure>,
    ) -> Result<(), XtaskFailure> {
        self.counting(label, &String::new, work)
    }

    /// Does the same; on a terminal the progress follows the seconds.
    fn counting(
        self,
        label: &str,
        progress: &(dyn Fn() -> String + Sync),
        work: impl FnOnce() -> Result<(), XtaskFailure>,
    ) -> Result<(), XtaskFailure> {
        let (began, processor) = (Instant::now(), times::child_time());
        eprint!("{label} …");
        let _ = io::stderr().flush();
        let outcome = if self.live { ticking(label, began, progress, work) } else { work() };
        let processor = times::child_time().saturating_sub(processor);
        let time = self.dim(&format!("({})", with_processors(began.elapsed(), processor)));
        let start = if self.live { format!("\r\x1b[K{label} …") } else { String::new() };
        match &outcome {
            Ok(()) => eprintln!("{start}  {time}"),
            Err(_) => eprintln!("{start}  {} {time}", self.red("failed")),
        }
        outcome
    }

    /// Prints a line before and one after, because the work prints in between.
    fn aloud(
        self,
        label: &str,
        work: impl FnOnce() -> Result<(), XtaskFailure>,
    ) -> Result<(), XtaskFailure> {
        let began = Instant::now();
        eprintln!("{label} …");
        let outcome = work();
        let how = if outcome.is_ok() { "done" } else { "failed" };
        eprintln!("{label}  {how} {}", self.dim(&format!("({})", spelled(began.elapsed()))));
        outcome
    }
}

fn ticking(
    label: &str,
    began: Instant,
    progress: &(dyn Fn() -> String + Sync),
    work: impl FnOnce() -> Result<(), XtaskFailure>,
) -> Result<(), XtaskFailure> {
    let (ended, ending) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while ending.recv_timeout(Duration::from_secs(1))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                // The text before may have been longer: `9.0 s` is longer than `10 s`.
                eprint!("\r{label} …  ({}{})\x1b[K", spelled(began.elapsed()), progress());
                let _ = io::stderr().flush();
            }
        });
        let outcome = work();
        drop(ended); // the ticker stops at once, so the last word on the line is the caller's
        outcome
    })
}

/// Returns a duration such as `0.4 s`, `12 s` or `2 min 05 s`.
pub(crate) fn spelled(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

/// Returns the time of a phase; of a long one also how long it kept processors busy.
fn with_processors(time: Duration, processor: Duration) -> String {
    if processor < Duration::from_secs(10) {
        return spelled(time);
    }
    format!("{}, {} of processor time", spelled(time), spelled(processor))
}

fn run_aloud(command: &mut Command) -> Result<(), XtaskFailure> {
    let status = status(command.stdin(Stdio::null()))?;
    if status.success() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!("{} ended with {status}", typed(command))))
}

/// Runs a command whose output goes to a log. On failure the report has the relevant part of it.
fn run_to_log(
    place: &Checkout,
    name: &str,
    command: &mut Command,
    remedy: Option<&str>,
) -> Result<(), XtaskFailure> {
    let log = log_of(place, name);
    let (mut out, err) = open_log(&log)?;
    let _ = writeln!(out, "$ {}", typed(command));
    run_into(command, out, err).map_err(|failure| explained(place, failure, &log, remedy))
}

fn log_of(place: &Checkout, name: &str) -> PathBuf {
    place.own().join(format!("{name}.log"))
}

fn run_into(command: &mut Command, out: File, err: File) -> Result<(), XtaskFailure> {
    run_aloud(command.env("CARGO_TERM_COLOR", "never").stdout(out).stderr(err))
}

/// Makes a file for output, with those folders above it that are missing. Returns two handles of it.
pub(crate) fn open_log(log: &Path) -> Result<(File, File), XtaskFailure> {
    files::make_folder(log.parent().unwrap_or(Path::new(".")))?;
    let file = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
    file.map_err(|error| XtaskFailure::io("write", log, &error))
}

/// Runs a command whose output is read.
pub(crate) fn output(command: &mut Command) -> Result<Output, XtaskFailure> {
    command.output().map_err(|error| not_started(command, &error))
}

/// Runs a build by cargo, and returns what it prints. Fails with the
/// warnings of the build: cargo repeats those of crates that it does not compile again.
pub(crate) fn without_warnings(command: &mut Command) -> Result<String, XtaskFailure> {
    let output = output(command)?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && text.trim().is_empty() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(XtaskFailure::new(format!("\n{}", text.trim_end())))
}

/// Runs a command that prints by itself.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, XtaskFailure> {
    command.status().map_err(|error| not_started(command, &error))
}

pub(crate) fn not_started(command: &Command, error: &io::Error) -> XtaskFailure {
    XtaskFailure::new(format!(
        "cannot start {}: {error}",
        Path::new(command.get_program()).display()
    ))
}

/// Returns the command as it would be typed.
fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    format!("{} {}", program.to_string_lossy(), arguments(command))
}

/// Returns the command's arguments, quoted where a shell needs it.
pub(crate) fn arguments(command: &Command) -> String {
    let quoted = |word: &str| {
        if word.is_empty() || word.contains([' ', '"', '\'', '$', '*', '?']) {
            format!("{word:?}")
        } else {
            word.to_owned()
        }
    };
    command.get_args().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn explained(
    place: &Checkout,
    failure: XtaskFailure,
    log: &Path,
    remedy: Option<&str>,
) -> XtaskFailure {
    let text = fs::read_to_string(log).unwrap_or_default();
    let (excerpt, path) = (excerpt(&text), place.relative(log));
    let mut report = format!("\n{excerpt}\n\n{}\nThe whole output: {path}", failure.text);
    let known = REMEDIES.iter().find(|(sign, _)| text.contains(sign)).map(|(_, remedy)| *remedy);
    if let Some(remedy) = remedy.or(known) {
        report.push_str(&format!("\nWhat helps: {remedy}"));
    }
    XtaskFailure::new(report)
}

/// Returns the log from the first error on, or else its end.
fn excerpt(log: &str) -> String {
    let lines: Vec<&str> = log.lines().skip(1).collect();
    let first = lines.iter().position(|line| line.starts_with("error"));
    let start = first.unwrap_or(lines.len().saturating_sub(SHOWN_LINES));
    let window = &lines[start..lines.len().min(start + SHOWN_LINES)];
    let mut text: String = window.iter().map(|line| format!("    {line}\n")).collect();
    let remaining = lines.len() - start - window.len();
    if remaining > 0 {
        text.push_str(&format!("    … and {remaining} more lines\n"));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(spelled(Duration::from_millis(340)), "0.3 s");
        assert_eq!(spelled(Duration::from_secs(12)), "12 s");
        assert_eq!(spelled(Duration::from_secs(125)), "2 min 05 s");
    }

    #[test]
    fn a_long_phase_tells_its_processor_time() {
        let seconds = Duration::from_secs;
        assert_eq!(with_processors(seconds(9), seconds(9)), "9.0 s");
        let long = with_processors(seconds(70), seconds(130));
        assert_eq!(long, "1 min 10 s, 2 min 10 s of processor time");
    }

    #[test]
    fn an_excerpt_begins_at_the_first_error() {
        let log = "$ cargo build\n   Compiling a\nwarning: b\nerror[E0001]: c\n --> d\nerror: e\n";
        assert_eq!(excerpt(log), "    error[E0001]: c\n     --> d\n    error: e");
    }

    #[test]
    fn an_excerpt_without_errors_is_the_end() {
        let log: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert!(excerpt(&log).starts_with("    line 40\n"));
        assert!(excerpt(&log).ends_with("line 99"));
    }

    #[test]
    fn a_long_excerpt_says_how_much_is_missing() {
        let log: String = (0..100).map(|n| format!("error {n}\n")).collect();
        assert!(excerpt(&log).ends_with("… and 39 more lines"));
    }
}
