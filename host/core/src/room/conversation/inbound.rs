//! The path of an inbound message, in order: the checks of room, channel, rate, repetition
//! and chain depth, then the gates. A message that passes gets a number, is reported on the other
//! channels, and goes to an agent.

use super::limits::Bucket;
use crate::protocol::notice::Notice;
use crate::room::gates::has_gate;
use crate::room::pausing::{UserMessage, active_frame};
use crate::room::state::gated::GatedAct;
use crate::room::{Frames, Room, RoomChannels, RoomContext, RoomPhase};
use crate::setup::GatePoint;
use crate::types::channel::Binding;
use crate::types::ids::TaskName;
use crate::types::request::{Inbound, Refusal, RefusalCode, RequestId, RequestReply, check_key};

/// Automatic answers that may follow one another. Two programs that answer each other would never
/// end.
const CHAIN_DEPTH_MAX: u32 = 5;

impl Room {
    pub(in crate::room) fn inbound(&mut self, request: RequestId, inbound: Inbound) {
        // Invalid messages do not count towards the rate, but repeated ones do.
        if let Err(refusal) = self
            .check_inbound(&inbound)
            .and_then(|()| self.channels.count_message(&self.cx, &inbound))
        {
            self.channels.refuse_inbound(&mut self.cx, request, &inbound, refusal);
            return;
        }
        // Before the chain depth: a repeated message gets the answer of the first one.
        if let Some(key) = &inbound.key {
            if self.channels.seen.has_other(key, &inbound) {
                let message = "the key is that of another message; a new message needs a new key";
                let refusal = Refusal::new(RefusalCode::KeyReused, message);
                self.channels.refuse_inbound(&mut self.cx, request, &inbound, refusal);
                return;
            }
            if let Some(index) = self.channels.seen.get(key) {
                self.cx.reply(request, Ok(RequestReply::Accepted { index, duplicate: true }));
                return;
            }
            if let Some(others) = self.channels.arriving.get_mut(key) {
                // The first copy is at the gates; its outcome applies to both.
                others.push(request);
                return;
            }
        }
        if let Some(reason) = &inbound.over_budget {
            let refusal = Refusal::new(RefusalCode::BudgetUsedUp, reason.as_str());
            self.channels.refuse_inbound(&mut self.cx, request, &inbound, refusal);
            return;
        }
        if inbound.chain_depth >= CHAIN_DEPTH_MAX {
            let message = format!(
                "{CHAIN_DEPTH_MAX} automatic answers led to this one, and no more than that may follow one another"
            );
            self.channels.refuse_inbound(
                &mut self.cx,
                request,
                &inbound,
                Refusal::new(RefusalCode::ChainDepth, message),
            );
            return;
        }
        // Registered before the gates are asked, so that a repeated message finds it.
        if let Some(key) = &inbound.key {
            self.channels.arriving.insert(key.clone(), Vec::new());
            self.channels.seen.note(key.clone(), &inbound);
        }
        if !has_gate(&self.cx, GatePoint::Inbound) {
            self.inbound_passed(request, inbound);
        } else if let Some(reason) = self.gating.full_lane(&inbound) {
            self.channels.inbound_blocked(&mut self.cx, request, inbound, &reason);
        } else {
            self.gate_checks()
                .wait_for_gates(GatedAct::Inbound { request, inbound: Box::new(inbound) });
        }
    }

    /// Checks that the room takes the message, that its channel may send it, and that it has
    /// content and a recipient.
    fn check_inbound(&self, inbound: &Inbound) -> Result<(), Refusal> {
        self.channels.check_is_open(&self.cx)?;
        if let Some(reason) = self.full_queue(inbound.weight()) {
            let message = format!("{reason}; the room takes no more until agents have read some");
            return Err(Refusal::new(RefusalCode::Busy, message));
        }
        let binding = self.channels.binding_of(inbound)?;
        if !binding.access.may_write() {
            let message = format!(
                "nothing may come in from the channel {}: it has not the access to write",
                inbound.channel
            );
            return Err(Refusal::new(RefusalCode::NoAccess, message));
        }
        if inbound.text.trim().is_empty() && inbound.attachments.is_empty() {
            return Err(Refusal::new(RefusalCode::BadArguments, "the message is empty"));
        }
        check_key(inbound.key.as_ref(), "a message")?;
        inbound
            .to
            .as_ref()
            .map_or(Ok(()), |task| self.channels.can_hear(&self.cx, &self.frames, task))
    }

