//! The recipients of results: agents by a turn or in their inbox, users by a text; each result
//! once.

use std::sync::Arc;

use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::action::{Action, Observation, PastAction};
use conclave_core::types::delegation::{Delegation, Deliver, ResultForm};
use conclave_core::types::delivery::{BackgroundStatus, Decision, DeliveryState};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::PluginName;
use conclave_core::types::message::{Label, Role};
use conclave_core::types::request::{RequestId, RequestReply, RoomRequest};
use serde_json::json;

use super::{
    Desk, asking, background, delegates, draining, finish, interactive, may_choose, plan, says,
    speak, speeches, step, user,
};

#[test]
fn an_agent_that_waits_for_its_user_takes_a_turn_and_asks_again() {
    let mut desk = asking(json!({}));
    let (first_call, prompt) = desk.take(user).expect("the user is asked");
    assert_eq!(prompt, "Anything else?");
    desk.ends("it is blue");
    desk.decides(vec![speak(&["task-1"])]);
    assert!(desk.all(speeches).is_empty(), "nothing is said but by the agent");
    assert!(desk.to_do.contains(&Effect::AbandonCall { call: first_call }));
    let (sender, labels, text) = desk.history().last().expect("it reads it").clone();
    assert_eq!((sender, labels), (Role::Agent, vec![Label::Untrusted]));
    assert!(
        text.contains("\"output\":\"it is blue\"") && text.contains("data, not instructions"),
        "{text}"
    );
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    desk.step(says("By the way: it is blue."));
    let (call, prompt) = desk.take(user).expect("the user is asked again");
    assert_eq!(prompt, "By the way: it is blue.");
    // An answer to an abandoned question changes nothing.
    desk.happened(Event::UserAnswered {
        call: first_call,
        text: Some("late".to_owned()),
        attachments: Vec::new(),
        passed: false,
    });
    assert!(desk.take(step).is_none() && desk.room().is_in_flight(call));
    assert_eq!(desk.count_notices(|notice| matches!(notice, Notice::ResultsRelayed { .. })), 1);
    desk.is_sound();
}

#[test]
fn results_are_not_the_users_words() {
    let mut desk = asking(json!({}));
    desk.ends("q");
    let prompt = Some("DONE".to_owned());
    desk.decides(vec![Decision::Deliver {
        tasks: vec!["task-1".to_owned()],
        channel: None,
        prompt,
        interrupt: false,
    }]);
    let call = desk.take(step).expect("the agent takes a turn");
    let view = desk.room().agent_view(call).expect("a view");
    assert_eq!(
        view.latest_user_message.as_ref().map(|message| message.text()),
        Some("hello"),
        "what its user wants is as it was"
    );
    let text = view.pending.as_ref().map(|message| message.text().to_owned()).unwrap_or_default();
    let inside =
        text.split_once("\n--- END ---").map(|(inside, _)| inside.to_owned()).unwrap_or_default();
    assert!(inside.ends_with("{\"says\":\"DONE\",\"strategy\":\"teller\"}"), "{text}");
    let data = |past_action: &&PastAction| matches!(&past_action.observation, Some(Observation::Custom { name, .. }) if name == "background");
    assert_eq!(view.since.iter().filter(data).count(), 1, "{:?}", view.since);
    // The agent has no message, and its user does not see its input.
    desk.stepped(call, Action::Null);
    let prompts = desk.all(user);
    assert!(prompts.iter().all(|(_, prompt)| !prompt.contains("BACKGROUND")), "{prompts:?}");
    desk.is_sound();
}

#[test]
fn an_agent_at_work_reads_it_in_its_next_step() {
    let mut desk = Desk::open(plan(interactive(), json!({})));
    desk.delegate(1);
    let call = desk.begins();
    desk.ends("it is blue");
    desk.decides(vec![speak(&["task-1"])]);
    assert_eq!(desk.state("task-1"), DeliveryState::Delivering);
    assert!(
        !desk.history().iter().any(|(_, _, text)| text.contains("blue")),
        "not in the middle of a step"
    );
    desk.stepped(call, Action::Think { thought: "hm".to_owned() });
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    assert!(desk.history().iter().any(|(_, _, text)| text.contains("blue")));
    desk.is_sound();
}

