use super::super::fixture::Parts;
use super::announcing::MAX_KEYS;
use super::*;
use crate::protocol::effect::Effect;
use crate::room::RoomPhase;
use crate::room::state::gated::GatedMessage;
use crate::types::channel::{Activity, ChannelKind};
use crate::types::delegation::CHAIN_MAX;
use crate::types::delivery::OutgoingMessage;
use crate::types::outcome::{Outcome, Status};
use crate::types::request::{Announcement, KEY_MAX, RequestReply};

fn result(number: u64, strategy: Option<&str>) -> Undelivered {
    let ended = EndedTask {
        id: format!("task-{number}").into(),
        worker: "digest".into(),
        ..EndedTask::interrupted("it was interrupted".to_owned())
    };
    Undelivered {
        ended,
        notify: "desk".into(),
        strategy: strategy.map(PluginName::from),
        host_reports: false,
        result_delivery: None,
        chain_depth: 0,
    }
}

fn deliver(parts: &mut Parts, number: u64, strategy: Option<&str>) {
    parts.view().result_delivery().deliver_result(result(number, strategy));
}

/// Returns the numbers of the results in the inbox, in the strategies' queues, and in all.
fn indexes(deliveries: &Deliveries) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    (
        deliveries.inbox.values().flatten().copied().collect(),
        deliveries.waiting.values().flatten().copied().collect(),
        deliveries.results.keys().copied().collect(),
    )
}

#[test]
fn a_result_without_a_strategy_waits_for_its_agent_and_is_queued_once() {
    let mut parts = Parts::new("");
    deliver(&mut parts, 1, None);
    deliver(&mut parts, 1, Some("worker"));
    assert_eq!(indexes(&parts.deliveries), (vec![0], vec![], vec![0]));
    assert!(matches!(parts.cx.take_notices().as_slice(), [Notice::NotDelivered { .. }]));
}

#[test]
fn a_result_is_in_one_index_at_a_time() {
    use DeliveryState as State;
    for (state, expected) in [
        (State::Waiting, (vec![], vec![0], vec![0])),
        (State::Delivering, (vec![], vec![], vec![0])),
        (State::Inbox, (vec![0], vec![], vec![0])),
        (State::DeadLetter, (vec![0], vec![], vec![0])),
        (State::Delivered, (vec![], vec![], vec![])),
        (State::Read, (vec![], vec![], vec![])),
        (State::Blocked, (vec![], vec![], vec![])),
    ] {
        for before in [State::Waiting, State::Inbox, State::Delivering] {
            let mut parts = Parts::new("");
            deliver(&mut parts, 1, Some("worker"));
            let id = BackgroundId::from("task-1");
            parts.deliveries.put(&id, before);
            assert!(parts.deliveries.put(&id, state).is_some());
            assert_eq!(indexes(&parts.deliveries), expected, "{before:?} to {state:?}");
            assert_eq!(parts.deliveries.entry(&id).is_some(), !expected.2.is_empty());
        }
    }
    assert!(Deliveries::default().put(&"task-1".into(), State::Waiting).is_none());
}

#[test]
fn a_full_inbox_drops_its_oldest_result_and_reports_it() {
    let mut parts = Parts::new("");
    let most = QUEUE_MAX as u64;
    (0..most).for_each(|number| deliver(&mut parts, number, None));
    assert_eq!(indexes(&parts.deliveries).0.len(), QUEUE_MAX);
    parts.cx.notices.clear();
    deliver(&mut parts, most, None);
    let (inbox, _, all) = indexes(&parts.deliveries);
    assert_eq!((inbox.len(), inbox.first()), (QUEUE_MAX, Some(&1)));
    assert_eq!(inbox, all);
    let reported = parts.cx.take_notices().into_iter().filter_map(|notice| match notice {
        Notice::NotDelivered { id, .. } => Some(id.to_string()),
        _ => None,
    });
    // The new one waits for its agent, and makes the oldest one leave.
    assert_eq!(reported.collect::<Vec<_>>(), [format!("task-{most}"), "task-0".to_owned()]);
}

