//! Histories, and whether the detectors of 2024 and of 2025 find them stuck.

use conclave_core::control::stuck::events::{self, Seen};
use conclave_core::control::stuck::pairs::{self, Pair, PairRules};
use conclave_core::trajectory::{Era, Event};
use serde_json::{Value, json};

use super::Case;

pub(super) fn pairs(case: &Case<'_>) -> Result<Value, String> {
    let mut history = Vec::new();
    for pair in case.list("history")? {
        let half = |at: usize| normal(pair.get(at).unwrap_or(&Value::Null), Era::V2024);
        history.push(Pair::of(&half(0)?, &half(1)?));
    }
    let is_stuck = |rules| pairs::find(rules, history.iter()).is_some();
    let (june, july) = (is_stuck(PairRules::Pairs2024_06), is_stuck(PairRules::Pairs2024_07));
    Ok(json!({ "stuck": { "2024-06": june, "2024-07": july } }))
}

pub(super) fn events(case: &Case<'_>) -> Result<Value, String> {
    let seen = case.list("history")?.iter().map(|event| Ok(Seen::of(&normal(event, Era::V2025)?)));
    let seen = seen.collect::<Result<Vec<Seen>, String>>()?;
    let headless = case.get("headless").and_then(Value::as_bool).unwrap_or(true);
    let found = events::find(&seen, headless);
    let shown = found.map(|found| json!({ "type": found.kind.as_str(), "repeats": found.repeats, "start": found.start }));
    Ok(json!({ "stuck": found.is_some(), "loop": shown }))
}

/// The event with everything that it leaves out.
fn normal(event: &Value, era: Era) -> Result<Value, String> {
    let read = Event::from_json_of(event, era).map_err(|error| format!("{event}: {error}"))?;
    Ok(read.to_json(era))
}
