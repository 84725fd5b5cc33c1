//! A strategy's decisions and the room's reactions, including invalid decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::Setup;
use conclave_core::types::channel::{Activity, Binding, ChannelAccess, ChannelKind};
use conclave_core::types::delivery::{self, Decision, DeliveryState, Wake};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{BackgroundId, ChannelId};
use conclave_core::types::request::{RefusalCode, RequestReply, RoomRequest};
use serde_json::json;

use super::{
    Desk, asking, draining, finish, interactive, on, plan, says, speak, speeches, timers, user,
    wait, wakes,
};

#[test]
fn wakes_of_one_strategy_are_joined_and_the_most_telling_is_left() {
    let mut desk = draining(3);
    desk.ends("one");
    desk.ends("two");
    desk.ends("three");
    let (call, wake) = desk.woken();
    assert_eq!(wake, Wake::Ended { task: "task-1".into() });
    assert!(desk.take(wakes).is_none(), "one call at a time");
    let decisions = vec![speak(&["task-1"]), wait(None, 500)];
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(decisions),
        report: CallReport::default(),
    });
    let (call, wake) = desk.woken();
    assert_eq!(wake, Wake::Ended { task: "task-3".into() });
    // It fails, and its deadline passes, while it decides.
    desk.spoken(Some("busy"));
    desk.timer();
    assert!(desk.take(wakes).is_none());
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(Vec::new()),
        report: CallReport::default(),
    });
    assert_eq!(desk.woken().1, Wake::SendFailed { reason: "busy".to_owned() });
    desk.is_sound();
}

#[test]
fn a_thousand_results_are_each_told_once() {
    let count = 1_000;
    let mut desk = draining(count);
    for _ in 0..count {
        desk.ends("x");
    }
    let (mut calls, mut deliveries) = (0, BTreeMap::<BackgroundId, u32>::new());
    while let Some((call, _)) = desk.take(wakes) {
        calls += 1;
        let view = desk.room().delivery_view(call).expect("it is shown what waits");
        // Half of the results at a time, and one result twice.
        let ids: Vec<&str> = view
            .pending_results
            .iter()
            .take(view.pending_results.len().div_ceil(2))
            .map(|ended| ended.id.as_str())
            .collect();
        let decisions = vec![speak(&ids), speak(&ids[..1]), wait(None, 10)];
        desk.happened(Event::StrategyDecided {
            call,
            answer: Ok(decisions),
            report: CallReport::default(),
        });
        while let Some((call, outgoing)) = desk.take(speeches) {
            outgoing.tasks.into_iter().for_each(|id| *deliveries.entry(id).or_default() += 1);
            desk.happened(Event::Sent { call, failure: None, unknown: false });
            // It answers again, but too late.
            desk.happened(Event::Sent { call, failure: Some("no".to_owned()), unknown: false });
        }
        // An earlier wait ends when the next decision arrives.
        while desk.room().outcome().is_none()
            && !desk.to_do.iter().any(|effect| wakes(effect).is_some())
        {
            desk.timer();
        }
    }
    assert_eq!(deliveries.len(), count);
    assert!(deliveries.values().all(|times| *times == 1));
    assert!(calls <= 12, "{calls} calls for {count} results");
    assert!(desk.room().outcome().is_some());
    assert_eq!(desk.count_notices(|notice| matches!(notice, Notice::Delivered { .. })), count);
    desk.is_sound();
}

#[test]
fn a_strategy_is_shown_no_more_than_it_can_take_and_is_woken_for_the_rest() {
    let mut desk = draining(3);
    desk.ends(&"x".repeat(700_000));
    desk.ends(&"y".repeat(700_000));
    desk.ends("small");
    let (call, _) = desk.woken();
    assert_eq!(
        desk.room().delivery_view(call).expect("a view").pending_results.len(),
        1,
        "the first alone was there"
    );
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(Vec::new()),
        report: CallReport::default(),
    });
    let (call, _) = desk.woken();
    let view = desk.room().delivery_view(call).expect("a view");
    assert_eq!(view.pending_results.len(), 1, "the two long ones do not fit together");
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(vec![speak(&["task-1"])]),
        report: CallReport::default(),
    });
    let (call, wake) = desk.woken();
    assert_eq!(wake, Wake::Ended { task: "task-2".into() });
    assert_eq!(desk.room().delivery_view(call).expect("a view").pending_results.len(), 2);
}

