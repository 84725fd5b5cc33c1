//! The output of a single call while it runs: log lines, progress and side effects. Each refusal
//! names the argument that would allow it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anstyle::Style;
use conclave_core::config::edit::Fragment;
use conclave_core::inspect::telling::{Telling, Tone, tell};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::denial::DenialRecord;
use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber};
use serde_json::{Value, json};

use crate::args::OutputArgs;
use crate::program::shell::shell;
use crate::ui::screen::{Screen, Verbosity, total_columns};
use crate::ui::show::entry::EntryText;
use crate::ui::show::trace::{is_routine, with_telling};
use crate::ui::show::{BAD, FAINT, GOOD, one_line, paint, plural};

/// Columns of a plugin's line.
const WIDTH: usize = 200;
/// Log lines that are shown without `--verbose`. A plugin can write any number.
const LOG_LINES: u64 = 20;

/// Follows a call, and keeps its log for `--json`.
pub(super) struct CallFollower {
    verbose: bool,
    output: OutputArgs,
    log: Mutex<Vec<Value>>,
    log_lines: AtomicU64,
    screen: Arc<Screen>,
}

impl CallFollower {
    pub(super) fn new(verbose: bool, output: OutputArgs) -> Self {
        Self {
            verbose,
            output,
            log: Mutex::default(),
            log_lines: AtomicU64::new(0),
            screen: Screen::new(Verbosity::of(output)),
        }
    }

    /// The log lines, in order.
    pub(super) fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prints a line to stderr.
    pub(super) fn line(&self, text: &str) {
        self.screen.notice(text);
    }

    /// Ends the output of the call: its progress, and the count of log lines that were omitted.
    pub(super) fn end(&self) {
        self.screen.set_progress("");
        if let Some(more) = left_out(self.verbose, self.log_lines.load(Ordering::SeqCst)) {
            self.line(&paint(FAINT, more));
        }
    }

    fn log_line(&self, message: &str) {
        if self.shows_log_line() {
            self.put(&EntryText::new(FAINT, "log").exact(FAINT, message));
        }
    }

    /// Counts a line of the log. Returns whether it is shown.
    fn shows_log_line(&self) -> bool {
        self.log_lines.fetch_add(1, Ordering::SeqCst) < LOG_LINES || self.verbose
    }

    /// Prints an entry to stderr.
    pub(super) fn put(&self, entry: &EntryText) {
        entry.rows(total_columns()).iter().for_each(|row| self.line(row));
    }

    fn denied(&self, record: &DenialRecord) {
        let denial = &record.denial;
        self.put(
            &EntryText::new(BAD, "DENIED")
                .words(Style::new(), &denial.capability)
                .cut(Style::new(), &denial.target),
        );
        self.line(&format!(
            "       {}",
            paint(
                FAINT,
                format_args!(
                    "refused by the {}: {}",
                    record.layer.as_str(),
                    one_line(&record.reason, WIDTH)
                )
            )
        ));
        if let Some(argument) = argument(record) {
            self.line(&format!(
                "       {} {}",
                paint(FAINT, "to allow it:"),
                paint(GOOD, argument)
            ));
        }
    }
}

impl Subscriber for CallFollower {
    fn on(&self, happening: &Published) {
        // Before the return below: `--json` prints the whole log at the end.
        if let RunEvent::Logged { level, message, .. } = &happening.what {
            self.log
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(json!({ "level": level, "message": message }));
        }
        if self.output.json || self.output.quiet {
            return;
        }
        match &happening.what {
            RunEvent::Logged { level, message, .. } if self.verbose || *level >= Level::Info => {
                self.log_line(message);
            }
            RunEvent::Progressed { completed, total, message, .. } => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                let entry = EntryText::new(FAINT, format!("{completed}{of}")).cut(FAINT, message);
                match self.screen.has_status() {
                    true => self.screen.set_progress(
                        &anstream::adapter::strip_str(&entry.rows(total_columns()).concat())
                            .to_string(),
                    ),
                    false => self.put(&entry),
                }
            }
            RunEvent::Notice { notice: Notice::Denied { record, .. } } => self.denied(record),
            RunEvent::Notice {
                notice: notice @ (Notice::SideEffectStarted { .. } | Notice::SideEffectEnded { .. }),
            } if !is_routine(notice) => {
                let telling = Telling { tone: Tone::Faint, ..tell(notice) };
                self.put(&with_telling(EntryText::default(), &telling));
            }
            _ => {}
        }
    }
}

/// The line that stands for the omitted rest of a log with this many lines.
fn left_out(verbose: bool, lines: u64) -> Option<String> {
    let more = lines.checked_sub(LOG_LINES).filter(|more| *more > 0 && !verbose)?;
    Some(format!("… {} not shown; --verbose shows all", plural(more, "log line", "log lines")))
}

/// The proposed grant as an argument of this command.
pub(super) fn argument(record: &DenialRecord) -> Option<String> {
    let fragment = Fragment::parse(record.suggestion.as_deref()?).ok()?;
    Some(format!("--grant {}", shell(&fragment.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_shown_up_to_its_twentieth_line() {
        let output = OutputArgs { json: false, quiet: false, no_color: false };
        let line_count = |verbose| {
            let follower = CallFollower::new(verbose, output);
            (0..1_000).filter(|_| follower.shows_log_line()).count()
        };
        assert_eq!((line_count(false), line_count(true)), (20, 1_000));
        assert_eq!(left_out(false, 20), None);
        assert_eq!(
            left_out(false, 21).as_deref(),
            Some("… 1 log line not shown; --verbose shows all")
        );
        assert_eq!(
            left_out(false, 20_020).as_deref(),
            Some("… 20 000 log lines not shown; --verbose shows all")
        );
        assert_eq!(left_out(true, 20_020), None);
    }
}
