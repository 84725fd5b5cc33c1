//! Asking an approver: about arguments that could run, and again when those that the approver wrote
//! could not. What a rule says is the core's; whom to ask is the embedding program's.

use std::sync::Arc;

use conclave_core::permissions::policy_rules::Decide;
use conclave_core::setup::Setup;
use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};
use conclave_core::types::ids::PluginName;
use serde_json::Value;

use super::RunContext;
use crate::calls::Plugins;
use crate::driver::approve::Approver;

/// How often an approver may write arguments anew; a program could do so for ever.
const TRIES: u32 = 16;

/// An approver, and what their arguments are held against.
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

    /// Asks until there is an answer that can be carried out.
    pub(super) async fn decide(&self, mut request: ApprovalRequest) -> ApprovalAnswer {
        if let Err(message) = self.fits(&request.tool, &request.arguments).await {
            return Approval::Invalid { message }.by(ApprovalAuthor::Nobody);
        }
        for _ in 0..TRIES {
            let ApprovalAnswer { approval, author } = self.approver.decide(request.clone()).await;
            let arguments = match approval {
                Approval::Edited { arguments } => arguments,
                // What they wrote before, and it could not run.
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

    /// Why edited arguments cannot run.
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
