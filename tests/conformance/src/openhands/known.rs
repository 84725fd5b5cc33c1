//! What is known of cases beforehand: those that have no counterpart in this host, and those that state what it does otherwise on
//! purpose. Both are told by what a case gives, so that a new case of the same shape is judged like the old ones. The rows of
//! `docs/conformance.md` and `docs/differences.md` hold the same reasons.

use serde_json::Value;

use super::Case;

/// Why a case is not played; none: it is.
pub(super) fn dropped(case: &Case<'_>) -> Option<&'static str> {
    let gives = |keys: &[&str]| case.any(keys).is_some();
    let ops = || case.get("ops").and_then(Value::as_array).into_iter().flatten().filter_map(|op| op.get(0)?.as_str());
    match case.kind {
        "redact" => Some("no log of the host holds the value of a secret: no plugin is ever given one"),
        "view" => Some("a history is condensed by the room, before a step; nobody works out what is left of somebody else's log"),
        "stream" => Some("a run is one journal, not a file for each event, and nothing adds to it but the room"),
        "should_step" => Some("an agent is asked when what it waited for has come to its end; no single event asks it"),
        "limit" if case.get("type").is_some_and(|of| of == "budget") || ops().any(|op| op != "step") => {
            Some("money is counted by models, and only an approver raises a limit: neither is a call on a limit")
        }
        "controller" if gives(&["session", "restored_resume_state", "resume_state"]) => {
            Some("a room is the fold of its journal: there is no session file, and no state to resume from")
        }
        "controller" if gives(&["cost", "costs", "cost_per_step", "accumulated_cost", "budget", "max_budget", "max_budget_per_task"]) => {
            Some("money is counted by models, and only an approver raises a limit: neither is a call on a limit")
        }
        "controller" if gives(&["event"]) && case.get("state").is_none_or(|state| state != "awaiting_user_input") => {
            Some("nobody puts an event into a run: an observation is the answer to an action, and comes from what carried it out")
        }
        "controller" if gives(&["pending", "set", "reset_from", "set_state", "then", "then_set", "num_of_chars", "max_chars"]) => {
            Some("nobody sets an agent's state or what is pending: both follow from what the room waits for")
        }
        "delegate" if gives(&["child_state", "event"]) => {
            Some("nobody speaks into a delegation from outside: its end is the answer to the action")
        }
        "parallel" if gives(&["cancelled_before_start"]) => {
            Some("the calls of a message begin as it is taken in: none waits to be cancelled")
        }
        "stuck_events" if case.get("history").is_some_and(|history| holds(history, "observation", "condense")) => {
            Some("the room itself condenses, before a step: no observation of an agent says so")
        }
        "stuck_sdk" if case.any(&["script", "events"]).is_some_and(|words| words.to_string().contains("condensation")) => {
            Some("the room itself condenses, before a step: no observation of an agent says so")
        }
        "event_tree" if !gives(&["append", "inject_corrupt"]) || gives(&["navigate", "navigate_to", "fork", "head"]) => {
            Some("a log of the SDK is read, and never written")
        }
        _ => None,
    }
}

/// What the host does otherwise, by the row of `docs/differences.md`; none: a difference is a failure.
pub(super) fn otherwise(case: &Case<'_>) -> Option<&'static str> {
    let word = |key: &str| case.get(key).and_then(Value::as_str);
    let expects = |key: &str| case.expect.get(key).is_some();
    let history = case.any(&["history", "script", "events"]);
    match case.kind {
        "stuck_pairs" | "stuck_events" if history.is_some_and(|history| holds_text(history, "thought")) => {
            Some("O-099: thoughts hide no loop")
        }
        "stuck_pairs" | "stuck_events" if history.is_some_and(|history| holds(history, "source", "user")) => {
            Some("O-098: a word of the user begins anew")
        }
        "stuck_sdk" if case.get("events").is_some_and(|events| events.to_string().contains("agent_msg")) => {
            Some("O-101: messages are compared by what they say")
        }
        "stuck_sdk" if case.expect.get("corrective_nudges").is_some() => {
            Some("O-127: an agent that says nothing is asked again, without words")
        }
        "micro" => Some("O-126: a trigger is a whole word"),
        "hook" if case.get("exit").and_then(Value::as_i64).is_none_or(|exit| exit != 0 && exit != 2) => {
            Some("O-113: what cannot be looked at is denied")
        }
        "parallel" if case.get("declared").is_some() => Some("O-130: calls of one message run at the same time"),
        "parallel" if expects("discarded") => Some("O-130: a call that ends the task is made alone"),
        "confirm_v0" if expects("republished") => Some("O-109: what was consented to runs, and is not said again"),
        "confirm_v0" if has_analyzer(case) && case.get("risk").is_none() => Some("O-109: an action waits where its analyzer fails"),
        "confirm_v0" if !ASKED.iter().any(|kind| word("action").or(word("awaiting")) == Some(*kind)) => {
            Some("O-110: every kind of action waits")
        }
        "delegate" if expects("parent_iteration_after") || expects("parent_iteration") => {
            Some("O-091: each activation counts its own steps")
        }
        "controller" if case.any(&["script", "agent"]).is_some_and(holds_nothing) => {
            Some("O-071: an agent that says nothing is asked again")
        }
        "plan" if has_accident(case) => Some("O-058, O-062, O-063: accidents of the reference's plan"),
        "beat" if case.get("secrets").is_some() => Some("O-117: what an agent writes out by hand is stored as it is"),
        _ => None,
    }
}

/// The kinds of action that the reference of 2025-11 asks about at all (O-110).
const ASKED: [&str; 5] = ["run", "run_ipython", "browse_interactive", "edit", "read"];

fn has_analyzer(case: &Case<'_>) -> bool {
    case.get("analyzer").is_some_and(|analyzer| !matches!(analyzer, Value::Bool(false) | Value::Null))
}

/// A plan in which something is verified, added after what is closed, changed while it is empty, named by an id that is no plain number, or
/// left without a goal.
fn has_accident(case: &Case<'_>) -> bool {
    let (mut is_empty, mut has_closed) = (true, false);
    let is_plain = |id: &str| id.is_empty() || id.split('.').all(|part| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty());
    case.get("ops").and_then(Value::as_array).into_iter().flatten().any(|op| {
        let word = |at: usize| op.get(at).and_then(Value::as_str).unwrap_or_default();
        let (was_empty, had_closed) = (is_empty, has_closed);
        match word(0) {
            "add" => {
                is_empty = false;
                let lacks_goal = |task: &Value| task.get("goal").is_none();
                had_closed || !is_plain(word(1)) || op.get(3).and_then(Value::as_array).is_some_and(|tasks| tasks.iter().any(lacks_goal))
            }
            _ => {
                has_closed |= matches!(word(2), "completed" | "verified" | "abandoned");
                was_empty || word(2) == "verified" || !is_plain(word(1))
            }
        }
    })
}

/// Anywhere in the value there is this key with this text.
fn holds(value: &Value, key: &str, text: &str) -> bool {
    any(value, &|name, value| name == key && value == text)
}

fn holds_text(value: &Value, key: &str) -> bool {
    any(value, &|name, value| name == key && value.as_str().is_some_and(|text| !text.is_empty()))
}

fn holds_nothing(script: &Value) -> bool {
    let is_nothing = |entry: &Value| {
        entry.is_null() || entry.get("null").is_some() || entry.as_str().is_some_and(|word| word.contains("nothing") || word == "null")
    };
    script.as_array().map_or_else(|| is_nothing(script), |entries| entries.iter().any(is_nothing))
}

fn any(value: &Value, is: &dyn Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| is(name, value) || any(value, is)),
        Value::Array(items) => items.iter().any(|item| any(item, is)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case<'a>(kind: &'a str, input: &'a Value, expect: &'a Value) -> Case<'a> {
        Case { kind, era: "2025-11", input, expect }
    }

    #[test]
    fn a_case_is_dropped_by_what_it_gives() {
        let is_dropped = |kind: &str, input: Value| dropped(&case(kind, &input, &json!({}))).is_some();
        assert!(is_dropped("redact", json!({})) && is_dropped("controller", json!({ "session": {} })));
        assert!(is_dropped("limit", json!({ "type": "iteration", "ops": [["step"], ["increase", true]] })));
        assert!(!is_dropped("limit", json!({ "type": "iteration", "ops": [["step"], ["step"]] })));
        assert!(!is_dropped("controller", json!({ "script": ["m"], "max_iterations": 2 })));
        assert!(!is_dropped("controller", json!({ "state": "awaiting_user_input", "event": { "user_message": "ok" } })));
        assert!(!is_dropped("stuck_events", json!({ "history": [{ "action": "run", "args": { "command": "ls" } }] })));
    }

    #[test]
    fn a_difference_is_documented_for_what_makes_it_and_nothing_else() {
        let differs = |kind: &str, input: Value, expect: Value| otherwise(&case(kind, &input, &expect)).is_some();
        let history = |extra: Value| json!({ "history": [{ "action": "run", "args": { "command": "ls" } }, extra] });
        let user = json!({ "action": "message", "source": "user", "args": { "content": "go on" } });
        assert!(differs("stuck_events", history(user), json!({})));
        assert!(differs("stuck_events", history(json!({ "action": "run", "args": { "thought": "a" } })), json!({})));
        assert!(!differs("stuck_events", history(json!({ "observation": "run" })), json!({})));
        assert!(differs("hook", json!({ "exit": 1 }), json!({})) && !differs("hook", json!({ "exit": 2 }), json!({})));
        assert!(differs("plan", json!({ "ops": [["add", "", "x"], ["set", "-1", "open"]] }), json!({})));
        assert!(!differs("plan", json!({ "ops": [["add", "", "x"], ["set", "0", "completed"]] }), json!({})));
        assert!(!differs("codec", json!({}), json!({})) && !differs("delegate", json!({}), json!({ "content": "c" })));
    }
}
