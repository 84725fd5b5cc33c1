//! Processes that share a store in PostgreSQL, as on several machines: they begin runs, take them,
//! decide about their calls and look at them, and know nothing of each other.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output};

use conclave_test_support::{Rig, TestPostgres, calling, postgres_or_skip, stepping, until};
use serde_json::{Value, json};

use crate::cli::text;
use crate::overlay::{FIX, Model};
use crate::resume_cli::{Slow, command, kill};

/// The processes of one database.
struct Machines {
    rig: Rig,
    database: conclave_test_support::TestDatabase,
}

impl Machines {
    /// Machines with the config of a call that a rule asks about; `None` without PostgreSQL.
    fn new() -> Option<Self> {
        let rule = "[[policy]]\ntool = \"subject.run\"\ndecide = \"ask\"\n";
        let config = calling("echo", "run", &json!({ "text": "it ran" }), "") + rule;
        Self::of(Rig::new().with_file("c.toml", config))
    }

    fn of(rig: Rig) -> Option<Self> {
        Some(Self { rig, database: postgres_or_skip(TestPostgres::shared())? })
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = command(&self.rig, arguments);
        command.env("CONCLAVE_STORE", self.database.url());
        command
    }

    fn conclave(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }

    /// Starts a worker, and waits until others see it.
    fn worker(&self) -> Child {
        let mut worker = self.command(&["worker", "c.toml"]);
        // Nobody reads what it reports.
        let worker = worker.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let worker = worker.spawn().expect("the program runs");
        // The name of a host has the number of its process.
        let name = format!("-{}-", worker.id());
        until("a worker", || self.workers().iter().any(|line| line.contains(&name)).then_some(()));
        worker
    }

    /// The lines about workers.
    fn workers(&self) -> Vec<String> {
        let output = self.conclave(&["workers", "--json"]);
        let lines = text(&output.stdout);
        let is_worker = |line: &&str| line.contains("\"capacity\":32");
        lines.lines().filter(is_worker).map(str::to_owned).collect()
    }

