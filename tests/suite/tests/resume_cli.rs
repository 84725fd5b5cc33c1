//! Interrupted runs and their resume by the program: real processes, killed in the middle.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Rig, block_on, calling, stock};
pub(crate) use conclave_test_support::{kill, until};
use serde_json::{Value, json};

use crate::cli::text;

pub(crate) fn command(rig: &Rig, arguments: &[&str]) -> Command {
    let mut command = rig.conclave(arguments);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("CONCLAVE_STATE", rig.folder().join("state"));
    command
}

pub(crate) fn conclave(rig: &Rig, arguments: &[&str]) -> Output {
    command(rig, arguments).output().expect("the program runs")
}

pub(crate) fn start(rig: &Rig, arguments: &[&str]) -> Child {
    command(rig, arguments).spawn().expect("the program runs")
}

/// A server whose first reply is complete. After it the server is silent until it is released.
pub(crate) struct Slow {
    pub(crate) server: Server,
    is_released: Arc<AtomicBool>,
}

impl Slow {
    pub(crate) fn start() -> Self {
        let is_released = Arc::new(AtomicBool::new(false));
        let mine = Arc::clone(&is_released);
        let server =
            Server::answering(move |request| match request.json()["messages"].to_string() {
                messages if !messages.contains("go on then") => TestReply::says("The first half."),
                _ if mine.load(Ordering::SeqCst) => TestReply::says("DONE The second half."),
                _ => TestReply::silence(),
            });
        Self { server, is_released }
    }

    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
    }

    /// Returns a config whose run asks the model twice.
    pub(crate) fn rig(&self) -> Rig {
        let (chat, url) = (stock().join("chat.wasm"), self.server.url());
        Rig::new().with_file(
            "c.toml",
            format!(
                "entry = \"desk\"\n[models.default]\nkind = \"openai\"\nurl = \"{url}\"\nmodel = \"m\"\n\
                 [plugins.chat]\nsource = \"{}\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"chat\"\n\
                 on_no_tool_call = {{ nudge = \"go on then\" }}\ntext_rules = {{ signals = true }}\n",
                chat.display()
            ),
        )
    }

    /// Kills a run while it waits for the second reply.
    fn cut_off(&self, rig: &Rig, arguments: &[&str]) {
        let before = self.server.requests().len();
        let child = start(rig, arguments);
        self.server.wait_for_requests(before + 2);
        rig.kill(child);
    }
}

