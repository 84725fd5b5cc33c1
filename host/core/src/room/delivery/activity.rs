//! What keeps a channel busy: what its client reports, and for the channel that the run is held on
//! what the room itself knows.

use super::Room;
use crate::room::frame::FrameWait;
use crate::room::{Purpose, RoomPhase};
use crate::types::channel::Activity;
use crate::types::delivery::Wake;
use crate::types::ids::{ChannelId, PluginName};

impl Room {
    /// What keeps a channel busy now.
    #[must_use]
    pub fn activity_of(&self, channel: &ChannelId) -> Activity {
        let reported = self.conversation.activities.get(channel).copied().unwrap_or_default();
        if reported != Activity::Idle {
            return reported;
        }
        let is_posted = |purpose: &Purpose| matches!(purpose, Purpose::Post { channel: on, .. } if on == channel);
        if self.deliveries.speaking.contains_key(channel) || self.calls.values().any(is_posted) {
            return Activity::Speaking;
        }
        if *channel == self.opening.channel && self.is_at_work() {
            Activity::Generating
        } else {
            Activity::Idle
        }
    }

    /// The task that has the conversation is at work, and does not wait for its user.
    fn is_at_work(&self) -> bool {
        let RoomPhase::Running { root } = self.phase else { return false };
        let mut next = self.frames.get(&root);
        while let Some(frame) = next {
            match frame.attempt.as_ref().map(|attempt| &attempt.wait) {
                Some(FrameWait::Subtask(child)) => next = self.frames.get(child),
                Some(FrameWait::Call(call)) => {
                    return !matches!(self.calls.get(call), Some(Purpose::User { .. }));
                }
                _ => return true,
            }
        }
        true
    }

    /// What keeps this channel busy may have changed.
    pub(in crate::room) fn channel_changed(&mut self, channel: &ChannelId) {
        let idle = self.activity_of(channel) == Activity::Idle;
        let mut woken: Vec<PluginName> = Vec::new();
        for (strategy, courier) in &mut self.deliveries.couriers {
            let Some((_, was_idle)) =
                courier.waits_for.as_mut().filter(|(waited, _)| waited == channel)
            else {
                continue;
            };
            if idle && !*was_idle {
                woken.push(strategy.clone());
            }
            *was_idle = idle;
        }
        for strategy in woken {
            self.wake(&strategy, Wake::ChannelChanged { channel: channel.clone() });
        }
    }

    /// After each event: strategies whose channel has become idle are woken.
    pub(super) fn handle_channels(&mut self) {
        let waited = self
            .deliveries
            .couriers
            .values()
            .filter_map(|courier| Some(courier.waits_for.as_ref()?.0.clone()));
        let waited: std::collections::BTreeSet<ChannelId> = waited.collect();
        waited.iter().for_each(|channel| self.channel_changed(channel));
    }
}
