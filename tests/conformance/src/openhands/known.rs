//! Tables of known cases: those without a counterpart in this host, and those in which it differs
//! on purpose. Both are recognized by the input of a case, so a new case of the same shape is
//! judged in the same way. The rows of `docs/reference/conformance.md` and
//! `docs/migrate/differences.md` hold the same reasons. Has no access to the expectations.

use serde_json::{Value, json};

use super::Case;
use crate::documented::{Documented, Host};

/// Returns the reason why a case is not played, or `None` if it is played.
#[expect(clippy::too_many_lines, reason = "one condition for each reason")]
pub(super) fn left_out_reason(case: &Case<'_>) -> Option<&'static str> {
    let gives = |keys: &[&str]| case.any(keys).is_some();
    let ops = || {
        case.get("ops")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|op| op.get(0)?.as_str())
    };
    match case.kind {
        "redact" => Some(
            "no log of the host contains the value of a secret, because no plugin ever gets one",
        ),
        "view" => Some(
            "the room condenses a history before a step; the host does not compute views of other logs",
        ),
        "hook" => Some(
            "hooks are not commands: a gate is a plugin that returns a verdict, so there is no exit code",
        ),
        "stream" => {
            Some("a run is one journal, not a file for each event, and only the room appends to it")
        }
        "should_step" => {
            Some("an agent steps when everything it waited for has ended, not on single events")
        }
        "limit"
            if case.get("type").is_some_and(|of| of == "budget")
                || ops().any(|op| op != "step") =>
        {
            Some(
                "models report their cost, and only an approver raises a limit; neither is a call on a limit",
            )
        }
        "controller" if gives(&["session", "restored_resume_state", "resume_state"]) => Some(
            "a room is the fold of its journal; there is no session file with a state to restore",
        ),
        "controller"
            if gives(&[
                "cost",
                "costs",
                "cost_per_step",
                "accumulated_cost",
                "budget",
                "max_budget",
                "max_budget_per_task",
            ]) =>
        {
            Some(
                "models report their cost, and only an approver raises a limit; neither is a call on a limit",
            )
        }
        "controller"
            if gives(&["event"])
                && case.get("state").is_none_or(|state| state != "awaiting_user_input") =>
        {
            Some(
                "events cannot be injected into a run: an observation is the answer to an action, from its executor",
            )
        }
        "controller"
            if gives(&[
                "pending",
                "set",
                "reset_from",
                "set_state",
                "then",
                "then_set",
                "num_of_chars",
                "max_chars",
            ]) =>
        {
            Some(
                "an agent's state and its pending actions cannot be set; both follow from what the room waits for",
            )
        }
        "delegate" if gives(&["child_state", "event"]) => Some(
            "messages cannot be injected into a delegation; its end is the answer to the action",
        ),
        "parallel" if gives(&["cancelled_before_start"]) => {
            Some("the calls of a message start together with it; none waits and could be cancelled")
        }
        "stuck_events"
            if case
                .get("history")
                .is_some_and(|history| holds(history, "observation", "condense")) =>
        {
            Some("the room itself condenses a history before a step; no observation reports it")
        }
        "stuck_sdk"
            if case
                .any(&["script", "events"])
                .is_some_and(|words| words.to_string().contains("condensation")) =>
        {
            Some("the room itself condenses a history before a step; no observation reports it")
        }
        "event_tree"
            if !gives(&["append", "inject_corrupt"])
                || gives(&["navigate", "navigate_to", "fork", "head"]) =>
        {
            Some("a log of the SDK is read, and never written")
        }
        _ => None,
    }
}

