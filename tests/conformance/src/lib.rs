//! Conformance scenarios, one JSON object a line, each played on the whole host with real
//! components. `docs/reference/conformance.md` describes the comparison and the config of a
//! scenario.

pub mod bound;
mod case_store;
mod compare;
pub mod config;
pub mod counts;
mod documented;
mod fields;
mod openhands;
mod people;
mod play;
mod pure;
mod roomkit;
pub mod scenario;
pub mod schema;
mod shown;
mod ticking;
mod toml_text;
mod watch;
mod wording;
pub mod workers;

use std::path::{Path, PathBuf};

use conclave_runtime::{Host, HostOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use config::Guests;
use scenario::Scenario;
use schema::{LANGROID, undocumented};

/// The pack whose scenarios are played in one session each. The other packs are `openhands` and
/// `roomkit`.
const PACK: &str = "langroid";

/// The result of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub id: String,
    pub end: End,
}

/// The way in which a scenario ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Passed,
    Failed {
        expected: Value,
        /// The report of each call, or a text with the reason if there is no report.
        got: Value,
        /// The differences from the expectations.
        differences: Vec<String>,
    },
    /// Conclave differs on purpose; docs/migrate/differences.md documents the correct behavior.
    Otherwise {
        differences: Vec<String>,
    },
    /// No host can play the scenario, for this reason.
    NotPlayed {
        reason: String,
    },
    /// The scenario belongs to another pack.
    Skipped,
}

impl Verdict {
    /// Returns the verdict on a scenario that could not be played.
    #[must_use]
    pub fn failed(line: &str, reason: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let expected =
            value.get("expect").or_else(|| value.get("then")).cloned().unwrap_or_default();
        Self {
            id: id_of(&value),
            end: End::Failed { expected, got: json!(reason), differences: vec![reason.to_owned()] },
        }
    }
}

/// A player of scenarios, each in a session of its own.
pub struct Runner {
    host: Host,
    guests: Guests,
    /// The folder of the components.
    folder: PathBuf,
    /// The folder of the compilation cache.
    cache: Option<PathBuf>,
    /// The maximum number of events of a scenario.
    events: u64,
}

impl Runner {
    /// Creates a runner with the components in `guests`. With a cache each component is compiled
    /// only once.
    ///
    /// # Errors
    /// If the engine cannot be set up.
    pub fn new(guests: &Path, cache: Option<PathBuf>) -> Result<Self, String> {
        let host = Host::new(HostOptions { cache: cache.clone(), ..HostOptions::default() })
            .map_err(|error| error.to_string())?;
        Ok(Self {
            host,
            guests: Guests::of_folder(guests),
            folder: guests.to_owned(),
            cache,
            events: bound::EVENTS,
        })
    }

    /// Sets the number of events after which a scenario counts as endless.
    #[must_use]
    pub fn with_events(self, events: u64) -> Self {
        Self { events, ..self }
    }

    /// Compiles both guests, which takes long the first time.
    ///
    /// # Errors
    /// If a guest cannot be loaded.
    pub async fn warm_up(&self) -> Result<(), String> {
        let scenario = json!({
            "id": "", "agents": [{ "name": "A", "tools": [{ "name": "a" }] }],
            "calls": [{ "op": "known_tools", "agent": "A", "message": "" }],
        });
        let scenario: Scenario =
            serde_json::from_value(scenario).map_err(|error| error.to_string())?;
        play::play(&self.host, &self.guests, &scenario).await.map(drop)
    }

    /// Compiles the components that conversations of the OpenHands pack use.
    ///
    /// # Errors
    /// If a component cannot be loaded.
    pub async fn warm_up_conversations(&self) -> Result<(), String> {
        openhands::warm_up(self).await
    }

    /// Compiles the components that rooms use.
    ///
    /// # Errors
    /// If a component cannot be loaded.
    pub async fn warm_up_rooms(&self) -> Result<(), String> {
        roomkit::warm_up(self).await
    }

