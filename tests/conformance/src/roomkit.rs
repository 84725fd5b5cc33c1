//! The cases of the RoomKit pack. Each is played by the whole host in a persistent room, with
//! native agents that follow the case's script. `docs/reference/conformance.md` describes the
//! inputs, the expectations and the matching of names.

mod agents;
mod compare;
mod delegate;
mod deliver;
mod followed;
mod handles;
mod ids;
mod model;
mod names;
mod queue;
mod stage;
mod tool;

use serde_json::Value;

use crate::documented::{self, Difference, Documented, Host};
use crate::schema::{ROOMKIT, ROOMKIT_NAMES, kinds, undocumented, with_names};
use crate::{End, Runner, Verdict};

/// The name of the pack.
pub(crate) const PACK: &str = "roomkit";

/// The kinds that no host can play, each with the reason.
const NOT_PLAYED: [(&str, &str); 2] = [
    (
        "result_new",
        "a result has no defaults here: the host writes each field of it when a task ends",
    ),
    (
        "handle_new",
        "there is no handle here before a task is delegated: the host makes both at once",
    ),
];

/// The input of a case. Has no access to the expectations, so the code that plays a case cannot
/// read them.
pub(super) struct Case<'a> {
    /// The documented kind of the case's op.
    pub(super) kind: &'static str,
    pub(super) op: &'a str,
    pub(super) given: &'a Value,
    pub(super) when: &'a Value,
    /// The keys that the case expects, without their values.
    asked: Vec<&'a str>,
}

impl<'a> Case<'a> {
    /// Splits a line into the case and its expectations.
    ///
    /// # Errors
    /// Describes the problem of the line.
    fn read(line: &'a Value) -> Result<(Self, &'a Value), String> {
        let word = |key: &str| {
            line.get(key)
                .and_then(Value::as_str)
                .ok_or_else(|| format!("the case has no {key}, which is a text"))
        };
        let value = |key: &str| {
            line.get(key)
                .filter(|value| value.is_object())
                .ok_or_else(|| format!("the case has no {key}, an object"))
        };
        let when = value("when")?;
        let op =
            when.get("op").and_then(Value::as_str).ok_or("`when` has no op, which is a text")?;
        let kind = kind(op, word("area")?, when).ok_or_else(|| {
            let known = kinds(ROOMKIT).join(", ");
            format!("there is no op {op:?} of cases about {:?}; those of docs/internals/conformance.md are: {known}", line["area"])
        })?;
        word("id")?;
        let then = value("then")?;
        let asked = then
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| compare::asked_of(key).unwrap_or(key))
            .collect();
        let case = Self { kind, op, given: value("given")?, when, asked };
        let expected = if GATE_MODES.iter().any(|mode| then.get(mode).is_some()) {
            then.as_object().into_iter().flatten().map(|(_, of_mode)| of_mode).collect()
        } else {
            vec![then]
        };
        match expected
            .into_iter()
            .find_map(|expected| undocumented(ROOMKIT, kind, expected, compare::asked_of))
        {
            Some(problem) => Err(problem),
            None => Ok((case, then)),
        }
    }

    /// Returns whether the case expects a key that takes an additional turn to report.
    pub(super) fn asks_for(&self, key: &str) -> bool {
        self.asked.contains(&key)
    }

    /// Returns a field of `when`, or else of `given`.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.when.get(key).or_else(|| self.given.get(key))
    }

    /// Returns the value of the first of these keys that exists.
    pub(super) fn any(&self, keys: &[&str]) -> Option<&'a Value> {
        keys.iter().find_map(|key| self.get(key))
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::as_u64)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        let texts = self.get(key).and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

/// The gate modes of a case with several gates. Each is played and reported as a case of its own.
const GATE_MODES: [&str; 3] = ["block", "modify", "throw"];

/// Returns the kind of a case: its op if that is documented, else the kind that plays ops with this
/// name.
fn kind(op: &str, area: &str, when: &Value) -> Option<&'static str> {
    if let Some(kind) = kinds(ROOMKIT).into_iter().find(|kind| *kind == op) {
        return Some(kind);
    }
    let has = |word: &str| op.contains(word);
    let any = |words: &[&str]| words.iter().any(|word| has(word));
    Some(match op {
        _ if any(&["enqueue", "nack", "dead_letter", "queue_"]) || op.starts_with("backend") => {
            if has("close") {
                "backend_close"
            } else {
                "backend_nack"
            }
        }
        _ if has("strategy") => "resolve_strategy",
        _ if has("transport") => "find_transport",
        _ if op.starts_with("deliver_to") => "deliver_to",
        _ if op.starts_with("deliver") && when.get("contents").is_some() => "deliver_several",
        _ if op.starts_with("deliver") => "deliver",
        _ if any(&["concurrent", "parallel", "serial"]) => "handle_concurrent",
        _ if any(&["wire", "wiring", "setup", "attach"]) => "wire",
        _ if has("tool") || area == "tool" => "delegate_tool",
        _ if op.starts_with("delegate") && has("close") && !has("after") => {
            "delegate_then_close_parent"
        }
        _ if op.starts_with("delegate") && has("inline") => "delegate_inline",
        _ if op.starts_with("delegate") => "delegate",
        _ if any(&["wait", "set_result"]) => "wait",
        _ if has("close") => "submit_two_then_close",
        _ if has("cancel") => "submit_then_cancel",
        _ if has("submit") || area == "runner" => "submit",
        _ if area == "model" => "result_round_trip",
        _ => return None,
    })
}

