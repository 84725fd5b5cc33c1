//! The journals of rooms for the driver. They convert records to rows outside the writer's thread
//! and send them to it.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::journal::record::JournalError;
use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::control::SentCommand;
use conclave_core::protocol::event::{Event, RULES, Record};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::request::RoomRequest;
use tokio::sync::oneshot;

use super::queue::{Cause, Front, NewRoom, RoomWriting, Write, WriterTask};
use super::{StoreWriter, StoredRoom};
use crate::storage::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, Opening, RecordsReading, Reopened,
    Reopening,
};
#[cfg(feature = "postgres")]
use crate::storage::store::sql::Sql;
use crate::storage::store::{ControlMessage, Durability, RunOrigin, StoreAddress, mail};
use crate::support::clock::BoxFuture;
use crate::support::overlay_files::OverlayPlace;

/// The number of characters of the first message that lists can search.
const TEXT: usize = 500;
/// The time that a dropped run may take to release its room.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) struct StoreJournals {
    pub(super) writer: Arc<StoreWriter>,
    pub(super) durability: Durability,
    pub(super) new_room: Arc<NewRoom>,
}

impl StoreJournals {
    pub(super) fn new(writer: &Arc<StoreWriter>, durability: Durability, about: RunOrigin) -> Self {
        // Where hosts share the store, an effect never precedes the answer to its record: the answer
        // may be that another host has taken the run.
        let is_shared = writer.is_shared();
        let durability = if is_shared { at_least_group(durability) } else { durability };
        let config = about.config.map(|config| config.to_string_lossy().into_owned());
        let new_room = NewRoom {
            durability: durability.as_str(),
            config,
            command: about.command,
            locked: about.locked,
            approvals: about.approvals,
            questions: about.questions,
            pool: about.pool,
        };
        Self { writer: Arc::clone(writer), durability, new_room: Arc::new(new_room) }
    }

    fn failure(&self, room: &RoomId, cause: &Cause) -> JournalFailure {
        cause.failure(room, &self.writer.place())
    }

    fn journal(&self, room: &RoomId) -> StoreJournal {
        StoreJournal {
            writing: RoomWriting::new(room.clone()),
            writer: Arc::clone(&self.writer),
            durability: self.durability,
            new_room: Arc::clone(&self.new_room),
            next: 0,
            snapshot_due: self.writer.snapshot_every,
        }
    }

    /// Waits until no other journal of the room is open, because a dropped run releases its room
    /// with a delay.
    async fn claim(&self, room: &RoomId) -> Result<(), Cause> {
        let shared = &self.writer.shared;
        let released = async {
            loop {
                // Registered before the check, so that a release in between is not missed.
                let mut released = pin!(shared.released.notified());
                released.as_mut().enable();
                if shared.live().insert(room.clone()) {
                    return;
                }
                // The release may be in the queue, where nothing else hurries it.
                shared.queue.urge();
                released.await;
            }
        };
        tokio::time::timeout(PATIENCE, released).await.map_err(|_| busy())
    }

