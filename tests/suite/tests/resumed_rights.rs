//! Runs that go on after a kill under another config or with another component, by the program as
//! people use it. A run has what both the config of its start and today's allow.

use std::io::Write;
use std::process::{Child, Stdio};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Rig, bare, stock, until};
use serde_json::{Value, json};

use crate::cli::{conclave, text};
use crate::mcp::data;

const CONFIG: &str = r#"
entry = "chat"
[models.default]
kind = "openai"
url = "URL"
model = "m"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["search.*", "workspace.*"]
[plugins.search]
source = "stock:search"
grants.files = [{ dir = "docs", at = "/docs", mode = "read" }]
[plugins.workspace]
source = "stock:workspace"
grants.files = [{ dir = "docs", at = "/w", mode = "read" }]
[tasks.chat]
agent = "chat"
[channels.web]
kind = "web"
[[policy]]
tool = "search.read"
decide = "ask"
"#;

/// A change of the config while no host runs, and a call behind the resumption that it is about.
pub(crate) struct LaterConfig {
    pub(crate) what: &'static str,
    from: &'static str,
    to: &'static str,
    /// What else happens meanwhile.
    act: fn(&Rig),
    probe: (&'static str, fn() -> Value),
    /// Whether the result of the call is right, in the folder of the test.
    is_right: fn(&Rig, &str) -> bool,
    /// A word that the audit of the run must not have.
    unaudited: Option<&'static str>,
}

fn none() -> Value {
    json!({})
}

fn lamp() -> Value {
    json!({ "query": "lamp" })
}

fn two() -> Value {
    json!({ "path": "/w/two.txt", "content": "NEW" })
}

pub(crate) const LATER: [LaterConfig; 7] = [
    LaterConfig {
        what: "nothing changed",
        from: "",
        to: "",
        act: |_| {},
        probe: ("search__find", lamp),
        is_right: |_, result| result.contains("lamp") && result.contains("/docs/lights.txt"),
        unaudited: None,
    },
    LaterConfig {
        what: "a second folder is granted",
        from: "mode = \"read\" }]\n[plugins.workspace]",
        to: "mode = \"read\" }, { dir = \"private\", at = \"/private\", mode = \"read\" }]\n[plugins.workspace]",
        act: |_| {},
        probe: ("search__list", none),
        is_right: |_, result| result.contains("/docs/lights.txt") && !result.contains("private"),
        unaudited: Some("/private"),
    },
    LaterConfig {
        what: "the same name leads to another folder",
        from: "dir = \"docs\", at = \"/docs\"",
        to: "dir = \"private\", at = \"/docs\"",
        act: |_| {},
        probe: ("search__list", none),
        is_right: |_, result| !result.contains("key.txt") && !result.contains("lights.txt"),
        unaudited: None,
    },
    LaterConfig {
        what: "a tool is taken away",
        from: "[\"search.*\", \"workspace.*\"]",
        to: "[\"search.list\", \"search.read\"]",
        act: |_| {},
        probe: ("search__find", lamp),
        is_right: |_, result| !result.contains("lights.txt"),
        unaudited: None,
    },
    LaterConfig {
        what: "a folder becomes writable",
        from: "at = \"/w\", mode = \"read\"",
        to: "at = \"/w\", mode = \"read-write\"",
        act: |_| {},
        probe: ("workspace__write", two),
        is_right: |rig, _| !rig.folder().join("docs/two.txt").exists(),
        unaudited: Some("may write"),
    },
    LaterConfig {
        what: "a rule denies a call",
        from: "decide = \"ask\"\n",
        to: "decide = \"ask\"\n[[policy]]\ntool = \"search.find\"\ndecide = \"deny\"\n",
        act: |_| {},
        probe: ("search__find", lamp),
        is_right: |_, result| !result.contains("lights.txt"),
        unaudited: None,
    },
    LaterConfig {
        what: "a link leads to another folder",
        from: "",
        to: "",
        act: |rig| {
            let docs = rig.folder().join("docs");
            std::fs::rename(&docs, rig.folder().join("former")).expect("it is moved");
            std::os::unix::fs::symlink(rig.folder().join("private"), docs).expect("a link");
        },
        probe: ("search__list", none),
        is_right: |_, result| !result.contains("key.txt") && !result.contains("lights.txt"),
        unaudited: None,
    },
];

/// A run whose third answer of the model calls what a change is about.
pub(crate) struct ChangedRun {
    pub(crate) rig: Rig,
    server: Server,
}

impl ChangedRun {
    pub(crate) fn new((tool, arguments): (&str, fn() -> Value)) -> Self {
        Self::answering(vec![
            TestReply::calls(&[("search__list", json!({}))]),
            TestReply::calls(&[("search__read", json!({ "path": "/docs/lights.txt" }))]),
            TestReply::calls(&[(tool, arguments())]),
            TestReply::says("all is told"),
        ])
    }

