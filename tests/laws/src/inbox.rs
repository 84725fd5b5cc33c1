//! Laws of the inbox: what another process sends to a run.

use std::sync::Barrier;

use conclave_core::types::approval::Approval;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, DecisionSent, MailState, StoreError,
};

use crate::ownership::take_over;
use crate::rooms::OpenRoom;
use crate::{LawFailure, LawResult, TestedStore, ensure, ensure_equal, open, reader_of};

const DECIDERS: usize = 8;

fn stop(room: &str) -> ControlMessage {
    ControlMessage::new(RoomId::from(room), ControlCommand::Stop { reason: "enough".to_owned() })
}

fn approve(call: u64) -> ControlMessage {
    let command = ControlCommand::Decide {
        call: CallId(call),
        approval: Approval::Approved,
        arguments_sha256: None,
    };
    ControlMessage::new(RoomId::from("a"), command)
}

/// A message is received by each host that reopens its room, in the order of sending, until it is
/// deleted.
pub fn a_message_is_received_until_it_is_deleted(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let reader = reader_of(&*host)?;
    drop(OpenRoom::with_records(&*host, "a", 2)?);
    // One that has its id from a key is in its place like others.
    let sent = [stop("a").under_key("1"), stop("a")];
    sent.iter().try_for_each(|message| reader.mail().send(message))?;
    drop(OpenRoom::with_records(&*host, "b", 1)?);
    reader.mail().send(&stop("b"))?;
    let expected: Vec<_> = sent.iter().map(|sent| sent.clone().into_command()).collect();
    let room = OpenRoom::reopen(&*host, "a")?;
    ensure_equal("the messages", &room.messages, &expected)?;
    ensure_equal("the state", &reader.mail().state(&sent[0])?, &MailState::Taken)?;
    drop(reader);
    store.crash(host);
    let (host, again) = take_over(store, "a")?;
    let reader = reader_of(&*host)?;
    ensure_equal("the messages after a crash", &again.messages, &expected)?;
    drop((room, again));
    reader.mail().remove(&sent[0])?;
    ensure_equal("the state", &reader.mail().state(&sent[0])?, &MailState::Gone)?;
    let last = OpenRoom::reopen(&*host, "a")?;
    ensure_equal("the other message", &last.messages[..], &expected[1..])
}

/// A message is withdrawn while no host has received it, and not afterwards.
pub fn a_message_is_withdrawn_only_before_it_is_received(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let reader = reader_of(&*host)?;
    drop(OpenRoom::with_records(&*host, "a", 2)?);
    let (early, late) = (stop("a"), stop("a"));
    reader.mail().send(&early)?;
    ensure_equal("the state", &reader.mail().state(&early)?, &MailState::Waiting)?;
    ensure_equal("whether it was withdrawn", &reader.mail().withdraw(&early)?, &true)?;
    ensure_equal("the state", &reader.mail().state(&early)?, &MailState::Gone)?;
    reader.mail().send(&late)?;
    let room = OpenRoom::reopen(&*host, "a")?;
    ensure_equal("the number of messages", &room.messages.len(), &1)?;
    ensure_equal("whether it was withdrawn", &reader.mail().withdraw(&late)?, &false)
}

/// Of several processes that decide about a call at once, one sends its decision, and the others
/// get it.
pub fn of_decisions_about_one_call_one_is_sent(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let reader = reader_of(&*host)?;
    drop(OpenRoom::with_records(&*host, "a", 2)?);
    for call in 0..10 {
        let barrier = Barrier::new(DECIDERS);
        let decide = || -> LawResult<(ControlMessage, DecisionSent)> {
            let reader = reader_of(&*host);
            barrier.wait();
            let message = approve(call);
            let sent = reader?.mail().send_decision(&message, || Ok(true))?;
            Ok((message, sent))
        };
        let sent: LawResult<Vec<_>> = std::thread::scope(|scope| {
            let deciders: Vec<_> = (0..DECIDERS).map(|_| scope.spawn(decide)).collect();
            let panicked = |_| Err(LawFailure::Broken("a decider panicked".to_owned()));
            deciders.into_iter().map(|decider| decider.join().unwrap_or_else(panicked)).collect()
        });
        let sent = sent?;
        let mut winners = sent.iter().filter(|(_, sent)| *sent == DecisionSent::Sent);
        let winner = winners.next().map(|(message, _)| message.clone());
        ensure(winners.next().is_none(), || "two decisions were sent".to_owned())?;
        let winner = winner.ok_or(LawFailure::Broken("no decision was sent".to_owned()))?;
        let rival = DecisionSent::Rival(Box::new(winner.clone()));
        let is_known = sent.iter().all(|(message, sent)| *message == winner || *sent == rival);
        ensure(is_known, || "a decider did not get the decision of the other".to_owned())?;
        let pending = reader.mail().pending()?;
        ensure_equal("the messages", &pending, &vec![winner.clone()])?;
        reader.mail().remove(&winner)?;
    }
    Ok(())
}

/// A decision about a call that does not wait any more is not sent, and hinders no other.
pub fn no_decision_about_a_decided_call_is_sent(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let reader = reader_of(&*host)?;
    drop(OpenRoom::with_records(&*host, "a", 2)?);
    let sent = reader.mail().send_decision(&approve(1), || Ok(false))?;
    ensure_equal("the result", &sent, &DecisionSent::Decided)?;
    ensure_equal("the messages", &reader.mail().pending()?, &Vec::new())?;
    let fails = || {
        let store = reader.address().clone();
        Err(StoreError::Other { store, what: "cannot be read".to_owned() })
    };
    let failed = reader.mail().send_decision(&approve(2), fails);
    ensure(failed.is_err(), || "the error of the question was lost".to_owned())?;
    let sent = reader.mail().send_decision(&approve(3), || Ok(true))?;
    ensure_equal("the result", &sent, &DecisionSent::Sent)
}
