//! A parent and its child: how the child ends, and what the parent has of it.

use conclave_core::control::agent_state::AgentState;
use conclave_core::control::controller::{Answer, Options, Profile, Step};
use conclave_core::trajectory::{Action, Event, Observation, Source, action};
use serde_json::{Map, Value, json};

use super::Case;
use super::control::{Played, pair, profile, states};
use super::forms::{action as read_action, event, flat, user_message};

/// Who works for whom.
const CHILD: &str = "ChildAgent";

pub(super) fn play(case: &Case<'_>) -> Result<Value, String> {
    let profile = profile(case)?;
    let whole = |keys: &[&str]| case.any(keys).and_then(Value::as_u64);
    let mut options = Options { agent: "ParentAgent".to_owned(), headless: case.flag("headless"), ..Options::of(profile) };
    options.max_iterations = whole(&["max_iterations", "max_iteration", "max"]).unwrap_or(options.max_iterations);
    options.max_budget = case.any(&["max_budget", "budget"]).and_then(Value::as_f64);
    let mut played = Played::new(options);
    let name = case.any(&["child_name", "agent", "name"]).and_then(Value::as_str).unwrap_or(CHILD);
    played.controller.root_mut().iterations.current = whole(&["parent_iteration"]).unwrap_or_default();
    played.controller.root_mut().cost = case.any(&["cost"]).and_then(Value::as_f64).unwrap_or_default();
    let mut child = Child { local_step: 0, state: None };
    if let Some(state) = case.get("child_state").and_then(Value::as_str) {
        let state = AgentState::named(state).ok_or_else(|| format!("there is no state {state:?}"))?;
        played.controller.set_child(name, state, whole(&["child_iteration"]).unwrap_or_default());
        let outputs = case.any(&["outputs", "child_outputs"]).and_then(Value::as_object).cloned().unwrap_or_default();
        played.controller.set_child_outputs(outputs);
        let given = event(case.get("event").unwrap_or(&json!({ "user_message": "hi" })), profile)?;
        let step = played.controller.receive(given).1;
        played.answer_published(step);
    } else {
        let inputs =
            case.get("inputs").and_then(Value::as_object).cloned().unwrap_or_else(|| Map::from_iter([("task".to_owned(), json!("t"))]));
        delegate(&mut played, name, inputs, profile)?;
        let steps = whole(&["child_steps"]).unwrap_or(1).max(1);
        child.end(&mut played, case.get("child").unwrap_or(&json!("finish")), steps, profile)?;
    }
    Ok(shown(&mut played, &child, profile))
}

/// The parent is asked, and delegates.
fn delegate(played: &mut Played, agent: &str, inputs: Map<String, Value>, profile: Profile) -> Result<(), String> {
    let mut step = played.controller.receive(user_message("go")).1;
    step = played.answer_published(step);
    if profile != Profile::V2025_11 {
        step = played.controller.step();
    }
    if step != (Step::Ask { level: 0 }) {
        return Err(format!("the parent is not asked to step: {step:?}"));
    }
    let wanted = Action::Delegate(action::Delegate { agent: agent.to_owned(), inputs, ..Default::default() });
    step = played.controller.said(Answer::Action(Box::new(wanted)));
    played.answer_published(step);
    Ok(())
}

/// What is seen of a child before it is gone.
struct Child {
    local_step: u64,
    state: Option<AgentState>,
}

impl Child {
    /// It steps as often as it is to, the last time as it is to end.
    fn end(&mut self, played: &mut Played, how: &Value, steps: u64, profile: Profile) -> Result<(), String> {
        if how.as_str().is_some_and(|word| word == "error") && profile == Profile::V2025_11 {
            let step = played.controller.said(Answer::Broke("RuntimeError: it broke".to_owned()));
            self.state = Some(AgentState::Error);
            played.answer_published(step);
            // The parent hears of it with the next event.
            let heard = event(&json!({ "observation": "agent_state_changed", "extras": { "agent_state": "error" } }), profile)?;
            let step = played.controller.receive(heard.from_source(Source::Environment)).1;
            played.answer_published(step);
            return Ok(());
        }
        if how.as_str().is_some_and(|word| word == "error") {
            let broke = json!({ "action": "change_agent_state", "args": { "agent_state": "error" } });
            let step = played.controller.receive(event(&broke, profile)?.from_source(Source::Agent)).1;
            self.state = Some(AgentState::Error);
            played.answer_published(step);
            played.controller.step();
            return Ok(());
        }
        for at in 1..=steps {
            // In 2025 the question came with the last event, and is not asked again.
            let asked = if profile == Profile::V2025_11 { Step::Ask { level: 1 } } else { played.controller.step() };
            let (Step::Ask { level: 1 }, Some(child)) = (&asked, played.controller.child()) else {
                return Err(format!("the child is not asked to step: {asked:?}"));
            };
            self.local_step = child.local_step();
            let wanted =
                if at == steps { read_action(how, profile)? } else { read_action(&json!({ "run": format!("ls {at}") }), profile)? };
            let step = played.controller.said(Answer::Action(Box::new(wanted)));
            played.answer_published(step);
        }
        if profile != Profile::V2025_11 {
            played.controller.step();
        }
        Ok(())
    }
}

fn shown(played: &mut Played, child: &Child, profile: Profile) -> Value {
    let rest = played.controller.take_published();
    played.published.extend(rest);
    let root = played.controller.root();
    let told = |event: &&std::sync::Arc<Event>| matches!(event.observation(), Some(Observation::Error(_) | Observation::Delegate(_)));
    let observation = played.published.iter().rev().find(told).map_or(Value::Null, |event| flat(event, profile));
    let open = played.controller.child();
    let iteration = root.iterations.current;
    json!({
        "parent_state": root.state.as_str(), "state": root.state.as_str(), "content": observation["content"], "outputs": observation["outputs"],
        "observation": observation, "parent_iteration_after": iteration, "parent_iteration": iteration, "error": root.last_error, "child_error": open.map(|child| child.last_error.clone()),
        "child_local_step_at_finish": child.local_step, "delegate_open": open.is_some(), "states": states(&played.published),
        "child_state": open.map(|child| child.state).or(child.state).map(AgentState::as_str), "child_level": open.map(|child| child.level),
        "history_tail": root.history().last().map(pair), "history": root.history().iter().map(pair).collect::<Vec<_>>(),
    })
}
