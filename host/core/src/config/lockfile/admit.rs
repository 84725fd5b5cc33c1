//! The decision whether a plugin may be used in its current state, given its entry in the lock.
//! Texts for models, requests, and third-party components must match exactly. The bytes of a plugin
//! that the operator builds are not pinned, so `locked` refuses it. A new build of a bundled plugin
//! is admitted while texts and requests stay equal, unless `locked` is set.

use std::fmt;

use super::{LockChange, Lockfile, PluginPart, diff, is_harmless};
use crate::config::PluginSource;
use crate::setup::PluginFacts;
use crate::types::ids::PluginName;

/// The admission of a plugin, with facts for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It equals its entry byte for byte.
    Pinned,
    /// The operator builds it, so its bytes are not pinned; its requests and texts equal its entry.
    Dev,
    /// It is another build of a bundled plugin; its requests and texts equal its entry.
    Rebuilt,
    /// There is a lock without an entry for this plugin.
    NotPinned,
    /// There is no lock.
    NoLock,
}

/// The reason why a plugin must not be used in its current state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRefusal {
    /// `locked` is set, and there is no lock.
    #[error("there is no lock to hold it to, and --locked was asked for")]
    NoLock,
    /// `locked` is set, and the lock has no entry for it.
    #[error("it is not in the lock, and --locked was asked for")]
    NotPinned,
    /// `locked` is set, and the lock marks it as built by the operator: its bytes are not pinned.
    #[error("it is DEV: the lock does not pin its bytes, and --locked was asked for")]
    Dev,
    /// Its requests or texts differ from its entry, or it is another component.
    #[error("it is not what was pinned: {}", LockDifferences(.0))]
    Differs(Vec<LockChange>),
}

impl LockRefusal {
    /// The command that solves it: shows the differences and accepts them, or pins.
    #[must_use]
    pub fn remedy(&self, plugin: &PluginName) -> String {
        match self {
            Self::NoLock | Self::NotPinned => "conclave plugin lock".to_owned(),
            Self::Dev => format!("conclave plugin upgrade {plugin} --pin"),
            Self::Differs(_) => format!("conclave plugin upgrade {plugin}"),
        }
    }
}

/// Decides about one plugin. With `locked`, no difference and no missing entry is accepted.
///
/// # Errors
/// The reason why it must not be used.
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
        _ if pinned.dev && is_harmless(&changes) => {
            if locked {
                Err(LockRefusal::Dev)
            } else {
                Ok(Admission::Dev)
            }
        }
        true => Ok(Admission::Pinned),
        false if is_harmless(&changes) && !locked && may_be_rebuilt(source, &changes) => {
            Ok(Admission::Rebuilt)
        }
        false => Err(LockRefusal::Differs(changes)),
    }
}

/// Whether a new build is plausible. A third-party component is not built here, so another one with
/// the same manifest is another plugin. A tool server has no digest.
fn may_be_rebuilt(source: &PluginSource, changes: &[LockChange]) -> bool {
    let is_other = changes.iter().any(|change| change.part == PluginPart::Component);
    matches!(source, PluginSource::Stock(_)) || !is_other
}

/// The relevant differences, a few of them.
struct LockDifferences<'a>(&'a [LockChange]);

const SHOWN: usize = 4;

impl fmt::Display for LockDifferences<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all_harmless = is_harmless(self.0);
        let differences: Vec<String> = self
            .0
            .iter()
            .filter(|change| all_harmless || !change.is_harmless())
            .map(ToString::to_string)
            .collect();
        out.write_str(&differences[..differences.len().min(SHOWN)].join("; "))?;
        match differences.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(out, "; and {more} more"),
        }
    }
}
