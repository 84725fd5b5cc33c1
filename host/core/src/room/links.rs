//! Links between messages that nothing can ask about any more are forgotten, so that a room that
//! stays open holds as many as its histories have entries, and not one for every message that was
//! ever posted. What is kept answers every question as all of them would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Room;
use super::frame::{Frame, FrameWait};
use crate::types::message::Message;

/// Messages above one that is held that stay with it. A rewind asks for the message that was
/// answered; who passes a message on goes up until one that does not ask for that itself, which is
/// one or two (L-144).
const ABOVE: usize = 64;
/// Fewer are not worth looking through.
const FEW: usize = 256;

impl Room {
    /// After each event: when there are twice as many links as were left the last time, those of
    /// which nothing can be asked go.
    pub(super) fn forget_links(&mut self) {
        if self.links.len() < self.links_due.max(FEW) {
            return;
        }
        let kept = self.links_in_use();
        let leads_to = self.next_in_use(&kept);
        self.links.retain(|seq, _| kept.contains(seq));
        for (seq, next) in leads_to {
            // What stood between is in no history: whoever follows the row finds the same.
            if let Some(link) = self.links.get_mut(&seq) {
                link.child = Some(next);
            }
        }
        self.links_due = self.links.len().saturating_mul(2);
    }

    /// Messages in histories and at work, and those above them.
    fn links_in_use(&self) -> BTreeSet<u64> {
        let in_histories =
            self.links.iter().filter(|(_, link)| link.place.is_some()).map(|(seq, _)| *seq);
        let left = self
            .memories
            .values()
            .filter_map(|memory| memory.left_pending.as_ref())
            .map(|message| message.seq);
        let at_work = self.frames.values().flat_map(held_by).map(|message| message.seq);
        let held: BTreeSet<u64> = in_histories.chain(left).chain(at_work).collect();
        let mut kept = held.clone();
        for seq in &held {
            let mut at = *seq;
            for _ in 0..ABOVE {
                let Some(above) =
                    self.links.get(&at).and_then(|link| link.parent).filter(|above| *above < at)
                else {
                    break;
                };
                // One that is held has its own row above it.
                if held.contains(&above) {
                    break;
                }
                kept.insert(above);
                at = above;
            }
        }
        kept
    }

    /// By message that stays, the next one that stays of those that followed from it, where others
    /// stand between.
    fn next_in_use(&self, kept: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let mut next_of: BTreeMap<u64, u64> = BTreeMap::new();
        // Whatever follows from a message has a higher number, so it was looked at before.
        for (seq, link) in self.links.iter().rev() {
            let Some(child) = link.child.filter(|child| child > seq) else { continue };
            let next =
                if kept.contains(&child) { Some(child) } else { next_of.get(&child).copied() };
            next_of.extend(next.map(|next| (*seq, next)));
        }
        next_of.retain(|seq, _| kept.contains(seq));
        next_of
    }
}

/// Messages that a frame may still answer, post or pass on.
fn held_by(frame: &Frame) -> impl Iterator<Item = &Arc<Message>> {
    let attempt = frame.attempt.as_ref();
    let waits = attempt.and_then(|attempt| match &attempt.wait {
        FrameWait::Tools(round) => Some(&round.message),
        FrameWait::Ready(message) => message.as_ref(),
        FrameWait::Next | FrameWait::Call(_) | FrameWait::Subtask(_) | FrameWait::More => None,
    });
    let unknown =
        attempt.and_then(|attempt| attempt.do_not_know.as_ref()).map(|(_, message)| message);
    let chain = frame.chain.iter().map(|answer| &answer.message);
    [frame.pending.as_ref(), frame.intent.as_ref(), waits, unknown]
        .into_iter()
        .flatten()
        .chain(chain)
}
