//! Approvers, which decide about tool calls that need approval and about limit increases. The rules
//! that require an approval belong to the core.

use conclave_core::policy::budget::LimitIncrease;
use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};

use crate::support::clock::BoxFuture;

/// Decides about tool calls.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::approve::Approver;
/// use conclave_runtime::clock::BoxFuture;
/// use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
/// use serde_json::json;
///
/// /// Approves small sums and lowers large ones. A real approver would ask a person.
/// struct Cashier;
///
/// impl Approver for Cashier {
///     fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
///         Box::pin(async move {
///             // A person's answer is `approval.by(ApprovalAuthor::Person { .. })`.
///             ApprovalAnswer::from(match request.arguments["euros"].as_u64() {
///                 Some(0..=50) => Approval::Approved,
///                 Some(_) => Approval::Edited { arguments: json!({ "euros": 50 }) },
///                 None => Approval::Refused { reason: "it says no sum".to_owned() },
///             })
///         })
///     }
/// }
///
/// let options = RunOptions { approver: Arc::new(Cashier), ..RunOptions::default() };
/// # drop(options);
/// ```
pub trait Approver: Send + Sync + 'static {
    /// Returns the decision and its author; the journal keeps both. The run waits, and the future
    /// is dropped when the call is stopped. [`ApprovalRequest::causes`] lists why the host asks: a
    /// standing answer to a rule must not answer
    /// [`ApprovalCause::Confirm`](conclave_core::types::approval::ApprovalCause::Confirm).
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer>;

    /// Returns whether a run that has used up a limit gets more: the proposed amount, or the one in
    /// `{"add": …}` ([`LimitIncrease::amount`]). The run waits, and ends if the increase is
    /// refused. The default refuses.
    fn top_up(&self, top_up: LimitIncrease) -> BoxFuture<'static, ApprovalAnswer> {
        drop(top_up);
        let reason = "nobody is there to give more".to_owned();
        Box::pin(std::future::ready(Approval::Refused { reason }.by(ApprovalAuthor::Nobody)))
    }
}

/// An approver that refuses everything, for runs without a person.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApprover;

impl Approver for NoApprover {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let reason = "nobody is there to approve it".to_owned();
        Box::pin(std::future::ready(Approval::Refused { reason }.by(ApprovalAuthor::Nobody)))
    }
}
