//! Scrubs secrets from the output of a plugin that was granted one. A guest never gets a value from
//! the host, but may find it elsewhere, such as in a file. Nothing is scanned until a value has
//! been read.

use std::sync::Arc;

use conclave_core::permissions::secret::{Scrubber, mask};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::CallId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::vault::Vault;
use crate::calls::Observer;
use crate::observe::subscribe::Level;

/// Returns the end of a call with every value scrubbed, if there are any.
pub(crate) fn ended<T>(
    scrubber: Option<&Scrubber>,
    answer: Result<T, Fault>,
    report: CallReport,
) -> (Result<T, Fault>, CallReport)
where
    T: Serialize + DeserializeOwned,
{
    let Some(scrubber) = scrubber else { return (answer, report) };
    let answer = answer.and_then(|answer| {
        // Only existing text is replaced, so the result stays valid unless a name or a number was a
        // secret.
        scrub_value(scrubber, answer).ok_or_else(|| {
            Fault::new(FaultKind::BadAnswer, "its answer cannot do without the value of a secret")
        })
    });
    let answer = answer.map_err(|fault| Fault {
        message: scrubber.scrub_text(&fault.message).into_owned(),
        ..fault
    });
    let scratch = report.scratch.map(|bytes| scrubber.scrub(&bytes).unwrap_or(bytes));
    let denials = scrub_value(scrubber, report.denials).unwrap_or_default();
    (answer, CallReport { scratch, denials, ..report })
}

/// Any value scrubbed; `None` if it is no longer valid then.
fn scrub_value<T: Serialize + DeserializeOwned>(scrubber: &Scrubber, thing: T) -> Option<T> {
    let mut value = serde_json::to_value(&thing).ok()?;
    if scrubber.find(value.to_string().as_bytes()).is_none() {
        return Some(thing);
    }
    each(scrubber, &mut value);
    serde_json::from_value(value).ok()
}

fn each(scrubber: &Scrubber, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(scrubbed) = scrubber.scrub(text.as_bytes()) {
                *text = String::from_utf8_lossy(&scrubbed).into_owned();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| each(scrubber, value)),
        Value::Object(fields) => {
            let scrubbed = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                each(scrubber, &mut value);
                (scrubber.scrub_text(&name).into_owned(), value)
            });
            *fields = scrubbed.collect();
        }
        Value::Number(number) => {
            if let Some(name) = scrubber.find(number.to_string().as_bytes()) {
                *value = Value::String(mask(name));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Wraps an observer so that it receives scrubbed text only.
pub(crate) struct Scrubbed {
    observer: Arc<dyn Observer>,
    vault: Arc<Vault>,
}

impl Scrubbed {
    pub(crate) fn new(observer: &Arc<dyn Observer>, vault: &Arc<Vault>) -> Self {
        Self { observer: Arc::clone(observer), vault: Arc::clone(vault) }
    }
}

impl Observer for Scrubbed {
    fn log(&self, call: CallId, level: Level, message: &str) {
        self.observer.log(call, level, &self.vault.scrubber().scrub_text(message));
    }

    fn progress(&self, call: CallId, completed: u64, total: Option<u64>, message: &str) {
        self.observer.progress(call, completed, total, &self.vault.scrubber().scrub_text(message));
    }

    fn denied(&self, call: CallId, record: &DenialRecord) {
        if let Some(record) = scrub_value(&self.vault.scrubber(), record.clone()) {
            self.observer.denied(call, &record);
        }
    }
}
