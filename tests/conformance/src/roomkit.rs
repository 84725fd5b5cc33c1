//! The cases of the RoomKit pack: each is played by the host that everybody uses, in a room that is held open, with native agents that do
//! what the case's script says. What a case gives and expects, and how names are matched, is told in `docs/conformance.md`.

mod agents;
mod align;
mod compare;
mod delegate;
mod deliver;
mod followed;
mod handles;
mod model;
mod names;
mod queue;
mod stage;
mod tool;

use serde_json::Value;

use crate::{End, Runner, Verdict};

/// The pack's name.
pub(crate) const PACK: &str = "roomkit";

/// Cases that state what Conclave does otherwise on purpose (docs/differences.md): no limits, and results in system prompts.
const OTHERWISE: [&str; 6] = ["D10", "D11", "D12", "L18", "L19", "L20"];

/// A case, as it stands in its line.
pub(super) struct Case<'a> {
    pub(super) id: &'a str,
    pub(super) area: &'a str,
    pub(super) op: &'a str,
    pub(super) given: &'a Value,
    pub(super) when: &'a Value,
    pub(super) then: &'a Value,
}

impl<'a> Case<'a> {
    /// # Errors
    /// What is wrong with the line.
    fn read(line: &'a Value) -> Result<Self, String> {
        let word = |key: &str| line.get(key).and_then(Value::as_str).ok_or_else(|| format!("the case has no {key}, which is a text"));
        let value = |key: &str| line.get(key).filter(|value| value.is_object()).ok_or_else(|| format!("the case has no {key}, an object"));
        let when = value("when")?;
        let op = when.get("op").and_then(Value::as_str).ok_or("`when` has no op, which is a text")?;
        let case = Self { id: word("id")?, area: word("area")?, op, given: value("given")?, when, then: value("then")? };
        player(&case).map(|_| case).ok_or_else(|| format!("there is no op {op:?} of cases about {:?}", line["area"]))
    }

    /// A field of `when`, or else of `given`.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.when.get(key).or_else(|| self.given.get(key))
    }

    /// The first of these that there is.
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

/// Who plays it.
#[derive(Clone, Copy)]
enum Player {
    Delegate,
    Handles,
    Deliver,
    Queue,
    Tool,
    Model,
}

fn player(case: &Case<'_>) -> Option<Player> {
    let op = case.op;
    let any = |parts: &[&str]| parts.iter().any(|part| op.contains(part));
    Some(match op {
        "result_new" | "handle_new" => Player::Model,
        "delegate_tool" | "handle" | "call_tool" => Player::Tool,
        "wait" | "cancel_handle" | "submit" | "cancel" => Player::Handles,
        _ if op.starts_with("backend") || any(&["enqueue", "nack", "dead_letter", "queue_"]) => Player::Queue,
        "find_transport" | "deliver" | "deliver_to" | "resolve_strategy" => Player::Deliver,
        _ if op.starts_with("deliver") || any(&["strategy", "transport"]) => Player::Deliver,
        _ if any(&["tool", "wire", "wiring", "setup", "attach"]) || case.area == "tool" => Player::Tool,
        _ if op.starts_with("delegate") => Player::Delegate,
        _ if any(&["submit", "cancel", "wait", "close", "set_result"]) => Player::Handles,
        _ if case.area == "model" => Player::Model,
        _ if case.area == "runner" => Player::Handles,
        _ => return None,
    })
}

/// Whether a line belongs to this pack.
pub(crate) fn is_of_pack(line: &Value) -> bool {
    line.get("pack").is_some_and(|pack| pack == PACK)
}

/// Whether it is played with components of strategies.
pub(crate) fn needs_components(line: &Value) -> bool {
    let op = line.pointer("/when/op").and_then(Value::as_str).unwrap_or_default();
    let is_named = |place: &str| line.pointer(place).is_some_and(|named| !named.is_null());
    let names_one = is_named("/given/kit/delivery_strategy") || is_named("/when/delivery_strategy");
    let delivers = ["deliver", "backend", "close", "strategy"].iter().any(|word| op.contains(word)) && !op.starts_with("deliver_to");
    is_of_pack(line) && (names_one || delivers)
}

/// What is wrong with a line of this pack, before anything is played.
pub(crate) fn problem(line: &Value) -> Option<String> {
    Case::read(line).err()
}

/// Compiles what cases of this pack are played with.
pub(crate) async fn warm_up(runner: &Runner) -> Result<(), String> {
    deliver::warm_up(runner).await
}

/// Plays a case and compares.
pub(crate) async fn judge(runner: &Runner, id: String, line: &Value) -> Verdict {
    let case = match Case::read(line) {
        Ok(case) => case,
        Err(reason) => return Verdict::failed(&line.to_string(), &reason),
    };
    let (got, differences) = match play(runner, &case).await {
        Ok(got) => {
            let got = align::align(case.then, got);
            let differences = compare::differences(&align::in_our_ids(case.then), &got);
            (got, differences)
        }
        Err(reason) => (Value::String(reason.clone()), vec![reason]),
    };
    let end = match differences.is_empty() {
        true => End::Passed,
        false if OTHERWISE.contains(&case.id) => End::Otherwise { differences },
        false => End::Failed { expected: case.then.clone(), got, differences },
    };
    Verdict { id, end }
}

async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    match player(case).ok_or("there is no such op")? {
        Player::Delegate => delegate::play(runner, case).await,
        Player::Handles => handles::play(runner, case).await,
        Player::Deliver => deliver::play(runner, case).await,
        Player::Queue => queue::play(runner, case).await,
        Player::Tool => tool::play(runner, case).await,
        Player::Model => model::play(case),
    }
}
