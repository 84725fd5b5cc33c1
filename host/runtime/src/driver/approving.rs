//! The dialogue with an approver: it is asked again while its edited arguments cannot run. The
//! rules belong to the core, the approver to the embedding program.

use std::sync::Arc;

use conclave_core::permissions::policy_rules::Decide;
use conclave_core::setup::Setup;
use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};
use conclave_core::types::ids::PluginName;
use serde_json::Value;

use super::RunContext;
use crate::calls::Plugins;
use crate::driver::approve::Approver;

/// The number of times an approver is asked; a program could return invalid arguments for ever.
const TRIES: u32 = 16;

/// An approver, and the plugins and rules that check its arguments.
pub(super) struct ApproverQueue {
    approver: Arc<dyn Approver>,
    plugins: Arc<dyn Plugins>,
    setup: Arc<Setup>,
}

impl ApproverQueue {
    pub(super) fn new(shared: &RunContext, setup: &Arc<Setup>) -> Self {
        Self {
            approver: Arc::clone(&shared.approver),
            plugins: Arc::clone(&shared.plugins),
            setup: Arc::clone(setup),
        }
    }

    /// Asks until the answer can be carried out.
    pub(super) async fn decide(&self, mut request: ApprovalRequest) -> ApprovalAnswer {
        if let Err(message) = self.fits(&request.tool, &request.arguments).await {
            return Approval::Invalid { message }.by(ApprovalAuthor::Nobody);
        }
        for _ in 0..TRIES {
            let ApprovalAnswer { approval, author } = self.approver.decide(request.clone()).await;
            let arguments = match approval {
                Approval::Edited { arguments } => arguments,
                // The approver confirms the arguments that it wrote in the round before, which did
                // not fit.
                Approval::Approved if request.problem.is_some() => request.arguments.clone(),
                approval => return approval.by(author),
            };
            let Some(problem) = self.problem(&request, &arguments).await else {
                return Approval::Edited { arguments }.by(author);
            };
            (request.arguments, request.problem) = (arguments, Some(problem));
        }
        Approval::Invalid { message: request.problem.unwrap_or_default() }
            .by(ApprovalAuthor::Nobody)
    }

    /// Returns the reason why edited arguments cannot run.
    async fn problem(&self, request: &ApprovalRequest, arguments: &Value) -> Option<String> {
        if let Err(message) = self.fits(&request.tool, arguments).await {
            return Some(message);
        }
        let decision = request.decide(&self.setup, arguments);
        (decision.decide == Decide::Deny).then(|| format!("the rule at {} denies it", decision.why))
    }

    async fn fits(&self, tool: &str, arguments: &Value) -> Result<(), String> {
        let Some((plugin, tool)) = tool.split_once('.') else { return Ok(()) };
        self.plugins.check(&PluginName::from(plugin), tool, arguments.clone()).await
    }
}
