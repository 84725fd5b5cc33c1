//! A fuzzing driver for stable Rust without coverage. Mutates inputs of the corpus and keeps those
//! with a new cost. libFuzzer finds more; this driver needs no tools and runs in the tests.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{Random, Target, mutate};

/// The maximum number of inputs that are kept in addition to the corpus.
const KEPT: usize = 4096;

/// The condition that ends a drive.
#[derive(Clone, Copy, Debug)]
pub enum End {
    After(Duration),
    Executions(u64),
}

/// The result of a drive.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub executions: u64,
    pub took: Duration,
    /// The number of corpus inputs at the start.
    pub corpus: usize,
    /// The number of inputs that were kept in addition to them.
    pub kept: usize,
}

/// Returns the inputs in a folder, in the order of their names. An absent folder has no inputs.
///
/// # Errors
/// If an input cannot be read.
pub fn inputs(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = match fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<PathBuf>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// Runs a target on its corpus, then on mutated inputs. `before` receives every input before it is
/// run.
///
/// # Panics
/// With the panic of the target, after `before` received the input.
pub fn drive(
    target: &Target,
    corpus: Vec<Vec<u8>>,
    seed: u64,
    end: End,
    mut before: impl FnMut(&[u8]),
) -> Report {
    let began = Instant::now();
    let mut random = Random::new(seed);
    let mut costs = HashSet::new();
    let (begun_with, mut pool) = (corpus.len(), corpus);
    for input in &pool {
        before(input);
        costs.insert(target.run(input));
    }
    if pool.is_empty() {
        pool.push(Vec::new());
    }
    let mut executions = begun_with as u64;
    let is_over = |executions: u64| match end {
        End::After(duration) => began.elapsed() >= duration,
        End::Executions(most) => executions >= most,
    };
    while !is_over(executions) {
        let chosen = random.pick(&pool).cloned().unwrap_or_default();
        let input = mutate::mutate(&chosen, &pool, &mut random, target);
        before(&input);
        let is_new = costs.insert(target.run(&input));
        executions += 1;
        if is_new && pool.len() < begun_with + KEPT {
            pool.push(input);
        }
    }
    Report { executions, took: began.elapsed(), corpus: begun_with, kept: pool.len() - begun_with }
}

/// Like [`drive`], but writes a finding to the folder and prints the command that replays it.
///
/// # Panics
/// With the panic of the target.
pub fn drive_saving(
    target: &Target,
    corpus: Vec<Vec<u8>>,
    seed: u64,
    end: End,
    findings: &Path,
) -> Report {
    let mut current = Vec::new();
    let driven = catch_unwind(AssertUnwindSafe(|| {
        drive(target, corpus, seed, end, |input| {
            current.clear();
            current.extend_from_slice(input);
        })
    }));
    driven.unwrap_or_else(|panic| {
        let path = findings.join(format!("{}-{:016x}", target.name, hash(&current)));
        let saved = fs::create_dir_all(findings).and_then(|()| fs::write(&path, &current));
        match saved {
            Ok(()) => eprintln!("{}", replay_command(target, &path)),
            Err(error) => {
                eprintln!("the input could not be written to {}: {error}", path.display())
            }
        }
        resume_unwind(panic)
    })
}

/// Returns the command that replays a finding.
#[must_use]
pub fn replay_command(target: &Target, finding: &Path) -> String {
    format!("cargo xtask fuzz {} --replay {}", target.name, finding.display())
}

/// Returns the FNV-1a hash, used as the name of an input.
#[must_use]
pub fn hash(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
