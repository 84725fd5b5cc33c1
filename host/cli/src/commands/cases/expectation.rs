//! The expectations of a case, and its observed result.

use std::sync::{Mutex, PoisonError};

use conclave_core::protocol::notice::Notice;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::ids::CallId;
use conclave_core::types::risk::Risk;
use conclave_runtime::calls::Observer;
use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Log lines and denials of a script that are recorded, of each.
const MOST_RECORDS: usize = 10_000;

/// The expectations of a case; an absent one is not compared.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    /// The whole text of the result.
    #[serde(default)]
    content: Option<String>,
    /// A part of that text.
    #[serde(default)]
    contains: Option<String>,
    /// The structured result.
    #[serde(default)]
    value: Option<Value>,
    /// A part of the error's text.
    #[serde(default)]
    error: Option<String>,
    /// The status of a run, such as `DONE`.
    #[serde(default)]
    status: Option<String>,
    /// Tools that were called, in this order.
    #[serde(default)]
    called: Option<Vec<String>>,
    /// Capabilities that were refused, in this order.
    #[serde(default)]
    denied: Option<Vec<String>>,
    /// Texts that were sent about results of background tasks; a part of each is enough.
    #[serde(default)]
    delivered: Option<Vec<String>>,
    /// Reasons of gates; a part of each is enough.
    #[serde(default)]
    blocked: Option<Vec<String>>,
    /// How many times a condenser shortened a history.
    #[serde(default)]
    condensed: Option<u64>,
    /// The risk and the reason of each action that an approver was asked about, such as
    /// `high: it deletes files`; a part of each is enough.
    #[serde(default, rename = "asked")]
    risks: Option<Vec<String>>,
    /// Lines of the plugins' logs, in order; a part of each is enough, and others may stand between.
    #[serde(default)]
    logged: Option<Vec<String>>,
}

/// The observed result of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Seen {
    pub(super) content: Option<String>,
    pub(super) value: Option<Value>,
    pub(super) error: Option<String>,
    /// The reason why the case could not be played at all, such as a missing grant.
    pub(super) unplayed: Option<String>,
    pub(super) status: Option<String>,
    pub(super) called: Vec<String>,
    pub(super) denied: Vec<String>,
    pub(super) delivered: Vec<String>,
    pub(super) blocked: Vec<String>,
    pub(super) condensed: u64,
    #[serde(rename = "asked")]
    pub(super) risks: Vec<String>,
    /// How a strategy broke its guarantees, the first breach of each guarantee first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    broken: Vec<String>,
    /// Lines of the plugin's log.
    pub(super) log: Vec<String>,
}

impl Seen {
    /// The guarantees that a strategy broke, or the reason why none was tried.
    pub(super) fn broken(&self) -> Vec<String> {
        self.unplayed.as_deref().map_or_else(|| self.broken.clone(), |why| vec![unplayed(why)])
    }
}

fn unplayed(why: &str) -> String {
    format!("the case could not be played: {why}")
}

/// Records what happens while a case is played.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Seen>);

impl Recorder {
    /// Returns everything, with the result of the call or the run.
    pub(super) fn end(&self, played: Result<Value, String>) -> Seen {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match played {
            Ok(result) => {
                let text = |key: &str| result[key].as_str().map(str::to_owned);
                (seen.content, seen.error, seen.status) =
                    (text("content"), text("error"), text("status"));
                let broken = result["broken"].as_array().into_iter().flatten();
                seen.broken = broken.filter_map(Value::as_str).map(str::to_owned).collect();
                if result["is_success"] == false {
                    seen.error = text("reason");
                }
                seen.value = Some(result["value"].clone()).filter(|value| !value.is_null());
                // For a single call, its follow-up calls count, and not the call itself.
                if let Some(called) = result["called"].as_array() {
                    let name = |name: &Value| name.as_str().map(str::to_owned);
                    seen.called = called.iter().filter_map(name).collect();
                }
            }
            Err(error) => seen.unplayed = Some(error),
        }
        seen
    }
}

/// A strategy that plays a script is called outside a run.
impl Observer for Recorder {
    fn log(&self, _: CallId, _: Level, message: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.log.len() < MOST_RECORDS {
            seen.log.push(message.to_owned());
        }
    }

    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}

    fn denied(&self, _: CallId, record: &DenialRecord) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.denied.len() < MOST_RECORDS {
            seen.denied.push(record.denial.capability.clone());
        }
    }
}

impl Subscriber for Recorder {
    fn on(&self, published: &Published) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &published.what {
            RunEvent::Logged { message, .. } => seen.log.push(message.clone()),
            RunEvent::Notice { notice } => match notice {
                Notice::ToolCalled { name, .. } => seen.called.push(name.clone()),
                Notice::Denied { record, .. } => {
                    seen.denied.push(record.denial.capability.clone());
                }
                Notice::Delivered { text, .. } => seen.delivered.push(text.clone()),
                Notice::HistoryCondensed { .. } => seen.condensed += 1,
                Notice::ApprovalAsked { request, .. } => {
                    let risk = request.risk.map_or("unrated", Risk::as_str);
                    let reason = request.risk_reason.as_deref().unwrap_or_default();
                    seen.risks.push(format!("{risk}: {reason}"));
                }
                Notice::GateBlocked { reason, .. } => seen.blocked.push(reason.clone()),
                _ => {}
            },
            _ => {}
        }
    }
}

