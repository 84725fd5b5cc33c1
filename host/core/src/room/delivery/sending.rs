//! Messages about results: the channel, the way through the gates, and the state of the results
//! afterwards. All attempts at one message have the same key, even after a crash; a channel never
//! shows it twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ROOM_CLOSED, texts};
use crate::config::TERMINAL;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::gates::has_gate;
use crate::room::messages::unknown_plugin;
use crate::room::queue_limit::QueueLimit;
use crate::room::state::gated::{GatedAct, GatedMessage};
use crate::room::{
    Background, Deliveries, Frames, Purpose, ResultDelivery, RoomChannels, RoomContext,
};
use crate::setup::GatePoint;
use crate::types::capability::Capability;
use crate::types::channel::ChannelKind;
use crate::types::delegation::{CHAIN_MAX, ResultForm};
use crate::types::delivery::{DeliveryState, EndedTask, OutgoingMessage, Wake};
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{BackgroundId, CallId, ChannelId, PluginName, TaskName};

/// Failed messages about a result, after which it is not tried again.
const MAX_ATTEMPTS: u32 = 4;
/// Bytes of a strategy's own text.
const MAX_PROMPT: usize = 64 << 10;

/// The reason why a strategy does not send to a channel.
enum NoChannel {
    Denied(Box<DenialRecord>),
    /// It may, but the channel takes no message now.
    Unavailable(String),
}

impl From<Box<DenialRecord>> for NoChannel {
    fn from(record: Box<DenialRecord>) -> Self {
        Self::Denied(record)
    }
}

