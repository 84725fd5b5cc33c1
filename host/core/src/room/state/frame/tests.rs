use super::*;
use crate::room::fixture::Parts;
use crate::room::models::caller_of;
use crate::room::pausing::active_frame;
use crate::room::state::calls::Purpose;
use crate::room::state::frame_state::Responders;
use crate::room::state::frames::Frames;
use crate::room::state::invariant::Invariant;
use crate::room::state::responder::Responder;
use crate::types::action::{Action, Observation, PastAction};
use crate::types::ids::{CallId, FrameId, PluginName, TaskName};

#[test]
fn a_frame_is_as_deep_as_its_callers_and_the_rooms_above() {
    let mut parts = Parts::new("");
    parts.cx.opening.depth = 2;
    let root = parts.begin("desk", None);
    let child = parts.begin("digest", Some(root));
    let below = parts.begin("desk", Some(child));
    let level = |id| parts.frames.level_of(&parts.cx, parts.frames.get(id).unwrap());
    assert_eq!([&root, &child, &below].map(level), [2, 3, 4]);
}

#[test]
fn a_frame_has_a_task_only_as_long_as_both_exist() {
    let mut parts = Parts::new("");
    let (known, unknown) = (parts.begin("desk", None), parts.begin("stranger", None));
    let agent = |parts: &Parts, id| parts.frames.agent_of(&parts.cx, id).cloned();
    assert_eq!(agent(&parts, known), Some("chat".into()));
    assert_eq!(agent(&parts, unknown), None);
    assert!(parts.frames.remove(&known).is_some() && parts.frames.remove(&known).is_none());
    assert_eq!(agent(&parts, known), None);
}

#[test]
fn a_task_is_at_work_while_it_has_a_frame_and_dropped_frames_are_not_run() {
    let mut parts = Parts::new("");
    let root = parts.begin("desk", None);
    parts.frames.runnable.push_back(root);
    assert_eq!(active_frame(&parts.frames, &"desk".into()), Some(root));
    assert_eq!(active_frame(&parts.frames, &"digest".into()), None);
    parts.frames.clear();
    assert_eq!(parts.frames, Frames::default());
}

#[test]
fn an_observation_joins_its_action_after_other_events_and_once() {
    let mut parts = Parts::new("");
    let id = parts.begin("desk", None);
    let error = |text: &str| Observation::Error { content: text.to_owned() };
    let event = PastAction { action: None, observation: Some(Observation::Null), seq: 2 };
    parts.frames.remember(&mut parts.cx, id, Some(Action::Null), None, 1);
    parts.frames.remember_unsolicited(&mut parts.cx, id, event.clone());
    parts.frames.remember(&mut parts.cx, id, None, Some(error("late")), 3);
    parts.frames.remember(&mut parts.cx, id, None, Some(error("again")), 4);
    let frame = parts.frames.get(&id).unwrap();
    let lone_event = |seq, text| PastAction { action: None, observation: Some(error(text)), seq };
    let joined = PastAction { action: Some(Action::Null), ..lone_event(1, "late") };
    let actions: Vec<PastAction> = frame.past_actions.iter().cloned().collect();
    assert_eq!(actions, [joined, event, lone_event(4, "again")]);
    assert_eq!(frame.acting.last_error.as_deref(), Some("again"));
}

#[test]
fn only_calls_of_plugins_ask_and_only_those_for_a_task_have_one() {
    let mut parts = Parts::new("");
    let frame = parts.begin("desk", None);
    let plugin = PluginName::from("worker");
    let missing = FrameId(9);
    let expected = [
        (Purpose::Step { frame }, Some(("chat", Some("desk")))),
        (Purpose::Tool { frame, slot: 0, plugin: plugin.clone() }, Some(("worker", None))),
        (Purpose::Gate { plugin: plugin.clone(), number: 0 }, Some(("worker", None))),
        (Purpose::Strategy { strategy: plugin }, Some(("worker", None))),
        (Purpose::Step { frame: missing }, None),
        (Purpose::User { frame }, None),
    ];
    for (purpose, asks) in expected {
        let call = parts.cx.next_call(purpose.clone());
        let found = caller_of(&parts.frames, &parts.cx, call);
        let asks = asks.map(|(plugin, task)| (plugin.into(), task.map(TaskName::from)));
        assert_eq!(found, asks, "{purpose:?}");
    }
    assert_eq!(caller_of(&parts.frames, &parts.cx, CallId(99)), None);
}

#[test]
fn an_answer_that_no_frame_waits_for_ends_the_room() {
    let mut parts = Parts::new("");
    let id = parts.begin("desk", None);
    let attempt = Attempt {
        responder: Responder::Llm,
        rest: Responders::new(),
        wait: FrameWait::Call(CallId(1)),
        do_not_know: None,
    };
    parts.frames.ask(&mut parts.cx, id, attempt);
    assert!(parts.frames.waits_for_answer(&mut parts.cx, id, CallId(1)));
    assert_eq!(parts.cx.new_violation, None);
    assert!(!parts.frames.waits_for_answer(&mut parts.cx, id, CallId(2)));
    let violated = parts.cx.new_violation.map(|violation| violation.invariant);
    assert_eq!(violated, Some(Invariant::StepWaits));
}
