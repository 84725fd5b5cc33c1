//! The totals of a soak, printed for users.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// Sums over all rounds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub rounds: u64,
    pub lives: u64,
    /// By point, including `at any time`.
    pub kills: BTreeMap<String, u64>,
    /// Power cuts, by the part of unsynced data that they kept.
    pub cuts: BTreeMap<String, u64>,
    /// Kills without a power cut, so that the next life began on unsynced data.
    pub uncut: u64,
    pub runs: u64,
    pub records: u64,
    pub acknowledged: u64,
    /// The number of `Resumed` events.
    pub resumed: u64,
    /// Attempts with an unknown end, each reported to its agent.
    pub interrupted: u64,
    /// Model replies that were lost before their record, and bought again.
    pub bought_again: u64,
    pub effects: u64,
    pub duplicates: u64,
    pub lost: u64,
    /// Files and keys that the journal promises, counted at each check after a kill. `broken`
    /// counts the violations.
    pub promises: u64,
    pub broken: u64,
    /// Results that were delivered again because the first delivery has no recorded end.
    pub said_again: u64,
    /// Every violation, with the seed of its round.
    pub problems: Vec<String>,
    pub took: Duration,
}

impl Totals {
    /// Returns the number of kills.
    #[must_use]
    pub fn killed(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Returns the number of power cuts.
    #[must_use]
    pub fn power_cuts(&self) -> u64 {
        self.cuts.values().sum()
    }

    pub(crate) fn add(&mut self, more: Self) {
        let Self {
            rounds,
            lives,
            kills,
            runs,
            records,
            acknowledged,
            resumed,
            interrupted,
            bought_again,
            ..
        } = &more;
        self.rounds += rounds;
        self.lives += lives;
        kills
            .iter()
            .for_each(|(point, count)| *self.kills.entry(point.clone()).or_default() += count);
        more.cuts
            .iter()
            .for_each(|(kind, count)| *self.cuts.entry(kind.clone()).or_default() += count);
        self.uncut += more.uncut;
        self.runs += runs;
        self.records += records;
        self.acknowledged += acknowledged;
        self.resumed += resumed;
        self.interrupted += interrupted;
        self.bought_again += bought_again;
        self.effects += more.effects;
        self.duplicates += more.duplicates;
        self.lost += more.lost;
        self.promises += more.promises;
        self.broken += more.broken;
        self.said_again += more.said_again;
        self.problems.extend(more.problems);
    }
}

impl Display for Totals {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (point, count) in &self.kills {
            writeln!(out, "{:<36}{count:>8}", format!("killed {point}"))?;
        }
        for (kind, count) in &self.cuts {
            writeln!(out, "{:<36}{count:>8}", format!("unsynced that survived: {kind}"))?;
        }
        let lines = [
            ("kills", self.killed()),
            ("power cuts", self.power_cuts()),
            ("kills with the power left on", self.uncut),
            ("rounds", self.rounds),
            ("lives", self.lives),
            ("runs, all ended", self.runs),
            ("records", self.records),
            ("acknowledged records", self.acknowledged),
            ("rooms resumed", self.resumed),
            ("effects", self.effects),
            ("attempts told `interrupted`", self.interrupted),
            ("replies lost on the way", self.bought_again),
            ("results said again", self.said_again),
            ("effects done twice", self.duplicates),
            ("acknowledged records lost", self.lost),
            ("files and keys looked at", self.promises),
            ("of them not as told", self.broken),
            ("problems", self.problems.len() as u64),
        ];
        for (what, count) in lines {
            writeln!(out, "{what:<32}{count:>8}")?;
        }
        writeln!(out, "{:<36}{:>7.0}s", "took", self.took.as_secs_f64())?;
        self.problems.iter().try_for_each(|problem| writeln!(out, "PROBLEM {problem}"))
    }
}
