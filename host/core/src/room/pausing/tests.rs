use super::super::fixture::{Parts, context};
use super::*;
use crate::types::outcome::{Outcome, Status};
use crate::types::request::{RequestId, RequestReply};

/// Moves the clock, as at the begin of an event.
fn at(cx: &mut RoomContext, pausing: &mut Pausing, now: u64) {
    cx.now = Millis(now);
    pausing.count_pause(cx);
}

fn finish(cx: &mut RoomContext) {
    let outcome = Outcome::new(Status::Done, "").into();
    cx.phase = RoomPhase::Finished { outcome };
}

fn set(timer: u64, at: u64) -> [Effect; 1] {
    [Effect::SetTimer { timer: TimerId(timer), at: Millis(at) }]
}

#[test]
fn a_deadline_moves_by_the_time_in_a_pause_only() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    cx.opening.deadline = Some(Millis(2_000));
    let deadline = |cx: &mut RoomContext, pausing: &mut Pausing, now| {
        at(cx, pausing, now);
        cx.opening.deadline
    };
    assert_eq!(deadline(&mut cx, &mut pausing, 1_100), Some(Millis(2_000)));
    pausing.pause(&mut cx, "lunch");
    assert_eq!(deadline(&mut cx, &mut pausing, 1_400), Some(Millis(2_300)));
    assert_eq!(deadline(&mut cx, &mut pausing, 1_500), Some(Millis(2_400)));
    pausing.unpause(&mut cx);
    assert_eq!(deadline(&mut cx, &mut pausing, 1_900), Some(Millis(2_400)));
    // A finished run has no time left to move.
    pausing.pause(&mut cx, "lunch");
    finish(&mut cx);
    assert_eq!(deadline(&mut cx, &mut pausing, 2_900), Some(Millis(2_400)));
}

#[test]
fn a_timer_that_fires_after_a_pause_waits_as_long_again_as_the_pause() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    cx.set_timer(TimerPurpose::Wall, Millis(1_500));
    pausing.pause(&mut cx, "lunch");
    at(&mut cx, &mut pausing, 1_300);
    pausing.unpause(&mut cx);
    at(&mut cx, &mut pausing, 1_500);
    cx.effects.clear();
    assert!(pausing.fired_too_early(&mut cx, TimerId(0)));
    assert_eq!(cx.take_effects(), set(1, 1_800));
    at(&mut cx, &mut pausing, 1_800);
    assert!(!pausing.fired_too_early(&mut cx, TimerId(1)));
    assert!(pausing.is_idle(), "nothing is owed any more");
}

#[test]
fn a_timer_that_fires_in_a_pause_has_as_much_time_left_as_when_it_began() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    cx.set_timer(TimerPurpose::Wall, Millis(1_500));
    pausing.pause(&mut cx, "lunch");
    cx.effects.clear();
    for now in [1_500, 1_700] {
        at(&mut cx, &mut pausing, now);
        assert!(pausing.fired_too_early(&mut cx, TimerId(0)));
    }
    at(&mut cx, &mut pausing, 9_000);
    pausing.unpause(&mut cx);
    assert_eq!(cx.take_effects(), set(1, 9_500));
    assert!(!pausing.fired_too_early(&mut cx, TimerId(1)));
}

#[test]
fn time_without_a_host_is_not_owed_twice() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    assert!(!pausing.count_downtime(300), "no pause has counted it");
    cx.set_timer(TimerPurpose::Wall, Millis(1_500));
    pausing.pause(&mut cx, "lunch");
    at(&mut cx, &mut pausing, 1_400);
    // The host set its timer anew for 300 ms later.
    assert!(pausing.count_downtime(300));
    pausing.unpause(&mut cx);
    cx.effects.clear();
    at(&mut cx, &mut pausing, 1_800);
    assert!(pausing.fired_too_early(&mut cx, TimerId(0)));
    assert_eq!(cx.take_effects(), set(1, 1_900));
}