/// Returns the run that the program reports as interrupted.
fn left(rig: &Rig) -> String {
    let output = conclave(rig, &["resume", "ffffffffff"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let name =
        stderr.split("the newest are ").nth(1).and_then(|rest| rest.split([',', '\n', ' ']).next());
    name.unwrap_or_else(|| panic!("what there is, is said: {stderr}")).to_owned()
}

#[test]
fn a_run_that_was_killed_goes_on_and_no_reply_is_bought_twice() {
    let slow = Slow::start();
    let rig = slow.rig();
    slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    assert_eq!(slow.server.requests().len(), 2);
    let run = left(&rig);

    // The next run of the same config reports it; a run of another config does not.
    let (config, echo) =
        (rig.folder().join("c.toml"), conclave_test_support::stepping("agent_echo", "", ""));
    std::fs::write(rig.folder().join("e.toml"), &echo).expect("it is written");
    let other = conclave(&rig, &["run", "e.toml", "hello"]);
    assert!(!text(&other.stderr).contains("run interrupted"), "{}", text(&other.stderr));
    let kept = std::fs::read(&config).expect("it is there");
    std::fs::write(&config, &echo).expect("it is written");
    let next = conclave(&rig, &["run", "c.toml", "hello"]);
    assert!(
        text(&next.stderr)
            .contains(&format!("1 run interrupted: {run} (`conclave resume {run}` resumes)")),
        "{}",
        text(&next.stderr)
    );
    let quiet = conclave(&rig, &["run", "c.toml", "hello", "--quiet"]);
    std::fs::write(&config, kept).expect("it is written");
    assert_eq!(text(&quiet.stderr), "");

    slow.release();
    let output = conclave(&rig, &["resume", &run[..5]]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "The second half.\n"),
        "{}",
        text(&output.stderr)
    );
    let asked: Vec<usize> = slow
        .server
        .requests()
        .iter()
        .map(|request| request.json()["messages"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(asked.len(), 3, "the first reply was there: {asked:?}");
    assert_eq!(asked[1], asked[2], "the second question was asked again as it was");

    // A run is resumed only once.
    let again = conclave(&rig, &["resume", &run]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("has ended (DONE)"), "{}", text(&again.stderr));
    let none = conclave(&rig, &["resume"]);
    assert_eq!(
        (none.status.code(), text(&none.stdout).as_str()),
        (Some(0), ""),
        "{}",
        text(&none.stderr)
    );
}

#[test]
fn a_resumed_run_counts_its_steps_and_its_tokens_from_the_start() {
    let slow = Slow::start();
    let rig = slow.rig();
    slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    let run = left(&rig);
    slow.release();
    let numbers = |output: &Output| -> Vec<u32> {
        let stderr = text(&output.stderr);
        let steps = stderr.lines().filter_map(|line| line.trim_start().split_once("  desk ›"));
        steps.filter_map(|(number, _)| number.parse().ok()).collect()
    };
    let resumed = conclave(&rig, &["resume", "--trace", &run]);
    let whole = conclave(&rig, &["run", "--trace", "c.toml", "Tell it."]);
    let (rest, all) = (numbers(&resumed), numbers(&whole));
    assert!(!rest.is_empty() && rest.len() < all.len(), "{}", text(&resumed.stderr));
    assert_eq!(all, (1..).take(all.len()).collect::<Vec<u32>>());
    assert!(all.ends_with(&rest), "{rest:?} of {all:?}: {}", text(&resumed.stderr));
    assert!(text(&resumed.stderr).contains(" · in all "), "{}", text(&resumed.stderr));
    assert!(!text(&whole.stderr).contains("in all"), "{}", text(&whole.stderr));
}

#[test]
fn all_that_were_cut_off_go_on_one_after_the_other() {
    let slow = Slow::start();
    let rig = slow.rig();
    for _ in 0..2 {
        slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    }
    slow.release();
    let output = conclave(&rig, &["resume", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let results: Vec<&Value> = lines.iter().filter(|line| line["type"] == "result").collect();
    assert_eq!(results.len(), 2, "{lines:?}");
    assert!(
        results.iter().all(|result| result["outcome"]["content"] == "The second half."),
        "{results:?}"
    );
    assert_eq!(slow.server.requests().len(), 6, "two of each before, and the second of each again");
}

#[test]
fn a_config_that_is_gone_is_said_and_can_be_named_anew() {
    let slow = Slow::start();
    let rig = slow.rig();
    slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    let run = left(&rig);
    std::fs::rename(rig.folder().join("c.toml"), rig.folder().join("moved.toml"))
        .expect("it moves");
    slow.release();
    let output = conclave(&rig, &["resume", &run]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("no longer exists")
            && stderr.contains(&format!("conclave resume {run} --config FILE")),
        "{stderr}"
    );
    let output = conclave(&rig, &["resume", &run, "--config", "moved.toml"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "The second half.\n"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_live_run_is_stopped_from_another_terminal() {
    let slow = Slow::start();
    let rig = slow.rig();
    let child = start(&rig, &["run", "c.toml", "Tell it."]);
    slow.server.wait_for_requests(2);
    let run = left(&rig);
    let busy = conclave(&rig, &["resume", &run]);
    let stderr = text(&busy.stderr);
    assert_eq!(busy.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("`conclave stop {run}` stops it")), "{stderr}");
    let output = conclave(&rig, &["stop", &run, "--reason", "lunch"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), format!("{run} has ended: KILL\n")),
        "{}",
        text(&output.stderr)
    );
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130));
    assert_eq!(text(&ended.stderr).matches("KILL │ lunch").count(), 1, "{}", text(&ended.stderr));
}

#[test]
fn a_run_that_was_cut_off_is_stopped_without_going_on() {
    let slow = Slow::start();
    let rig = slow.rig();
    slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    let run = left(&rig);
    let output = conclave(&rig, &["stop", &run]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(slow.server.requests().len(), 2, "nothing of it ran");
    let resumed = conclave(&rig, &["resume", &run]);
    assert!(text(&resumed.stderr).contains("has ended (KILL)"), "{}", text(&resumed.stderr));
    let twice = conclave(&rig, &["stop", &run]);
    assert!(text(&twice.stdout).contains("had already ended"), "{}", text(&twice.stdout));
}

#[test]
fn a_run_that_could_not_go_on_is_no_success() {
    let slow = Slow::start();
    let rig = slow.rig();
    slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    std::fs::rename(rig.folder().join("c.toml"), rig.folder().join("moved.toml"))
        .expect("it moves");
    let output = conclave(&rig, &["resume"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("0 runs resumed, 1 failed to resume") && stderr.contains("· “Tell it.”"),
        "{stderr}"
    );
}

#[test]
fn a_stop_whose_hearer_died_ends_the_run_and_no_later_one() {
    use conclave_runtime::ids::{Millis, RoomId};
    use conclave_runtime::store::{Durability, RunOrigin, Store, StoreReader};

    let slow = Slow::start();
    let rig = slow.rig();
    slow.cut_off(&rig, &["run", "c.toml", "Tell it."]);
    let run = left(&rig);
    let store = rig.store(&rig.folder().join("state"));
    // A process that has the run but does not react, as if it were hanging.
    let deaf = Store::open(&store).expect("nobody has it");
    let journals = deaf.journals(Durability::Group, RunOrigin::default());
    let reopening = async { journals.reopen(&RoomId::from(run.as_str()), Millis(0)).await };
    let reopened = block_on(reopening).expect("nobody has the run").expect("it is there");
    let reader = StoreReader::open(&store).expect("it is read");
    let patient = conclave(&rig, &["stop", &run, "--wait", "0"]);
    assert_eq!(patient.status.code(), Some(1), "{}", text(&patient.stderr));
    assert!(
        text(&patient.stderr).contains("the message was withdrawn"),
        "{}",
        text(&patient.stderr)
    );
    assert_eq!(reader.mail().pending().expect("it is read"), []);
    let stopping = start(&rig, &["stop", &run]);
    until("the word", || reader.mail().pending().ok().filter(|mail| !mail.is_empty()));
    drop((reopened, journals, deaf));
    let ended = stopping.wait_with_output().expect("it ends");
    assert_eq!(
        (ended.status.code(), text(&ended.stdout)),
        (Some(0), format!("{run} has ended: KILL\n")),
        "{}",
        text(&ended.stderr)
    );
    assert_eq!(reader.mail().pending().expect("it is read"), [], "nothing ends a later run");
}

/// Returns a config with a call that a rule asks about.
pub(crate) fn asking() -> Rig {
    let rule = "[[policy]]\ntool = \"subject.run\"\ndecide = \"ask\"\n";
    Rig::new().with_file("c.toml", calling("echo", "run", &json!({ "text": "it ran" }), "") + rule)
}

/// Returns the ids of pending calls that `run --approvals wait` prints.
pub(crate) fn waiting(rig: &Rig) -> String {
    until("a call that waits", || {
        let output = conclave(rig, &["approvals", "--json"]);
        let line = text(&output.stdout)
            .lines()
            .find(|line| line.contains("\"approval\""))
            .map(str::to_owned)?;
        let value: Value = serde_json::from_str(&line).ok()?;
        value["approval"].as_str().or(value["id"].as_str()).map(str::to_owned)
    })
}

#[test]
fn a_call_waits_for_a_word_from_another_terminal() {
    let rig = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let id = waiting(&rig);
    // Without a terminal the call is shown, but not decided.
    let unsaid = conclave(&rig, &["approve", &id]);
    assert_eq!(unsaid.status.code(), Some(6), "{}", text(&unsaid.stderr));
    assert!(
        text(&unsaid.stderr).contains("text      \"it ran\""),
        "what would run is seen: {}",
        text(&unsaid.stderr)
    );
    // One id stands for one call.
    let (run, _) = id.split_once(':').expect("an id is a run and a call");
    for (wrong, code) in
        [(format!("{run}:c9999"), 2), ("nonsense".to_owned(), 2), ("ffffffffff:c1".to_owned(), 2)]
    {
        let output = conclave(&rig, &["approve", &wrong, "--yes"]);
        assert_eq!(output.status.code(), Some(code), "{wrong}: {}", text(&output.stderr));
    }
    let said = conclave(&rig, &["approve", &id, "--yes"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert!(text(&said.stdout).contains("its run has the decision"), "{}", text(&said.stdout));
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(0), "it ran\n"),
        "{}",
        text(&ended.stderr)
    );
    assert!(
        text(&ended.stderr).contains(&format!("conclave approve {id}")),
        "{}",
        text(&ended.stderr)
    );
    let late = conclave(&rig, &["refuse", &id]);
    assert_eq!(late.status.code(), Some(2));
    assert!(text(&late.stderr).contains("is not pending"), "{}", text(&late.stderr));
}

#[test]
fn a_call_that_waits_waits_through_a_restart_too() {
    let (ran, refused) = ("it ran", "Not approved: the operator refused it");
    let waits = &["resume", "--approvals", "wait"][..];
    // A recorded answer is not requested again, whichever approver is configured.
    for (word, answer, resume) in [
        ("approve", ran, waits),
        ("refuse", refused, waits),
        ("approve", ran, &["resume"]),
        ("refuse", refused, &["resume"]),
    ] {
        let rig = asking();
        let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
        let id = waiting(&rig);
        rig.kill(child);
        assert_eq!(waiting(&rig), id, "it waits still");
        let mut arguments = vec![word, &id];
        arguments.extend((word == "approve").then_some("--yes"));
        let said = conclave(&rig, &arguments);
        assert!(
            text(&said.stdout).contains("its run receives the decision when it is continued"),
            "{}{}",
            text(&said.stdout),
            text(&said.stderr)
        );
        let output = conclave(&rig, resume);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(text(&output.stdout).contains(answer), "{}{stderr}", text(&output.stdout));
        assert!(!stderr.contains("no user could be asked"), "{stderr}");
    }
}

#[test]
fn a_second_word_says_so_and_counts_only_when_it_is_meant_to() {
    let rig = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let id = waiting(&rig);
    rig.kill(child);
    assert_eq!(conclave(&rig, &["approve", &id, "--yes"]).status.code(), Some(0));
    for again in [vec!["approve", &id, "--yes"], vec!["refuse", &id]] {
        let output = conclave(&rig, &again);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{again:?}: {stderr}");
        assert!(
            stderr.contains("was already approved; the run has not received that decision yet")
                && stderr.contains("--instead"),
            "{stderr}"
        );
    }
    let output = conclave(&rig, &["refuse", &id, "--instead"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = conclave(&rig, &["resume"]);
    assert!(
        text(&output.stdout).contains("Not approved: the operator refused it"),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn arguments_that_do_not_fit_are_refused_at_once() {
    let rig = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let id = waiting(&rig);
    for wrong in ["{\"text\": {}}", "{}"] {
        let output = conclave(&rig, &["approve", &id, "--yes", "--arguments", wrong]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {stderr}");
        assert!(stderr.contains("--arguments do not fit subject.run: `text` "), "{stderr}");
    }
    assert_eq!(waiting(&rig), id, "the call is still pending");
    assert_eq!(
        conclave(&rig, &["approve", &id, "--yes", "--arguments", "{\"text\": \"another\"}"])
            .status
            .code(),
        Some(0)
    );
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(text(&ended.stdout), "another\n", "{}", text(&ended.stderr));
}

#[test]
fn edited_arguments_are_held_against_the_rules() {
    let rule = "[[policy]]\ntool = \"subject.run\"\narguments = { text = \"secret*\" }\ndecide = \"deny\"\n\
        [[policy]]\ntool = \"subject.run\"\ndecide = \"ask\"\n";
    let rig = Rig::new()
        .with_file("c.toml", calling("echo", "run", &json!({ "text": "it ran" }), "") + rule);
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let id = waiting(&rig);
    assert_eq!(
        conclave(&rig, &["approve", &id, "--yes", "--arguments", "[1"]).status.code(),
        Some(2)
    );
    let said =
        conclave(&rig, &["approve", &id, "--yes", "--arguments", "{\"text\": \"secret things\"}"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let ended = child.wait_with_output().expect("it ends");
    let both = text(&ended.stdout) + &text(&ended.stderr);
    assert!(!text(&ended.stdout).contains("secret things") && both.contains("denies"), "{both}");
}

#[test]
fn a_resumed_run_decides_on_approvals_as_it_was_started() {
    let rig = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let id = waiting(&rig);
    rig.kill(child);
    // Without a word about approvals the question waits again; with one it is answered so.
    let child = start(&rig, &["resume"]);
    until("the run has the question again", || {
        let listed = text(&conclave(&rig, &["approvals", "--json"]).stdout);
        listed.contains("\"running\"").then_some(())
    });
    let said = conclave(&rig, &["approve", &id, "--yes"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(text(&ended.stdout).as_str(), "it ran\n", "{}", text(&ended.stderr));

    let rig = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    waiting(&rig);
    rig.kill(child);
    let output = conclave(&rig, &["resume", "--approvals", "refuse"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("approvals are refused by --approvals refuse"), "{said}");
}

#[test]
fn nobody_is_asked_where_approvals_are_refused() {
    let rig = asking();
    let output = conclave(&rig, &["run", "c.toml", "go", "--approvals", "refuse"]);
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    assert!(
        (text(&output.stdout) + &text(&output.stderr))
            .contains("approvals are refused by --approvals refuse"),
        "{}",
        text(&output.stderr)
    );
}

/// Returns the folders of runs without starting a program.
pub(crate) fn stores(state: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state.join("stores")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A run whose model is down at its second question is left where it is, and not over.
#[test]
fn a_run_whose_model_goes_away_is_left_and_resumed() {
    let ways: [fn() -> TestReply; 2] = [|| TestReply::error(503, "loading"), TestReply::hang_up];
    for down in ways {
        let is_up = Arc::new(AtomicBool::new(false));
        let mine = Arc::clone(&is_up);
        let server =
            Server::answering(move |request| match request.json()["messages"].to_string() {
                messages if !messages.contains("go on then") => TestReply::says("The first half."),
                _ if mine.load(Ordering::SeqCst) => TestReply::says("DONE The second half."),
                _ => down(),
            });
        let slow = Slow { server, is_released: is_up };
        let rig = slow.rig();
        let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it is there");
        let config = config.replace("model = \"m\"", "model = \"m\"\nretries = 0");
        std::fs::write(rig.folder().join("c.toml"), config).expect("it is written");

        let output = conclave(&rig, &["run", "c.toml", "Tell it."]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("the model `default` did not answer"), "{said}");
        let run = left(&rig);
        assert!(said.contains(&format!("conclave resume {run}")), "{said}");
        // Still down: it is left once more.
        let again = conclave(&rig, &["resume", &run]);
        assert_eq!(again.status.code(), Some(4), "{}", text(&again.stderr));
        // The journal says why, and that nothing is charged for requests without an answer.
        let shown = conclave(&rig, &["show", &run, "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let rows = shown["rows"].as_array().expect("rows");
        let lost: Vec<&Value> = rows.iter().filter(|row| row["type"] == "attempt-lost").collect();
        assert_eq!(lost.len(), 2, "{shown}");
        for row in lost {
            assert_eq!(row["tokens"], 0, "{row}");
            assert!(row["reason"].as_str().is_some_and(|why| why.contains("127.0.0.1")), "{row}");
        }
        slow.release();
        let output = conclave(&rig, &["resume", &run]);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(0), "The second half.\n"),
            "{}",
            text(&output.stderr)
        );
        let first = |request: &conclave_models::test_server::SeenRequest| {
            !request.json()["messages"].to_string().contains("go on then")
        };
        let requests = slow.server.requests();
        assert_eq!(requests.iter().filter(|request| first(request)).count(), 1);
    }
}

/// Tests of the files of SQLite.
mod files {
    use super::*;

    #[test]
    fn the_runs_of_a_store_of_an_older_format_are_named_and_can_be_stopped() {
        for format in ["format-1", "format-2", "format-3"] {
            let rig = Rig::new();
            let folder = rig.folder().join("kept");
            let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/journal");
            std::fs::create_dir(&folder).expect("a folder");
            std::fs::copy(data.join(format!("{format}.db")), folder.join("log.db"))
                .expect("a store");
            for (path, mode) in [(folder.join("log.db"), 0o600), (folder, 0o700)] {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
                std::fs::set_permissions(path, mode).expect("permissions");
            }
            let listed = conclave(&rig, &["runs", "--store", "kept", "--json"]);
            assert!(text(&listed.stdout).contains("\"going\""), "{}", text(&listed.stderr));
            let stopped = conclave(&rig, &["stop", "going", "--store", "kept"]);
            assert_eq!(stopped.status.code(), Some(0), "{format}: {}", text(&stopped.stderr));
        }
    }
}
