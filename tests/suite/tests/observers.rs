//! Observers with real components: what they get, what they are refused, and that no event is lost
//! when the process is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conclave_core::config::{Config, ProblemCode};
use conclave_core::journal::observed::ObservedFold;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Status;
use conclave_models::test_server::{SeenRequest, Server, TestReply};
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::store::{RunFilter, StoreReader};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{ObserverBacklog, RunOptions};
use conclave_test_support::{Rig, block_on, guest, host, stock};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{conclave, start};

/// A time that no observer of these tests needs.
const LONG: Duration = Duration::from_secs(60);

/// Returns the config of an agent that echoes, observed by the hostile guest.
fn config(mode: &str, plugin: &str, observer: &str) -> String {
    format!(
        "entry = \"desk\"\n[plugins.echo]\nsource = \"{}\"\n[plugins.hook]\nsource = \"{}\"\n\
         config = {{ mode = \"{mode}\" }}\n{plugin}\n[tasks.desk]\nagent = \"echo\"\n\
         [[observers]]\nplugin = \"hook\"\n{observer}\n",
        guest("agent_echo").display(),
        guest("hostile_observer").display(),
    )
}

#[derive(Default)]
struct Heard(Mutex<Vec<Published>>);

impl Subscriber for Heard {
    fn on(&self, happening: &Published) {
        self.0.lock().expect("no panic holds it").push(happening.clone());
    }
}

impl Heard {
    /// Returns the lines of the observer's log.
    fn log(&self) -> Vec<String> {
        let line = |event: &Published| match &event.what {
            RunEvent::Logged { plugin, message, .. } if plugin.as_str() == "hook" => {
                Some(message.clone())
            }
            _ => None,
        };
        self.0.lock().expect("no panic holds it").iter().filter_map(line).collect()
    }

    fn notices(&self) -> Vec<Notice> {
        let notice = |event: &Published| match &event.what {
            RunEvent::Notice { notice } => Some(notice.clone()),
            _ => None,
        };
        self.0.lock().expect("no panic holds it").iter().filter_map(notice).collect()
    }
}

/// Runs a config to the end of its observers.
fn observed(config: &str) -> (Arc<Heard>, Vec<ObserverBacklog>) {
    let heard = Arc::new(Heard::default());
    let left = block_on(async {
        let host = host();
        let config = Config::parse("c.toml", "", config).unwrap_or_else(|all| panic!("{all}"));
        let prepared = host.load(&config).await.unwrap_or_else(|error| panic!("{error}"));
        let options = RunOptions {
            ids: Arc::new(RoomId::from("run")),
            journals: Arc::new(MemoryJournals::default()),
            subscribers: Subscribers::new([Arc::clone(&heard) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        };
        let run = prepared.start(Some("hello".to_owned()), options).expect("it works in a test");
        let outcome = run.outcome().await.expect("it works in a test");
        assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some("hello")));
        host.drain_observers(LONG).await
    });
    (heard, left)
}

#[test]
fn a_component_gets_the_kinds_of_its_filter_in_order() {
    let filter = "events = [\"task-started\", \"step-ended\", \"task-ended\", \"result-ready\"]";
    let (heard, left) = observed(&config("log", "", filter));
    assert!(left.is_empty(), "{left:?}");
    let kinds: Vec<String> = heard
        .log()
        .iter()
        .map(|line| {
            line.split_once(' ').map(|(_, rest)| rest.to_owned()).expect("it works in a test")
        })
        .collect();
    assert_eq!(
        kinds,
        ["task-started desk", "step-ended desk", "task-ended desk", "result-ready -"]
    );
}

#[test]
fn a_batch_that_is_not_taken_comes_again_whole() {
    let (heard, left) = observed(&config("later", "grants.kv = true", ""));
    assert!(left.is_empty(), "{left:?}");
    let retried =
        heard.notices().iter().filter(|n| matches!(n, Notice::ObserverRetried { .. })).count();
    assert!(retried > 0);
    let log = heard.log();
    assert_eq!(log.iter().collect::<BTreeSet<_>>().len(), log.len(), "each was logged once");
    assert!(log.iter().any(|line| line.contains("result-ready")));
}

