//! Native plugins of the kinds that answer queries: async closures from a query to a reply.

use std::sync::Arc;

use conclave_core::setup::plugin_query::{
    ChannelDelivery, ChannelMessage, ChannelReception, ChannelRequest, Condensation,
    CondenseReason, GateInput, GateVerdict, JudgedAnswer, ObserverReply, PluginQuery, PluginReply,
    Ruling, TaskEnding, TaskResult, Verdict,
};
use conclave_core::types::action::Action;
use conclave_core::types::observed::ObservedEvent;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::view::AgentView;

use super::access::CallAccess;
use super::failure::Failure;
use crate::support::clock::BoxFuture;

pub(super) type AdvisorBody =
    Arc<dyn Fn(Box<NativeQuery>) -> BoxFuture<'static, Result<PluginReply, Failure>> + Send + Sync>;

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

/// An attempt at a message of a channel.
#[derive(Clone, Debug)]
pub struct Deliver {
    /// The message, with its id and the number of the attempt.
    pub message: ChannelMessage,
    /// Log and settings.
    pub host: CallAccess,
}

/// A request to a channel.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The request, whose sender is not known yet.
    pub request: Arc<ChannelRequest>,
    /// Log and settings.
    pub host: CallAccess,
}

/// A query of any of these kinds.
pub(super) struct NativeQuery {
    pub(super) query: PluginQuery,
    /// `None` only for kinds whose queries have no view.
    pub(super) view: Option<AgentView>,
    pub(super) host: CallAccess,
}

/// The input of a closure: one query of one kind.
pub(super) trait Advice: Sized + Send + 'static {
    const KIND: PluginKind;
    /// The output of the closure.
    type Answer: Send;

    /// # Errors
    /// The query, if it is another one.
    fn from_query(query: Box<NativeQuery>) -> Result<Self, Box<NativeQuery>>;

    fn into_reply(answer: Self::Answer) -> PluginReply;
}

/// Implements [`Advice`]. A row has the struct, its kind, the patterns of the query and its view,
/// the fields of the struct that come from them, and the reply with the closure's answer.
macro_rules! advice {
    ($($name:ident: $kind:ident, $query:ident $of_query:tt, $view:pat => { $($fields:tt)* }
        -> $reply:ident { $answer:ident: $answer_type:ty };)*) => {$(
        impl Advice for $name {
            const KIND: PluginKind = PluginKind::$kind;
            type Answer = $answer_type;

            fn from_query(query: Box<NativeQuery>) -> Result<Self, Box<NativeQuery>> {
                match *query {
                    NativeQuery { query: PluginQuery::$query $of_query, view: $view, host } => {
                        Ok(Self { $($fields)*, host })
                    }
                    other => Err(Box::new(other)),
                }
            }

            fn into_reply($answer: $answer_type) -> PluginReply {
                PluginReply::$reply { $answer }
            }
        }
    )*};
}

advice! {
    Recall: Memory, Memories { query, limit }, _ => { query, limit }
        -> Memories { memories: Vec<String> };
    Assess: SecurityAnalyzer, Risk { action, thought }, Some(view)
        => { action: *action, thought, view } -> Risk { verdict: Verdict };
    Condense: Condenser, Condense { reason }, Some(view) => { reason, view }
        -> Condense { condensation: Option<Condensation> };
    Check: Gate, Gate { input }, _ => { input: *input } -> Gate { verdict: GateVerdict };
    Rule: Judge, Rule { answer }, Some(view) => { answer: *answer, view }
        -> Rule { ruling: Ruling };
    Conclude: Judge, Conclude { ending }, Some(view) => { ending: *ending, view }
        -> Conclude { result: Option<TaskResult> };
    AnswerAsUser: SimulatedUser, AnswerAsUser { prompt: question }, Some(view)
        => { question, view } -> AnswerAsUser { text: Option<String> };
    Observe: Observer, Observe { events }, _ => { events } -> Observe { reply: ObserverReply };
    Deliver: Channel, Deliver { message }, _ => { message: *message }
        -> Deliver { delivery: ChannelDelivery };
    Receive: Channel, Receive { request }, _ => { request }
        -> Receive { reception: ChannelReception };
}

/// The reply to a query that has no closure: the one of a judge's two that the program left out.
pub(super) fn without_closure(query: &NativeQuery) -> Result<PluginReply, Failure> {
    match &query.query {
        PluginQuery::Rule { .. } => Ok(PluginReply::Rule { ruling: Ruling::default() }),
        PluginQuery::Conclude { .. } => Ok(PluginReply::Conclude { result: None }),
        _ => Err(Failure::other_kind()),
    }
}
