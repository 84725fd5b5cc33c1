//! The people outside: they order runs, decide, answer, tell something and stop. They reach the
//! store over a network without faults, but the server may be away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conclave_core::journal::pending_work::WaitKey;
use conclave_runtime::approval::Approval;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, DecisionSent, Durability, RunFilter, RunOrigin, RunRow,
    RunState, Store, StoreAddress, StoreError, StoreReader, WaitRow,
};
use conclave_runtime::{Prepared, RunOptions};

use super::fleet::{lock, shortened};
use super::work::{self, Kind, Script};
use super::worker;
use crate::random::Random;

/// What the office has done and seen.
#[derive(Default)]
pub(super) struct Book {
    /// The runs that the store has acknowledged.
    pub(super) ordered: BTreeSet<RoomId>,
    /// The messages that it has acknowledged.
    pub(super) sent: Vec<ControlMessage>,
    /// Runs without an end, at the last look; `None` before the first.
    pub(super) open: Option<Vec<RoomId>>,
    pub(super) ended: u64,
    /// Questions and orders that failed, by reason.
    pub(super) failures: BTreeMap<String, u64>,
    /// Whether more runs are to be ordered.
    pub(super) orders: bool,
    pub(super) is_over: bool,
}

/// The addresses and the amount of work.
#[derive(Clone)]
pub(super) struct Office {
    pub(super) url: String,
    pub(super) stock: std::path::PathBuf,
    pub(super) cache: std::path::PathBuf,
    pub(super) port: u16,
    pub(super) seed: u64,
    /// The number of runs without an end that it keeps up.
    pub(super) open: usize,
    /// The longest time that a person needs for a decision.
    pub(super) slowest_ms: u64,
    pub(super) book: Arc<Mutex<Book>>,
}

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

struct AtWork {
    office: Office,
    store: Option<(Store, Arc<Prepared>)>,
    reader: Option<StoreReader>,
    random: Random,
    next: u64,
    /// When each wait is to be answered.
    answers_at: BTreeMap<(RoomId, CallId), Instant>,
    answered: BTreeSet<(RoomId, CallId)>,
    told: BTreeSet<RoomId>,
    stopped: BTreeSet<RoomId>,
}

