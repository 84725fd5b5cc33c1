//! `conclave tasks`: the background tasks of a run, from another terminal. An endless task is
//! cancelled there.

use conclave_test_support::{Rig, guest};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{command, conclave, start, until};

/// Returns a config whose background task never ends by itself.
fn spinning() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"{coordinator}\"\ngrants.route = [\"answer\"]\n\
         grants.delegate = [\"digest\"]\n[plugins.echo]\nsource = \"{}\"\n[plugins.spin]\nsource = \"{}\"\n\
         limits = {{ cpu = \"5 min\", wall = \"5 min\" }}\n[plugins.immediate]\nsource = \"stock:immediate\"\ngrants.channels = [\"terminal\"]\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n[tasks.answer]\nagent = \"echo\"\n\
         [tasks.digest]\nagent = \"spin\"\ndelivery_strategy = \"immediate\"\n",
        guest("agent_echo").display(),
        guest("agent_spin").display(),
        coordinator = guest("coordinator").display(),
    );
    Rig::new().with_file("c.toml", config)
}

/// Returns a config whose background task ends at once, and is delivered on this channel.
fn delivering(channel: &str, lines: &str) -> Rig {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"{coordinator}\"\ngrants.route = [\"answer\"]\n\
         grants.delegate = [\"digest\"]\n[plugins.echo]\nsource = \"{}\"\n\
         [plugins.immediate]\nsource = \"stock:immediate\"\ngrants.channels = [\"{channel}\"]\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n[tasks.answer]\nagent = \"echo\"\n\
         [tasks.digest]\nagent = \"echo\"\ndelivery_strategy = \"immediate\"\n{lines}",
        guest("agent_echo").display(),
        coordinator = guest("coordinator").display(),
    );
    Rig::new().with_file("c.toml", config)
}

