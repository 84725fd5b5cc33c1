//! The report of a soak on a shared store, printed for users.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// What a soak did and found.
#[derive(Clone, Debug, Default)]
pub struct ClusterReport {
    pub seed: u64,
    /// The faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What else was counted.
    pub counts: BTreeMap<&'static str, u64>,
    /// The times from a kill, or from a stop, to the moment at which another worker took the run.
    pub taken_over: BTreeMap<&'static str, Vec<Duration>>,
    /// The reasons of failures that workers and the office went on after, with their counts.
    pub reasons: BTreeMap<String, u64>,
    /// The forgeries that the checks did not find.
    pub unnoticed: Vec<&'static str>,
    /// Every violation.
    pub problems: Vec<String>,
    pub took: Duration,
}

impl ClusterReport {
    /// Returns the number of faults.
    #[must_use]
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Whether nothing is wrong, neither with the runs nor with the checks.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.problems.is_empty() && self.unnoticed.is_empty()
    }
}

impl Display for ClusterReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.faults {
            writeln!(out, "{kind:<44}{count:>8}")?;
        }
        writeln!(out, "{:<44}{:>8}", "faults", self.all_faults())?;
        for (what, count) in &self.counts {
            writeln!(out, "{what:<44}{count:>8}")?;
        }
        for (after, times) in &self.taken_over {
            let mut times = times.clone();
            times.sort_unstable();
            let at = |place: usize| times.get(place).map_or(0.0, Duration::as_secs_f64);
            let what = format!("runs taken over, {after}");
            writeln!(out, "{what:<44}{:>8}", times.len())?;
            let (middle, last) = (at(times.len() / 2), at(times.len().saturating_sub(1)));
            writeln!(out, "{:<44}{middle:>7.1}s", "  after, in the middle")?;
            writeln!(out, "{:<44}{last:>7.1}s", "  after, at most")?;
        }
        writeln!(out, "{:<44}{:>8}", "problems", self.problems.len())?;
        writeln!(out, "{:<44}{:>7.0}s", "took", self.took.as_secs_f64())?;
        for (reason, count) in &self.reasons {
            writeln!(out, "gone on after, {count} times: {reason}")?;
        }
        for forgery in &self.unnoticed {
            writeln!(out, "THE CHECKS DO NOT FIND: {forgery}")?;
        }
        self.problems.iter().try_for_each(|problem| writeln!(out, "PROBLEM {problem}"))?;
        let verdict = if self.is_well() {
            "nothing was lost, and nothing happened twice"
        } else {
            "not all is well"
        };
        writeln!(out, "seed {}: {verdict}", self.seed)
    }
}
