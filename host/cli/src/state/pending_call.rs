//! A call of a run that waits for a person: an approval, or the answer to a question. One message in
//! the run's mail settles it, and the process that has the run in progress applies that. The first
//! message counts.

use std::time::{Duration, Instant};

use conclave_core::journal::pending_work::WaitKey;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::approval::{Approval, approval_id, parse_approval_id};
use conclave_core::types::ids::{CallId, ControlId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, DecisionSent, Mail, MailState, StoreAddress, StoreError,
    WaitRow,
};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::stored_run::StoredRun;
use crate::ui::show::run_state::{continued_by, state_of_pending};
use crate::ui::show::{NAME, paint};
use crate::ui::stdout;

/// The time in which a process records a decision; behind it the answer says that it will.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);
/// The interval between two looks whether it has.
const EVERY: Duration = Duration::from_millis(50);

/// A kind of calls that wait for a person.
pub(crate) struct PendingKind {
    pub(crate) is_of: fn(&WaitRow) -> bool,
    /// The calls, such as `pending calls`.
    plural: &'static str,
    /// The command that lists them.
    listed_by: &'static str,
    /// The type of the JSON line about one that was settled.
    json: &'static str,
}

/// Calls that wait for an approval, and limits that wait for an increase.
pub(crate) static APPROVALS: PendingKind = PendingKind {
    is_of: |row| row.wait.asks_approval(),
    plural: "pending calls",
    listed_by: "`conclave approvals` lists the pending calls",
    json: "decision",
};
/// Questions of tasks that wait for an answer.
pub(crate) static QUESTIONS: PendingKind = PendingKind {
    is_of: |row| row.wait.kind == "user",
    plural: "open questions",
    listed_by: "`conclave answer` lists the open questions",
    json: "answer",
};

/// A call that waits for a person.
pub(crate) struct PendingCall {
    stored_run: StoredRun,
    call: CallId,
    pub(crate) row: WaitRow,
    kind: &'static PendingKind,
}

/// A decision or an answer that a run has recorded.
struct RecordedDecision {
    /// The id of its message; `None` if the run's own terminal or a browser decided.
    message: Option<ControlId>,
    word: &'static str,
    author: String,
}

impl PendingCall {
    /// Finds the call with this id.
    ///
    /// # Errors
    /// If the text is no id, or no call of the kind waits under it.
    pub(crate) fn find(
        id: &str,
        store: Option<&StoreAddress>,
        kind: &'static PendingKind,
    ) -> Result<Self, CliError> {
        let Some((room, call)) = parse_approval_id(id) else { return Err(not_an_id(id)) };
        let stored_run = StoredRun::resolve(Some(room), store)?;
        let mut waits = stored_run.reader.waits(Some(&stored_run.run()))?;
        waits.retain(kind.is_of);
        let is_this =
            |row: &WaitRow| row.room == stored_run.room && row.wait.key == WaitKey::Call(call);
        let Some(place) = waits.iter().position(is_this) else {
            return Err(none(&stored_run.room, call, &waits, kind));
        };
        Ok(Self { call, row: waits.swap_remove(place), kind, stored_run })
    }

    pub(crate) fn id(&self) -> String {
        approval_id(&self.stored_run.room, self.call)
    }

    pub(crate) fn call(&self) -> CallId {
        self.call
    }

    pub(crate) fn run(&self) -> RoomId {
        self.stored_run.run()
    }