#[test]
fn a_result_is_delivered_where_somebody_reads_it_and_waits_in_the_inbox_elsewhere() {
    let of = |name: &str, keys: &str| format!("[channels.{name}]\n{keys}\n");
    for (channel, lines, is_served) in [
        ("terminal", String::new(), true),
        ("phone", of("phone", "kind = \"voice\"\nsimulate = \"1 ms\""), true),
        ("phone", of("phone", "kind = \"voice\""), false),
        ("pager", of("pager", "kind = \"text\""), false),
        ("web", of("web", "kind = \"web\""), false),
    ] {
        let rig = delivering(channel, &lines);
        let output = conclave(&rig, &["run", "c.toml", "hello", "--quiet"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{lines}: {stderr}");
        let task = tasks(&rig, &[]).pop().expect("a task");
        // From the inbox, the agent reads it if it takes another step.
        let states = if is_served { &["delivered"][..] } else { &["inbox", "read"] };
        let state = task["delivery"]["state"].as_str().unwrap_or_default();
        assert!(states.contains(&state), "{lines}: {task}");
        assert_eq!(task["delivery"]["attempts"] == json!(0), !is_served, "{lines}: {task}");
        assert_eq!(stderr.contains("task-1"), is_served, "{lines}: {stderr}");
        let check = text(&conclave(&rig, &["check", "c.toml"]).stderr);
        let warns = check.contains("no command of `conclave` serves the channel");
        assert_eq!(warns, !is_served && channel != "web", "{lines}: {check}");
    }
}

fn tasks(rig: &Rig, arguments: &[&str]) -> Vec<Value> {
    let output = conclave(rig, &[&["tasks"], arguments, &["--json"]].concat());
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

#[test]
fn a_task_that_computes_for_ever_is_listed_and_cancelled_from_another_terminal() {
    let rig = spinning();
    let child = start(&rig, &["run", "c.toml", "hello"]);
    let running = until("a task that runs", || {
        tasks(&rig, &[]).pop().filter(|task| task["state"] == json!("running"))
    });
    assert_eq!((&running["name"], &running["worker"]), (&json!("task-1"), &json!("digest")));
    let run = running["run"].as_str().expect("a name").to_owned();

    let wrong = conclave(&rig, &["tasks", &run, "task-7", "--cancel"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("has no background task task-7")
            && text(&wrong.stderr).contains("task-1")
    );
    let both = conclave(&rig, &["tasks", &run, "1", "--cancel", "--tell", "x"]);
    assert_eq!(both.status.code(), Some(2), "one of them");

    let cancelled = conclave(&rig, &["tasks", &run, "1", "--cancel", "--reason", "enough"]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
    let output = child.wait_with_output().expect("the run ends, as nothing goes on any more");
    assert_eq!(
        (output.status.code(), text(&output.stdout).trim()),
        (Some(0), "hello\nThe background task digest was cancelled: cancelled: enough"),
        "{}",
        text(&output.stderr)
    );

    let ended = tasks(&rig, &[&run, "task-1"]).remove(0);
    assert_eq!(
        (&ended["state"], &ended["error"]),
        (&json!("cancelled"), &json!("cancelled: enough"))
    );
    assert_eq!(
        ended["delivery"]["state"],
        json!("delivered"),
        "its end is told like any other: {ended}"
    );
    let listed = text(&conclave(&rig, &["tasks"]).stdout);
    assert!(
        listed.contains("cancelled") && listed.contains("delivered on terminal by immediate"),
        "{listed}"
    );
    let narrow = command(&rig, &["tasks"]).env("COLUMNS", "80").output().expect("it runs");
    let head: Vec<String> = text(&narrow.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(head, ["TASK", "WORKER", "STATE", "DURATION", "DELIVERY"]);
    let late = conclave(&rig, &["tasks", &run, "1", "--cancel"]);
    assert_eq!(late.status.code(), Some(2), "{}", text(&late.stderr));
}

#[test]
fn a_run_without_background_tasks_says_so() {
    let rig = Rig::new().with_file(
        "c.toml",
        format!(
            "entry = \"a\"\n[plugins.e]\nsource = \"{}\"\n[tasks.a]\nagent = \"e\"\n",
            guest("agent_echo").display()
        ),
    );
    assert_eq!(conclave(&rig, &["run", "c.toml", "hello"]).status.code(), Some(0));
    assert!(text(&conclave(&rig, &["tasks"]).stdout).contains("started no background task"));
    assert!(tasks(&rig, &[]).is_empty());
}

/// Returns a config whose model delegates, and is done before the result is there.
fn delegating(desk: &str, more: &str) -> Rig {
    let config = format!(
        "entry = \"desk\"\n{more}[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n\
         grants.delegate = {{ tasks = [\"facts\"] }}\n\
         [tasks.desk]\nagent = \"chat\"\nsystem = \"You talk.\"\ntools = [\"delegate_task\"]\n{desk}\
         [tasks.facts]\nagent = \"chat\"\nsystem = \"You look things up.\"\n"
    );
    let replies = json!({
        "rules": [{ "when": "the height of", "reply": "It is 48 metres tall." }],
        "replies": [
            { "text": "I look it up.", "calls": [{
                "name": "delegate_task",
                "args": { "agent": "facts", "task": "Find the height of the tower." },
            }] },
            "I will tell you.",
        ],
    });
    Rig::new().with_file("c.toml", config).with_file("replies.json", replies.to_string())
}

#[test]
fn a_result_without_a_strategy_is_printed_where_the_answer_is() {
    let rig = delegating("", "[channels.web]\nkind = \"web\"\n");
    let output = conclave(&rig, &["run", "c.toml", "How tall is it?"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(stdout.lines().collect::<Vec<_>>(), ["I will tell you.", "It is 48 metres tall."]);
    assert!(stderr.contains("delivered on terminal") && !stderr.contains("on web"), "{stderr}");
    assert!(!stderr.contains("read by nobody"), "{stderr}");
    let delivered = tasks(&rig, &[]).remove(0);
    assert_eq!(delivered["delivery"]["state"], json!("delivered"), "{delivered}");
}

#[test]
fn a_strategy_has_no_channel_without_a_client() {
    let strategy = "[channels.web]\nkind = \"web\"\n[plugins.now]\nsource = \"stock:immediate\"\n\
                    grants.channels = [\"web\"]\n";
    let desk = "background = { delivery_strategy = \"now\" }\n";
    let rig = delegating(desk, strategy);
    let output = conclave(&rig, &["run", "c.toml", "How tall is it?"]);
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("delivered by now on web"), "{stderr}");
    assert!(stderr.contains("1 background result was read by nobody"), "{stderr}");
    assert_eq!(text(&output.stdout).trim(), "I will tell you.");
}

#[test]
fn check_warns_of_a_result_that_no_agent_will_read() {
    let warned = |desk: &str| {
        let output = conclave(&delegating(desk, ""), &["check", "c.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).contains("config/unread-result")
    };
    assert!(warned(""));
    assert!(!warned("background = { wait = true }\n"));
    assert!(!warned("interactive = true\n"));
}
