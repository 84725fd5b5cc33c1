//! Reports of the conversation on the room's channels. A channel that fails is reported,
//! and does not affect the others.

use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::Purpose;
use crate::room::{RoomChannels, RoomContext};
use crate::types::channel::Binding;
use crate::types::delivery::Speech;
use crate::types::ids::{CallId, ChannelId};
use crate::types::outcome::{Outcome, Status};
use crate::types::request::Inbound;

impl RoomChannels {
    /// Reports a message on all channels that accept speech and see its source, except that source.
    pub(super) fn report_other_channels(
        &self,
        cx: &mut RoomContext,
        index: u64,
        inbound: &Inbound,
    ) {
        let Some(source) = self.bindings.get(&inbound.channel) else { return };
        let is_target = |channel: &ChannelId, binding: &Binding| {
            *channel != inbound.channel
                && binding.can_be_told()
                && source.visibility.is_for(channel, binding.kind)
        };
        let targets = self.channels_where(is_target);
        let by = if inbound.sender.is_empty() { inbound.channel.as_str() } else { &inbound.sender };
        let text = format!("{by}: {}", inbound.text);
        for channel in targets {
            // Unique for each message and channel, so a channel recognizes a repeated speech.
            let key = format!("inbound-{index}-{channel}");
            cx.say(channel, text.clone(), key);
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

    /// Reports a text on all channels that accept speech, except `but`.
    pub(in crate::room) fn report_channels(
        &mut self,
        cx: &mut RoomContext,
        text: &str,
        but: Option<&ChannelId>,
    ) {
        let targets =
            self.channels_where(|channel, binding| but != Some(channel) && binding.can_be_told());
        if targets.is_empty() {
            return;
        }
        let number = self.next_answer;
        self.next_answer += 1;
        for channel in targets {
            let key = format!("answer-{number}-{channel}");
            cx.say(channel, text.to_owned(), key);
        }
    }

    fn channels_where(&self, is_target: impl Fn(&ChannelId, &Binding) -> bool) -> Vec<ChannelId> {
        let targets = self.bindings.iter().filter(|(channel, binding)| is_target(channel, binding));
        targets.map(|(channel, _)| channel.clone()).collect()
    }
}

impl RoomContext {
    fn say(&mut self, channel: ChannelId, text: String, key: String) {
        let call = self.next_call(Purpose::Post { channel: channel.clone(), key: key.clone() });
        let speech = Speech { channel, text, interrupt: false, key, tasks: Vec::new() };
        self.effects.push_back(Effect::Speak { call, speech: Box::new(speech) });
    }

    /// Takes a channel's response to a report. Returns false if the call is not a report.
    pub(in crate::room) fn is_told(&mut self, call: CallId, failure: Option<&str>) -> bool {
        let Some(Purpose::Post { channel, key }) = self.calls.get(&call) else { return false };
        let (channel, key) = (channel.clone(), key.clone());
        self.calls.remove(&call);
        if let Some(reason) = failure {
            self.tell(Notice::NotTold { channel, key, reason: reason.to_owned() });
        }
        true
    }
}