/// Returns the rows of `docs/migrate/differences.md` that apply to a case, with the keys that may
/// differ and the host's values there.
pub(super) fn otherwise(case: &Case<'_>) -> Vec<Documented> {
    match case.kind {
        "stuck_pairs" | "stuck_events" => circling(case),
        "stuck_sdk" => sdk(case),
        // Half of such a limit is 0, and the reference's slice from -0 is the whole text.
        "truncate" if case.number("max_chars").is_ok_and(|max| max < 2) => {
            let cut = "\n[... Observation truncated due to length ...]\n";
            one(
                "O-009: of a text that is cut to less than two characters nothing is left",
                "content",
                json!(cut),
            )
        }
        "micro" if is_within_a_word(case) => {
            one("O-126: a trigger is a whole word", "trigger", Value::Null)
        }
        "parallel" => parallel(case),
        "confirm_v0" => confirmed(case),
        "delegate" => match case.number("parent_iteration") {
            // The limit needs one step to delegate and one step after the delegation.
            Ok(before) => one(
                "O-091: each activation counts its own steps",
                "parent_iteration_after",
                json!(before + 2),
            ),
            Err(_) => Vec::new(),
        },
        "controller" => case.any(&["script", "agent"]).map(silent).unwrap_or_default(),
        "plan" => accidents(case),
        "beat" if writes_a_secret(case) => {
            let row = "O-117: what an agent writes out by hand is stored as it is";
            one(row, "stored_bytes_contain_secret", json!(true))
        }
        _ => Vec::new(),
    }
}

fn one(row: &'static str, key: &'static str, value: Value) -> Vec<Documented> {
    vec![Documented::new(row, [(key, Host::Is(value))])]
}

/// Returns the rows about loops that thoughts hide from the reference, and those that a user
/// message interrupts here.
fn circling(case: &Case<'_>) -> Vec<Documented> {
    let mut rows = Vec::new();
    let entries = case.list("history").unwrap_or_default();
    // An entry may be a pair; its first item is the action.
    let acts = entries.iter().enumerate().map(|(at, entry)| (at, entry.get(0).unwrap_or(entry)));
    let acts: Vec<(usize, &Value)> =
        acts.filter(|(_, entry)| entry.get("action").is_some()).collect();
    if let Some((start, true)) = repeated(&acts) {
        let found = json!({ "type": "repeating_action_observation", "repeats": 4, "start": start });
        let keys =
            ["stuck.2024-06", "stuck.2024-07", "stuck"].map(|key| (key, Host::Is(json!(true))));
        rows.push(Documented::new(
            "O-099: thoughts hide no loop",
            keys.into_iter().chain([("loop", Host::Is(found))]),
        ));
    }
    let is_users = |entry: &Value| entry.get("source").is_some_and(|source| source == "user");
    if let Some(last) = acts.iter().rposition(|(_, entry)| is_users(entry)) {
        // Here a user message restarts the count, and the actions after it are too few for a loop.
        let after = &acts[last + 1..];
        let is_one =
            after.windows(2).all(|two| without_thought(two[0].1) == without_thought(two[1].1));
        let too_few = |least: usize| after.len() < if is_one { least } else { 6 };
        let mut keys = Vec::new();
        for (key, least) in [("stuck.2024-06", 4), ("stuck.2024-07", 3), ("stuck", 4)] {
            if too_few(least) {
                keys.push((key, Host::Is(json!(false))));
            }
        }
        if too_few(4) {
            keys.push(("loop", Host::Is(Value::Null)));
        }
        rows.push(Documented::new("O-098: a word of the user begins anew", keys));
    }
    rows
}

/// Returns the index of the first of four equal actions in a row, and whether their thoughts
/// differ.
fn repeated(acts: &[(usize, &Value)]) -> Option<(usize, bool)> {
    let is_same = |four: &&[(usize, &Value)]| {
        four.iter().all(|(_, act)| without_thought(act) == without_thought(four[0].1))
    };
    let four = acts.windows(4).find(is_same)?;
    Some((four[0].0, four.iter().any(|(_, act)| *act != four[0].1)))
}

