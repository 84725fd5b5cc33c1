//! Tests with workers and reviewers that return given results.

use conclave_sdk::actions::Action;
use conclave_sdk::{Observation, Turn};
use serde_json::{Value, json};

use super::{Mode, Progress, Settings};

fn settings(mode: Mode, review: &str) -> Settings {
    Settings {
        workers: ["research", "write"].map(str::to_owned).to_vec(),
        mode,
        review: review.into(),
        revisions: 3,
    }
}

/// Returns the delegates of a turn, with their inputs.
fn asked(turn: &Turn) -> Vec<(String, Value)> {
    match turn.action() {
        Action::Delegate(delegate) => {
            vec![(delegate.task.clone(), serde_json::from_str(&delegate.inputs).unwrap())]
        }
        Action::Custom(custom) if custom.name == "delegate_all" => {
            let arguments: Value = serde_json::from_str(&custom.arguments).unwrap();
            let delegates = arguments["delegates"].as_array().unwrap();
            delegates
                .iter()
                .map(|one| (one["agent"].as_str().unwrap().to_owned(), one["inputs"].clone()))
                .collect()
        }
        other => panic!("nobody is asked: {other:?}"),
    }
}

fn names(turn: &Turn) -> Vec<String> {
    asked(turn).into_iter().map(|(name, _)| name).collect()
}

fn gave(outputs: Value) -> Observation {
    Observation::Delegated((String::new(), outputs.to_string()))
}

fn said(text: &str) -> Observation {
    gave(json!({ "content": text }))
}

#[track_caller]
fn rejected(turn: &Turn) -> String {
    match turn.action() {
        Action::Reject(reason) => serde_json::from_str(reason).unwrap(),
        other => panic!("it is not rejected: {other:?}"),
    }
}

#[track_caller]
fn finished(turn: &Turn) -> String {
    match turn.action() {
        Action::Finish(answer) => serde_json::from_str(answer).unwrap(),
        other => panic!("it is not finished: {other:?}"),
    }
}

#[test]
fn one_after_the_other_each_gets_what_those_before_gave() {
    let settings = settings(Mode::Sequential, "");
    let (progress, turn) = Progress::begin(&settings, "about lights".into());
    assert_eq!(asked(&turn)[0].0, "research");
    assert_eq!(asked(&turn)[0].1["task"], "about lights");
    let (progress, turn) = progress.go_on(&settings, vec![said("lit in 1844")]);
    let (name, inputs) = asked(&turn).remove(0);
    assert_eq!(
        (name.as_str(), &inputs["outputs"]),
        ("write", &json!({ "research": "lit in 1844" }))
    );
    assert_eq!(
        inputs["task"],
        "about lights\n\nResults of the other workers:\n## research\n\n\
         lit in 1844"
    );
    let (_, turn) = progress.go_on(&settings, vec![said("A light.")]);
    assert_eq!(finished(&turn), "A light.");
}

#[test]
fn all_at_once_are_joined_under_their_names() {
    let settings = settings(Mode::Parallel, "");
    let (progress, turn) = Progress::begin(&settings, "about lights".into());
    assert_eq!(names(&turn), ["research", "write"]);
    let (_, turn) =
        progress.go_on(&settings, vec![said("lit in 1844"), gave(json!({ "n": 1, "m": 2 }))]);
    assert_eq!(finished(&turn), "## research\n\nlit in 1844\n\n## write\n\n{\"m\":2,\"n\":1}");
}

#[test]
fn a_worker_that_fails_stops_the_chain_and_is_named() {
    let sequential = settings(Mode::Sequential, "review");
    let (progress, _) = Progress::begin(&sequential, "x".into());
    let (progress, _) = progress.go_on(&sequential, vec![said("lit in 1844")]);
    let (_, turn) = progress.go_on(&sequential, vec![Observation::Error("no disk".into())]);
    assert_eq!(
        rejected(&turn),
        "write failed: no disk\n\nResults so far:\n## research\n\nlit in 1844"
    );

    let parallel = settings(Mode::Parallel, "");
    let (progress, _) = Progress::begin(&parallel, "x".into());
    let not_mine = gave(json!({ "content": "not mine", "rejected": true }));
    let (_, turn) = progress.clone().go_on(&parallel, vec![not_mine, said("A light.")]);
    assert_eq!(
        rejected(&turn),
        "research failed: not mine\n\nResults so far:\n## write\n\nA light."
    );
    let (_, turn) =
        progress.go_on(&parallel, vec![Observation::Error("nobody was started".into())]);
    assert_eq!(
        rejected(&turn),
        "research failed: nobody was started\nwrite failed: it returned no result"
    );
}

