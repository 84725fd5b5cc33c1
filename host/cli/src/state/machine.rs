//! Checks of this machine, each with its remedy. They change nothing, apart from a temporary file.

mod disk;
mod kernel;
mod program_files;
mod stored_runs;
mod tools;

use serde::Serialize;

pub(crate) use disk::{Scratch, cache, syncing};
pub(crate) use kernel::{address_space, maps, open_files, page_map_scan};
pub(crate) use program_files::program_files;
pub(crate) use stored_runs::stored_runs;
pub(crate) use tools::authors_tools;

/// The rating of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckResult {
    Ok,
    /// It works, but slower or smaller than possible.
    Note,
    /// Something will not work.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) state: CheckResult,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, state: CheckResult::Ok, message: message.into(), hint: None }
    }

    pub(crate) fn note(
        check: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check, state: CheckResult::Note, message: message.into(), hint: Some(hint.into()) }
    }

    pub(crate) fn fail(
        check: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check, state: CheckResult::Fail, message: message.into(), hint: Some(hint.into()) }
    }
}
