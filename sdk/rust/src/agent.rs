//! An agent: one function that reads the task through a [`View`] and returns a turn. A responder
//! answers in code, before or after it.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::bindings::agent::conclave::plugin::actions::{CommandOutput, Observation, ToolOutput};
use crate::bindings::agent::conclave::plugin::state::{
    self, PastAction, Peer, RemainingBudgets, RunMetrics, ToolSummary,
};
use crate::bindings::imports::conclave::plugin::types::{Message, ToolResult};
#[cfg(not(target_family = "wasm"))]
use crate::testing::TaskSnapshot;
use crate::trajectory::TrajectoryEvent;
use crate::{History, Result, Turn, wire};

/// The trait of an agent; `export!(agent: X)` exports it.
///
/// ```
/// use conclave_sdk::{Agent, Result, Turn, View, finish};
///
/// struct Parrot;
///
/// impl Agent for Parrot {
///     fn step(view: &View) -> Result<Turn> {
///         let heard = view.pending().map(|message| message.content);
///         Ok(finish(heard.unwrap_or_default()))
///     }
/// }
/// # assert!(true);
/// ```
pub trait Agent {
    /// Returns one turn. Each call runs in a fresh instance, so an agent's memory is the history,
    /// [`scratch`](crate::scratch) or [`kv`](crate::kv). An error becomes an observation, and the
    /// agent may try again.
    fn step(view: &View) -> Result<Turn>;
}

/// The trait of an agent that also answers in the role `agent`; `export!(agent: X, responder: X)`
/// exports both. When it is asked, the task's `agent_responder` says: for messages without a call or
/// action, or for all of them in place of the host.
///
/// ```
/// use conclave_sdk::testing::TaskSnapshot;
/// use conclave_sdk::{Responder, Result, Turn, View, say};
///
/// /// Knows the opening hours by heart; the model answers everything else.
/// struct Desk;
///
/// impl Responder for Desk {
///     fn respond(view: &View) -> Result<Option<Turn>> {
///         let question = view.pending().map(|message| message.content).unwrap_or_default();
///         Ok(question.contains("open").then(|| say("From nine to five.")))
///     }
/// }
///
/// let asked = TaskSnapshot::asked("When are you open?");
/// assert_eq!(Desk::respond(&asked.view()), Ok(Some(say("From nine to five."))));
/// ```
pub trait Responder {
    /// Returns an answer to the pending message; `None` leaves it to the next responder. An error
    /// becomes an observation.
    fn respond(view: &View) -> Result<Option<Turn>>;
}

/// The task as it was when the step began. Reading is lazy: in a component each method calls the
/// host. In a test a [`TaskSnapshot`](crate::testing::TaskSnapshot) has the data.
pub struct View<'a>(Source<'a>);

