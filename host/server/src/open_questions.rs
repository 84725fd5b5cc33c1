//! The questions that wait for people. Each is read from the records of its room once, however often
//! and by whoever the list is read: what a room asks under an id stays the same until it is settled,
//! and then the row of its wait is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::inspect::questions::Question;
use conclave_core::journal::pending_work::WaitKey;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::store::{QuestionRow, StoreReader, WaitRow, WithDamaged};

/// The questions that were read and still wait. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct OpenQuestions(Arc<OpenQuestionsState>);

#[derive(Default)]
struct OpenQuestionsState {
    known: Mutex<BTreeMap<WaitId, Question>>,
    read: AtomicU64,
}

/// The row of a wait. After a restored backup a room may ask something else under the same id, but
/// at another time.
type WaitId = (RoomId, WaitKey, Millis);

fn id_of(wait: &WaitRow) -> WaitId {
    (wait.room.clone(), wait.wait.key, wait.since)
}

impl OpenQuestions {
    /// Forgets the questions that wait no more; `waits` are all that do.
    pub(crate) fn retain(&self, waits: &[WaitRow]) {
        let ids: BTreeSet<WaitId> = waits.iter().map(id_of).collect();
        self.known().retain(|id, _| ids.contains(id));
    }

    /// Each of these rows with its question, and the rooms whose records cannot be folded.
    pub(crate) fn of(&self, reader: &StoreReader, waits: Vec<WaitRow>) -> WithDamaged<QuestionRow> {
        let known: Vec<Option<Question>> = {
            let known = self.known();
            waits.iter().map(|wait| known.get(&id_of(wait)).cloned()).collect()
        };
        let (mut rows, mut unknown) = (Vec::new(), Vec::new());
        for (wait, question) in waits.into_iter().zip(known) {
            match question {
                Some(_) => rows.push(QuestionRow { wait, question }),
                None => unknown.push(wait),
            }
        }
        let (read, damaged) = reader.with_recorded_questions(unknown);
        let questions =
            read.iter().filter_map(|row| Some((id_of(&row.wait), row.question.clone()?)));
        let questions: Vec<_> = questions.collect();
        self.0.read.fetch_add(questions.len() as u64, Ordering::Relaxed);
        self.known().extend(questions);
        rows.extend(read);
        reader.mark_on_their_way(&mut rows);
        (rows, damaged)
    }

    /// The number of questions that were read from records since the start of the server.
    pub(crate) fn read(&self) -> u64 {
        self.0.read.load(Ordering::Relaxed)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<WaitId, Question>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
