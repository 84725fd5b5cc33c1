//! The agents' plans and activities in a run, derived from its records.

use std::collections::BTreeMap;

use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::ids::TaskName;
use serde_json::{Value, json};

use super::plan;
use super::{FAINT, NAME, ODD, one_line, paint};

/// The latest plan and activity of each task.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    plans: BTreeMap<TaskName, Value>,
    states: BTreeMap<TaskName, String>,
    /// The reason why the run is paused.
    paused: Option<String>,
}

impl Agents {
    /// Derives them from the records of all rooms of a run, the root's first.
    pub(crate) fn of(rooms: &[Vec<Record>]) -> Self {
        let mut agents = Self::default();
        for (index, records) in rooms.iter().enumerate() {
            let mut room = Room::new();
            for record in records {
                room.handle(record.event.clone(), record.at);
                while let Some(notice) = room.poll_notice() {
                    agents.take_notice(notice, index == 0);
                }
                while room.poll_effect().is_some() {}
            }
        }
        agents
    }

    fn take_notice(&mut self, notice: Notice, is_root: bool) {
        match notice {
            Notice::PlanChanged { task, plan } => drop(self.plans.insert(task, plan)),
            Notice::AgentStateChanged { task, state, .. } => {
                drop(self.states.insert(task, state.as_str().to_owned()))
            }
            Notice::RunPaused { reason } if is_root => self.paused = Some(reason),
            Notice::RunUnpaused if is_root => self.paused = None,
            _ => {}
        }
    }

    /// The lines for the terminal. Activities are left out once the run is over.
    pub(crate) fn lines(&self, is_over: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(reason) = self.paused.as_ref().filter(|_| !is_over) {
            lines.push(format!("{} {}", paint(ODD, "paused:"), one_line(reason, 200)));
        }
        if !is_over && !self.states.is_empty() {
            let states: Vec<String> = self
                .states
                .iter()
                .map(|(task, state)| format!("{} {}", paint(NAME, task), state.replace('_', " ")))
                .collect();
            lines.push(states.join(" · "));
        }
        for (task, plan) in &self.plans {
            lines.push(paint(FAINT, format_args!("{task}: {}", plan::summary(plan))));
            lines.extend(plan::tree(plan).into_iter().map(|line| format!("  {line}")));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }

    /// Returns, for a page, a title with the progress of each agent's plan, and its tree.
    pub(crate) fn plans(&self) -> Vec<(String, Vec<String>)> {
        let summary_of = |(task, plan): (&TaskName, &Value)| {
            (format!("{task}: {}", plan::summary(plan)), plan::tree(plan))
        };
        self.plans.iter().map(summary_of).collect()
    }

    /// Adds them to the run's `--json` object.
    pub(crate) fn add_to(&self, value: &mut Value) {
        (value["plans"], value["agent_states"], value["paused"]) =
            (json!(self.plans), json!(self.states), json!(self.paused));
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::agent_state::AgentState;
    use conclave_core::types::plan::Plan;

    use super::*;

    #[test]
    fn the_newest_of_each_is_shown() {
        let desk = || TaskName::from("desk");
        let mut plan = Plan::default();
        plan.add("", "Find it", &json!(null)).unwrap();
        let mut agents = Agents::default();
        for state in [AgentState::Running, AgentState::AwaitingUserInput] {
            agents
                .take_notice(Notice::AgentStateChanged { task: desk(), state, reason: None }, true);
        }
        agents.take_notice(Notice::PlanChanged { task: desk(), plan: plan.to_json() }, true);
        agents.take_notice(Notice::RunPaused { reason: "lunch".to_owned() }, true);
        agents.take_notice(Notice::RunUnpaused, false);
        let plans_of = |is_over| {
            let lines: Vec<String> = agents
                .lines(is_over)
                .iter()
                .map(|line| anstream::adapter::strip_str(line).to_string())
                .collect();
            lines
        };
        assert_eq!(
            plans_of(false),
            [
                "",
                "paused: lunch",
                "desk awaiting user input",
                "desk: plan: 0 of 1 done",
                "  🔵 0 Find it"
            ]
        );
        assert_eq!(plans_of(true), ["", "desk: plan: 0 of 1 done", "  🔵 0 Find it"]);
        let mut value = json!({});
        agents.add_to(&mut value);
        assert_eq!(
            (&value["paused"], &value["agent_states"]["desk"]),
            (&json!("lunch"), &json!("awaiting_user_input"))
        );
        assert_eq!(value["plans"]["desk"]["subtasks"][0]["goal"], "Find it");
    }
}
