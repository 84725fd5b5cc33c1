//! A model's view of its agent's past: the actions and observations, in order.

use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, guest};
use serde_json::json;

use super::{allowed, model, prompts, says};

#[test]
fn a_model_sees_the_actions_that_it_wrote_and_what_came_of_them() {
    let add = json!({ "action": "add_task", "args": { "parent": "", "goal": "Look" } });
    let read = json!({ "action": "read", "args": { "path": "a.txt" } });
    let finish = json!({ "action": "finish", "args": { "outputs": { "answer": "one" } } });
    let (server, models) = model([add, read, finish].iter().map(says).collect());
    let config = format!(
        "entry = \"main\"\n{models}\n[plugins.planner]\nsource = \"{planner}\"\ngrants.model = [\"default\"]\n\
         grants.tools = [\"workspace.*\"]\n[plugins.workspace]\nsource = \"stock:workspace\"\n\
         grants.files = [{{ dir = \"box\", at = \"/work\", mode = \"read-write\" }}]\n{}\
         [tasks.main]\nagent = \"planner\"\naction_plugins = [\"workspace\"]\n",
        allowed("workspace.*"),
        planner = guest("planner").display(),
    );
    let ran = Rig::new().with_file("box/a.txt", "one\n").run(&config, "What is in a.txt?");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "one"), "{}", ran.outcome.reason);
    let last = prompts(&server).pop().expect("it was asked");
    let at = |role: &str, text: &str| {
        last.iter().position(|(of, told)| of == role && told.contains(text))
    };
    let acted = at("assistant", "\"read\"")
        .unwrap_or_else(|| panic!("it does not see what it did: {last:#?}"));
    assert!(last[acted].1.contains("a.txt"), "{:?}", last[acted]);
    assert!(
        last[acted + 1..].iter().any(|(role, told)| role != "assistant" && told.contains("one")),
        "{last:#?}"
    );
    assert!(at("assistant", "add_task").is_some_and(|added| added < acted), "{last:#?}");
}
