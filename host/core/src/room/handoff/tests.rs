use super::super::fixture::Parts;
use super::*;

const ROUTES: &str = r#"
[plugins.chat.grants]
route = ["digest"]
[tasks.billing]
agent = "worker"
"#;

/// A conversation that `desk` holds.
struct Conversation {
    parts: Parts,
    handoffs: Handoffs,
    root: FrameId,
}

impl Conversation {
    fn new() -> Self {
        let mut parts = Parts::new(ROUTES);
        let root = parts.begin("desk", None);
        Self { parts, handoffs: Handoffs::default(), root }
    }

    /// Asks for a handoff. Returns the code of the refusal; `None` if it was accepted.
    fn ask(&mut self, frame: FrameId, arguments: Value) -> Option<RefusalCode> {
        let call = ToolCall::new("handoff_conversation", arguments);
        let Parts { cx, frames, .. } = &mut self.parts;
        let outcome = self.handoffs.handoff_by_call(cx, frames, frame, &call);
        let code = cx.take_notices().into_iter().find_map(|notice| match notice {
            Notice::HandoffRejected { refusal, .. } => Some(refusal.error),
            _ => None,
        });
        assert_eq!(outcome.is_error, code.is_some());
        code
    }

    fn ask_for(&mut self, target: &str) -> Option<RefusalCode> {
        self.ask(self.root, arguments(target))
    }
}

fn arguments(target: &str) -> Value {
    json!({ "target": target, "reason": "it is about money", "summary": "they ask for a bill" })
}

#[test]
fn a_conversation_is_handed_over_once_a_turn() {
    let mut talk = Conversation::new();
    assert_eq!(talk.ask_for("DIGEST"), None, "in any case of letters");
    assert_eq!(talk.ask_for("user"), Some(RefusalCode::Busy));
    talk.handoffs.forget(FrameId(9));
    assert_eq!(talk.ask_for("user"), Some(RefusalCode::Busy), "that was another frame");
    talk.handoffs.forget(talk.root);
    assert_eq!(talk.ask_for("user"), None);
}

#[test]
fn each_target_needs_to_exist_to_be_another_and_to_be_granted() {
    let mut talk = Conversation::new();
    assert_eq!(talk.ask_for("stranger"), Some(RefusalCode::UnknownAgent));
    assert_eq!(talk.ask_for("desk"), Some(RefusalCode::BadArguments));
    assert_eq!(talk.ask_for("billing"), Some(RefusalCode::NotGranted), "no `route` grant");
    talk.parts.cx.task_mut("desk").handoff = Some(vec!["user".to_owned()]);
    assert_eq!(talk.ask_for("digest"), Some(RefusalCode::NotGranted), "not in its table");
    assert_eq!(talk.handoffs, Handoffs::default());
}

#[test]
fn only_the_frame_that_holds_the_conversation_hands_it_over() {
    let mut talk = Conversation::new();
    let child = talk.parts.begin("digest", Some(talk.root));
    assert_eq!(talk.ask(child, arguments("user")), Some(RefusalCode::NotGranted));
    let outcome = crate::types::outcome::Outcome::new(Status::Done, "");
    talk.parts.cx.phase = RoomPhase::Draining { outcome: outcome.into() };
    assert_eq!(talk.ask_for("user"), Some(RefusalCode::NotGranted));
}

#[test]
fn a_loop_of_handoffs_ends_until_the_user_speaks() {
    let mut talk = Conversation::new();
    talk.handoffs.in_a_row = IN_A_ROW_MAX;
    assert_eq!(talk.ask_for("digest"), Some(RefusalCode::LimitReached));
    talk.handoffs.user_spoke();
    assert_eq!(talk.ask_for("digest"), None);
}

#[test]
fn arguments_are_refused_one_byte_past_their_limit_and_when_they_are_blank() {
    let limits = [
        ("reason", REASON_MAX),
        ("summary", SUMMARY_MAX),
        ("next_phase", WORD_MAX),
        ("channel_escalation", WORD_MAX),
    ];
    let ask = |name: &str, text: String| {
        let mut arguments = arguments("digest");
        arguments[name] = json!(text);
        let mut talk = Conversation::new();
        talk.ask(talk.root, arguments)
    };
    for (name, most) in limits {
        assert_eq!(ask(name, "x".repeat(most)), None, "{name}");
        assert_eq!(ask(name, "x".repeat(most + 1)), Some(RefusalCode::BadArguments), "{name}");
    }
    for name in ["target", "reason", "summary"] {
        assert_eq!(ask(name, " ".to_owned()), Some(RefusalCode::BadArguments), "{name}");
    }
    assert_eq!(ask("tone", String::new()), Some(RefusalCode::BadArguments), "an unknown one");
    assert_eq!(ask("next_phase", " ".to_owned()), None, "then it has the usual name");
}

#[test]
fn a_run_takes_the_conversation_back_to_its_entry() {
    let mut talk = Conversation::new();
    let (desk, digest) = (TaskName::from("desk"), TaskName::from("digest"));
    talk.handoffs.run_begins_with(&desk);
    assert_eq!(talk.handoffs, Handoffs::default(), "it was never handed over");
    talk.ask_for("digest");
    talk.handoffs.state.active = Some(digest.clone());
    assert_eq!(talk.handoffs.handed_to(&talk.parts.cx), Some(&digest));
    talk.handoffs.run_begins_with(&desk);
    let state = talk.handoffs.handoffs();
    assert_eq!((&state.active, &state.previous), (&Some(desk), &Some(digest.clone())));
    assert_eq!(talk.handoffs.agreed, None, "an agreement of the earlier run is void");
    // A later setup may have no such task.
    talk.parts.cx.setup_mut().tasks.remove("desk");
    assert_eq!(talk.handoffs.handed_to(&talk.parts.cx), None);
}
