//! Reads a whole log of any shape and era. Invalid parts are skipped and reported (O-190, O-191).

use serde_json::Value;

use crate::era::Era;
use crate::event::TrajectoryEvent;
use crate::sdk::SdkEvent;
use crate::translate::translate;

/// The keys under which an object holds a log.
const HOLDERS: [&str; 3] = ["history", "trajectory", "events"];

/// Maximum nesting of objects and lists around a log.
const DEPTH: usize = 4;

/// The readable part of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The events of 2024-07 and 2025-11, in order; then the translated ones of the SDK.
    pub events: Vec<TrajectoryEvent>,
    /// The events of the SDK unchanged, in order.
    pub sdk: Vec<SdkEvent>,
    /// The era of most events; `None` if they fit both or are the SDK's.
    pub era: Option<Era>,
    /// The invalid parts.
    pub problems: Vec<LogProblem>,
}

/// An invalid part of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProblem {
    /// The place: `line 3`, `event 5`, `pair 2, action`.
    pub at: String,
    /// The reason.
    pub text: String,
    /// The part itself, if it is JSON, so that nothing is lost.
    pub raw: Option<Value>,
}

/// Reads a log. It is a single event, a JSON array of events, or one of (action, observation)
/// pairs. The array may be inside an object, under `history`, `trajectory` or `events`. JSON lines
/// of these are read too.
pub fn load(text: &str) -> Loaded {
    let mut loader = LogLoader::default();
    let text = text.trim_start_matches('\u{feff}');
    match serde_json::from_str(text) {
        Ok(value) => loader.take(&value, "log", 0),
        Err(error) => loader.lines(text, &error),
    }
    loader.finish()
}

#[derive(Default)]
struct LogLoader {
    loaded: Loaded,
    only_old: usize,
    only_new: usize,
}

impl LogLoader {
    fn lines(&mut self, text: &str, document_error: &serde_json::Error) {
        let lines: Vec<(usize, &str)> =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
        let read: Vec<_> =
            lines.iter().map(|(at, line)| (at + 1, serde_json::from_str::<Value>(line))).collect();
        // An invalid document is one problem, not one per line.
        let is_lines = read.iter().any(|(_, line)| {
            line.as_ref().is_ok_and(|value| value.is_object() || value.is_array())
        });
        if !is_lines {
            let text =
                format!("This is neither JSON ({document_error}) nor one JSON value per line.");
            self.problem("log".to_owned(), text, None);
            return;
        }
        for (at, line) in read {
            match line {
                Ok(value) => self.take(&value, &format!("line {at}"), 0),
                Err(error) => self.problem(
                    format!("line {at}"),
                    format!("This line is no JSON ({error})."),
                    None,
                ),
            }
        }
    }

    fn take(&mut self, value: &Value, at: &str, depth: usize) {
        match value {
            Value::Array(items) if depth < DEPTH => {
                let place = |name: &str, index: usize| match at {
                    "log" => format!("{name} {index}"),
                    _ => format!("{at}, {name} {index}"),
                };
                for (index, item) in items.iter().enumerate() {
                    match item {
                        Value::Array(pair) if is_pair(pair) => {
                            self.pair(pair, &place("pair", index))
                        }
                        _ => self.take(item, &place("event", index), depth + 1),
                    }
                }
            }
            Value::Object(map) if is_event(value) || depth >= DEPTH => {
                let _ = map;
                self.event(value, at);
            }
            Value::Object(map) => {
                match HOLDERS.iter().find_map(|name| map.get(*name).filter(|list| list.is_array()))
                {
                    Some(list) => self.take(list, at, depth + 1),
                    None => self.event(value, at),
                }
            }
            other => self.problem(
                at.to_owned(),
                "An event must be an object.".to_owned(),
                Some(other.clone()),
            ),
        }
    }

    /// Reads an action and its observation, as the evaluations of 2024-07 store them. A null action
    /// or observation is only a filler.
    fn pair(&mut self, pair: &[Value], at: &str) {
        for (value, family) in pair.iter().zip(["action", "observation"]) {
            let filler = value.get(family).and_then(Value::as_str) == Some("null")
                && value.get("id").is_none();
            if !filler {
                self.event(value, &format!("{at}, {family}"));
            }
        }
    }

    fn event(&mut self, value: &Value, at: &str) {
        if SdkEvent::looks_like(value) {
            match SdkEvent::from_json(value) {
                Ok(event) => self.loaded.sdk.push(event),
                Err(error) => self.problem(at.to_owned(), error.to_string(), Some(value.clone())),
            }
            return;
        }
        match TrajectoryEvent::from_json(value) {
            Ok(event) => {
                self.vote(value);
                self.loaded.events.push(event);
            }
            Err(malformed) => {
                self.problem(at.to_owned(), malformed.to_string(), Some(value.clone()))
            }
        }
    }

    fn vote(&mut self, value: &Value) {
        let old = TrajectoryEvent::from_json_of(value, Era::V2024).is_ok();
        // The 2025-11 reader accepts the old spelling of a command's extras, but never wrote it.
        let old_spelling =
            value.get("extras").is_some_and(|extras| extras.get("command_id").is_some());
        let new = TrajectoryEvent::from_json_of(value, Era::V2025).is_ok() && !old_spelling;
        self.only_old += usize::from(old && !new);
        self.only_new += usize::from(new && !old);
    }

    fn problem(&mut self, at: String, text: String, raw: Option<Value>) {
        self.loaded.problems.push(LogProblem { at, text, raw });
    }

    fn finish(mut self) -> Loaded {
        self.loaded.era = match self.only_old.cmp(&self.only_new) {
            std::cmp::Ordering::Greater => Some(Era::V2024),
            std::cmp::Ordering::Less => Some(Era::V2025),
            std::cmp::Ordering::Equal => None,
        };
        self.loaded.events.extend(translate(&self.loaded.sdk));
        self.loaded
    }
}

fn is_pair(items: &[Value]) -> bool {
    matches!(items, [action, observation] if action.get("action").is_some() && observation.get("observation").is_some())
}

fn is_event(value: &Value) -> bool {
    value.get("action").is_some()
        || value.get("observation").is_some()
        || SdkEvent::looks_like(value)
}
