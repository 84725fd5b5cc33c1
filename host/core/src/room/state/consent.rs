//! The consent that a call needs before it may run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::risk::Risk;

/// The consent that a call has so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) enum Consent {
    NotYet,
    /// Only the analyzer was asked, or it gave no answer. `asks` is true if the task's rules
    /// require an approval for this risk.
    Assessed {
        risk: Risk,
        asks: bool,
        /// The analyzer's reason for the risk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    /// Approved unchanged.
    Approved,
    /// Approved with other arguments, which the rules must not deny.
    Edited,
}
