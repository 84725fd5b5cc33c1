//! An agent: one function that looks at the task and answers with a turn. [`View`] is what it looks
//! at.

use serde::de::DeserializeOwned;

use crate::bindings::agent::conclave::plugin::actions::{CommandOutput, Observation, ToolOutput};
use crate::bindings::agent::conclave::plugin::state::{
    self, Metrics, Past, Peer, Remaining, ToolSummary,
};
use crate::bindings::imports::conclave::plugin::types::{Message, ToolResult};
use crate::trajectory::TrajectoryEvent;
use crate::{History, Result, Turn, wire};

/// What makes a component an agent; `export!(agent: X)` exports it.
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
    /// One turn. Each call is a fresh instance: what an agent must remember is in the history, in
    /// [`scratch`](crate::scratch) or in [`kv`](crate::kv). An error becomes an observation, and
    /// the agent may try again.
    fn step(view: &View) -> Result<Turn>;
}

/// The task as it was when the step began. Reading is lazy: each method asks the host.
pub struct View<'a>(&'a state::View);

impl<'a> View<'a> {
    #[doc(hidden)]
    pub fn new(state: &'a state::View) -> Self {
        Self(state)
    }

    /// The task's name in the operator's config.
    pub fn task_name(&self) -> String {
        self.0.task_name()
    }

    /// What the caller passed in beside the message. Fails when it does not have the shape of `T`.
    pub fn inputs<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_str(&self.0.inputs())?)
    }

    /// The message that waits for an answer; none when the task was started without one.
    pub fn pending(&self) -> Option<Message> {
        self.0.pending()
    }

    /// Number of messages in this agent's history, the pending one included.
    pub fn history_length(&self) -> u64 {
        self.0.history_length()
    }

    /// The messages, oldest first; `.rev()` for the newest first. Only what is looked at is read.
    pub fn history(&self) -> History<'a> {
        let state = self.0;
        History::new(state.history_length(), |start, count| state.history(start, count))
    }

    /// Actions and observations that came after the previous step of this agent.
    pub fn since_last_step(&self) -> Vec<Past> {
        self.0.since_last_step()
    }

    /// What the agent was told after its previous step, oldest first.
    pub fn observations(&self) -> Vec<Observation> {
        self.since_last_step().into_iter().filter_map(|past| past.observation).collect()
    }

    /// The newest of what it was told after its previous step; none when nothing came.
    pub fn last_observation(&self) -> Option<Observation> {
        self.observations().pop()
    }

    /// The errors that came after the previous step.
    pub fn errors(&self) -> Vec<String> {
        self.observations().into_iter().filter_map(error).collect()
    }

    /// The file that the previous step read: path and content; none when it read none.
    pub fn file(&self) -> Option<(String, String)> {
        self.observations().into_iter().rev().find_map(|observation| match observation {
            Observation::File(file) => Some(file),
            _ => None,
        })
    }

    /// What commands printed after the previous step, those in the background too.
    pub fn command_outputs(&self) -> Vec<CommandOutput> {
        let command = |observation| match observation {
            Observation::Command(output) => Some(output),
            _ => None,
        };
        self.observations().into_iter().filter_map(command).collect()
    }

    /// The whole history as events of a log, oldest first; `.rev()` for the newest first. Only what
    /// is looked at is read. Events of one message share its number as their id.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = TrajectoryEvent> + use<'a> {
        self.history().flat_map(wire::events_of_message)
    }

    /// What came after the previous step, as events of a log.
    pub fn new_events(&self) -> Vec<TrajectoryEvent> {
        self.since_last_step().into_iter().flat_map(wire::events_of).collect()
    }

    /// What the tools answered that the previous step called, in the order of the calls; empty when
    /// it called none.
    pub fn tool_outputs(&self) -> Vec<ToolOutput> {
        let observed: Vec<_> = self.since_last_step().into_iter().filter_map(tool_output).collect();
        if !observed.is_empty() {
            return observed;
        }
        self.pending().map_or_else(Vec::new, |message| {
            message.tool_results.into_iter().map(without_value).collect()
        })
    }

    /// The latest thing that the user asked for; none before the user said anything.
    pub fn intent(&self) -> Option<String> {
        self.0.intent()
    }

    /// The plan, as JSON.
    pub fn plan(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.0.plan())?)
    }

    /// Id of the task of the plan that is in progress; none when none is.
    pub fn current_task(&self) -> Option<String> {
        self.0.current_task()
    }

    /// What this agent gave when it last finished or rejected; null before.
    pub fn outputs(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.0.outputs())?)
    }

    /// The last error that this agent was told of; none before the first.
    pub fn last_error(&self) -> Option<String> {
        self.0.last_error()
    }

    /// Tools that this agent may call.
    pub fn tools(&self) -> Vec<ToolSummary> {
        self.0.tools()
    }

    /// The tool of that name in whichever plugin offers it: `find` is `search.find`. The first,
    /// when several do.
    pub fn tool(&self, name: &str) -> Option<ToolSummary> {
        self.tools().into_iter().find(|tool| last_part(&tool.name) == name)
    }

    /// Tasks that it may delegate or address messages to.
    pub fn agents(&self) -> Vec<Peer> {
        self.0.agents()
    }

    /// What is left of each budget.
    pub fn remaining(&self) -> Remaining {
        self.0.remaining()
    }

    /// What the run has used up so far.
    pub fn metrics(&self) -> Metrics {
        self.0.metrics()
    }

    /// How many delegations are above this task; 0 for the first one.
    pub fn delegate_level(&self) -> u32 {
        self.0.delegate_level()
    }

    /// How often this agent has stepped in this task before; 0 in the first step.
    pub fn iteration(&self) -> u32 {
        self.0.iteration()
    }
}

fn error(observation: Observation) -> Option<String> {
    match observation {
        Observation::Error(text) => Some(text),
        Observation::Tool(output) if output.is_error => Some(output.content),
        Observation::Browsed(page) if page.error => Some(page.content),
        _ => None,
    }
}

fn tool_output(past: Past) -> Option<ToolOutput> {
    match past.observation {
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
