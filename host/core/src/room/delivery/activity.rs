//! The activity of channels: as reported by clients, and for the run's own channel as known to the
//! room.

use super::Room;
use crate::room::state::frame_state::FrameWait;
use crate::room::{
    Deliveries, Frames, Purpose, ResultDelivery, RoomChannels, RoomContext, RoomPhase,
};
use crate::types::channel::Activity;
use crate::types::delivery::Wake;
use crate::types::ids::{ChannelId, PluginName};

impl Room {
    /// The current activity of a channel.
    #[must_use]
    pub fn activity_of(&self, channel: &ChannelId) -> Activity {
        self.deliveries.activity_of(&self.cx, &self.frames, &self.channels, channel)
    }
}

impl Deliveries {
    /// The current activity of a channel.
    pub(super) fn activity_of(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        channels: &RoomChannels,
        channel: &ChannelId,
    ) -> Activity {
        let reported = channels.activities.get(channel).copied().unwrap_or_default();
        if reported != Activity::Idle {
            return reported;
        }
        let is_posted = |purpose: &Purpose| matches!(purpose, Purpose::Post { channel: on, .. } if on == channel);
        if self.delivering.contains_key(channel) || cx.calls.values().any(is_posted) {
            return Activity::Speaking;
        }
        if *channel == cx.opening.channel && is_at_work(frames, cx) {
            Activity::Generating
        } else {
            Activity::Idle
        }
    }
}

/// Whether the task that holds the conversation is working, rather than waiting for its user.
fn is_at_work(frames: &Frames, cx: &RoomContext) -> bool {
    let RoomPhase::Running { root } = cx.phase else { return false };
    let mut next = frames.get(&root);
    while let Some(frame) = next {
        match frame.wait() {
            Some(FrameWait::Subtask(child)) => next = frames.get(child),
            Some(FrameWait::Call(call)) => {
                return !matches!(cx.calls.get(call), Some(Purpose::User { .. }));
            }
            _ => return true,
        }
    }
    true
}

impl ResultDelivery<'_> {
    /// Wakes the strategies that wait for this channel, if it has become idle.
    pub(in crate::room) fn channel_changed(&mut self, channel: &ChannelId) {
        let idle = self.deliveries.activity_of(self.cx, self.frames, self.channels, channel)
            == Activity::Idle;
        let mut woken: Vec<PluginName> = Vec::new();
        for (strategy, courier) in &mut self.deliveries.strategies {
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
            self.wake(&strategy, Wake::ChannelIdle { channel: channel.clone() });
        }
    }

    /// Runs after each event: wakes the strategies whose channel has become idle.
    pub(super) fn handle_channels(&mut self) {
        let waited = self
            .deliveries
            .strategies
            .values()
            .filter_map(|courier| Some(courier.waits_for.as_ref()?.0.clone()));
        let waited: std::collections::BTreeSet<ChannelId> = waited.collect();
        waited.iter().for_each(|channel| self.channel_changed(channel));
    }
}
