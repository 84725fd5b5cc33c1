//! The users of a scenario: their scripts, on the channel of the host.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::ids::{ChannelId, TaskName};
use conclave_script::Script;

/// The users by agent. Each counts its own answers.
#[derive(Default)]
pub(crate) struct People(Mutex<State>);

#[derive(Default)]
struct State {
    /// The agent of each task.
    agents: BTreeMap<TaskName, String>,
    scripts: BTreeMap<String, Script>,
    asked: BTreeMap<String, u64>,
}

impl People {
    /// Replaces the users. The counts stay.
    pub(crate) fn set(
        &self,
        agents: BTreeMap<TaskName, String>,
        scripts: BTreeMap<String, Script>,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.agents = agents;
        state.scripts = scripts;
    }

    /// Returns the user's answer. `None` if the agent has no user, or the answer is empty.
    fn answer(&self, task: &TaskName, prompt: &str) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let agent = state.agents.get(task)?.clone();
        let script = state.scripts.get(&agent)?.clone();
        let asked = state.asked.entry(agent).or_default();
        let reply = script.reply(prompt, *asked);
        *asked += 1;
        reply.text.filter(|text| !text.trim().is_empty())
    }
}

impl Channels for People {
    fn ask(
        &self,
        _: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        let answer = self.answer(&task, &prompt);
        Box::pin(std::future::ready(answer.map(HumanAnswer::from)))
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