#[test]
fn an_inbox_has_a_limit_in_bytes_and_its_newest_result_stays() {
    let mut parts = Parts::new("");
    let mut big = |number: u64, bytes: usize| {
        let mut result = result(number, None);
        result.ended.output = Some("x".repeat(bytes));
        parts.view().result_delivery().deliver_result(result);
        parts.cx.notices.clear();
        indexes(&parts.deliveries).0
    };
    assert_eq!(big(0, QUEUE_BYTES / 2), [0]);
    assert_eq!(big(1, QUEUE_BYTES / 4), [0, 1]);
    assert_eq!(big(2, QUEUE_BYTES / 4), [1, 2], "the texts around the outputs count too");
    assert_eq!(big(3, 2 * QUEUE_BYTES), [3]);
}

#[test]
fn results_for_a_removed_task_are_blocked_and_reported() {
    let mut parts = Parts::new("");
    deliver(&mut parts, 1, None);
    let of_digest = Undelivered { notify: "digest".into(), ..result(2, None) };
    parts.view().result_delivery().deliver_result(of_digest);
    parts.cx.notices.clear();
    parts.deliveries.block_for_removed_tasks(&mut parts.cx, &mut parts.background);
    assert_eq!(indexes(&parts.deliveries).0, [0, 1], "the setup has both tasks");
    parts.cx.setup_mut().tasks.remove("digest");
    parts.deliveries.block_for_removed_tasks(&mut parts.cx, &mut parts.background);
    assert_eq!(indexes(&parts.deliveries), (vec![0], vec![], vec![0]));
    let [Notice::NotDelivered { id, reason, .. }] = &parts.cx.take_notices()[..] else {
        panic!("one result is reported")
    };
    assert!(id.as_str() == "task-2" && reason.contains("no task digest"), "{reason}");
}

/// Returns a message for a turn of the agent, about these results or at this request.
fn outgoing(request: Option<u64>, tasks: &[&str]) -> GatedMessage {
    GatedMessage {
        outgoing: OutgoingMessage {
            channel: "terminal".into(),
            text: "Hello".to_owned(),
            interrupt: false,
            key: String::new(),
            tasks: tasks.iter().map(|id| BackgroundId::from(*id)).collect(),
        },
        strategy: request.is_none().then(|| "worker".into()),
        request: request.map(RequestId),
        relay: Some("desk".into()),
        chain_depth: 0,
        otherwise: None,
    }
}

#[test]
fn when_too_many_speeches_wait_for_an_agent_results_go_to_its_inbox_and_clients_try_again() {
    let mut room = Announcements::new();
    deliver(&mut room.0, 1, Some("worker"));
    room.0.cx.take_effects();
    let relays = |room: &Announcements| room.0.deliveries.relays[&TaskName::from("desk")].len();
    for _ in 0..QUEUE_MAX {
        room.0.view().result_delivery().delivery_passed(outgoing(None, &[]));
    }
    assert_eq!(relays(&room), QUEUE_MAX);
    room.0.cx.notices.clear();
    room.0.view().result_delivery().delivery_passed(outgoing(None, &["task-1"]));
    assert_eq!(indexes(&room.0.deliveries).0, [0], "it waits in the inbox");
    assert!(matches!(&room.0.cx.take_notices()[..], [Notice::NotDelivered { reason, .. }]
        if reason.contains(&QUEUE_MAX.to_string())));
    room.0.deliveries.waiting_requests.insert(RequestId(5));
    room.0.view().result_delivery().delivery_passed(outgoing(Some(5), &[]));
    assert_eq!(room.replies(), [(5, Err(RefusalCode::Busy))]);
    assert_eq!(relays(&room), QUEUE_MAX);
}

#[test]
fn too_many_open_announcements_are_refused_until_some_have_ended() {
    let mut room = Announcements::new();
    let first = room.say(0, "first").expect("it is said");
    for number in 1..QUEUE_MAX as u64 {
        assert!(room.announce(number, hello()).is_some());
    }
    let busy = Err(RefusalCode::Busy);
    assert_eq!((room.announce(2_000, hello()), room.replies()), (None, vec![(2_000, busy)]));
    assert_eq!((room.say(2_001, "first"), room.replies()), (None, vec![(2_001, busy)]));
    room.spoken(first, None);
    assert_eq!(room.say(2_002, "first"), None);
    assert_eq!(room.replies(), [(2_002, Ok(true))], "the outcome of an ended one is known");
    assert!(room.announce(2_003, hello()).is_some());
}

