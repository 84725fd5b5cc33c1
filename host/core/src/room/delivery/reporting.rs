//! The host's own reports: results that no strategy delivers. While the notified agent is at work,
//! such a result waits in the inbox, and the agent reads it in its next step. Once the agent waits
//! for its user, or is done, nothing else would make it read: the host then reports the result on
//! the room's own channel, in the form that a strategy's message would have.

use std::sync::Arc;

use super::relay::RelayTarget;
use super::{Deliveries, QueuedResult, Room};
use crate::room::ResultDelivery;
use crate::types::channel::Activity;
use crate::types::delivery::{DeliveryState, Wake};
use crate::types::ids::{BackgroundId, TaskName};
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply};

impl Deliveries {
    /// The tasks with results that the host is to report.
    fn tasks_to_report_to(&self) -> Vec<TaskName> {
        let reports = |number: &u64| self.results.get(number).is_some_and(|it| it.host_reports);
        let tasks = self.inbox.iter().filter(|(_, numbers)| numbers.iter().any(reports));
        tasks.map(|(task, _)| task.clone()).collect()
    }

    /// Takes the results for a task that the host is to report, oldest first. Each is reported
    /// once.
    fn take_reports(&mut self, task: &TaskName) -> Vec<BackgroundId> {
        let numbers = self.inbox.get(task).cloned().unwrap_or_default();
        let mut ids = Vec::new();
        for number in numbers {
            let entry = self.results.get_mut(&number);
            if let Some(entry) = entry.filter(|entry| entry.host_reports) {
                entry.host_reports = false;
                ids.push(entry.ended.id.clone());
            }
        }
        ids
    }
}

impl Room {
    /// Runs after each event: reports the results whose notified agent is not at work.
    pub(super) fn report_results(&mut self) {
        let tasks = self.deliveries.tasks_to_report_to();
        // A user who is speaking is not interrupted; the end of it is an event.
        let is_speaking = || self.activity_of(&self.cx.opening.channel) == Activity::UserSpeaking;
        if tasks.is_empty() || is_speaking() {
            return;
        }
        for task in tasks {
            match self.relay_target(&task) {
                RelayTarget::Beginning(_) | RelayTarget::Later => {}
                RelayTarget::Asking(..) | RelayTarget::Held | RelayTarget::Nobody => {
                    self.result_delivery().report_to(&task)
                }
            }
        }
    }
}

impl ResultDelivery<'_> {
    pub(in crate::room) fn redeliver_on_request(&mut self, request: RequestId, id: &BackgroundId) {
        let reply = self.redeliver(id).map(|()| RequestReply::Done);
        self.cx.reply(request, reply);
    }

    /// Puts an undelivered result back to its strategy, or to the host's own reports.
    fn redeliver(&mut self, id: &BackgroundId) -> Result<(), Refusal> {
        let is_undelivered = |entry: &&mut QueuedResult| {
            let is_waiting =
                matches!(entry.state, DeliveryState::Inbox | DeliveryState::DeadLetter);
            is_waiting && entry.posted.is_none()
        };
        let entry = self.deliveries.entry_mut(id).filter(is_undelivered).ok_or_else(|| {
            let message = format!("no result of {id} waits in the inbox or is a dead letter");
            Refusal::new(RefusalCode::UnknownTask, message)
        })?;
        // The operator's decision allows as many attempts as the first time.
        Arc::make_mut(&mut entry.ended).attempts = 0;
        let Some(strategy) = entry.strategy.clone() else {
            entry.host_reports = true;
            return Ok(());
        };
        let (cx, background) = (&mut *self.cx, &mut *self.background);
        let waiting = DeliveryState::Waiting;
        self.deliveries.set_delivery_state(cx, background, id, waiting, None, None);
        self.wake(&strategy, Wake::Ended { task: id.clone() });
        Ok(())
    }

    fn report_to(&mut self, task: &TaskName) {
        let ids = self.deliveries.take_reports(task);
        let channel = self.cx.opening.channel.clone();
        for (relay, ids) in self.group_by_recipient(&ids) {
            let unreachable = match &relay {
                _ if self.was_stopped() => Some("the run was over".to_owned()),
                Some(_) => None,
                None => self.channels.check_reachable(&channel).err(),
            };
            match unreachable {
                None => self.send_about(None, &ids, channel.clone(), relay, None, false),
                Some(reason) => ids.iter().for_each(|id| {
                    let (cx, background) = (&mut *self.cx, &mut *self.background);
                    let (inbox, reason) = (DeliveryState::Inbox, Some(reason.as_str()));
                    self.deliveries.set_delivery_state(cx, background, id, inbox, None, reason)
                }),
            }
        }
    }
}
