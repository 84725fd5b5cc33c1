//! What the SDK decides: whether a conversation is stuck, what is unmatched, what its tree looks like, what a hook said, and which calls of
//! an answer run together.

use std::collections::BTreeMap;

use conclave_core::control::agent_state::ConversationStatus;
use conclave_core::control::fingerprint::fingerprint;
use conclave_core::control::hook::{self, HookEnd, HookRules};
use conclave_core::control::parallel::{Batch, Call, Ended};
use conclave_core::control::stuck::sdk::{Detector, Seen};
use conclave_core::trajectory::{self, EventTree};
use serde_json::{Value, json};

use super::Case;

pub(super) fn stuck(case: &Case<'_>) -> Result<Value, String> {
    let mut talk = Talk::default();
    if let Some(events) = case.get("events").and_then(Value::as_array) {
        for event in events {
            talk.happened(word(event)?);
        }
        let nudges = usize::from(talk.detector.nudge(&talk.log).is_some());
        let found = talk.detector.find(&talk.log);
        return Ok(json!({ "stuck": found.is_some(), "loop": found.map(|kind| kind.as_str()), "nudges": nudges }));
    }
    for entry in case.list("script")? {
        talk.step(word(entry)?);
    }
    talk.check();
    Ok(json!({
        "status": talk.status.as_str(), "nudges": talk.nudges, "corrective_nudges": talk.corrective_nudges,
        "stuck": talk.status == ConversationStatus::Stuck,
    }))
}

fn word(value: &Value) -> Result<&str, String> {
    let word = value.as_str().or_else(|| value.get("ev")?.as_str()).or_else(|| value.get("kind")?.as_str());
    word.ok_or_else(|| format!("{value} is no event of a script"))
}

/// A conversation of the SDK, as far as being stuck goes (O-107, O-127, O-128).
#[derive(Default)]
struct Talk {
    detector: Detector,
    log: Vec<Seen>,
    status: ConversationStatus,
    nudges: usize,
    corrective_nudges: usize,
}

impl Talk {
    /// One answer of the model, or one message of the user, who runs it again.
    fn step(&mut self, entry: &str) {
        if matches!(entry, "user" | "user_msg" | "user_message") {
            self.happened(entry);
            self.status = ConversationStatus::Running;
            return;
        }
        if self.status == ConversationStatus::Idle {
            self.status = ConversationStatus::Running;
        }
        self.check();
        if self.status == ConversationStatus::Running {
            self.happened(entry);
        }
    }

    /// Before each step: a nudge, or whether it is stuck.
    fn check(&mut self) {
        if self.status != ConversationStatus::Running {
            return;
        }
        if self.detector.nudge(&self.log).is_some() {
            self.nudges += 1;
            self.log.push(Seen::OtherMessage);
        } else if self.detector.find(&self.log).is_some() {
            self.status = ConversationStatus::Stuck;
        }
    }

    fn happened(&mut self, entry: &str) {
        let of = |name: &str| fingerprint(name);
        match entry {
            "user" | "user_msg" | "user_message" => self.log.push(Seen::UserMessage),
            "agent_msg" | "agent_message" => self.log.push(Seen::AgentMessage),
            "env_msg" | "env_message" | "environment_msg" | "nudge" => self.log.push(Seen::OtherMessage),
            "condensation" | "condensation_summary" | "condensation_event" | "condensation_summary_event" => {
                self.log.push(Seen::CondensationSummary)
            }
            "action" => self.log.push(Seen::Action(of("action"))),
            "observation" | "obs" => self.log.push(Seen::Observation(of("observation"))),
            "agent_error" | "error" => self.log.push(Seen::AgentError(of("error"))),
            "reject" | "rejection" => self.log.push(Seen::Rejection(of("reject"))),
            "say" | "text" | "finish" => {
                self.log.push(Seen::AgentMessage);
                self.status = ConversationStatus::Finished;
            }
            "empty" | "reasoning" | "reasoning_only" => {
                self.corrective_nudges += 1;
                self.log.extend([Seen::AgentMessage, Seen::OtherMessage]);
            }
            // The same failing call, or one that is its own: `bad`, `bad2`.
            bad if bad.starts_with("bad") => self.log.extend([Seen::Action(of(bad)), Seen::AgentError(of(bad))]),
            // Each is a call of its own.
            other if other.starts_with("diff") => {
                let name = format!("{other} {}", self.log.len());
                self.log.extend([Seen::Action(of(&name)), Seen::Observation(of(&name))]);
            }
            call => self.log.extend([Seen::Action(of(call)), Seen::Observation(of(call))]),
        }
    }
}

