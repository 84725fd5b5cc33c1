//! What a single call says on its way: log lines, progress, what it does to the world, and each refusal with the argument that would allow it.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use conclave_core::config_edit::Fragment;
use conclave_core::grant::DenialRecord;
use conclave_core::notice::Notice;
use conclave_runtime::subscribe::{Happening, Level, Subscriber, What};
use serde_json::{Value, json};

use crate::args::Output;
use crate::commands::add::shell;
use crate::show::trace::{told_answer, told_side_effect};
use crate::show::{BAD, FAINT, GOOD, one_line, paint};

/// How wide a line of a plugin may be.
const WIDTH: usize = 200;

/// Follows a call, and keeps its log for `--json`.
pub(super) struct Told {
    verbose: bool,
    output: Output,
    log: Mutex<Vec<Value>>,
}

impl Told {
    pub(super) fn new(verbose: bool, output: Output) -> Self {
        Self { verbose, output, log: Mutex::default() }
    }

    /// The log lines, in order.
    pub(super) fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A line on stderr.
    pub(super) fn line(&self, text: &str) {
        let _ = writeln!(crate::output::stderr(), "{text}");
    }

    fn side_effect(&self, text: &str) {
        self.line(&paint(FAINT, one_line(text, WIDTH)));
    }

    fn denied(&self, record: &DenialRecord) {
        let denial = &record.denial;
        self.line(&format!("{} {}: {}", paint(BAD, "DENIED"), denial.capability, one_line(&denial.target, WIDTH)));
        self.line(&format!(
            "       {}",
            paint(FAINT, format_args!("{} says no: {}", record.layer.as_str(), one_line(&record.reason, WIDTH)))
        ));
        if let Some(argument) = argument(record) {
            self.line(&format!("       {} {}", paint(FAINT, "to allow it:"), paint(GOOD, argument)));
        }
    }
}

impl Subscriber for Told {
    fn on(&self, happening: &Happening) {
        if let What::Logged { level, message, .. } = &happening.what {
            self.log.lock().unwrap_or_else(PoisonError::into_inner).push(json!({ "level": level, "message": message }));
        }
        if self.output.json || self.output.quiet {
            return;
        }
        match &happening.what {
            What::Logged { level, message, .. } if self.verbose || *level >= Level::Info => {
                self.line(&paint(FAINT, format_args!("log: {}", one_line(message, WIDTH))));
            }
            What::Progressed { done, total, message, .. } => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                self.line(&paint(FAINT, format_args!("{done}{of} {}", one_line(message, WIDTH))));
            }
            What::Told { told: Notice::Denied { record, .. } } => self.denied(record),
            What::Told { told: Notice::SideEffectStarted { side_effect, .. } } => self.side_effect(&told_side_effect(side_effect)),
            What::Told { told: Notice::SideEffectEnded { answer, .. } } => {
                if let Some(text) = told_answer(answer) {
                    self.side_effect(&text);
                }
            }
            _ => {}
        }
    }
}

/// The proposed line as an argument of this command.
pub(super) fn argument(record: &DenialRecord) -> Option<String> {
    let fragment = Fragment::parse(record.suggestion.as_deref()?).ok()?;
    Some(format!("--grant {}", shell(&fragment.to_string())))
}
