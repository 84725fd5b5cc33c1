//! The reference's controller, played: an agent with a script, a runtime that answers everything, and what was published on the way.

use std::collections::VecDeque;
use std::sync::Arc;

use conclave_core::control::agent_state::AgentState;
use conclave_core::control::controller::{Controller, Idle, Options, Past, Profile, Saved, Step};
use conclave_core::control::limit::{Budget, Iterations, Reached};
use conclave_core::control::should_step as decisions;
use conclave_core::trajectory::{Action, Event, Observation, Source, observation};
use serde_json::{Value, json};

use super::Case;
use super::forms::{action, answer, event, flat, user_message};

/// More steps than any case takes.
const STEPS: usize = 1_000;

pub(super) fn limit(case: &Case<'_>) -> Result<Value, String> {
    let init = case.get("init").cloned().unwrap_or_default();
    let ops = case.list("ops")?;
    let mut results = Vec::new();
    let unreadable = |error: serde_json::Error| format!("init: {error}");
    let done = |done: Result<(), Reached>| done.map_or_else(|reached| json!({ "error": reached.to_string() }), |()| json!("ok"));
    let headless = |op: &Value| op.get(1).and_then(Value::as_bool).unwrap_or_default();
    if case.text("type")? == "budget" {
        let mut limit: Budget = serde_json::from_value(init).map_err(unreadable)?;
        for op in ops {
            results.push(match op.get(0).and_then(Value::as_str) {
                Some("step") => done(limit.step()),
                Some("reached") => json!(limit.is_reached()),
                Some("increase") => {
                    limit.raise();
                    json!("ok")
                }
                Some("set") => {
                    limit.current = op.get(1).and_then(Value::as_f64).ok_or("`set` needs a number")?;
                    json!("ok")
                }
                _ => return Err(format!("a limit has no op {op}")),
            });
        }
        return Ok(json!({ "results": results, "current": limit.current, "max": limit.max }));
    }
    let mut limit: Iterations = serde_json::from_value(init).map_err(unreadable)?;
    for op in ops {
        results.push(match op.get(0).and_then(Value::as_str) {
            Some("step") => done(limit.step()),
            Some("reached") => json!(limit.is_reached()),
            Some("increase") => {
                limit.raise(headless(op));
                json!("ok")
            }
            Some("set") => {
                limit.current = op.get(1).and_then(Value::as_u64).ok_or("`set` needs a whole number")?;
                json!("ok")
            }
            _ => return Err(format!("a limit has no op {op}")),
        });
    }
    Ok(json!({ "results": results, "current": limit.current, "max": limit.max }))
}

pub(super) fn should_step(case: &Case<'_>) -> Result<Value, String> {
    let event = event(case.get("event").ok_or("`in` has no event")?, Profile::V2025_11)?;
    let otherwise = if case.flag("awaiting_user_input") { "awaiting_user_input" } else { "running" };
    let state = case.any(&["state", "agent_state"]).and_then(Value::as_str).unwrap_or(otherwise);
    let has_delegate =
        case.any(&["delegate", "delegate_active", "has_delegate"]).is_some_and(|given| !matches!(given, Value::Bool(false) | Value::Null));
    let state = AgentState::named(state).ok_or_else(|| format!("there is no state {state:?}"))?;
    Ok(json!({ "step": decisions::should_step(&event, state, has_delegate) }))
}