#[test]
fn a_capability_without_a_grant_is_refused_with_the_smallest_grant_and_stops_the_observer() {
    let (heard, left) = observed(&config("fetch", "", ""));
    let [left] = &left[..] else { panic!("{left:?}") };
    assert!(left.stopped.is_some() && left.undelivered > 0);
    let denied: Vec<(String, Option<String>)> = heard
        .notices()
        .into_iter()
        .filter_map(|notice| match notice {
            Notice::Denied { plugin, record, .. } if plugin.as_str() == "hook" => {
                Some((record.denial.capability.clone(), record.suggestion.clone()))
            }
            _ => None,
        })
        .collect();
    let [(capability, Some(grant))] = &denied[..] else { panic!("{denied:?}") };
    assert_eq!(capability, "fetch");
    assert!(grant.contains("[plugins.hook]") && grant.contains("https://a.example"), "{grant}");
}

#[test]
fn an_observer_that_traps_fails_or_spins_is_stopped_and_the_run_is_as_ever() {
    for mode in ["trap", "fail", "spin"] {
        let lines = "queue = 1\nattempts = 1\ndeadline = \"300 ms\"";
        let (_, left) = observed(&config(mode, "", lines));
        let [left] = &left[..] else { panic!("{mode}: {left:?}") };
        assert!(left.stopped.is_some(), "{mode}: {left:?}");
    }
}

#[test]
fn only_a_plugin_that_exports_observer_can_be_one() {
    let config = config("log", "", "").replace("plugin = \"hook\"", "plugin = \"echo\"");
    let problems = conclave_test_support::refused(&Rig::new(), &config);
    assert_eq!(problems.codes(), [ProblemCode::WrongPluginKind], "{problems}");
    assert!(problems.to_string().contains("`echo` exports no `observer`"), "{problems}");
}

