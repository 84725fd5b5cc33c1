//! Announcements of the program around the host.

use std::sync::Arc;

use conclave_core::protocol::event::Event;
use conclave_core::setup::Setup;
use conclave_core::types::channel::{Binding, ChannelAccess, ChannelKind};
use conclave_core::types::delivery::DeliveryState;
use conclave_core::types::message::Role;
use conclave_core::types::request::{
    Announcement, Refusal, RefusalCode, RequestId, RequestReply, RoomRequest,
};
use serde_json::json;

use super::{Desk, asking, interactive, plan, says, speeches, user};

fn announce(desk: &mut Desk, announcement: Announcement) -> RequestId {
    desk.asks(RoomRequest::Deliver { announcement })
}

fn announcement(content: &str) -> Announcement {
    Announcement { content: content.to_owned(), ..Announcement::default() }
}

#[test]
fn an_announcement_is_said_on_the_best_channel_and_answered_when_it_was_heard() {
    let mut desk = Desk::open(plan(interactive(), json!({})));
    let keyed = Announcement { key: Some("k".to_owned()), ..announcement("the shop closes") };
    let first = announce(&mut desk, keyed.clone());
    let meanwhile = announce(&mut desk, keyed.clone());
    assert!(desk.reply(first).is_none() && desk.reply(meanwhile).is_none());
    let outgoing = desk.spoken(None);
    assert_eq!(
        (outgoing.channel.as_str(), outgoing.text.as_str(), outgoing.key.as_str()),
        ("phone", "the shop closes", "k")
    );
    let Some(Ok(RequestReply::Delivery { record, duplicate: false })) = desk.reply(first) else {
        panic!("it is answered")
    };
    assert_eq!((record.state, record.channel), (DeliveryState::Delivered, Some("phone".into())));
    assert!(matches!(
        desk.reply(meanwhile),
        Some(Ok(RequestReply::Delivery { duplicate: true, .. }))
    ));
    let late = announce(&mut desk, keyed);
    assert!(matches!(desk.reply(late), Some(Ok(RequestReply::Delivery { duplicate: true, .. }))));
    assert!(desk.all(speeches).is_empty(), "once");
    desk.is_sound();
}

#[test]
fn an_announcement_that_failed_may_be_made_again() {
    let mut desk = Desk::open(plan(interactive(), json!({})));
    let keyed = Announcement { key: Some("k".to_owned()), ..announcement("hear, hear") };
    let first = announce(&mut desk, keyed.clone());
    desk.spoken(Some("busy"));
    assert!(matches!(desk.reply(first), Some(Err(Refusal { error: RefusalCode::Busy, .. }))));
    let second = announce(&mut desk, keyed);
    desk.spoken(None);
    assert!(matches!(
        desk.reply(second),
        Some(Ok(RequestReply::Delivery { duplicate: false, .. }))
    ));
}

#[test]
fn an_announcement_is_refused_with_a_word_and_what_would_be_right() {
    let change = |setup: &mut Setup| {
        let channels = Arc::make_mut(&mut setup.channels);
        channels.insert("muted".into(), Binding { muted: true, ..Binding::of(ChannelKind::Voice) });
        channels.insert(
            "deaf".into(),
            Binding { access: ChannelAccess::WriteOnly, ..Binding::of(ChannelKind::Text) },
        );
        channels.insert("robot".into(), Binding::of(ChannelKind::Agent));
    };
    let to = |channel: &str| Announcement { channel: Some(channel.into()), ..announcement("x") };
    for (announcement, code) in [
        (to("nowhere"), RefusalCode::UnknownChannel),
        (to("muted"), RefusalCode::NoAccess),
        (to("deaf"), RefusalCode::NoAccess),
        (announcement("  "), RefusalCode::BadArguments),
        (Announcement { chain_depth: 5, ..announcement("x") }, RefusalCode::ChainDepth),
        (
            Announcement { addressed_to: Some("nobody".into()), ..announcement("x") },
            RefusalCode::UnknownAgent,
        ),
    ] {
        let mut desk = Desk::open_with(plan(interactive(), json!({})), change, |_| {});
        let request = announce(&mut desk, announcement);
        let Some(Err(refusal)) = desk.reply(request) else { panic!("{code:?}") };
        assert_eq!(refusal.error, code);
        assert!(desk.all(speeches).is_empty());
    }
    // R-117: an agent's channel is replaced by one of a user.
    let mut desk = Desk::open_with(plan(interactive(), json!({})), change, |_| {});
    announce(&mut desk, to("robot"));
    assert_eq!(desk.spoken(None).channel.as_str(), "phone");
    desk.asks(RoomRequest::Close { reason: "night".to_owned() });
    let request = announce(&mut desk, announcement("x"));
    assert!(matches!(
        desk.reply(request),
        Some(Err(Refusal { error: RefusalCode::RoomClosed, .. }))
    ));
}

#[test]
fn an_announcement_to_a_task_is_a_turn_of_its_agent() {
    let mut desk = asking(json!({}));
    let request = announce(
        &mut desk,
        Announcement { addressed_to: Some("desk".into()), ..announcement("the shop closes") },
    );
    assert!(desk.all(speeches).is_empty());
    let (sender, _, text) = desk.history().last().expect("it reads it").clone();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        (sender, lines[0], lines[2], lines[3]),
        (Role::Agent, "--- ANNOUNCEMENT ---", r#"{"text":"the shop closes"}"#, "--- END ---")
    );
    assert!(matches!(desk.reply(request), Some(Ok(RequestReply::Delivery { .. }))));
    desk.step(says("We close."));
    assert_eq!(desk.take(user).map(|(_, prompt)| prompt).as_deref(), Some("We close."));
    desk.is_sound();
}

#[test]
fn nobody_waits_for_an_announcement_when_the_run_is_over() {
    let mut desk = Desk::open(plan(interactive(), json!({})));
    let request = announce(&mut desk, announcement("x"));
    desk.happened(Event::Cancelled { reason: "enough".to_owned() });
    assert!(matches!(
        desk.reply(request),
        Some(Err(Refusal { error: RefusalCode::RoomClosed, .. }))
    ));
}