fn without_thought(act: &Value) -> Value {
    let mut act = act.clone();
    if let Some(args) = act.get_mut("args").and_then(Value::as_object_mut) {
        args.remove("thought");
    }
    act
}

fn sdk(case: &Case<'_>) -> Vec<Documented> {
    let has =
        |key: &str, word: &str| case.get(key).is_some_and(|words| words.to_string().contains(word));
    let mut rows = Vec::new();
    if has("events", "agent_msg") {
        rows.extend(one("O-101: messages are compared by what they say", "stuck", json!(false)));
    }
    if has("script", "empty") {
        let row = "O-127: an agent that says nothing is asked again, without words";
        rows.extend(one(row, "corrective_nudges", json!(0)));
    }
    rows
}

/// Returns whether each trigger in the message is only a part of a word.
fn is_within_a_word(case: &Case<'_>) -> bool {
    let message = case.text("message").unwrap_or_default().to_lowercase();
    let words: Vec<&str> =
        message.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let triggers = case.text("trigger").into_iter();
    let triggers =
        triggers.chain(case.list("triggers").unwrap_or_default().iter().filter_map(Value::as_str));
    triggers.map(str::to_lowercase).all(|trigger| !words.contains(&trigger.as_str()))
}

fn parallel(case: &Case<'_>) -> Vec<Documented> {
    let row = "O-130: calls of one message run at the same time";
    if case.get("declared").is_some() {
        return vec![Documented::new(
            row,
            [("serialised", Host::Is(json!([]))), ("parallel", Host::Is(json!(true)))],
        )];
    }
    let name = |call: &Value| {
        call.as_str()
            .or_else(|| call.get("tool")?.as_str())
            .or_else(|| call.get("name")?.as_str())
            .map(str::to_owned)
    };
    let names: Vec<String> =
        case.list("calls").unwrap_or_default().iter().filter_map(name).collect();
    if names.len() < 2 || !names.iter().any(|name| name == "finish") {
        return Vec::new();
    }
    let row = "O-130: a call that ends the task is made alone";
    vec![Documented::new(
        row,
        [("executed", Host::Is(json!([]))), ("discarded", Host::Is(json!(names)))],
    )]
}

fn confirmed(case: &Case<'_>) -> Vec<Documented> {
    if case.get("user").is_some() {
        return one(
            "O-109: what was consented to runs, and is not said again",
            "republished",
            Value::Null,
        );
    }
    let kind = case.text("action").or_else(|_| case.text("awaiting")).unwrap_or_default();
    let row = match case.flag("confirmation_mode") {
        true if has_analyzer(case) && case.get("risk").is_none() => {
            "O-109: an action waits where its analyzer fails"
        }
        true if !ASKED.contains(&kind) => "O-110: every kind of action waits",
        _ => return Vec::new(),
    };
    vec![Documented::new(
        row,
        [("state", Host::Is(json!("awaiting_user_confirmation"))), ("states", Host::Any)],
    )]
}

/// The kinds of action that the reference of 2025-11 asks about at all (O-110).
const ASKED: [&str; 5] = ["run", "run_ipython", "browse_interactive", "edit", "read"];

fn has_analyzer(case: &Case<'_>) -> bool {
    case.get("analyzer")
        .is_some_and(|analyzer| !matches!(analyzer, Value::Bool(false) | Value::Null))
}

/// Returns the rows about turns without a message and null actions, which the log shows here.
fn silent(script: &Value) -> Vec<Documented> {
    let entries = script.as_array().map_or(std::slice::from_ref(script), Vec::as_slice);
    let is_word =
        |entry: &Value, wanted: &str| entry.as_str().is_some_and(|word| word.contains(wanted));
    let is_nothing =
        |entry: &Value| entry.is_null() || is_word(entry, "nothing") || is_word(entry, "none");
    let is_null = |entry: &Value| entry.get("null").is_some() || entry == "null";
    let row = "O-071: an agent that says nothing is asked again, and the log shows the turn";
    let mut rows = Vec::new();
    if entries.iter().any(is_nothing) {
        rows.extend(one(row, "observation", Value::Null));
    }
    if entries.iter().all(is_null) {
        let published = vec!["null"; entries.len()];
        let history = vec![["null", "null"]; entries.len()];
        let keys =
            [("published", Host::Is(json!(published))), ("history", Host::Is(json!(history)))];
        rows.push(Documented::new(row, keys));
    }
    rows
}

