//! Runs in a room, one after the other: their openings, the state that they inherit, and the
//! changes allowed in between (L-050, L-051).

use std::sync::Arc;

use super::lifecycle::{opens_idle, wait_for_messages};
use super::prompt_agent::with_message;
use super::state::closing::FrameEnd;
use super::state::responder::Responder;
use super::{Histories, Room, RoomContext, RoomPhase, TimerPurpose};
use crate::protocol::event::{HistoryChange, RunOpening};
use crate::setup::Setup;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Label, Message, Role};
use crate::types::outcome::Status;
use crate::types::room_secret::RoomSecret;
use crate::types::usage::Spent;

impl Room {
    pub(super) fn open(&mut self, setup: Arc<Setup>, opening: RunOpening, secret: RoomSecret) {
        if self.cx.phase != RoomPhase::Unopened {
            return;
        }
        (self.cx.setup, self.cx.secret) = (setup, Some(secret));
        self.histories.count_histories(&self.cx);
        self.channels.open(&opening, Some(&Arc::clone(&self.cx.setup).channels));
        self.begin_run(opening);
    }

    /// Starts another run after the previous one. Histories stay; the run's limits start anew.
    pub(super) fn start_run(&mut self, setup: Option<Arc<Setup>>, opening: RunOpening) {
        if !matches!(self.cx.phase, RoomPhase::Finished { .. }) || self.cx.end_if_broken() {
            return;
        }
        let is_new = setup.is_some();
        // Each run begins with what is effective then.
        (self.cx.initial_setup, self.cx.initial_limits) = (None, None);
        if let Some(setup) = setup {
            self.cx.setup = setup;
            // A toolbox that changed during the last run belongs to the old setup.
            self.histories.memories.values_mut().for_each(|memory| memory.toolbox = None);
            self.forget_removed_tasks();
            self.histories.count_histories(&self.cx);
        }
        (self.budgets.spent, self.budgets.reserved) = (Spent::default(), Spent::default());
        self.models.unpriced.clear();
        let of_setup = is_new.then(|| Arc::clone(&self.cx.setup));
        self.channels.open(&opening, of_setup.as_ref().map(|setup| &setup.channels));
        self.begin_run(opening);
    }

    /// Drops the data of tasks that the new setup does not have. Loop counts and stuck detection
    /// are data of frames, and end with them.
    fn forget_removed_tasks(&mut self) {
        // A room whose config changes often would otherwise collect the data of all tasks that it
        // ever had.
        self.histories.forget_removed_tasks(&self.cx);
        self.agent_states.forget_removed_tasks(&self.cx);
        self.scratch.forget_removed_owners(&self.cx);
        self.deliveries.block_for_removed_tasks(&mut self.cx, &mut self.background);
    }

    fn begin_run(&mut self, opening: RunOpening) {
        self.cx.opened = self.cx.now;
        self.cx.idle_steps = 0;
        let opens_idle = opens_idle(&opening);
        // In a room that opens idle, each turn sets its own timer.
        if let Some(at) = opening.deadline.filter(|_| !opens_idle) {
            self.cx.set_timer(TimerPurpose::Wall, at);
        }
        self.budgets.used.clone_from(&opening.used);
        self.handoffs.run_begins_with(&opening.entry);
        self.cx.opening = opening;
        let entry = self.cx.opening.entry.clone();
        self.background.records.begin_run();
        let task = self.cx.setup.tasks.get(&entry).cloned();
        if self.cx.opening.role_call.is_none() && task.as_ref().is_some_and(|task| task.restart) {
            self.histories.reset(&self.cx, &entry);
        }
        let goes_on = task.as_ref().is_some_and(|task| !task.restart) && says_nothing(&self.cx);
        self.histories.forget_left_pending(goes_on.then_some(&entry));
        self.histories.offer_submission(&self.cx, &entry);
        if opens_idle {
            wait_for_messages(&mut self.cx);
            return;
        }
        let inputs = Arc::new(self.cx.opening.inputs.clone());
        let inputs = match &task {
            Some(task) => with_message(task, inputs, self.cx.opening.content.as_deref()),
            None => inputs,
        };
        let root = self.dialogue().new_frame(&entry, None, inputs);
        self.cx.phase = RoomPhase::Running { root };
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.grant_steps(self.cx.opening.turns);
            frame.ask_only(self.cx.opening.role_call.clone());
        }
        // L-050d: a message for another recipient ends the run at once.
        let recipient = self.cx.opening.recipient.clone().filter(|name| !name.is_empty());
        if let Some(name) = recipient.filter(|name| {
            self.cx.opening.role_call.is_none() && !name.eq_ignore_ascii_case(entry.as_str())
        }) {
            self.run_control().end_frame(
                root,
                FrameEnd::new(
                    Status::NotAddressed,
                    format!("the message is for {name}, not for {entry}"),
                ),
            );
            return;
        }
        self.put_first_message(root);
        self.frames.runnable.push_back(root);
    }

    fn put_first_message(&mut self, root: FrameId) {
        let opening = &self.cx.opening;
        if says_nothing(&self.cx) {
            if self.cx.opening.role_call.is_none() {
                self.dialogue().begin_with_last_entry(root);
            }
            return;
        }
        // L-051a: the message is the user's, and external text is tainted (L-170).
        let (content, call) =
            (opening.content.clone().unwrap_or_default(), opening.role_call.clone());
        let (attachments, tools, recipient) =
            (opening.attachments.clone(), opening.tools.clone(), opening.recipient.clone());
        let mut message = self.handoffs.user_message(&mut self.cx, content);
        let mut by = Responder::User;
        if let Some(sender) = self.cx.opening.sender.filter(|sender| *sender != Role::User) {
            // L-170: only a person's message is external.
            (message.sender, message.from_agent) = (sender, sender == Role::Llm);
            message.labels.clear();
        }
        if let Some(call) = call {
            message.sender = call.sender;
            message.labels = if call.untrusted { vec![Label::Untrusted] } else { Vec::new() };
            message.from_agent = call.from_agent || call.sender == Role::Llm;
            by = Responder::of(call.sender);
        }
        (message.attachments, message.tools, message.recipient) =
            (attachments, tools, recipient.filter(|name| !name.is_empty()));
        let untrusted = message.labels.contains(&Label::Untrusted);
        message.tools.iter_mut().for_each(|call| call.untrusted |= untrusted);
        self.dialogue().put_pending(root, by, message);
    }
}