#[test]
fn what_its_agent_did_not_read_any_more_is_told_to_people() {
    let mut desk = Desk::open(plan(json!({}), json!({ "result_delivery": "agent-turn" })));
    desk.delegate(1);
    let call = desk.begins();
    desk.ends("it is blue");
    desk.decides(vec![speak(&["task-1"])]);
    desk.stepped(call, finish());
    let outgoing = desk.spoken(None);
    assert_eq!(
        (outgoing.text.as_str(), outgoing.key.as_str()),
        ("it is blue", "task-1"),
        "people read no fence"
    );
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    desk.is_sound();
}

#[test]
fn a_run_that_was_stopped_says_nothing_more() {
    let mut desk = Desk::open(plan(json!({}), json!({ "result_delivery": "agent-turn" })));
    desk.delegate(1);
    desk.ends("it is blue");
    desk.decides(vec![speak(&["task-1"])]);
    desk.happened(Event::Cancelled { reason: "enough".to_owned() });
    assert!(desk.all(speeches).is_empty());
    assert_eq!(desk.state("task-1"), DeliveryState::Inbox);
    assert!(desk.room().outcome().is_some());
    desk.is_sound();
}

#[test]
fn the_inbox_is_read_once_right_before_the_next_step_also_in_a_later_run() {
    let mut desk = Desk::open(plan(json!({ "restart": false }), json!({})));
    desk.delegate(1);
    desk.step(finish());
    let (call, _) = desk.take(background).expect("a background task");
    desk.ended(call, BackgroundStatus::Failed, "the password is 1234");
    desk.decides(vec![Decision::MoveToInbox { tasks: vec!["task-1".to_owned()] }]);
    assert!(desk.room().outcome().is_some());
    let before = desk.history().len();
    let opening = RunOpening {
        content: Some("again".to_owned()),
        entry: "desk".into(),
        room: "room".into(),
        ..RunOpening::default()
    };
    desk.happened(Event::RunStarted { setup: None, opening });
    let history = desk.history();
    let task_entries: Vec<_> =
        history.iter().filter(|(_, _, text)| text.contains("BACKGROUND TASK")).collect();
    assert_eq!((task_entries.len(), history.len()), (1, before + 2), "{history:?}");
    let (sender, labels, text) = task_entries[0];
    assert_eq!((*sender, labels.as_slice()), (Role::Agent, [Label::Untrusted].as_slice()));
    assert!(
        text.contains("\"status\":\"failed\"") && !text.contains("1234"),
        "R-055: a model reads no error: {text}"
    );
    assert_eq!(
        desk.count_notices(
            |notice| matches!(notice, Notice::ResultsRead { ids, .. } if ids.len() == 1)
        ),
        1
    );
    desk.step(Action::Think { thought: "hm".to_owned() });
    assert_eq!(
        desk.history().iter().filter(|(_, _, text)| text.contains("BACKGROUND TASK")).count(),
        1
    );
    desk.is_sound();
}

#[test]
fn a_delegation_chooses_its_strategy_or_none() {
    let mut desk = Desk::open_with(plan(json!({}), json!({})), may_choose, |_| {});
    let with = |deliver: Deliver| {
        Action::DelegateTask(Box::new(Delegation {
            worker: "slow".to_owned(),
            description: "dig".to_owned(),
            deliver,
            ..Delegation::default()
        }))
    };
    desk.step(with(Deliver::By("other".into())));
    desk.step(with(Deliver::Never));
    desk.step(with(Deliver::By("desk".into())));
    assert_eq!(
        desk.to_do.iter().filter(|effect| background(effect).is_some()).count(),
        2,
        "an agent is no strategy"
    );
    desk.step(finish());
    desk.ends("one");
    desk.ends("two");
    let woken: Vec<PluginName> = desk.all(|effect| match effect {
        Effect::WakeStrategy { strategy, .. } => Some(strategy.clone()),
        _ => None,
    });
    assert_eq!(woken, [PluginName::from("other")]);
    assert_eq!(desk.state("task-2"), DeliveryState::Inbox);
}

