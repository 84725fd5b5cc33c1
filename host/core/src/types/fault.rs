//! How a call into a plugin can go wrong, and what is measured of every call. A guest's fault is
//! data, never a host error.

use serde::{Deserialize, Serialize};

use crate::types::denial::DenialRecord;

/// The limit or promise that a plugin broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// All its memories together would have grown past the limit.
    Memory,
    /// It computed longer than it may.
    Cpu,
    /// It took longer than it may, waiting included.
    Wall,
    /// It recursed too deep.
    Stack,
    /// It handed over more bytes than it may.
    Output,
    /// It called the host more often than it may.
    HostCalls,
    /// It held more resources of the host than it may.
    Handles,
    /// Its tables would have grown past the limit.
    Tables,
    /// It is made of more instances than it may be.
    Instances,
    /// It handed over a longer list than it may.
    List,
    /// It panicked, or executed `unreachable`.
    Panic,
    /// Any other trap.
    Trap,
    /// What it returned is not what the contract says.
    BadAnswer,
    /// It returned an error of its own.
    Error,
    /// It was cut off because nobody waits for the answer any more.
    Abandoned,
    /// It could not be started.
    NotStarted,
    /// The host stopped while it was under way, and nobody can say what of it happened; it is not
    /// repeated.
    Interrupted,
}

impl FaultKind {
    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Stack => "stack",
            Self::Output => "output",
            Self::HostCalls => "host calls",
            Self::Handles => "handles",
            Self::Tables => "tables",
            Self::Instances => "instances",
            Self::List => "list",
            Self::Panic => "panic",
            Self::Trap => "trap",
            Self::BadAnswer => "bad answer",
            Self::Error => "error",
            Self::Abandoned => "abandoned",
            Self::NotStarted => "not started",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A call that gave no answer, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub kind: FaultKind,
    /// One sentence for people and for the model; a panic's message with file and line is part of
    /// it.
    pub message: String,
}

impl Fault {
    /// A fault with its sentence.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// What one call cost and touched. Recorded with its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallReport {
    /// Microseconds from start to end.
    pub wall_us: u64,
    /// CPU ticks of ten milliseconds that it used up whole.
    pub cpu_ticks: u64,
    /// Bytes, the most that all its memories held together.
    pub memory: u64,
    /// Log lines dropped because the volume limit was reached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_dropped: u64,
    /// What it was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<DenialRecord>,
    /// The scratch that it leaves; none when it did not set it. Dropped when the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Vec<u8>>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
