//! Delegations for people: the task and its assignment, instead of JSON.

use conclave_core::types::action::Action;
use conclave_core::types::message::Message;
use serde_json::Value;

/// The action that starts several delegates.
const DELEGATE_ALL: &str = "delegate_all";
/// The keys of the answer to a delegation.
const ANSWER_KEYS: [&str; 8] =
    ["status", "task_id", "room_id", "agent", "output", "error", "result", "from_cache"];

/// Work that an agent delegates to a task and waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delegate {
    pub(crate) task: String,
    pub(crate) brief: String,
}

impl Delegate {
    fn new(task: &str, inputs: &Value) -> Self {
        let brief = match inputs.get("task").and_then(Value::as_str) {
            Some(brief) => brief.to_owned(),
            None if inputs.is_null() => String::new(),
            None => inputs.to_string(),
        };
        Self { task: task.to_owned(), brief }
    }
}

/// The delegates that the action of a message starts.
pub(crate) fn delegates(message: &Message) -> Vec<Delegate> {
    match &message.action {
        Some(Action::Delegate { agent, inputs }) => vec![Delegate::new(agent, inputs)],
        Some(Action::Custom { name, arguments }) if name == DELEGATE_ALL => {
            let listed = arguments.get("delegates").or_else(|| arguments.get("tasks"));
            let delegate = |listed: &Value| {
                let inputs = listed.get("inputs").unwrap_or(&Value::Null);
                Some(Delegate::new(listed.get("agent")?.as_str()?, inputs))
            };
            listed.and_then(Value::as_array).into_iter().flatten().filter_map(delegate).collect()
        }
        _ => Vec::new(),
    }
}

/// The output of a background task, if the content is the answer to a call that waited for the
/// task.
pub(crate) fn answer(content: &str) -> Option<String> {
    if !content.starts_with('{') {
        return None;
    }
    let answer: Value = serde_json::from_str(content).ok()?;
    let fields = answer.as_object()?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let (status, agent) = (text("status")?, text("agent")?);
    text("task_id")?;
    // An answer with any other key is shown unchanged.
    if !fields.keys().all(|key| ANSWER_KEYS.contains(&key.as_str())) {
        return None;
    }
    let result = text("output").or(text("error"));
    Some(result.map_or_else(|| format!("{agent}: {status}"), |result| format!("{agent}: {result}")))
}

#[cfg(test)]
mod tests {
    use conclave_core::types::message::Role;
    use serde_json::json;

    use super::*;

    fn acting(action: Action) -> Message {
        let mut message = Message::new(1, Role::Llm, "article");
        message.action = Some(action);
        message
    }

    fn delegate(task: &str, brief: &str) -> Delegate {
        Delegate { task: task.to_owned(), brief: brief.to_owned() }
    }

    #[test]
    fn a_delegate_has_the_name_of_its_task_and_its_brief() {
        let inputs = json!({ "task": "Find sources.", "feedback": "" });
        let one = acting(Action::Delegate { agent: "research".to_owned(), inputs });
        assert_eq!(delegates(&one), [delegate("research", "Find sources.")]);
        let inputs = json!({ "year": 1844 });
        let bare = acting(Action::Delegate { agent: "research".to_owned(), inputs });
        assert_eq!(delegates(&bare), [delegate("research", r#"{"year":1844}"#)]);
        let listed = json!([
            { "agent": "research", "inputs": { "task": "Find." } },
            { "agent": "write", "inputs": { "task": "Write." } },
        ]);
        let name = DELEGATE_ALL.to_owned();
        let all = acting(Action::Custom { name, arguments: json!({ "delegates": listed }) });
        assert_eq!(delegates(&all), [delegate("research", "Find."), delegate("write", "Write.")]);
        assert!(delegates(&acting(Action::Null)).is_empty());
    }

    #[test]
    fn an_answer_is_what_the_worker_gave() {
        let of = |answer_json: Value| answer(&answer_json.to_string());
        let answer_json = json!({
            "status": "completed", "task_id": "task-1", "room_id": "r/1", "agent": "research",
            "output": "Lit in 1844.",
        });
        assert_eq!(of(answer_json.clone()).as_deref(), Some("research: Lit in 1844."));
        let started = json!({ "status": "delegated", "task_id": "task-1", "agent": "research" });
        assert_eq!(of(started).as_deref(), Some("research: delegated"));
        let mut more = answer_json;
        more["note"] = json!("of a tool's own");
        assert_eq!((of(more), answer("Lit in 1844.")), (None, None));
    }
}
