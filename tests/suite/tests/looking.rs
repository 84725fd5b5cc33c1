//! Commands that inspect past runs: the program runs a config, then `runs`, `show`, `audit`,
//! `approvals` and `store` report on it.

use std::fs;

use conclave_test_support::{Rig, calling, stepping};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{command, conclave, start, until};

fn echo() -> Rig {
    Rig::new().with_file("c.toml", stepping("agent_echo", "", ""))
}

/// Returns a config with a tool that needs an approval.
fn asking() -> Rig {
    let rule = "[[policy]]\ntool = \"subject.run\"\ndecide = \"ask\"\n";
    Rig::new().with_file("c.toml", calling("echo", "run", &json!({ "text": "it ran" }), "") + rule)
}

/// Returns the time in milliseconds of the clock that dates runs.
fn now() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("it is later than that");
    u64::try_from(since.as_millis()).expect("it fits for long")
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

#[test]
fn a_run_is_listed_shown_and_whole() {
    let rig = echo();
    said(&rig, &["run", "c.toml", "hello"]);
    let runs = lines(&rig, &["runs"]);
    let run = runs[0]["run"].as_str().expect("a name").to_owned();
    assert_eq!(
        (runs.len(), &runs[0]["state"], &runs[0]["message"]),
        (1, &json!("done"), &json!("hello"))
    );
    let shown = &lines(&rig, &["show", &run])[0];
    assert_eq!(
        (&shown["type"], &shown["took_ms"], &shown["ended"]["answer"]),
        (&json!("timeline"), &runs[0]["took_ms"], &json!("hello"))
    );
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = words(&said(&rig, &["show", &run[..6]])).join(" ");
    assert!(line.contains("task main agent subject"), "{line}");
    assert!(said(&rig, &["show", "--html=-"]).starts_with("<!doctype html>"));
    let audit = lines(&rig, &["audit"]);
    assert!(!audit.is_empty() && audit.iter().all(|entry| entry["kind"] == "granted"), "{audit:?}");
    assert!(said(&rig, &["store", "check"]).contains(" of 1 room, 1 blob"));
    assert!(said(&rig, &["approvals"]).contains("no call waits for an approval"));
    // A narrow list breaks its entries and loses nothing of them.
    let narrow = command(&rig, &["audit"]).env("COLUMNS", "60").output().expect("it runs");
    let narrow = text(&narrow.stdout);
    let (message, address) = (&audit[0]["message"], &audit[0]["event"]);
    let first = [message, address].map(|field| field.as_str().expect("a text").to_owned());
    let whole = words(&format!("{} [{}]", first[0], first[1]));
    let shown = words(&narrow);
    assert!(shown.windows(whole.len()).any(|part| part == whole), "{narrow}");
    let mut entries = narrow.lines().rev().skip(1);
    assert!(entries.all(|line| line.chars().count() <= 60), "{narrow}");
}

#[test]
fn runs_of_a_batch_are_listed_and_their_store_is_whole() {
    let rig = echo().with_file("in", "a\nb\nc\n");
    said(&rig, &["batch", "in", "--config", "c.toml"]);
    let runs = lines(&rig, &["runs"]);
    assert_eq!(runs.len(), 3, "{runs:?}");
    for check in [["store", "check"], ["audit", "verify"]] {
        assert!(said(&rig, &check).contains("verified"));
    }
    let name = runs[0]["run"].as_str().expect("a name");
    assert_eq!(lines(&rig, &["show", name])[0]["run"], name);
}

#[test]
fn a_run_that_waits_for_a_person_says_so_and_its_time_goes_on() {
    let rig = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let waits = until("a run that waits", || lines(&rig, &["runs", "--status", "waiting"]).pop());
    assert_eq!((&waits["state"], &waits["waits_for"]), (&json!("running"), &json!(["approval"])));
    let listed = said(&rig, &["runs"]);
    assert!(
        listed.contains("running, waiting")
            && listed.contains("1 approval waits for your decision: `conclave approvals`"),
        "{listed}"
    );
    let pending = said(&rig, &["approvals"]);
    assert!(pending.contains("  running, waiting  "), "as `runs` has it: {pending}");
    let took = || lines(&rig, &["show"])[0]["took_ms"].as_u64().expect("a number");
    let before = took();
    until("time that goes on", || (took() > before).then_some(()));
    assert_eq!(lines(&rig, &["show"])[0]["totals"]["approvals"], 1);
    rig.kill(child);
    let listed = said(&rig, &["runs"]);
    assert!(listed.contains("interrupted, waiting"), "{listed}");

    // The decision has not reached the run yet.
    let approval = lines(&rig, &["approvals"]).pop().expect("it waits still");
    said(&rig, &["approve", approval["id"].as_str().expect("an id"), "--yes"]);
    let listed = said(&rig, &["approvals"]);
    assert!(listed.contains(", approved "), "{listed}");
    assert_eq!(lines(&rig, &["approvals"])[0]["decision"], "approved");

    // Downtime does not count, and a repeated question is listed once.
    let cut = now();
    let idle = until("another moment", || now().checked_sub(cut).filter(|idle| *idle > 0));
    said(&rig, &["resume", "--approvals", "wait"]);
    let (run, shown) = (lines(&rig, &["runs"]).remove(0), lines(&rig, &["show"]).remove(0));
    assert_eq!(
        (&run["took_ms"], &shown["totals"]["approvals"], &run["waits_for"]),
        (&shown["took_ms"], &json!(1), &json!([]))
    );
    let passed =
        run["updated"].as_u64().expect("a moment") - run["started"].as_u64().expect("a moment");
    assert!(run["took_ms"].as_u64().expect("a number") + idle <= passed, "{run}");
    let rows = shown["rows"].as_array().expect("rows");
    let at = |is: &str| {
        rows.iter()
            .position(|row| row["type"] == is)
            .unwrap_or_else(|| panic!("{is} is a row: {rows:?}"))
    };
    assert!(at("approval") < at("resumed") && at("resumed") < at("tool"), "{rows:?}");
}