    fn answering(replies: Vec<TestReply>) -> Self {
        let server = Server::start(replies);
        let rig = Rig::new()
            .with_file("docs/lights.txt", "The lamp burns oil.\n")
            .with_file("private/key.txt", "lamp: not for the run\n")
            .with_file("c.toml", CONFIG.replace("URL", &server.url()));
        Self { rig, server }
    }

    pub(crate) fn of(later: &LaterConfig) -> Self {
        Self::new(later.probe)
    }

    /// Returns the id of the call that waits, of those other than `known`.
    pub(crate) fn waiting(&self, known: Option<&str>) -> String {
        until("a call that waits", || {
            let listed = text(&conclave(&self.rig, &["approvals", "--json"]).stdout);
            let rows = listed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut ids = rows.filter_map(|row| row["id"].as_str().map(str::to_owned));
            ids.rfind(|id| Some(id.as_str()) != known)
        })
    }

    fn later(&self, later: &LaterConfig) {
        self.change(later.from, later.to);
        (later.act)(&self.rig);
    }

    pub(crate) fn change(&self, from: &str, to: &str) {
        let file = self.rig.folder().join("c.toml");
        let config = std::fs::read_to_string(&file).expect("it is there");
        assert!(config.contains(from), "the change is about something: {from}");
        std::fs::write(file, config.replacen(from, to, 1)).expect("it is written");
    }

