//! Results without a strategy: the host reports each once, to the agent or to people, and only when
//! the agent would not read it by itself.

use std::sync::Arc;

use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::{GatePoint, GateRule, Setup};
use conclave_core::types::action::Action;
use conclave_core::types::channel::Activity;
use conclave_core::types::delegation::{Delegation, Deliver};
use conclave_core::types::delivery::DeliveryState;
use serde_json::{Value, json};

use super::{Desk, delegates, finish, interactive, says, speeches, step, user};

/// Returns a room whose worker has no strategy, with the rule that today's configs have.
fn desk(task: Value, change: impl FnOnce(&mut Setup)) -> Desk {
    let mut plan = super::plan(task, json!({}));
    plan["tasks"]["slow"]["delivery_strategy"] = Value::Null;
    let reports = |setup: &mut Setup| {
        for task in setup.tasks.values_mut() {
            Arc::make_mut(task).background.host_reports = true;
        }
        change(setup);
    };
    Desk::open_with(plan, reports, |opening| opening.limits.turns = None)
}

fn unread(desk: &Desk) -> usize {
    desk.count_notices(|notice| matches!(notice, Notice::NotDelivered { .. }))
}

#[test]
fn an_agent_that_waits_for_its_user_takes_a_turn() {
    let mut desk = desk(interactive(), |_| {});
    desk.delegate(1);
    desk.step(says("Anything else?"));
    assert!(desk.take(user).is_some());
    desk.ends("it is blue");
    let (_, _, read) = desk.history().last().expect("it reads it").clone();
    assert!(read.contains("\"output\":\"it is blue\""), "{read}");
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    desk.step(says("By the way: it is blue."));
    assert_eq!(desk.take(user).expect("the user is asked").1, "By the way: it is blue.");
    assert_eq!((unread(&desk), desk.all(speeches).len()), (0, 0));
    desk.is_sound();
}

#[test]
fn an_agent_without_a_model_leaves_it_to_the_channel() {
    let mut desk = desk(interactive(), |setup| {
        Arc::make_mut(setup.plugins.get_mut("desk").expect("a plugin")).grants.model = None;
    });
    desk.delegate(1);
    desk.step(says("Anything else?"));
    desk.ends("it is blue");
    let speech = desk.spoken(None);
    assert_eq!((speech.channel.as_str(), speech.text.as_str()), ("terminal", "it is blue"));
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    assert!(desk.take(user).is_some(), "the question stands");
    let host = |notice: &Notice| matches!(notice, Notice::Delivered { strategy: None, .. });
    assert_eq!(desk.count_notices(host), 1);
    desk.is_sound();
}

#[test]
fn an_agent_at_work_reads_it_in_its_next_step() {
    let mut desk = desk(json!({}), |_| {});
    desk.delegate(1);
    desk.ends("it is blue");
    assert_eq!((unread(&desk), desk.all(speeches).len()), (0, 0));
    desk.delegate(1);
    assert_eq!(desk.state("task-1"), DeliveryState::Read);
    desk.step(finish());
    desk.ends("it is red");
    assert_eq!(desk.spoken(None).text, "it is red", "only what its agent has not read");
    assert_eq!(unread(&desk), 0);
    desk.is_sound();
}

#[test]
fn a_result_after_the_answer_is_posted_once() {
    let mut desk = desk(json!({}), |_| {});
    desk.delegate(2);
    desk.step(finish());
    desk.ends("one");
    desk.ends("two");
    let outgoing: Vec<_> = desk.all(speeches);
    assert_eq!(
        outgoing.iter().map(|(_, speech)| speech.text.as_str()).collect::<Vec<_>>(),
        ["one", "two"]
    );
    for (call, _) in outgoing {
        desk.happened(Event::Sent { call, failure: None, unknown: false });
    }
    assert!(desk.room().outcome().is_some() && desk.all(speeches).is_empty());
    desk.is_sound();
}

#[test]
fn a_user_who_speaks_is_not_interrupted() {
    let mut desk = desk(interactive(), |_| {});
    desk.delegate(1);
    desk.step(says("Anything else?"));
    assert!(desk.take(user).is_some());
    desk.activity("terminal", Activity::UserSpeaking);
    desk.ends("it is blue");
    assert!(desk.take(step).is_none());
    assert_eq!(desk.state("task-1"), DeliveryState::Inbox);
    desk.activity("terminal", Activity::Idle);
    assert!(desk.take(step).is_some());
    assert_eq!(desk.state("task-1"), DeliveryState::Delivered);
    desk.is_sound();
}

#[test]
fn what_could_not_be_reported_is_said_to_be_unread() {
    // The channel refuses it.
    let mut refused = desk(json!({}), |_| {});
    refused.delegate(1);
    refused.step(finish());
    refused.ends("it is blue");
    refused.spoken(Some("the line is dead"));
    assert_eq!(refused.undelivered_reasons(), ["the line is dead"]);
    assert_eq!(refused.state("task-1"), DeliveryState::Inbox);
    refused.is_sound();
    // The room has no such channel.
    let mut absent = desk(json!({}), |setup| {
        Arc::make_mut(&mut setup.channels).remove("terminal");
    });
    absent.delegate(1);
    absent.step(finish());
    absent.ends("it is blue");
    assert_eq!(absent.undelivered_reasons(), ["the room has no channel terminal"]);
    absent.is_sound();
    // The run ends before its agent has read it.
    let mut stopped = desk(json!({}), |_| {});
    stopped.delegate(1);
    stopped.ends("it is blue");
    stopped.happened(Event::Cancelled { reason: "enough".to_owned() });
    assert_eq!(stopped.undelivered_reasons().len(), 1);
    assert!(stopped.all(speeches).is_empty());
    stopped.is_sound();
}

#[test]
fn a_gate_on_deliveries_checks_it() {
    let mut desk = desk(json!({}), |setup| {
        setup.gates.push(GateRule {
            on: GatePoint::Deliver,
            plugin: "other".into(),
            deadline_ms: GateRule::DEADLINE_MS,
            fails_open: false,
            tools: Vec::new(),
        });
    });
    desk.delegate(1);
    desk.step(finish());
    desk.ends("it is blue");
    assert!(desk.all(speeches).is_empty(), "the gate has not answered");
    assert_eq!(desk.state("task-1"), DeliveryState::Delivering);
}

#[test]
fn the_inbox_is_still_a_choice_and_the_rule_of_older_rooms() {
    let never = || {
        Action::DelegateTask(Box::new(Delegation {
            worker: "slow".to_owned(),
            description: "dig".to_owned(),
            deliver: Deliver::Never,
            ..Delegation::default()
        }))
    };
    let older = |setup: &mut Setup| {
        let desk = setup.tasks.get_mut("desk").expect("a task");
        Arc::make_mut(desk).background.host_reports = false;
    };
    for (mut desk, delegation) in
        [(desk(interactive(), |_| {}), never()), (desk(interactive(), older), delegates())]
    {
        desk.step(delegation);
        desk.step(says("Anything else?"));
        assert!(desk.take(user).is_some());
        desk.ends("it is blue");
        assert!(desk.take(step).is_none() && desk.all(speeches).is_empty());
        assert_eq!(desk.state("task-1"), DeliveryState::Inbox);
        assert_eq!(unread(&desk), 1);
        desk.is_sound();
    }
}