/// Returns whether cases of an op are played by a single function of the host.
pub(crate) fn is_function(op: &str) -> bool {
    matches!(op, "find_transport" | "delegate_tool" | "result_round_trip")
}

/// Returns whether a line belongs to this pack.
pub(crate) fn is_of_pack(line: &Value) -> bool {
    line.get("pack").is_some_and(|pack| pack == PACK)
}

/// Returns whether the case is played with components of strategies.
pub(crate) fn needs_components(line: &Value) -> bool {
    let op = line.pointer("/when/op").and_then(Value::as_str).unwrap_or_default();
    let is_named = |place: &str| line.pointer(place).is_some_and(|named| !named.is_null());
    let names_one = is_named("/given/kit/delivery_strategy") || is_named("/when/delivery_strategy");
    let delivers = ["deliver", "backend", "close", "strategy"].iter().any(|word| op.contains(word))
        && !op.starts_with("deliver_to");
    is_of_pack(line) && (names_one || delivers)
}

/// Returns the problem of a line of this pack, found without playing it.
pub(crate) fn problem(line: &Value) -> Option<String> {
    Case::read(line).err()
}

/// Compiles the components that cases of this pack use.
pub(crate) async fn warm_up(runner: &Runner) -> Result<(), String> {
    deliver::warm_up(runner).await
}

/// Plays a case and compares the result with its expectations.
pub(crate) async fn judge(runner: &Runner, id: String, line: &Value) -> Verdict {
    let (case, then) = match Case::read(line) {
        Ok(read) => read,
        Err(reason) => return Verdict::failed(&line.to_string(), &reason),
    };
    if let Some((_, reason)) = NOT_PLAYED.iter().find(|(kind, _)| *kind == case.kind) {
        return Verdict { id, end: End::NotPlayed { reason: (*reason).to_owned() } };
    }
    let got = match play(runner, &case).await {
        Ok(got) => got,
        Err(reason) => return Verdict::failed(&line.to_string(), &reason),
    };
    if let Some(problem) = undocumented(ROOMKIT, case.kind, &got, |_| None) {
        return Verdict::failed(
            &line.to_string(),
            &format!("the runner reports what no page documents: {problem}"),
        );
    }
    let got = with_names(ROOMKIT_NAMES, case.kind, &got);
    let differences: Vec<Difference> = compare::differences(&ids::in_our_ids(then), &got);
    Verdict { id, end: documented::end(then, got, &differences, &otherwise(&case)) }
}

/// The maximum number of consecutive delegation levels without user input.
const LEVELS: u64 = 5;

/// Returns the rows of docs/migrate/differences.md that apply to a case, with the keys that may
/// differ and the host's values there.
fn otherwise(case: &Case<'_>) -> Vec<Documented> {
    let mut rows = Vec::new();
    if case.kind == "delegate_nested" {
        let levels = case.number("levels").unwrap_or(2);
        let shape = if levels > 1 { "<parent>/<number> repeated" } else { "<parent>/<number>" };
        rows.push(Documented::new(
            "R-024: ids are counted",
            [("child_id_shape", Host::Is(shape.into()))],
        ));
        if levels > LEVELS {
            rows.push(Documented::new(
                "R-065: delegations that lead to delegations end",
                [("all_completed", Host::Is(false.into()))],
            ));
        }
    }
    let strategy =
        case.given.pointer("/kit/delivery_strategy").or_else(|| case.get("delivery_strategy"));
    if strategy.is_some_and(|strategy| !strategy.is_null()) {
        let sentence = ("notify_prompt_contains", Host::Without("delivered in a follow-up"));
        rows.push(Documented::new(
            "R-052…R-055: a result is never held back from its agent",
            [sentence],
        ));
    }
    rows
}

async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    match case.kind {
        kind if kind.starts_with("delegate") && kind != "delegate_tool" => {
            delegate::play(runner, case).await
        }
        "wait"
        | "cancel"
        | "cancel_handle"
        | "submit"
        | "submit_then_cancel"
        | "submit_two_then_close" => handles::play(runner, case).await,
        "find_transport" | "resolve_strategy" | "deliver" | "deliver_several" | "deliver_to" => {
            deliver::play(runner, case).await
        }
        "backend_close" | "backend_nack" => queue::play(runner, case).await,
        "result_round_trip" => model::play(case),
        _ => tool::play(runner, case).await,
    }
}