    /// Plays one line of a file.
    pub async fn judge(&self, line: &str) -> Verdict {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let id = id_of(&value);
        if openhands::is_of_pack(&value) {
            return bound::bounded(self.events, openhands::judge(self, id, &value))
                .await
                .unwrap_or_else(|reason| Verdict::failed(line, &reason));
        }
        if roomkit::is_of_pack(&value) {
            return bound::bounded(self.events, roomkit::judge(self, id, &value))
                .await
                .unwrap_or_else(|reason| Verdict::failed(line, &reason));
        }
        if value.get("pack").and_then(Value::as_str).is_some_and(|pack| pack != PACK) {
            return Verdict { id, end: End::Skipped };
        }
        if let Some(problem) = scenario_problem(&value) {
            return Verdict::failed(line, &problem);
        }
        let mut scenario: Scenario = match serde_json::from_value(value) {
            Ok(scenario) => scenario,
            Err(error) => {
                return Verdict::failed(line, &format!("the scenario cannot be read: {error}"));
            }
        };
        // The expectations are removed first, so that the code that plays the scenario cannot read
        // them.
        let expected = Value::Array(std::mem::take(&mut scenario.expect));
        match bound::bounded(self.events, play::play(&self.host, &self.guests, &scenario))
            .await
            .and_then(|played| played)
        {
            Err(reason) => Verdict::failed(line, &reason),
            Ok(shown) => {
                let got = Value::Array(shown);
                let differences = compare::differences(&expected, &got);
                let end = if differences.is_empty() {
                    End::Passed
                } else {
                    End::Failed { expected, got, differences }
                };
                Verdict { id, end }
            }
        }
    }
}

/// Returns whether a scenario needs the guests of the Langroid pack.
#[must_use]
pub fn needs_guests(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|value| {
        value.get("pack").is_none_or(|pack| pack == PACK) && !openhands::is_of_pack(&value)
    })
}

/// Returns whether a line is a case that is played as a conversation on the whole host.
#[must_use]
pub fn is_conversation(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|value| openhands::is_conversation(&value))
}

/// Returns whether a line is a case of rooms with a delivery strategy.
#[must_use]
pub fn needs_strategies(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|value| roomkit::needs_components(&value))
}

/// Returns the reason why a line cannot be played at all. Ignores filters on packs.
#[must_use]
pub fn problem(line: &str) -> Option<String> {
    match serde_json::from_str::<Value>(line) {
        Err(error) => Some(format!("the line is no JSON: {error}")),
        Ok(value) if openhands::is_of_pack(&value) => openhands::problem(&value),
        Ok(value) if roomkit::is_of_pack(&value) => roomkit::problem(&value),
        Ok(value) => scenario_problem(&value),
    }
}

/// Returns the problem of a Langroid scenario with expectations that the runner does not report.
fn scenario_problem(value: &Value) -> Option<String> {
    if value.get("pack").and_then(Value::as_str).is_some_and(|pack| pack != PACK) {
        return None;
    }
    let list = |key: &str| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let of_call = |(call, expected): (&Value, &Value)| {
        let op = call.get("op").and_then(Value::as_str).unwrap_or("run");
        undocumented(LANGROID, op, expected, |_| None)
    };
    list("calls").iter().zip(list("expect")).find_map(of_call)
}

/// Returns the pack of a line. Defaults to Langroid.
pub(crate) fn pack_of(line: &Value) -> &str {
    if openhands::is_of_pack(line) {
        return openhands::PACK;
    }
    line.get("pack").and_then(Value::as_str).unwrap_or(PACK)
}

/// Returns whether a case is played by a single function of the host instead of the whole host.
pub(crate) fn is_function(line: &Value) -> bool {
    match pack_of(line) {
        PACK => {
            let mut calls = line.get("calls").and_then(Value::as_array).into_iter().flatten();
            calls.all(|call| {
                call.get("op")
                    .and_then(Value::as_str)
                    .is_some_and(|op| pure::is_pure(op) || op == "known_tools")
            })
        }
        openhands::PACK => {
            line.get("kind").and_then(Value::as_str).is_some_and(openhands::is_function)
        }
        roomkit::PACK => {
            line.pointer("/when/op").and_then(Value::as_str).is_some_and(roomkit::is_function)
        }
        _ => false,
    }
}

fn id_of(line: &Value) -> String {
    line.get("id").and_then(Value::as_str).unwrap_or("?").to_owned()
}

/// Returns the non-empty lines of a file with their numbers, counted from 1.
///
/// # Errors
/// If the file cannot be read.
pub fn lines(file: &Path) -> Result<Vec<(usize, String)>, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok((1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| (number, line.to_owned()))
        .collect())
}