#[test]
fn speeches_that_wait_for_an_agent_have_a_limit_in_bytes_and_one_may_have_any_size() {
    let mut room = Announcements::new();
    deliver(&mut room.0, 1, Some("worker"));
    room.0.cx.take_effects();
    let big = |request: Option<u64>, tasks: &[&str]| {
        let mut gated = outgoing(request, tasks);
        gated.outgoing.text = "x".repeat(QUEUE_BYTES);
        GatedMessage { otherwise: Some("y".to_owned()), ..gated }
    };
    let relays = |room: &Announcements| room.0.deliveries.relays[&TaskName::from("desk")].len();
    room.0.view().result_delivery().delivery_passed(big(None, &[]));
    assert_eq!(relays(&room), 1);
    room.0.cx.notices.clear();
    room.0.view().result_delivery().delivery_passed(outgoing(None, &["task-1"]));
    assert_eq!(indexes(&room.0.deliveries).0, [0], "it waits in the inbox");
    let [Notice::NotDelivered { id, reason, .. }] = &room.0.cx.take_notices()[..] else {
        panic!("the result is reported")
    };
    assert!(id.as_str() == "task-1" && reason.starts_with("agent_busy: "), "{reason}");
    assert!(reason.contains(&QUEUE_BYTES.to_string()), "{reason}");
    room.0.deliveries.waiting_requests.insert(RequestId(5));
    room.0.view().result_delivery().delivery_passed(outgoing(Some(5), &[]));
    assert_eq!(room.replies(), [(5, Err(RefusalCode::Busy))]);
    assert_eq!(relays(&room), 1);
}

#[test]
fn open_announcements_have_a_limit_in_bytes_wherever_they_wait() {
    let big = || Announcement { content: "x".repeat(QUEUE_BYTES), ..Announcement::default() };
    let gated: &str = "[[gates]]\non = \"deliver\"\nplugin = \"worker\"\n";
    for (config, hold) in [("", false), (gated, false), ("", true)] {
        let mut room = Announcements::new();
        room.0.cx = super::super::fixture::context(config);
        room.0.cx.opening.persistent = hold;
        let addressed_to = hold.then(|| TaskName::from("desk"));
        let call = room.announce(1, Announcement { addressed_to, ..big() });
        assert_eq!(call.is_some(), config.is_empty() && !hold);
        assert_eq!(room.0.deliveries.relays.len(), usize::from(hold));
        room.0.cx.effects.clear();
        assert_eq!(room.announce(2, hello()), None, "{config}");
        let replies = room.0.cx.take_replies();
        let [(2, Err(Refusal { error: RefusalCode::Busy, message, .. }))] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert!(message.contains(&QUEUE_BYTES.to_string()), "{message}");
        let Some(call) = call else { continue };
        room.spoken(call, None);
        assert!(room.announce(3, hello()).is_some(), "the first has ended");
    }
}

#[test]
fn announcements_without_a_reply_end_one_by_one() {
    let mut room = Announcements::new();
    let RequestId(none) = RequestId::NO_REPLY;
    let calls = ["a", "b"].map(|key| room.say(none, key).expect("it is said"));
    for call in calls {
        room.spoken(call, None);
    }
    for key in ["a", "b"] {
        assert_eq!(room.say(3, key), None);
        assert_eq!(room.replies().pop(), Some((3, Ok(true))), "{key}");
    }
}

#[test]
fn at_the_end_of_a_run_open_results_wait_for_the_agent_unless_the_room_was_closed() {
    for (closed, expected) in [(None, vec![0, 1]), (Some("closed"), vec![])] {
        let mut parts = Parts::new("");
        deliver(&mut parts, 1, Some("worker"));
        deliver(&mut parts, 2, Some("worker"));
        parts.deliveries.put(&"task-2".into(), DeliveryState::Delivering);
        parts.channels.closed = closed.map(str::to_owned);
        parts.view().result_delivery().report_undelivered();
        assert_eq!(indexes(&parts.deliveries), (expected.clone(), vec![], expected));
    }
}