    /// The messages to the processes of its store.
    fn mail(&self) -> Mail<'_> {
        self.stored_run.reader.mail()
    }

    /// Returns the records of its room.
    pub(crate) fn records(&self) -> Result<Vec<Record>, CliError> {
        Ok(self.stored_run.reader.records(&self.stored_run.room)?)
    }

    /// The message that settles this call, if one is on its way.
    fn decision(&self) -> Result<Option<ControlMessage>, StoreError> {
        self.mail().decision(&self.stored_run.room, self.call)
    }

    /// Checks that no decision is pending. The first one counts, so another would be lost silently.
    pub(crate) fn check_unsaid(&self) -> Result<(), CliError> {
        match self.decision()? {
            Some(mail) => Err(self.on_its_way(&mail)),
            None => Ok(()),
        }
    }

    /// The error for a call about which another decision is on its way.
    fn on_its_way(&self, mail: &ControlMessage) -> CliError {
        let (word, what) = (word_of(&mail.word), self.kind.json);
        let text =
            format!("{} was already {word}; the run has not received that {what} yet", self.id());
        CliError::usage(text).hint(format!("--instead replaces that {what}"))
    }

    /// The error for a call that was settled before, with the recorded decision.
    fn decided_before(&self) -> CliError {
        let kind = self.kind.json;
        let what = match self.recorded() {
            Ok(Some(RecordedDecision { word, author, .. })) => {
                format!("{} was already {word} by {author}; this {kind} has no effect", self.id())
            }
            Ok(None) => {
                format!("{} is not pending any more; this {kind} has no effect", self.id())
            }
            Err(error) => return error,
        };
        CliError::usage(what)
            .hint(format!("`conclave show {}` shows the state of the run", self.stored_run.run()))
    }

    /// Returns the recorded decision about the call.
    fn recorded(&self) -> Result<Option<RecordedDecision>, CliError> {
        Ok(self.records()?.into_iter().find_map(|record| {
            let (call, word, author) = match record.event.effective() {
                Event::Decided { call, approval, author, .. } => {
                    (*call, decision_word(approval), author.to_string())
                }
                Event::UserAnswered { call, .. } => (*call, ANSWERED, "its user".to_owned()),
                _ => return None,
            };
            let message = match &record.event {
                Event::ControlReceived { id, .. } => Some(id.clone()),
                _ => None,
            };
            (call == self.call).then_some(RecordedDecision { message, word, author })
        }))
    }

    fn is_pending(&self) -> Result<bool, StoreError> {
        let waits = self.stored_run.reader.waits(Some(&self.stored_run.run()))?;
        Ok(waits.iter().any(|row| {
            row.room == self.stored_run.room && row.wait.key == WaitKey::Call(self.call)
        }))
    }

    /// Waits until the run's process has recorded the decision, for a short time. Returns whether
    /// it has.
    ///
    /// # Errors
    /// If another decision was recorded, which came from the run's own terminal.
    fn wait_for_record(&self, mail: &ControlMessage) -> Result<bool, CliError> {
        let until = Instant::now() + RECORDED_WITHIN;
        while self.mail().state(mail)? != MailState::Gone {
            if Instant::now() >= until || !self.stored_run.reader.is_in_use()? {
                break;
            }
            std::thread::sleep(EVERY);
        }
        // The record decides: a process that ended at once may have left the message.
        match self.recorded()? {
            Some(recorded) if recorded.message.as_ref() == Some(&mail.id) => Ok(true),
            None if self.mail().state(mail)? != MailState::Gone => Ok(false),
            _ => Err(self.decided_before()),
        }
    }

    /// Takes back an earlier decision about this call.
    ///
    /// # Errors
    /// If the run's process has received the earlier decision. That one may take effect, and a new
    /// one would not.
    fn take_back(&self) -> Result<(), CliError> {
        let Some(message) = self.decision()? else { return Ok(()) };
        // A receiver may have recorded and deleted it in between.
        if self.mail().withdraw(&message)? || self.mail().state(&message)? == MailState::Gone {
            return Ok(());
        }
        if self.stored_run.reader.is_in_use()? {
            let what = format!(
                "the run of {} has received an earlier decision and not recorded it yet; that one may take effect",
                self.id()
            );
            return Err(CliError::usage(what).hint(format!(
                "`conclave show {}` shows the state of the run",
                self.stored_run.run()
            )));
        }
        // The receiving process has ended. A decision that it journalled would have ended the wait,
        // which was checked above.
        Ok(self.mail().remove(&message)?)
    }

    /// Sends the command that settles the call, and reports it.
    ///
    /// # Errors
    /// If another one has settled it, or is on its way and not to be replaced.
    pub(crate) fn settle(
        &self,
        command: ControlCommand,
        instead: bool,
        output: OutputArgs,
    ) -> Result<u8, CliError> {
        if instead {
            self.take_back()?;
        }
        let decision = word_of(&command);
        let mail = ControlMessage::new(self.stored_run.room.clone(), command);
        let sent = self.mail().send_decision(&mail, || self.is_pending());
        match sent? {
            DecisionSent::Sent => {}
            DecisionSent::Rival(other) => return Err(self.on_its_way(&other)),
            DecisionSent::Decided => return Err(self.decided_before()),
        }
        let is_live = self.row.is_live;
        let is_recorded = is_live && self.wait_for_record(&mail)?;
        let (id, row) = (self.id(), self.stored_run.row()?);
        let what = self.kind.json;
        let when = if is_recorded {
            format!("its run has the {what}")
        } else if is_live {
            format!("its run receives the {what} now")
        } else {
            let by = continued_by(&row);
            format!("its run receives the {what} when it is continued: {by}")
        };
        let line = format!("{} {decision}; {when}", paint(NAME, &id));
        let state = state_of_pending(is_live, Some(&row)).1;
        stdout::report(
            output,
            json!({ "type": what, "id": id, "decision": decision, "run_state": state }),
            line,
        )?;
        Ok(exit::OK)
    }
}

const ANSWERED: &str = "answered";

/// The word for a command that settles a call.
fn word_of(command: &ControlCommand) -> &'static str {
    match command {
        ControlCommand::Decide { approval, .. } => decision_word(approval),
        ControlCommand::Answer { .. } => ANSWERED,
        _ => "decided",
    }
}

/// `approved` or `refused`.
pub(crate) fn decision_word(approval: &Approval) -> &'static str {
    match approval {
        Approval::Approved | Approval::Edited { .. } => "approved",
        Approval::Refused { .. } | Approval::Invalid { .. } => "refused",
    }
}

/// The error for a text that is no id.
fn not_an_id(text: &str) -> CliError {
    CliError::usage(format!("{text:?} is not the id of an approval"))
        .hint("write RUN:cNUMBER, such as 3f2a91c0:c7; `conclave approvals` lists the pending ones")
}

/// The error for a call that is not pending, with those of that run that are.
fn none(room: &RoomId, call: CallId, waits: &[WaitRow], kind: &PendingKind) -> CliError {
    let others = waits.iter().filter_map(|row| match row.wait.key {
        WaitKey::Call(call) => Some(approval_id(&row.room, call)),
        WaitKey::Model(..) | WaitKey::Timer(_) => None,
    });
    let others: Vec<String> = others.collect();
    let what = format!(
        "{} is not pending: it was decided, has expired, or never existed",
        approval_id(room, call)
    );
    let hint = match others.as_slice() {
        [] => kind.listed_by.to_owned(),
        others => format!("{} of this run: {}", kind.plural, others.join(", ")),
    };
    CliError::usage(what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_id_is_a_usage_error_with_the_syntax() {
        let error = not_an_id("3f2a");
        assert_eq!(error.code(), exit::USAGE);
        assert!(error.to_string().contains("RUN:cNUMBER"), "{error}");
    }
}