    /// Begins a run for a worker.
    fn enqueue(&self) -> String {
        let output = self.conclave(&["run", "c.toml", "go", "--detach"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn state(&self, run: &str) -> Option<String> {
        let output = self.conclave(&["runs", "--json"]);
        let lines = text(&output.stdout);
        let rows = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut of_run = rows.filter(|row| row["run"] == run);
        of_run.find_map(|row| row["state"].as_str().map(str::to_owned))
    }

    fn until_state(&self, run: &str, state: &str) {
        until(state, || (self.state(run).as_deref() == Some(state)).then_some(()));
    }

    fn approval(&self) -> String {
        until("a call that waits", || {
            let output = self.conclave(&["approvals", "--json"]);
            let lines = text(&output.stdout);
            let line = lines.lines().find(|line| line.contains("\"approval\""))?;
            let value: Value = serde_json::from_str(line).ok()?;
            value["approval"].as_str().or(value["id"].as_str()).map(str::to_owned)
        })
    }
}

/// Asks a process to stop, and waits until it has.
fn terminate(mut child: Child) -> Option<i32> {
    let id = i32::try_from(child.id()).expect("an id");
    let id = rustix::process::Pid::from_raw(id).expect("an id");
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is there");
    child.wait().expect("it ends").code()
}

#[test]
fn a_run_sleeps_until_somebody_decides_and_any_worker_goes_on() {
    let Some(machines) = Machines::new() else { return };
    let run = machines.enqueue();
    assert_eq!(machines.state(&run).as_deref(), Some("queued"));
    let worker = machines.worker();
    let id = machines.approval();
    // It waits for a person, and so for no host.
    machines.until_state(&run, "asleep");
    assert_eq!(terminate(worker), Some(0));
    assert_eq!(machines.workers(), [""; 0], "its lease is given back");
    // The decision is made while no host is there.
    let said = machines.conclave(&["approve", &id, "--yes"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let other = machines.worker();
    let ended = machines.conclave(&["wait", &run]);
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(0), "it ran\n"),
        "{}",
        text(&ended.stderr)
    );
    let audit = machines.conclave(&["audit", "verify"]);
    assert_eq!(audit.status.code(), Some(0), "{}", text(&audit.stderr));
    terminate(other);
}

#[test]
fn a_killed_worker_is_replaced_when_its_lease_is_over() {
    let Some(machines) = Machines::new() else { return };
    let run = machines.enqueue();
    let worker = machines.worker();
    let id = machines.approval();
    machines.until_state(&run, "asleep");
    kill(worker);
    // The sleeping run belonged to nobody, so its decision needs no lease to end.
    let said = machines.conclave(&["refuse", &id, "--reason", "no"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let other = machines.worker();
    let ended = machines.conclave(&["wait", &run]);
    assert!(text(&ended.stdout).contains("Not approved: no"), "{}", text(&ended.stdout));
    terminate(other);
}

#[test]
fn the_changes_of_a_killed_worker_are_in_the_database_and_another_machine_goes_on_with_them() {
    let model = Model::start(&FIX, 2);
    let Some(machines) = Machines::of(model.rig()) else { return };
    let run = machines.enqueue();
    let worker = machines.worker();
    model.server.wait_for_requests(3);
    // Another machine has the database and the folder, and nothing of the worker's.
    let elsewhere = |arguments: &[&str]| {
        let state = machines.rig.folder().join("state-of-another");
        machines.command(arguments).env("CONCLAVE_STATE", state).output().expect("the program runs")
    };
    let output = elsewhere(&["diff", &run, "--apply", "--yes"]);
    assert_eq!(output.status.code(), Some(1), "a worker has it: {}", text(&output.stderr));
    kill(worker);
    let expire = "UPDATE conclave.hosts SET until = now() - interval '1 second'";
    machines.database.query(&[expire]).expect("the database answers");
    model.release();
    let output = elsewhere(&["resume", &run, "--json"]);
    let seen = text(&output.stdout);
    let result: Value = serde_json::from_str(seen.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&result["type"], &result["pending_changes"]), (&json!("result"), &json!(3)));
    let shown = text(&machines.conclave(&["diff", &run]).stdout);
    for line in ["+echo Hello\n", "+n\n+Hello\n", "-old\n"] {
        assert!(shown.contains(line), "{shown}");
    }
    let project = machines.rig.folder().join("project");
    let read = |path: &str| std::fs::read_to_string(project.join(path)).unwrap_or_default();
    assert_eq!(read("greet.sh"), "echo Helo\n");
    let output = machines.conclave(&["diff", &run, "--apply", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        (read("greet.sh"), read("new/n"), read("old.txt")),
        ("echo Hello\n".to_owned(), "n\nHello\n".to_owned(), String::new())
    );
    assert!(text(&elsewhere(&["runs"]).stdout).contains("done, applied"));
    let output = elsewhere(&["store", "check"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = elsewhere(&["store", "gc", "--keep", "0", "--yes"]);
    assert!(text(&output.stdout).contains("removed 1 run"), "{}", text(&output.stdout));
    let rows = "SELECT count(*) FROM conclave.overlay_decisions";
    assert_eq!(machines.database.query(&[rows]).expect("the database answers").trim(), "0");
}

#[test]
fn a_run_that_no_host_has_is_stopped_and_the_wait_for_it_ends() {
    let Some(machines) = Machines::new() else { return };
    let run = machines.enqueue();
    let waiting = machines.command(&["wait", &run]).spawn().expect("the program runs");
    let stopped = machines.conclave(&["stop", &run]);
    assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    let ended = waiting.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert_eq!(machines.state(&run).as_deref(), Some("kill"));
}

/// Otherwise the runs that it leaves would wait for the end of its lease.
#[test]
fn a_process_that_ends_by_itself_leaves_no_lease() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    let Some(machines) = Machines::of(rig) else { return };
    for _ in 0..3 {
        let ended = machines.conclave(&["run", "c.toml", "hello"]);
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        let held = "SELECT (SELECT count(*) FROM conclave.hosts),
             (SELECT count(*) FROM conclave.rooms WHERE host IS NOT NULL)";
        assert_eq!(machines.database.query(&[held]).expect("it answers"), "0|0");
    }
}

/// The worker's first attempts meet no server; other commands give up after a few seconds.
#[test]
fn a_worker_that_starts_in_an_outage_waits_for_its_database() {
    let Some(machines) = Machines::new() else { return };
    let run = machines.enqueue();
    let (proxy, url) = machines.database.behind_proxy().expect("a proxy");
    proxy.refuse();
    let mut worker = machines.command(&["worker", "c.toml"]);
    let mut worker = worker.env("CONCLAVE_STORE", &url).spawn().expect("the program runs");
    let mut lines = BufReader::new(worker.stderr.take().expect("it is piped")).lines();
    let mut line = || lines.next().expect("it says why it waits").expect("a line");
    let reason = line();
    assert!(reason.contains("cannot be reached"), "{reason}");
    assert_eq!(line(), "trying again until it is there");
    let other = machines.command(&["runs"]).env("CONCLAVE_STORE", &url).output().expect("it runs");
    let stderr = text(&other.stderr);
    assert_eq!(other.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("start its database"), "{stderr}");
    proxy.pass();
    // Nobody reads the rest of what it reports.
    let reading = std::thread::spawn(move || lines.for_each(drop));
    let id = machines.approval();
    machines.until_state(&run, "asleep");
    assert_eq!(machines.conclave(&["approve", &id, "--yes"]).status.code(), Some(0));
    assert_eq!(text(&machines.conclave(&["wait", &run]).stdout), "it ran\n");
    assert_eq!(terminate(worker), Some(0));
    reading.join().expect("it has ended");
}

#[test]
fn a_run_that_no_host_has_takes_a_pause_at_once_and_no_worker_begins_it_meanwhile() {
    let Some(machines) = Machines::new() else { return };
    let run = machines.enqueue();
    let paused = machines.conclave(&["pause", &run]);
    assert_eq!(paused.status.code(), Some(0), "{}", text(&paused.stderr));
    assert!(text(&paused.stdout).contains("is paused; no host has it"), "{paused:?}");
    let again = machines.conclave(&["pause", &run]);
    assert!(text(&again.stdout).contains("was already paused"), "{again:?}");
    let listed = text(&machines.conclave(&["runs"]).stdout);
    assert!(listed.contains("asleep, paused"), "{listed}");
    let told = machines.conclave(&["tell", &run, "be brief"]);
    assert!(text(&told.stdout).contains("no host has the run"), "{told:?}");
    let worker = machines.worker();
    let other = machines.enqueue();
    machines.until_state(&other, "asleep");
    let records = format!("SELECT records FROM conclave.rooms WHERE room = '{run}'");
    let records = machines.database.query(&[&records]).expect("it answers");
    assert_eq!(records.trim(), "1", "the worker that took another run has not taken this one");
    let resumed = machines.conclave(&["resume", &run]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    until("the run has begun", || {
        let waiting = text(&machines.conclave(&["approvals", "--json"]).stdout);
        waiting.contains(&run).then_some(())
    });
    terminate(worker);
}

#[test]
fn a_pause_that_no_worker_has_received_is_withdrawn_by_resume() {
    let Some(machines) = Machines::new() else { return };
    let run = machines.enqueue();
    machines.conclave(&["pause", &run]);
    let resumed = machines.conclave(&["resume", &run]);
    assert!(text(&resumed.stdout).contains("when a worker takes it"), "{resumed:?}");
    let inbox = machines.database.query(&["SELECT count(*) FROM conclave.inbox"]);
    assert_eq!(inbox.expect("it answers").trim(), "0");
}

#[test]
fn a_damaged_run_is_listed_beside_the_others_and_can_be_stopped() {
    let Some(machines) = Machines::new() else { return };
    let (broken, whole) = (machines.enqueue(), machines.enqueue());
    let damage = |change: &str| {
        let change = format!("UPDATE conclave.{change} AND room = '{broken}'");
        machines.database.query(&[&change]).expect("it answers");
    };
    damage("events SET body = '{}' WHERE seq = 0");
    let shown = machines.conclave(&["show", &broken]);
    assert!(text(&shown.stderr).contains("conclave stop"), "{shown:?}");
    let unread = machines.conclave(&["tell", &broken, "look into /docs"]);
    assert_ne!(unread.status.code(), Some(0), "no worker goes on with it: {unread:?}");
    assert!(text(&unread.stderr).contains("conclave stop"), "{unread:?}");
    damage("rooms SET agents = 'no list' WHERE true");
    let listed = machines.conclave(&["runs"]);
    let lines = text(&listed.stdout);
    assert_eq!(listed.status.code(), Some(1), "{lines}");
    assert!(lines.contains(&whole) && lines.contains("damaged"), "{lines}");
    assert!(text(&listed.stderr).contains("conclave store check"), "{listed:?}");
    let whole_shown = machines.conclave(&["show", &whole]);
    assert_eq!(whole_shown.status.code(), Some(0), "{whole_shown:?}");
    let audit = machines.conclave(&["audit"]);
    assert_eq!(audit.status.code(), Some(1), "{audit:?}");
    let stopped = machines.conclave(&["stop", &broken]);
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    let status = format!("SELECT status FROM conclave.rooms WHERE room = '{broken}'");
    assert_eq!(machines.database.query(&[&status]).expect("it answers").trim(), "KILL");
}

#[test]
fn resume_waits_for_the_lease_of_a_lost_host_and_not_for_one_that_is_there() {
    let slow = Slow::start();
    let Some(machines) = Machines::of(slow.rig()) else { return };
    let worker = machines.worker();
    let run = machines.enqueue();
    slow.server.wait_for_requests(2);
    let refused = machines.conclave(&["resume", &run]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("which is there"), "{refused:?}");
    kill(worker);
    slow.release();
    let resumed = machines.conclave(&["resume", &run]);
    let stderr = text(&resumed.stderr);
    assert!(stderr.contains("its lease ends in"), "{stderr}");
    assert_eq!(text(&resumed.stdout), "The second half.\n", "{stderr}");
}

#[test]
fn without_a_shared_store_nothing_is_detached() {
    let rig = Rig::new().with_file("c.toml", calling("echo", "run", &json!({ "text": "x" }), ""));
    for arguments in [&["run", "c.toml", "go", "--detach"][..], &["worker", "c.toml"], &["workers"]]
    {
        let refused = command(&rig, arguments).output().expect("the program runs");
        let stderr = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("--store postgres://"), "{stderr}");
    }
}

/// What `cargo xtask demo --cluster` shows.
#[test]
fn a_worker_that_is_killed_in_the_middle_is_replaced_and_no_stored_reply_is_asked_for_again() {
    let slow = Slow::start();
    let Some(machines) = Machines::of(slow.rig()) else { return };
    let worker = machines.worker();
    let run = machines.enqueue();
    slow.server.wait_for_requests(2);
    kill(worker);
    // As the time does.
    machines.database.query(&["UPDATE conclave.hosts SET until = now()"]).expect("it answers");
    slow.release();
    let other = machines.worker();
    let ended = machines.conclave(&["wait", &run]);
    assert_eq!(text(&ended.stdout), "The second half.\n", "{}", text(&ended.stderr));
    assert_eq!(slow.server.requests().len(), 3, "the second one was asked for twice");
    let shown = machines.conclave(&["show", &run]);
    assert!(text(&shown.stdout).contains("(epoch 3)"), "{}", text(&shown.stdout));
    terminate(other);
}

#[test]
fn a_copy_of_a_database_is_restored_with_its_large_blobs() {
    let echo = calling("echo", "run", &json!({ "text": "it ran" }), "");
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.resize(2 << 20, 7);
    let rig = Rig::new().with_file("c.toml", echo).with_file("big.png", picture);
    let Some(machines) = Machines::of(rig) else { return };
    let Some(other) = postgres_or_skip(TestPostgres::shared()) else { return };
    let folder = machines.rig.folder();
    std::fs::create_dir(folder.join("shared")).expect("a folder");
    let store = format!("{}?blobs={}", machines.database.url(), folder.join("shared").display());
    let conclave = |store: &str, arguments: &[&str]| {
        let mut command = machines.command(arguments);
        let output = command.env("CONCLAVE_STORE", store).output().expect("the program runs");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, stderr) = conclave(&store, &["run", "c.toml", "go", "--attach", "big.png"]);
    assert_eq!(code, Some(0), "{stderr}");
    let files = |name: &str| std::fs::read_dir(folder.join(name)).expect("a folder").count();
    assert_eq!(files("shared"), 2, "the picture, and whose folder it is");
    // A host without the folder is refused, and told what is missing.
    let (code, _, stderr) = conclave(&machines.database.url(), &["run", "c.toml", "go"]);
    assert!(code == Some(1) && stderr.contains("?blobs=FOLDER"), "{code:?} {stderr}");
    let (code, _, stderr) = conclave(&machines.database.url(), &["store", "backup", "copy"]);
    assert!(code == Some(1) && stderr.contains("?blobs=FOLDER"), "{code:?} {stderr}");

    let (code, stdout, stderr) = conclave(&store, &["store", "backup", "copy"]);
    assert_eq!(code, Some(0), "{stderr}");
    for words in ["1 room, 1 file", "pg_restore --no-owner --dbname=NEW"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    let password = machines.database.url();
    let password = password.split([':', '@']).nth(2).expect("a password");
    assert!(!stdout.contains(password) && !stderr.contains(password), "{stdout}");
    assert_eq!((files("copy"), files("copy/blobs")), (2, 2), "no draft is left");
    let (code, _, stderr) = conclave(&store, &["store", "backup", "copy"]);
    assert!(code == Some(2) && stderr.contains("already exists"), "{stderr}");

    other.restore(&folder.join("copy/conclave.dump")).expect("it is restored");
    let restored = format!("{}?blobs={}", other.url(), folder.join("copy/blobs").display());
    for arguments in [&["store", "check"][..], &["audit", "verify"], &["show"]] {
        let (code, stdout, stderr) = conclave(&restored, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stdout} {stderr}");
        assert!(
            stdout.contains(if arguments == ["show"] { "it ran" } else { "verified" }),
            "{stdout}"
        );
    }
    // The head is followed by the name of the store.
    let head =
        |store: &str| conclave(store, &["audit", "head"]).1.split(' ').next().map(str::to_owned);
    assert_eq!(head(&restored), head(&store));
    std::fs::remove_dir_all(folder.join("copy/blobs")).expect("it is removed");
    let (code, _, stderr) = conclave(&restored, &["store", "check"]);
    assert!(code == Some(1) && stderr.contains("mount the shared folder"), "{stderr}");
}

#[test]
fn an_empty_database_is_not_copied() {
    let Some(machines) = Machines::new() else { return };
    let output = machines.conclave(&["store", "backup", "copy"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(!machines.rig.folder().join("copy").exists());
}