pub(super) fn controller(case: &Case<'_>) -> Result<Value, String> {
    let profile = profile(case)?;
    let number = |keys: &[&str]| case.any(keys).and_then(Value::as_f64);
    let whole = |keys: &[&str]| case.any(keys).and_then(Value::as_u64);
    let mut options = Options { agent: "Agent".to_owned(), headless: case.flag("headless"), ..Options::of(profile) };
    options.max_iterations = whole(&["max_iterations", "max_iteration", "iterations_max", "max"]).unwrap_or(options.max_iterations);
    options.max_budget = number(&["max_budget", "budget", "max_budget_per_task"]);
    options.max_chars = whole(&["max_chars"]).unwrap_or(options.max_chars);
    options.confirmation = case.flag("confirmation_mode");
    options.truncates = case.any(&["truncation", "enable_history_truncation"]).and_then(Value::as_bool).unwrap_or(true);
    let mut played = Played::new(options);
    if let Some(session) = case.get("session") {
        played.restore(session)?;
        if !case.input.as_object().is_some_and(|input| input.contains_key("set") || input.contains_key("event")) {
            return Ok(played.shown());
        }
    }
    let seat = played.controller.root_mut();
    seat.cost = number(&["cost", "accumulated_cost"]).unwrap_or_default();
    seat.chars = whole(&["num_of_chars", "chars"]).unwrap_or_default();
    seat.iterations.current = whole(&["iteration", "current", "current_iteration"]).unwrap_or_default();
    seat.state = if case.get("session").is_some() { seat.state } else { AgentState::Running };
    if let Some(state) = case.any(&["state", "agent_state", "initial_state"]).and_then(Value::as_str) {
        seat.state = named(state)?;
    }
    played.cost_per_step = number(&["cost_per_step"]).unwrap_or_default();
    played.costs = case.get("costs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64).collect();
    if let Some(resume) = case.any(&["restored_resume_state", "resume_state"]) {
        seat.resume_state = resume.as_str().map(named).transpose()?;
        seat.state = AgentState::Loading;
    }
    let pending = match case.get("pending") {
        None | Some(Value::Null) => None,
        Some(pending) => {
            // Only what a model called has a call that needs an answer.
            let by_call = case.any(&["tool_call_metadata", "metadata"]) != Some(&Value::Null) && !case.flag("no_metadata");
            Some(played.set_pending(pending, case.flag("observation_exists"), by_call)?)
        }
    };
    if let Some(state) = case.any(&["set", "reset_from", "set_state"]).and_then(Value::as_str) {
        let state = named(state)?;
        played.controller.set_state(state);
    } else if let Some(given) = case.get("event") {
        let mut given = given.clone();
        if let Some(id) = pending
            && given
                .get("cause")
                .is_some_and(|cause| *cause == "pending id" || case.get("pending").and_then(|all| all.get("id")) == Some(cause))
        {
            given["cause"] = json!(id);
        }
        let event = event(&given, profile)?;
        played.controller.receive(event);
    } else {
        played.script = case.any(&["script", "agent"]).map(list).unwrap_or_default().into();
        let then = case.any(&["then", "after", "ops", "after_pause", "then_event"]).map(list).unwrap_or_default();
        let set = case.get("then_set").map(|state| json!({ "set": state }));
        let then = then.into_iter().chain(set);
        played.then = then.chain(resumes(case)).collect();
        played.run()?;
    }
    let mut got = played.shown();
    if let (Some(id), Some(cause)) = (pending, got.pointer_mut("/observation/cause"))
        && *cause == json!(id)
    {
        *cause = json!("pending id");
    }
    Ok(got)
}

fn resumes(case: &Case<'_>) -> Vec<Value> {
    let times = match case.any(&["resume", "resumes", "resume_times", "resume_count", "resume_once", "resume_after_pause", "user_resumes"])
    {
        Some(Value::Bool(true)) => 1,
        Some(times) => times.as_u64().and_then(|times| usize::try_from(times).ok()).unwrap_or_default(),
        None => 0,
    };
    vec![json!("set running"); times]
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

fn named(state: &str) -> Result<AgentState, String> {
    AgentState::named(state).ok_or_else(|| format!("there is no state {state:?}"))
}

pub(super) fn profile(case: &Case<'_>) -> Result<Profile, String> {
    Profile::named(case.era).ok_or_else(|| format!("there is no controller of {:?}", case.era))
}

/// A controller with everything around it.
pub(super) struct Played {
    pub(super) controller: Controller,
    profile: Profile,
    options: Options,
    script: VecDeque<Value>,
    then: VecDeque<Value>,
    cost_per_step: f64,
    /// Of the next steps, one each.
    costs: VecDeque<f64>,
    pub(super) agent_steps: u32,
    pub(super) published: Vec<Arc<Event>>,
}

impl Played {
    pub(super) fn new(options: Options) -> Self {
        Self {
            controller: Controller::new(options.clone()),
            profile: options.profile,
            options,
            script: VecDeque::new(),
            then: VecDeque::new(),
            cost_per_step: 0.0,
            costs: VecDeque::new(),
            agent_steps: 0,
            published: Vec::new(),
        }
    }

    /// What a session held, stored and read again.
    fn restore(&mut self, session: &Value) -> Result<(), String> {
        if let Some(state) = session.get("agent_state").and_then(Value::as_str) {
            self.controller.root_mut().state = named(state)?;
        }
        let mut stored = serde_json::to_value(self.controller.saved()).map_err(|error| error.to_string())?;
        for (key, value) in session.as_object().into_iter().flatten() {
            if stored.get(key).is_some() {
                stored[key] = value.clone();
            }
        }
        let saved: Saved = serde_json::from_value(stored).map_err(|error| format!("session: {error}"))?;
        self.controller = Controller::restored(self.options.clone(), saved);
        Ok(())
    }

    fn set_pending(&mut self, pending: &Value, is_answered: bool, by_call: bool) -> Result<i64, String> {
        let call = json!({ "tool_call_id": "call-1", "function_name": "execute_bash" });
        if is_answered {
            let observation = Observation::Run(observation::Run::new("test", "done", 0));
            let mut event = Event::from(observation).from_source(Source::Environment);
            event.tool_call_metadata = Some(call.clone());
            self.controller.receive(event);
            self.controller.take_published();
        }
        Ok(self.controller.set_pending(Event::from(action(pending, self.profile)?).from_source(Source::Agent), by_call.then_some(call)))
    }

    /// Steps until the script is used up and nothing happens any more.
    fn run(&mut self) -> Result<(), String> {
        let mut step = self.controller.step();
        for _ in 0..STEPS {
            step = self.answer_published(step);
            match step {
                Step::Ask { .. } => {
                    let Some(entry) = self.script.pop_front() else { return Ok(()) };
                    if let Some(step_of_user) = self.user_op(&entry)? {
                        step = step_of_user;
                        continue;
                    }
                    self.agent_steps += 1;
                    self.controller.root_mut().cost += self.costs.pop_front().unwrap_or(self.cost_per_step);
                    step = self.controller.said(answer(&entry, self.profile)?);
                }
                // Who has nothing more to say is not asked: the question alone is counted.
                Step::Idle(Idle::Stepped) if !self.script.is_empty() => step = self.controller.step(),
                Step::Idle(_) => {
                    let of_script = self.script.front().cloned();
                    let is_users = of_script.as_ref().is_some_and(is_user_op);
                    let next = if is_users { self.script.pop_front() } else { self.then.pop_front() };
                    let Some(op) = next else { return Ok(()) };
                    let after = self.user_op(&op)?.ok_or_else(|| format!("{op} is nothing that somebody does"))?;
                    // Where events make an agent step, a change of its state is none of those.
                    let steps_by_itself = self.profile != Profile::V2025_11;
                    step = if matches!(after, Step::Ask { .. }) || !steps_by_itself { after } else { self.controller.step() };
                }
            }
        }
        Err("the script does not come to an end".to_owned())
    }

    /// What somebody else does: `set running`, `resume`, `user: text`, `{"set": …}`, `{"user_message": …}`.
    fn user_op(&mut self, op: &Value) -> Result<Option<Step>, String> {
        if !is_user_op(op) {
            return Ok(None);
        }
        let word = op.as_str().unwrap_or_default();
        let state = match word.strip_prefix("set ") {
            Some(state) => Some(state.trim().to_owned()),
            None if word.starts_with("resume") => Some("running".to_owned()),
            None if matches!(word, "pause" | "stop") => Some(if word == "pause" { "paused" } else { "stopped" }.to_owned()),
            None => op.get("set").or_else(|| op.get("set_state")).and_then(Value::as_str).map(str::to_owned),
        };
        Ok(Some(match state {
            Some(state) => self.controller.set_state(named(&state)?),
            None => {
                let said = op.get("user_message").and_then(Value::as_str).unwrap_or(word);
                self.controller.receive(user_message(said)).1
            }
        }))
    }

    /// The runtime and the memory: whatever was published has its answer.
    pub(super) fn answer_published(&mut self, step: Step) -> Step {
        let mut step = step;
        loop {
            let published = self.controller.take_published();
            if published.is_empty() {
                return step;
            }
            for event in &published {
                if let Some(answered) = answer_to(event, self.profile) {
                    let after = self.controller.receive(answered).1;
                    step = if matches!(after, Step::Ask { .. }) { after } else { step };
                }
            }
            self.published.extend(published);
        }
    }

    fn shown(mut self) -> Value {
        self.published.extend(self.controller.take_published());
        let seat = self.controller.root();
        let history: Vec<Value> = seat.history().iter().map(pair).collect();
        let kinds =
            |of: &dyn Fn(&Event) -> bool| self.published.iter().filter(|event| of(event)).map(|event| event.kind()).collect::<Vec<_>>();
        // What an agent wants; a runtime's answers and the user's words are not of its making.
        let actions = kinds(&|event| event.action().is_some() && event.source == Some(Source::Agent));
        let told = |event: &&Arc<Event>| matches!(event.observation(), Some(Observation::Error(_) | Observation::Delegate(_)));
        let observation = self.published.iter().rev().find(told).map_or(Value::Null, |event| flat(event, self.profile));
        let plain_error = seat.last_error.split_once("Error: ").map_or(seat.last_error.as_str(), |(_, text)| text);
        json!({
            "agent_steps": self.agent_steps, "state": seat.state.as_str(), "agent_state": seat.state.as_str(), "resume_state": seat.resume_state,
            "error": plain_error, "last_error": seat.last_error, "outputs": seat.outputs, "inputs": seat.inputs, "history_tail": history.last(),
            "history": history, "observation": observation, "iteration": seat.iterations.current, "iterations": seat.iterations.current,
            "published": actions, "states": states(&self.published), "pending": seat.pending.as_ref().map(|pending| pending.kind()),
            "budget_after": seat.budget.map(|budget| budget.max), "max_budget": seat.budget.map(|budget| budget.max),
            "max_iterations": seat.iterations.max, "max_iterations_after": seat.iterations.max, "max_after": seat.iterations.max,
            "max": seat.iterations.max, "iteration_max_after": seat.iterations.max, "traffic_control": seat.traffic.as_str(), "traffic": seat.traffic.as_str(), "traffic_control_state": seat.traffic.as_str(),
            "plan": seat.plan.to_json(), "root_task": seat.plan.to_json(), "resets": seat.resets, "lost": self.controller.lost(),
            "since_last_step": seat.since_last_step().iter().map(pair).collect::<Vec<_>>(),
        })
    }
}

fn is_user_op(op: &Value) -> bool {
    match op {
        Value::String(word) => {
            ["set ", "user:", "user message"].iter().any(|start| word.starts_with(start))
                || matches!(word.as_str(), "resume" | "pause" | "stop" | "user" | "user_message")
                || word.starts_with("resume")
        }
        Value::Object(op) => ["set", "set_state", "user_message"].iter().any(|key| op.contains_key(*key)),
        _ => false,
    }
}

/// The states that it went through.
pub(super) fn states(published: &[Arc<Event>]) -> Vec<String> {
    let state = |event: &Arc<Event>| match event.observation() {
        Some(Observation::AgentStateChanged(changed)) => Some(changed.agent_state.clone()),
        _ => None,
    };
    published.iter().filter_map(state).collect()
}

pub(super) fn pair(past: &Past) -> Value {
    let kind = |event: &Option<Arc<Event>>| event.as_ref().map_or("null", |event| event.kind());
    json!([kind(&past.action), kind(&past.observation)])
}

/// What a runtime says to an action (O-074); a memory answers what is looked up.
pub(super) fn answer_to(event: &Event, profile: Profile) -> Option<Event> {
    let (action, id) = (event.action()?, event.id?);
    let source = event.source.clone().unwrap_or(Source::Agent);
    let observation = match action {
        Action::Run(run) => Observation::Run(observation::Run::new(&run.command, "", 0)),
        Action::Recall(_) if profile == Profile::V2025_11 => Observation::Recall(observation::Recall::default()),
        action if action.runnable() => Observation::Success(observation::Success::default()),
        // Nothing is said to what is bookkeeping, but in so many words.
        _ => Observation::Null(observation::Null::default()),
    };
    Some(Event::from(observation).from_source(source).caused_by(id))
}
