//! A busy host is killed with SIGKILL, at named points and at random times, and restarted. No
//! acknowledged record is lost, no work is done twice, and all work ends. `cargo xtask soak` does
//! ten times as many kills.

use std::process::Command;

use conclave_runtime::store::Durability;
use conclave_soak::{Child, Keep, Place, Plan, Totals, can_cut_power, is_skipped, soak};
#[cfg(unix)]
use conclave_soak::{
    ClusterFailure, ClusterPlan, ClusterWorker, ServerPlan, soak_cluster, soak_server,
};
use conclave_test_support::guest;

/// The environment variable with the arguments of the killed host. Without it [`the_child`] does
/// nothing.
const WORDS: &str = "CONCLAVE_SOAK_CHILD";

/// Not a test of its own: the host that the other tests start and kill.
#[test]
fn the_child() {
    let Ok(words) = std::env::var(WORDS) else { return };
    Child::of_words(&words).expect("the parent's words").live().expect("the host lives");
}

fn killed(kills: u64, seed: u64, keep: Keep) -> Totals {
    ended(kills, seed, keep, false)
}

/// Runs so many kills, most of them with a power cut if `power` is set.
fn ended(kills: u64, seed: u64, keep: Keep, power: bool) -> Totals {
    // The child finds this agent by its name.
    assert!(std::path::Path::new(&guest("agent_busy")).is_file());
    let place = Place {
        guests: conclave_test_support::guests(),
        stock: conclave_test_support::stock(),
        cache: conclave_test_support::cache(),
    };
    let plan = Plan { kills, seed, runs: 3, each: 14, keep, at_once: 2, slowest_ms: 12, power };
    let command = |child: &Child| {
        let mut command = Command::new(std::env::current_exe().expect("a test runs from a file"));
        command
            .args(["kill::the_child", "--exact", "--nocapture", "--test-threads=1"])
            .env(WORDS, child.words());
        command
    };
    let totals = soak(&place, &plan, &command, &|_| {}).expect("the kills can be done");
    println!("{totals}");
    totals
}

fn all_is_well(kills: u64, seed: u64, keep: Keep) {
    let totals = killed(kills, seed, keep);
    assert!(totals.problems.is_empty(), "{totals}");
    assert!(
        totals.killed() >= kills
            && totals.resumed > 0
            && totals.duplicates == 0
            && totals.lost == 0,
        "{totals}"
    );
}

#[test]
fn fifty_kills_lose_nothing_and_repeat_nothing() {
    all_is_well(50, 0x5eed, Keep::Store(Durability::Group));
}

#[test]
fn nor_do_kills_with_an_fsync_for_each_record() {
    all_is_well(8, 0xfeed, Keep::Store(Durability::Sync));
}

/// Checks that these tests can fail.
#[test]
fn a_journal_that_says_kept_before_it_writes_is_found_out() {
    let totals = killed(12, 0xbad, Keep::Late);
    assert!(totals.lost > 0 || totals.duplicates > 0, "{totals}");
}

/// Skipped if no disk can be mounted; `cargo xtask test` prints the reason.
#[test]
fn power_cuts_lose_nothing_that_was_told() {
    if is_skipped(can_cut_power()) {
        return;
    }
    let totals = ended(5, 0x5eed, Keep::Store(Durability::Group), true);
    assert!(
        totals.problems.is_empty() && totals.power_cuts() >= 5 && totals.promises > 0,
        "{totals}"
    );
}

/// Checks that the test of power cuts can fail.
#[test]
fn files_that_are_not_synced_are_found_out() {
    if is_skipped(can_cut_power()) {
        return;
    }
    let totals = ended(20, 0xbad, Keep::Unsynced, true);
    assert!(totals.broken > 0, "{totals}");
}

/// The environment variable with the arguments of a worker of a shared store. Without it
/// [`the_worker`] does nothing.
#[cfg(unix)]
const WORKER: &str = "CONCLAVE_SOAK_WORKER";

/// Not a test of its own: a worker that the next test starts and kills.
#[cfg(unix)]
#[test]
fn the_worker() {
    let Ok(words) = std::env::var(WORKER) else { return };
    ClusterWorker::of_words(&words).expect("the parent's words").live().expect("the worker lives");
}

/// A fault of each kind around three workers of a shared store. Also checks that the checks find
/// what they should.
#[cfg(unix)]
#[test]
fn workers_of_a_shared_store_lose_nothing_and_repeat_nothing() {
    let plan = ClusterPlan {
        seed: 0x5eed,
        faults: 10,
        time: std::time::Duration::from_secs(12),
        longest: std::time::Duration::from_secs(2),
        workers: 3,
        runs: 15,
        open: 9,
        slowest_ms: 100,
        patroni: false,
        stock: conclave_test_support::stock(),
        cache: conclave_test_support::cache(),
    };
    let start = |worker: &ClusterWorker| {
        let mut command = Command::new(std::env::current_exe().expect("a test runs from a file"));
        command
            .args(["kill::the_worker", "--exact", "--nocapture", "--test-threads=1"])
            .env(WORKER, worker.words());
        command
    };
    let report = match soak_cluster(&plan, &start, &|_| {}) {
        Err(ClusterFailure::Unavailable(reason)) => {
            assert!(is_skipped(Err(reason)));
            return;
        }
        soaked => soaked.expect("the faults can be made"),
    };
    println!("{report}");
    assert!(report.is_well() && report.all_faults() >= 10, "{report}");
}

/// A server with a few readers is killed and drained while its runs work, and readers that never
/// read cost it little. `cargo xtask soak --server` has a thousand readers.
#[cfg(unix)]
#[test]
fn readers_of_a_server_that_is_killed_and_drained_get_each_record_once() {
    // The server finds these by their names.
    let of_config = ["acting_agent", "echo"];
    assert!(of_config.iter().all(|name| std::path::Path::new(&guest(name)).is_file()));
    let plan = ServerPlan {
        seed: 0x5eed,
        readers: 24,
        runs: 6,
        approvals: 3,
        ends: 3,
        messages: 8,
        stalled: 3,
        long_steps: 300,
        conclave: conclave_test_support::program(),
        guests: conclave_test_support::guests(),
        cache: conclave_test_support::cache(),
    };
    let report = soak_server(&plan, &|_| {}).expect("it can be played");
    println!("{report}");
    assert!(report.is_well(), "{report}");
}
