//! Hears what is said from other terminals to the runs that this process has under way: an approval, a refusal, a stop, a pause, a word
//! for an agent. What is for a run
//! that is not under way here stays where it is until somebody goes on with it.

use std::sync::Arc;
use std::time::Duration;

use conclave_core::ids::RoomId;
use conclave_core::policy::Approval;
use conclave_core::request::Request;
use conclave_runtime::Host;
use conclave_runtime::store::{Mail, Reader, Standing, Store, Word};
use tokio::task::AbortHandle;

use crate::approval_id::approval_id;
use crate::screen::Screen;
use crate::show::{FAINT, one_line, paint, printable};

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(200);

/// Characters of what was told that are shown.
const SHOWN: usize = 80;

/// Goes on until it is dropped.
pub(crate) struct Attending(AbortHandle);

impl Attending {
    pub(crate) fn begin(store: &Store, host: &Arc<Host>, screen: &Arc<Screen>) -> Self {
        let (store, host, screen) = (store.clone(), Arc::clone(host), Arc::clone(screen));
        let task = tokio::spawn(async move {
            loop {
                hear(&store, &host, &screen);
                tokio::time::sleep(EVERY).await;
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn hear(store: &Store, host: &Host, screen: &Screen) {
    // This process alone could have it under way, so a run that is to end and is not under way here was cut off.
    let is_meant = |mail: &Mail| matches!(mail.word, Word::Stop { .. }) || host.stopper(&mail.room).is_some();
    // A word that cannot be read now is there at the next look.
    for Mail { room, word } in store.mail_for(is_meant).unwrap_or_default() {
        let stopper = host.stopper(&room);
        match (word, stopper) {
            (Word::Decide { call, approval }, Some(stopper)) => {
                let id = approval_id(&room, call);
                screen.line(paint(FAINT, format_args!("      {id} was answered from another terminal: {}", said(&approval))));
                stopper.decide(call, approval);
            }
            (Word::Stop { reason }, Some(stopper)) => {
                screen.line(paint(FAINT, format_args!("      {room} was stopped from another terminal")));
                stopper.stop(&reason);
            }
            (Word::Stop { reason }, None) => {
                // It may be about to begin or to end here: then the word is for the next look. One that has ended needs none.
                if store.give_up(&room, &reason).is_err() && is_open(store, &room) {
                    let _ = Mail { room, word: Word::Stop { reason } }.send(store.folder());
                }
            }
            (Word::Pause { reason }, Some(stopper)) => {
                let resume = format!("conclave resume {room} lets it go on");
                screen.line(paint(FAINT, format_args!("      {room} was paused from another terminal: {}; {resume}", printable(&reason))));
                stopper.pause(&reason);
            }
            (Word::Unpause, Some(stopper)) => {
                screen.line(paint(FAINT, format_args!("      {room} goes on, as another terminal says")));
                stopper.unpause();
            }
            (Word::Tell { task, text }, Some(stopper)) => {
                screen.line(paint(FAINT, format_args!("      {room} was told from another terminal: {}", one_line(&text, SHOWN))));
                stopper.tell(task.as_ref(), &text);
            }
            (Word::Ask { what }, Some(stopper)) => {
                screen.line(paint(FAINT, format_args!("      {room} was asked from another terminal: {}", asked(&what))));
                stopper.request(*what);
            }
            // Of those that are not under way here only a stop is taken out of the mail.
            (Word::Decide { .. } | Word::Pause { .. } | Word::Unpause | Word::Tell { .. } | Word::Ask { .. }, None) => {}
        }
    }
}

fn is_open(store: &Store, room: &RoomId) -> bool {
    let rooms = Reader::open(store.folder()).and_then(|reader| reader.rooms(room)).unwrap_or_default();
    rooms.iter().any(|row| !matches!(row.standing, Standing::Ended(_)))
}

fn asked(what: &Request) -> String {
    match what {
        Request::CancelTask { task, reason } => format!("to cancel {task}: {}", one_line(reason, SHOWN)),
        Request::TellTask { task, text } => format!("to tell {task}: {}", one_line(text, SHOWN)),
        Request::Close { reason } => format!("to close: {}", one_line(reason, SHOWN)),
        _ => "something".to_owned(),
    }
}

fn said(approval: &Approval) -> String {
    match approval {
        Approval::Approved => "approved".to_owned(),
        Approval::Edited { .. } => "approved with other arguments".to_owned(),
        Approval::Refused { reason } => format!("refused: {}", printable(reason)),
        Approval::Invalid { message } => format!("cannot run: {}", printable(message)),
    }
}
