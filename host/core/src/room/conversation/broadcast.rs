//! Reports of the conversation on the room's channels. A channel that fails is reported,
//! and does not affect the others.

use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::background::closing::shares_channels;
use crate::room::{Purpose, RoomChannels, RoomContext};
use crate::types::channel::Binding;
use crate::types::delivery::OutgoingMessage;
use crate::types::ids::{CallId, ChannelId};
use crate::types::outcome::{Outcome, Status};
use crate::types::request::Inbound;

impl RoomChannels {
    /// Reports a message on all channels that accept messages and see its source, except that
    /// source.
    pub(super) fn report_other_channels(
        &self,
        cx: &mut RoomContext,
        index: u64,
        inbound: &Inbound,
    ) {
        let Some(source) = self.bindings.get(&inbound.channel) else { return };
        let is_target = |channel: &ChannelId, binding: &Binding| {
            *channel != inbound.channel
                && binding.can_receive()
                && source.visibility.is_for(channel, binding.kind)
        };
        let targets = self.channels_where(is_target);
        let by = if inbound.sender.is_empty() { inbound.channel.as_str() } else { &inbound.sender };
        let text = format!("{by}: {}", inbound.text);
        for channel in targets {
            // Unique for each message and channel, so a channel recognizes a repeated message.
            let key = format!("inbound-{index}-{channel}");
            post_message(cx, channel, text.clone(), key);
        }
    }

    /// Reports the answer of the task, or the reason why there is none.
    pub(in crate::room) fn report_outcome(&mut self, cx: &mut RoomContext, outcome: &Outcome) {
        if matches!(outcome.status, Status::Kill | Status::UserQuit) {
            // The user stopped it, and knows.
            return;
        }
        match outcome.content.as_ref().filter(|content| !content.trim().is_empty()) {
            Some(content) => self.report_channels(cx, &content.clone(), None),
            None if outcome.status.is_success() => {}
            None => {
                self.report_channels(cx, &format!("There is no answer: {}.", outcome.reason), None)
            }
        }
    }

    /// Whether people hear on its channels what the room says.
    pub(in crate::room) fn is_heard(&self, cx: &RoomContext) -> bool {
        (self.is_persistent(cx) || shares_channels(cx))
            && self.bindings.values().any(Binding::can_receive)
    }

    /// Reports a text on all channels that accept messages, except `but`.
    pub(in crate::room) fn report_channels(
        &mut self,
        cx: &mut RoomContext,
        text: &str,
        but: Option<&ChannelId>,
    ) {
        let targets =
            self.channels_where(|channel, binding| but != Some(channel) && binding.can_receive());
        if targets.is_empty() {
            return;
        }
        let number = self.next_answer;
        self.next_answer += 1;
        for channel in targets {
            let key = format!("answer-{number}-{channel}");
            post_message(cx, channel, text.to_owned(), key);
        }
    }

    fn channels_where(&self, is_target: impl Fn(&ChannelId, &Binding) -> bool) -> Vec<ChannelId> {
        let targets = self.bindings.iter().filter(|(channel, binding)| is_target(channel, binding));
        targets.map(|(channel, _)| channel.clone()).collect()
    }
}

fn post_message(cx: &mut RoomContext, channel: ChannelId, text: String, key: String) {
    let call = cx.next_call(Purpose::Post { channel: channel.clone(), key: key.clone() });
    let outgoing = OutgoingMessage { channel, text, interrupt: false, key, tasks: Vec::new() };
    cx.effects.push_back(Effect::Send { call, message: Box::new(outgoing) });
}