impl Expectation {
    /// The expectations that were not met, each with the observed value.
    pub(super) fn problems(&self, seen: &Seen) -> Vec<String> {
        if let Some(why) = &seen.unplayed {
            return vec![unplayed(why)];
        }
        let mut problems = Vec::new();
        let mut check = |is_met: bool, what: &str, expected: String, seen: String| {
            if !is_met {
                problems.push(format!("{what}\n  expected  {expected}\n  seen      {seen}"));
            }
        };
        let equal = |expected: &Option<String>, seen: &Option<String>| {
            expected.as_ref().is_none_or(|expected| seen.as_ref() == Some(expected))
        };
        let part = |expected: &Option<String>, seen: &Option<String>| {
            let holds = |part: &String| seen.as_ref().is_some_and(|text| text.contains(part));
            expected.as_ref().is_none_or(holds)
        };
        check(equal(&self.content, &seen.content), "content", of(&self.content), of(&seen.content));
        check(
            part(&self.contains, &seen.content),
            "contains",
            of(&self.contains),
            of(&seen.content),
        );
        let is_value = self.value.as_ref().is_none_or(|value| seen.value.as_ref() == Some(value));
        check(is_value, "value", of(&self.value), of(&seen.value));
        check(equal(&self.status, &seen.status), "status", of(&self.status), of(&seen.status));
        match &self.error {
            Some(_) => {
                check(part(&self.error, &seen.error), "error", of(&self.error), of(&seen.error));
            }
            // An error that no expectation is about must not pass.
            None if self.status.is_some() => {}
            None => check(seen.error.is_none(), "error", "none".to_owned(), of(&seen.error)),
        }
        let is_condensed = self.condensed.is_none_or(|count| count == seen.condensed);
        let (expected, found) = (of(&self.condensed), of(&Some(seen.condensed)));
        check(is_condensed, "condensed", expected, found);
        for (what, expected, seen, is_part) in [
            ("called", &self.called, &seen.called, false),
            ("denied", &self.denied, &seen.denied, false),
            ("delivered", &self.delivered, &seen.delivered, true),
            ("blocked", &self.blocked, &seen.blocked, true),
            ("asked", &self.risks, &seen.risks, true),
            ("logged", &self.logged, &seen.log, true),
        ] {
            let Some(expected) = expected else { continue };
            let fits = |(expected, seen): (&String, &String)| {
                expected == seen || (is_part && seen.contains(expected.as_str()))
            };
            let is_met = if what == "logged" {
                let mut lines = seen.iter();
                expected.iter().all(|part| lines.any(|line| fits((part, line))))
            } else {
                expected.len() == seen.len() && expected.iter().zip(seen).all(fits)
            };
            check(is_met, what, of(&Some(expected)), of(&Some(seen)));
        }
        problems
    }
}

/// The value as JSON, or `nothing`.
fn of<T: Serialize>(value: &Option<T>) -> String {
    let json = value.as_ref().and_then(|value| serde_json::to_string(value).ok());
    json.unwrap_or_else(|| "nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(expected: Value, seen: &Seen) -> Vec<String> {
        let expected: Expectation = serde_json::from_value(expected).unwrap();
        let problems = expected.problems(seen);
        problems.iter().map(|all| all.lines().next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_expectation_can_fail() {
        let recorder = Recorder::default();
        let seen = recorder.end(Ok(json!({
            "content": "five words", "value": 5, "status": "DONE", "called": ["a.b"],
        })));
        let met = json!({ "content": "five words", "contains": "five", "value": 5, "status": "DONE", "called": ["a.b"], "denied": [] });
        assert!(problems(met, &seen).is_empty());
        for (key, value) in [
            ("content", json!("five")),
            ("contains", json!("six")),
            ("value", json!(6)),
            ("status", json!("ERROR")),
            ("error", json!("no")),
            ("called", json!([])),
            ("denied", json!(["files"])),
            ("delivered", json!(["x"])),
            ("blocked", json!(["x"])),
            ("condensed", json!(1)),
            ("asked", json!(["high"])),
            ("logged", json!(["x"])),
        ] {
            assert_eq!(problems(json!({ key: value }), &seen), [key]);
        }
    }

    #[test]
    fn the_log_of_a_script_is_bounded() {
        let recorder = Recorder::default();
        for _ in 0..=MOST_RECORDS {
            recorder.log(CallId(1), Level::Info, "again");
        }
        assert_eq!(recorder.end(Ok(json!({}))).log.len(), MOST_RECORDS);
    }

    #[test]
    fn an_error_that_was_not_expected_fails() {
        let failed = Recorder::default().end(Ok(json!({ "error": "no disk" })));
        assert_eq!(problems(json!({}), &failed), ["error"]);
        assert!(problems(json!({ "error": "disk" }), &failed).is_empty());
        let ended =
            json!({ "status": "STALLED", "is_success": false, "reason": "nobody answered" });
        let ended = Recorder::default().end(Ok(ended));
        assert_eq!(problems(json!({}), &ended), ["error"]);
        assert!(problems(json!({ "status": "STALLED" }), &ended).is_empty());
        // An unplayed case meets no expectation.
        let unplayed = Recorder::default().end(Err("no such tool".to_owned()));
        for expected in [json!({}), json!({ "error": "no such tool" })] {
            assert_eq!(
                problems(expected, &unplayed),
                ["the case could not be played: no such tool"]
            );
        }
    }
}
