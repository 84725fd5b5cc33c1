//! Ids and pauses. The attempts themselves are played against a server in `tests/embed`.

use super::*;

#[test]
fn an_id_is_that_of_room_channel_and_key() {
    let message = |channel: &str, key: &str| OutgoingMessage {
        channel: channel.into(),
        text: "hello".to_owned(),
        interrupt: false,
        key: key.to_owned(),
        tasks: Vec::new(),
    };
    let id = |secret: u8, channel, key| {
        let secret = RoomSecret::new([secret; RoomSecret::LENGTH]);
        IdentifiedMessage::new(&secret, "room".into(), message(channel, key)).id
    };
    let first = id(1, "hook", "answer-0-hook");
    assert_eq!(first, id(1, "hook", "answer-0-hook"), "the same after a restart");
    assert!(first.starts_with("msg_") && first.len() == 36 && !first.contains('.'), "{first}");
    let others =
        [id(2, "hook", "answer-0-hook"), id(1, "other", "answer-0-hook"), id(1, "hook", "")];
    assert!(others.iter().all(|other| *other != first));
}

#[test]
fn pauses_grow_to_a_limit_and_no_two_are_alike() {
    let most = |attempt| pause_after(attempt, 0);
    assert_eq!([1, 2, 3, 9].map(most), [1, 2, 4, 30].map(Duration::from_secs));
    assert_eq!(pause_after(3, u32::MAX), Duration::from_secs(2));
}
