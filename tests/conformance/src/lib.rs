//! Conformance: scenarios, one JSON object a line, each played through the whole host with real components. What is compared, and how a
//! scenario becomes a config, is told in `docs/conformance.md`.

mod compare;
pub mod config;
mod fields;
mod people;
mod play;
mod pure;
pub mod scenario;
mod shown;
mod ticking;
mod toml_text;
mod watch;
mod wording;
pub mod workers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use conclave_runtime::{Host, HostOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use config::Guests;
use scenario::Scenario;

/// The only pack that is played here.
const PACK: &str = "langroid";
/// No scenario takes a second; one that takes this long waits for what never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub id: String,
    pub end: End,
}

/// How a scenario ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Passed,
    Failed {
        expected: Value,
        /// What each call showed, or a text that says why there is no such thing.
        got: Value,
        /// Where they differ.
        differences: Vec<String>,
    },
    /// It is of another pack.
    Skipped,
}

impl Verdict {
    /// A scenario that could not be played.
    #[must_use]
    pub fn failed(line: &str, reason: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let expected = value.get("expect").cloned().unwrap_or_default();
        Self { id: id_of(&value), end: End::Failed { expected, got: json!(reason), differences: vec![reason.to_owned()] } }
    }
}

/// Plays scenarios, each in a session of its own.
pub struct Runner {
    host: Host,
    guests: Guests,
}

impl Runner {
    /// A runner with the components in `guests`, and with a cache of what was compiled, so that each is compiled once.
    ///
    /// # Errors
    /// When the engine cannot be set up.
    pub fn new(guests: &Path, cache: Option<PathBuf>) -> Result<Self, String> {
        let host = Host::new(HostOptions { cache, ..HostOptions::default() }).map_err(|error| error.to_string())?;
        Ok(Self { host, guests: Guests::of_folder(guests) })
    }

    /// Compiles both guests, which takes long the first time.
    ///
    /// # Errors
    /// When they cannot be loaded.
    pub async fn warm_up(&self) -> Result<(), String> {
        let scenario = json!({
            "id": "", "agents": [{ "name": "A", "tools": [{ "name": "a" }] }],
            "calls": [{ "op": "known_tools", "agent": "A", "message": "" }],
        });
        let scenario: Scenario = serde_json::from_value(scenario).map_err(|error| error.to_string())?;
        play::play(&self.host, &self.guests, &scenario).await.map(drop)
    }

    /// Plays one line of a file.
    pub async fn judge(&self, line: &str) -> Verdict {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let id = id_of(&value);
        if value.get("pack").and_then(Value::as_str).is_some_and(|pack| pack != PACK) {
            return Verdict { id, end: End::Skipped };
        }
        let scenario: Scenario = match serde_json::from_value(value) {
            Ok(scenario) => scenario,
            Err(error) => return Verdict::failed(line, &format!("the scenario cannot be read: {error}")),
        };
        let playing = tokio::time::timeout(PATIENCE, play::play(&self.host, &self.guests, &scenario));
        match playing.await.unwrap_or_else(|_| Err("it does not end".to_owned())) {
            Err(reason) => Verdict::failed(line, &reason),
            Ok(shown) => {
                let (expected, got) = (Value::Array(scenario.expect), Value::Array(shown));
                let differences = compare::differences(&expected, &got);
                let end = if differences.is_empty() { End::Passed } else { End::Failed { expected, got, differences } };
                Verdict { id, end }
            }
        }
    }
}

fn id_of(line: &Value) -> String {
    line.get("id").and_then(Value::as_str).unwrap_or("?").to_owned()
}

/// The lines of a file that hold something.
///
/// # Errors
/// When it cannot be read.
pub fn lines(file: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}
