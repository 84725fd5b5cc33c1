//! Counts over all cases: the played cases of each pack, and the sum.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::{End, is_function, pack_of};

/// The counts of one pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Played {
    /// Passed on the whole host: its config, room, journal and sandboxes.
    on_host: usize,
    /// Passed by a single function of the host.
    by_function: usize,
    failed: usize,
    otherwise: usize,
    not_played: usize,
}

/// The counts of all cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    packs: BTreeMap<String, Played>,
    pub failed: usize,
    skipped: usize,
}

impl Counts {
    /// Returns counts that begin with the number of unreadable lines.
    #[must_use]
    pub fn with_unreadable(failed: usize) -> Self {
        Self { failed, ..Self::default() }
    }

    /// Adds the end of a line.
    pub fn add(&mut self, line: &str, end: &End) {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        if matches!(end, End::Skipped) {
            self.skipped += 1;
            return;
        }
        let pack = self.packs.entry(pack_of(&value).to_owned()).or_default();
        match end {
            End::Passed if is_function(&value) => pack.by_function += 1,
            End::Passed => pack.on_host += 1,
            End::Otherwise { .. } => pack.otherwise += 1,
            End::NotPlayed { .. } => pack.not_played += 1,
            End::Failed { .. } => {
                pack.failed += 1;
                self.failed += 1;
            }
            End::Skipped => {}
        }
    }

    fn sum(&self, of: impl Fn(&Played) -> usize) -> usize {
        self.packs.values().map(of).sum()
    }
}

impl fmt::Display for Counts {
    /// Prints one line for each pack, then the sum. Omits the last three counts if they are zero.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pack, Played { on_host, by_function, failed, otherwise, not_played }) in &self.packs {
            write!(out, "{pack}: played on the host: {on_host}")?;
            let more = [
                ("by one function of the host", by_function),
                ("differ as documented", otherwise),
                ("not played", not_played),
                ("failed", failed),
            ];
            for (what, count) in more.into_iter().filter(|(_, count)| **count > 0) {
                write!(out, ", {what}: {count}")?;
            }
            writeln!(out)?;
        }
        let passed = self.sum(|played| played.on_host + played.by_function);
        write!(out, "{passed} passed, {} failed, {} skipped", self.failed, self.skipped)?;
        for (what, count) in [
            ("differ as documented", self.sum(|played| played.otherwise)),
            ("not played", self.sum(|played| played.not_played)),
        ] {
            if count > 0 {
                write!(out, ", {count} {what}")?;
            }
        }
        writeln!(out)
    }
}
