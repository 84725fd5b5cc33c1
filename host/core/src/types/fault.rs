//! Faults of plugin calls, and the measurements of every call. A guest's fault is data, never a
//! host error.

use serde::{Deserialize, Serialize};

use crate::types::base64_bytes;
use crate::types::denial::DenialRecord;

/// The limit or contract that a plugin broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Its memories together would have grown past the limit.
    Memory,
    /// It exceeded its CPU time.
    Cpu,
    /// It exceeded its wall time, waiting included.
    Wall,
    /// It exceeded its stack.
    Stack,
    /// It returned or sent too many bytes.
    Output,
    /// It called the host too often.
    HostCalls,
    /// It held too many host resources.
    Handles,
    /// Its tables would have grown past the limit.
    Tables,
    /// It has too many instances.
    Instances,
    /// It returned or sent a list that is too long.
    List,
    /// It panicked, or executed `unreachable`.
    Panic,
    /// Any other trap.
    Trap,
    /// Its answer violates the contract.
    BadAnswer,
    /// It returned an error of its own.
    Error,
    /// It was stopped, because its answer was no longer awaited.
    Abandoned,
    /// It could not be started.
    NotStarted,
    /// The host stopped during the call. The result is unknown, and the call is not repeated.
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

/// A call without an answer, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub kind: FaultKind,
    /// One sentence for people and for the model; contains a panic's message with file and line.
    pub message: String,
}

impl Fault {
    /// Returns a fault with its sentence.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// The measurements of one call, recorded with its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallReport {
    /// The wall time in microseconds.
    pub wall_us: u64,
    /// The number of CPU ticks of ten milliseconds that were used in full.
    pub cpu_ticks: u64,
    /// The peak memory of all its memories together, in bytes.
    pub memory: u64,
    /// The number of log lines dropped at the volume limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_dropped: u64,
    /// The refusals during the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<DenialRecord>,
    /// The new scratch; `None` if the call did not set it. Dropped if the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_bytes::option")]
    pub scratch: Option<Vec<u8>>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_of_any_bytes_is_a_short_text_in_the_journal() {
        for scratch in [None, Some(Vec::new()), Some((0..=255).collect::<Vec<u8>>())] {
            let report = CallReport { scratch, ..CallReport::default() };
            let json = serde_json::to_string(&report).unwrap();
            assert!(json.len() < 420, "{json}");
            assert_eq!(serde_json::from_str::<CallReport>(&json).unwrap(), report);
        }
        for wrong in ["\"a\"", "\"####\"", "[1]"] {
            let json =
                format!("{{\"wall_us\":1,\"cpu_ticks\":0,\"memory\":1,\"scratch\":{wrong}}}");
            assert!(serde_json::from_str::<CallReport>(&json).is_err(), "{wrong}");
        }
    }
}
