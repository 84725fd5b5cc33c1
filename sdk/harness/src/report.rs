//! The result of a script: the messages, the inbox, and the broken guarantees.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use conclave_core::types::delivery::{Decision, Wake};
use serde::{Deserialize, Serialize};

use crate::script::Expected;

/// A strategy's guarantee to the users that it speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// It answers each wake, without an error or a panic. Otherwise the host leaves the waiting
    /// results in the inbox and notifies the operator.
    Answers,
    /// In the end each result is delivered or in the inbox. None waits for a wake that does not
    /// come.
    NothingLost,
    /// It decides about each result only once.
    DecidesOnce,
    /// It decides only about pending results.
    OnlyPendingResults,
    /// It speaks only on channels that it was offered, and on none that is muted.
    OnlyItsChannels,
    /// It never speaks on a channel whose user is speaking, not even to interrupt.
    NeverOverAUser,
    /// After a rejected message it waits before it speaks about the same results again.
    BacksOff,
    /// It does not wait in a busy loop.
    NotBusy,
    /// Its own words for a failed task differ from those for a completed one.
    ReportsFailures,
    /// It gives the same answer to the same wake in the same room.
    Deterministic,
    /// The result is the one that the script expects.
    AsExpected,
}

impl Guarantee {
    /// The guarantee in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answers => "answers each wake",
            Self::NothingLost => "loses no result",
            Self::DecidesOnce => "decides once about each result",
            Self::OnlyPendingResults => "decides only about pending results",
            Self::OnlyItsChannels => "speaks only on open channels that it was offered",
            Self::NeverOverAUser => "never speaks over a user",
            Self::BacksOff => "waits after a failed message",
            Self::NotBusy => "does not wait in a loop",
            Self::ReportsFailures => "reports a failure as a failure",
            Self::Deterministic => "decides the same in the same room",
            Self::AsExpected => "does what the script expects",
        }
    }
}

/// Its name in cases, such as `never-over-a-user`.
impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A broken guarantee, with its time and circumstances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The broken guarantee.
    pub guarantee: Guarantee,
    /// Milliseconds after the beginning.
    pub at: u64,
    /// The circumstances.
    pub what: String,
    /// The play of the script; empty for the first.
    pub play: &'static str,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { guarantee, at, what, play } = self;
        let play = if play.is_empty() { String::new() } else { format!(" ({play})") };
        write!(f, "{guarantee} ({}), at {at} ms{play}: {what}", guarantee.as_str())
    }
}

/// The guarantees that a strategy broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(Vec<Breach>);

impl Broken {
    /// Whether this guarantee was broken.
    pub fn is(&self, guarantee: Guarantee) -> bool {
        self.0.iter().any(|breach| breach.guarantee == guarantee)
    }

    /// All breaches: the first one of each guarantee, then the others, each in order.
    pub fn breaches(&self) -> &[Breach] {
        &self.0
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Breaches that are listed, since a wrong strategy repeats its mistakes in every wake.
        const SHOWN: usize = 10;
        let mut lines = self.0.iter().map(Breach::to_string);
        write!(f, "{}", lines.by_ref().take(SHOWN).collect::<Vec<_>>().join("\n"))?;
        match lines.count() {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for Broken {}

/// A message that a channel accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// Milliseconds after the beginning.
    pub at: u64,
    /// The results that it was about.
    pub tasks: Vec<String>,
    /// The channel.
    pub channel: String,
    /// The strategy's own words; `None` for the host's.
    pub prompt: Option<String>,
    /// Whether it interrupted the channel's earlier message.
    pub interrupted: bool,
}

/// A result that was left in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEntry {
    /// Milliseconds after the beginning.
    pub at: u64,
    /// The reason.
    pub why: String,
}

/// A wake, and the decisions about it.
#[derive(Clone, Debug, PartialEq)]
pub struct WakeRecord {
    /// Milliseconds after the beginning.
    pub at: u64,
    /// The reason of the wake.
    pub wake: Wake,
    /// The number of pending results.
    pub pending: usize,
    /// The decisions, or the text of an error or a panic.
    pub decided: Result<Vec<Decision>, String>,
}

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "`check` says whether the guarantees held"]
pub struct Report {
    /// Accepted messages, in order.
    pub delivered: Vec<AcceptedMessage>,
    /// The inbox, by task.
    pub inbox: BTreeMap<String, InboxEntry>,
    /// Results that are still pending at the end; none, for a correct strategy.
    pub pending: Vec<String>,
    /// All wakes.
    pub wakes: Vec<WakeRecord>,
    pub(crate) breaches: Vec<Breach>,
}

impl Report {
    /// Checks that all guarantees held.
    ///
    /// # Errors
    /// The broken guarantees. As a text it lists the time and circumstances of each.
    pub fn check(&self) -> Result<(), Broken> {
        self.check_but(&[])
    }

    /// Checks that all guarantees but these held, for a strategy that breaks them on purpose.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub fn check_but(&self, meant: &[Guarantee]) -> Result<(), Broken> {
        let broken = self.breaches.iter().filter(|breach| !meant.contains(&breach.guarantee));
        // A list that is cut names each guarantee.
        let mut found = BTreeSet::new();
        let (mut broken, others): (Vec<_>, Vec<_>) =
            broken.cloned().partition(|breach| found.insert(breach.guarantee));
        broken.extend(others);
        if broken.is_empty() { Ok(()) } else { Err(Broken(broken)) }
    }

    /// The time at which a result was delivered, or `None` if it was not.
    pub fn delivered_at(&self, task: &str) -> Option<u64> {
        self.delivered
            .iter()
            .find(|message| message.tasks.iter().any(|id| id == task))
            .map(|message| message.at)
    }

    pub(crate) fn breaks(&mut self, guarantee: Guarantee, at: u64, what: impl Into<String>) {
        self.breaches.push(Breach { guarantee, at, what: what.into(), play: "" });
    }

    pub(crate) fn expect(&mut self, expected: Option<&Expected>) {
        let Some(Expected { delivered, inbox }) = expected else { return };
        let came: Vec<(u64, Vec<String>)> =
            self.delivered.iter().map(|message| (message.at, message.tasks.clone())).collect();
        if let Some(expected) = delivered.as_ref().filter(|expected| **expected != came) {
            self.breaks(
                Guarantee::AsExpected,
                0,
                format!("delivered should be {expected:?}, and was {came:?}"),
            );
        }
        let came: Vec<&String> = self.inbox.keys().collect();
        if let Some(expected) =
            inbox.as_ref().filter(|expected| expected.iter().ne(came.iter().copied()))
        {
            let what = format!("inbox should be {expected:?}, and was {came:?}");
            self.breaks(Guarantee::AsExpected, 0, what);
        }
    }
}
