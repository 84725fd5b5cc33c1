//! Whether a plugin may be used as it is now, given what was pinned. Texts that a model reads and
//! things that a plugin asks for are held to exactly, and so is a stranger's component. A new build
//! of what the operator builds, or of what comes with the program, is admitted while it changes
//! neither, unless the operator wants nothing to move.

use std::fmt;

use super::{LockChange, Lockfile, Pinned, PluginPart, diff, is_harmless};
use crate::config::PluginSource;
use crate::setup::PluginFacts;
use crate::types::ids::PluginName;

/// That a plugin may be used, and what the operator should know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is to the byte what was pinned.
    Pinned,
    /// It is another build of what the operator builds or the program brings; what it asks for and
    /// says is what was pinned.
    Rebuilt,
    /// There is a lock, and this plugin is not in it.
    NotPinned,
    /// There is no lock.
    NoLock,
}

/// Why a plugin may not be used as it is now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRefusal {
    /// Nothing may move, and there is nothing to hold it to.
    #[error("there is no lock to hold it to, and --locked was asked for")]
    NoLock,
    /// Nothing may move, and it was never let in.
    #[error("it is not in the lock, and --locked was asked for")]
    NotPinned,
    /// It asks for other things or says other things than when it was let in, or is another
    /// component; with `locked` also when it is another build of what the operator builds.
    #[error("it is not what was pinned: {}", LockDifferences(.0))]
    Differs(Vec<LockChange>),
}

impl LockRefusal {
    /// The command that shows what is in the way, and accepts it.
    #[must_use]
    pub fn remedy(&self, plugin: &PluginName) -> String {
        match self {
            Self::NoLock | Self::NotPinned => "conclave plugin lock".to_owned(),
            Self::Differs(_) => format!("conclave plugin upgrade {plugin}"),
        }
    }
}

/// Decides about one plugin. With `locked` nothing may differ or be missing.
///
/// # Errors
/// Why it may not be used.
pub fn admit(
    lock: Option<&Lockfile>,
    plugin: &PluginName,
    source: &PluginSource,
    facts: &PluginFacts,
    locked: bool,
) -> Result<Admission, LockRefusal> {
    let Some(lock) = lock else {
        return if locked { Err(LockRefusal::NoLock) } else { Ok(Admission::NoLock) };
    };
    let Some(pinned) = lock.plugins.get(plugin) else {
        return if locked { Err(LockRefusal::NotPinned) } else { Ok(Admission::NotPinned) };
    };
    let changes = diff(pinned, facts);
    match changes.is_empty() {
        true => Ok(Admission::Pinned),
        false if is_harmless(&changes) && !locked && may_be_rebuilt(pinned, source, &changes) => {
            Ok(Admission::Rebuilt)
        }
        false => Err(LockRefusal::Differs(changes)),
    }
}

/// Nobody here builds a stranger's component: another one under the same manifest is another
/// plugin. A server of tools has no digest.
fn may_be_rebuilt(pinned: &Pinned, source: &PluginSource, changes: &[LockChange]) -> bool {
    let is_other = changes.iter().any(|change| change.part == PluginPart::Component);
    pinned.dev || matches!(source, PluginSource::Stock(_)) || !is_other
}

/// The differences that matter, a few of them.
struct LockDifferences<'a>(&'a [LockChange]);

const SHOWN: usize = 4;

impl fmt::Display for LockDifferences<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all_harmless = is_harmless(self.0);
        let told: Vec<String> = self
            .0
            .iter()
            .filter(|change| all_harmless || !change.is_harmless())
            .map(ToString::to_string)
            .collect();
        out.write_str(&told[..told.len().min(SHOWN)].join("; "))?;
        match told.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(out, "; and {more} more"),
        }
    }
}
