//! Checks of this machine, each with its remedy. They change nothing, apart from a temporary file.

mod disk;
mod kept;
mod kernel;
mod tools;

use serde::Serialize;

pub(crate) use disk::{Scratch, cache, syncing};
pub(crate) use kept::kept;
pub(crate) use kernel::{address_space, maps, open_files, page_map_scan};
pub(crate) use tools::authors_tools;

/// The rating of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckResult {
    Good,
    /// It works, but slower or smaller than possible.
    Fair,
    /// Something will not work.
    Bad,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) state: CheckResult,
    pub(crate) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(crate) fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: CheckResult::Good, found: found.into(), advice: None }
    }

    pub(crate) fn fair(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { what, state: CheckResult::Fair, found: found.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn bad(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { what, state: CheckResult::Bad, found: found.into(), advice: Some(advice.into()) }
    }
}