enum Source<'a> {
    Host(PhantomData<&'a ()>),
    #[cfg(not(target_family = "wasm"))]
    Snapshot(&'a TaskSnapshot),
}

/// Returns a part of the task, from the host or from the snapshot.
macro_rules! read {
    ($view:ident.$part:ident) => {
        match $view.0 {
            Source::Host(_) => state::$part(),
            #[cfg(not(target_family = "wasm"))]
            Source::Snapshot(task) => task.$part.clone(),
        }
    };
}

impl<'a> View<'a> {
    /// The task of the current call.
    pub(crate) fn of_call() -> Self {
        Self(Source::Host(PhantomData))
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn of_snapshot(task: &'a TaskSnapshot) -> Self {
        Self(Source::Snapshot(task))
    }

    /// The task's name in the operator's config.
    pub fn task_name(&self) -> String {
        read!(self.task_name)
    }

    /// Returns the caller's inputs, beside the message. Fails if they do not have the shape of `T`.
    pub fn inputs<T: DeserializeOwned>(&self) -> Result<T> {
        match self.0 {
            Source::Host(_) => Ok(serde_json::from_str(&state::inputs())?),
            #[cfg(not(target_family = "wasm"))]
            Source::Snapshot(task) => Ok(T::deserialize(&task.inputs)?),
        }
    }

    /// The message that waits for an answer, or `None` if the task was started without one.
    pub fn pending(&self) -> Option<Message> {
        read!(self.pending)
    }

    /// The number of messages in this agent's history, including the pending one.
    pub fn history_length(&self) -> u64 {
        match self.0 {
            Source::Host(_) => state::history_length(),
            #[cfg(not(target_family = "wasm"))]
            Source::Snapshot(task) => task.history.len() as u64,
        }
    }

    /// The messages, oldest first; `.rev()` starts with the newest. Only messages that are iterated
    /// over are read.
    pub fn history(&self) -> History<'a> {
        match self.0 {
            Source::Host(_) => History::new(state::history_length(), state::history),
            #[cfg(not(target_family = "wasm"))]
            Source::Snapshot(task) => {
                let page = |start: u64, count: u32| {
                    task.history.iter().skip(start as usize).take(count as usize).cloned().collect()
                };
                History::new(task.history.len() as u64, page)
            }
        }
    }

    /// The actions and observations since this agent's previous step.
    pub fn since_last_step(&self) -> Vec<PastAction> {
        read!(self.since_last_step)
    }

    /// The observations since this agent's previous step, oldest first.
    pub fn observations(&self) -> Vec<Observation> {
        self.since_last_step()
            .into_iter()
            .filter_map(|past_action| past_action.observation)
            .collect()
    }

    /// The latest observation since this agent's previous step, if any.
    pub fn last_observation(&self) -> Option<Observation> {
        self.observations().pop()
    }

    /// The errors since the previous step.
    pub fn errors(&self) -> Vec<String> {
        self.observations().into_iter().filter_map(error).collect()
    }

    /// The path and content of the file that the previous step read, if any.
    pub fn file(&self) -> Option<(String, String)> {
        self.observations().into_iter().rev().find_map(|observation| match observation {
            Observation::File(file) => Some(file),
            _ => None,
        })
    }

    /// The output of commands since the previous step, including background commands.
    pub fn command_outputs(&self) -> Vec<CommandOutput> {
        let command = |observation| match observation {
            Observation::Command(output) => Some(output),
            _ => None,
        };
        self.observations().into_iter().filter_map(command).collect()
    }

    /// The whole history as log events, oldest first; `.rev()` starts with the newest. Only events
    /// that are iterated over are read. Events of one message share its number as their id.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = TrajectoryEvent> + use<'a> {
        self.history().flat_map(wire::events_of_message)
    }

    /// The log events since the previous step.
    pub fn new_events(&self) -> Vec<TrajectoryEvent> {
        self.since_last_step().into_iter().flat_map(wire::events_of).collect()
    }

    /// The results of the tools that the previous step called, in the order of the calls.
    pub fn tool_outputs(&self) -> Vec<ToolOutput> {
        let observed: Vec<_> = self.since_last_step().into_iter().filter_map(tool_output).collect();
        if !observed.is_empty() {
            return observed;
        }
        self.pending().map_or_else(Vec::new, |message| {
            message.tool_results.into_iter().map(without_value).collect()
        })
    }

    /// The user's latest request, or `None` before the first one.
    pub fn latest_user_message(&self) -> Option<String> {
        read!(self.latest_user_message)
    }

    /// Returns the plan as JSON.
    pub fn plan(&self) -> Result<serde_json::Value> {
        match self.0 {
            Source::Host(_) => Ok(serde_json::from_str(&state::plan())?),
            #[cfg(not(target_family = "wasm"))]
            Source::Snapshot(task) => Ok(task.plan.clone()),
        }
    }

    /// The id of the plan's task in progress, if any.
    pub fn current_plan_node(&self) -> Option<String> {
        read!(self.current_plan_node)
    }

    /// Returns the outputs with which this agent last finished or rejected, or null before that.
    pub fn outputs(&self) -> Result<serde_json::Value> {
        match self.0 {
            Source::Host(_) => Ok(serde_json::from_str(&state::outputs())?),
            #[cfg(not(target_family = "wasm"))]
            Source::Snapshot(task) => Ok(task.outputs.clone()),
        }
    }

    /// The latest error that this agent observed, if any.
    pub fn last_error(&self) -> Option<String> {
        read!(self.last_error)
    }

    /// The tools that this agent may call.
    pub fn tools(&self) -> Vec<ToolSummary> {
        read!(self.tools)
    }

    /// The tool of that name in any plugin: `find` is `search.find`. The first one, if several have
    /// it.
    pub fn tool(&self, name: &str) -> Option<ToolSummary> {
        self.tools().into_iter().find(|tool| last_part(&tool.name) == name)
    }

    /// The tasks to which it may delegate or address messages.
    pub fn peers(&self) -> Vec<Peer> {
        read!(self.peers)
    }

    /// The rest of each budget.
    pub fn remaining(&self) -> RemainingBudgets {
        read!(self.remaining)
    }

    /// The run's usage so far.
    pub fn metrics(&self) -> RunMetrics {
        read!(self.metrics)
    }

    /// The number of delegations above this task; 0 for the entry task.
    pub fn delegate_level(&self) -> u32 {
        read!(self.delegate_level)
    }

    /// The number of this agent's earlier steps in this task; 0 in the first step.
    pub fn iteration(&self) -> u32 {
        read!(self.iteration)
    }
}

fn error(observation: Observation) -> Option<String> {
    match observation {
        Observation::Error(text) => Some(text),
        Observation::Tool(output) if output.is_error => Some(output.content),
        Observation::Browsed(page) if page.is_error => Some(page.content),
        _ => None,
    }
}

fn tool_output(past_action: PastAction) -> Option<ToolOutput> {
    match past_action.observation {
        Some(Observation::Tool(output)) => Some(output),
        _ => None,
    }
}

fn without_value(result: ToolResult) -> ToolOutput {
    let ToolResult { call_id, name, content, is_error } = result;
    ToolOutput { call_id, name, content, value: None, is_error }
}

fn last_part(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::{Observation, error, last_part};
    use crate::ToolOutput;

    #[test]
    fn a_failed_tool_is_an_error_and_a_failed_command_is_not() {
        let tool = |is_error| ToolOutput {
            call_id: "1".into(),
            name: "a.b".into(),
            content: "x".into(),
            value: None,
            is_error,
        };
        let command = crate::actions::CommandOutput {
            command_id: -1,
            command: "ls".into(),
            exit_code: 1,
            content: "y".into(),
        };
        let observations = [
            Observation::Tool(tool(true)),
            Observation::Tool(tool(false)),
            Observation::Error("z".into()),
            Observation::Command(command),
        ];
        assert_eq!(observations.into_iter().filter_map(error).collect::<Vec<_>>(), ["x", "z"]);
    }

    #[test]
    fn a_tool_is_found_by_the_last_part_of_its_name() {
        assert_eq!(last_part("search.find"), "find");
        assert_eq!(last_part("done"), "done");
    }
}
