//! A native memory, analyzer, condenser or gate: an async closure from a question to its answer.

use std::sync::Arc;

use conclave_core::setup::plugin_query::{CondenseReason, Passing, PluginQuery, PluginReply};
use conclave_core::types::action::Action;
use conclave_core::types::view::AgentView;

use super::access::CallAccess;
use super::failure::Failure;
use crate::support::clock::BoxFuture;

pub(super) type AdvisorBody =
    Arc<dyn Fn(Consultation) -> BoxFuture<'static, Result<PluginReply, Failure>> + Send + Sync>;

/// A question to a memory.
#[derive(Clone, Debug)]
pub struct Recall {
    pub query: String,
    /// How many memories are wanted at most, best first; more are cut off.
    pub limit: u32,
    /// Log, settings, models.
    pub host: CallAccess,
}

/// A question to an analyzer: how risky is this action?
#[derive(Clone, Debug)]
pub struct Assess {
    /// A tool call comes as a `Reply` with that one call.
    pub action: Action,
    /// Why the agent wants it; may be empty.
    pub thought: String,
    /// What the agent sees.
    pub view: AgentView,
    /// Log, settings, models.
    pub host: CallAccess,
}

/// A question to a condenser: what may be forgotten?
#[derive(Clone, Debug)]
pub struct Condense {
    pub reason: CondenseReason,
    /// What the agent sees; its history is what is to become shorter.
    pub view: AgentView,
    /// Log, settings, models.
    pub host: CallAccess,
}

/// A question to a gate: may it pass?
#[derive(Clone, Debug)]
pub struct Check {
    /// Where it is asked, about what text, from whom and for whom.
    pub passing: Passing,
    /// Log, settings, models.
    pub host: CallAccess,
}

/// Any of them.
pub(super) enum Consultation {
    Recall(Recall),
    Assess(Box<Assess>),
    Condense(Box<Condense>),
    Check(Box<Check>),
}

impl Consultation {
    /// None: it needs a view, and there is none.
    pub(super) fn new(
        question: PluginQuery,
        view: Option<AgentView>,
        host: CallAccess,
    ) -> Option<Self> {
        Some(match question {
            PluginQuery::Memories { query, limit } => Self::Recall(Recall { query, limit, host }),
            PluginQuery::Risk { action, thought } => {
                Self::Assess(Box::new(Assess { action: *action, thought, view: view?, host }))
            }
            PluginQuery::Gate { passing } => {
                Self::Check(Box::new(Check { passing: *passing, host }))
            }
            PluginQuery::Condense { reason } => {
                Self::Condense(Box::new(Condense { reason, view: view?, host }))
            }
        })
    }
}