/// Takes a channel's response to a report. Returns false if the call is not a report.
pub(in crate::room) fn end_report(
    cx: &mut RoomContext,
    call: CallId,
    failure: Option<&str>,
) -> bool {
    let Some(Purpose::Post { channel, key }) = cx.calls.get(&call) else { return false };
    let (channel, key) = (channel.clone(), key.clone());
    cx.calls.remove(&call);
    if let Some(reason) = failure {
        cx.notify(Notice::ChannelRefused { channel, key, reason: reason.to_owned() });
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::context;
    use std::sync::Arc;

    use super::*;
    use crate::types::channel::{ChannelAccess, ChannelKind, Visibility};

    /// A room with channels of each kind that matters here.
    fn channels(visibility: Visibility) -> RoomChannels {
        let bindings = [
            ("agent", Binding::of(ChannelKind::Agent)),
            ("deaf", Binding { access: ChannelAccess::WriteOnly, ..Binding::default() }),
            ("muted", Binding { muted: true, ..Binding::default() }),
            ("phone", Binding { visibility, ..Binding::default() }),
            ("terminal", Binding::default()),
            ("web", Binding::default()),
        ]
        .map(|(name, binding)| (ChannelId::from(name), binding));
        RoomChannels { bindings: Arc::new(bindings.into()), ..RoomChannels::default() }
    }

    /// Returns the messages since the last call, as `channel: key`.
    fn spoken(cx: &mut RoomContext) -> Vec<String> {
        let spoken = |effect| match effect {
            Effect::Send { message: outgoing, .. } => {
                format!("{}: {}", outgoing.channel, outgoing.key)
            }
            effect => panic!("{effect:?}"),
        };
        cx.take_effects().into_iter().map(spoken).collect()
    }

    #[test]
    fn a_message_is_reported_on_the_other_channels_that_hear_and_see_its_source() {
        let mut cx = context("");
        let mut report = |visibility: &str, from: &str| {
            let channels = channels(Visibility::parse(visibility));
            channels.report_other_channels(&mut cx, 4, &Inbound::new(from, "hello"));
            spoken(&mut cx)
        };
        assert_eq!(report("all", "phone"), ["terminal: inbound-4-terminal", "web: inbound-4-web"]);
        assert_eq!(report("web", "phone"), ["web: inbound-4-web"]);
        assert_eq!(report("internal", "phone"), [""; 0]);
        assert_eq!(report("all", "stranger"), [""; 0]);
    }

    #[test]
    fn each_answer_has_a_number_and_one_that_nobody_hears_takes_none() {
        let mut cx = context("");
        let mut no_channels = RoomChannels::default();
        no_channels.report_channels(&mut cx, "hello", None);
        assert_eq!((spoken(&mut cx).len(), no_channels.next_answer), (0, 0));
        let mut channels = channels(Visibility::All);
        channels.report_channels(&mut cx, "hello", Some(&"web".into()));
        channels.report_channels(&mut cx, "again", Some(&"phone".into()));
        let keys = [
            "phone: answer-0-phone",
            "terminal: answer-0-terminal",
            "terminal: answer-1-terminal",
            "web: answer-1-web",
        ];
        assert_eq!(spoken(&mut cx), keys);
    }

    #[test]
    fn an_outcome_is_reported_unless_the_user_made_it_or_there_is_nothing_to_say() {
        let mut cx = context("");
        let mut reports = |status, content: Option<&str>| {
            let content = content.map(str::to_owned);
            let outcome = Outcome { content, ..Outcome::new(status, "reason") };
            channels(Visibility::All).report_outcome(&mut cx, &outcome);
            !spoken(&mut cx).is_empty()
        };
        assert!(reports(Status::Done, Some("an answer")));
        assert!(!reports(Status::Done, Some(" ")) && !reports(Status::Done, None));
        assert!(reports(Status::MaxTurns, None), "the reason is said instead");
        assert!(!reports(Status::Kill, Some("an answer")) && !reports(Status::UserQuit, None));
    }

    #[test]
    fn a_channel_that_fails_is_reported_and_its_call_ends_once() {
        let mut cx = context("");
        channels(Visibility::All).report_channels(&mut cx, "hello", None);
        cx.effects.clear();
        assert!(end_report(&mut cx, CallId(0), None));
        assert!(end_report(&mut cx, CallId(1), Some("down")));
        assert!(!end_report(&mut cx, CallId(1), Some("down")));
        assert!(matches!(cx.take_notices().as_slice(), [Notice::ChannelRefused { .. }]));
    }
}
