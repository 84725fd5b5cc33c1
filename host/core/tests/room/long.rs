//! Persistent rooms over a long time: their size depends on the size of their histories, not on the
//! number of past messages.

use std::sync::Arc;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::action::{Action, Turn};
use conclave_core::types::channel::{Binding, ChannelKind};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, ChannelId, TaskName};
use conclave_core::types::request::{
    Inbound, RefusalCode, RequestId, RequestReply as Answer, RoomRequest,
};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};

/// A persistent room that accepts inbound messages.
fn persistent_room(setup: Value) -> Room {
    let case: Case = serde_json::from_value(
        json!({ "name": "by hand", "setup": setup, "input": null, "expect": {} }),
    )
    .expect("a case");
    let mut setup = case.setup();
    setup.channels = Arc::new([(ChannelId::from("web"), Binding::of(ChannelKind::Web))].into());
    let mut opening = RunOpening { persistent: true, ..case.opening() };
    opening.limits.turns = Some(1_000_000);
    let mut room = Room::new();
    room.handle(Event::RoomOpened { setup: setup.into(), opening, secret: SECRET }, START);
    room
}

fn effects(room: &mut Room) -> Vec<Effect> {
    while room.poll_notice().is_some() {}
    std::iter::from_fn(|| room.poll_effect()).collect()
}

fn says(call: CallId, text: &str) -> Event {
    let turn = Turn {
        action: Action::Finish { outputs: json!(text) },
        thought: String::new(),
        wait_for_response: false,
        extra: Vec::new(),
    };
    Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() }
}

/// Returns the number of entries in this part of the room's state.
fn count(room: &Room, key: &str) -> usize {
    let state = serde_json::to_value(room).expect("a room is serialisable");
    let part = &state[key];
    part.as_object().map_or_else(|| part.as_array().map_or(0, Vec::len), serde_json::Map::len)
}

/// Sends `turns` messages to the room. Its agent answers each.
fn talk(room: &mut Room, turns: u64, mut look: impl FnMut(&Room, u64)) {
    for number in 0..turns {
        let inbound = Inbound::new("web", format!("question {number}"));
        let at = START.plus(number);
        let mut events = vec![Event::Requested {
            request: RequestId(number),
            what: RoomRequest::Inbound { inbound },
        }];
        while let Some(event) = events.pop() {
            room.handle(event, at);
            for effect in effects(room) {
                match effect {
                    Effect::StepAgent { call, .. } => {
                        events.push(says(call, &format!("answer {number}")))
                    }
                    Effect::QueryPlugin { call, .. } => {
                        let view = room.agent_view(call).expect("a condenser sees the history");
                        let forget = json!([{ "start": 1, "end": view.history.len() - 3 }]);
                        let advice = json!({ "advice": "condense", "condensation": { "forget": forget, "summary": null } });
                        let advice = serde_json::from_value(advice).expect("advice");
                        events.push(Event::PluginQueried {
                            call,
                            answer: Ok(advice),
                            report: CallReport::default(),
                        });
                    }
                    Effect::Reply { reply, .. } => {
                        assert!(matches!(reply, Ok(Answer::Accepted { .. })), "{reply:?}")
                    }
                    Effect::Send { call, .. } => {
                        events.push(Event::Sent { call, failure: None, unknown: false })
                    }
                    Effect::SetTimer { .. } | Effect::AbandonCall { .. } => {}
                    other => panic!("nobody asked for {other:?}"),
                }
            }
        }
        look(room, number);
    }
}

#[test]
fn links_of_a_held_room_are_as_many_as_its_histories_have_entries() {
    let over = 40;
    let setup = json!({
        "tasks": { "desk": { "condense": { "plugin": "short", "over": over } } },
        "plugins": { "desk": {}, "short": { "kinds": ["condenser"] } },
    });
    let mut room = persistent_room(setup);
    let (mut most, mut longest) = (0, 0);
    talk(&mut room, 5_000, |room, number| {
        if number % 50 == 0 {
            most = most.max(count(room, "links"));
            longest = longest.max(room.history(&TaskName::from("desk")).len());
        }
    });
    assert!(room.outcome().is_none(), "it is still open");
    assert!(longest <= over + 2, "the history was trimmed: {longest}");
    // 10 000 messages were posted.
    assert!(most <= 600, "{most} links for a history of at most {longest}");
    for key in [
        "frames",
        "calls",
        "timers",
        "model_calls",
        "runnable",
        "effects",
        "lost",
        "without_model",
        "filtered",
        "held",
    ] {
        assert!(count(&room, key) <= 2, "{key}: {}", count(&room, key));
    }
}

#[test]
fn messages_that_nobody_reads_are_refused_after_a_thousand() {
    let mut room = persistent_room(json!({}));
    let mut came = |number: u64| {
        let inbound = Inbound::new("web", format!("question {number}"));
        room.handle(
            Event::Requested { request: RequestId(number), what: RoomRequest::Inbound { inbound } },
            START,
        );
        effects(&mut room).into_iter().find_map(|effect| {
            if let Effect::Reply { reply, .. } = effect { Some(reply) } else { None }
        })
    };
    // The first is in progress; the others wait for it.
    assert!((0..=1_000).all(|number| matches!(came(number), Some(Ok(Answer::Accepted { .. })))));
    let refused = came(1_001).expect("it is answered").expect_err("it is too much");
    assert_eq!(refused.error, RefusalCode::Busy);
}

#[test]
fn messages_that_nobody_reads_have_a_limit_in_bytes_and_the_refused_one_is_reported() {
    let mut room = persistent_room(json!({}));
    let big = || "x".repeat(40 << 20);
    let mut happens = |event: Event| {
        room.handle(event, START);
        let notices: Vec<Notice> = std::iter::from_fn(|| room.poll_notice()).collect();
        (effects(&mut room), notices)
    };
    let request = |text: String| {
        let inbound = Inbound::new("web", text);
        Event::Requested { request: RequestId(1), what: RoomRequest::Inbound { inbound } }
    };
    let reply = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(reply.clone()),
            _ => None,
        })
    };
    // The first is in progress, and the second waits for it.
    for _ in 0..2 {
        let (effects, _) = happens(request(big()));
        assert!(matches!(reply(&effects), Some(Ok(Answer::Accepted { .. }))));
    }
    let (effects, notices) = happens(request(big()));
    let refused = reply(&effects).expect("it is answered").expect_err("it is too much");
    assert_eq!(refused.error, RefusalCode::Busy);
    assert!(refused.message.contains(&(64 << 20).to_string()), "{}", refused.message);
    let [Notice::InboundRefused { channel, error: RefusalCode::Busy, .. }] = &notices[..] else {
        panic!("it is reported")
    };
    assert_eq!(channel.as_str(), "web");
    let (_, notices) =
        happens(Event::UserMessageSent { task: None, text: big(), attachments: Vec::new() });
    let [Notice::UserMessageDropped { text, reason, .. }] = &notices[..] else {
        panic!("it is reported")
    };
    assert!(text.len() == 40 << 20 && reason.contains("bytes"), "{reason}");
    let (effects, _) = happens(request("a small one".to_owned()));
    assert!(matches!(reply(&effects), Some(Ok(Answer::Accepted { .. }))));
}