    /// Accepts a message: numbers it, reports it on the other channels, and passes it to an agent.
    pub(in crate::room) fn inbound_passed(&mut self, request: RequestId, inbound: Inbound) {
        // The gates took time, in which the room may have closed or the channel changed.
        if let Err(refusal) = self.check_inbound(&inbound) {
            self.channels.refuse_arrived(&mut self.cx, request, &inbound, &refusal);
            return;
        }
        let index = self.channels.next_index;
        self.channels.next_index += 1;
        let others = self.channels.end_arrival(&inbound);
        if let Some(key) = &inbound.key {
            self.channels.seen.insert(&inbound.channel, key.clone(), index);
        }
        let (channel, sender, text) =
            (inbound.channel.clone(), inbound.sender.clone(), inbound.text.clone());
        self.cx.notify(Notice::Inbound { index, channel, sender, text });
        self.cx.reply(request, Ok(RequestReply::Accepted { index, duplicate: false }));
        others.into_iter().for_each(|other| {
            self.cx.reply(other, Ok(RequestReply::Accepted { index, duplicate: true }))
        });
        self.channels.report_other_channels(&mut self.cx, index, &inbound);
        self.route_inbound(inbound);
    }

    /// Passes the message to the task that answers it, now or in a later turn.
    fn route_inbound(&mut self, inbound: Inbound) {
        let Some(binding) = self.channels.bindings.get(&inbound.channel) else { return };
        // an agent's message goes to another agent only if it is addressed.
        if inbound.to.is_none() && !binding.kind.is_for_people() {
            return;
        }
        let task = inbound.to.clone().unwrap_or_else(|| {
            self.handoffs.active_task(&self.cx, &self.frames, &self.channels).clone()
        });
        if !binding.visibility.is_for_task(&task) {
            return;
        }
        self.queue_or_begin_turn(UserMessage {
            task,
            text: inbound.text,
            attachments: inbound.attachments,
            chain_depth: inbound.chain_depth,
        });
    }
}

impl RoomChannels {
    fn check_is_open(&self, cx: &RoomContext) -> Result<(), Refusal> {
        let closed = |why: &str| {
            Err(Refusal::new(
                RefusalCode::RoomClosed,
                format!("the room takes nothing any more: {why}"),
            ))
        };
        match (&self.closed, &cx.phase) {
            (Some(reason), _) => closed(reason),
            (None, RoomPhase::Running { .. }) => Ok(()),
            (None, RoomPhase::Draining { .. }) if self.is_persistent(cx) => Ok(()),
            (None, _) => closed("its run has its result already"),
        }
    }

    fn binding_of(&self, inbound: &Inbound) -> Result<&Binding, Refusal> {
        self.bindings.get(&inbound.channel).ok_or_else(|| self.unknown_channel(&inbound.channel))
    }

    /// Checks that a named task is at work, or can begin.
    fn can_hear(&self, cx: &RoomContext, frames: &Frames, task: &TaskName) -> Result<(), Refusal> {
        let is_known = cx.setup.tasks.contains_key(task);
        if active_frame(frames, task).is_some() || (is_known && self.is_persistent(cx)) {
            return Ok(());
        }
        let (message, allowed) = if self.is_persistent(cx) {
            (
                format!("there is no task {task} in this room"),
                cx.setup.tasks.keys().map(ToString::to_string).collect(),
            )
        } else {
            let at_work = frames.values().map(|frame| frame.task.to_string()).collect();
            (
                format!(
                    "no task {task} is at work in this room, and the run begins none for a message"
                ),
                at_work,
            )
        };
        Err(Refusal { error: RefusalCode::UnknownAgent, message, allowed })
    }

