//! Failures of file operations as a plugin sees them, in a form that is recorded for replays.

use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::side_effect::{FailureCause, SideEffectAnswer};
use serde::{Deserialize, Serialize};

use crate::imports::call::{PluginContext, WorksOn};
use crate::imports::folder::FolderFailure;

/// Why a file operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FileFailure {
    NotFound,
    NotAFile,
    NotADirectory,
    Quota(u64),
    Denied(Box<DenialRecord>),
    Other(String),
}

impl FileFailure {
    /// The failure for a call that deviated from its replay and ends.
    pub(crate) fn deviated() -> Self {
        Self::Other("the call ends".to_owned())
    }

    /// Converts a folder's failure for this path.
    pub(crate) fn of(
        trouble: &FolderFailure,
        path: &str,
        plugin: &PluginContext,
        task: &WorksOn,
    ) -> Self {
        let refused = |reason: &str| {
            let rights = plugin.rights_in(task);
            Self::Denied(rights.refuse(Capability::Files, path, Layer::Runtime, reason, None))
        };
        match trouble {
            // The operator must mend it, and learns of it like of any other refusal.
            FolderFailure::NotRecorded(failure) if let Some(cause) = failure.cause() => {
                refused(&format!("{trouble}: {cause}"))
            }
            FolderFailure::NotFound => Self::NotFound,
            FolderFailure::NotAFile => Self::NotAFile,
            FolderFailure::NotADirectory => Self::NotADirectory,
            FolderFailure::TooMany => Self::Quota(plugin.limits().read),
            FolderFailure::Quota(limit) => Self::Quota(*limit),
            FolderFailure::Other(_)
            | FolderFailure::NotStored
            | FolderFailure::OverlayInUse
            | FolderFailure::NotRecorded(_)
            | FolderFailure::TooLargeToRecord { .. }
            | FolderFailure::TooLarge { .. } => Self::Other(trouble.to_string()),
            FolderFailure::LeadsOutside
            | FolderFailure::Forbidden
            | FolderFailure::ReadOnly
            | FolderFailure::Kept
            | FolderFailure::Link
            | FolderFailure::HardLink => refused(&trouble.to_string()),
        }
    }

    /// The journal's form of a failed change; `trouble` gives the human-readable text.
    pub(crate) fn answer(&self, trouble: &FolderFailure) -> SideEffectAnswer {
        let cause = match self {
            Self::Denied(record) => {
                return SideEffectAnswer::Denied { denial: record.denial.clone() };
            }
            Self::NotFound => FailureCause::NotFound,
            Self::NotAFile => FailureCause::NotAFile,
            Self::NotADirectory => FailureCause::NotADirectory,
            Self::Quota(limit) => FailureCause::Quota { limit: *limit },
            Self::Other(_) => FailureCause::Other,
        };
        SideEffectAnswer::Failed { cause, message: trouble.to_string() }
    }

    /// Rebuilds a failure from the journal by its cause. The text only remains for failures that
    /// have one.
    pub(crate) fn from_journal(cause: FailureCause, message: String) -> Self {
        match cause {
            FailureCause::NotFound => Self::NotFound,
            FailureCause::NotAFile => Self::NotAFile,
            FailureCause::NotADirectory => Self::NotADirectory,
            FailureCause::Quota { limit } => Self::Quota(limit),
            FailureCause::Limit { .. }
            | FailureCause::TimedOut
            | FailureCause::Unavailable
            | FailureCause::Interrupted
            | FailureCause::Other => Self::Other(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::testing::{core, setup};
    use crate::support::overlay_files::RecordFailure;

    #[test]
    fn an_answer_of_the_journal_means_the_same_whatever_its_message_says() {
        let core = core(setup());
        let other = || FolderFailure::Other(std::io::ErrorKind::StorageFull.into());
        for trouble in [
            FolderFailure::NotFound,
            FolderFailure::NotAFile,
            FolderFailure::NotADirectory,
            FolderFailure::TooMany,
            FolderFailure::Quota(4_200),
            other(),
        ] {
            let failure = FileFailure::of(&trouble, "/f/a", &core.plugin, &core.start.task);
            let SideEffectAnswer::Failed { cause, .. } = failure.answer(&trouble) else {
                panic!("{failure:?} is no refusal")
            };
            let stored = serde_json::to_string(&cause).unwrap();
            let reworded = FileFailure::from_journal(
                serde_json::from_str(&stored).unwrap(),
                "in other words".to_owned(),
            );
            let expected = if matches!(failure, FileFailure::Other(_)) {
                FileFailure::Other("in other words".to_owned())
            } else {
                failure
            };
            assert_eq!(reworded, expected, "{stored}");
        }
    }

    #[test]
    fn a_store_that_does_not_take_a_change_is_reported_to_the_operator_and_not_to_the_plugin() {
        let core = core(setup());
        let cause = "/mnt/blobs: no space".to_owned();
        let trouble = FolderFailure::NotRecorded(RecordFailure::Store { cause });
        let failure = FileFailure::of(&trouble, "/f/a", &core.plugin, &core.start.task);
        let FileFailure::Denied(record) = failure else { panic!("{failure:?}") };
        assert!(record.reason.contains("/mnt/blobs: no space"), "{}", record.reason);
        assert!(!format!("{:?}", record.denial).contains("/mnt"), "{:?}", record.denial);
        // Nothing is broken if another host has the run.
        let trouble = FolderFailure::NotRecorded(RecordFailure::Fenced);
        let failure = FileFailure::of(&trouble, "/f/a", &core.plugin, &core.start.task);
        assert!(matches!(failure, FileFailure::Other(_)), "{failure:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_host_without_descriptors_names_the_limit() {
        let core = core(setup());
        let trouble = FolderFailure::from(std::io::Error::from_raw_os_error(
            rustix::io::Errno::MFILE.raw_os_error(),
        ));
        let FileFailure::Other(text) =
            FileFailure::of(&trouble, "/f/a", &core.plugin, &core.start.task)
        else {
            panic!("{trouble:?}")
        };
        assert!(text.contains("`ulimit -n`"), "{text}");
    }

    #[test]
    fn a_refusal_is_no_failure() {
        let core = core(setup());
        for trouble in [
            FolderFailure::LeadsOutside,
            FolderFailure::Forbidden,
            FolderFailure::ReadOnly,
            FolderFailure::Kept,
            FolderFailure::Link,
            FolderFailure::HardLink,
        ] {
            let failure = FileFailure::of(&trouble, "/f/a", &core.plugin, &core.start.task);
            assert!(
                matches!(failure.answer(&trouble), SideEffectAnswer::Denied { .. }),
                "{failure:?}"
            );
        }
    }
}
