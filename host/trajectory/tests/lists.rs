//! Operations on event lists: search, replay and load.

use conclave_trajectory::{
    Action, AnsweredAction, Era, Filter, Observation, Replay, ReplayVerdict, TrajectoryEvent, load,
    search,
};
use serde_json::{Value, json};

fn events(values: &[Value]) -> Vec<TrajectoryEvent> {
    values
        .iter()
        .map(|value| {
            TrajectoryEvent::from_json(value).unwrap_or_else(|error| panic!("{value}: {error}"))
        })
        .collect()
}

fn log() -> Vec<TrajectoryEvent> {
    events(&[
        json!({"id": 0, "action": "message", "source": "user", "timestamp": "2025-01-01T00:00:00", "args": {"content": "Größe?"}}),
        json!({"id": 1, "action": "run", "source": "agent", "timestamp": "2025-01-02T00:00:00", "args": {"command": "du", "hidden": true}}),
        json!({"id": 2, "observation": "run", "source": "agent", "cause": 1, "content": "4K", "extras": {"command": "du"}}),
        json!({"id": 4, "action": "finish", "source": "agent", "timestamp": "2025-01-04T00:00:00", "args": {}}),
    ])
}

#[test]
fn a_filter_narrows_by_each_of_its_parts() {
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    for (filter, expected) in [
        (all(), vec![0, 1, 2, 4]),
        (Filter { include_types: strings(&["run"]), ..all() }, vec![1, 2]),
        (
            Filter { include_types: strings(&["run-observation", "finish-action"]), ..all() },
            vec![2, 4],
        ),
        (
            Filter { include_types: strings(&["CmdRunAction", "MessageAction"]), ..all() },
            vec![0, 1],
        ),
        (Filter { include_types: strings(&["observation"]), ..all() }, vec![2]),
        (Filter { include_types: strings(&["nonsense"]), ..all() }, vec![]),
        (Filter { exclude_types: strings(&["action"]), ..all() }, vec![2]),
        (Filter { source: text("user"), ..all() }, vec![0]),
        (Filter { source: text(""), ..all() }, vec![0, 1, 2, 4]),
        (Filter { start_date: text("2025-01-02"), ..all() }, vec![1, 2, 4]),
        (Filter { end_date: text("2025-01-02T00:00:00"), ..all() }, vec![0, 1, 2]),
        (Filter { exclude_hidden: true, ..all() }, vec![0, 2, 4]),
        (Filter { query: text("GRÖSSE"), ..all() }, vec![]),
        (Filter { query: text("GRÖßE"), ..all() }, vec![0]),
        (Filter { query: text("\"command\": \"DU\""), ..all() }, vec![1, 2]),
        (Filter { start_id: Some(1), end_id: Some(2), ..all() }, vec![1, 2]),
        (Filter { reverse: true, limit: Some(2), ..all() }, vec![4, 2]),
        (Filter { reverse: true, end_id: Some(1), ..all() }, vec![1, 0]),
        (Filter { limit: Some(0), ..all() }, vec![0, 1, 2, 4]),
    ] {
        let found: Vec<i64> = search(&log(), &filter).iter().filter_map(|event| event.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let filter = Filter { include_types: strings(&["run", "Run", "x-action", "run-x"]), ..all() };
    assert_eq!(filter.unknown_types(), ["Run", "x-action", "run-x"]);
}

#[test]
fn a_replay_waits_only_on_its_last_event() {
    let message = |source: &str, wait: bool| json!({"action": "message", "source": source, "args": {"content": source, "wait_for_response": wait}});
    let waits = |log: &[Value]| -> Vec<bool> {
        let waits = |action: &Action| matches!(action, Action::Message(message) if message.wait_for_response);
        Replay::of(&events(log)).actions.iter().map(waits).collect()
    };
    assert_eq!(
        waits(&[message("user", false), message("agent", true), message("agent", true)]),
        [false, true]
    );
    let answered = [
        message("user", false),
        message("agent", true),
        json!({"observation": "success", "source": "agent"}),
    ];
    assert_eq!(waits(&answered), [false], "an observation after it is its answer");
    let empty = [message("user", false), message("agent", true), json!({"observation": "null"})];
    assert_eq!(waits(&empty), [true], "an empty observation is none");
    let replay = Replay::of(&events(&[
        message("agent", false),
        message("environment", false),
        json!({"action": "null"}),
    ]));
    assert_eq!((replay.task, replay.actions.len()), (None, 1));
    assert_eq!(Replay::of(&[]), Replay::default());
}

#[test]
fn an_action_is_answered_by_the_observation_that_names_or_follows_it() {
    let run = |id: Option<i64>| json!({"id": id, "action": "run", "source": "agent", "args": {"command": "a"}});
    let observation = |cause: Option<i64>, text: &str| json!({"cause": cause, "observation": "run", "content": text, "extras": {"command": "a"}});
    let answers = |log: &[Value]| -> Vec<(i64, Option<String>)> {
        let text = |it: &Observation| it.content().to_owned();
        let events = events(log);
        let list = AnsweredAction::list(&events).into_iter();
        list.map(|it| (it.number, it.observation.map(text))).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    let by_cause = [
        run(Some(1)),
        run(Some(2)),
        observation(Some(2), "two"),
        observation(Some(1), "one"),
        run(Some(9)),
    ];
    assert_eq!(answers(&by_cause), [(1, some("one")), (2, some("two")), (9, None)]);
    let repeated_ids =
        [run(Some(1)), observation(Some(1), "one"), run(Some(1)), observation(Some(1), "other")];
    assert_eq!(answers(&repeated_ids), [(1, some("one")), (1, some("other"))]);
    let filler = json!({"observation": "null"});
    let follows = [
        run(None),
        observation(None, "one"),
        run(None),
        filler,
        run(None),
        observation(Some(7), "x"),
    ];
    assert_eq!(answers(&follows), [(0, some("one")), (2, None), (4, None)]);
    let ended = json!({"observation": "agent_state_changed", "content": "", "extras": {"agent_state": "finished"}});
    assert_eq!(answers(&[run(Some(1)), ended]), [(1, None)]);
    let idle = json!({"action": "think", "args": {"thought": "t"}});
    let host = json!({"action": "run", "source": "environment", "args": {"command": "a"}});
    assert_eq!(answers(&[idle, host]), []);
}

/// Returns the verdict on an observation of a replay.
fn verdict(recorded: &Value, replayed: &Value) -> ReplayVerdict {
    let action = json!({"action": "run", "args": {"command": "a"}});
    let log = events(&[action, recorded.clone()]);
    let new = events(std::slice::from_ref(replayed));
    AnsweredAction::list(&log)[0].compare(new[0].observation().expect("an observation"))
}

#[test]
fn observations_are_compared_without_what_the_container_added() {
    let run = |content: &str, code: i64| json!({"observation": "run", "content": content, "extras": {"command": "a", "metadata": {"exit_code": code}}});
    let old = |content: &str, code: i64| json!({"observation": "run", "content": content, "extras": {"command": "a", "command_id": -1, "exit_code": code}});
    let cell = |content: &str| json!({"observation": "run_ipython", "content": content, "extras": {"code": "a"}});
    let failed = |content: &str| json!({"observation": "error", "content": content, "extras": {}});
    let prompt =
        "a \r\nb\r\n\r\n[Python Interpreter: /opt/py/bin/python]\r\nroot@0a1b2c:/workspace # ";
    for (recorded, replayed) in [
        (old(prompt, 0), run("a\nb", 0)),
        (old("dev@box:~/a $ ", 2), run("", 2)),
        (
            cell("3\n[Jupyter current working directory: /w]\n[Jupyter Python interpreter: /p]"),
            cell("3"),
        ),
        (failed("none"), failed("none")),
    ] {
        assert_eq!(verdict(&recorded, &replayed), ReplayVerdict::Same, "{recorded} {replayed}");
    }
    let differs = |recorded: &str, replayed: &str| ReplayVerdict::Differs {
        recorded: recorded.to_owned(),
        replayed: replayed.to_owned(),
    };
    let not_run = |reason: &str| ReplayVerdict::NotRun { reason: reason.to_owned() };
    for (recorded, replayed, expected) in [
        (run("a", 0), run("a", 1), differs("a\n[exit code 0]", "a\n[exit code 1]")),
        (run("", 0), run("b", 0), differs("[exit code 0]", "b\n[exit code 0]")),
        // An address at the end of an output is no prompt.
        (run("a@b:c $", 0), run("", 0), differs("a@b:c $\n[exit code 0]", "[exit code 0]")),
        (failed("none"), failed("other"), differs("none", "other")),
        (failed("none"), run("a", 0), differs("none", "a\n[exit code 0]")),
        (run("", 0), run("git: not found\n", 127), not_run("git: not found")),
        (run("", 0), failed("refused"), not_run("refused")),
        (run("git: not found", 127), run("git: not found", 127), ReplayVerdict::Same),
    ] {
        assert_eq!(verdict(&recorded, &replayed), expected, "{recorded} {replayed}");
    }
    let think = json!({"action": "think", "args": {"thought": "t"}});
    assert_eq!(verdict(&think, &run("", 0)), ReplayVerdict::Unrecorded);
}

#[test]
fn logs_of_every_shape_load() {
    let old =
        json!({"action": "run", "args": {"command": "a", "background": false, "thought": ""}});
    let observation = json!({"observation": "run", "content": "x", "extras": {"command": "a", "command_id": -1, "exit_code": 0}});
    let new = json!({"action": "think", "args": {"thought": "t"}});
    let empty = json!({"observation": "null", "content": "", "extras": {}});
    let sdk = json!({"kind": "PauseEvent", "id": "p", "source": "user"});
    for (text, count, era) in [
        (json!([old, observation]).to_string(), 2, Some(Era::V2024)),
        (json!([[old, observation], [new, empty]]).to_string(), 3, Some(Era::V2024)),
        (json!({"history": [new, empty], "metrics": {}}).to_string(), 2, Some(Era::V2025)),
        (json!({"trajectory": [new]}).to_string(), 1, Some(Era::V2025)),
        (json!({"events": [empty]}).to_string(), 1, None),
        (old.to_string(), 1, Some(Era::V2024)),
        (format!("\u{feff}{old}\n\n{observation}\n{sdk}\n"), 2, Some(Era::V2024)),
        (
            format!(
                "{}\n{}\n",
                json!({"id": "a", "history": [[old, observation]]}),
                json!({"history": [[old, empty]]})
            ),
            3,
            Some(Era::V2024),
        ),
        ("[]".to_owned(), 0, None),
    ] {
        let loaded = load(&text);
        assert_eq!(
            (loaded.events.len(), loaded.era, loaded.problems.len()),
            (count, era, 0),
            "{text}\n{:?}",
            loaded.problems
        );
    }
    let loaded = load(&json!([sdk]).to_string());
    assert_eq!((loaded.sdk.len(), loaded.events.len()), (1, 0), "a pause only tells of the run");
}

#[test]
fn loading_goes_on_after_what_cannot_be_read_and_says_what_it_was() {
    let good = json!({"action": "null"});
    let text =
        format!("{good}\n{{\"action\": \"ru\n{}\n3\n{good}", json!({"action": "initialize"}));
    let loaded = load(&text);
    assert_eq!(loaded.events.len(), 2);
    let problems: Vec<(&str, bool)> = loaded
        .problems
        .iter()
        .map(|problem| (problem.at.as_str(), problem.raw.is_some()))
        .collect();
    assert_eq!(problems, [("line 2", false), ("line 3", true), ("line 4", true)]);
    assert!(loaded.problems[1].text.contains("Action `initialize` does not exist"));

    let loaded = load(
        &json!([good, {"kind": "Nope"}, [good, {"observation": "nope"}], 4, {"x": []}]).to_string(),
    );
    let locations: Vec<&str> = loaded.problems.iter().map(|problem| problem.at.as_str()).collect();
    assert_eq!(locations, ["event 1", "pair 2, observation", "event 3", "event 4"]);

    assert_eq!(load("no log at all\nnor here").problems.len(), 1);
    assert_eq!(load("").problems.len(), 1);
    assert_eq!(load(&"[".repeat(100_000)).problems.len(), 1);
}