impl ResultDelivery<'_> {
    pub(super) fn deliver(
        &mut self,
        strategy: &PluginName,
        tasks: &[String],
        channel: Option<String>,
        prompt: Option<&str>,
        interrupt: bool,
    ) {
        let ids = self.deliveries.waiting_ids(strategy, tasks);
        if ids.is_empty() {
            return;
        }
        if self.channels.is_closed() {
            self.deliveries.set_delivery_states(
                self.cx,
                self.background,
                &ids,
                DeliveryState::Blocked,
                ROOM_CLOSED,
            );
            return;
        }
        if let Some(prompt) = prompt.filter(|prompt| prompt.len() > MAX_PROMPT) {
            let reason = format!(
                "the words of {strategy} have {} bytes; they may have {MAX_PROMPT}",
                prompt.len()
            );
            self.move_to_inbox(&ids, &reason);
            return;
        }
        for (relay, ids) in self.group_by_recipient(&ids) {
            // Checked for each message, because every one counts against the grant.
            match self.granted_channel(strategy, channel.as_deref()) {
                Ok(channel) => {
                    self.send_about(Some(strategy), &ids, channel, relay, prompt, interrupt)
                }
                Err(NoChannel::Denied(record)) => {
                    let reason = record.reason.clone();
                    self.cx.denied(strategy, *record);
                    self.move_to_inbox(&ids, &reason);
                }
                Err(NoChannel::Unavailable(reason)) => {
                    self.count_failed_send(strategy, &ids, &format!("unavailable: {reason}"))
                }
            }
        }
    }

    /// Moves results to the inbox, where their agent reads them with its next turn.
    fn move_to_inbox(&mut self, ids: &[BackgroundId], reason: &str) {
        let (cx, background) = (&mut *self.cx, &mut *self.background);
        self.deliveries.set_delivery_states(cx, background, ids, DeliveryState::Inbox, reason);
    }

    /// Groups results into messages: one for each task whose agent takes a turn, and one for all
    /// that go to people directly.
    pub(super) fn group_by_recipient(
        &mut self,
        ids: &[BackgroundId],
    ) -> BTreeMap<Option<TaskName>, Vec<BackgroundId>> {
        let mut groups: BTreeMap<Option<TaskName>, Vec<BackgroundId>> = BTreeMap::new();
        for id in ids {
            let Some((_, entry)) = self.deliveries.entry(id) else { continue };
            let relay =
                self.channels.is_relayed(self.cx, self.frames, entry).then(|| entry.notify.clone());
            if relay.is_some() && entry.chain_depth >= CHAIN_MAX {
                // too many automatic answers in a row. The agent reads the result in a turn
                // with another cause.
                let reason = format!("chain_depth: {CHAIN_MAX} automatic answers led to it");
                self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    id,
                    DeliveryState::Inbox,
                    None,
                    Some(&reason),
                );
                continue;
            }
            groups.entry(relay).or_default().push(id.clone());
        }
        groups
    }

    /// Sends one message about results, for a strategy or for the host itself.
    pub(super) fn send_about(
        &mut self,
        strategy: Option<&PluginName>,
        ids: &[BackgroundId],
        channel: ChannelId,
        relay: Option<TaskName>,
        prompt: Option<&str>,
        interrupt: bool,
    ) {
        let entries =
            || ids.iter().filter_map(|id| self.deliveries.entry(id)).map(|(_, entry)| entry);
        let results: Vec<Arc<EndedTask>> =
            entries().map(|entry| Arc::clone(&entry.ended)).collect();
        let chain_depth = entries().map(|entry| entry.chain_depth).max().unwrap_or_default();
        let for_people = prompt
            .map_or_else(|| texts::for_people(results.iter().map(Arc::as_ref)), str::to_owned);
        let (text, otherwise) = match &relay {
            Some(_) => (
                texts::data_for_turn(results.iter().map(Arc::as_ref), strategy, prompt),
                Some(for_people),
            ),
            None => (for_people, None),
        };
        // Set before the gates are asked, because without gates the message passes at once.
        ids.iter().for_each(|id| {
            self.deliveries.set_delivery_state(
                self.cx,
                self.background,
                id,
                DeliveryState::Delivering,
                Some(&channel),
                None,
            )
        });
        // Counted when it is sent, whether or not it arrives: the grant limits attempts.
        if let Some(strategy) = strategy {
            self.budgets.used_by(strategy).messages_sent += 1;
        }
        // The key depends on the results only, so a retry has the same one.
        let key = ids.iter().map(BackgroundId::as_str).collect::<Vec<_>>().join("+");
        let outgoing = OutgoingMessage { channel, text, interrupt, key, tasks: ids.to_vec() };
        let gated = GatedMessage {
            outgoing,
            strategy: strategy.cloned(),
            request: None,
            relay,
            chain_depth,
            otherwise,
        };
        self.send_through_gates(gated);
    }

    fn granted_channel(
        &mut self,
        strategy: &PluginName,
        channel: Option<&str>,
    ) -> Result<ChannelId, NoChannel> {
        let setup = Arc::clone(&self.cx.setup);
        let target = channel.unwrap_or("a channel");
        let Some(rights) = setup.rights(strategy) else {
            return Err(unknown_plugin(strategy, Capability::Channels, target).into());
        };
        let is_channel = |name: &str| {
            setup.channels.contains_key(name) || self.channels.bound().contains_key(name)
        };
        let found = match channel {
            Some(name) => rights.may_send(name, is_channel).cloned()?,
            None => {
                let smallest = || {
                    is_channel(TERMINAL)
                        .then(|| format!("[plugins.{strategy}] grants.channels = [\"{TERMINAL}\"]"))
                };
                rights.require(Capability::Channels, target, smallest)?;
                // Without a requested channel, a channel to people that is not muted is chosen.
                let channels =
                    self.deliveries.channels_of(self.cx, self.frames, self.channels, strategy);
                let view = crate::types::delivery::DeliveryView { channels, ..empty_view(self.cx) };
                match view.preferred_channel() {
                    Some(channel) => channel.id.clone(),
                    None if view
                        .channels
                        .iter()
                        .any(|channel| channel.kind != ChannelKind::Agent) =>
                    {
                        return Err(NoChannel::Unavailable(
                            "every channel that it may speak on is muted".to_owned(),
                        ));
                    }
                    None => {
                        let reason = format!(
                            "plugins.{strategy}.grants.channels does not contain {target:?}"
                        );
                        return Err(rights
                            .refuse(
                                Capability::Channels,
                                target,
                                Layer::Config,
                                &reason,
                                smallest(),
                            )
                            .into());
                    }
                }
            }
        };
        let limit = rights.grants.channels.as_ref().and_then(|grant| grant.messages);
        if let Some(limit) =
            limit.filter(|limit| self.budgets.used_by(strategy).messages_sent >= *limit)
        {
            let reason = format!("plugins.{strategy}.grants.channels.messages is {limit}");
            return Err(rights
                .refuse(Capability::Channels, target, Layer::Runtime, &reason, None)
                .into());
        }
        self.channels.check_reachable(&found).map_err(NoChannel::Unavailable)?;
        Ok(found)
    }

    /// Delivers a message, after the gates have checked it.
    pub(in crate::room) fn send_through_gates(&mut self, gated: GatedMessage) {
        if has_gate(self.cx, GatePoint::Deliver) {
            self.gate_checks().wait_for_gates(GatedAct::Delivery { gated: Box::new(gated) });
        } else {
            self.delivery_passed(gated);
        }
    }

    pub(in crate::room) fn delivery_passed(&mut self, gated: GatedMessage) {
        if self.channels.is_closed() {
            self.deliveries.delivery_blocked(self.cx, self.background, gated, ROOM_CLOSED);
            return;
        }
        match &gated.relay {
            // The recipient is determined after the current event, because a turn must not begin
            // inside it.
            Some(task) => {
                let relays = self.deliveries.relays.entry(task.clone()).or_default();
                let weights = relays.iter().map(GatedMessage::weight);
                let Some(limit) = QueueLimit::exceeded_by(weights.chain([gated.weight()])) else {
                    relays.push(gated);
                    return;
                };
                let waiting = format!("wait for a turn of {task}");
                let reason = format!("agent_busy: {}", limit.reason("messages", &waiting));
                self.deliveries.relay_refused(self.cx, self.background, &gated, &reason);
            }
            None => self.put_on_channel(gated),
        }
    }

    fn put_on_channel(&mut self, gated: GatedMessage) {
        // Checked again: the channel may have changed while gates checked the message.
        if let Err(reason) = self.channels.check_reachable(&gated.outgoing.channel) {
            self.send_failed(gated, &format!("unavailable: {reason}"));
            return;
        }
        *self.deliveries.delivering.entry(gated.outgoing.channel.clone()).or_default() += 1;
        let outgoing = Box::new(gated.outgoing.clone());
        let call = self.cx.next_call(Purpose::Send { gated: Box::new(gated) });
        self.cx.effects.push_back(Effect::Send { call, message: outgoing });
    }

    /// Takes a channel's response to a message about results. With `unknown`, the channel may have
    /// accepted it in spite of the failure.
    pub(in crate::room) fn spoken(&mut self, call: CallId, failure: Option<String>, unknown: bool) {
        let Some(Purpose::Send { gated }) = self.cx.calls.get(&call) else { return };
        let gated = GatedMessage::clone(gated);
        self.cx.calls.remove(&call);
        if let Some(unanswered) = self.deliveries.delivering.get_mut(&gated.outgoing.channel) {
            *unanswered = unanswered.saturating_sub(1);
            if *unanswered == 0 {
                self.deliveries.delivering.remove(&gated.outgoing.channel);
            }
        }
        match failure {
            None => self.deliveries.send_succeeded(self.cx, self.background, &gated),
            Some(reason) if unknown => self.send_lost(&gated, &reason),
            Some(reason) => self.send_failed(gated, &reason),
        }
    }

    /// Makes the results of a message with an unknown outcome dead letters: a strategy must not
    /// repeat what people may have read.
    fn send_lost(&mut self, gated: &GatedMessage, reason: &str) {
        for id in &gated.outgoing.tasks {
            let Some(entry) = self.deliveries.entry_mut(id) else { continue };
            let ended = Arc::make_mut(&mut entry.ended);
            ended.attempts = ended.attempts.saturating_add(1);
        }
        let (cx, background) = (&mut *self.cx, &mut *self.background);
        let (tasks, state) = (&gated.outgoing.tasks, DeliveryState::DeadLetter);
        self.deliveries.set_delivery_states(cx, background, tasks, state, reason);
        self.deliveries.announcement_failed(self.cx, gated, reason);
    }

    fn send_failed(&mut self, gated: GatedMessage, reason: &str) {
        match &gated.strategy {
            Some(strategy) => self.count_failed_send(strategy, &gated.outgoing.tasks, reason),
            // The host tries once: the channel has no strategy that would know a better time.
            None => self.move_to_inbox(&gated.outgoing.tasks, reason),
        }
        self.deliveries.announcement_failed(self.cx, &gated, reason);
    }

    /// Counts a failed message. The strategy may try again a few times; then the result is a dead
    /// letter.
    fn count_failed_send(&mut self, strategy: &PluginName, ids: &[BackgroundId], reason: &str) {
        for id in ids {
            let Some(entry) = self.deliveries.entry_mut(id) else { continue };
            let ended = Arc::make_mut(&mut entry.ended);
            ended.attempts = ended.attempts.saturating_add(1);
            if ended.attempts >= MAX_ATTEMPTS {
                let reason = format!("it was tried {MAX_ATTEMPTS} times; the last time: {reason}");
                self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    id,
                    DeliveryState::DeadLetter,
                    None,
                    Some(&reason),
                );
            } else {
                self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    id,
                    DeliveryState::Waiting,
                    None,
                    Some(reason),
                );
            }
        }
        self.wake(strategy, Wake::SendFailed { reason: reason.to_owned() });
    }
}