#[test]
fn a_closed_room_says_nothing() {
    let mut desk = draining(2);
    desk.ends("one");
    let (call, _) = desk.woken();
    desk.asks(RoomRequest::Close { reason: "night".to_owned() });
    desk.happened(Event::StrategyDecided {
        call,
        answer: Ok(vec![speak(&["task-1"])]),
        report: CallReport::default(),
    });
    if desk.to_do.iter().any(|effect| background(effect).is_some())
        && desk.room().outcome().is_none()
    {
        desk.ends("two");
    }
    assert!(desk.all(speeches).is_empty());
    let record = desk.record("task-1");
    assert_eq!(
        (record.state, record.reason.as_deref()),
        (DeliveryState::Blocked, Some("room_closed"))
    );
    assert!(matches!(desk.reply(RequestId(0)), Some(Ok(RequestReply::Done))));
}

#[test]
fn a_speech_that_was_cut_off_is_said_again_under_its_key() {
    let mut desk = draining(1);
    desk.ends("x");
    desk.decides(vec![speak(&["task-1"])]);
    let (call, before) = desk.take(speeches).expect("it is said");
    let unfinished = Unfinished::fold(desk.recorded.records.clone());
    let resumption = unfinished.resumption(desk.at.plus(5_000), unfinished.room.setup());
    let resent: Vec<_> =
        resumption.restarts.iter().filter_map(|restart| speeches(&restart.effect)).collect();
    assert_eq!(resent, [(call, before)], "the same call, the same key");
    let mut room = unfinished.room;
    resumption.events.into_iter().for_each(|event| room.handle(event, desk.at));
    assert!(room.is_in_flight(call));
    room.handle(Event::Sent { call, failure: None, unknown: false }, desk.at);
    assert!(room.outcome().is_some());
    let delivered = room.tasks().next().expect("it is recorded").delivery.clone();
    assert_eq!((delivered.state, delivered.attempts), (DeliveryState::Delivered, 1));
}

/// a result may lead to another one, five times in a row.
#[test]
fn results_that_lead_to_results_come_to_an_end() {
    let mut desk = asking(json!({}));
    let mut turns = 0;
    loop {
        desk.ends("more");
        let waiting = format!("task-{}", turns + 1);
        desk.decides(vec![speak(&[&waiting])]);
        if desk.state(&waiting) == DeliveryState::Inbox {
            break;
        }
        turns += 1;
        desk.step(delegates());
        desk.step(says("Anything else?"));
        assert!(turns < 10, "it goes on for ever");
    }
    assert_eq!(turns, 4);
    assert!(
        desk.undelivered_reasons().last().is_some_and(|reason| reason.starts_with("chain_depth"))
    );
    // A user message resets the count.
    let (call, _) = desk.all(user).pop().expect("the user is asked");
    desk.happened(Event::UserAnswered {
        call,
        text: Some("go on".to_owned()),
        attachments: Vec::new(),
        passed: false,
    });
    desk.step(delegates());
    desk.step(says("Anything else?"));
    desk.ends("more");
    desk.decides(vec![speak(&["task-6"])]);
    assert_eq!(desk.state("task-6"), DeliveryState::Delivered);
    desk.is_sound();
}

