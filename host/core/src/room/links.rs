//! Cleanup of links between messages. Links that no query can reach are dropped. A persistent room
//! then holds about as many as its histories have entries, rather than one for each message. The
//! remaining links answer every query as all of them would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::state::frame::Frame;
use super::state::frame_state::FrameWait;
use super::{Dialogue, Frames, Histories};
use crate::types::message::Message;

/// Number of ancestors that stay with a message in use. A rewind needs the answered message.
/// Passing a message on goes up to one that does not ask for that itself, which takes one or two
/// steps (L-144).
const ABOVE: usize = 64;
/// A cleanup of fewer links is not worth its cost.
const FEW: usize = 256;

impl Dialogue<'_> {
    /// Runs after each event: drops unused links once their number has doubled since the last
    /// cleanup. The cost for each message is then constant on average.
    pub(super) fn forget_links(&mut self) {
        if self.histories.links.len() < self.histories.links_due.max(FEW) {
            return;
        }
        let in_use = self.histories.links_in_use(self.frames);
        let leads_to = self.histories.next_in_use(&in_use);
        self.histories.links.retain(|seq, _| in_use.contains(seq));
        for (seq, next) in leads_to {
            // The dropped links between are in no history, so a walk along the chain visits the
            // same entries.
            if let Some(link) = self.histories.links.get_mut(&seq) {
                link.child = Some(next);
            }
        }
        self.histories.links_due = self.histories.links.len().saturating_mul(2);
    }
}

impl Histories {
    /// The messages in histories and frames, and their ancestors.
    fn links_in_use(&self, frames: &Frames) -> BTreeSet<u64> {
        let in_histories =
            self.links.iter().filter(|(_, link)| link.place.is_some()).map(|(seq, _)| *seq);
        let pending = self
            .memories
            .values()
            .filter_map(|memory| memory.left_pending.as_ref())
            .map(|message| message.seq);
        let at_work = frames.values().flat_map(messages_held_by).map(|message| message.seq);
        let roots: BTreeSet<u64> = in_histories.chain(pending).chain(at_work).collect();
        let mut in_use = roots.clone();
        for seq in &roots {
            let mut at = *seq;
            for _ in 0..ABOVE {
                let Some(above) =
                    self.links.get(&at).and_then(|link| link.parent).filter(|above| *above < at)
                else {
                    break;
                };
                // A message in use adds its own ancestors.
                if roots.contains(&above) {
                    break;
                }
                in_use.insert(above);
                at = above;
            }
        }
        in_use
    }

    /// Returns, for each retained message, the next retained one among those that followed from it.
    fn next_in_use(&self, in_use: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let mut next_of: BTreeMap<u64, u64> = BTreeMap::new();
        // A later message has a higher number, so in reverse order it was visited already.
        for (seq, link) in self.links.iter().rev() {
            let Some(child) = link.child.filter(|child| child > seq) else { continue };
            let next =
                if in_use.contains(&child) { Some(child) } else { next_of.get(&child).copied() };
            next_of.extend(next.map(|next| (*seq, next)));
        }
        next_of.retain(|seq, _| in_use.contains(seq));
        next_of
    }
}

/// The messages that a frame may still answer, post or pass on.
fn messages_held_by(frame: &Frame) -> impl Iterator<Item = &Arc<Message>> {
    let attempt = frame.attempt();
    let waits = attempt.and_then(|attempt| match &attempt.wait {
        FrameWait::Tools(round) => Some(&round.message),
        FrameWait::Ready(message) => message.as_ref(),
        FrameWait::Judge(answer) => Some(&answer.message),
        FrameWait::Next
        | FrameWait::Call(_)
        | FrameWait::Subtask(_)
        | FrameWait::Budget
        | FrameWait::Gates => None,
    });
    let unknown =
        attempt.and_then(|attempt| attempt.do_not_know.as_ref()).map(|(_, message)| message);
    let chain = frame.chain.iter().map(|answer| &answer.message);
    [frame.turn().pending.as_ref(), frame.turn().latest_user_message.as_ref(), waits, unknown]
        .into_iter()
        .flatten()
        .chain(chain)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, Parts};
    use super::*;
    use crate::room::state::responder::Responder;
    use crate::types::message::Role;

    /// Links a row of messages, each the answer to the one before.
    fn row(parts: &mut Parts, length: u64) {
        for seq in 0..length {
            let mut message = fixture::message(seq, Role::Llm, "a word");
            message.parent = seq.checked_sub(1);
            parts.histories.link(&Arc::new(message)).child = Some(seq + 1);
        }
    }

    fn linked(parts: &Parts) -> Vec<u64> {
        parts.histories.links.keys().copied().collect()
    }

    #[test]
    fn few_links_stay_and_one_more_is_cleaned_up() {
        let mut parts = Parts::new("");
        row(&mut parts, FEW as u64 - 1);
        parts.view().dialogue().forget_links();
        assert_eq!(linked(&parts).len(), FEW - 1);
        row(&mut parts, FEW as u64);
        parts.view().dialogue().forget_links();
        assert!(parts.histories.links.is_empty());
    }

    #[test]
    fn a_message_in_use_keeps_its_ancestors_and_the_chain_skips_the_dropped() {
        let mut parts = Parts::new("");
        row(&mut parts, 300);
        parts.histories.links.get_mut(&100).unwrap().place = Some(("desk".into(), 0));
        let id = parts.begin("desk", None);
        let pending = fixture::message(250, Role::Llm, "a word");
        parts.frames.get_mut(&id).unwrap().set_pending(Some(Arc::new(pending)), Responder::Llm);
        parts.view().dialogue().forget_links();
        let above = ABOVE as u64;
        let expected: Vec<u64> = (100 - above..=100).chain(250 - above..=250).collect();
        assert_eq!(linked(&parts), expected);
        assert_eq!(parts.histories.links[&99].child, Some(100));
        assert_eq!(parts.histories.links[&100].child, Some(250 - above));
        // The next cleanup is due once the number has doubled.
        assert_eq!(parts.histories.links_due, expected.len() * 2);
    }
}
