//! Several delegates at once, each a real agent in its own sandbox.

use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, guest};
use serde_json::{Value, json};

use super::{acting, observations};

fn all(delegates: &[(&str, Value)]) -> Value {
    let delegates: Vec<Value> = delegates
        .iter()
        .map(|(agent, inputs)| json!({ "agent": agent, "inputs": inputs }))
        .collect();
    json!([{ "action": "delegate_all", "args": { "delegates": delegates } }])
}

/// Returns tasks with these names; the last one panics.
fn workers(names: &[&str]) -> String {
    let mut text = format!(
        "[plugins.echo]\nsource = \"{}\"\n[plugins.broken]\nsource = \"{}\"\n[tasks.broken]\nagent = \"broken\"\n",
        guest("agent_echo").display(),
        guest("agent_panic").display()
    );
    names.iter().for_each(|name| text += &format!("[tasks.{name}]\nagent = \"echo\"\n"));
    text
}

#[test]
fn several_delegates_work_at_once_and_answer_in_order() {
    let names = ["north", "east", "south", "west"];
    let wanted: Vec<(&str, Value)> =
        names.iter().map(|name| (*name, json!({ "task": format!("look {name}") }))).collect();
    let grant = "grants.delegate = { tasks = [\"north\", \"east\", \"south\", \"west\", \"broken\"], at_once = 3 }";
    let ran = Rig::new().run(&acting(&all(&wanted), grant, "", &workers(&names)), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let expected: Vec<Value> = names
        .iter()
        .map(|name| json!({ "delegate": name, "outputs": { "content": format!("look {name}") } }))
        .collect();
    assert_eq!(observations(&ran), expected);
}

/// One fails, one is not granted and one does not exist: the others still answer.
#[test]
fn a_delegate_that_fails_takes_nobody_along() {
    let wanted = [
        ("north", json!({ "task": "look" })),
        ("broken", json!({ "task": "fall" })),
        ("east", json!({})),
        ("nobody", json!({})),
    ];
    let grant = "grants.delegate = { tasks = [\"north\", \"broken\"], at_once = 4 }";
    let ran = Rig::new().run(&acting(&all(&wanted), grant, "", &workers(&["north", "east"])), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let seen = observations(&ran);
    assert_eq!(seen.len(), 4, "{seen:#?}");
    assert_eq!(seen[0], json!({ "delegate": "north", "outputs": { "content": "look" } }));
    assert!(
        seen[1]["error"]
            .as_str()
            .is_some_and(|text| text.contains("The delegate broken did not finish its task")),
        "{}",
        seen[1]
    );
    assert!(seen[2]["error"].is_string() && seen[3]["error"].is_string(), "{seen:#?}");
    let denied = ran.denials();
    let line = denied
        .iter()
        .find_map(|record| record.suggestion.clone().filter(|line| line.contains("east")));
    assert!(
        line.is_some_and(|line| line.starts_with("[plugins.agent] grants.delegate")),
        "{denied:?}"
    );
}

#[test]
fn a_list_of_delegates_that_is_none_starts_nobody() {
    for args in [
        json!({}),
        json!({ "delegates": [] }),
        json!({ "delegates": [{ "agent": "north" }, { "inputs": {} }] }),
    ] {
        let script = json!([{ "action": "delegate_all", "args": args }]);
        let ran = Rig::new()
            .run(&acting(&script, "grants.delegate = [\"north\"]", "", &workers(&["north"])), "go");
        let seen = observations(&ran);
        assert_eq!((ran.status(), seen.len()), (Status::Done, 1), "{seen:?}");
        assert!(
            seen[0]["error"].as_str().is_some_and(|text| text.contains("nobody was started")),
            "{seen:?}"
        );
    }
}
