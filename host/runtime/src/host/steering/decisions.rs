//! A call of a run that waits for a person: an approval, or the answer to a question. One message in
//! the run's mail settles it, and the process that has the run in progress applies that. The first
//! message counts.

use std::time::{Duration, Instant};

use conclave_core::inspect::questions::{DecisionWord, Question, QuestionFold, Settlement};
use conclave_core::journal::pending_work::WaitKey;
use conclave_core::types::approval::approval_id;
use conclave_core::types::ids::{CallId, RoomId};

use super::SteeringError;
use super::delivery::{after_sending, may_be_sent, repeated};
use crate::storage::store::mail::bell;
use crate::storage::store::{
    ControlCommand, ControlMessage, DecisionSent, MailState, StoreError, StoreReader, WaitRow,
};

/// The interval between two looks whether a decision was recorded.
const EVERY: Duration = Duration::from_millis(50);

/// A call that waits for a person.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// The room that waits.
    pub room: RoomId,
    /// The call.
    pub call: CallId,
    /// The stored row about it.
    pub row: WaitRow,
}

/// Where a decision is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionPlace {
    /// In the journal.
    Recorded,
    /// In the mail of a run in progress, whose process takes it when it next looks.
    InMail,
    /// In the mail, until a process resumes the run.
    WaitsForResume,
}

impl PendingCall {
    /// Finds the call, among those that wait for a person in this way.
    ///
    /// # Errors
    /// `AlreadyDecided` if a person settled it before, `NotPending` if it does not wait.
    pub fn find(
        reader: &StoreReader,
        (room, call): (&RoomId, CallId),
        is_of_kind: impl Fn(&WaitRow) -> bool,
    ) -> Result<Self, SteeringError> {
        let mut waits = reader.waits(Some(&room.run()))?;
        waits.retain(is_of_kind);
        let is_this = |row: &WaitRow| row.room == *room && row.wait.key == WaitKey::Call(call);
        let Some(place) = waits.iter().position(is_this) else {
            if let Some(decision) = recorded(reader, (room, call))? {
                let id = approval_id(room, call);
                return Err(SteeringError::AlreadyDecided { id, decision: Some(decision) });
            }
            let others = waits.iter().filter_map(|row| match row.wait.key {
                WaitKey::Call(call) => Some(approval_id(&row.room, call)),
                WaitKey::Model(..) | WaitKey::Timer(_) => None,
            });
            let (id, others) = (approval_id(room, call), others.collect());
            return Err(SteeringError::NotPending { id, others });
        };
        Ok(Self { room: room.clone(), call, row: waits.swap_remove(place) })
    }

    /// The id of the call for people.
    #[must_use]
    pub fn id(&self) -> String {
        approval_id(&self.room, self.call)
    }

    /// Checks that no decision is pending. The first one counts, so another would be lost silently.
    ///
    /// # Errors
    /// `DecisionOnItsWay`.
    pub fn check_undecided(&self, reader: &StoreReader) -> Result<(), SteeringError> {
        match reader.mail().decision(&self.room, self.call)? {
            Some(mail) => Err(self.on_its_way(&mail)),
            None => Ok(()),
        }
    }

    /// Sends the message that settles the call, and waits for this time until the process of the
    /// run has recorded it. With `instead` it replaces a decision that the run has not received.
    ///
    /// # Errors
    /// `AlreadyDecided`, `DecisionOnItsWay` if another one is and is not to be replaced, or
    /// `Rejected` if the room rejected it.
    pub fn settle(
        &self,
        reader: &StoreReader,
        message: &ControlMessage,
        instead: bool,
        most: Duration,
    ) -> Result<DecisionPlace, SteeringError> {
        if instead {
            self.take_back(reader)?;
        }
        let sent = reader.mail().send_decision(message, || self.is_pending(reader));
        match sent.map_err(|error| may_be_sent(&self.room, error))? {
            DecisionSent::Sent => {}
            // The same request again.
            DecisionSent::Rival(other) if *other == *message => {}
            DecisionSent::Rival(other) => return Err(self.on_its_way(&other)),
            DecisionSent::Decided => return Err(self.decided_before(reader)),
        }
        if !self.row.is_live {
            return Ok(DecisionPlace::WaitsForResume);
        }
        let recorded = self.wait_for_record(reader, message, most);
        match recorded.map_err(|error| after_sending(&self.room, error))? {
            true => Ok(DecisionPlace::Recorded),
            false => Ok(DecisionPlace::InMail),
        }
    }

    fn on_its_way(&self, mail: &ControlMessage) -> SteeringError {
        let by = mail.by.as_ref().map(|by| by.0.to_string());
        SteeringError::DecisionOnItsWay { id: self.id(), word: word_of(&mail.word), by }
    }

    fn decided_before(&self, reader: &StoreReader) -> SteeringError {
        match recorded(reader, (&self.room, self.call)) {
            Ok(decision) => SteeringError::AlreadyDecided { id: self.id(), decision },
            Err(error) => error.into(),
        }
    }

