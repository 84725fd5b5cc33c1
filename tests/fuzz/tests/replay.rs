//! Each target passes on its corpus, and on a fixed number of inputs mutated from it. Mutations
//! depend on a seed, so these are ordinary tests; `cargo xtask fuzz` runs many more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use conclave_fuzz::drive::{End, drive_saving, inputs};
use conclave_fuzz::{target_named, targets};

/// The number of executions of each target, which takes seconds in a dev build.
const EXECUTIONS: u64 = 500;
const SEED: u64 = 16;

/// Allocations are counted for the whole process, so only one target runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn holds(name: &str) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let target = target_named(name).unwrap_or_else(|| panic!("there is no target {name}"));
    let inputs = inputs(&corpus().join(name)).expect("the corpus is there");
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    let begun_with = inputs.len();
    let findings = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-findings");
    let report = drive_saving(target, inputs, SEED, End::Executions(EXECUTIONS), &findings);
    assert!(report.executions >= EXECUTIONS && report.corpus == begun_with);
    // A driver without effect, or a target that ignores its input, would keep no input.
    assert!(report.kept > 0, "no input took another way through {name}");
}

#[test]
fn a_config_is_read_or_its_problems_are_placed() {
    holds("config");
}

#[test]
fn an_edit_of_a_config_changes_what_it_is_about() {
    holds("config-edit");
}

#[test]
fn a_manifest_is_read_back_as_it_was() {
    holds("manifest");
}

#[test]
fn any_records_of_a_journal_are_folded() {
    holds("journal");
}

#[test]
fn a_reply_says_the_same_however_it_is_cut() {
    holds("sse");
}

#[test]
fn calls_in_json_are_read() {
    holds("json-calls");
}

#[test]
fn calls_in_xml_are_read_and_written() {
    holds("xml-calls");
}

#[test]
fn addresses_are_covered_by_the_host_that_is_named() {
    holds("urls");
}

#[test]
fn rules_on_calls_only_tighten_for_many() {
    holds("policy");
}

#[test]
fn a_component_is_looked_into_before_it_is_compiled() {
    holds("component");
}

#[test]
fn a_component_costs_no_more_than_its_budget_to_look_at() {
    holds("component-budget");
}

#[test]
fn logs_are_read_and_written_also_torn() {
    holds("trajectory");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let folders: BTreeSet<String> = fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let names: BTreeSet<String> = targets().iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders, names);
}

/// Every clone of the repository contains the corpus, so its size is limited.
#[test]
fn the_corpus_is_small() {
    let folders =
        targets().iter().flat_map(|target| fs::read_dir(corpus().join(target.name)).unwrap());
    let bytes: u64 = folders.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
}
