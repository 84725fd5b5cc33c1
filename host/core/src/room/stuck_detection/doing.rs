//! An action of this host with what answered it, as its watch takes it: without thoughts, and without ids, which are new each time.

use super::{Doing, DoingKind};
use crate::types::action::{Action, Observation};
use crate::types::fingerprint::{Fingerprint, fingerprint};

impl Doing {
    /// What was done and what came of it. Saying something is a message, whatever answers it; of a reply with calls only the calls count.
    #[must_use]
    pub fn of(action: &Action, observation: &Observation) -> Self {
        let (result, is_error) = result(observation);
        let (what, kind) = match action {
            Action::Reply(reply) if reply.tool_calls.is_empty() => (fingerprint(&("reply", &reply.content)), DoingKind::Message),
            Action::Talk { content } => (fingerprint(&("reply", Some(content))), DoingKind::Message),
            Action::Reply(reply) => {
                let calls: Vec<_> = reply.tool_calls.iter().map(|call| (&call.name, &call.arguments)).collect();
                (fingerprint(&("calls", calls)), DoingKind::Act)
            }
            other => (fingerprint(other), DoingKind::Act),
        };
        Self { what, result, is_error, kind }
    }
}

fn result(observation: &Observation) -> (Fingerprint, bool) {
    match observation {
        Observation::Tool(result) => (fingerprint(&(&result.name, &result.content, &result.value)), result.is_error),
        Observation::Error { content } => (fingerprint(&("error", content)), true),
        other => (fingerprint(other), false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::action::Reply;
    use crate::types::message::{ToolCall, ToolResult};

    fn calls(id: &str, content: &str) -> Action {
        let call = ToolCall { id: id.to_owned(), ..ToolCall::new("t.run", json!({ "a": 1 })) };
        Action::Reply(Reply {
            completion: Some(id.to_owned()),
            content: Some(content.to_owned()),
            tool_calls: vec![call],
            ..Reply::default()
        })
    }

    #[test]
    fn ids_and_what_is_said_beside_a_call_make_no_difference() {
        let answer = |id: &str| ToolResult {
            call_id: id.to_owned(),
            name: "t.run".to_owned(),
            content: "x".to_owned(),
            value: None,
            is_error: true,
        };
        let doing = Doing::of(&calls("c1", "let me see"), &Observation::Tool(answer("c1")));
        assert_eq!(doing, Doing::of(&calls("c2", "once more"), &Observation::Tool(answer("c2"))));
        assert!(doing.is_error && doing.kind == DoingKind::Act);
        assert_ne!(doing.result, Doing::of(&calls("c1", ""), &Observation::Error { content: "x".to_owned() }).result);
    }

    #[test]
    fn what_is_said_is_a_message() {
        let reply = Action::Reply(Reply { content: Some("hi".to_owned()), ..Reply::default() });
        let talk = Action::Talk { content: "hi".to_owned() };
        let (one, other) = (Doing::of(&reply, &Observation::Null), Doing::of(&talk, &Observation::Null));
        assert_eq!((one.kind, one.what), (DoingKind::Message, other.what));
        let [a, b] = ["ls", "pwd"].map(|command| Action::Run { command: command.to_owned(), background: false });
        assert_ne!(Doing::of(&a, &Observation::Null).what, Doing::of(&b, &Observation::Null).what);
    }
}
