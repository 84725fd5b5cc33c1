//! Delivery: strategies decide, the room checks and performs, and keys each delivery by its task id, so that a result is spoken once
//! (R-100…R-110). No instance is held while something waits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::posting::unknown_plugin;
use super::{Purpose, Room, TimerPurpose};
use crate::config::TERMINAL;
use crate::delivery::{Activity, BackgroundStatus, Channel, Decision, DeliveryView, EndedTask, Speech, Wake};
use crate::effect::Effect;
use crate::fault::{CallReport, Fault};
use crate::grant::{DenialRecord, Layer};
use crate::ids::{BackgroundId, CallId, ChannelId, Millis, PluginName, TaskName};
use crate::manifest::Capability;
use crate::notice::Notice;
use crate::request::{Announcement, Refusal, RefusalCode, RequestId};

/// Wakes of one strategy in one room, after which it gets no more: a strategy that waits for ever would hold the room open.
const MAX_WAKES: u32 = 1_000;
/// The longest that a strategy can wait at a time.
const MAX_WAIT_MS: u64 = 60 * 60 * 1000;

/// A result that waits, or waited, to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Inbox {
    ended: EndedTask,
    notify: TaskName,
    strategy: Option<PluginName>,
    state: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Delivery {
    Waiting,
    Speaking,
    Delivered,
    /// Left for the agent's next turn, or given up.
    Kept,
}

/// A speech on its way through the gates, and on whose behalf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Saying {
    pub(super) speech: Speech,
    /// The strategy that wants it said; none: an announcement.
    pub(super) strategy: Option<PluginName>,
    /// Who asked for an announcement.
    pub(super) request: Option<RequestId>,
}

impl Room {
    pub(super) fn announce(&mut self, request: RequestId, _announcement: Announcement) {
        self.reply(request, Err(Refusal::new(RefusalCode::Busy, "not yet")));
    }

    pub(super) fn delivery_passed(&mut self, _saying: Saying) {}

    pub(super) fn delivery_blocked(&mut self, _saying: Saying, _reason: &str) {}

    /// What the strategy may see in this call of its `decide`; none when the call is not one, or is abandoned.
    #[must_use]
    pub fn delivery_view(&self, call: CallId) -> Option<DeliveryView> {
        let Purpose::Strategy { strategy } = self.calls.get(&call)? else { return None };
        Some(self.view_for(strategy))
    }

    fn view_for(&self, strategy: &PluginName) -> DeliveryView {
        let mine: Vec<&Inbox> = self.waiting(strategy).collect();
        let granted = self.setup.plugins.get(strategy).and_then(|plugin| plugin.grants.rooms.as_ref());
        let may_use = |channel: &ChannelId| granted.is_some_and(|grant| grant.channels.contains(channel));
        let channels = self.setup.channels.iter().filter(|(id, _)| may_use(id));
        DeliveryView {
            room: self.opening.room.clone(),
            now: self.now,
            waiting: mine.iter().map(|inbox| inbox.ended.clone()).collect(),
            channels: channels
                .map(|(id, kind)| Channel { id: id.clone(), kind: kind.kind, activity: Activity::Idle, muted: false })
                .collect(),
            notify: mine.first().map(|inbox| inbox.notify.clone()),
        }
    }

    fn waiting(&self, strategy: &PluginName) -> impl Iterator<Item = &Inbox> {
        self.inbox.iter().filter(move |inbox| inbox.strategy.as_ref() == Some(strategy) && inbox.state == Delivery::Waiting)
    }

    pub(super) fn put_in_inbox(&mut self, ended: EndedTask, notify: TaskName, strategy: Option<PluginName>) {
        self.inbox.push(Inbox { ended, notify, strategy, state: Delivery::Waiting });
    }

    pub(super) fn keep_in_inbox(&mut self, id: &BackgroundId, reason: &str) {
        let Some(inbox) = self.inbox.iter_mut().find(|inbox| inbox.ended.id == *id) else { return };
        inbox.state = Delivery::Kept;
        let agent = inbox.ended.agent.clone();
        self.tell(Notice::NotDelivered { id: id.clone(), agent, reason: reason.to_owned() });
    }