/// Returns the rows about unusual plans: a task that is verified, added to a closed one, changed in
/// an empty plan, named by a non-numeric id, or left without a goal.
fn accidents(case: &Case<'_>) -> Vec<Documented> {
    let (mut is_empty, mut has_closed) = (true, false);
    let is_plain = |id: &str| {
        id.is_empty()
            || id
                .split('.')
                .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty())
    };
    let state = |word: &str| Host::Is(json!(word));
    let mut rows = Vec::new();
    for op in case.list("ops").unwrap_or_default() {
        let word = |at: usize| op.get(at).and_then(Value::as_str).unwrap_or_default();
        if !is_plain(word(1)) {
            // An id that counts from the end changes another task, so every key may differ.
            let keys =
                ["results", "tree", "current", "text", "finished"].map(|key| (key, Host::Any));
            rows.push(Documented::new("O-063: negative numbers are refused", keys));
        }
        if word(0) == "add" {
            is_empty = false;
            let lacks_goal = |task: &Value| task.get("goal").is_none();
            if op.get(3).and_then(Value::as_array).is_some_and(|tasks| tasks.iter().any(lacks_goal))
            {
                rows.push(Documented::new(
                    "O-058: a task without a goal is refused",
                    [("results", Host::Any), ("tree", Host::Any)],
                ));
            }
            if has_closed {
                let row = "O-062: a plan to which a task is added is open again";
                rows.push(Documented::new(
                    row,
                    [("tree.state", state("open")), ("finished", Host::Is(json!(false)))],
                ));
            }
        } else {
            has_closed |= matches!(word(2), "completed" | "verified" | "abandoned");
            if word(2) == "verified" {
                rows.push(Documented::new(
                    "O-062: what was verified stays so",
                    [("tree**state", state("verified"))],
                ));
            }
            if is_empty {
                rows.push(Documented::new(
                    "O-062: an empty plan has nothing to complete",
                    [("tree.state", Host::Any)],
                ));
            }
        }
    }
    rows
}

/// Returns whether the case's own action contains a secret.
fn writes_a_secret(case: &Case<'_>) -> bool {
    let written = case.get("event").map(Value::to_string).unwrap_or_default();
    let secrets = case
        .get("secrets")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|all| all.values().filter_map(Value::as_str));
    secrets.filter(|secret| !secret.is_empty()).any(|secret| written.contains(secret))
}

/// Returns whether this key has this text anywhere in the value.
fn holds(value: &Value, key: &str, text: &str) -> bool {
    any(value, &|name, value| name == key && value == text)
}