    /// Does the same on a thread that may block.
    fn claim_now(&self, room: &RoomId) -> Result<(), Cause> {
        let pause = Duration::from_millis(5);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            if self.writer.shared.live().insert(room.clone()) {
                return Ok(());
            }
            self.writer.shared.queue.urge();
            std::thread::sleep(pause);
        }
        Err(busy())
    }

    async fn reopened(self, room: RoomId, now: Millis) -> Result<Option<Reopened>, Cause> {
        self.claim(&room).await?;
        let writer = Arc::clone(&self.writer);
        let mut reopened = self.reopen_claimed(room.clone(), now).await?;
        if let Some(reopened) = &mut reopened {
            reopened.messages = messages(&writer, room).await;
        }
        Ok(reopened)
    }

    /// Reads a journal for appending, on a thread that may block.
    pub(super) fn reopen_now(self, room: &RoomId, now: Millis) -> Result<Option<Reopened>, Cause> {
        self.claim_now(room)?;
        let reopening = self.reopen_claimed(room.clone(), now);
        futures_executor::block_on(tokio::task::unconstrained(reopening))
    }

    /// Opens a journal to append the record that ends its run, on a thread that may block. Returns
    /// the sequence number of that record, too.
    pub(super) fn open_to_append_end(
        self,
        room: &RoomId,
        now: Millis,
    ) -> Result<(Box<dyn Journal>, u64), Cause> {
        self.claim_now(room)?;
        let mut journal = self.journal(room);
        let taking = self.writer.take(room, now);
        let epoch = futures_executor::block_on(tokio::task::unconstrained(taking));
        journal.writing.own_by(epoch?.unwrap_or_default());
        let of_room = room.clone();
        // The records are not read, so the rules by which they were written do not matter.
        let next = self.writer.read_now(move |tables| {
            // The last of them may be missing, and the row of the room still counts them.
            let next = "SELECT CASE WHEN max(seq) + 1 > records THEN max(seq) + 1 ELSE records END
                FROM rooms LEFT JOIN events ON events.room = rooms.room
                WHERE rooms.room = ?1 GROUP BY rooms.room, records";
            tables.first(next, &[of_room.as_str().into()], |row| row.get(0))
        });
        journal.next = next.map_err(|error| Cause::of(&error))?.unwrap_or_default();
        self.writer.shared.queue.push(WriterTask::Claim(Arc::clone(&journal.writing)))?;
        let next = journal.next;
        Ok((Box::new(journal), next))
    }

    async fn reopen_claimed(self, room: RoomId, now: Millis) -> Result<Option<Reopened>, Cause> {
        // From here on, dropping the journal releases the room.
        let mut journal = self.journal(&room);
        // Records that the writer still holds are part of the room.
        self.writer.barrier().await?;
        // Before the journal is read: from here on no other host adds to it.
        let Some(epoch) = self.writer.take(&room, now).await? else {
            drop(journal);
            self.writer.barrier().await?;
            return Ok(None);
        };
        journal.writing.own_by(epoch);
        let StoredRoom { snapshot, records, stopped } = self.writer.stored(&room).await?;
        let snapshot_next = snapshot.as_ref().map_or(0, |snapshot| snapshot.next);
        journal.next = records.last().map_or(snapshot_next, |last| last.seq + 1);
        journal.snapshot_due = snapshot_next + self.writer.snapshot_every;
        if journal.next == 0 {
            // Released before another journal of the room is opened.
            drop(journal);
            self.writer.barrier().await?;
            return Ok(None);
        }
        if let Some(other) = records.iter().find(|record| record.rules != RULES) {
            let error = JournalError::OtherRules { seq: other.seq, rules: other.rules };
            return Err(Cause::new(std::io::ErrorKind::InvalidData, error.to_string()));
        }
        self.writer.shared.queue.push(WriterTask::Claim(Arc::clone(&journal.writing)))?;
        let (journal, messages) = (Box::new(journal), Vec::new());
        Ok(Some(Reopened { snapshot, records, stopped, messages, journal }))
    }
}

/// Takes the messages for a room.
async fn messages(writer: &StoreWriter, room: RoomId) -> Vec<SentCommand> {
    #[cfg(feature = "postgres")]
    if let Some(host) = writer.host() {
        let look = move |tables: &dyn Sql| {
            let mut messages = Vec::new();
            for message in mail::to_runs_of(tables, &host)? {
                // One that its sender has withdrawn meanwhile has no effect.
                if message.room == room && mail::take(tables, &message.id)? {
                    messages.push(message);
                }
            }
            Ok(messages)
        };
        // Those that cannot be read now are left to the inbox.
        let messages = writer.read(look).await.unwrap_or_default();
        return messages.into_iter().map(ControlMessage::into_command).collect();
    }
    let Some(folder) = writer.folder().map(Path::to_owned) else { return Vec::new() };
    let take = move || {
        let is_meant = |mail: &ControlMessage| mail.room == room;
        mail::receive(&folder, &is_meant, &|_| false, &|_| false)
    };
    let received = tokio::task::spawn_blocking(take).await;
    // Those that cannot be read now are left to the inbox.
    let received = received.map_or_else(|_| Vec::new(), Result::unwrap_or_default);
    // The files stay until the inbox finds that the room has recorded their messages.
    received.into_iter().map(|message| message.mail.into_command()).collect()
}

