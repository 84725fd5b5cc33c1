use serde_json::{Value, json};

use super::*;

fn plan(goals: &[&str]) -> Plan {
    let mut plan = Plan::default();
    for goal in goals {
        plan.add("", goal, &Value::Null).unwrap();
    }
    plan
}

fn state(plan: &Plan, id: &str) -> PlanState {
    plan.get(id).unwrap().state
}

#[test]
fn ids_are_the_way_from_the_root() {
    let mut plan = plan(&["a", "b"]);
    let nested = json!([{ "goal": "b0", "subtasks": [{ "goal": "b00", "state": "completed" }] }, { "goal": "b1" }]);
    assert_eq!(plan.add("1", "deep", &nested), Ok("1.0".to_owned()));
    assert_eq!(plan.add("1.0.0", "last", &json!([])), Ok("1.0.0.1".to_owned()));
    assert_eq!(plan.ids(), ["0", "1", "1.0", "1.0.0", "1.0.0.0", "1.0.0.1", "1.0.1"]);
    assert_eq!(plan.len(), 7);
    // O-058: the state in the input is ignored.
    assert_eq!(state(&plan, "1.0.0.0"), PlanState::Open);
}

#[test]
fn what_names_no_task_is_refused_and_told_what_does() {
    let refused =
        |plan: &Plan, id: &str| plan.clone().set(id, PlanState::Open).unwrap_err().to_string();
    let plan = plan(&["a", "b"]);
    for id in
        ["2", "0.0", "-1", "+1", "01", "0.", ".", "x.y", " 0", "1_0", "99999999999999999999999"]
    {
        let refusal = refused(&plan, id);
        assert!(
            refusal.contains("Its tasks are: 0, 1") && refusal.contains(&format!("{id:?}")),
            "{refusal}"
        );
    }
    assert!(refused(&Plan::default(), "0").contains("no tasks yet"));
    assert!(
        refused(&Plan::default(), "").contains("no tasks yet"),
        "an empty plan is not complete"
    );
    assert!(matches!(plan.clone().add("7", "x", &Value::Null), Err(PlanError::Malformed(_))));
    let long = refused(&plan, &"9".repeat(5000));
    assert!(long.len() < 300, "{long}");
    let mut many = plan.clone();
    (0..200).for_each(|_| drop(many.add("", "x", &Value::Null).unwrap()));
    let refusal = refused(&many, "x");
    assert!(refusal.ends_with("18, 19, …"), "{refusal}");
}

#[test]
fn an_unknown_state_is_said_after_an_unknown_task() {
    let mut plan = plan(&["a"]);
    assert!(matches!(plan.set_named("9", "bogus"), Err(PlanError::Malformed(_))));
    let error = plan.set_named("0", "bogus").unwrap_err();
    assert!(
        matches!(&error, PlanError::InvalidState(text) if text.contains("in_progress")),
        "{error}"
    );
    for word in ["open", "in_progress", "completed", "verified", "abandoned"] {
        assert_eq!(plan.set_named("0", word), Ok(()));
        assert_eq!(json!(state(&plan, "0")), json!(word));
    }
}

#[test]
fn in_progress_climbs_and_closing_falls() {
    let mut plan = plan(&["a", "b"]);
    plan.add("1", "b0", &json!([{ "goal": "b00" }, { "goal": "b01" }])).unwrap();
    plan.set("1.0.0", PlanState::InProgress).unwrap();
    assert_eq!([state(&plan, "1"), state(&plan, "1.0"), plan.state()], [PlanState::InProgress; 3]);
    assert_eq!(
        plan.current().map(|(id, task)| (id, task.goal.as_str())),
        Some(("1.0.0".to_owned(), "b00"))
    );
    plan.set("1.0.1", PlanState::Abandoned).unwrap();
    plan.set("1", PlanState::Verified).unwrap();
    assert_eq!([state(&plan, "1.0"), state(&plan, "1.0.0")], [PlanState::Verified; 2]);
    assert_eq!(state(&plan, "1.0.1"), PlanState::Abandoned);
    assert_eq!(
        plan.current().map(|(id, _)| id),
        Some(String::new()),
        "the root goes on: a is open"
    );
    assert!(!plan.is_finished());
}