#[test]
fn effects_that_begin_something_wait_in_their_order_and_others_leave() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    let ask = |call| Effect::AskUser {
        call: CallId(call),
        task: "desk".into(),
        channel: "terminal".into(),
        prompt: String::new(),
    };
    let reply = Effect::Reply { request: RequestId(0), reply: Ok(RequestReply::Done) };
    let poll = |cx: &mut RoomContext, pausing: &mut Pausing| -> Vec<Effect> {
        std::iter::from_fn(|| pausing.next_effect(cx)).collect()
    };
    pausing.pause(&mut cx, "lunch");
    cx.effects.extend([ask(0), reply.clone(), ask(1)]);
    assert_eq!(poll(&mut cx, &mut pausing), [reply]);
    at(&mut cx, &mut pausing, 1_100);
    cx.effects.push_back(ask(2));
    assert_eq!(poll(&mut cx, &mut pausing), []);
    at(&mut cx, &mut pausing, 1_200);
    pausing.unpause(&mut cx);
    assert_eq!(poll(&mut cx, &mut pausing), [ask(0), ask(1), ask(2)]);
}

#[test]
fn a_second_pause_and_a_second_end_change_nothing() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    pausing.pause(&mut cx, "lunch");
    pausing.pause(&mut cx, "tea");
    assert_eq!(pausing.paused(), Some("lunch"));
    pausing.unpause(&mut cx);
    pausing.unpause(&mut cx);
    let reported = [Notice::RunPaused { reason: "lunch".to_owned() }, Notice::RunUnpaused];
    assert_eq!(cx.take_notices(), reported);
}

#[test]
fn a_finished_run_is_not_paused_and_its_unread_words_are_reported() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    pausing.pause(&mut cx, "lunch");
    pausing.words.push(words("desk"));
    cx.notices.clear();
    let before = pausing.clone();
    pausing.end_pause(&mut cx);
    assert_eq!(pausing, before, "the run is not over yet");
    finish(&mut cx);
    pausing.end_pause(&mut cx);
    assert!(pausing.is_idle());
    assert!(matches!(cx.take_notices().as_slice(), [Notice::UserMessageDropped { .. }]));
}

fn words(task: &str) -> UserMessage {
    UserMessage {
        task: task.into(),
        text: "hello".to_owned(),
        attachments: Vec::new(),
        chain_depth: 0,
    }
}

#[test]
fn words_wait_for_a_question_or_a_step_of_their_task_and_for_the_end_of_a_pause() {
    let (mut parts, mut pausing) = (Parts::new(""), Pausing::default());
    let frame = parts.begin("desk", None);
    pausing.words = vec![words("desk"), words("digest")];
    let next =
        |parts: &Parts, pausing: &Pausing| pausing.next_user_message(&parts.cx, &parts.frames);
    // No frame of `digest` will ever read them, so they do not wait.
    assert!(matches!(next(&parts, &pausing), Some((1, MessageTarget::Nobody))));
    pausing.words.pop();
    assert!(next(&parts, &pausing).is_none());
    let (task, agent) = (TaskName::from("desk"), "chat".into());
    parts.cx.effects.push_back(Effect::StepAgent { call: CallId(8), frame, task, agent });
    assert!(matches!(next(&parts, &pausing), Some((0, MessageTarget::Step(of))) if of == frame));
    let call = parts.cx.next_call(Purpose::User { frame });
    assert!(matches!(next(&parts, &pausing), Some((0, MessageTarget::Answer(to))) if to == call));
    pausing.pause(&mut parts.cx, "lunch");
    assert!(next(&parts, &pausing).is_none());
}

#[test]
fn a_persons_pause_takes_the_place_of_a_handover_and_not_the_other_way_round() {
    let (mut cx, mut pausing) = (context(""), Pausing::default());
    for (reason, now) in [(HANDOVER, HANDOVER), ("lunch", "lunch"), (HANDOVER, "lunch")] {
        pausing.pause(&mut cx, reason);
        assert_eq!(pausing.paused(), Some(now), "{reason}");
    }
    pausing.unpause(&mut cx);
    assert_eq!(pausing.paused(), None, "one end lifts them all");
}