/// Whether the run began without a message.
fn says_nothing(cx: &RoomContext) -> bool {
    let opening = &cx.opening;
    opening.content.is_none() && opening.tools.is_empty() && opening.attachments.is_empty()
}

impl Histories {
    /// Changes an agent's history between two runs.
    pub(super) fn change_history(
        &mut self,
        cx: &mut RoomContext,
        task: &TaskName,
        change: HistoryChange,
    ) {
        if !matches!(cx.phase, RoomPhase::Unopened | RoomPhase::Finished { .. }) {
            return;
        }
        self.forget_left_pending(None);
        match change {
            HistoryChange::Clear { start } => self.clear_history(task, start),
            HistoryChange::Prune { start } => drop(self.prune(task, start)),
            HistoryChange::Import { messages } => {
                self.clear_history(task, 0);
                for message in messages {
                    let seq = cx.stamp(message.sender, "").seq;
                    self.import(cx, task, Message { seq, parent: None, ..message });
                }
            }
        }
    }

    fn import(&mut self, cx: &RoomContext, task: &TaskName, mut message: Message) {
        // L-170: a person's message is external, also when it is imported.
        if message.sender == Role::User && !message.labels.contains(&Label::Untrusted) {
            message.labels.push(Label::Untrusted);
        }
        let message = Arc::new(message);
        let memory = self.memory(cx, task);
        if message.sender == Role::Llm {
            memory.open_calls.clone_from(&message.tool_calls);
        } else {
            memory
                .open_calls
                .retain(|call| message.tool_results.iter().all(|result| result.call_id != call.id));
        }
        let place = memory.push(&message);
        self.link(&message).place = Some((task.clone(), place));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::fixture;
    use super::*;
    use crate::types::agent_state::AgentState;
    use crate::types::fault::CallReport;
    use crate::types::outcome::Outcome;

    /// A finished room in which both tasks have a history, a state and scratch data.
    fn finished() -> Room {
        let mut room = Room { cx: fixture::context(""), ..Room::default() };
        // Else the new run would clear the history itself.
        room.cx.task_mut("desk").restart = false;
        for (seq, task) in [(1, "desk"), (2, "digest")] {
            let task = TaskName::from(task);
            let frame = room.dialogue().new_frame(&task, None, Arc::default());
            let message = Arc::new(fixture::message(seq, Role::Llm, "Hello"));
            assert!(room.dialogue().write_history(frame, &message));
            room.agent_states.state_at_end(&mut room.cx, &task, Status::Done, "");
            let call = room.cx.next_call(Purpose::Step { frame });
            let report = CallReport { scratch: Some(vec![1]), ..CallReport::default() };
            room.scratch.keep_scratch(&room.cx, &room.frames, call, true, &report);
            room.cx.calls.remove(&call);
        }
        room.frames.clear();
        let outcome = Arc::new(Outcome::new(Status::Done, ""));
        room.cx.phase = RoomPhase::Finished { outcome };
        room.cx.notices.clear();
        room
    }

    #[test]
    fn a_new_setup_drops_the_data_of_the_tasks_that_it_removes_and_no_others() {
        for removed in [&[][..], &["digest"]] {
            let mut room = finished();
            let mut setup = Setup::clone(&room.cx.setup);
            removed.iter().for_each(|task| drop(setup.tasks.remove(*task)));
            let opening = room.cx.opening.clone();
            room.start_run(Some(Arc::new(setup)), opening);
            let digest = TaskName::from("digest");
            let remaining = usize::from(removed.is_empty());
            assert_eq!(room.history(&"desk".into()).len(), 1);
            assert_eq!(room.history(&digest).len(), remaining);
            assert_eq!(room.histories.memories.len(), 1 + remaining);
            assert_eq!(
                room.histories.links.values().filter(|it| it.place.is_some()).count(),
                1 + remaining
            );
            assert_eq!(room.agent_state(&digest), (remaining > 0).then_some(AgentState::Finished));
            let scratch = serde_json::to_value(&room.scratch).unwrap();
            assert_eq!(scratch.as_array().map(Vec::len), Some(1 + remaining));
        }
    }
}
