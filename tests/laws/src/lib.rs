//! The laws of a store, as a suite that an embedder runs on a store of their own. Each law is a
//! function whose name says it. It gets a new store, opens it as one or several hosts, and does
//! through the ports of the runtime what the driver does.
//!
//! ```
//! use std::sync::Arc;
//!
//! use conclave_runtime::journal::{Journals, MemoryJournals};
//! use conclave_runtime::store::StoreOptions;
//! use conclave_store_laws::{LawResult, TestedHost, TestedStore, try_all};
//!
//! struct Memory(MemoryJournals);
//! struct Host(MemoryJournals);
//!
//! impl TestedStore for Memory {
//!     fn open(&self, _: &StoreOptions) -> LawResult<Box<dyn TestedHost>> {
//!         Ok(Box::new(Host(self.0.clone())))
//!     }
//!
//!     fn crash(&self, host: Box<dyn TestedHost>) {
//!         drop(host);
//!     }
//! }
//!
//! impl TestedHost for Host {
//!     fn journals(&self) -> Arc<dyn Journals> {
//!         Arc::new(self.0.clone())
//!     }
//! }
//!
//! let report = try_all(|| Memory(MemoryJournals::default()));
//! assert!(report.broken.is_empty(), "{report}");
//! ```

pub mod append;
pub mod blobs;
pub mod chain;
pub mod inbox;
pub mod kv;
pub mod ownership;
pub mod queue;
pub mod retention;
pub mod snapshots;

mod rooms;

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use conclave_runtime::blobs::Blobs;
use conclave_runtime::journal::Journals;
use conclave_runtime::kv::KvStore;
use conclave_runtime::store::{Durability, RunOrigin, Store, StoreOptions, StoreReader};

/// A store on which a law is tried. It is empty at first.
pub trait TestedStore: Sync {
    /// Opens the store as another host. A store of one's own needs none of the options.
    ///
    /// # Errors
    /// With the reason why it cannot be opened.
    fn open(&self, options: &StoreOptions) -> LawResult<Box<dyn TestedHost>>;

    /// Ends a host as SIGKILL does. What it has not acknowledged may be lost, and its runs stay its
    /// own until its lease is over.
    fn crash(&self, host: Box<dyn TestedHost>);

    /// Ends the leases of all hosts, as if each had been paused for longer than its lease. Returns
    /// false, the default, if one host at a time opens the store.
    fn end_leases(&self) -> bool {
        false
    }

    /// Opens the values of plugins; `None`, the default, if the store has none.
    fn kv(&self) -> Option<Arc<dyn KvStore>> {
        None
    }

    /// Changes the stored tables by hand, with a statement of SQL. Returns false, the default, if
    /// they are not those of [`Store`].
    fn change(&self, statement: &str) -> bool {
        let _ = statement;
        false
    }
}

/// A host that has a store open. Dropping it closes the store.
pub trait TestedHost: Send + Sync {
    /// The journals of its rooms. An acknowledged record must survive [`TestedStore::crash`].
    fn journals(&self) -> Arc<dyn Journals>;

    /// The attachments; `None`, the default, if the store has none.
    fn blobs(&self) -> Option<Arc<dyn Blobs>> {
        None
    }

    /// The store of the runtime; `None`, the default, for any other. The laws of the inbox, the work
    /// queue, the chain and retention need it, because only [`Store`] has these.
    fn store(&self) -> Option<&Store> {
        None
    }
}

impl TestedHost for Store {
    fn journals(&self) -> Arc<dyn Journals> {
        let pool = Some(POOL.to_owned());
        Self::journals(self, Durability::Group, RunOrigin { pool, ..RunOrigin::default() })
    }

    fn blobs(&self) -> Option<Arc<dyn Blobs>> {
        Some(Self::blobs(self))
    }

    fn store(&self) -> Option<&Store> {
        Some(self)
    }
}

/// The reason why a law was not found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LawFailure {
    /// The store breaks the law.
    Broken(String),
    /// The store lacks what the law is about.
    NotTried(&'static str),
}

impl<E: std::error::Error> From<E> for LawFailure {
    fn from(error: E) -> Self {
        Self::Broken(error.to_string())
    }
}

/// The result of a law, or of a step of one.
pub type LawResult<T = ()> = Result<T, LawFailure>;

/// A law with its name.
#[derive(Clone, Copy)]
pub struct Law {
    /// The name of its function.
    pub name: &'static str,
    /// Tries it on a new store.
    pub run: fn(&dyn TestedStore) -> LawResult,
}

macro_rules! laws {
    ($($module:ident { $($law:ident),+ $(,)? })+) => {
        &[$($(Law { name: stringify!($law), run: $module::$law }),+),+]
    };
}