fn any(value: &Value, is: &dyn Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| is(name, value) || any(value, is))
        }
        Value::Array(items) => items.iter().any(|item| any(item, is)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case<'a>(kind: &'a str, input: &'a Value) -> Case<'a> {
        Case { kind, era: "2025-11", input }
    }

    #[test]
    fn a_case_is_dropped_by_what_it_gives() {
        let is_dropped = |kind: &str, input: Value| left_out_reason(&case(kind, &input)).is_some();
        assert!(
            is_dropped("redact", json!({})) && is_dropped("controller", json!({ "session": {} }))
        );
        assert!(is_dropped("hook", json!({ "exit": 0 })));
        assert!(is_dropped(
            "limit",
            json!({ "type": "iteration", "ops": [["step"], ["increase", true]] })
        ));
        assert!(!is_dropped("limit", json!({ "type": "iteration", "ops": [["step"], ["step"]] })));
        assert!(!is_dropped("controller", json!({ "script": ["m"], "max_iterations": 2 })));
        assert!(!is_dropped(
            "controller",
            json!({ "state": "awaiting_user_input", "event": { "user_message": "ok" } })
        ));
        assert!(!is_dropped(
            "stuck_events",
            json!({ "history": [{ "action": "run", "args": { "command": "ls" } }] })
        ));
    }

    /// Returns the keys that the rows of a case name.
    fn keys(kind: &str, input: Value) -> Vec<&'static str> {
        let rows = otherwise(&case(kind, &input));
        rows.iter().flat_map(|row| row.keys.iter().map(|(key, _)| *key)).collect()
    }

    #[test]
    fn a_user_s_word_excuses_only_what_is_too_little_after_it() {
        let run = json!({ "action": "run", "args": { "command": "ls" } });
        let user = json!({ "action": "message", "source": "user", "args": { "content": "go on" } });
        let history = |after: usize| {
            let runs = std::iter::repeat_n(run.clone(), after);
            let events: Vec<Value> = [run.clone(), user.clone()].into_iter().chain(runs).collect();
            json!({ "history": events })
        };
        assert_eq!(
            keys("stuck_events", history(2)),
            ["stuck.2024-06", "stuck.2024-07", "stuck", "loop"]
        );
        assert_eq!(keys("stuck_events", history(3)), ["stuck.2024-06", "stuck", "loop"]);
        assert!(
            keys("stuck_events", history(4)).is_empty(),
            "four of the same after the word are a loop here too"
        );
        assert!(
            keys("stuck_events", json!({ "history": [run, { "observation": "run" }] })).is_empty()
        );
    }

    #[test]
    fn thoughts_excuse_only_actions_that_they_alone_tell_apart() {
        let thinks = |thought: usize| json!({ "action": "run", "args": { "command": "ls", "thought": thought.to_string() } });
        let varied: Vec<Value> = (0..4).map(thinks).collect();
        assert_eq!(keys("stuck_events", json!({ "history": varied })).len(), 4);
        assert!(
            keys(
                "stuck_events",
                json!({ "history": [thinks(0), thinks(0), thinks(0), thinks(0)] })
            )
            .is_empty()
        );
        assert!(keys("stuck_events", json!({ "history": [thinks(0), thinks(1)] })).is_empty());
    }

    #[test]
    fn a_difference_is_documented_for_what_makes_it_and_nothing_else() {
        let add = json!(["add", "", "x"]);
        assert_eq!(
            keys("plan", json!({ "ops": [add, ["set", "0", "completed"], add] })),
            ["tree.state", "finished"]
        );
        assert_eq!(
            keys("plan", json!({ "ops": [add, ["set", "0", "verified"]] })),
            ["tree**state"]
        );
        assert!(keys("plan", json!({ "ops": [add, ["set", "-1", "open"]] })).contains(&"results"));
        assert!(keys("plan", json!({ "ops": [add, ["set", "0", "completed"]] })).is_empty());
        assert_eq!(
            keys("micro", json!({ "triggers": ["git"], "message": "digital" })),
            ["trigger"]
        );
        assert!(keys("micro", json!({ "triggers": ["git"], "message": "use git" })).is_empty());
        assert_eq!(
            keys("parallel", json!({ "calls": ["a", "finish"] })),
            ["executed", "discarded"]
        );
        assert!(keys("parallel", json!({ "calls": ["a", "b"] })).is_empty());
        let asks = |action: &str| json!({ "confirmation_mode": true, "action": action, "risk": "LOW", "analyzer": true });
        assert!(
            keys("confirm_v0", asks("run")).is_empty()
                && keys("confirm_v0", asks("write")) == ["state", "states"]
        );
        assert!(keys("codec", json!({})).is_empty() && keys("delegate", json!({})).is_empty());
    }
}
