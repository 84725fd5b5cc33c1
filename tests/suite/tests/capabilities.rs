//! Each capability: its result with a grant, its error without a grant, and the report to the
//! operator.

use conclave_core::types::denial::Layer;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, calling, guest, stepping};
use serde_json::{Value, json};

const FOLDER: &str = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read" }]"#;

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(ran.content()).unwrap_or_else(|error| panic!("{error}: {}", ran.content()))
}

#[test]
fn files_of_a_granted_folder_can_be_read() {
    let rig = Rig::new().with_file("data/sub/a.txt", "Skerryvore");
    let ran = rig
        .run(&calling("files_read", "run", &json!({ "path": "/folder/sub/a.txt" }), FOLDER), "go");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "Skerryvore"));
    let ran = rig.run(&calling("files_read", "list", &json!({}), FOLDER), "go");
    assert!(
        ran.content().contains("/folder writable=false")
            && ran.content().contains("/folder/sub/a.txt"),
        "{}",
        ran.content()
    );
}

#[test]
fn files_without_a_grant_are_denied_and_the_operator_learns_which_grant() {
    let ran = Rig::new()
        .run(&calling("files_read", "run", &json!({ "path": "/folder/a.txt" }), ""), "go");
    assert!(ran.answer().is_error, "{}", ran.content());
    let denials = ran.denials();
    let record = denials
        .iter()
        .find(|record| record.denial.capability == "files")
        .unwrap_or_else(|| panic!("{denials:?}"));
    assert_eq!(record.layer, Layer::Config);
    assert!(
        record
            .suggestion
            .as_deref()
            .is_some_and(|line| line.contains("[plugins.subject] grants.files")),
        "{record:?}"
    );
    assert!(
        !ran.content().contains("grants"),
        "the plugin is not told what to grant: {}",
        ran.content()
    );
}

#[cfg(unix)]
#[test]
fn no_spelling_of_a_path_leaves_a_granted_folder() {
    let rig = Rig::new()
        .with_file("data/a.txt", "inside")
        .with_file("secret", "OUTSIDE")
        .with_file("data2/a.txt", "OUTSIDE");
    let data = rig.folder().join("data");
    std::os::unix::fs::symlink("..", data.join("link")).expect("a link can be made");
    std::os::unix::fs::symlink("/etc/passwd", data.join("absolute-link"))
        .expect("a link can be made");
    let ran = rig.run(
        &calling(
            "files_escape",
            "run",
            &json!({}),
            &format!("{FOLDER}\nlimits = {{ output = \"1 MiB\" }}"),
        ),
        "go",
    );
    let tried = json_of(&ran);
    let tried = tried.as_array().expect("a list");
    assert!(tried.len() > 20, "{tried:?}");
    for attempt in tried {
        let result = attempt[1].as_str().unwrap_or_default();
        assert!(!result.contains("READ"), "{attempt}");
        assert!(!result.contains("OUTSIDE"), "{attempt}");
    }
    assert!(!ran.denials().is_empty());
}