    /// Takes one message from the channel's rate bucket.
    fn count_message(&mut self, cx: &RoomContext, inbound: &Inbound) -> Result<(), Refusal> {
        let now = cx.now;
        let channel = &inbound.channel;
        let Some(rate) = self.bindings.get(channel).and_then(|binding| binding.rate) else {
            return Ok(());
        };
        let bucket = self.buckets.entry(channel.clone()).or_insert_with(|| Bucket::full(rate, now));
        if bucket.take(rate, now) {
            bucket.is_empty = false;
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCode::RateLimited,
            format!("the channel {channel} may say {rate} a second (channels.{channel}.rate)"),
        ))
    }

    fn refuse_inbound(
        &mut self,
        cx: &mut RoomContext,
        request: RequestId,
        inbound: &Inbound,
        refusal: Refusal,
    ) {
        if !self.was_flood_reported(inbound, refusal.error) {
            let (channel, sender) = (inbound.channel.clone(), inbound.sender.clone());
            cx.notify(Notice::InboundRefused {
                channel,
                sender,
                error: refusal.error,
                reason: refusal.message.clone(),
            });
        }
        cx.reply(request, Err(refusal));
    }

    /// Whether a refused message belongs to a flood that was already reported.
    fn was_flood_reported(&mut self, inbound: &Inbound, error: RefusalCode) -> bool {
        let bucket =
            self.buckets.get_mut(&inbound.channel).filter(|_| error == RefusalCode::RateLimited);
        bucket.is_some_and(|bucket| std::mem::replace(&mut bucket.is_empty, true))
    }

    pub(in crate::room) fn inbound_blocked(
        &mut self,
        cx: &mut RoomContext,
        request: RequestId,
        inbound: Inbound,
        reason: &str,
    ) {
        self.refuse_arrived(cx, request, &inbound, &Refusal::new(RefusalCode::Blocked, reason));
    }

    /// Refuses a message after the gates, along with its repeated copies.
    fn refuse_arrived(
        &mut self,
        cx: &mut RoomContext,
        request: RequestId,
        inbound: &Inbound,
        refusal: &Refusal,
    ) {
        let others = self.end_arrival(inbound);
        // It was not accepted, so a later message may have its key.
        if let Some(key) = &inbound.key {
            self.seen.forget(key);
        }
        self.refuse_inbound(cx, request, inbound, refusal.clone());
        others.into_iter().for_each(|other| cx.reply(other, Err(refusal.clone())));
    }

    fn end_arrival(&mut self, inbound: &Inbound) -> Vec<RequestId> {
        inbound.key.as_ref().and_then(|key| self.arriving.remove(key)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{Parts, context};
    use std::sync::Arc;

    use super::*;
    use crate::types::outcome::{Outcome, Status};

    fn channels(binding: Binding) -> RoomChannels {
        let bindings = Arc::new([("phone".into(), binding)].into());
        RoomChannels { bindings, ..RoomChannels::default() }
    }

    #[test]
    fn a_flood_is_refused_and_reported_once_until_the_channel_is_quiet_again() {
        let mut cx = context("");
        let mut channels = channels(Binding { rate: Some(2), ..Binding::default() });
        let inbound = Inbound::new("phone", "hello");
        let mut send = |now| {
            cx.now = crate::types::ids::Millis(now);
            let counted = channels.count_message(&cx, &inbound);
            let refusal = counted.err();
            let code = refusal.as_ref().map(|refusal| refusal.error);
            if let Some(refusal) = refusal {
                channels.refuse_inbound(&mut cx, RequestId(0), &inbound, refusal);
            }
            (code, cx.take_notices().len(), cx.take_replies().len())
        };
        let flood = Some(RefusalCode::RateLimited);
        let sent = [1_000, 1_000, 1_000, 1_000, 1_500, 1_500].map(&mut send);
        assert_eq!(sent[..2], [(None, 0, 0); 2]);
        assert_eq!(sent[2..4], [(flood, 1, 1), (flood, 0, 1)], "each gets a reply");
        assert_eq!(sent[4..], [(None, 0, 0), (flood, 1, 1)]);
    }

    #[test]
    fn a_channel_without_a_rate_is_not_counted() {
        let mut channels = channels(Binding::default());
        for name in ["phone", "stranger"] {
            let counted = channels.count_message(&context(""), &Inbound::new(name, "hello"));
            assert_eq!(counted, Ok(()));
        }
        assert!(channels.buckets.is_empty());
    }

    #[test]
    fn messages_come_in_while_a_task_is_at_work_or_can_begin() {
        let mut cx = context("");
        let channels = channels(Binding::default());
        let takes = |channels: &RoomChannels, cx: &RoomContext| channels.check_is_open(cx).is_ok();
        assert!(takes(&channels, &cx));
        cx.phase = RoomPhase::Draining { outcome: Outcome::new(Status::Done, "").into() };
        assert!(!takes(&channels, &cx));
        cx.opening.persistent = true;
        assert!(takes(&channels, &cx), "a persistent room begins a turn");
        assert!(!takes(&RoomChannels { closed: Some("late".to_owned()), ..channels }, &cx));
    }

    #[test]
    fn a_named_task_hears_at_work_or_in_a_persistent_room_that_knows_it() {
        let mut parts = Parts::new("");
        parts.begin("desk", None);
        let allowed = |parts: &Parts, task: &str| {
            let result = parts.channels.can_hear(&parts.cx, &parts.frames, &task.into());
            result.map_err(|refusal| refusal.allowed.len())
        };
        let hearers = |parts: &Parts| ["desk", "digest", "stranger"].map(|it| allowed(parts, it));
        assert_eq!(hearers(&parts), [Ok(()), Err(1), Err(1)], "the one at work is named");
        parts.cx.opening.persistent = true;
        assert_eq!(hearers(&parts), [Ok(()), Ok(()), Err(2)]);
    }

    #[test]
    fn a_message_turned_away_takes_its_copies_along() {
        let mut cx = context("");
        let mut channels = channels(Binding::default());
        let inbound = Inbound { key: Some("a".to_owned()), ..Inbound::new("phone", "hello") };
        channels.arriving.insert("a".to_owned(), vec![RequestId(2), RequestId(3)]);
        channels.arriving.insert("b".to_owned(), vec![RequestId(4)]);
        channels.inbound_blocked(&mut cx, RequestId(1), inbound, "no");
        let refused: Vec<_> = cx
            .take_replies()
            .into_iter()
            .map(|(request, reply)| (request, reply.unwrap_err().error))
            .collect();
        let blocked = RefusalCode::Blocked;
        assert_eq!(refused, [(1, blocked), (2, blocked), (3, blocked)]);
        assert_eq!(cx.take_notices().len(), 1, "it is one message");
        assert_eq!(channels.arriving.keys().collect::<Vec<_>>(), ["b"]);
    }
}