/// Continues until both workers are done.
fn until_review(settings: &Settings) -> (Progress, Turn) {
    let (progress, _) = Progress::begin(settings, "about lights".into());
    let (progress, _) = progress.go_on(settings, vec![said("lit in 1844")]);
    progress.go_on(settings, vec![said("A light.")])
}

#[test]
fn what_is_approved_is_the_answer() {
    let settings = settings(Mode::Sequential, "review");
    let (progress, turn) = until_review(&settings);
    let (name, inputs) = asked(&turn).remove(0);
    assert_eq!((name.as_str(), &inputs["result"]), ("review", &json!("A light.")));
    for yes in [
        json!({ "approved": true }),
        json!({ "content": "```json\n{\"approved\": true, \"feedback\": \"\"}\n```" }),
    ] {
        assert_eq!(finished(&progress.clone().go_on(&settings, vec![gave(yes)]).1), "A light.");
    }
}

#[test]
fn anything_but_a_clear_yes_is_a_no() {
    let settings = settings(Mode::Sequential, "review");
    let (progress, _) = until_review(&settings);
    let noes = [
        json!({}),
        json!({ "approved": false }),
        json!({ "approved": "true" }),
        json!({ "approved": 1 }),
        json!({ "content": "approved" }),
        json!({ "content": "I approve: it is {\"approved\": tru" }),
        json!({ "content": "[true]" }),
        json!({ "verdict": { "approved": true } }),
    ];
    for no in noes {
        let (_, turn) = progress.clone().go_on(&settings, vec![gave(no.clone())]);
        assert_eq!(names(&turn), ["research"], "{no}");
    }
}

#[test]
fn it_is_done_again_with_the_feedback_and_not_for_ever() {
    let settings = settings(Mode::Sequential, "review");
    let (mut progress, _) = until_review(&settings);
    let no = || {
        vec![gave(json!({ "content": "{\"approved\": false, \"feedback\": \"name the year\"}" }))]
    };
    for revision in 1..=3 {
        let (again, turn) = progress.go_on(&settings, no());
        let (name, inputs) = asked(&turn).remove(0);
        assert_eq!(
            (name.as_str(), &inputs["feedback"]),
            ("research", &json!("name the year")),
            "revision {revision}"
        );
        let task = inputs["task"].as_str().unwrap();
        assert!(
            task.contains("Your previous result:\nlit in 1844")
                && task.ends_with("follow this feedback:\nname the year"),
            "{task}"
        );
        let (again, turn) = again.go_on(&settings, vec![said("lit in 1844")]);
        let (_, inputs) = asked(&turn).remove(0);
        assert_eq!(inputs["feedback"], "name the year", "the second worker hears of it too");
        assert!(inputs["task"].as_str().unwrap().contains("Your previous result:\nA light."));
        progress = again.go_on(&settings, vec![said("A light.")]).0;
    }
    let (_, turn) = progress.go_on(&settings, no());
    assert_eq!(
        rejected(&turn),
        "The result was revised 3 times and is not approved: name the year\n\n\
         The last result:\nA light."
    );
}

#[test]
fn a_reviewer_that_cannot_review_approves_nothing() {
    let settings = settings(Mode::Sequential, "review");
    let (progress, _) = until_review(&settings);
    for failure in [vec![Observation::Error("out of time".into())], vec![]] {
        let said = rejected(&progress.clone().go_on(&settings, failure).1);
        assert!(
            said.starts_with("The result is not approved: review did not return a review: ")
                && said.ends_with("A light."),
            "{said}"
        );
    }
}

#[test]
fn without_workers_or_a_task_nothing_begins() {
    let nobody = Settings::default();
    assert!(rejected(&Progress::begin(&nobody, "x".into()).1).contains("config.workers"));
    assert!(
        rejected(&Progress::begin(&settings(Mode::Parallel, ""), "\n".into()).1)
            .contains("task is empty")
    );
}