/// All laws.
pub const LAWS: &[Law] = laws! {
    append {
        records_are_read_in_the_order_of_their_append,
        a_batch_with_a_gap_is_refused_and_stores_nothing,
        what_is_acknowledged_is_read_after_a_crash,
        a_room_is_opened_once,
        a_new_room_belongs_to_one_of_two_hosts,
    }
    ownership {
        a_host_that_lost_a_run_appends_to_none_of_its_rooms,
        a_host_that_lost_a_run_opens_no_child_room,
        a_take_over_is_the_first_record_of_the_next_epoch,
        the_run_of_a_live_host_is_busy,
        a_released_run_is_free_at_once,
        of_hosts_that_take_a_run_at_once_one_has_it,
        a_late_record_of_an_older_epoch_has_no_effect,
    }
    inbox {
        a_message_is_received_until_it_is_deleted,
        a_message_is_withdrawn_only_before_it_is_received,
        of_decisions_about_one_call_one_is_sent,
        no_decision_about_a_decided_call_is_sent,
    }
    queue {
        each_due_run_goes_to_one_claimer,
        a_claimer_gets_runs_of_its_pool,
        a_sleeping_run_is_due_when_it_wakes,
        a_message_wakes_a_run_even_while_it_is_given_back,
        a_host_that_lost_a_run_does_not_give_it_back,
    }
    blobs {
        bytes_are_read_by_their_digest_and_stored_once,
        bytes_are_stored_before_the_record_that_refers_to_them,
        bytes_that_changed_are_not_returned,
    }
    snapshots {
        a_resumed_room_is_the_fold_of_its_records,
        a_snapshot_that_was_changed_is_ignored,
    }
    kv {
        a_value_is_read_until_it_is_deleted,
        the_quota_is_exact_when_many_write_at_once,
        keys_are_listed_in_the_order_of_their_bytes,
        owners_do_not_see_each_other,
    }
    chain {
        each_host_appends_to_a_chain_of_its_own,
        a_chain_of_an_ended_host_is_gone_on_with,
        a_change_of_one_of_several_chains_is_found,
        a_change_by_hand_is_found,
    }
    retention {
        what_has_ended_is_removed_and_what_is_open_stays,
        a_run_that_another_host_has_open_stays,
        runs_are_listed_in_the_state_of_their_records,
    }
};

/// The results of all laws on one kind of store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LawReport {
    /// The laws that hold.
    pub held: Vec<&'static str>,
    /// The laws that are broken, each with what happened.
    pub broken: Vec<(&'static str, String)>,
    /// The laws that were not tried, each with what the store lacks.
    pub not_tried: Vec<(&'static str, &'static str)>,
}

/// Tries each law on a new store.
#[must_use]
pub fn try_all<S: TestedStore>(new_store: impl Fn() -> S) -> LawReport {
    let mut report = LawReport::default();
    for law in LAWS {
        match (law.run)(&new_store()) {
            Ok(()) => report.held.push(law.name),
            Err(LawFailure::Broken(what)) => report.broken.push((law.name, what)),
            Err(LawFailure::NotTried(lacks)) => report.not_tried.push((law.name, lacks)),
        }
    }
    report
}

impl Display for LawReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, broken, not_tried } = self;
        let counts = (held.len(), broken.len(), not_tried.len());
        writeln!(out, "{} laws hold, {} are broken, {} not tried", counts.0, counts.1, counts.2)?;
        broken.iter().try_for_each(|(law, what)| writeln!(out, "broken: {law}: {what}"))?;
        not_tried.iter().try_for_each(|(law, lacks)| writeln!(out, "not tried: {law}: {lacks}"))
    }
}

/// The number of characters of a value in a report.
const SHORT: usize = 400;
/// The pool of the runs in the laws.
const POOL: &str = "pool";

/// Opens the store as a host.
fn open(store: &dyn TestedStore) -> LawResult<Box<dyn TestedHost>> {
    store.open(&StoreOptions { snapshot_every: Some(10), ..StoreOptions::default() })
}

/// Opens the store as this many hosts.
fn open_as_many(store: &dyn TestedStore, hosts: usize) -> LawResult<Vec<Box<dyn TestedHost>>> {
    if !store.end_leases() {
        return Err(LawFailure::NotTried("one host at a time opens the store"));
    }
    (0..hosts).map(|_| open(store)).collect()
}

fn store_of(host: &dyn TestedHost) -> LawResult<&Store> {
    host.store().ok_or(LawFailure::NotTried("it is no store of the runtime"))
}

fn reader_of(host: &dyn TestedHost) -> LawResult<StoreReader> {
    Ok(StoreReader::open(store_of(host)?.address())?)
}

fn change(store: &dyn TestedStore, statement: &str) -> LawResult {
    let lacks = LawFailure::NotTried("its tables cannot be changed by hand");
    if store.change(statement) { Ok(()) } else { Err(lacks) }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> LawResult {
    if holds { Ok(()) } else { Err(LawFailure::Broken(what())) }
}

fn ensure_equal<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, expected: &T) -> LawResult {
    let short = |value: &T| format!("{value:?}").chars().take(SHORT).collect::<String>();
    ensure(found == expected, || format!("{what}: {}, and not {}", short(found), short(expected)))
}

/// Runs a future to its end.
fn wait<T>(future: impl Future<Output = T>) -> LawResult<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}