    fn is_pending(&self, reader: &StoreReader) -> Result<bool, StoreError> {
        let waits = reader.waits(Some(&self.room.run()))?;
        Ok(waits
            .iter()
            .any(|row| row.room == self.room && row.wait.key == WaitKey::Call(self.call)))
    }

    /// Waits until the run's process has recorded the decision, for a short time. Returns whether
    /// it has.
    fn wait_for_record(
        &self,
        reader: &StoreReader,
        mail: &ControlMessage,
        most: Duration,
    ) -> Result<bool, SteeringError> {
        let until = Instant::now() + most;
        loop {
            let deletions = bell::deletions();
            let is_gone = reader.mail().state(mail)? == MailState::Gone;
            if is_gone || Instant::now() >= until || !reader.is_in_use()? {
                break;
            }
            bell::wait_for_deletion(deletions, EVERY);
        }
        // The record decides: a process that ended at once may have left the message.
        let questions = questions(reader, &self.room)?;
        if let Some(fault) = questions.fault_of(&mail.id) {
            return Err(SteeringError::Rejected { id: self.id(), fault: fault.clone() });
        }
        match questions.of_call(self.call).and_then(Question::settlement) {
            Some(recorded) if recorded.message.as_ref() == Some(&mail.id) => Ok(true),
            None if reader.mail().state(mail)? != MailState::Gone => Ok(false),
            _ => Err(self.decided_before(reader)),
        }
    }

    /// Takes back an earlier decision about this call.
    ///
    /// # Errors
    /// If the run's process has received the earlier decision. That one may take effect, and a new
    /// one would not.
    fn take_back(&self, reader: &StoreReader) -> Result<(), SteeringError> {
        let mail = reader.mail();
        let Some(message) = mail.decision(&self.room, self.call)? else { return Ok(()) };
        // A receiver may have recorded and deleted it in between.
        if mail.withdraw(&message)? || mail.state(&message)? == MailState::Gone {
            return Ok(());
        }
        if reader.is_in_use()? {
            return Err(SteeringError::DecisionReceived { id: self.id() });
        }
        // The receiving process has ended. A decision that it journalled would have ended the wait,
        // which was checked above.
        Ok(mail.remove(&message)?)
    }
}

/// The decision about a call that its run has recorded; `None` if there is none.
///
/// # Errors
/// If the records cannot be read.
pub fn recorded(
    reader: &StoreReader,
    (room, call): (&RoomId, CallId),
) -> Result<Option<Settlement>, StoreError> {
    let questions = questions(reader, room)?;
    Ok(questions.of_call(call).and_then(Question::settlement).cloned())
}

/// Returns what a room asks people, and has asked.
fn questions(reader: &StoreReader, room: &RoomId) -> Result<QuestionFold, StoreError> {
    let mut questions = QuestionFold::default();
    questions.extend(reader.records(room)?);
    Ok(questions)
}

/// Sends a message under an id that its sender chose, and waits for this time until the run has
/// recorded it. The same message sent again, also after a restart, is answered as the first time,
/// wherever the run is with it.
///
/// # Errors
/// `KeyReused` if another message has the id, or as [`PendingCall::find`] and
/// [`PendingCall::settle`].
pub fn settle_once(
    reader: &StoreReader,
    message: &ControlMessage,
    call: CallId,
    is_of_kind: impl Fn(&WaitRow) -> bool,
    most: Duration,
) -> Result<DecisionPlace, SteeringError> {
    let recorded_before = || check_taken(reader, message, call).map(|()| DecisionPlace::Recorded);
    if repeated(reader, message)? {
        return recorded_before();
    }
    let settled = PendingCall::find(reader, (&message.room, call), is_of_kind)
        .and_then(|pending| pending.settle(reader, message, false, most));
    match settled {
        // The run may have received it since the look above, and then the call does not wait for
        // another one.
        Err(SteeringError::AlreadyDecided { .. } | SteeringError::NotPending { .. })
            if repeated(reader, message)? =>
        {
            recorded_before()
        }
        settled => settled,
    }
}

/// Checks that the run has taken this decision, which it has received: another one may have come
/// first, or the room may have rejected it.
///
/// # Errors
/// `Rejected`, `AlreadyDecided`, or if the records cannot be read.
fn check_taken(
    reader: &StoreReader,
    message: &ControlMessage,
    call: CallId,
) -> Result<(), SteeringError> {
    let id = approval_id(&message.room, call);
    let questions = questions(reader, &message.room)?;
    if let Some(fault) = questions.fault_of(&message.id) {
        return Err(SteeringError::Rejected { id, fault: fault.clone() });
    }
    match questions.of_call(call).and_then(Question::settlement) {
        Some(settlement) if settlement.message.as_ref() == Some(&message.id) => Ok(()),
        settlement => Err(SteeringError::AlreadyDecided { id, decision: settlement.cloned() }),
    }
}

/// The word for a command that settles a call.
#[must_use]
pub fn word_of(command: &ControlCommand) -> &'static str {
    DecisionWord::of_command(command).map_or("decided", DecisionWord::as_str)
}