pub(super) fn unmatched(case: &Case<'_>) -> Result<Value, String> {
    let events = case.list("events")?;
    let text = |event: &'_ Value, key: &str| event.get(key).and_then(Value::as_str).map(str::to_owned).unwrap_or_default();
    let fields: Vec<[String; 4]> = events.iter().map(|event| ["ev", "id", "action", "call"].map(|key| text(event, key))).collect();
    let mut steps = Vec::new();
    for (event, [ev, id, action, call]) in events.iter().zip(&fields) {
        steps.push(match ev.as_str() {
            "action" => {
                let executable = event.get("executable").and_then(Value::as_bool).unwrap_or(true);
                trajectory::Step::Action { id, call, executable }
            }
            "observation" | "reject" | "rejection" | "user_reject" => trajectory::Step::Answer { action },
            "agent_error" | "error" => trajectory::Step::Error { call },
            _ => trajectory::Step::Other,
        });
    }
    let pending: Vec<&String> = trajectory::unmatched(&steps).into_iter().filter_map(|at| fields.get(at)).map(|[_, id, ..]| id).collect();
    Ok(json!({ "pending": pending }))
}

pub(super) fn event_tree(case: &Case<'_>) -> Result<Value, String> {
    let mut tree = EventTree::default();
    match grown(&mut tree, case) {
        Ok(shown) => Ok(shown),
        Err(Trouble::Tree(name)) => Ok(json!({ "error": name })),
        Err(Trouble::Case(reason)) => Err(reason),
    }
}