impl RoomChannels {
    /// Whether the notified task's agent takes a turn about the result: by its setting, and if the
    /// task can be active.
    fn is_relayed(&self, cx: &RoomContext, frames: &Frames, entry: &super::QueuedResult) -> bool {
        let of_task =
            || cx.setup.tasks.get(&entry.ended.worker).and_then(|task| task.result_delivery);
        let is_interactive =
            || cx.setup.tasks.get(&entry.notify).is_some_and(|task| task.interactive);
        // An agent without a model would only pass the data on.
        let can_answer = || has_model(cx, &entry.notify);
        let usual = || {
            if (is_interactive() && can_answer()) || self.is_persistent(cx) {
                ResultForm::AgentTurn
            } else {
                ResultForm::Text
            }
        };
        entry.result_delivery.or_else(of_task).unwrap_or_else(usual) == ResultForm::AgentTurn
            && self.can_take_turn(cx, frames, &entry.notify)
    }

    /// Checks that the channel accepts messages now.
    pub(super) fn check_reachable(&self, channel: &ChannelId) -> Result<(), String> {
        match self.bound().get(channel) {
            None => Err(format!("the room has no channel {channel}")),
            Some(binding) if !binding.kind.is_for_people() => {
                Err(format!("{channel} is an agent's channel, which leads to no person"))
            }
            Some(binding) if !binding.access.may_read() => {
                Err(format!("{channel} accepts no messages in this room"))
            }
            Some(binding) if binding.muted => Err(format!("{channel} is muted")),
            Some(_) => Ok(()),
        }
    }
}

