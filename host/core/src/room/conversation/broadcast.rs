//! What is said in the room is told on its channels: one that does not take it is reported,
//! and changes nothing for the others.

use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::{Purpose, Room};
use crate::types::channel::Binding;
use crate::types::delivery::Speech;
use crate::types::ids::{CallId, ChannelId};
use crate::types::outcome::{Outcome, Status};
use crate::types::request::Inbound;

impl Room {
    /// All channels but the one it came from, where they may be told and it is for them.
    pub(super) fn report_other_channels(&mut self, index: u64, inbound: &Inbound) {
        let Some(source) = self.conversation.bindings.get(&inbound.channel) else { return };
        let is_target = |channel: &ChannelId, binding: &Binding| {
            *channel != inbound.channel
                && binding.can_be_told()
                && source.visibility.is_for(channel, binding.kind)
        };
        let targets = self.channels_where(is_target);
        let by = if inbound.sender.is_empty() { inbound.channel.as_str() } else { &inbound.sender };
        let text = format!("{by}: {}", inbound.text);
        for channel in targets {
            let key = format!("inbound-{index}-{channel}");
            self.say(channel, text.clone(), key);
        }
    }

    /// The answer of the task that was at work, or why there is none.
    pub(in crate::room) fn report_outcome(&mut self, outcome: &Outcome) {
        if matches!(outcome.status, Status::Kill | Status::UserQuit) {
            // Whoever stopped it knows.
            return;
        }
        match outcome.content.as_ref().filter(|content| !content.trim().is_empty()) {
            Some(content) => self.report_channels(&content.clone(), None),
            None if outcome.status.is_success() => {}
            None => self.report_channels(&format!("There is no answer: {}.", outcome.reason), None),
        }
    }

    /// Says it on all channels that may be told, one excepted.
    pub(in crate::room) fn report_channels(&mut self, text: &str, but: Option<&ChannelId>) {
        let targets =
            self.channels_where(|channel, binding| but != Some(channel) && binding.can_be_told());
        if targets.is_empty() {
            return;
        }
        let number = self.conversation.next_answer;
        self.conversation.next_answer += 1;
        for channel in targets {
            let key = format!("answer-{number}-{channel}");
            self.say(channel, text.to_owned(), key);
        }
    }

    fn channels_where(&self, is_target: impl Fn(&ChannelId, &Binding) -> bool) -> Vec<ChannelId> {
        let targets = self
            .conversation
            .bindings
            .iter()
            .filter(|(channel, binding)| is_target(channel, binding));
        targets.map(|(channel, _)| channel.clone()).collect()
    }

    fn say(&mut self, channel: ChannelId, text: String, key: String) {
        let call = self.next_call(Purpose::Post { channel: channel.clone(), key: key.clone() });
        let speech = Speech { channel, text, interrupt: false, key, tasks: Vec::new() };
        self.effects.push_back(Effect::Speak { call, speech: Box::new(speech) });
    }

    /// A channel took what was said in the room, or did not; false: the call is about something
    /// else.
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
