//! Native memories, analyzers, condensers, gates, judges, simulated users and observers: async
//! closures from a query to a reply.

use std::sync::Arc;

use conclave_core::setup::plugin_query::{
    CondenseReason, GateInput, JudgedAnswer, PluginQuery, PluginReply, TaskEnding,
};
use conclave_core::types::action::Action;
use conclave_core::types::observed::ObservedEvent;
use conclave_core::types::view::AgentView;

use super::access::CallAccess;
use super::failure::Failure;
use crate::support::clock::BoxFuture;

pub(super) type AdvisorBody =
    Arc<dyn Fn(NativeQuery) -> BoxFuture<'static, Result<PluginReply, Failure>> + Send + Sync>;

/// A query to a memory.
#[derive(Clone, Debug)]
pub struct Recall {
    /// The text that the memories are to match.
    pub query: String,
    /// The maximum number of memories, best first; more are cut off.
    pub limit: u32,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A query to an analyzer: the risk of an action.
#[derive(Clone, Debug)]
pub struct Assess {
    /// The action; a tool call is a `Reply` with that one call.
    pub action: Action,
    /// The agent's reason for the action; may be empty.
    pub thought: String,
    /// The agent's view.
    pub view: AgentView,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A query to a condenser: the part of a history that can be forgotten.
#[derive(Clone, Debug)]
pub struct Condense {
    /// The reason for condensing: the history's size, a request of the agent, or an overflow.
    pub reason: CondenseReason,
    /// The agent's view, whose history is to be shortened.
    pub view: AgentView,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A query to a gate: whether a text may pass.
#[derive(Clone, Debug)]
pub struct Check {
    /// The gate's place, the text, its sender and its recipient.
    pub input: GateInput,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A query to a judge: its ruling on an answer.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The answer, with the ruling of the host's rules.
    pub answer: JudgedAnswer,
    /// The view of the task, as its agent sees it before the answer.
    pub view: AgentView,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A query to a judge: the result of the task that ends.
#[derive(Clone, Debug)]
pub struct Conclude {
    /// The end, with the result of the host's rules.
    pub ending: TaskEnding,
    /// The view of the task, as its agent sees it.
    pub view: AgentView,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A question to a simulated user.
#[derive(Clone, Debug)]
pub struct AnswerAsUser {
    /// The question, or the message that a person would see; may be empty.
    pub question: String,
    /// The view of the task, as its agent sees it.
    pub view: AgentView,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// Events for an observer: at least one, and all of one room, in order.
#[derive(Clone, Debug)]
pub struct Observe {
    /// The events. Each arrives at least once; its room and position identify it.
    pub events: Arc<Vec<ObservedEvent>>,
    /// Log, settings and models.
    pub host: CallAccess,
}

/// A query to a plugin of any of these kinds.
pub(super) enum NativeQuery {
    Recall(Recall),
    Assess(Box<Assess>),
    Condense(Box<Condense>),
    Check(Box<Check>),
    Rule(Box<Rule>),
    Conclude(Box<Conclude>),
    AnswerAsUser(Box<AnswerAsUser>),
    Observe(Observe),
}

impl NativeQuery {
    /// The query; `None` if it needs a view and has none.
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
            PluginQuery::Gate { input } => Self::Check(Box::new(Check { input: *input, host })),
            PluginQuery::Rule { answer } => {
                Self::Rule(Box::new(Rule { answer: *answer, view: view?, host }))
            }
            PluginQuery::Conclude { ending } => {
                Self::Conclude(Box::new(Conclude { ending: *ending, view: view?, host }))
            }
            PluginQuery::AnswerAsUser { prompt: question } => {
                Self::AnswerAsUser(Box::new(AnswerAsUser { question, view: view?, host }))
            }
            PluginQuery::Observe { events } => Self::Observe(Observe { events, host }),
            PluginQuery::Condense { reason } => {
                Self::Condense(Box::new(Condense { reason, view: view?, host }))
            }
        })
    }
}
