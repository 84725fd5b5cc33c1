//! A call of a run that waits for a person: an approval, or the answer to a question. One message in
//! the run's mail settles it, and the process that has the run in progress applies that. The first
//! message counts.

use std::time::Duration;

use conclave_core::protocol::event::Record;
use conclave_core::types::approval::parse_approval_id;
use conclave_core::types::ids::{CallId, RoomId};
use conclave_runtime::steering::{self, DecisionPlace, SteeringError, word_of};
use conclave_runtime::store::{ControlCommand, ControlMessage, StoreAddress, WaitRow};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::stored_run::StoredRun;
use crate::ui::show::amounts::{ago, now};
use crate::ui::show::run_state::{continued_by, state_of_pending};
use crate::ui::show::{NAME, paint};
use crate::ui::stdout;

/// The time in which a process records a decision; behind it the answer says that it will.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);

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

/// A call that waits for a person, and its run.
pub(crate) struct PendingCall {
    stored_run: StoredRun,
    pub(crate) pending: steering::PendingCall,
    kind: &'static PendingKind,
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
        let of = (&stored_run.room, call);
        match steering::PendingCall::find(&stored_run.reader, of, kind.is_of) {
            Ok(pending) => Ok(Self { stored_run, pending, kind }),
            Err(error) => Err(not_settled(error, kind, &stored_run)),
        }
    }

    pub(crate) fn id(&self) -> String {
        self.pending.id()
    }

    pub(crate) fn call(&self) -> CallId {
        self.pending.call
    }

    pub(crate) fn run(&self) -> RoomId {
        self.stored_run.run()
    }

    /// Returns the records of its room.
    pub(crate) fn records(&self) -> Result<Vec<Record>, CliError> {
        Ok(self.stored_run.reader.records(&self.stored_run.room)?)
    }

    /// Checks that no decision is pending. The first one counts, so another would be lost silently.
    pub(crate) fn check_unsaid(&self) -> Result<(), CliError> {
        let checked = self.pending.check_undecided(&self.stored_run.reader);
        checked.map_err(|error| not_settled(error, self.kind, &self.stored_run))
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
        let decision = word_of(&command);
        let message = ControlMessage::new(self.stored_run.room.clone(), command);
        let settled =
            self.pending.settle(&self.stored_run.reader, &message, instead, RECORDED_WITHIN);
        let place = settled.map_err(|error| not_settled(error, self.kind, &self.stored_run))?;
        let (id, row) = (self.id(), self.stored_run.row()?);
        let what = self.kind.json;
        let when = match place {
            DecisionPlace::Recorded => format!("its run has the {what}"),
            DecisionPlace::InMail => format!("its run receives the {what} now"),
            DecisionPlace::WaitsForResume => {
                let by = continued_by(&row);
                format!("its run receives the {what} when it is continued: {by}")
            }
        };
        let line = format!("{} {decision}; {when}", paint(NAME, &id));
        let state = state_of_pending(self.pending.row.is_live, Some(&row)).1;
        stdout::report(
            output,
            json!({ "type": what, "id": id, "decision": decision, "run_state": state }),
            line,
        )?;
        Ok(exit::OK)
    }
}

/// The error for a text that is no id.
fn not_an_id(text: &str) -> CliError {
    CliError::usage(format!("{text:?} is not the id of an approval"))
        .hint("write RUN:cNUMBER, such as 3f2a91c0:c7; `conclave approvals` lists the pending ones")
}

/// The error of a call that was not settled, in the words of its kind.
fn not_settled(error: SteeringError, kind: &PendingKind, of: &StoredRun) -> CliError {
    let (what, code) = (kind.json, error.code());
    let show = || format!("`conclave show {}` shows the state of the run", of.run());
    let refusal = match error {
        SteeringError::NotPending { ref others, .. } => {
            let hint = match others.as_slice() {
                [] => kind.listed_by.to_owned(),
                others => format!("{} of this run: {}", kind.plural, others.join(", ")),
            };
            CliError::usage(error.to_string()).hint(hint)
        }
        SteeringError::DecisionOnItsWay { id, word, by } => {
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            let text =
                format!("{id} was already {word}{by}; the run has not received that {what} yet");
            CliError::usage(text).hint(format!("--instead replaces that {what}"))
        }
        SteeringError::AlreadyDecided { ref decision, .. } => {
            let when = decision.as_ref().and_then(|decision| decision.at);
            let when = when.map(|at| format!(" ({})", ago(at, now()))).unwrap_or_default();
            CliError::usage(format!("{error}{when}; this {what} has no effect")).hint(show())
        }
        SteeringError::DecisionReceived { .. } => CliError::usage(error.to_string()).hint(show()),
        SteeringError::Rejected { .. } => {
            let hint = "the call is still pending; review it again, then decide";
            CliError::usage(error.to_string()).hint(hint)
        }
        error => return error.into(),
    };
    refusal.with_code(code)
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
