//! The result of a run, for assertions.

use std::sync::Arc;

use conclave_core::journal::record::{fold, from_lines, to_line};
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{ChannelId, RoomId};
use conclave_core::types::outcome::{Outcome, Status};
use conclave_runtime::event::Record;
use conclave_runtime::journal::{Journals, MemoryJournals};
use conclave_runtime::store::{Durability, RoomRow, RunOrigin, Store, StoreReader};
use conclave_runtime::subscribe::{Published, RunEvent};
use conclave_test_servers::{TestDatabase, database_of_test_store};

use crate::store::address;

/// The room of a rig's run.
pub(crate) const ROOM: &str = "test";

/// The journals of a rig's run: in memory, or in a database of its own where the tests of any store
/// play on PostgreSQL.
pub(crate) enum RunJournals {
    Memory(MemoryJournals),
    Stored(Store, TestDatabase),
}

impl RunJournals {
    pub(crate) fn new() -> Self {
        let Some(database) = database_of_test_store() else {
            return Self::Memory(MemoryJournals::default());
        };
        Self::Stored(Store::open(address(&database)).expect("the store opens"), database)
    }

    pub(crate) fn journals(&self) -> Arc<dyn Journals> {
        match self {
            Self::Memory(journals) => Arc::new(journals.clone()),
            Self::Stored(store, _) => store.journals(Durability::Group, RunOrigin::default()),
        }
    }

    /// Returns the records of the run's rooms, ordered by name.
    pub(crate) fn records(self) -> Vec<(RoomId, Vec<Record>)> {
        match self {
            Self::Memory(journals) => {
                let all = |room: RoomId| {
                    let records = journals.records(&room);
                    (room, records.iter().map(|record| Record::clone(record)).collect())
                };
                journals.rooms().into_iter().map(all).collect()
            }
            Self::Stored(store, _database) => {
                let address = store.address().clone();
                // Only its end commits all that it has taken.
                drop(store);
                let reader = StoreReader::open(address).expect("the store can be read");
                let mut rooms = reader.rooms(&RoomId::from(ROOM)).expect("the rooms are read");
                let all = |row: RoomRow| {
                    let records = reader.records(&row.room).expect("the room is read");
                    (row.room, records)
                };
                rooms.sort_by(|one, other| one.room.cmp(&other.room));
                rooms.into_iter().map(all).collect()
            }
        }
    }
}

/// A finished run.
pub struct Ran {
    pub outcome: Arc<Outcome>,
    pub happenings: Vec<Published>,
    /// The messages on channels.
    pub heard: Vec<(ChannelId, String)>,
    journals: Vec<(RoomId, Vec<Record>)>,
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub struct Answer {
    pub name: String,
    pub content: String,
    pub is_error: bool,
    pub fault: Option<Fault>,
    pub report: CallReport,
}

impl Ran {
    pub(crate) fn new(
        outcome: Arc<Outcome>,
        happenings: Vec<Published>,
        journals: Vec<(RoomId, Vec<Record>)>,
        heard: Vec<(ChannelId, String)>,
    ) -> Self {
        let ran = Self { outcome, happenings, heard, journals };
        ran.assert_folds();
        ran
    }

    /// Returns the text of the result, or an empty text without a result.
    #[must_use]
    pub fn content(&self) -> &str {
        self.outcome.content.as_deref().unwrap_or_default()
    }

    /// Returns the status of the run.
    #[must_use]
    pub fn status(&self) -> Status {
        self.outcome.status
    }

    /// Returns the published notices over all rooms, in order.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.happenings.iter().filter_map(|happening| match &happening.what {
            RunEvent::Notice { notice: told } => Some(told),
            _ => None,
        })
    }

    /// Returns the tool calls that ended, in order.
    #[must_use]
    pub fn answers(&self) -> Vec<Answer> {
        let answer = |notice: &Notice| match notice {
            Notice::ToolAnswered { name, content, is_error, fault, report, .. } => Some(Answer {
                name: name.clone(),
                content: content.clone(),
                is_error: *is_error,
                fault: fault.clone(),
                report: report.clone(),
            }),
            _ => None,
        };
        self.notices().filter_map(answer).collect()
    }

    /// Returns the only tool call.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let answers = self.answers();
        assert_eq!(answers.len(), 1, "one tool call was expected: {answers:?}");
        answers.into_iter().next().expect("there is one")
    }

    /// Returns the fault of the only tool call.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let answer = self.answer();
        answer.fault.clone().unwrap_or_else(|| panic!("a fault was expected: {answer:?}"))
    }

    /// Returns the faults of agents and strategies, in order.
    #[must_use]
    pub fn plugin_faults(&self) -> Vec<FaultKind> {
        let fault = |notice: &Notice| match notice {
            Notice::PluginFaulted { fault, .. } => Some(fault.kind),
            _ => None,
        };
        self.notices().filter_map(fault).collect()
    }

    /// Returns all denials, by imports and by the room.
    #[must_use]
    pub fn denials(&self) -> Vec<DenialRecord> {
        let denial = |happening: &Published| match &happening.what {
            RunEvent::Notice { notice: Notice::Denied { record, .. } } => Some(record.clone()),
            _ => None,
        };
        self.happenings.iter().filter_map(denial).collect()
    }

    /// Returns the log lines of plugins.
    #[must_use]
    pub fn logs(&self) -> Vec<String> {
        let line = |happening: &Published| match &happening.what {
            RunEvent::Logged { message, .. } => Some(message.clone()),
            _ => None,
        };
        self.happenings.iter().filter_map(line).collect()
    }

    /// Returns the rooms of the run.
    #[must_use]
    pub fn rooms(&self) -> Vec<RoomId> {
        self.journals.iter().map(|(room, _)| room.clone()).collect()
    }

    /// Returns the events of a room.
    #[must_use]
    pub fn events(&self, room: &str) -> Vec<Event> {
        let of_room = self.journals.iter().filter(|(name, _)| name.as_str() == room);
        of_room.flat_map(|(_, records)| records).map(|record| record.event.clone()).collect()
    }

    /// Checks that every room equals the fold of its journal, also after the journal was written
    /// and read.
    fn assert_folds(&self) {
        for (room, records) in &self.journals {
            let lines: String = records
                .iter()
                .map(|record| to_line(record).expect("it is not nested too deep") + "\n")
                .collect();
            let read = from_lines(&lines).expect("a journal that was written can be read");
            let folded = fold(read);
            assert_eq!(
                folded,
                fold(records.iter().cloned()),
                "the written form of {room} says the same"
            );
            let ended = folded
                .outcome()
                .unwrap_or_else(|| panic!("the journal of {room} leads to the end of the room"));
            if room.as_str() == ROOM {
                assert_eq!(*ended, self.outcome, "the journal leads to the outcome");
            }
        }
    }
}
