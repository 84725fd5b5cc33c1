//! Follows a driver while it runs. It writes the output to a log, shows the progress on a terminal
//! and reads the result from the last lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::XtaskFailure;
use crate::phase;

/// The maximum number of characters shown of a reason; the log has all of it.
const REASON: usize = 300;

/// The results in a driver's output.
#[derive(Debug, Default)]
pub(super) struct DriverReport {
    pub(super) executions: u64,
    pub(super) new: usize,
    /// The input that libFuzzer wrote down.
    pub(super) finding: Option<PathBuf>,
    /// The first error message.
    pub(super) reason: Option<String>,
    pub(super) is_success: bool,
    /// Whether the last line was a panic's location, so that its message is the next line.
    is_panic: bool,
}

impl DriverReport {
    fn take(&mut self, line: &str) {
        let stat = |name: &str| {
            line.strip_prefix("stat::")?
                .strip_prefix(name)?
                .trim_start_matches(':')
                .trim()
                .parse::<u64>()
                .ok()
        };
        self.executions = stat("number_of_executed_units").unwrap_or(self.executions);
        self.new =
            stat("new_units_added").and_then(|new| usize::try_from(new).ok()).unwrap_or(self.new);
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.finding = Some(PathBuf::from(path.trim()));
        }
        if self.is_panic {
            self.is_panic = false;
            let (place, message) = (
                self.reason.take().unwrap_or_default(),
                line.chars().take(REASON).collect::<String>(),
            );
            self.reason = Some(format!("{message}\n{place}"));
            return;
        }
        // Only the first message is the cause; later ones follow from it.
        if self.reason.is_some() {
            return;
        }
        self.reason = line
            .find("panicked at ")
            .map(|at| line[at..].trim_end_matches(':').chars().take(REASON).collect());
        self.is_panic = self.reason.is_some();
        let signs = [
            "has overflowed its stack",
            "one input takes longer",
            "libFuzzer: timeout",
            "libFuzzer: out-of-memory",
        ];
        if signs.iter().any(|sign| line.contains(sign)) {
            self.reason = Some(line.trim().chars().take(REASON).collect());
        }
    }
}

/// Returns the number of inputs that libFuzzer had run at this line: `#1234 NEW …`.
fn count(line: &str) -> Option<u64> {
    let digits = line.strip_prefix('#')?;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Runs the program to its end.
pub(super) fn watched(
    log: &Path,
    name: &str,
    seconds: u64,
    command: &mut Command,
) -> Result<DriverReport, XtaskFailure> {
    let mut file = File::create(log).map_err(|error| XtaskFailure::io("write", log, &error))?;
    let is_live = io::stderr().is_terminal();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| phase::not_started(command, &error))?;
    let errors =
        child.stderr.take().ok_or_else(|| XtaskFailure::new(format!("{name} says nothing")))?;
    let executions = AtomicU64::new(0);
    let mut seen = DriverReport::default();
    thread::scope(|scope| {
        let (ended, ending) = mpsc::channel::<()>();
        if is_live {
            let executions = &executions;
            scope.spawn(move || tick(name, seconds, executions, &ending));
        }
        // Split as bytes, because the output may not be UTF-8.
        for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let _ = writeln!(file, "{line}");
            seen.take(&line);
            executions.fetch_max(count(&line).unwrap_or(0), Ordering::Relaxed);
        }
        // Ends the ticking thread, which the scope joins.
        drop(ended);
    });
    let status = child
        .wait()
        .map_err(|error| XtaskFailure::new(format!("{name} cannot be waited for: {error}")))?;
    seen.is_success = status.success();
    seen.executions = seen.executions.max(executions.into_inner());
    if seen.is_success {
        // A successful run may print lines that look like failures.
        seen.reason = None;
    } else if seen.reason.is_none() {
        seen.reason = Some(format!("it ended with {status}"));
    }
    Ok(seen)
}

/// Rewrites one line each second, and clears it at the end.
fn tick(name: &str, seconds: u64, executions: &AtomicU64, ending: &mpsc::Receiver<()>) {
    let began = Instant::now();
    loop {
        let counted = match executions.load(Ordering::Relaxed) {
            0 => String::new(),
            counted => format!("  more than {counted} runs"),
        };
        eprint!("\r\x1b[2K{name}  {} of {seconds} s{counted}", began.elapsed().as_secs());
        let _ = io::stderr().flush();
        if ending.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
            eprint!("\r\x1b[2K");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str]) -> DriverReport {
        let mut seen = DriverReport::default();
        lines.iter().for_each(|line| seen.take(line));
        seen
    }

    #[test]
    fn a_panic_is_told_with_its_message_first() {
        let seen = seen(&[
            "INFO: seed corpus: files: 8",
            "thread '<unnamed>' (7) panicked at tests/fuzz/src/targets/urls.rs:9:5:",
            "a host that is not named",
            "note: run with `RUST_BACKTRACE=1`",
            "==7== ERROR: libFuzzer: deadly signal",
            "artifact_prefix='/t/'; Test unit written to /t/crash-00",
            "stat::number_of_executed_units: 12",
            "stat::new_units_added:          3",
        ]);
        assert_eq!(
            seen.reason.as_deref(),
            Some("a host that is not named\npanicked at tests/fuzz/src/targets/urls.rs:9:5")
        );
        assert_eq!(seen.finding.as_deref(), Some(Path::new("/t/crash-00")));
        assert_eq!((seen.executions, seen.new), (12, 3));
    }

    #[test]
    fn what_is_no_panic_is_told_too() {
        for line in [
            "thread 'main' has overflowed its stack",
            "==7== ERROR: libFuzzer: timeout after 120 seconds",
        ] {
            assert_eq!(
                seen(&["#2 INITED", line, "panicked at later"]).reason.as_deref(),
                Some(line)
            );
        }
    }

    #[test]
    fn executions_are_counted_as_they_are_said() {
        assert_eq!(count("#4096\tpulse  corp: 3/9b"), Some(4096));
        assert_eq!(count("# of tests"), None);
        assert_eq!(count("stat: #7"), None);
    }
}
