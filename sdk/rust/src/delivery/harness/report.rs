//! What came of a script, and which guarantees were broken.

use std::collections::BTreeMap;
use std::fmt;

use super::script::Expected;
use crate::delivery::{Decision, Wake};

/// What a strategy promises to the people that it speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// It answers each wake: no error, no panic. In the host what waits is left in the inbox then,
    /// and the operator is told.
    Answers,
    /// In the end each result is told, or in the inbox: none waits for a wake that does not come.
    NothingLost,
    /// No result is decided about twice.
    ToldOnce,
    /// It decides only about results that wait for it.
    OnlyWhatWaits,
    /// It speaks only on channels that it was offered, and on none that is muted.
    OnlyItsChannels,
    /// It never speaks on a channel whose user is speaking, not even to interrupt.
    NeverOverAUser,
    /// After a speech that was not accepted it waits, before it speaks about the same results
    /// again.
    BacksOff,
    /// It does not wait in a loop of moments.
    NotBusy,
    /// Words of its own for a task that failed are not those for one that completed.
    TellsFailures,
    /// The same wake in the same room has the same answer.
    Deterministic,
    /// What the script expects.
    AsExpected,
}

impl Guarantee {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answers => "answers each wake",
            Self::NothingLost => "loses no result",
            Self::ToldOnce => "decides once about each result",
            Self::OnlyWhatWaits => "decides only about results that wait",
            Self::OnlyItsChannels => "speaks only on open channels that it was offered",
            Self::NeverOverAUser => "never speaks over a user",
            Self::BacksOff => "waits after a failed speech",
            Self::NotBusy => "does not wait in a loop",
            Self::TellsFailures => "tells a failure as one",
            Self::Deterministic => "decides the same in the same room",
            Self::AsExpected => "does what the script expects",
        }
    }
}

/// One guarantee that was broken, when, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which one.
    pub guarantee: Guarantee,
    /// Milliseconds after the beginning.
    pub at: u64,
    /// What happened.
    pub what: String,
    /// Which time the script was played; empty for the first.
    pub play: &'static str,
}

/// The guarantees that a strategy broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(Vec<Breach>);

impl Broken {
    /// This one is among them.
    pub fn is(&self, guarantee: Guarantee) -> bool {
        self.0.iter().any(|breach| breach.guarantee == guarantee)
    }

    /// All of them, in the order in which they happened.
    pub fn breaches(&self) -> &[Breach] {
        &self.0
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A strategy that is wrong is wrong a thousand times.
        const SHOWN: usize = 10;
        let mut lines = self.0.iter().map(|Breach { guarantee, at, what, play }| {
            let play = if play.is_empty() { String::new() } else { format!(" ({play})") };
            format!("broken: \"{}\", at {at} ms{play}: {what}", guarantee.as_str())
        });
        write!(f, "{}", lines.by_ref().take(SHOWN).collect::<Vec<_>>().join("\n"))?;
        match lines.count() {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for Broken {}

/// One speech that a channel took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Milliseconds after the beginning.
    pub at: u64,
    /// The results that it was about.
    pub tasks: Vec<String>,
    /// Where.
    pub channel: String,
    /// The strategy's own words; none: the host's.
    pub prompt: Option<String>,
    /// What the channel was saying was stopped.
    pub interrupted: bool,
}

/// A result that was left in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Milliseconds after the beginning.
    pub at: u64,
    /// Why.
    pub why: String,
}

/// One wake, and what was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Woken {
    /// Milliseconds after the beginning.
    pub at: u64,
    /// Why it was asked.
    pub wake: Wake,
    /// How many results waited.
    pub waiting: usize,
    /// What it answered; the text of an error or a panic when it did not.
    pub decided: Result<Vec<Decision>, String>,
}

/// What came of a script.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "`check` says whether the guarantees held"]
pub struct Report {
    /// Speeches that were taken, in their order.
    pub told: Vec<Told>,
    /// What is in the inbox, by task.
    pub kept: BTreeMap<String, Kept>,
    /// What still waits; nothing, in a good strategy.
    pub waiting: Vec<String>,
    /// Each wake.
    pub woken: Vec<Woken>,
    pub(super) breaches: Vec<Breach>,
}

impl Report {
    /// All guarantees held.
    ///
    /// # Errors
    /// Those that did not; as a text it says of each when and how.
    pub fn check(&self) -> Result<(), Broken> {
        self.check_but(&[])
    }

    /// All but these held: for a strategy that means to break them.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_but(&self, meant: &[Guarantee]) -> Result<(), Broken> {
        let broken: Vec<_> = self
            .breaches
            .iter()
            .filter(|breach| !meant.contains(&breach.guarantee))
            .cloned()
            .collect();
        if broken.is_empty() { Ok(()) } else { Err(Broken(broken)) }
    }

    /// The moment in which a result was told; none when it was not.
    pub fn told_at(&self, task: &str) -> Option<u64> {
        self.told.iter().find(|told| told.tasks.iter().any(|id| id == task)).map(|told| told.at)
    }

    pub(super) fn breaks(&mut self, guarantee: Guarantee, at: u64, what: String) {
        self.breaches.push(Breach { guarantee, at, what, play: "" });
    }

    pub(super) fn expect(&mut self, expected: Option<&Expected>) {
        let Some(Expected { told, kept }) = expected else { return };
        let came: Vec<(u64, Vec<String>)> =
            self.told.iter().map(|told| (told.at, told.tasks.clone())).collect();
        if let Some(told) = told.as_ref().filter(|told| **told != came) {
            self.breaks(
                Guarantee::AsExpected,
                0,
                format!("told should be {told:?}, and was {came:?}"),
            );
        }
        let came: Vec<&String> = self.kept.keys().collect();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.iter().ne(came.iter().copied())) {
            let what = format!("kept should be {kept:?}, and was {came:?}");
            self.breaks(Guarantee::AsExpected, 0, what);
        }
    }
}
