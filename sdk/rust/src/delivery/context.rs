//! A strategy's view of the room. It reads from the host in a component and from a snapshot in a
//! test, so that an author writes one function.

use super::{Channel, ChannelKind, EndedTask};
use crate::bindings::delivery::conclave::plugin::delivery_context as import;

/// The room as this decision may see it. Reading is lazy: in a component each method calls the host
/// and returns a copy.
pub struct Context<'a>(Source<'a>);

enum Source<'a> {
    Host,
    Snapshot(&'a Snapshot),
}

/// A room as a test describes it. [`Snapshot::context`] returns a strategy's view of it.
///
/// ```
/// use conclave_sdk::delivery::{Activity, Channel, ChannelKind, Snapshot};
///
/// let phone = Channel { id: "phone".into(), kind: ChannelKind::Voice, activity: Activity::Idle, muted: false };
/// let room = Snapshot { channels: vec![phone], ..Snapshot::default() };
/// assert_eq!(room.context().preferred_channel().unwrap().id, "phone");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The room's id.
    pub room_id: String,
    /// Milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Results that wait for this strategy, oldest first.
    pub pending_results: Vec<EndedTask>,
    /// Channels that it may send to.
    pub channels: Vec<Channel>,
    /// The task that is notified.
    pub notified_task: Option<String>,
}

impl Snapshot {
    /// A strategy's view of the snapshot.
    pub fn context(&self) -> Context<'_> {
        Context(Source::Snapshot(self))
    }

    /// A voice channel, or else any other, but never a muted one or an agent's (R-101 done right).
    fn preferred_channel(&self) -> Option<&Channel> {
        let mut open = self
            .channels
            .iter()
            .filter(|channel| !channel.muted && channel.kind != ChannelKind::Agent);
        open.clone().find(|channel| channel.kind == ChannelKind::Voice).or_else(|| open.next())
    }
}

impl Context<'_> {
    pub(crate) fn of_call() -> Self {
        Self(Source::Host)
    }

    /// The room's id.
    pub fn room_id(&self) -> String {
        match self.0 {
            Source::Host => import::room_id(),
            Source::Snapshot(snapshot) => snapshot.room_id.clone(),
        }
    }

    /// The milliseconds since the Unix epoch, as recorded: the only clock that a strategy should
    /// read.
    pub fn now_ms(&self) -> u64 {
        match self.0 {
            Source::Host => import::now_ms(),
            Source::Snapshot(snapshot) => snapshot.now_ms,
        }
    }

    /// The results that are not delivered yet, oldest first.
    pub fn pending_results(&self) -> Vec<EndedTask> {
        match self.0 {
            Source::Host => import::pending_results(),
            Source::Snapshot(snapshot) => snapshot.pending_results.clone(),
        }
    }

    /// The channels of the room that this strategy may send to.
    pub fn channels(&self) -> Vec<Channel> {
        match self.0 {
            Source::Host => import::channels(),
            Source::Snapshot(snapshot) => snapshot.channels.clone(),
        }
    }

    /// The preferred channel: voice first, then any other; `None` if the strategy may send to none.
    pub fn preferred_channel(&self) -> Option<Channel> {
        match self.0 {
            Source::Host => {
                let id = import::preferred_channel()?;
                import::channels().into_iter().find(|channel| channel.id == id)
            }
            Source::Snapshot(snapshot) => snapshot.preferred_channel().cloned(),
        }
    }

    /// The task that is notified, or `None` if none waits for the results.
    pub fn notified_task(&self) -> Option<String> {
        match self.0 {
            Source::Host => import::notified_task(),
            Source::Snapshot(snapshot) => snapshot.notified_task.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Snapshot;
    use crate::delivery::{Activity, Channel, ChannelKind};

    fn preferred(channels: &[(&str, ChannelKind, bool)]) -> Option<String> {
        let channel = |(id, kind, muted): &(&str, ChannelKind, bool)| Channel {
            id: (*id).to_owned(),
            kind: *kind,
            activity: Activity::Idle,
            muted: *muted,
        };
        Snapshot { channels: channels.iter().map(channel).collect(), ..Snapshot::default() }
            .context()
            .preferred_channel()
            .map(|channel| channel.id)
    }

    #[test]
    fn voice_is_the_best_and_muted_ones_and_agents_are_none() {
        let (text, voice) =
            (("terminal", ChannelKind::Text, false), ("phone", ChannelKind::Voice, false));
        assert_eq!(preferred(&[text, voice]).as_deref(), Some("phone"));
        assert_eq!(
            preferred(&[text, ("phone", ChannelKind::Voice, true)]).as_deref(),
            Some("terminal")
        );
        assert_eq!(preferred(&[("desk", ChannelKind::Agent, false)]), None);
    }
}
