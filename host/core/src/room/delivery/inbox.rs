//! The inbox: results for the agent of the notified task, undelivered ones and those that were
//! posted to people. The agent reads them once, right before its next step, as one fenced message in its history (R-050…R-055 done right). Its
//! system text never grows.

use std::sync::Arc;

use serde_json::json;

use super::texts;
use crate::protocol::notice::Notice;
use crate::room::{Dialogue, Invariant, StepLoop};
use crate::types::action::{Observation, PastAction};
use crate::types::delivery::{DeliveryState, EndedTask};
use crate::types::ids::{BackgroundId, ChannelId, FrameId};
use crate::types::message::{Label, Message, Role};

/// Sender name of such a message.
const HOST: &str = "host";

/// Whether the message is data that the host put to an agent only.
pub(in crate::room) fn is_data(message: &Message) -> bool {
    message.sender == Role::Agent
        && message.sender_name == HOST
        && message.labels.contains(&Label::Untrusted)
}

/// Results that an agent reads at once; the others come with its next step.
const AT_ONCE: usize = 100;

impl StepLoop<'_> {
    /// Writes the results in the inbox to the history, right before an agent's step.
    pub(in crate::room) fn read_inbox(&mut self, id: FrameId) {
        if self.deliveries.is_new() {
            return;
        }
        self.read_relayed_messages(id);
        let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let Some(numbers) = self.deliveries.inbox.get(&task) else { return };
        let results: Vec<(Arc<EndedTask>, Option<ChannelId>)> = numbers
            .iter()
            .filter_map(|number| self.deliveries.results.get(number))
            .map(|entry| (Arc::clone(&entry.ended), entry.posted.clone()))
            .take(AT_ONCE)
            .collect();
        let ids: Vec<BackgroundId> = results.iter().map(|(ended, _)| ended.id.clone()).collect();
        let text = texts::for_inbox(&results);
        self.dialogue().read_data(id, text, &ids);
        ids.iter().for_each(|id| {
            self.deliveries.set_delivery_state(
                self.cx,
                self.background,
                id,
                DeliveryState::Read,
                None,
                None,
            )
        });
        self.cx.notify(Notice::ResultsRead { task, ids });
    }
}

impl Dialogue<'_> {
    /// Writes the host's data to an agent's history. It answers no call, and counts as no
    /// responder's message.
    pub(super) fn read_data(
        &mut self,
        id: FrameId,
        text: String,
        ids: &[BackgroundId],
    ) -> Option<Arc<Message>> {
        let task = self.frames.get(&id)?.task.clone();
        let user_message =
            self.cx.setup.tasks.get(&task).and_then(|setup| setup.user_message.clone());
        self.histories.begin_history(self.cx, &task, user_message);
        let mut message = self.cx.stamp(Role::Agent, HOST);
        message.content = Some(text.clone());
        message.labels.push(Label::Untrusted);
        let message = Arc::new(message);
        let place = self.histories.memory(self.cx, &task).push(&message);
        self.histories.link(&message).place = Some((task, place));
        let observation = Observation::Custom {
            name: "background".to_owned(),
            content: text,
            extras: json!({ "tasks": ids }),
        };
        self.frames.remember_unsolicited(
            self.cx,
            id,
            PastAction { action: None, observation: Some(observation), seq: message.seq },
        );
        Some(message)
    }
}