#[test]
fn verified_stays_verified_when_the_root_is_through() {
    let mut ours = plan(&["a", "b"]);
    ours.set("0", PlanState::Verified).unwrap();
    ours.set("1", PlanState::Completed).unwrap();
    assert_eq!((ours.state(), state(&ours, "0")), (PlanState::Completed, PlanState::Verified));
    assert!(ours.is_finished());
}

#[test]
fn a_task_more_opens_a_finished_plan_again() {
    let mut ours = plan(&["a"]);
    ours.set("0", PlanState::Completed).unwrap();
    ours.add("", "b", &Value::Null).unwrap();
    assert_eq!((ours.state(), ours.is_finished()), (PlanState::Open, false));
    ours.set("1", PlanState::Completed).unwrap();
    assert!(ours.is_finished());
    // A task that is opened again also opens the root.
    ours.set("0", PlanState::Open).unwrap();
    assert_eq!(ours.state(), PlanState::Open);
}

#[test]
fn bounds_are_kept_and_what_is_refused_changes_nothing() {
    let refused = |plan: &mut Plan, parent: &str, goal: &str, subtasks: &Value| {
        let before = plan.clone();
        let refusal = plan.add(parent, goal, subtasks).unwrap_err().to_string();
        assert_eq!(*plan, before);
        refusal
    };
    let mut deep = Plan::default();
    let mut parent = String::new();
    for _ in 0..MAX_DEPTH {
        parent = deep.add(&parent, "x", &Value::Null).unwrap();
    }
    assert!(refused(&mut deep, &parent, "x", &Value::Null).contains("32 levels"));
    let nested = (0..1000).fold(json!([]), |below, _| json!([{ "goal": "x", "subtasks": below }]));
    assert!(refused(&mut Plan::default(), "", "x", &nested).contains("32 levels"));
    assert!(
        refused(&mut Plan::default(), "", &"x".repeat(MAX_GOAL_BYTES + 1), &Value::Null)
            .contains("say it shorter")
    );
    let goal = "x".repeat(MAX_GOAL_BYTES);
    let too_long = Value::Array(vec![json!({ "goal": goal }); MAX_BYTES / MAX_GOAL_BYTES]);
    assert!(refused(&mut Plan::default(), "", "y", &too_long).contains("together"));
    let mut full = Plan::default();
    full.add("", "x", &Value::Array(vec![json!({ "goal": "y" }); MAX_TASKS - 1])).unwrap();
    assert_eq!(full.len(), MAX_TASKS);
    assert!(refused(&mut full, "", "z", &Value::Null).contains("10000 tasks"));
    for subtasks in [
        json!("text"),
        json!({}),
        json!(["text"]),
        json!([{ "subtasks": [] }]),
        json!([{ "goal": 7 }]),
    ] {
        refused(&mut Plan::default(), "", "x", &subtasks);
    }
}

#[test]
fn it_is_shown_as_json_and_as_text_and_read_back() {
    let mut plan = plan(&["a", "b"]);
    plan.add("1", "b0", &Value::Null).unwrap();
    plan.set("1.0", PlanState::InProgress).unwrap();
    plan.set("0", PlanState::Verified).unwrap();
    insta::assert_snapshot!(plan.to_text(), @r"
    💪  
        ✅ 0 a
        💪 1 b
            💪 1.0 b0
    ");
    assert_eq!(
        plan.to_json(),
        json!({ "id": "", "goal": "", "state": "in_progress", "subtasks": [
            { "id": "0", "goal": "a", "state": "verified", "subtasks": [] },
            { "id": "1", "goal": "b", "state": "in_progress", "subtasks": [
                { "id": "1.0", "goal": "b0", "state": "in_progress", "subtasks": [] },
            ] },
        ] })
    );
    let stored = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
}
