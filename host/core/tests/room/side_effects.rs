//! Side effects of running plugins. A request leaves only after the room allows it, a result is
//! used only after it is recorded, and limits of a run count over the whole run.

use std::sync::Arc;

use conclave_core::permissions::fetch::UrlPattern;
use conclave_core::permissions::grants::{FetchGrant, FetchRule};
use conclave_core::permissions::manifest::CapabilityRequest;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::denial::Layer;
use conclave_core::types::ids::CallId;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use serde_json::json;

use crate::case::{Case, SECRET, START};

/// Returns a room whose agent is in its first step, call 0, and may send so many requests.
fn stepping(requests: u64) -> Room {
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "setup": {}, "expect": {} }))
            .expect("a case of the right form");
    let mut setup = case.setup();
    let rule = FetchRule {
        url: UrlPattern::parse("https://example.org/*").expect("a pattern"),
        methods: vec!["GET".to_owned()],
    };
    for plugin in setup.plugins.values_mut() {
        let plugin = Arc::make_mut(plugin);
        plugin.grants.fetch = Some(FetchGrant { requests, ..FetchGrant::new(vec![rule.clone()]) });
        plugin.facts.manifest.asks.insert("fetch".to_owned(), CapabilityRequest::default());
    }
    let mut room = Room::new();
    room.handle(
        Event::RoomOpened { setup: setup.into(), opening: case.opening(), secret: SECRET },
        START,
    );
    drop(effects(&mut room));
    room
}

fn effects(room: &mut Room) -> Vec<Effect> {
    std::iter::from_fn(|| room.poll_effect()).collect()
}

fn request() -> SideEffect {
    SideEffect::Fetch {
        method: "GET".to_owned(),
        url: "https://example.org/a".to_owned(),
        headers: Vec::new(),
        body: None,
        secrets: Vec::new(),
    }
}

fn ask(room: &mut Room, call: u64, ordinal: u32, side_effect: SideEffect) -> Result<(), String> {
    room.handle(Event::SideEffectAsked { call: CallId(call), ordinal, side_effect }, START);
    match effects(room).as_slice() {
        [Effect::AllowSideEffect { call: of, ordinal: number, leave }]
            if *of == CallId(call) && *number == ordinal =>
        {
            leave.clone().map_err(|denial| denial.detail)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_counted_over_the_run_and_the_operator_learns_which_grant_is_used_up() {
    let mut room = stepping(2);
    assert_eq!(
        [ask(&mut room, 0, 0, request()), ask(&mut room, 0, 1, request())],
        [Ok(()), Ok(())]
    );
    std::iter::from_fn(|| room.poll_notice()).for_each(drop);
    assert!(ask(&mut room, 0, 2, request()).is_err());
    let notices: Vec<Notice> = std::iter::from_fn(|| room.poll_notice()).collect();
    let [Notice::Denied { record, .. }] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!(record.layer, Layer::Runtime);
    assert!(
        record.reason.contains("the 2 requests that plugins.")
            && record.reason.contains(".grants.fetch.requests"),
        "{}",
        record.reason
    );
    assert_eq!(
        ask(&mut room, 0, 3, SideEffect::DeleteKey { key: "k".to_owned() }),
        Ok(()),
        "a key is no request"
    );
}

#[test]
fn a_call_that_nobody_waits_for_may_leave_nothing_behind() {
    let mut room = stepping(2);
    assert_eq!(ask(&mut room, 7, 0, request()), Err("the call is over".to_owned()));
}

#[test]
fn an_end_is_confirmed_once_it_is_kept_whoever_waits() {
    let mut room = stepping(2);
    ask(&mut room, 0, 0, request()).expect("it is granted");
    for call in [0, 7] {
        let answer = SideEffectAnswer::Done { length: 1 };
        room.handle(Event::SideEffectEnded { call: CallId(call), ordinal: 0, answer }, START);
        assert_eq!(
            effects(&mut room),
            [Effect::ConfirmSideEffect { call: CallId(call), ordinal: 0 }]
        );
    }
}
