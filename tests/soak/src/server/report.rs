//! The report of a soak of the server, printed for users.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// What a soak of the server did, measured and found.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// Where the numbers began.
    pub seed: u64,
    /// What was counted and measured, in order, with its value.
    pub rows: Vec<(String, String)>,
    /// Every violation.
    pub problems: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl ServerReport {
    /// Whether no violation was found.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn row(&mut self, what: impl Into<String>, value: impl Display) {
        self.rows.push((what.into(), value.to_string()));
    }
}

impl Display for ServerReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (what, value) in &self.rows {
            writeln!(out, "{what:<64}{value:>12}")?;
        }
        writeln!(out, "{:<64}{:>12}", "problems", self.problems.len())?;
        writeln!(out, "{:<64}{:>10.0} s", "took", self.took.as_secs_f64())?;
        self.problems.iter().try_for_each(|problem| writeln!(out, "PROBLEM {problem}"))?;
        let verdict = if self.is_well() {
            "no event was lost, doubled or out of order"
        } else {
            "not all is well"
        };
        writeln!(out, "seed {}: {verdict}", self.seed)
    }
}
