use conclave_trajectory::{Action, Event, LooseId, Observation, Source, action, observation};
use serde_json::json;

use super::*;

fn user(said: &str) -> Event {
    Event::from(Action::Message(action::Message { content: said.to_owned(), ..Default::default() })).from_source(Source::User)
}

fn answered(controller: &Controller, observation: Observation) -> Event {
    let cause = controller.root().pending.as_ref().and_then(|pending| pending.id).unwrap();
    Event::from(observation).from_source(Source::Environment).caused_by(cause)
}

fn run(command: &str) -> Answer {
    Answer::Action(Box::new(Action::Run(action::Run { command: command.to_owned(), ..Default::default() })))
}

fn said(content: &str) -> Answer {
    Answer::Action(Box::new(Action::Message(action::Message { content: content.to_owned(), ..Default::default() })))
}

/// An agent that was asked something, in a loop of 2024.
fn running(options: Options) -> Controller {
    let mut controller = Controller::new(options);
    controller.receive(user("go"));
    assert_eq!(controller.root().state, AgentState::Running);
    controller
}

fn ask(level: usize) -> Step {
    Step::Ask { level }
}

#[test]
fn one_action_is_pending_until_its_own_observation_comes() {
    let mut controller = running(Options::of(Profile::V2024_07));
    assert_eq!(controller.step(), ask(0));
    controller.said(run("ls"));
    assert_eq!(controller.step(), Step::Idle(Idle::Pending));
    let output = || Observation::Run(observation::Run::new("ls", "x", 0));
    // Of another action: kept, because it is output, and no answer (O-054, O-073).
    controller.receive(Event::from(output()).from_source(Source::Agent).caused_by(99));
    assert_eq!(controller.step(), Step::Idle(Idle::Pending));
    let answer = answered(&controller, output());
    controller.receive(answer);
    let kinds: Vec<_> = controller.root().since_last_step().iter().map(|past| past.action.as_ref().map(|event| event.kind())).collect();
    assert_eq!(kinds, [None, Some("run")], "what came since the step returned (O-053)");
    assert_eq!(controller.step(), ask(0));
}

#[test]
fn in_2024_07_a_resume_is_one_step() {
    let mut controller = running(Options { max_iterations: 1, ..Options::of(Profile::V2024_07) });
    assert_eq!(controller.step(), ask(0));
    controller.said(said("a"));
    for words in ["b", "c"] {
        assert_eq!(controller.step(), Step::Idle(Idle::Stopped));
        assert_eq!((controller.root().state, controller.root().traffic), (AgentState::Paused, TrafficControl::Throttling));
        assert!(controller.root().last_error.starts_with("Agent reached maximum number of iterations, task paused."));
        controller.set_state(AgentState::Running);
        assert_eq!(controller.root().traffic, TrafficControl::Paused);
        assert_eq!(controller.step(), ask(0), "C-238");
        controller.said(said(words));
    }
    assert_eq!(controller.root().iterations.current, 3);
}

#[test]
fn what_goes_wrong_in_a_callback_is_lost_as_in_the_reference() {
    let mut controller = running(Options { others: Some(Vec::new()), ..Options::of(Profile::V2024_07) });
    for action in [
        Action::ModifyTask(action::ModifyTask { task_id: LooseId::Text("7".to_owned()), state: "open".to_owned(), ..Default::default() }),
        Action::Delegate(action::Delegate { agent: "Nobody".to_owned(), ..Default::default() }),
    ] {
        assert_eq!(controller.step(), ask(0));
        controller.said(Answer::Action(Box::new(action)));
    }
    assert_eq!((controller.lost().len(), controller.child().is_none()), (2, true));
    assert_eq!(controller.root().history().len(), 3, "the history shows success pairs (O-075)");
}

#[test]
fn a_child_of_2024_has_its_own_counter_and_its_result_comes_to_the_parent() {
    let mut controller = running(Options { agent: "Parent".to_owned(), ..Options::of(Profile::V2024_07) });
    controller.step();
    let delegate = Action::Delegate(action::Delegate { agent: "Child".to_owned(), ..Default::default() });
    controller.said(Answer::Action(Box::new(delegate)));
    assert_eq!(controller.step(), ask(1));
    let child = controller.child().unwrap();
    assert_eq!((child.iterations.current, child.level, child.state), (1, 1, AgentState::Running));
    let outputs = json!({ "a": 1, "b": "x", "c": [true, null] }).as_object().cloned().unwrap();
    controller.said(Answer::Action(Box::new(Action::Finish(action::Finish { outputs, ..Default::default() }))));
    assert!(controller.child().is_none());
    let told = controller.root().history().last().and_then(|past| past.observation.clone()).unwrap();
    assert!(
        matches!(told.observation(), Some(Observation::Delegate(it)) if it.content == "Child finishes task with a: 1, b: x, c: [True, None]")
    );
    assert_eq!((controller.root().iterations.current, controller.step()), (1, ask(0)));
}

#[test]
fn in_2025_a_limit_is_raised_when_somebody_goes_on() {
    for (headless, max) in [(false, 2), (true, 1)] {
        let mut controller = Controller::new(Options { max_iterations: 1, headless, ..Options::of(Profile::V2025_11) });
        controller.root_mut().state = AgentState::Running;
        controller.root_mut().iterations.current = 1;
        assert_eq!(controller.step(), Step::Idle(Idle::Stopped));
        let told = "RuntimeError: Agent reached maximum iteration. Current iteration: 1, max iteration: 1";
        assert_eq!((controller.root().state, controller.root().last_error.as_str()), (AgentState::Error, told));
        controller.receive(user("go on"));
        assert_eq!((controller.root().state, controller.root().iterations.max), (AgentState::Running, max));
    }
}

#[test]
fn a_stored_agent_is_loading_and_knows_what_it_may_go_back_to() {
    let mut controller = running(Options::of(Profile::V2024_07));
    let stored = serde_json::to_string(&controller.saved()).unwrap();
    let mut again = Controller::restored(Options::of(Profile::V2024_07), serde_json::from_str(&stored).unwrap());
    assert_eq!((again.root().state, again.root().resume_state), (AgentState::Loading, Some(AgentState::Running)));
    assert_eq!(again.root().history(), controller.root().history());
    again.set_state(AgentState::Init);
    assert_eq!((again.root().state, again.root().resume_state), (AgentState::Running, None));
    controller.set_state(AgentState::Stopped);
    assert_eq!((controller.root().resets, controller.saved().agent_state.to_resume()), (1, None));
}

#[test]
fn what_a_child_did_is_not_remembered_by_a_restored_parent() {
    let form = |id: i64, form: serde_json::Value| {
        let mut event = Event::from_json_of(&form, Era::V2025).unwrap();
        event.id = Some(id);
        event
    };
    let talk = |id| form(id, json!({ "action": "message", "source": "agent", "args": { "content": "x" } }));
    let delegate = form(1, json!({ "action": "delegate", "args": { "agent": "A", "inputs": {} } }));
    let result = form(4, json!({ "observation": "delegate", "content": "", "extras": { "outputs": {} } }));
    let mut controller = Controller::new(Options::of(Profile::V2025_11));
    controller.load([talk(0), delegate, talk(2), talk(3), result, talk(5)]);
    let ids: Vec<_> =
        controller.root().history().iter().filter_map(|past| past.action.as_ref().or(past.observation.as_ref())?.id).collect();
    assert_eq!(ids, [0, 1, 4, 5]);
    assert_eq!(controller.receive(user("next")).0, 6);
}