#[test]
fn an_audit_is_in_the_order_of_time_over_all_runs() {
    let rig = asking().with_file("e.toml", stepping("agent_echo", "", ""));
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let approval = until("a call that waits", || lines(&rig, &["approvals"]).pop());
    said(&rig, &["run", "e.toml", "in between"]);
    said(&rig, &["approve", approval["id"].as_str().expect("an id"), "--yes"]);
    let ended = child.wait_with_output().expect("it ends");
    let printed = text(&ended.stderr);
    let line = |part: &str| printed.lines().position(|line| line.contains(part));
    let (question, arguments) = (line("subject.run of caller waits"), line("      │ {\"text\":"));
    assert!(question.is_some() && question < arguments, "the question comes first: {printed}");
    let audit = lines(&rig, &["audit"]);
    let run = audit.last().and_then(|entry| entry["room"].as_str()).expect("a run").to_owned();
    let (named, by_option) = (said(&rig, &["audit", &run]), said(&rig, &["audit", "--run", &run]));
    assert_eq!(named, by_option);
    assert!(named.contains(" in 1 run;") && named.contains(" UTC approved"), "{named}");
    let listed = said(&rig, &["why", &run]);
    assert!(
        listed.contains(" approval-requested caller asks for approval of subject.run"),
        "{listed}"
    );
    let times: Vec<u64> =
        audit.iter().map(|entry| entry["at"].as_u64().expect("a moment")).collect();
    assert!(times.is_sorted(), "{audit:#?}");
    assert_eq!(audit.last().expect("entries")["kind"], "approved");

    let asked = audit.iter().find(|entry| entry["kind"] == "approval-requested");
    let asked = asked.and_then(|entry| entry["event"].as_str()).expect("it was asked");
    let why = said(&rig, &["why", asked]);
    assert!(why.contains("needs approval tools: subject.run"), "{why}");
    let rule = why.lines().find(|line| line.contains("? policy")).expect("a rule asks");
    assert_eq!(rule.matches("c.toml:").count(), 1, "{rule}");
}

#[test]
fn a_store_that_is_damaged_is_told_and_the_others_are_listed() {
    let rig = echo().with_file("in", "a\n");
    said(&rig, &["run", "c.toml", "hello"]);
    said(&rig, &["batch", "in", "--config", "c.toml"]);
    let folder = rig.folder().join("state/stores/1");
    for part in ["log.db-wal", "log.db-shm"] {
        let _ = fs::remove_file(folder.join(part));
    }
    fs::write(folder.join("log.db"), "this is no database, and never was one ".repeat(400))
        .expect("it is written");
    let output = conclave(&rig, &["runs", "--json"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).lines().count()),
        (Some(0), 1),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stderr).matches("warning:").count(), 1, "{}", text(&output.stderr));
    // Its interrupted runs are unknown, so "no run was interrupted" would be a guess.
    let resumed = conclave(&rig, &["resume"]);
    let stderr = text(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("no interrupted run was found, and 1 store cannot be read"),
        "{stderr}"
    );
}

/// A command that looks at the exit code alone must not take it for an empty state folder.
#[test]
fn a_store_that_cannot_be_read_is_damaged_and_never_nothing() {
    let rig = echo();
    for command in [&["audit", "verify"][..], &["store", "check"]] {
        let output = conclave(&rig, command);
        assert_eq!(output.status.code(), Some(0), "nothing is stored: {}", text(&output.stderr));
    }
    said(&rig, &["run", "c.toml", "hello"]);
    let folder = rig.folder().join("state/stores/1");
    for part in ["log.db-wal", "log.db-shm"] {
        let _ = fs::remove_file(folder.join(part));
    }
    fs::write(folder.join("log.db"), "this is no database, and never was one ".repeat(400))
        .expect("it is written");
    for command in [
        &["audit", "verify"][..],
        &["audit", "head"],
        &["store", "check"],
        &["store", "backup", "copy"],
    ] {
        let output = conclave(&rig, command);
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {stdout}");
        assert!(stdout.contains("DAMAGED") && !stdout.contains("nothing"), "{command:?}: {stdout}");
        let json = conclave(&rig, &[command, &["--json"]].concat());
        let line: Value = serde_json::from_str(text(&json.stdout).trim()).expect("a line of JSON");
        assert!(line["problems"].as_array().is_some_and(|all| !all.is_empty()), "{line}");
    }
}