#[test]
fn a_closed_room_takes_no_result_into_its_queue() {
    let mut parts = Parts::new("");
    parts.channels.closed = Some("closed".to_owned());
    deliver(&mut parts, 1, Some("worker"));
    assert_eq!(indexes(&parts.deliveries), (vec![], vec![], vec![]));
    assert_eq!(parts.cx.take_effects(), [], "its strategy is not woken");
}

#[test]
fn data_for_an_agent_are_external_text_that_answers_nothing() {
    let mut parts = Parts::new("");
    let id = parts.begin("desk", None);
    let text = "three results".to_owned();
    let message = parts.view().dialogue().read_data(id, text, &["task-1".into()]).unwrap();
    assert!(is_data(&message) && message.parent.is_none());
    assert_eq!(parts.history_of("desk"), [message.seq]);
    let frame = parts.frames.get(&id).unwrap();
    let read = frame.past_actions.iter().next().unwrap();
    assert!(read.action.is_none() && read.observation.is_some());
}

/// A room with a terminal, in which clients announce something.
struct Announcements(Parts);

impl Announcements {
    fn new() -> Self {
        let mut parts = Parts::new("");
        Arc::make_mut(&mut parts.channels.bindings).insert("terminal".into(), Binding::default());
        Self(parts)
    }

    /// Returns the call that speaks; `None` if nothing new is said.
    fn announce(&mut self, request: u64, announcement: Announcement) -> Option<CallId> {
        self.0.view().result_delivery().announce(RequestId(request), announcement);
        let call = |effect: &Effect| match effect {
            Effect::Send { call, .. } => Some(*call),
            _ => None,
        };
        let place = self.0.cx.effects.iter().position(|effect| call(effect).is_some())?;
        call(&self.0.cx.effects.remove(place)?)
    }

    fn say(&mut self, request: u64, key: &str) -> Option<CallId> {
        self.announce(request, Announcement { key: Some(key.to_owned()), ..hello() })
    }

    /// Ends a message, and returns the replies: the request, and whether it was a duplicate.
    fn spoken(
        &mut self,
        call: CallId,
        failure: Option<&str>,
    ) -> Vec<(u64, Result<bool, RefusalCode>)> {
        self.0.view().result_delivery().spoken(call, failure.map(str::to_owned), false);
        self.replies()
    }

    fn replies(&mut self) -> Vec<(u64, Result<bool, RefusalCode>)> {
        let outcome = |(request, reply)| match reply {
            Ok(RequestReply::Delivery { duplicate, .. }) => (request, Ok(duplicate)),
            Err(Refusal { error, .. }) => (request, Err(error)),
            Ok(reply) => panic!("{reply:?}"),
        };
        self.0.cx.take_replies().into_iter().map(outcome).collect()
    }
}

fn hello() -> Announcement {
    Announcement { content: "Hello".to_owned(), ..Announcement::default() }
}

#[test]
fn an_announcement_with_a_known_key_gets_the_outcome_of_the_first() {
    let mut room = Announcements::new();
    let call = room.say(1, "a").expect("it is said");
    assert_eq!(room.say(2, "a"), None);
    assert_eq!(room.replies(), []);
    assert_eq!(room.spoken(call, None), [(1, Ok(false)), (2, Ok(true))]);
    assert_eq!(room.say(3, "a"), None);
    assert_eq!(room.replies(), [(3, Ok(true))]);
    assert_eq!(room.spoken(call, None), [], "the call is over");
}

#[test]
fn an_announcement_that_failed_may_be_tried_again_under_its_key() {
    let mut room = Announcements::new();
    let call = room.say(1, "a").expect("it is said");
    room.say(2, "a");
    let busy = Err(RefusalCode::Busy);
    assert_eq!(room.spoken(call, Some("down")), [(1, busy), (2, busy)]);
    let call = room.say(3, "a").expect("it is said again");
    assert_eq!(room.spoken(call, None), [(3, Ok(false))]);
}

#[test]
fn open_announcements_are_refused_at_the_end_of_a_run_and_their_keys_are_free() {
    let mut room = Announcements::new();
    let ended = room.say(1, "ended").expect("it is said");
    room.spoken(ended, None);
    room.say(2, "open");
    room.say(3, "open");
    room.0.deliveries.refuse_announcements(&mut room.0.cx);
    let closed = Err(RefusalCode::RoomClosed);
    assert_eq!(room.replies(), [(2, closed), (3, closed)]);
    assert!(room.say(4, "open").is_some());
    assert_eq!((room.say(5, "ended"), room.replies()), (None, vec![(5, Ok(true))]));
}

