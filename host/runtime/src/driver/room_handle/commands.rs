//! Commands to a room: each has no reply, and no effect once the run is over. Handles, messages of
//! other processes and task runners send them through here.

use conclave_core::protocol::control::{ControlCommand, SentCommand};
use conclave_core::protocol::event::Event;
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::ids::{CallId, ControlId, PluginName, TaskName};

use super::RoomHandle;

impl RoomHandle {
    /// Sends a command to the room. Returns false if its run is over.
    pub fn control(&self, command: ControlCommand) -> bool {
        self.send(command.into_event(ApprovalAuthor::Program))
    }

    /// Sends a command under an id. A command that is repeated under its id takes effect once.
    pub(crate) fn control_once(
        &self,
        id: &ControlId,
        command: ControlCommand,
        author: ApprovalAuthor,
    ) -> bool {
        let message = Box::new(command.into_event(author));
        self.send(Event::ControlReceived { id: id.clone(), by: None, message })
    }

    /// Delivers the command of another process. The receiver gets a confirmation once the room's
    /// record of it is durable, and fails if the room ends first. `None` if no run is active.
    #[cfg(feature = "sqlite")]
    pub(crate) fn deliver(
        &self,
        command: SentCommand,
    ) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let confirmed = self.clients.controls.enter(&command.id)?;
        crate::support::fail_points::kill_point!("before-control-delivered");
        self.send(command.into_event()).then_some(confirmed)
    }

    /// Sends an event to the room's loop. Returns false if the loop is gone.
    pub(super) fn send(&self, event: Event) -> bool {
        self.events.upgrade().is_some_and(|events| events.send(event).is_ok())
    }

    /// Stops the run, even inside a step.
    pub fn stop(&self, reason: impl Into<String>) {
        self.control(ControlCommand::Stop { reason: reason.into() });
    }

    /// Stops the current work of the entry task. An interactive task then asks its user; any other
    /// ends.
    pub fn stop_turn(&self, reason: impl Into<String>) {
        self.control(ControlCommand::StopTurn { reason: reason.into() });
    }

    /// Stops one task, wherever it works in the run, and its own sub-tasks. The caller of a
    /// sub-task continues with the partial result; a background task ends as cancelled. Stopping
    /// the entry task ends the run.
    pub fn kill_task(&self, task: impl Into<TaskName>, reason: impl Into<String>) {
        self.control(ControlCommand::KillTask { task: task.into(), reason: reason.into() });
    }

    /// Decides about a call that waits for an approval, instead of the approver.
    pub fn decide(&self, call: CallId, approval: Approval) {
        self.control(ControlCommand::Decide { call, approval, arguments_sha256: None });
    }

    /// Answers a question that waits for its user, instead of the channel.
    pub fn answer(&self, call: CallId, text: impl Into<String>) {
        self.control(ControlCommand::Answer { call, text: text.into() });
    }

    /// Pauses the run with its background tasks: active work runs to its end, and nothing new
    /// begins (O-122).
    pub fn pause(&self, reason: impl Into<String>) {
        self.control(ControlCommand::Pause { reason: reason.into() });
    }

    /// The reason why the run is paused, by the records that its room has appended.
    #[cfg(feature = "postgres")]
    pub(crate) fn pause_reason(&self) -> Option<String> {
        self.clients.view.pause()
    }

    /// Resumes a paused run.
    pub fn unpause(&self) {
        self.control(ControlCommand::Unpause);
    }

    /// Sends a text to a task of the active run, which its agent reads in its next step (O-053).
    /// `None` means the entry task.
    pub fn message(&self, task: Option<TaskName>, text: impl Into<String>) {
        self.control(ControlCommand::Tell { task, text: text.into() });
    }

    /// Records that later calls of a plugin go to a rebuilt component.
    pub fn note_replaced(&self, plugin: &PluginName, sha256: &str) {
        self.send(Event::PluginReplaced { plugin: plugin.clone(), sha256: sha256.to_owned() });
    }
}
