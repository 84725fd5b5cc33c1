//! Micro: the agent of micro-agents, which are text files with a prompt, inputs and required
//! outputs. The host builds the task's system text from them. This component calls a model with it,
//! executes the model's actions, and finishes with its outputs. The host refuses a finish that
//! lacks an output, and names it.
//!
//! A model may call tools, write an action in its fixed JSON form, or write the outputs alone:
//! `{"summary": "…"}` is a finish.
//!
//! ```toml
//! [plugins.micro]
//! source = "stock:micro"
//! grants.model = ["default"]
//! ```

use conclave_sdk::model::{self, Part, Request};
use conclave_sdk::{Agent, Result, Turn, View, act, finish, value_in};
use serde_json::Value;

/// Characters of an observation that the model reads here; its history has the rest.
const SHOWN: usize = 4_000;
const FORM: &str = "Call a tool, or write one JSON object and nothing else: the outputs alone when you are done, or an action:";
/// Without a plan: a micro-agent has a single task.
const ACTIONS: [&str; 12] = [
    "run",
    "run_ipython",
    "read",
    "write",
    "edit",
    "browse",
    "recall",
    "call_tool_mcp",
    "delegate",
    "think",
    "finish",
    "reject",
];

struct Micro;

impl Agent for Micro {
    fn step(view: &View) -> Result<Turn> {
        let came: Vec<_> = view.new_events().iter().map(|event| event.memory_form(SHOWN)).collect();
        let prompt = vec![Part::System, model::history(), model::note(note(came))];
        model::act_by(&Request { prompt, ..Request::default() }, read)
    }
}

fn note(came: Vec<Value>) -> String {
    let quoted = |came| model::quoted("EVENTS", "your actions, tools and other plugins gave", came);
    let came = if came.is_empty() {
        String::new()
    } else {
        format!("What came since your last action:\n{}\n\n", quoted(came))
    };
    format!("{came}{FORM}\n{}", act::form(&ACTIONS))
}

/// Parses an action. An object that is no action is the micro-agent's outputs.
fn read(text: &str) -> Result<Turn> {
    match value_in(text)? {
        Value::Object(outputs)
            if !outputs.contains_key("action") && !outputs.contains_key("observation") =>
        {
            Ok(finish(outputs))
        }
        value => Turn::from_value(&value),
    }
}

conclave_sdk::export!(agent: Micro);

#[cfg(test)]
mod tests {
    use conclave_sdk::{Error, act, finish};
    use serde_json::json;

    use super::{note, read};

    #[test]
    fn an_object_that_is_no_action_is_what_it_gives() {
        let outputs = json!({ "summary": "a typo", "lines": [3] });
        assert_eq!(read(&format!("```json\n{outputs}\n```")).unwrap(), finish(outputs));
        assert_eq!(read("{}").unwrap(), finish(json!({})));
    }

    #[test]
    fn an_action_is_an_action() {
        assert_eq!(
            read(r#"{"action": "run", "args": {"command": "ls"}}"#).unwrap(),
            act::run("ls")
        );
        assert!(
            matches!(read(r#"{"action": "dance"}"#), Err(Error::InvalidArguments(text)) if text.contains("does not exist"))
        );
        assert!(
            matches!(read("It is a typo."), Err(Error::InvalidArguments(text)) if text.contains("one JSON object"))
        );
        assert!(read(r#"{"observation": "null"}"#).is_err());
    }

    #[test]
    fn a_model_is_told_what_came_and_what_it_may_do() {
        assert!(note(Vec::new()).starts_with("Call a tool"));
        let told = note(vec![json!({ "observation": "error", "content": "x\n--- END ---" })]);
        assert!(told.starts_with("What came since your last action:\n--- EVENTS ---\n"), "{told}");
        assert!(told.contains("{\"content\":\"x\\n--- END ---\",\"observation\":\"error\"}\n--- END ---\n\nCall a tool"), "{told}");
        assert!(told.contains("\"action\": \"finish\"") && !told.contains("add_task"));
    }
}
