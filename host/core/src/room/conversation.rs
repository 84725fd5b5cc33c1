//! The conversation of a room: its bound channels, their activity, and the messages that arrived on
//! them (R-002…R-008). The step loop decides how agents use them; `delivery` handles results of
//! background tasks.

pub(super) mod broadcast;
mod inbound;
mod limits;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pausing::UserMessage;
use super::{ResultDelivery, Room, RoomContext};
use crate::protocol::event::RunOpening;
use crate::protocol::notice::Notice;
use crate::types::channel::{Activity, Binding, ChannelKind};
use crate::types::ids::ChannelId;
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply};
use limits::{Bucket, SeenKeys};

/// Bytes of a channel's name. Channels bound at run time may use the name of the service behind
/// them.
const NAME_MAX: usize = 128;

/// A room's channels, and the messages that arrived on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RoomChannels {
    pub(super) bindings: Arc<BTreeMap<ChannelId, Binding>>,
    /// Activity as clients reported it; a channel without an entry is idle.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) activities: BTreeMap<ChannelId, Activity>,
    /// The reason why the room was closed, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closed: Option<String>,
    /// Messages that each channel with a rate may still send at once.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    buckets: BTreeMap<ChannelId, Bucket>,
    /// Messages with a key.
    #[serde(skip_serializing_if = "SeenKeys::is_empty")]
    seen: SeenKeys,
    /// Keys of messages at the gates, with the requests that repeated them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    arriving: BTreeMap<String, Vec<RequestId>>,
    /// The number of the next inbound message; the first has 0.
    #[serde(skip_serializing_if = "is_zero")]
    next_index: u64,
    /// The number of the next answer of an agent.
    #[serde(skip_serializing_if = "is_zero")]
    next_answer: u64,
    /// Messages for a task that could not begin yet.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(super) waiting: VecDeque<UserMessage>,
    /// Number of automatic answers that led to the current work.
    #[serde(skip_serializing_if = "is_none")]
    pub(super) chain_depth: u32,
}

impl RoomChannels {
    /// Sets the channels as the room opens. Another run in the room leaves them unchanged unless
    /// its opening names some.
    pub(super) fn open(
        &mut self,
        opening: &RunOpening,
        of_setup: Option<&Arc<BTreeMap<ChannelId, Binding>>>,
    ) {
        match (&opening.bindings, of_setup) {
            (Some(bindings), _) => self.bindings = Arc::new(bindings.clone()),
            (None, Some(bindings)) => self.bindings = Arc::clone(bindings),
            (None, None) => {}
        }
        self.closed = None;
        self.chain_depth = opening.chain_depth;
    }
}

impl Room {
    /// The current channel bindings of the room.
    #[must_use]
    pub fn bindings(&self) -> &Arc<BTreeMap<ChannelId, Binding>> {
        self.channels.bindings()
    }

    /// A channel's activity as its client last reported it.
    #[must_use]
    pub fn activity(&self, channel: &ChannelId) -> Activity {
        self.channels.activity(channel)
    }
}

impl RoomChannels {
    /// The current channel bindings of the room.
    pub(super) fn bindings(&self) -> &Arc<BTreeMap<ChannelId, Binding>> {
        &self.bindings
    }

    /// A channel's activity as its client last reported it.
    pub(super) fn activity(&self, channel: &ChannelId) -> Activity {
        self.activities.get(channel).copied().unwrap_or_default()
    }

    fn attach(
        &mut self,
        cx: &mut RoomContext,
        channel: &ChannelId,
        binding: Binding,
    ) -> Result<(), Refusal> {
        let bad = |message: String| Err(Refusal::new(RefusalCode::BadArguments, message));
        let name = channel.as_str();
        // Commas separate the channels that `visibility` names.
        if name.trim().is_empty()
            || name.len() > NAME_MAX
            || name.contains(|c: char| c == ',' || c.is_control())
        {
            return bad(format!(
                "{name:?} cannot be the name of a channel: it has 1 to {NAME_MAX} characters, and no comma"
            ));
        }
        if binding.simulate_ms.is_some() && binding.kind != ChannelKind::Voice {
            return bad(format!(
                "the channel {name} is no voice, so no voice can be simulated on it; bind it with the kind `voice`"
            ));
        }
        if binding.rate == Some(0) {
            return bad(format!(
                "with a rate of 0 nothing could come in from {name}; bind it with the access `read-only`"
            ));
        }
        cx.notify(Notice::ChannelBound { channel: channel.clone(), binding: binding.clone() });
        Arc::make_mut(&mut self.bindings).insert(channel.clone(), binding);
        Ok(())
    }