#[test]
fn of_too_many_keys_the_oldest_that_has_ended_is_forgotten() {
    let mut room = Announcements::new();
    room.say(0, "open");
    for number in 1..=MAX_KEYS as u64 {
        let call = room.say(number, &format!("key-{number}")).expect("it is said");
        room.spoken(call, None);
    }
    assert_eq!(room.0.deliveries.announced.len(), MAX_KEYS);
    assert_eq!(room.say(5_000, "open"), None, "it is still in progress");
    assert!(room.say(5_001, "key-1").is_some());
    assert_eq!(room.say(5_002, "key-3"), None);
}

#[test]
fn an_announcement_is_checked_before_anything_is_said() {
    let code = |change: &dyn Fn(&mut Announcements, &mut Announcement)| {
        let (mut room, mut announcement) = (Announcements::new(), hello());
        let muted = Binding { muted: true, ..Binding::default() };
        let bindings = Arc::make_mut(&mut room.0.channels.bindings);
        bindings.insert("muted".into(), muted);
        bindings.insert("agent".into(), Binding::of(ChannelKind::Agent));
        change(&mut room, &mut announcement);
        match room.announce(1, announcement) {
            Some(_) => None,
            None => Some(room.replies()[0].1.expect_err("it is refused")),
        }
    };
    let on = |channel: &'static str| {
        move |_: &mut Announcements, it: &mut Announcement| it.channel = Some(channel.into())
    };
    assert_eq!(code(&|_, _| ()), None);
    assert_eq!(code(&|_, it| it.content = " ".to_owned()), Some(RefusalCode::BadArguments));
    let key = |bytes: usize| {
        move |_: &mut Announcements, it: &mut Announcement| it.key = Some("k".repeat(bytes))
    };
    assert_eq!(code(&key(0)), Some(RefusalCode::BadArguments));
    assert_eq!(code(&key(KEY_MAX)), None);
    assert_eq!(code(&key(KEY_MAX + 1)), Some(RefusalCode::BadArguments));
    assert_eq!(code(&|_, it| it.chain_depth = CHAIN_MAX - 1), None);
    assert_eq!(code(&|_, it| it.chain_depth = CHAIN_MAX), Some(RefusalCode::ChainDepth));
    let stranger = Some("stranger".into());
    let addressed = |_: &mut Announcements, it: &mut Announcement| {
        it.addressed_to.clone_from(&stranger);
    };
    assert_eq!(code(&addressed), Some(RefusalCode::UnknownAgent));
    assert_eq!(code(&on("stranger")), Some(RefusalCode::UnknownChannel));
    assert_eq!(code(&on("muted")), Some(RefusalCode::NoAccess));
    assert_eq!(code(&on("agent")), None, "a channel of people is taken instead");
    let closed = |room: &mut Announcements, _: &mut Announcement| {
        room.0.channels.closed = Some("closed".to_owned());
    };
    assert_eq!(code(&closed), Some(RefusalCode::RoomClosed));
}

#[test]
fn a_channel_is_as_active_as_its_client_says_or_else_as_the_room_knows() {
    let mut room = Announcements::new();
    let activity = |parts: &Parts, channel: &str| {
        let Parts { cx, frames, channels, deliveries, .. } = parts;
        deliveries.activity_of(cx, frames, channels, &channel.into())
    };
    room.0.begin("desk", None);
    assert_eq!(activity(&room.0, "terminal"), Activity::Generating);
    assert_eq!(activity(&room.0, "phone"), Activity::Idle, "nobody works for it");
    let call = room.say(1, "a").expect("it is said");
    assert_eq!(activity(&room.0, "terminal"), Activity::Speaking);
    room.0.channels.activities.insert("terminal".into(), Activity::UserSpeaking);
    assert_eq!(activity(&room.0, "terminal"), Activity::UserSpeaking);
    room.0.channels.activities.clear();
    room.spoken(call, None);
    let outcome = Outcome::new(Status::Done, "").into();
    room.0.cx.phase = RoomPhase::Draining { outcome };
    assert_eq!(activity(&room.0, "terminal"), Activity::Idle);
}