#[test]
fn a_speech_that_fails_is_tried_four_times_and_then_waits_for_the_agent() {
    let mut desk = Desk::open(plan(interactive(), json!({ "result_delivery": "text" })));
    desk.delegate(1);
    desk.step(says("Anything else?"));
    desk.ends("it is blue");
    let mut keys = Vec::new();
    for attempt in 1..=4 {
        let (call, wake) = desk.woken();
        assert_eq!(matches!(wake, Wake::SendFailed { .. }), attempt > 1);
        let view = desk.room().delivery_view(call).expect("a view");
        assert_eq!(view.pending_results[0].attempts, attempt - 1);
        desk.happened(Event::StrategyDecided {
            call,
            answer: Ok(vec![speak(&["task-1"])]),
            report: CallReport::default(),
        });
        keys.push(desk.spoken(Some("the line is busy")).key);
    }
    assert_eq!(keys, ["task-1"; 4], "the same key for every attempt");
    assert!(desk.take(wakes).is_none());
    let record = desk.record("task-1");
    assert_eq!((record.state, record.attempts), (DeliveryState::DeadLetter, 4));
    assert!(record.reason.expect("why").contains("the line is busy"));
    assert_eq!(
        desk.count_notices(|notice| matches!(notice, Notice::DeadLetter { attempts: 4, .. })),
        1
    );
    // Its agent reads it in its next turn, and it is never spoken again.
    let (call, _) = desk.take(user).expect("the user is asked");
    desk.happened(Event::UserAnswered {
        call,
        text: Some("and?".to_owned()),
        attachments: Vec::new(),
        passed: false,
    });
    assert_eq!(desk.state("task-1"), DeliveryState::Read);
    assert!(desk.history().iter().any(|(_, _, text)| text.contains("it is blue")));
    desk.is_sound();
}

#[test]
fn a_strategy_that_says_nothing_of_a_failure_is_reminded_and_then_given_up() {
    let mut desk = draining(1);
    desk.ends("x");
    desk.decides(vec![speak(&["task-1"])]);
    desk.spoken(Some("busy"));
    desk.decides(Vec::new());
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let before = desk.at;
        pauses.push(desk.timer().since(before));
        assert_eq!(desk.decides(Vec::new()), Wake::Timer);
    }
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000]);
    assert!(
        desk.undelivered_reasons()[0].contains("decided nothing about it"),
        "{:?}",
        desk.undelivered_reasons()
    );
    assert!(desk.room().outcome().is_some(), "nothing hangs");
    desk.is_sound();
}

#[test]
fn a_strategy_that_waits_for_ever_is_given_up() {
    let mut desk = draining(1);
    desk.ends("x");
    let mut wakes = 0;
    while desk.room().outcome().is_none() {
        desk.decides(vec![wait(None, 0); 3]);
        wakes += 1;
        if desk.room().outcome().is_none() {
            desk.timer();
        }
    }
    assert!(wakes <= 1_001, "{wakes}");
    assert!(
        desk.undelivered_reasons()[0].contains("woken 1000 times"),
        "{:?}",
        desk.undelivered_reasons()
    );
}

#[test]
fn every_nonsense_falls_back_to_the_agents_next_turn_and_is_reported() {
    let huge = Decision::Deliver {
        tasks: vec!["task-1".to_owned()],
        channel: None,
        prompt: Some("x".repeat(100_000)),
        interrupt: false,
    };
    let denied = |channel: &str| vec![on(channel, &["task-1"])];
    for (decisions, reason) in [
        (vec![huge], "65536"),
        (denied("pager"), "grants.channels does not contain \"pager\""),
        (denied("nowhere"), "grants.channels does not contain \"nowhere\""),
        (vec![Decision::GiveUp { reason: "bored".to_owned() }], "gave up: bored"),
        (
            vec![Decision::MoveToInbox { tasks: vec!["task-1".to_owned(), "task-1".to_owned()] }],
            "agent's next turn",
        ),
    ] {
        let mut desk = draining(1);
        desk.ends("x");
        desk.decides(decisions);
        assert!(desk.all(speeches).is_empty(), "{reason}");
        assert_eq!(desk.undelivered_reasons().len(), 1, "{reason}");
        assert!(desk.undelivered_reasons()[0].contains(reason), "{:?}", desk.undelivered_reasons());
        assert_eq!(desk.state("task-1"), DeliveryState::Inbox);
        desk.is_sound();
    }
}