    pub(super) fn wake(&mut self, strategy: &PluginName, wake: Wake) {
        if self.waiting(strategy).next().is_none() {
            return;
        }
        let used = self.used_by(strategy);
        used.wakes += 1;
        if used.wakes > MAX_WAKES {
            self.keep_all(strategy, &format!("{strategy} was woken {MAX_WAKES} times"));
            return;
        }
        let call = self.next_call(Purpose::Strategy { strategy: strategy.clone() });
        self.effects.push_back(Effect::WakeStrategy { call, strategy: strategy.clone(), wake });
    }

    fn keep_all(&mut self, strategy: &PluginName, reason: &str) {
        let ids: Vec<BackgroundId> = self.waiting(strategy).map(|inbox| inbox.ended.id.clone()).collect();
        for id in ids {
            self.keep_in_inbox(&id, reason);
        }
    }

    pub(super) fn strategy_decided(&mut self, call: CallId, answer: Result<Vec<Decision>, Fault>, report: &CallReport) {
        let Some(Purpose::Strategy { strategy }) = self.calls.get(&call).cloned() else { return };
        self.end_call(call, answer.is_ok(), report);
        match answer {
            Ok(decisions) => {
                for decision in decisions {
                    self.perform(&strategy, decision);
                }
            }
            Err(fault) => {
                self.tell(Notice::PluginFaulted { call, plugin: strategy.clone(), fault: fault.clone() });
                self.keep_all(&strategy, &format!("{strategy} failed: {}", fault.message));
            }
        }
    }

    fn perform(&mut self, strategy: &PluginName, decision: Decision) {
        match decision {
            Decision::Speak { tasks, channel, prompt, interrupt } => self.speak(strategy, &tasks, channel, prompt, interrupt),
            Decision::Attach { tasks } => {
                for id in self.named(strategy, &tasks) {
                    self.keep_in_inbox(&id, "it waits in the inbox for the agent's next turn");
                }
            }
            Decision::Wait { at_most_ms, .. } => {
                self.wait(strategy, self.now.plus(at_most_ms.min(MAX_WAIT_MS)));
            }
            Decision::GiveUp { reason } => self.keep_all(strategy, &format!("{strategy} gave up: {reason}")),
        }
    }

    /// One timer for each strategy, the earliest that it asked for: a flood of waits is no more than one.
    fn wait(&mut self, strategy: &PluginName, until: Millis) {
        let later =
            |purpose: &TimerPurpose| matches!(purpose, TimerPurpose::Delivery { strategy: whose, at } if whose == strategy && *at > until);
        self.timers.retain(|_, purpose| !later(purpose));
        let waits = |purpose: &TimerPurpose| matches!(purpose, TimerPurpose::Delivery { strategy: whose, .. } if whose == strategy);
        if !self.timers.values().any(waits) {
            self.set_timer(TimerPurpose::Delivery { strategy: strategy.clone(), at: until }, until);
        }
    }

    /// A strategy waits for its time, and still has something to tell then.
    pub(super) fn is_waited_for(&self, purpose: &TimerPurpose) -> bool {
        matches!(purpose, TimerPurpose::Delivery { strategy, .. } if self.waiting(strategy).next().is_some())
    }

    /// Those of the named results that wait for this strategy; a strategy cannot speak about another's.
    fn named(&self, strategy: &PluginName, tasks: &[String]) -> Vec<BackgroundId> {
        self.waiting(strategy).map(|inbox| &inbox.ended.id).filter(|id| tasks.iter().any(|task| task == id.as_str())).cloned().collect()
    }

    fn speak(&mut self, strategy: &PluginName, tasks: &[String], channel: Option<String>, prompt: Option<String>, interrupt: bool) {
        let ids = self.named(strategy, tasks);
        if ids.is_empty() {
            return;
        }
        let channel = match self.granted_channel(strategy, channel) {
            Ok(channel) => channel,
            Err(record) => {
                let reason = record.reason.clone();
                self.denied(strategy, *record);
                for id in &ids {
                    self.keep_in_inbox(id, &reason);
                }
                return;
            }
        };
        let text = prompt.unwrap_or_else(|| self.default_text(&ids));
        for inbox in self.inbox.iter_mut().filter(|inbox| ids.contains(&inbox.ended.id)) {
            inbox.state = Delivery::Speaking;
        }
        self.used_by(strategy).speeches += 1;
        let key = ids.iter().map(BackgroundId::as_str).collect::<Vec<_>>().join("+");
        let speech = Box::new(Speech { channel, text, interrupt, key, tasks: ids.clone() });
        let call = self.next_call(Purpose::Speech { strategy: strategy.clone(), tasks: ids, speech: speech.clone() });
        self.effects.push_back(Effect::Speak { call, speech });
    }