fn has_model(cx: &RoomContext, task: &TaskName) -> bool {
    let agent = cx.setup.tasks.get(task).and_then(|task| cx.setup.plugins.get(&task.agent));
    agent.is_some_and(|agent| agent.grants.model.is_some())
}

fn empty_view(cx: &RoomContext) -> crate::types::delivery::DeliveryView {
    let room = cx.opening.room.clone();
    crate::types::delivery::DeliveryView {
        room,
        now: cx.now,
        pending_results: Vec::new(),
        channels: Vec::new(),
        notified_task: None,
    }
}

impl Deliveries {
    /// Blocks the results of a message that a gate or a closed room held back. It is not tried
    /// again.
    pub(in crate::room) fn delivery_blocked(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        gated: GatedMessage,
        reason: &str,
    ) {
        self.set_delivery_states(
            cx,
            background,
            &gated.outgoing.tasks,
            DeliveryState::Blocked,
            reason,
        );
        self.announcement_blocked(cx, &gated, reason);
    }

    /// Moves the results of a message that its agent has no place for to the inbox. A client may
    /// announce it again.
    fn relay_refused(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        gated: &GatedMessage,
        reason: &str,
    ) {
        self.set_delivery_states(
            cx,
            background,
            &gated.outgoing.tasks,
            DeliveryState::Inbox,
            reason,
        );
        self.announcement_failed(cx, gated, reason);
    }

    /// Moves the results of a message to the inbox after a stop of the run.
    pub(in crate::room) fn delivery_interrupted(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        gated: GatedMessage,
        reason: &str,
    ) {
        self.set_delivery_states(
            cx,
            background,
            &gated.outgoing.tasks,
            DeliveryState::Inbox,
            reason,
        );
        self.announcement_interrupted(cx, &gated, reason);
    }

    fn send_succeeded(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        gated: &GatedMessage,
    ) {
        let OutgoingMessage { channel, text, tasks, .. } = &gated.outgoing;
        for id in tasks {
            let Some(entry) = self.entry_mut(id) else { continue };
            let agent = entry.ended.worker.clone();
            // Set before the state: a result that was posted stays for its agent to read.
            entry.posted = Some(channel.clone());
            self.set_delivery_state(
                cx,
                background,
                id,
                DeliveryState::Delivered,
                Some(channel),
                None,
            );
            cx.notify(Notice::Delivered {
                id: id.clone(),
                worker: agent,
                strategy: gated.strategy.clone(),
                channel: channel.clone(),
                text: text.clone(),
            });
        }
        self.announcement_delivered(cx, gated);
    }
}
