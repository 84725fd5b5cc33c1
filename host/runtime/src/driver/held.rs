//! Output that waits until its records are durable. Effects that stay on the host skip the wait, so
//! a step begins while the disk still writes. Effects that leave the host, and everything
//! published, wait for their turn.

use std::collections::VecDeque;
use std::sync::Arc;

use conclave_core::journal::recovery::Start;
use conclave_core::protocol::effect::Effect;
use conclave_core::types::delegation::BackgroundRecord;
use conclave_core::types::ids::ControlId;

use crate::driver::observing::QueuedEvent;
use crate::observe::subscribe::RunEvent;
use crate::storage::journal::JournalFailure;
use crate::support::clock::BoxFuture;

/// A piece of output that follows from an event. The large ones are boxed: an idle room keeps its
/// lists.
pub(super) enum HeldOutput {
    /// An event for subscribers, with the number of its record.
    Publish(Option<u64>, Box<RunEvent>),
    /// An event for observers.
    Observe(Box<QueuedEvent>),
    /// A background task, for handles that list tasks or wait for them.
    Task(Arc<BackgroundRecord>),
    /// The receipt of a control message, for its sender.
    Control(ControlId),
    Effect(Box<Effect>, Option<Box<Start>>),
    /// A mark that all output of the commit with this number was published.
    CommitPublished(u64),
}

impl HeldOutput {
    /// Whether a caller outside the room waits for the output. An event that is published may come
    /// a little later, and the loop itself waits for the records of a run's end.
    fn is_urgent(&self) -> bool {
        match self {
            Self::Publish(..) | Self::Observe(_) | Self::CommitPublished(_) => false,
            Self::Effect(effect, _) => !matches!(**effect, Effect::Finish { .. }),
            Self::Task(_) | Self::Control(_) => true,
        }
    }
}

type Kept = BoxFuture<'static, Result<(), JournalFailure>>;

/// The pending output, in its original order.
#[derive(Default)]
pub(super) struct OutputBuffer {
    /// Output that can be performed now.
    free: VecDeque<HeldOutput>,
    /// Commits that wait for their records, which become durable in this order.
    commits: VecDeque<(Kept, Vec<HeldOutput>)>,
    /// The number of commits that had to wait so far, durable ones included.
    numbered: u64,
}

impl OutputBuffer {
    /// Whether no commit waits.
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Takes the output of a commit. `durable` is `None` if its records are durable
    /// already. Effects that `may_go` accepts become free at once. Returns whether the rest is urgent.
    pub(super) fn add(
        &mut self,
        output: &mut Vec<HeldOutput>,
        durable: Option<Kept>,
        may_go: impl Fn(&Effect) -> bool,
    ) -> bool {
        let Some(durable) = durable else {
            // Without durable waits every commit is complete on append, so none can be ahead of this
            // one.
            self.free.extend(output.drain(..));
            return false;
        };
        let may_go =
            |item: &HeldOutput| matches!(item, HeldOutput::Effect(effect, _) if may_go(effect));
        let (free, waits): (Vec<HeldOutput>, Vec<HeldOutput>) = output.drain(..).partition(may_go);
        self.free.extend(free);
        self.numbered += 1;
        let is_urgent = waits.iter().any(HeldOutput::is_urgent);
        self.commits.push_back((durable, waits));
        is_urgent
    }

    /// Appends output that waits until every earlier commit is durable.
    pub(super) fn add_after_all(&mut self, output: Vec<HeldOutput>) {
        match self.commits.back_mut() {
            Some((_, waits)) => waits.extend(output),
            None => self.free.extend(output),
        }
    }

    /// The number of the commit that was added last.
    pub(super) fn last_commit(&self) -> u64 {
        self.numbered
    }

    /// Returns the next free output.
    pub(super) fn next(&mut self) -> Option<HeldOutput> {
        self.free.pop_front()
    }

    /// Waits until the oldest commit is durable and frees its output. The future is cancel-safe.
    pub(super) async fn wait_durable(&mut self) -> Result<(), JournalFailure> {
        let Some((durable, _)) = self.commits.front_mut() else {
            return std::future::pending().await;
        };
        durable.await?;
        if let Some((_, waited)) = self.commits.pop_front() {
            self.free.extend(waited);
            self.free
                .push_back(HeldOutput::CommitPublished(self.numbered - self.commits.len() as u64));
        }
        Ok(())
    }
}