impl Office {
    /// Works until its book says that it is over.
    pub(super) fn work(self) -> Result<(), String> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let book = Arc::clone(&self.book);
        let random = Random::new(self.seed);
        let mut at_work = AtWork {
            office: self,
            store: None,
            reader: None,
            random,
            next: 0,
            answers_at: BTreeMap::new(),
            answered: BTreeSet::new(),
            told: BTreeSet::new(),
            stopped: BTreeSet::new(),
        };
        while !lock(&book).is_over {
            if let Err(error) = runtime.block_on(at_work.look()) {
                // The server is away; everything is asked anew.
                at_work.reader = None;
                *lock(&book).failures.entry(shortened(&error)).or_default() += 1;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // The store closes outside the runtime's thread.
        drop(at_work);
        Ok(())
    }
}

fn text(error: StoreError) -> String {
    error.to_string()
}

impl AtWork {
    async fn look(&mut self) -> Result<(), String> {
        let office = self.office.clone();
        if self.store.is_none() {
            let store = worker::open(&office.url, "office").map_err(text)?;
            let (_, prepared) =
                work::load(&office.stock, &office.cache, office.port, &store).await?;
            self.store = Some((store, prepared));
        }
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let address: StoreAddress =
                    office.url.parse().map_err(|error| format!("{error:?}"))?;
                StoreReader::open(address).map_err(text)?
            }
        };
        let runs = reader.runs(&RunFilter::default()).map_err(text)?;
        let is_open = |run: &&RunRow| !matches!(run.state, RunState::Ended(_));
        let open: Vec<&RunRow> = runs.iter().filter(is_open).collect();
        let orders = {
            let mut book = lock(&office.book);
            book.ended = (runs.len() - open.len()) as u64;
            book.open = Some(open.iter().map(|run| run.run.clone()).collect());
            book.orders
        };
        for wait in reader.waits(None).map_err(text)? {
            self.attend(&reader, &wait)?;
        }
        for run in &open {
            self.tell_or_stop(&reader, run)?;
        }
        self.reader = Some(reader);
        if orders {
            for _ in open.len()..office.open {
                self.order().await?;
            }
        }
        Ok(())
    }

    /// Orders the next run.
    async fn order(&mut self) -> Result<(), String> {
        let Some((store, prepared)) = &self.store else { return Ok(()) };
        let run = work::run_of(self.next);
        // Whether a failed order exists is unknown, so its name is not used again.
        self.next += 1;
        let about = RunOrigin {
            command: "soak".to_owned(),
            pool: Some(prepared.pool()),
            ..RunOrigin::default()
        };
        let options = RunOptions {
            ids: Arc::new(run.clone()),
            journals: store.journals(Durability::Group, about),
            ..RunOptions::default()
        };
        let ordered = prepared.enqueue(format!("do the work of {run}"), options).await;
        if let Err(error) = ordered {
            // A store that has failed does not work again.
            self.store = None;
            return Err(format!("an order failed: {error}"));
        }
        lock(&self.office.book).ordered.insert(run);
        Ok(())
    }

    /// Decides or answers, when the person has thought long enough.
    fn attend(&mut self, reader: &StoreReader, wait: &WaitRow) -> Result<(), String> {
        let Some(call) = (match wait.wait.key {
            WaitKey::Call(call) => Some(call),
            _ => None,
        }) else {
            return Ok(());
        };
        let (room, kind) = (wait.room.clone(), Script::of(&wait.room).kind);
        let word = match (wait.wait.kind.as_str(), kind) {
            ("approval", Kind::Approved) => ControlCommand::Decide {
                call,
                approval: Approval::Approved,
                arguments_sha256: None,
            },
            ("approval", Kind::Refused) => {
                let reason = "the office does not want it".to_owned();
                ControlCommand::Decide {
                    call,
                    approval: Approval::Refused { reason },
                    arguments_sha256: None,
                }
            }
            ("user", _) => ControlCommand::Answer { call, text: format!("an answer to {room}") },
            _ => return Ok(()),
        };
        let key = (room.clone(), call);
        if self.answered.contains(&key) {
            return Ok(());
        }
        let slowest = self.office.slowest_ms;
        let thinks = Duration::from_millis(self.random.below(slowest.max(1)));
        let at = *self.answers_at.entry(key.clone()).or_insert_with(|| Instant::now() + thinks);
        if at > Instant::now() {
            return Ok(());
        }
        let message = ControlMessage::new(room, word);
        let is_pending = || {
            let waits = reader.waits(Some(&message.room.run()))?;
            Ok(waits.iter().any(|row| row.room == message.room && row.wait.key == wait.wait.key))
        };
        let sent = reader.mail().send_decision(&message, is_pending).map_err(text)?;
        self.answered.insert(key);
        if sent == DecisionSent::Sent {
            lock(&self.office.book).sent.push(message);
        }
        Ok(())
    }

    /// Tells a run something, or stops it, in the middle of its work.
    fn tell_or_stop(&mut self, reader: &StoreReader, run: &RunRow) -> Result<(), String> {
        let room = &run.run;
        let has_begun = run.records > 6 + work::number_of(room) % 20;
        let message = if !has_begun {
            return Ok(());
        } else if work::is_told(room) && !self.told.contains(room) {
            let text = format!("a word to {room}");
            ControlMessage::new(room.clone(), ControlCommand::Tell { task: None, text })
        } else if work::is_stopped(room) && run.records > 30 && !self.stopped.contains(room) {
            let reason = "the office has changed its mind".to_owned();
            ControlMessage::new(room.clone(), ControlCommand::Stop { reason })
        } else {
            return Ok(());
        };
        let sent = reader.mail().send(&message).map_err(text);
        // Whether a message that failed was sent is unknown, so it is not sent again.
        match &message.word {
            ControlCommand::Stop { .. } => self.stopped.insert(room.clone()),
            _ => self.told.insert(room.clone()),
        };
        sent?;
        lock(&self.office.book).sent.push(message);
        Ok(())
    }
}
