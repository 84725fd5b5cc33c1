//! Control of a run from other terminals with real processes: pause, message, resume and stop.

use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::RoomId;
use conclave_runtime::store::StoreReader;
use conclave_test_support::{Rig, calling, guest, stepping, stock};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{conclave, start, until};

const ASK: &str = "[[policy]]\ntool = \"echo.run\"\ndecide = \"ask\"\n";

/// Returns a config whose agent calls a tool that needs an approval and then repeats its input.
fn waiting() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\n[plugins.actor]\nsource = \"{}\"\ngrants.tools = [\"echo.*\"]\n\
         config = {{ script = [{{ call = \"echo.run\", arguments = {{ text = \"it ran\" }} }}] }}\n[plugins.echo]\nsource = \"{}\"\n{ASK}",
        guest("acting_agent").display(),
        guest("echo").display()
    );
    Rig::new().with_file("c.toml", config)
}

/// Returns the output of a command that must succeed.
fn said(rig: &Rig, arguments: &[&str]) -> String {
    let output = conclave(rig, arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn lines(rig: &Rig, arguments: &[&str]) -> Vec<Value> {
    said(rig, &[arguments, &["--json"]].concat())
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Returns the pending calls once there are `count` of them.
fn approvals(rig: &Rig, count: usize) -> Vec<String> {
    until("calls that wait", || {
        let waits = lines(rig, &["approvals"]);
        (waits.len() == count).then(|| {
            waits.iter().map(|wait| wait["id"].as_str().expect("an id").to_owned()).collect()
        })
    })
}

fn records(rig: &Rig, room: &str) -> Vec<Record> {
    let reader =
        StoreReader::open(rig.store(&rig.folder().join("state"))).expect("a store is there");
    reader.records(&RoomId::from(room)).expect("it is read")
}

fn has_answered(rig: &Rig, room: &str) -> bool {
    records(rig, room).iter().any(|record| matches!(record.event, Event::ToolAnswered { .. }))
}

fn has_decided(rig: &Rig, room: &str) -> bool {
    records(rig, room)
        .iter()
        .any(|record| matches!(record.event.effective(), Event::Decided { .. }))
}

fn newest(rig: &Rig) -> Value {
    lines(rig, &["runs"]).remove(0)
}

#[test]
fn a_run_is_paused_told_and_gone_on_with_from_other_terminals() {
    let rig = waiting();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let call = approvals(&rig, 1).remove(0);
    let run = newest(&rig)["run"].as_str().expect("a name").to_owned();

    let paused = said(&rig, &["pause", &run[..6], "--reason", "lunch"]);
    assert!(
        paused.starts_with(&format!("{run} is paused; "))
            && paused.contains(&format!("conclave resume {run}")),
        "{paused}"
    );
    let row = newest(&rig);
    assert_eq!((&row["state"], &row["paused"]), (&json!("running"), &json!("lunch")));
    assert!(said(&rig, &["runs"]).contains("running, paused"));
    let shown = said(&rig, &["show", &run]);
    assert!(shown.contains("paused: lunch"), "{shown}");
    assert!(said(&rig, &["pause", &run]).contains("was already paused"), "twice is once");

    assert!(
        said(&rig, &["tell", &run, "look into /docs first"])
            .contains("received the message; the agent of desk reads it in its next step")
    );
    let wrong = conclave(&rig, &["tell", &run, "x", "--task", "nobody"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("has no task nobody") && text(&wrong.stderr).contains("desk"),
        "{}",
        text(&wrong.stderr)
    );

    // An approved call begins only when the run is resumed.
    said(&rig, &["approve", &call, "--yes"]);
    until("the word is heard", || has_decided(&rig, &run).then_some(()));
    assert!(!has_answered(&rig, &run), "nothing new begins in a run that is paused");

    assert!(said(&rig, &["resume", &run]).contains("continues in its process"));
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    let answer = text(&ended.stdout);
    assert!(
        answer.contains("it ran") && answer.contains("look into /docs first"),
        "its agent read both: {answer}"
    );
    assert_eq!(newest(&rig)["paused"], Value::Null);

    let export = said(&rig, &["trajectory", "export", &run]);
    assert!(export.contains("look into /docs first") && export.contains("\"paused\""), "{export}");
}

#[test]
fn a_pause_reaches_the_background_and_so_does_going_on() {
    let script = "{ action = \"delegate_task\", args = { agent = \"digest\", task = \"dig\" } }, { call = \"echo.run\", arguments = { text = \"above\" } }";
    let actor = guest("acting_agent").display().to_string();
    let config = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\n[tasks.digest]\nagent = \"digger\"\n\
         [plugins.actor]\nsource = \"{actor}\"\ngrants.tools = [\"echo.*\"]\ngrants.delegate = [\"digest\"]\nconfig = {{ script = [{script}] }}\n\
         [plugins.digger]\nsource = \"{actor}\"\ngrants.tools = [\"echo.*\"]\n\
         config = {{ script = [{{ call = \"echo.run\", arguments = {{ text = \"below\" }} }}] }}\n\
         [plugins.echo]\nsource = \"{}\"\n{ASK}",
        guest("echo").display()
    );
    let rig = Rig::new().with_file("c.toml", config);
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let calls = approvals(&rig, 2);
    let run = newest(&rig)["run"].as_str().expect("a name").to_owned();
    let below = format!("{run}/1");
    said(&rig, &["pause", &run]);
    until("the background has heard it", || {
        records(&rig, &below)
            .iter()
            .any(|record| matches!(record.event, Event::Paused { .. }))
            .then_some(())
    });
    for call in &calls {
        said(&rig, &["approve", call, "--yes"]);
    }
    until("both words are heard", || {
        (has_decided(&rig, &run) && has_decided(&rig, &below)).then_some(())
    });
    assert!(
        !has_answered(&rig, &run) && !has_answered(&rig, &below),
        "nothing begins, above or below"
    );
    said(&rig, &["resume", &run]);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(has_answered(&rig, &run) && has_answered(&rig, &below), "both went on");
}

#[test]
fn a_run_that_is_paused_can_be_stopped() {
    let rig = waiting();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    approvals(&rig, 1);
    let run = newest(&rig)["run"].as_str().expect("a name").to_owned();
    said(&rig, &["pause", &run]);
    assert_eq!(
        said(&rig, &["stop", &run, "--reason", "enough"]),
        format!("{run} has ended: KILL\n")
    );
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
}

#[test]
fn a_run_that_was_cut_off_while_paused_goes_on_by_its_name() {
    let rig = waiting();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let call = approvals(&rig, 1).remove(0);
    let run = newest(&rig)["run"].as_str().expect("a name").to_owned();
    said(&rig, &["pause", &run, "--reason", "the disk is nearly full"]);
    rig.kill(child);
    let output = conclave(&rig, &["pause", &run]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    let resume = format!("conclave resume {run}");
    assert!(stderr.contains("was interrupted") && stderr.contains(&resume), "{stderr}");
    // A text waits for the resumption, like an approval.
    let sent = said(&rig, &["tell", &run, "look into /docs"]);
    assert!(sent.contains("reads it when it is continued") && sent.contains(&resume), "{sent}");
    // The run was paused on purpose, so `resume` without an id must not unpause it.
    let all = conclave(&rig, &["resume", "--approvals", "wait"]);
    let stderr = text(&all.stderr);
    assert!(
        stderr.contains("is paused") && stderr.contains(&run) && !has_answered(&rig, &run),
        "{stderr}"
    );
    said(&rig, &["approve", &call, "--yes"]);
    let output = conclave(&rig, &["resume", &run, "--approvals", "wait"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("it ran"), "{}", text(&output.stdout));
    let is_text = |record: &Record| matches!(record.event.effective(), Event::UserMessageSent { text, .. } if text == "look into /docs");
    assert_eq!(records(&rig, &run).iter().filter(|record| is_text(record)).count(), 1);
}

#[test]
fn nothing_is_said_to_a_run_that_is_not_there_or_over() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    said(&rig, &["run", "c.toml", "hello"]);
    let run = newest(&rig)["run"].as_str().expect("a name").to_owned();
    for (arguments, says) in [
        (vec!["pause", &run], "has ended (DONE), so pausing is not possible"),
        (vec!["tell", &run, "x"], "has ended (DONE), so sending a message is not possible"),
        (vec!["pause", "ffffffffff"], "ffffffffff"),
        (vec!["tell", "ffffffffff", "x"], "ffffffffff"),
        (vec!["tell", &run, ""], "the message is empty"),
    ] {
        let output = conclave(&rig, &arguments);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn whoever_approves_sees_the_risk_and_why() {
    let rule = format!(
        "confirm = {{ policy = \"risky\", threshold = \"medium\", analyzer = \"patterns\" }}\n[plugins.patterns]\nsource = \"{}\"\n\
         config.rules = [{{ tool = \"subject.run\", pattern = \"^deploy\", risk = \"high\", reason = \"it goes live\" }}]\n",
        stock().join("patterns.wasm").display()
    );
    let rig = Rig::new()
        .with_file("c.toml", calling("echo", "run", &json!({ "text": "deploy now" }), "") + &rule);
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let call = approvals(&rig, 1).remove(0);
    let wait = lines(&rig, &["approvals"]).remove(0);
    assert_eq!(wait["request"]["risk"], "high");
    assert!(
        wait["request"]["risk_reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("it goes live")),
        "{wait}"
    );
    let listed = said(&rig, &["approvals"]);
    assert!(
        listed.contains("RISK") && listed.contains("high: ") && listed.contains("it goes live"),
        "{listed}"
    );
    let shown = conclave(&rig, &["approve", &call]);
    assert_eq!(shown.status.code(), Some(6));
    let stderr = text(&shown.stderr);
    assert!(
        stderr.contains("high risk")
            && stderr.contains("it goes live")
            && stderr.contains("deploy now"),
        "{stderr}"
    );
    said(&rig, &["approve", &call, "--yes"]);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(0), "deploy now\n"),
        "{}",
        text(&ended.stderr)
    );
}

#[test]
fn a_plan_is_drawn_in_the_terminal_and_on_the_page() {
    let script = "{ action = \"add_task\", args = { parent = \"\", goal = \"Find it <out>\", subtasks = [{ goal = \"look\" }] } }, \
        { action = \"modify_task\", args = { task_id = \"0.0\", state = \"completed\" } }";
    let rig = Rig::new().with_file(
        "c.toml",
        stepping("acting_agent", &format!("config = {{ script = [{script}] }}"), ""),
    );
    said(&rig, &["run", "c.toml", "go"]);
    let shown = said(&rig, &["show"]);
    assert!(
        shown.contains("main: plan: 1 of 2 done")
            && shown.contains("🔵 0 Find it <out>")
            && shown.contains("🟢 0.0 look"),
        "{shown}"
    );
    assert_eq!(
        lines(&rig, &["show"])[0]["plans"]["main"]["subtasks"][0]["subtasks"][0]["state"],
        "completed"
    );
    let page = said(&rig, &["show", "--html=-"]);
    assert!(
        page.contains("<h2>Plans</h2>")
            && page.contains("🟢 0.0 look")
            && page.contains("Find it &lt;out&gt;"),
        "{page}"
    );
}