#[test]
fn a_folder_of_lines_is_no_store_and_says_so() {
    let rig = echo();
    said(&rig, &["run", "c.toml", "hello", "--journal", "j"]);
    let output = conclave(&rig, &["show", "--store", "j"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("journals of JSON lines") && stderr.contains("conclave why --journal"),
        "{stderr}"
    );
}

#[test]
fn the_secret_of_a_room_is_in_its_store_and_in_nothing_that_the_program_writes() {
    let rig = echo();
    let followed = said(&rig, &["run", "c.toml", "hello", "--json"]);
    let run = lines(&rig, &["runs"])[0]["run"].as_str().expect("a name").to_owned();
    let store = rig.store(&rig.folder().join("state"));
    let store = conclave_runtime::store::StoreReader::open(store).expect("the store of the run");
    let records =
        store.records(&conclave_core::types::ids::RoomId::from(run.as_str())).expect("it is whole");
    let secret = records.iter().find_map(|record| match &record.event {
        conclave_core::protocol::event::Event::RoomOpened { secret, .. } => Some(secret.to_hex()),
        _ => None,
    });
    let secret = secret.expect("the room was opened");
    let address = format!("{run}:0");
    let commands: [&[&str]; 7] = [
        &["show", &run, "--json"],
        &["show", &run, "--html=-"],
        &["show", &run, "--all"],
        &["trajectory", "export", &run],
        &["why", &address],
        &["why", &address, "--json"],
        &["audit", "--json"],
    ];
    for command in commands {
        let output = conclave(&rig, command);
        let written = text(&output.stdout) + &text(&output.stderr);
        assert!(!written.trim().is_empty() && !written.contains(&secret), "{command:?}: {written}");
    }
    assert!(followed.contains("room-opened") && !followed.contains(&secret));
}

/// Returns a config whose agent asks a scripted model.
fn modelled(more: &str) -> Rig {
    let config = format!(
        "entry = \"desk\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         input_price = 1.0\noutput_price = 2.0\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n\
         [tasks.desk]\nagent = \"chat\"\nsystem = \"You keep the light.\"\n{more}"
    );
    let replies = json!({ "replies": ["At dusk."] }).to_string();
    Rig::new().with_file("c.toml", config).with_file("replies.json", replies)
}

#[test]
fn the_prompt_of_a_model_call_is_shown_from_the_journal() {
    let rig = modelled("");
    said(&rig, &["run", "c.toml", "When is it lit?"]);
    let shown = lines(&rig, &["show"]).remove(0);
    let rows = shown["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["type"] == "model").expect("a model call");
    let texts = |prompt: &Value| -> Vec<(String, String)> {
        let messages = prompt["messages"].as_array().into_iter().flatten();
        let text =
            |message: &Value, key: &str| message[key].as_str().unwrap_or_default().to_owned();
        messages.map(|message| (text(message, "role"), text(message, "text"))).collect()
    };
    let expected = [("system", "You keep the light."), ("user", "When is it lit?")];
    let expected = expected.map(|(role, text)| (role.to_owned(), text.to_owned()));
    assert_eq!(texts(&row["prompt"]), expected, "{row}");
    let address = format!(
        "{}:{}",
        row["room"].as_str().expect("a room"),
        row["seq"].as_u64().expect("a number")
    );
    let prompt = lines(&rig, &["show", &address, "--prompt"]).remove(0);
    assert_eq!((texts(&prompt), &prompt["address"]), (expected.to_vec(), &json!(address)));
    let plain = said(&rig, &["show", "--prompt"]);
    assert!(plain.contains(&address) && plain.contains("You keep the light."), "{plain}");
    let page = said(&rig, &["show", "--html=-"]);
    assert!(page.contains("<dt>prompt</dt>") && page.contains("You keep the light."));

    let of_none =
        conclave(&rig, &["show", &format!("{}:0", shown["run"].as_str().expect("a name"))]);
    assert_eq!(of_none.status.code(), Some(2));
    assert!(text(&of_none.stderr).contains("--prompt"), "{}", text(&of_none.stderr));
}

#[test]
fn a_budget_that_is_too_small_says_what_the_request_needs() {
    for (limit, key) in [("cost_usd = 0.00002", "cost_usd"), ("tokens = 20", "tokens")] {
        let rig = modelled(&format!("[limits.run]\n{limit}\n"));
        let output = conclave(&rig, &["run", "--json", "c.toml", "When is it lit?"]);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        let stdout = text(&output.stdout);
        let last: Value =
            serde_json::from_str(stdout.lines().last().unwrap_or_default()).expect("a result");
        let reason = last["outcome"]["reason"].as_str().expect("a reason");
        let start = format!("limits.run.{key}: the next request reserves at least ");
        assert!(reason.starts_with(&start), "{reason}");
        assert!(reason.ends_with("are left (nothing used)"), "{reason}");
    }
}