    fn granted_channel(&mut self, strategy: &PluginName, wanted: Option<String>) -> Result<ChannelId, Box<DenialRecord>> {
        let setup = Arc::clone(&self.setup);
        let view = self.view_for(strategy);
        let target = wanted.clone().unwrap_or_else(|| "a channel".to_owned());
        let Some(rights) = setup.rights(strategy) else { return Err(unknown_plugin(strategy, Capability::Rooms, &target)) };
        let is_channel = |name: &str| setup.channels.contains_key(name);
        let found = match &wanted {
            Some(name) => rights.may_speak(name, is_channel).cloned()?,
            None => {
                let smallest = || is_channel(TERMINAL).then(|| format!("[plugins.{strategy}] grants.rooms = [\"{TERMINAL}\"]"));
                rights.require(Capability::Rooms, &target, smallest)?;
                let reason = format!("plugins.{strategy}.grants.rooms does not hold {target:?}");
                let refused = || rights.refuse(Capability::Rooms, &target, Layer::Config, &reason, smallest());
                view.transport().map(|channel| channel.id.clone()).ok_or_else(refused)?
            }
        };
        let limit = rights.grants.rooms.as_ref().and_then(|grant| grant.messages);
        if let Some(limit) = limit.filter(|limit| self.used_by(strategy).speeches >= *limit) {
            let reason = format!("plugins.{strategy}.grants.rooms.messages is {limit}");
            return Err(rights.refuse(Capability::Rooms, &target, Layer::Runtime, &reason, None));
        }
        Ok(found)
    }

    /// The host's text for the status of each result; a failure is never told as a success (R-106 done right).
    fn default_text(&self, ids: &[BackgroundId]) -> String {
        let told = self.inbox.iter().filter(|inbox| ids.contains(&inbox.ended.id)).map(|inbox| {
            let EndedTask { agent, status, output, error, .. } = &inbox.ended;
            match (status, output) {
                (BackgroundStatus::Completed, Some(output)) => output.clone(),
                (BackgroundStatus::Completed, None) => format!("The background task {agent} is done; it gave no answer."),
                _ => format!("The background task {agent} {}: {}", status.as_str(), error.as_deref().unwrap_or("no reason was given")),
            }
        });
        told.collect::<Vec<_>>().join("\n\n")
    }

    pub(super) fn spoken(&mut self, call: CallId, failure: Option<String>) {
        let Some(Purpose::Speech { strategy, tasks, speech }) = self.calls.get(&call).cloned() else { return };
        self.calls.remove(&call);
        let state = if failure.is_some() { Delivery::Waiting } else { Delivery::Delivered };
        let mut agents = Vec::new();
        for inbox in self.inbox.iter_mut().filter(|inbox| tasks.contains(&inbox.ended.id)) {
            inbox.state = state;
            agents.push((inbox.ended.id.clone(), inbox.ended.agent.clone()));
        }
        match failure {
            None => {
                for (id, agent) in agents {
                    let (channel, text) = (speech.channel.clone(), speech.text.clone());
                    self.tell(Notice::Delivered { id, agent, strategy: strategy.clone(), channel, text });
                }
            }
            Some(reason) => self.wake(&strategy, Wake::SendFailed { reason }),
        }
    }

    /// At the end of the room, nothing is left without a word.
    pub(super) fn report_undelivered(&mut self) {
        let left = |state| self.inbox.iter().filter(move |inbox| inbox.state == state).map(|inbox| inbox.ended.id.clone());
        let (waiting, speaking): (Vec<BackgroundId>, Vec<BackgroundId>) =
            (left(Delivery::Waiting).collect(), left(Delivery::Speaking).collect());
        for id in waiting {
            self.keep_in_inbox(&id, "its strategy decided nothing before the run was over");
        }
        for id in speaking {
            self.keep_in_inbox(&id, "the run was over before its channel said whether it was told");
        }
    }
}