/// A receiver of events that answers `503` until it is opened, and records what it takes.
struct Receiver {
    server: Server,
    is_open: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Receiver {
    /// Takes this many events before it closes.
    fn taking(first: usize) -> Self {
        let (is_open, taken) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (open, all) = (Arc::clone(&is_open), Arc::clone(&taken));
        let server = Server::answering(move |request: &SeenRequest| {
            let all: &Mutex<Vec<(String, Value)>> = &all;
            let mut all = all.lock().expect("it works in a test");
            if all.len() >= first && !open.load(Ordering::SeqCst) {
                return TestReply::silence();
            }
            all.push((request.headers["idempotency-key"].clone(), request.json()));
            TestReply::bytes(204, "text/plain", "")
        });
        Self { server, is_open, taken }
    }

    fn rig(&self) -> Rig {
        let url = self.server.url();
        let config = format!(
            "entry = \"desk\"\n[plugins.echo]\nsource = \"{}\"\n[tasks.desk]\nagent = \"echo\"\n\
             [plugins.hook]\nsource = \"{}\"\nconfig = {{ url = \"{url}/in\" }}\n\
             grants.fetch = {{ urls = [\"{url}/*\"], methods = [\"POST\"], private = [\"127.0.0.1\"] }}\n\
             [[observers]]\nplugin = \"hook\"\n",
            guest("agent_echo").display(),
            stock().join("webhook.wasm").display(),
        );
        Rig::new().with_file("c.toml", config)
    }

    fn keys(&self) -> Vec<String> {
        self.taken.lock().expect("it works in a test").iter().map(|(key, _)| key.clone()).collect()
    }
}

/// Returns the keys of all events of the only run in the state folder, as its journal yields them.
fn expected(rig: &Rig) -> (String, Vec<String>) {
    let mut found = None;
    let store = rig.store(&rig.folder().join("state"));
    let reader = StoreReader::open(store).expect("it works in a test");
    for run in reader.runs(&RunFilter::default()).expect("it works in a test") {
        let mut fold = ObservedFold::new("hook".into());
        let records = reader.records(&run.run).expect("it works in a test");
        let events = records.into_iter().flat_map(|record| fold.take(record));
        let key = |event: conclave_core::types::observed::ObservedEvent| {
            format!("{}:{}.{}", event.room, event.position.seq, event.position.index)
        };
        assert!(found.replace((run.run.to_string(), events.map(key).collect())).is_none());
    }
    found.expect("there is a run")
}

/// Checks that every event arrived, and that first arrivals are in order.
fn check_all_arrived(receiver: &Receiver, expected: &[String]) {
    let mut first = BTreeMap::new();
    for (index, key) in receiver.keys().into_iter().enumerate() {
        first.entry(key).or_insert(index);
    }
    let arrived: Vec<usize> = expected
        .iter()
        .map(|key| *first.get(key).unwrap_or_else(|| panic!("{key} was lost: {first:?}")))
        .collect();
    assert!(arrived.is_sorted(), "{arrived:?}");
    assert_eq!(first.len(), expected.len(), "nothing else arrived");
}

#[test]
fn a_webhook_survives_kill_9_without_losing_an_event() {
    for first in [0, 1, 3] {
        let receiver = Receiver::taking(first);
        let rig = receiver.rig();
        let child = start(&rig, &["run", "c.toml", "hello"]);
        // The next event is on its way to the receiver, which does not answer.
        receiver.server.wait_for_requests(first + 1);
        rig.kill(child);
        let (run, _) = expected(&rig);
        receiver.is_open.store(true, Ordering::SeqCst);
        let output = conclave(&rig, &["resume", &run]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let (_, all) = expected(&rig);
        assert!(all.len() > 4, "{all:?}");
        check_all_arrived(&receiver, &all);
        // Nothing is left for another resumption, and nothing is said to be.
        let shown = text(&conclave(&rig, &["show", &run]).stdout);
        assert!(!shown.contains("did not take"), "{shown}");
        let before = receiver.keys().len();
        let output = conclave(&rig, &["resume", &run]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(receiver.keys().len(), before);
    }
}

#[test]
fn the_audit_of_a_run_holds_the_refusals_of_its_observer() {
    let receiver = Receiver::taking(usize::MAX);
    let rig = receiver.rig();
    let file = rig.folder().join("c.toml");
    let config = std::fs::read_to_string(&file).expect("it works in a test");
    let url = receiver.server.url();
    std::fs::write(&file, config.replace(&format!("\"{url}/*\""), "\"https://other.example/*\""))
        .expect("it works in a test");
    let output = conclave(&rig, &["run", "c.toml", "hello"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "the run is as ever: {stderr}");
    assert!(stderr.contains("observer hook did not take"), "{stderr}");
    assert!(stderr.contains("conclave resume"), "{stderr}");
    let (run, all) = expected(&rig);
    // The list and the run itself name what is left.
    let left = format!("observer hook did not take {} events; `conclave resume {run}`", all.len());
    let shown = text(&conclave(&rig, &["show", &run]).stdout);
    assert!(shown.contains(&left), "{shown}");
    let listed = text(&conclave(&rig, &["runs"]).stdout);
    assert!(listed.contains("1 run with events that observers did not take"), "{listed}");
    let listed = text(&conclave(&rig, &["runs", "--json"]).stdout);
    let listed: Value = serde_json::from_str(listed.lines().next().expect("a run")).expect("JSON");
    assert_eq!(listed["undelivered_events"], json!(all.len()));
    let audit = text(&conclave(&rig, &["audit", &run]).stdout);
    assert!(audit.contains("fetch") && audit.contains("hook"), "{audit}");
}

#[test]
fn an_observer_that_the_config_lost_is_named_when_its_run_is_resumed() {
    let receiver = Receiver::taking(usize::MAX);
    let rig = receiver.rig();
    let output = conclave(&rig, &["run", "c.toml", "hello"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (run, _) = expected(&rig);
    let named = format!("observer hook of {run} is not in the config any more");
    let stderr = text(&conclave(&rig, &["resume", &run]).stderr);
    assert!(!stderr.contains(&named), "{stderr}");
    let file = rig.folder().join("c.toml");
    let config = std::fs::read_to_string(&file).expect("it works in a test");
    std::fs::write(&file, config.replace("[[observers]]\nplugin = \"hook\"\n", ""))
        .expect("it works in a test");
    let stderr = text(&conclave(&rig, &["resume", &run]).stderr);
    assert!(stderr.contains(&named), "{stderr}");
}
