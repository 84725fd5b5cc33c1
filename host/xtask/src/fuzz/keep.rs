//! Adds new inputs to the repository's corpus. Only inputs that reach new code are added, those
//! that reach most of it first, and few enough to keep the corpus small.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::XtaskFailure;
use crate::files;
use crate::place;
use crate::program;

use super::files_in;

/// The maximum size of the whole corpus in bytes, below the 1 MiB that a test of conclave-fuzz
/// enforces.
const CORPUS_BYTES: u64 = 960 << 10;
/// The maximum number of bytes that one run adds, so that the first target leaves space for the
/// others.
const RUN_BYTES: u64 = 48 << 10;
/// The maximum number of inputs that one run adds: each is reviewed and run by the tests.
const RUN_FILES: usize = 24;
/// The maximum size of one input in bytes; larger ones are hard to understand and displace many
/// others.
const INPUT_BYTES: u64 = 8 << 10;

/// Adds the inputs of `own/corpus` that reach new code to `corpus`, and returns their number.
/// `command` returns libFuzzer's program.
pub(super) fn keep(
    corpus: &Path,
    own: &Path,
    command: impl Fn() -> Command,
) -> Result<usize, XtaskFailure> {
    let (merged, control) = (own.join("merged"), own.join("merged.log"));
    // libFuzzer would continue an old control file as an interrupted merge.
    let _ = fs::remove_dir_all(&merged);
    let _ = fs::remove_file(&control);
    files::make_folder(&merged)?;
    // libFuzzer merges into its first folder, so it gets a copy of the corpus.
    for file in files_in(corpus) {
        let to = merged.join(file.file_name().unwrap_or_default());
        files::copy(&file, &to)?;
    }
    let mut command = command();
    command
        .arg("-merge=1")
        .arg(format!("-merge_control_file={}", control.display()))
        .args([merged, own.join("corpus")]);
    program::output_of(&mut command)?;
    let text = files::read(&control)?;
    let sized = |path: PathBuf| fs::metadata(&path).map(|data| (data.len(), path)).ok();
    let measured = |(edges, path): (usize, &str)| {
        let (length, path) = sized(PathBuf::from(path))?;
        Some(Candidate { edges, length, path })
    };
    let candidates = reaching_new_code(&text).into_iter().filter_map(measured).collect();
    let corpus_files = place::files_below(corpus.parent().unwrap_or(corpus), "");
    let room = CORPUS_BYTES
        .saturating_sub(corpus_files.into_iter().filter_map(sized).map(|(length, _)| length).sum());
    let chosen = best(candidates, room.min(RUN_BYTES));
    for file in &chosen {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .take(12)
            .collect::<String>();
        let to = corpus.join(format!("found-{name}"));
        files::copy(file, &to)?;
    }
    Ok(chosen.len())
}

/// An input that reaches new code.
#[derive(Debug)]
struct Candidate {
    /// The number of branches that no smaller input reaches.
    edges: usize,
    length: u64,
    path: PathBuf,
}

/// Returns the files of a merge that reach code which no file before them reached, with the number
/// of its branches. Files of the first corpus are left out.
///
/// A control file of libFuzzer has the number of files, the number of those in the first corpus,
/// and their paths. Then `COV number edges…` follows for each, the smallest first.
fn reaching_new_code(control: &str) -> Vec<(usize, &str)> {
    let mut lines = control.lines();
    let mut number =
        || lines.next().and_then(|line| line.trim().parse::<usize>().ok()).unwrap_or(0);
    let (all, first) = (number(), number());
    let paths: Vec<&str> = lines.by_ref().take(all).collect();
    let reaching = |line: &str| {
        let mut words = line.strip_prefix("COV ")?.split_whitespace();
        let number = words.next()?.parse::<usize>().ok().filter(|number| *number >= first)?;
        Some((words.count(), *paths.get(number)?)).filter(|(edges, _)| *edges > 0)
    };
    lines.filter_map(reaching).collect()
}

/// Returns the inputs that reach most code, with at most this number of bytes together.
fn best(mut candidates: Vec<Candidate>, mut bytes: u64) -> Vec<PathBuf> {
    candidates.retain(|candidate| candidate.length <= INPUT_BYTES);
    candidates.sort_by(|a, b| (b.edges, a.length, &a.path).cmp(&(a.edges, b.length, &b.path)));
    let fits = |candidate: Candidate| {
        bytes = bytes.checked_sub(candidate.length)?;
        Some(candidate.path)
    };
    candidates.into_iter().take(RUN_FILES).map_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_new_code_is_found_in_a_control_file() {
        let control = "4\n1\n/c/first\n/g/a\n/g/b\n/g/c\nSTARTED 0 4\nFT 0 1 2\nCOV 0 1 2\nSTARTED 1 4\nFT 1 3\nCOV 1\n\
                       STARTED 2 5\nFT 2 4\nCOV 2 3\nSTARTED 3 6\nFT 3 9\nCOV 3 5 6\n";
        assert_eq!(reaching_new_code(control), [(1, "/g/b"), (2, "/g/c")]);
        assert!(reaching_new_code("").is_empty());
    }

    #[test]
    fn the_corpus_stays_small() {
        let candidate = |edges: usize, length: u64| Candidate {
            edges,
            length,
            path: PathBuf::from(format!("{edges}-{length}")),
        };
        let numbers = |files: Vec<PathBuf>| {
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        let found = || {
            vec![
                candidate(1, 30),
                candidate(9, INPUT_BYTES + 1),
                candidate(2, 40),
                candidate(2, 20),
            ]
        };
        assert_eq!(numbers(best(found(), RUN_BYTES)), "2-20 2-40 1-30");
        assert_eq!(numbers(best(found(), 60)), "2-20 2-40");
        let many = (0..RUN_FILES + 1).map(|_| candidate(1, 1)).collect();
        assert_eq!(best(many, RUN_BYTES).len(), RUN_FILES);
    }
}