    /// Detaches a channel; does nothing if it is not attached.
    fn detach(&mut self, cx: &mut RoomContext, channel: &ChannelId) {
        if Arc::make_mut(&mut self.bindings).remove(channel).is_none() {
            return;
        }
        // A channel that is bound again begins anew.
        self.activities.remove(channel);
        self.buckets.remove(channel);
        cx.notify(Notice::ChannelUnbound { channel: channel.clone() });
    }

    /// The refusal of an unknown channel, with the room's own channels.
    pub(super) fn unknown_channel(&self, channel: &ChannelId) -> Refusal {
        Refusal {
            error: RefusalCode::UnknownChannel,
            message: format!(
                "the room has no channel {:?}; bind it first, or name one of those that it has",
                channel.as_str()
            ),
            allowed: self.bindings.keys().map(ToString::to_string).collect(),
        }
    }
}

impl ResultDelivery<'_> {
    pub(super) fn report_activity(
        &mut self,
        request: RequestId,
        channel: ChannelId,
        activity: Activity,
    ) {
        if !self.channels.bindings.contains_key(&channel) {
            let refusal = self.channels.unknown_channel(&channel);
            self.cx.reply(request, Err(refusal));
            return;
        }
        self.cx.reply(request, Ok(RequestReply::Done));
        self.set_activity(channel, activity);
    }

    fn set_activity(&mut self, channel: ChannelId, activity: Activity) {
        if self.channels.activity(&channel) == activity {
            return;
        }
        match activity {
            Activity::Idle => drop(self.channels.activities.remove(&channel)),
            activity => drop(self.channels.activities.insert(channel.clone(), activity)),
        }
        self.channel_changed(&channel);
    }

    /// Resets all activities after a downtime of the host.
    pub(super) fn forget_activities(&mut self) {
        // The old reports may be outdated, and strategies must not wait for them.
        for channel in std::mem::take(&mut self.channels.activities).into_keys() {
            self.channel_changed(&channel);
        }
    }

    pub(super) fn bind(
        &mut self,
        request: RequestId,
        channel: ChannelId,
        binding: Option<Binding>,
    ) {
        let bound = match binding {
            Some(binding) => self.channels.attach(self.cx, &channel, binding),
            None => {
                self.channels.detach(self.cx, &channel);
                Ok(())
            }
        };
        let is_bound = bound.is_ok();
        self.cx.reply(request, bound.map(|()| RequestReply::Done));
        if is_bound {
            self.channel_changed(&channel);
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_none(depth: &u32) -> bool {
    *depth == 0
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Parts, context};
    use super::*;
    use crate::types::ids::Millis;

    fn attach(
        channels: &mut RoomChannels,
        name: &str,
        binding: Binding,
    ) -> Result<(), RefusalCode> {
        channels.attach(&mut context(""), &name.into(), binding).map_err(|refusal| refusal.error)
    }

    #[test]
    fn a_channel_is_bound_only_under_a_name_and_with_settings_that_mean_something() {
        let mut channels = RoomChannels::default();
        let bad = Err(RefusalCode::BadArguments);
        for (name, expected) in [
            ("", bad),
            (" ", bad),
            ("a,b", bad),
            ("a\nb", bad),
            (&"x".repeat(NAME_MAX + 1), bad),
            (&"x".repeat(NAME_MAX), Ok(())),
        ] {
            assert_eq!(attach(&mut channels, name, Binding::default()), expected, "{name:?}");
        }
        let voice = Binding::of(ChannelKind::Voice);
        let simulated = |binding| Binding { simulate_ms: Some(40), ..binding };
        assert_eq!(attach(&mut channels, "a", simulated(voice)), Ok(()));
        assert_eq!(attach(&mut channels, "b", simulated(Binding::default())), bad);
        let rate = |rate| Binding { rate: Some(rate), ..Binding::default() };
        assert_eq!(attach(&mut channels, "c", rate(1)), Ok(()));
        assert_eq!(attach(&mut channels, "d", rate(0)), bad);
        assert_eq!(channels.bindings.len(), 3, "a refused one is not bound");
    }

    #[test]
    fn a_channel_that_is_bound_again_begins_anew_and_an_unknown_one_is_not_reported() {
        let (mut channels, mut cx) = (RoomChannels::default(), context(""));
        let phone = ChannelId::from("phone");
        channels.detach(&mut cx, &phone);
        assert_eq!(cx.take_notices(), []);
        let binding = Binding { rate: Some(1), ..Binding::default() };
        channels.attach(&mut cx, &phone, binding).expect("it is bound");
        channels.activities.insert(phone.clone(), Activity::UserSpeaking);
        channels.buckets.insert(phone.clone(), Bucket::full(1, Millis(0)));
        channels.detach(&mut cx, &phone);
        assert_eq!(channels, RoomChannels::default());
        assert_eq!(cx.take_notices().len(), 2);
    }

    #[test]
    fn a_run_keeps_the_channels_of_the_room_unless_it_brings_its_own() {
        let bindings_of =
            |name: &str| BTreeMap::from([(ChannelId::from(name), Binding::default())]);
        let mut channels = RoomChannels::default();
        let mut bound = |opening: Option<&str>, of_setup: Option<&str>| {
            channels.closed = Some("the run before".to_owned());
            let opening =
                RunOpening { bindings: opening.map(bindings_of), ..RunOpening::default() };
            channels.open(&opening, of_setup.map(bindings_of).map(Arc::new).as_ref());
            assert_eq!(channels.closed(), None);
            channels.bindings().keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(bound(None, Some("terminal")), ["terminal"]);
        assert_eq!(bound(None, None), ["terminal"]);
        assert_eq!(bound(Some("phone"), Some("terminal")), ["phone"]);
    }

    #[test]
    fn only_a_bound_channel_has_an_activity() {
        let mut parts = Parts::new("");
        let (phone, web) = (ChannelId::from("phone"), ChannelId::from("web"));
        Arc::make_mut(&mut parts.channels.bindings).insert(phone.clone(), Binding::default());
        for (request, channel) in [(1, &phone), (2, &web)] {
            let mut view = parts.view();
            let mut delivery = view.result_delivery();
            delivery.report_activity(RequestId(request), channel.clone(), Activity::UserSpeaking);
        }
        let replies: Vec<bool> =
            parts.cx.take_replies().into_iter().map(|(_, reply)| reply.is_ok()).collect();
        assert_eq!(replies, [true, false]);
        assert_eq!(parts.channels.activities.keys().collect::<Vec<_>>(), [&phone]);
        parts.view().result_delivery().forget_activities();
        assert_eq!(parts.channels.activity(&phone), Activity::Idle);
    }

    #[test]
    fn a_closed_room_reports_queued_words_as_unread_and_begins_no_turn() {
        let (mut channels, mut cx) = (RoomChannels::default(), context(""));
        cx.opening.persistent = true;
        let words = UserMessage {
            task: "desk".into(),
            text: "hello".to_owned(),
            attachments: Vec::new(),
            chain_depth: 0,
        };
        channels.waiting.push_back(words);
        assert!(channels.has_turns_waiting(&cx));
        channels.close_to_messages(&mut cx, "it is late");
        assert!(!channels.has_turns_waiting(&cx) && channels.waiting.is_empty());
        let [Notice::RoomClosed { .. }, Notice::UserMessageDropped { .. }] = cx.take_notices()[..]
        else {
            panic!("both are reported")
        };
    }
}