    pub(crate) fn approve(&self, id: &str) {
        let approved = conclave(&self.rig, &["approve", id, "--yes"]);
        assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.rig.conclave(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// Kills a run while its call waits for an approval. Returns the run and the call's id.
    fn cut_off(&self) -> (String, String) {
        let mut child = self.start(&["run", "c.toml", "go", "--approvals", "wait"]);
        let id = self.waiting(None);
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        (id.split(':').next().unwrap_or_default().to_owned(), id)
    }

    /// Returns the newest run as `conclave runs` lists it.
    fn row(&self) -> Value {
        let listed = text(&conclave(&self.rig, &["runs", "--json"]).stdout);
        serde_json::from_str(listed.lines().next().expect("a run")).expect("JSON")
    }

    fn state(&self) -> String {
        self.row()["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Checks the result of the probe, which the model has read, and the audit.
    pub(crate) fn check(&self, later: &LaterConfig, way: &str) {
        let requests = self.server.requests();
        assert_eq!(requests.len(), 4, "{way}, {}: the model has read the result", later.what);
        let messages = requests[3].json()["messages"].clone();
        let mut messages = messages.as_array().expect("messages").iter();
        let last = messages.rfind(|message| message["role"] == "tool");
        let result = last.map(|message| message["content"].to_string()).unwrap_or_default();
        assert!((later.is_right)(&self.rig, &result), "{way}, {}: {result}", later.what);
        let audit = text(&conclave(&self.rig, &["audit"]).stdout);
        let (_, resumed) = audit.split_once("resumed").expect("the resumption is there");
        assert!(resumed.contains("granted"), "{way}: with the effective grants: {audit}");
        if let Some(word) = later.unaudited {
            assert!(!audit.contains(word), "{way}, {}: {audit}", later.what);
        }
    }
}

#[test]
fn a_resumed_run_has_what_both_its_start_and_today_allow() {
    for later in &LATER {
        let run = ChangedRun::of(later);
        let (name, id) = run.cut_off();
        run.later(later);
        run.approve(&id);
        let resumed = conclave(&run.rig, &["resume", &name]);
        let stderr = text(&resumed.stderr);
        assert_eq!(text(&resumed.stdout), "all is told\n", "{}: {stderr}", later.what);
        run.check(later, "resume");
        if let Some(word) = later.unaudited {
            assert!(!stderr.contains(word), "the head shows what holds: {stderr}");
        }
    }
}

#[test]
fn a_conversation_has_what_both_its_start_and_today_allow() {
    use crate::serve::client::Served;

    for later in &LATER {
        let run = ChangedRun::of(later);
        let served = Served::start(&run.rig, &[]);
        let room = served.only_room();
        served.send(&room, "a", "go");
        let id = run.waiting(None);
        let killed = served.killed();
        run.later(later);
        run.approve(&id);
        let served = killed.start_again(&run.rig);
        served.events(&room, None).entry_so(|entry| entry["text"] == "all is told");
        run.check(later, "serve");
    }
}

#[test]
fn a_conversation_in_a_terminal_has_what_both_its_start_and_today_allow() {
    for later in &LATER {
        let (tool, arguments) = later.probe;
        // It is killed while its model is silent: at a terminal nobody decides later.
        let run = ChangedRun::answering(vec![
            TestReply::calls(&[("search__list", json!({}))]),
            TestReply::silence(),
            TestReply::calls(&[(tool, arguments())]),
            TestReply::says("all is told"),
        ]);
        let mut command = run.rig.conclave(&["chat", "c.toml"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut chat = command.spawn().expect("the program starts");
        let mut typed = chat.stdin.take().expect("it is piped");
        typed.write_all(b"go\n").expect("it is read");
        run.server.wait_for_requests(2);
        chat.kill().expect("it can be killed");
        chat.wait().expect("it ends");
        run.later(later);
        let name = run.row()["run"].as_str().expect("it has a name").to_owned();
        let mut resumed = run.rig.conclave(&["resume", &name]);
        let resumed = resumed.stdin(Stdio::null()).output().expect("the program runs");
        let stderr = text(&resumed.stderr);
        assert!(text(&resumed.stdout).contains("all is told"), "{}: {stderr}", later.what);
        run.check(later, "chat");
        if let Some(word) = later.unaudited {
            assert!(!stderr.contains(word), "the head shows what holds: {stderr}");
        }
    }
}

/// The task whose call waits is one that the run's own task has delegated to.
#[test]
fn a_decision_about_a_background_task_that_was_made_meanwhile_holds() {
    for (word, expected) in [("approve", "burns oil"), ("refuse", "not now")] {
        let server = Server::answering(|request| {
            let body = request.json().to_string();
            match (body.contains("read the lights"), body.contains("tool_call_id")) {
                (true, false) if body.contains("search__read") => {
                    TestReply::calls(&[("search__read", json!({ "path": "/docs/lights.txt" }))])
                }
                (true, true) if body.contains("search__read") => TestReply::says("it is read"),
                (_, false) => TestReply::calls(&[(
                    "delegate_task",
                    json!({ "agent": "worker", "task": "read the lights" }),
                )]),
                _ => TestReply::says("all is told"),
            }
        });
        let lead = "[tasks.chat]\nagent = \"lead\"\ntools = [\"delegate_task\"]\n\
                    [tasks.worker]\nagent = \"chat\"\ntools = [\"search.read\"]\n\
                    [plugins.lead]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n\
                    grants.delegate = [\"worker\"]\n";
        let config =
            CONFIG.replace("URL", &server.url()).replace("[tasks.chat]\nagent = \"chat\"\n", lead);
        let rig = Rig::new()
            .with_file("docs/lights.txt", "The lamp burns oil.\n")
            .with_file("c.toml", config);
        let run = ChangedRun { rig, server };
        let (name, id) = run.cut_off();
        assert!(id.contains('/'), "it is the call of a background task: {id}");
        let more: &[&str] = if word == "approve" { &["--yes"] } else { &["--reason", "not now"] };
        let decided = conclave(&run.rig, &[&[word, &id][..], more].concat());
        assert_eq!(decided.status.code(), Some(0), "{}", text(&decided.stderr));
        let name = name.split('/').next().unwrap_or_default();
        // Nobody is there to be asked.
        let resumed = conclave(&run.rig, &["resume", name]);
        assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
        let requests = run.server.requests();
        let told = requests.iter().any(|request| request.json().to_string().contains(expected));
        assert!(told, "{word}: {}", text(&resumed.stderr));
        let listed = text(&conclave(&run.rig, &["audit"]).stdout);
        assert!(listed.contains("another terminal"), "{listed}");
    }
}

#[test]
fn another_tool_server_under_a_name_is_said() {
    let python = bare("python3").arg("--version").output();
    if !python.is_ok_and(|answer| answer.status.success()) {
        eprintln!("skipped: there is no python3");
        return;
    }
    for (to, is_another) in [("plain", false), ("again", true)] {
        let run = ChangedRun::new(("it__go", none));
        let server = data("hostile.py");
        run.change(
            "[tasks.chat]",
            &format!("[plugins.it]\nsource = {{ mcp = {{ command = [\"python3\", {server:?}, \"plain\"], unconfined = true }} }}\n[[policy]]\ntool = \"it.*\"\ndecide = \"allow\"\n[tasks.chat]"),
        );
        run.change("\"workspace.*\"]", "\"workspace.*\", \"it.*\"]");
        let (name, id) = run.cut_off();
        run.change("\"plain\"", &format!("{to:?}"));
        run.approve(&id);
        let resumed = conclave(&run.rig, &["resume", &name]);
        let stderr = text(&resumed.stderr);
        assert_eq!(text(&resumed.stdout), "all is told\n", "{stderr}");
        assert_eq!(stderr.contains("of it is another one"), is_another, "{stderr}");
        let audit = text(&conclave(&run.rig, &["audit"]).stdout);
        assert_eq!(audit.contains("replaced"), is_another, "{audit}");
    }
}

/// Returns the component with other bytes that do not change what it does: a custom section.
fn rebuilt(name: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(stock().join(name)).expect("it is built");
    bytes.extend([0, 5, 4, b'm', b'o', b'r', b'e']);
    bytes
}

#[test]
fn an_approval_for_an_exchanged_component_is_asked_for_again() {
    let run = ChangedRun::new(("search__find", lamp));
    let file = run.rig.folder().join("search.wasm");
    std::fs::copy(stock().join("search.wasm"), &file).expect("it is copied");
    run.change("stock:search", "search.wasm");
    let (name, first) = run.cut_off();
    run.approve(&first);
    std::fs::write(&file, rebuilt("search.wasm")).expect("it is written");
    let child = run.start(&["resume", &name, "--approvals", "wait"]);
    let second = run.waiting(Some(&first));
    assert!(run.server.requests().len() == 2, "nothing ran on the approval for other code");
    run.approve(&second);
    let resumed = child.wait_with_output().expect("it ends");
    let stderr = text(&resumed.stderr);
    assert_eq!(text(&resumed.stdout), "all is told\n", "{stderr}");
    assert!(stderr.contains("the component of search is another one"), "{stderr}");
    let audit = text(&conclave(&run.rig, &["audit"]).stdout);
    assert!(audit.contains("replaced"), "{audit}");
}

#[test]
fn another_plugin_under_a_name_is_refused_and_the_run_waits_for_the_former_one() {
    let run = ChangedRun::new(("search__find", lamp));
    let file = run.rig.folder().join("agent.wasm");
    std::fs::copy(stock().join("chat.wasm"), &file).expect("it is copied");
    run.change("stock:chat", "agent.wasm");
    let (name, id) = run.cut_off();
    std::fs::copy(stock().join("micro.wasm"), &file).expect("it is copied");
    run.approve(&id);
    let refused = conclave(&run.rig, &["resume", &name]);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("is another one than when room"), "{stderr}");
    assert_eq!(run.state(), "interrupted");
    std::fs::copy(stock().join("chat.wasm"), &file).expect("it is copied");
    let resumed = conclave(&run.rig, &["resume", &name]);
    assert_eq!(text(&resumed.stdout), "all is told\n", "{}", text(&resumed.stderr));
}

/// Arguments that a guest with little memory cannot take.
fn large() -> Value {
    json!({ "path": "/w/two.txt", "content": "x".repeat(700 << 10) })
}

#[test]
fn an_exchanged_component_that_fails_at_once_leaves_the_run_as_it_was() {
    let run = ChangedRun::new(("workspace__write", large));
    let file = run.rig.folder().join("workspace.wasm");
    std::fs::copy(stock().join("workspace.wasm"), &file).expect("it is copied");
    run.change("stock:workspace", "workspace.wasm");
    let (name, id) = run.cut_off();
    std::fs::write(&file, rebuilt("workspace.wasm")).expect("it is written");
    let (whole, little) =
        ("[tasks.chat]", "[plugins.workspace.limits]\nmemory = \"1280 KiB\"\n[tasks.chat]");
    run.change(whole, little);
    run.approve(&id);
    let failed = conclave(&run.rig, &["resume", &name]);
    let stderr = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("failed at its first call"), "{stderr}");
    assert_eq!(run.state(), "interrupted");
    // The former component again.
    run.change(little, whole);
    std::fs::copy(stock().join("workspace.wasm"), &file).expect("it is copied");
    let resumed = conclave(&run.rig, &["resume", &name]);
    assert_eq!(text(&resumed.stdout), "all is told\n", "{}", text(&resumed.stderr));
}