impl Journals for StoreJournals {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let exists = || Cause::new(std::io::ErrorKind::AlreadyExists, "it has a journal already");
        if let Some(broken) = self.writer.shared.queue.broken() {
            return Err(self.failure(room, &broken));
        }
        if !self.writer.shared.live().insert(room.clone()) {
            return Err(self.failure(room, &exists()));
        }
        // From here on, dropping the journal releases the room.
        let (journal, room) = (self.journal(room), room.clone());
        let epoch = self.writer.first_epoch(&room).map_err(|cause| journal.failure(&cause))?;
        journal.writing.own_by(epoch);
        Ok(Box::pin(async move {
            let is_known = journal.writer.read(move |tables| {
                tables.has_row("SELECT 1 FROM rooms WHERE room = ?1", &[room.as_str().into()])
            });
            match is_known.await {
                Ok(false) => {
                    let journal: Box<dyn Journal> = Box::new(journal);
                    Ok(journal)
                }
                Ok(true) => Err(journal.failure(&exists())),
                Err(error) => Err(journal.failure(&Cause::of(&error))),
            }
        }))
    }

    fn survive_power_cuts(&self) -> bool {
        self.durability != Durability::Exit
    }

    fn overlays(&self, run: &RoomId, epoch: u64) -> Option<OverlayPlace> {
        match self.writer.folder() {
            Some(folder) => Some(OverlayPlace::in_folder(folder, run)),
            #[cfg(feature = "postgres")]
            None => self.writer.overlay_place(run, epoch),
            #[cfg(not(feature = "postgres"))]
            None => {
                let _ = epoch;
                None
            }
        }
    }

    fn records(&self, room: &RoomId) -> RecordsReading {
        let (writer, room) = (Arc::clone(&self.writer), room.clone());
        Box::pin(async move {
            let read = async {
                // Records that the writer still holds are part of the room.
                writer.barrier().await?;
                writer.records(&room).await
            };
            let records = read.await.map_err(|cause| cause.failure(&room, &writer.place()))?;
            Ok((!records.is_empty()).then_some(records))
        })
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        let (journals, room) = (self.clone(), room.clone());
        let place = self.writer.place();
        Box::pin(async move {
            journals.reopened(room.clone(), now).await.map_err(|cause| cause.failure(&room, &place))
        })
    }
}

struct StoreJournal {
    writing: Arc<RoomWriting>,
    writer: Arc<StoreWriter>,
    durability: Durability,
    new_room: Arc<NewRoom>,
    next: u64,
    snapshot_due: u64,
}

impl StoreJournal {
    fn failure(&self, cause: &Cause) -> JournalFailure {
        cause.failure(&self.writing.room, &self.writer.place())
    }

    fn write(&self, entry: &JournalBatch<'_>) -> Result<Write, Cause> {
        let wrong = |what: String| Cause::new(std::io::ErrorKind::InvalidInput, what);
        let (mut rows, mut parts) = (Vec::with_capacity(entry.records.len()), Vec::new());
        for (record, expected) in entry.records.iter().zip(self.next..) {
            // A gap would make the room unreadable when it is resumed.
            if record.seq != expected {
                return Err(wrong(format!(
                    "record {} came where {expected} is the next",
                    record.seq
                )));
            }
            let (row, of_row) =
                self.writer.rows.of(record).map_err(|error| wrong(error.to_string()))?;
            rows.push(row);
            parts.extend(of_row);
        }
        Ok(Write {
            writing: Arc::clone(&self.writing),
            rows,
            parts,
            waits: entry.waits.to_vec(),
            new_room: Arc::clone(&self.new_room),
            front: entry.records.iter().find_map(|record| front(record)),
            inbound: entry.records.iter().find_map(|record| inbound(record)),
            begins: entry
                .records
                .iter()
                .any(|record| matches!(record.event, Event::RunStarted { .. })),
            outcome: entry.outcome.cloned(),
            spent: entry.spent,
            durable: self.durability != Durability::Exit,
            answer: None,
        })
    }
}