#[cfg(unix)]
#[test]
fn a_path_to_a_key_gets_no_ready_made_grant() {
    let ran = Rig::new()
        .run(&calling("files_read", "run", &json!({ "path": "/root/.ssh/id_ed25519" }), ""), "go");
    let denials = ran.denials();
    assert!(
        !denials.is_empty() && denials.iter().all(|record| record.suggestion.is_none()),
        "{denials:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_pipe_is_no_file_and_does_not_hang_the_host() {
    let rig = Rig::new().with_file("data/a.txt", "inside");
    let made = std::process::Command::new("mkfifo")
        .arg(rig.folder().join("data/pipe"))
        .status()
        .expect("mkfifo runs");
    assert!(made.success());
    let ran =
        rig.run(&calling("files_read", "run", &json!({ "path": "/folder/pipe" }), FOLDER), "go");
    assert!(ran.answer().is_error && ran.answer().fault.is_none(), "{}", ran.content());
}

#[test]
fn a_folder_for_reading_cannot_be_written() {
    let rig = Rig::new().with_file("data/a.txt", "inside");
    let ran = rig.run(
        &calling("files_write", "run", &json!({ "path": "/folder/a.txt", "bytes": 3 }), FOLDER),
        "go",
    );
    let tried = json_of(&ran);
    assert!(
        tried.as_array().is_some_and(|tried| tried
            .iter()
            .all(|attempt| attempt[1].as_str().unwrap_or_default().contains("Denied"))),
        "{tried}"
    );
    assert_eq!(
        std::fs::read_to_string(rig.folder().join("data/a.txt")).expect("it is still there"),
        "inside"
    );
    let ran = rig.run(
        &calling("files_write", "many", &json!({ "folder": "/folder", "count": 3 }), FOLDER),
        "go",
    );
    assert!(
        ran.content().starts_with("0: ") && ran.content().contains("Denied"),
        "{}",
        ran.content()
    );
}

#[test]
fn a_manifest_that_asks_for_nothing_gets_nothing_also_when_granted() {
    let rig = Rig::new().with_file("data/a.txt", "inside");
    let ran = rig.run(&calling("manifest_lies", "run", &json!({}), FOLDER), "go");
    assert!(!ran.content().contains("inside"), "{}", ran.content());
    assert!(
        ran.denials().iter().any(|record| record.layer == Layer::Manifest),
        "{:?}",
        ran.denials()
    );
}

#[test]
fn a_blob_that_a_call_was_not_given_is_unknown() {
    let ran = Rig::new().run(&calling("blobs_denied", "run", &json!({}), ""), "go");
    let tried = json_of(&ran).to_string();
    assert!(tried.contains("Ok(") && tried.contains("Unknown"), "{tried}");
}

#[test]
fn a_model_without_a_grant_is_denied() {
    let ran = Rig::new().run(&calling("model_denied", "run", &json!({}), ""), "go");
    let tried = json_of(&ran);
    assert!(
        tried.as_array().is_some_and(|tried| tried
            .iter()
            .all(|result| result.as_str().unwrap_or_default().contains("Denied"))),
        "{tried}"
    );
    assert!(
        ran.denials()
            .iter()
            .any(|record| record.denial.capability == "model" && record.layer == Layer::Config),
        "{:?}",
        ran.denials()
    );
}

#[test]
fn completions_that_are_kept_count_as_handles() {
    let lines = "grants.model = [\"default\"]\nlimits = { handles = 20, cpu = \"5 s\" }";
    let ran =
        scripted().run(&with_model(&calling("resource_flood", "run", &json!({}), lines)), "go");
    assert_eq!(
        ran.fault().kind,
        conclave_core::types::fault::FaultKind::Handles,
        "{}",
        ran.content()
    );
}

fn model_lines() -> String {
    "entry = \"main\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n"
        .to_owned()
}

fn scripted() -> Rig {
    Rig::new().with_file("replies.json", r#"{ "replies": ["first", "second"], "usage": { "input_tokens": 30, "output_tokens": 10 } }"#)
}

fn with_model(config: &str) -> String {
    model_lines() + &config.replacen("entry = \"main\"\n", "", 1)
}

#[test]
fn a_granted_model_answers_and_its_tokens_are_counted() {
    let ran = scripted()
        .run(&with_model(&stepping("agent_models", r#"grants.model = ["default"]"#, "")), "hello");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "first"));
    assert_eq!(ran.outcome.spent.tokens, 40);
}

#[test]
fn a_model_request_is_journalled_before_its_answer_and_before_the_step_ends() {
    use conclave_core::protocol::event::Event;
    let ran = scripted()
        .run(&with_model(&stepping("agent_models", r#"grants.model = ["default"]"#, "")), "hello");
    let order: Vec<&str> = ran
        .events("test")
        .iter()
        .filter_map(|event| match event {
            Event::ModelAsked { .. } => Some("asked"),
            Event::ModelAnswered { .. } => Some("answered"),
            Event::AgentStepped { .. } => Some("stepped"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["asked", "answered", "stepped"]);
}

#[test]
fn tokens_beyond_the_run_end_it() {
    // An agent that fails when its model is refused; one that handles the refusal would end well.
    let config = with_model(
        "entry = \"main\"\n[plugins.subject]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n[tasks.main]\nagent = \"subject\"\n",
    );
    let ran = scripted().run(&(config + "[limits.run]\ntokens = 39\n"), "hello");
    assert_eq!(ran.status(), Status::MaxTokens);
}

#[test]
fn a_scratch_is_kept_between_calls_and_forgotten_when_the_call_fails() {
    let two = format!(
        r#"
entry = "main"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["subject.*"]
[plugins.subject]
source = "{}"
[tasks.main]
agent = "chat"
"#,
        guest("scratch_counter").display()
    );
    let call = |name: &str| json!({ "calls": [{ "name": format!("subject.{name}") }] });
    let replies = json!({ "replies": [call("run"), call("fail"), call("run"), "end"] });
    let ran = Rig::new().with_file("replies.json", replies.to_string()).run(&two, "count");
    let contents: Vec<String> = ran.answers().into_iter().map(|answer| answer.content).collect();
    assert_eq!((contents[0].as_str(), contents[2].as_str()), ("1", "2"), "{contents:?}");
    assert!(contents[1].contains("failed after"), "{contents:?}");
}

#[test]
fn settings_reach_the_plugin_with_their_defaults() {
    let ran = Rig::new()
        .run(&calling("config_read", "run", &json!({}), r#"config = { units = "kelvin" }"#), "go");
    assert_eq!(json_of(&ran), json!({ "units": "kelvin", "digits": 1 }));
}

#[test]
fn facts_about_the_call_are_stamped_by_the_host() {
    let ran = Rig::new()
        .run(&calling("context", "run", &json!({}), r#"limits = { wall = "2 h" }"#), "go");
    let seen = json_of(&ran);
    assert_eq!(
        (&seen["task_name"], &seen["room_id"], &seen["caller"], &seen["attempt"]),
        (&json!("main"), &json!("test"), &json!("caller"), &json!(1))
    );
    assert!(
        seen["deadline_ms"].as_u64().is_some_and(|ms| ms <= 7_200_000 && ms > 3_600_000),
        "{seen}"
    );
}

#[test]
fn progress_reaches_followers() {
    let ran = Rig::new().run(&calling("progressing", "run", &json!({}), ""), "go");
    let steps = ran
        .happenings
        .iter()
        .filter(|happening| {
            matches!(happening.what, conclave_runtime::subscribe::RunEvent::Progressed { .. })
        })
        .count();
    assert_eq!(steps, 3);
}

#[test]
fn a_tool_cannot_steer_the_task_without_the_route_grant() {
    let ran = Rig::new().run(&calling("steering", "run", &json!({}), ""), "go");
    assert!(!ran.content().contains("the tool decided"), "{}", ran.content());
    let denials = ran.denials();
    assert!(
        denials
            .iter()
            .any(|record| record.denial.capability == "route" && record.denial.target == "done"),
        "{denials:?}"
    );
}

/// Returns the config of a desk whose tool `ask.librarian` delegates to the task `reader`.
fn asking(desk: &str, ask: &str) -> String {
    let brief = json!({ "agent": "reader", "task": "Who built the lighthouse?" });
    let effect = json!({ "do": "call", "tool": { "name": "delegate_task", "args": brief } });
    let tool = json!({
        "name": "librarian", "description": "Asks the librarian.", "input_schema": { "type": "object" },
        "effects": { "desk": effect },
    });
    let script = json!({ "tools": [tool] });
    format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = \"{}\"\ngrants.tools = [\"ask.*\"]\n{desk}\n\
         config.script = [{{ call = \"ask.librarian\" }}]\n[plugins.ask]\nsource = \"{}\"\n{ask}\n\
         config = {{ script = '{script}' }}\n[plugins.echo]\nsource = \"{}\"\n\
         [tasks.desk]\nagent = \"desk\"\nbackground = {{ wait = true }}\n[tasks.reader]\nagent = \"echo\"\n",
        guest("acting_agent").display(),
        guest("script_tools").display(),
        guest("agent_echo").display(),
    )
}

/// R-132: a tool with a name and a schema of its own, in place of `delegate_task`.
#[test]
fn a_tool_of_a_plugin_delegates_with_the_grants_of_both() {
    let (desk, ask) = ("grants.delegate = [\"reader\"]", "grants.route = [\"delegate_task\"]");
    let ran = Rig::new().run(&asking(desk, ask), "go");
    let observed = json_of(&ran)["steps"][1]["since"][0]["observation"]["content"].take();
    let answer: Value = serde_json::from_str(observed.as_str().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    assert_eq!(
        (&answer["status"], &answer["agent"], &answer["output"]),
        (&json!("completed"), &json!("reader"), &json!("Who built the lighthouse?")),
        "{answer}"
    );
    assert_eq!(ran.denials(), []);
    let ran = Rig::new().run(&asking(desk, ""), "go");
    assert!(!ran.content().contains("lighthouse"), "{}", ran.content());
    let denied = |ran: &Ran| {
        let denials = ran.denials().into_iter();
        denials.map(|record| (record.denial.capability, record.denial.target)).collect::<Vec<_>>()
    };
    assert_eq!(denied(&ran), [("route".to_owned(), "delegate_task".to_owned())]);
    let ran = Rig::new().run(&asking("", ask), "go");
    assert!(ran.content().contains("not_granted"), "{}", ran.content());
    assert_eq!(denied(&ran), [("delegate".to_owned(), "reader".to_owned())]);
}

#[test]
fn a_tool_that_was_not_granted_is_refused_with_the_layer() {
    let config = calling("echo", "run", &json!({ "text": "x" }), "");
    let ran = Rig::new().run(
        &config.replacen("grants.tools = [\"subject.*\"]", "grants.tools = [\"subject.fail\"]", 1),
        "go",
    );
    assert!(ran.answer().is_error);
    let record = ran.denials().into_iter().next().expect("a refusal");
    assert_eq!(
        (record.denial.capability.as_str(), record.denial.target.as_str(), record.layer),
        ("tools", "subject.run", Layer::Config)
    );
    assert_eq!(
        record.suggestion.as_deref(),
        Some("[plugins.caller] grants.tools = [\"subject.fail\", \"subject.run\"]")
    );
    let ran = Rig::new().run(&(config + "tools = [\"subject.fail\"]\n"), "go");
    assert_eq!(ran.denials().into_iter().next().map(|record| record.layer), Some(Layer::Task));
}