#[test]
fn a_flood_of_decisions_is_one_timer_and_nothing_said() {
    let mut desk = draining(1);
    desk.ends("x");
    let ids: Vec<String> = (0..10_000).map(|number| format!("task-{}", number + 7)).collect();
    let mut flood: Vec<Decision> =
        (0..10_000_u64).map(|number| wait(Some("nowhere"), 20_000 - number)).collect();
    flood.push(Decision::Deliver { tasks: ids, channel: None, prompt: None, interrupt: true });
    desk.decides(flood);
    assert_eq!((desk.all(timers).len(), desk.all(speeches).len()), (1, 0));
    desk.is_sound();
}

#[test]
fn a_strategy_that_traps_leaves_its_results_and_is_reported() {
    let mut desk = draining(2);
    desk.ends("x");
    desk.ends("y");
    let (call, _) = desk.woken();
    let fault = Fault::new(FaultKind::Trap, "unreachable".to_owned());
    desk.happened(Event::StrategyDecided {
        call,
        answer: Err(fault),
        report: CallReport::default(),
    });
    assert_eq!(desk.count_notices(|notice| matches!(notice, Notice::PluginFaulted { .. })), 1);
    assert_eq!(desk.undelivered_reasons(), ["teller failed: unreachable"; 2]);
    assert!(desk.room().outcome().is_some());
}

#[test]
fn a_strategy_learns_when_the_channel_that_it_waits_for_is_idle() {
    let mut desk = draining(1);
    desk.activity("phone", Activity::UserSpeaking);
    desk.ends("x");
    let (call, _) = desk.woken();
    let busy = desk
        .room()
        .delivery_view(call)
        .expect("a view")
        .channels
        .into_iter()
        .find(|channel| channel.id.as_str() == "phone");
    assert_eq!(busy.expect("it is granted").activity, Activity::UserSpeaking);
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(vec![wait(Some("phone"), 15_000)]),
        report: CallReport::default(),
    });
    // Another busy state is no reason to wake the strategy.
    desk.activity("phone", Activity::Generating);
    desk.activity("terminal", Activity::Idle);
    assert!(desk.take(wakes).is_none());
    desk.activity("phone", Activity::Idle);
    assert_eq!(
        desk.decides(vec![on("phone", &["task-1"])]),
        Wake::ChannelIdle { channel: "phone".into() }
    );
    let outgoing = desk.spoken(None);
    assert_eq!((outgoing.channel.as_str(), outgoing.interrupt), ("phone", true));
    assert!(desk.room().outcome().is_some(), "the time-out holds nothing back");
    desk.is_sound();
}

#[test]
fn a_channel_that_became_idle_while_it_decided_is_not_missed() {
    let mut desk = draining(1);
    desk.activity("phone", Activity::Speaking);
    desk.ends("x");
    let (call, _) = desk.woken();
    desk.activity("phone", Activity::Idle);
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(vec![wait(Some("phone"), 15_000)]),
        report: CallReport::default(),
    });
    assert!(matches!(desk.woken().1, Wake::ChannelIdle { .. }));
}

#[test]
fn a_wait_for_a_channel_that_was_not_granted_tells_nothing_of_it() {
    let mut desk = draining(1);
    desk.activity("pager", Activity::Speaking);
    desk.ends("x");
    desk.decides(vec![wait(Some("pager"), 15_000)]);
    desk.activity("pager", Activity::Idle);
    assert!(desk.take(wakes).is_none());
    desk.timer();
    assert_eq!(desk.woken().1, Wake::Timer);
}

#[test]
fn the_runs_own_channel_is_busy_while_its_agent_is_at_work() {
    let mut desk = Desk::open(plan(interactive(), json!({ "result_delivery": "text" })));
    let terminal = ChannelId::from("terminal");
    desk.delegate(1);
    let call = desk.begins();
    assert_eq!(desk.room().activity_of(&terminal), Activity::Generating);
    desk.ends("x");
    desk.decides(vec![wait(Some("terminal"), 15_000)]);
    desk.stepped(call, says("Anything else?"));
    assert_eq!(
        desk.decides(vec![on("terminal", &["task-1"])]),
        Wake::ChannelIdle { channel: terminal.clone() }
    );
    assert_eq!(desk.room().activity_of(&terminal), Activity::Speaking);
    desk.spoken(None);
    assert_eq!(desk.room().activity_of(&terminal), Activity::Idle);
    desk.is_sound();
}