impl Journal for StoreJournal {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), JournalFailure>> {
        Box::pin(async {
            self.writer.shared.queue.free().await;
            Ok(())
        })
    }

    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        if let Some(cause) = self.writing.failed() {
            return Err(self.failure(&cause));
        }
        if entry.records.is_empty() {
            return Ok(Keeping::Kept);
        }
        let mut write = self.write(entry).map_err(|cause| self.failure(&cause))?;
        let (answer, answered) = oneshot::channel();
        // With `Exit` the room does not wait for the commit.
        write.answer = (self.durability != Durability::Exit).then_some(answer);
        self.writing.began();
        if let Err(cause) = self.writer.shared.queue.push(WriterTask::Write(Box::new(write))) {
            self.writing.ended();
            return Err(self.failure(&cause));
        }
        self.next += entry.records.len() as u64;
        match self.durability {
            Durability::Exit => Ok(Keeping::Kept),
            Durability::Group => Ok(Keeping::Soon(self.answered(answered))),
            Durability::Sync => {
                self.hurry();
                Ok(Keeping::First(self.answered(answered)))
            }
        }
    }

    fn epoch(&self) -> u64 {
        self.writing.epoch()
    }

    fn watch_loss(&mut self) -> Option<BoxFuture<'static, ()>> {
        let run = self.writing.room.run();
        let mut is_lost = self.writer.shared.watch_loss(&run)?;
        Some(Box::pin(async move {
            // Without a sender the run was released here.
            if is_lost.wait_for(|is_lost| *is_lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        }))
    }

    fn hurry(&mut self) {
        self.writer.shared.queue.urge();
    }

    fn settle(&mut self) -> BoxFuture<'static, Result<(), JournalFailure>> {
        if let Some(cause) = self.writing.failed() {
            return Box::pin(std::future::ready(Err(self.failure(&cause))));
        }
        // Every record is committed already, and these durabilities commit with an fsync.
        if self.durability != Durability::Exit && !self.writing.is_waiting() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let (answer, answered) = oneshot::channel();
        if let Err(cause) = self.writer.shared.queue.push(WriterTask::Settle(answer)) {
            return Box::pin(std::future::ready(Err(self.failure(&cause))));
        }
        self.answered(answered)
    }

    fn snapshot_due(&self) -> Option<u64> {
        Some(self.snapshot_due)
    }

    fn keep_snapshot(&mut self, snapshot: Unfinished) {
        self.snapshot_due = snapshot.next + self.writer.snapshot_every;
        let (writing, snapshot) = (Arc::clone(&self.writing), Box::new(snapshot));
        // The queue keeps the order, so the snapshot is committed after its records. If it is
        // broken, the next append fails.
        let _ = self.writer.shared.queue.push(WriterTask::Snapshot(writing, snapshot));
    }
}

impl StoreJournal {
    /// Returns the answer as a future.
    fn answered(
        &self,
        answered: oneshot::Receiver<Result<(), Cause>>,
    ) -> BoxFuture<'static, Result<(), JournalFailure>> {
        let (shared, writing, place) =
            (Arc::clone(&self.writer.shared), Arc::clone(&self.writing), self.writer.place());
        Box::pin(async move {
            let answer = answered
                .await
                .unwrap_or_else(|_| Err(shared.queue.broken().unwrap_or_else(thread_gone)));
            // An earlier append may have failed without a waiting future.
            let answer = answer.and_then(|()| writing.failed().map_or(Ok(()), Err));
            answer.map_err(|cause| cause.failure(&writing.room, &place))
        })
    }
}

impl Drop for StoreJournal {
    fn drop(&mut self) {
        // A broken queue takes no task, and the room must be free all the same.
        if self.writer.shared.queue.push(WriterTask::Release(Arc::clone(&self.writing))).is_err() {
            self.writer.shared.release(&self.writing.room);
        }
    }
}

fn at_least_group(durability: Durability) -> Durability {
    if durability == Durability::Exit { Durability::Group } else { durability }
}

fn busy() -> Cause {
    Cause::new(std::io::ErrorKind::ResourceBusy, "this process has it under way")
}

fn thread_gone() -> Cause {
    Cause::new(std::io::ErrorKind::BrokenPipe, "the thread that writes it is gone")
}

/// The columns for lists of runs, if this record opens the room.
fn front(record: &Record) -> Option<Front> {
    let Event::RoomOpened { setup, opening, .. } = &record.event else { return None };
    let mut agents: Vec<&str> = Vec::new();
    for task in setup.tasks.values() {
        if !agents.contains(&task.agent.as_str()) {
            agents.push(task.agent.as_str());
        }
    }
    let text = first_characters(opening.content.as_deref().unwrap_or(""));
    Some(Front {
        entry: opening.entry.to_string(),
        agents: serde_json::to_string(&agents).unwrap_or_default(),
        text,
    })
}

/// The beginning of the message, if this record is one from a channel.
fn inbound(record: &Record) -> Option<String> {
    let Event::Requested { what: RoomRequest::Inbound { inbound }, .. } = &record.event else {
        return None;
    };
    Some(first_characters(&inbound.text))
}

fn first_characters(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

pub(super) fn place(address: &StoreAddress) -> String {
    format!("the store {address}")
}