enum Trouble {
    /// The tree refuses, which is a result.
    Tree(&'static str),
    Case(String),
}

impl From<trajectory::TreeError> for Trouble {
    fn from(error: trajectory::TreeError) -> Self {
        Self::Tree(error.name())
    }
}

fn grown(tree: &mut EventTree, case: &Case<'_>) -> Result<Value, Trouble> {
    for key in ["inject_corrupt", "append", "events"] {
        append(tree, case.get(key), key == "inject_corrupt")?;
    }
    if let Some(to) = case.any(&["navigate_to", "navigate"]) {
        tree.navigate_to(to.as_str())?;
    }
    for key in ["then_append", "append_after", "then"] {
        append(tree, case.get(key), false)?;
    }
    if let Some(from) = case.any(&["fork", "fork_from"]) {
        *tree = tree.fork(from.as_str())?;
    }
    let ids = |branch: Vec<&str>| branch.into_iter().map(str::to_owned).collect::<Vec<String>>();
    let path = match case.get("path_to_root") {
        Some(of) => ids(tree.path_to_root(of.as_str())?),
        None => ids(tree.active_branch()?),
    };
    Ok(json!({ "path": path, "head": tree.head(), "branch": ids(tree.active_branch().unwrap_or_default()), "length": tree.len() }))
}

fn append(tree: &mut EventTree, events: Option<&Value>, unchecked: bool) -> Result<(), Trouble> {
    for event in events.and_then(Value::as_array).into_iter().flatten() {
        let id = event.get("id").and_then(Value::as_str).ok_or_else(|| Trouble::Case(format!("{event} has no id")))?;
        let parent = event.get("parent").or_else(|| event.get("parent_id")).and_then(Value::as_str);
        match parent {
            _ if unchecked => tree.insert(id, parent),
            Some(parent) => tree.append(id, Some(parent))?,
            None => drop(tree.append_to_head(id)?),
        }
    }
    Ok(())
}

pub(super) fn hook(case: &Case<'_>) -> Result<Value, String> {
    let timed_out = case.any(&["timeout", "timed_out"]).is_some_and(|value| !matches!(value, Value::Bool(false) | Value::Null));
    let read = |text: &Value| text.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_else(|| text.clone());
    let stdout = case.any(&["stdout_json", "stdout"]).map(read).filter(|stdout| !stdout.is_null());
    let stdout = stdout.as_ref();
    let end = match case.get("exit") {
        _ if timed_out => HookEnd::TimedOut,
        Some(Value::Number(code)) => HookEnd::Exit { code: code.as_i64().unwrap_or(-1), stdout },
        Some(Value::String(word)) if word.contains("time") => HookEnd::TimedOut,
        Some(_) | None => HookEnd::Broke,
    };
    let verdict = hook::verdict(end, HookRules::Reference);
    let reason = if let hook::HookVerdict::Deny { reason } = &verdict { reason.as_str() } else { "" };
    Ok(json!({ "verdict": verdict.as_str(), "reason": reason, "blocked": verdict.as_str() == "deny" }))
}

pub(super) fn parallel(case: &Case<'_>) -> Result<Value, String> {
    let limit = case.any(&["limit", "max_workers"]).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok()).unwrap_or(4);
    if let Some(declared) = case.get("declared") {
        return serialised(case, declared, limit);
    }
    let (given, cancelled) = match case.any(&["calls", "cancelled_before_start"]) {
        Some(calls) => (calls.as_array().cloned().unwrap_or_default(), case.get("cancelled_before_start").is_some()),
        None => return Err("`in` has no calls, declared, or cancelled_before_start".to_owned()),
    };
    let name =
        |call: &Value| call.as_str().or_else(|| call.get("tool")?.as_str()).or_else(|| call.get("name")?.as_str()).map(str::to_owned);
    let names = given.iter().map(|call| name(call).ok_or_else(|| format!("{call} is no call"))).collect::<Result<Vec<String>, String>>()?;
    let mut batch = Batch::new(names.iter().map(|tool| Call { tool: tool.clone(), resources: None }).collect(), limit);
    if cancelled {
        batch.cancel();
    }
    // The last that is started ends first: results come in the order of the calls all the same.
    let mut executed = Vec::new();
    let mut running: Vec<usize> = Vec::new();
    loop {
        running.extend(batch.start());
        let Some(index) = running.pop() else { break };
        executed.push(index);
        batch.ended(index, ended(&names[index], &given[index]));
    }
    executed.sort_unstable();
    let results = batch.results().ok_or("not all calls came to an end")?;
    let in_short = case.expect.get("events").and_then(Value::as_array).is_some_and(|events| events.iter().all(Value::is_string));
    let shown = results.iter().map(|result| match result {
        Ended::Observation(_) => json!("observation"),
        Ended::Error(_) if in_short => json!("agent_error"),
        Ended::Error(text) => json!({ "agent_error": text }),
    });
    let order: Vec<&String> = executed.iter().filter_map(|index| names.get(*index)).collect();
    Ok(json!({
        "events": shown.collect::<Vec<_>>(), "executed": order, "order": order, "results": order,
        "discarded": batch.dropped().iter().map(|call| call.tool.clone()).collect::<Vec<_>>(),
    }))
}

fn ended(tool: &str, call: &Value) -> Ended {
    match call.get("raises").and_then(Value::as_str) {
        Some(raised) => Ended::failed(tool, raised.split_once(": ").map_or(raised, |(_, text)| text)),
        None => Ended::Observation(String::new()),
    }
}

/// Which of the calls never run at the same time.
fn serialised(case: &Case<'_>, declared: &Value, limit: usize) -> Result<Value, String> {
    let declared: BTreeMap<&String, &Value> = declared.as_object().ok_or("declared is an object")?.iter().collect();
    let same_tool = case.flag("same_tool");
    let resources = |keys: &Value| match keys {
        Value::Null => None,
        Value::String(key) => Some(vec![key.clone()]),
        other => Some(other.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()),
    };
    let tool = |name: &str| if same_tool { "t".to_owned() } else { name.to_owned() };
    let calls = declared.iter().map(|(name, keys)| Call { tool: tool(name), resources: resources(keys) }).collect();
    let groups = Batch::new(calls, limit).serialised();
    let names: Vec<&&String> = declared.keys().collect();
    let named = groups.into_iter().map(|group| group.into_iter().map(|at| (**names[at]).clone()).collect::<Vec<_>>()).collect::<Vec<_>>();
    let together = declared.len() - named.iter().map(Vec::len).sum::<usize>();
    Ok(json!({ "serialised": named, "parallel": together > 0 }))
}
