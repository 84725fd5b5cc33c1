//! Commands in a simulated shell: their output, their end, and background commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conclave_core::config::Config;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{ChannelId, TaskName};
use conclave_core::types::outcome::Status;
use conclave_runtime::RunOptions;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_test_support::{Rig, block_on, host};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{acting, executor, observations};

fn config(script: &Value, task: &str) -> String {
    let terminal = executor("stub_terminal", "terminal", "");
    acting(
        script,
        "grants.tools = [\"terminal.*\"]",
        &format!("action_plugins = [\"terminal\"]\n{task}"),
        &terminal,
    )
}

fn command(id: i64, command: &str, exit_code: i64, content: &str) -> Value {
    json!({ "id": id, "command": command, "exit_code": exit_code, "content": content })
}

fn run(line: &str) -> Value {
    json!({ "action": "run", "args": { "command": line } })
}

#[test]
fn what_a_command_says_and_how_it_ends_is_its_observation() {
    let script = json!([
        run("echo hello"),
        run("exit 3"),
        run("cd /elsewhere"),
        run("pwd"),
        { "action": "run_ipython", "args": { "code": "print('8')\n1 + 2" } },
    ]);
    let ran = Rig::new().run(&config(&script, ""), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let expected = [
        command(-1, "echo hello", 0, "hello"),
        command(-1, "exit 3", 3, ""),
        command(-1, "cd /elsewhere", 0, ""),
        command(-1, "pwd", 0, "/elsewhere"),
        json!({ "code": "print('8')\n1 + 2", "content": "8\n3" }),
    ];
    assert_eq!(observations(&ran), expected);
}

#[test]
fn a_command_that_takes_too_long_is_interrupted_and_says_so() {
    let ran = Rig::new().run(&config(&json!([run("sleep 999")]), ""), "go");
    let [seen] = &observations(&ran)[..] else { panic!("{:?}", observations(&ran)) };
    assert_eq!(seen["exit_code"], -1);
    assert!(
        seen["content"].as_str().is_some_and(|text| text
            .starts_with("Command: \"sleep 999\" timed out. Sent SIGINT to the process:")),
        "{seen}"
    );
}

#[test]
fn lines_run_until_one_of_them_fails() {
    let ran = Rig::new().run(&config(&json!([run("echo a\nfalse\necho b")]), ""), "go");
    assert_eq!(observations(&ran), [command(-1, "echo a\nfalse\necho b", 1, "a")]);
}

#[test]
fn a_kill_of_what_is_not_there_is_read_and_calls_nobody() {
    let ran = Rig::new()
        .run(&config(&json!([{ "action": "kill", "args": { "command_id": 7 } }]), ""), "go");
    assert_eq!(
        observations(&ran),
        [json!({ "error": "There is no background command with id 7." })]
    );
    let called = ran.notices().filter(|notice| matches!(notice, Notice::ToolCalled { .. })).count();
    assert_eq!((ran.status(), called), (Status::Done, 0));
}

#[test]
fn a_background_command_is_killed_by_its_id() {
    let script = json!([
        { "action": "run", "args": { "command": "srv", "background": true } },
        { "action": "kill", "args": { "command_id": 42 } },
        { "action": "kill", "args": { "command_id": 42 } },
    ]);
    let ran = Rig::new().run(&config(&script, ""), "go");
    let expected = [
        command(
            42,
            "srv",
            0,
            "Background command started. To stop it, send a `kill` action with command_id 42",
        ),
        command(42, "srv", 0, "Background command with id 42 has been killed."),
        json!({ "error": "There is no background command with id 42." }),
    ];
    assert_eq!((ran.status(), observations(&ran)), (Status::Done, expected.to_vec()));
}

#[test]
fn a_background_command_does_not_outlive_its_agent() {
    let ran = Rig::new().run(
        &config(
            &json!([{ "action": "run", "args": { "command": "srv", "background": true } }]),
            "",
        ),
        "go",
    );
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let killed = ran.answers().into_iter().find(|answer| answer.name.ends_with("kill"));
    assert!(killed.as_ref().is_some_and(|answer| !answer.is_error && answer.content.contains("42 has been killed")), "{killed:?}");
}

/// Signals the user when a background command has ended.
struct Ended(Semaphore);

impl Subscriber for Ended {
    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice: Notice::ToolAnswered { name, content, .. } } =
            &happening.what
            && name.ends_with(".poll")
            && content.is_empty()
        {
            self.0.add_permits(1);
        }
    }
}

/// A user who answers after that signal.
struct Patient(Arc<Ended>, AtomicU32);

impl Channels for Patient {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let ended = Arc::clone(&self.0);
        Box::pin(async move {
            drop(ended.0.acquire().await);
            Some(HumanAnswer::from("go on".to_owned()))
        })
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The output and the end of a background command arrive before the next step, complete and in
/// order.
#[test]
fn a_background_command_is_followed_to_its_end() {
    let script = json!([
        { "action": "run", "args": { "command": "echo a\necho b\nexit 5", "background": true } },
        { "action": "talk", "args": { "content": "I wait." }, "wait": true },
    ]);
    let outcome = block_on(async {
        let config = Config::parse("conclave.toml", "/", &config(&script, ""))
            .unwrap_or_else(|problems| panic!("{problems}"));
        let prepared = host().load(&config).await.unwrap_or_else(|error| panic!("{error}"));
        let ended = Arc::new(Ended(Semaphore::new(0)));
        let person = Arc::new(Patient(Arc::clone(&ended), AtomicU32::new(0)));
        let options = RunOptions {
            channels: Arc::clone(&person) as Arc<dyn Channels>,
            subscribers: Subscribers::new([ended as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        };
        let outcome = prepared
            .start(Some("go".to_owned()), options)
            .expect("it opens")
            .outcome()
            .await
            .expect("a journal in memory does not fail");
        assert_eq!(person.1.load(Ordering::Relaxed), 1, "{outcome:?}");
        outcome
    });
    let value = outcome
        .value
        .clone()
        .or_else(|| serde_json::from_str(outcome.content.as_deref()?).ok())
        .unwrap_or_default();
    let last =
        value["steps"].as_array().and_then(|steps| steps.last()).cloned().unwrap_or_default();
    let told: Vec<&Value> = last["since"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|past| &past["observation"])
        .filter(|seen| !seen.is_null())
        .collect();
    let expected = command(42, "echo a\necho b\nexit 5", 5, "a\nb\n");
    assert!(told.contains(&&expected), "{outcome:#?}");
}