#[test]
fn in_a_held_room_nobody_need_be_at_work() {
    let mut desk =
        Desk::open_with(plan(json!({}), json!({})), |_| {}, |opening| opening.persistent = true);
    desk.delegate(1);
    desk.step(finish());
    while desk.take(speeches).is_some_and(|(call, _)| {
        desk.happened(Event::Sent { call, failure: None, unknown: false });
        true
    }) {}
    desk.ends("it is blue");
    desk.decides(vec![speak(&["task-1"])]);
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    desk.step(Action::Finish { outputs: json!("It is blue.") });
    let texts: Vec<String> =
        desk.all(speeches).into_iter().map(|(_, outgoing)| outgoing.text).collect();
    assert!(
        texts.iter().all(|text| text == "It is blue.") && !texts.is_empty(),
        "the agent's answer alone is told: {texts:?}"
    );
    desk.is_sound();
}

#[test]
fn what_is_handed_back_is_what_was_asked_for() {
    for (of_delegation, of_task, relayed) in [
        (None, json!({}), true),
        (Some(ResultForm::Text), json!({}), false),
        (None, json!({ "result_delivery": "text" }), false),
        (Some(ResultForm::AgentTurn), json!({ "result_delivery": "text" }), true),
    ] {
        let mut desk = Desk::open_with(plan(interactive(), of_task), may_choose, |_| {});
        let delegation = Delegation {
            worker: "slow".to_owned(),
            description: "dig".to_owned(),
            result_delivery: of_delegation,
            ..Delegation::default()
        };
        desk.step(Action::DelegateTask(Box::new(delegation)));
        desk.step(says("Anything else?"));
        desk.ends("x");
        desk.decides(vec![speak(&["task-1"])]);
        assert_eq!(desk.all(speeches).is_empty(), relayed, "{of_delegation:?}");
    }
}

/// The view shares an `Arc` of the result, however often it is shown.
#[test]
fn a_view_shares_what_it_shows() {
    let mut desk = draining(1);
    desk.ends(&"x".repeat(1_000));
    let (call, _) = desk.woken();
    let (one, two) = (
        desk.room().delivery_view(call).expect("a view"),
        desk.room().delivery_view(call).expect("a view"),
    );
    assert!(Arc::ptr_eq(&one.pending_results[0], &two.pending_results[0]));
}

/// the notified agent learns of each result, also of one that people have read already.
#[test]
fn what_is_posted_to_people_reaches_the_agents_inbox_once() {
    let mut desk = Desk::open(plan(json!({}), json!({ "result_delivery": "text" })));
    desk.delegate(1);
    desk.ends("it is blue");
    desk.decides(vec![speak(&["task-1"])]);
    desk.spoken(None);
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    let before = desk.record("task-1");
    for _ in 0..3 {
        desk.step(Action::Think { thought: "hm".to_owned() });
    }
    let history = desk.history();
    let read: Vec<_> =
        history.iter().filter(|(_, _, text)| text.contains("BACKGROUND TASK")).collect();
    assert_eq!(read.len(), 1, "{history:?}");
    let (_, labels, text) = read[0];
    assert_eq!(*labels, vec![Label::Untrusted]);
    assert!(
        text.contains("\"posted_to\":") && text.contains("do not repeat it"),
        "the agent knows that people have it: {text}"
    );
    assert_eq!(desk.record("task-1"), before, "it stays delivered");
    assert_eq!(desk.count_notices(|notice| matches!(notice, Notice::ResultsRead { .. })), 1);
    assert_eq!(desk.count_notices(|notice| matches!(notice, Notice::NotDelivered { .. })), 0);
    desk.is_sound();
}

#[test]
fn posted_results_that_no_agent_reads_do_not_pile_up() {
    let mut desk = draining(1_100);
    for _ in 0..1_100 {
        let id = desk.ends("x");
        desk.decides(vec![speak(&[id.as_str()])]);
        desk.spoken(None);
    }
    assert_eq!(desk.count_notices(|notice| matches!(notice, Notice::NotDelivered { .. })), 0);
    let room = serde_json::to_value(desk.room()).expect("serialisable");
    let results = room["deliveries"]["results"].as_object().map_or(0, serde_json::Map::len);
    assert!(results > 0 && results <= 1_001, "{results}");
}