#[test]
fn a_closed_channel_fails_as_unavailable() {
    let muted = |setup: &mut Setup| {
        Arc::make_mut(&mut setup.channels).values_mut().for_each(|binding| binding.muted = true);
    };
    for decision in [speak(&["task-1"]), on("phone", &["task-1"])] {
        let mut desk = Desk::open_with(plan(json!({}), json!({})), muted, |_| {});
        desk.delegate(1);
        desk.step(finish());
        desk.ends("x");
        desk.decides(vec![decision]);
        let (_, wake) = desk.woken();
        let Wake::SendFailed { reason } = wake else { panic!("{wake:?}") };
        assert!(reason.starts_with("unavailable: ") && reason.contains("muted"), "{reason}");
        assert_eq!(desk.record("task-1").attempts, 1);
        assert!(desk.all(speeches).is_empty());
    }
    let mut desk = Desk::open_with(
        plan(json!({}), json!({})),
        |_| {},
        |opening| {
            opening.bindings =
                Some(BTreeMap::from([("phone".into(), Binding::of(ChannelKind::Voice))]));
        },
    );
    desk.delegate(1);
    desk.step(finish());
    desk.ends("x");
    desk.decides(vec![on("terminal", &["task-1"])]);
    assert!(
        matches!(desk.woken().1, Wake::SendFailed { reason } if reason.contains("no channel terminal"))
    );
}

#[test]
fn the_preferred_channel_is_an_open_voice() {
    let mut bindings = BTreeMap::<ChannelId, Binding>::from([
        ("a".into(), Binding::of(ChannelKind::Agent)),
        ("b".into(), Binding::of(ChannelKind::Text)),
        ("c".into(), Binding::of(ChannelKind::Web)),
        ("d".into(), Binding::of(ChannelKind::Voice)),
    ]);
    let best = |bindings: &BTreeMap<ChannelId, Binding>| {
        delivery::preferred_channel(bindings).map(ToString::to_string)
    };
    assert_eq!(best(&bindings).as_deref(), Some("d"));
    bindings.get_mut("d").expect("it is there").muted = true;
    assert_eq!(best(&bindings).as_deref(), Some("b"));
    bindings.get_mut("b").expect("it is there").access = ChannelAccess::WriteOnly;
    assert_eq!(best(&bindings).as_deref(), Some("c"));
    bindings.remove("c");
    assert_eq!(best(&bindings), None, "R-101: an agent's channel leads to no person");
}

#[test]
fn a_message_with_an_unknown_outcome_is_a_dead_letter_until_the_operator_delivers_it_again() {
    let mut desk = asking(json!({ "result_delivery": "text" }));
    desk.ends("one");
    desk.decides(vec![speak(&["task-1"])]);
    let (call, first) = desk.take(speeches).expect("it is sent");
    let failed_send =
        Event::Sent { call, failure: Some("unknown: it broke off".into()), unknown: true };
    desk.happened(failed_send);
    assert!(desk.take(wakes).is_none(), "no strategy repeats what people may have read");
    let record = desk.record("task-1");
    assert_eq!((record.state, record.attempts), (DeliveryState::DeadLetter, 1));
    assert_eq!(record.reason.as_deref(), Some("unknown: it broke off"));
    let redeliver = |desk: &mut Desk, id: &str| {
        let request = desk.asks(RoomRequest::Redeliver { task: id.into() });
        desk.reply(request).expect("a reply").map_err(|refusal| refusal.error)
    };
    assert_eq!(redeliver(&mut desk, "task-9"), Err(RefusalCode::UnknownTask));
    assert_eq!(redeliver(&mut desk, "task-1"), Ok(RequestReply::Done));
    assert_eq!(redeliver(&mut desk, "task-1"), Err(RefusalCode::UnknownTask), "it is on its way");
    desk.decides(vec![speak(&["task-1"])]);
    let (call, second) = desk.take(speeches).expect("it is sent");
    assert_eq!(first.key, second.key, "its receiver can recognize it");
    desk.happened(Event::Sent { call, failure: None, unknown: false });
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    assert_eq!(redeliver(&mut desk, "task-1"), Err(RefusalCode::UnknownTask));
    desk.is_sound();
}
