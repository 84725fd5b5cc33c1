//! Decisions that allow an access must not allocate: they are made at every call of a tool and of
//! an import. A snapshot must not copy texts: it is taken on a room's loop. A test binary of its
//! own, because it counts the allocations of the process.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use allocation_counter::measure;
use conclave_core::config::Config;
use conclave_core::config::assemble::assemble;
use conclave_core::journal::recovery::Unfinished;
use conclave_core::permissions::fetch::target;
use conclave_core::permissions::grants::Rights;
use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use conclave_core::permissions::policy_rules::Decide;
use conclave_core::permissions::task_scope::{ScopedTask, TaskScope};
use conclave_core::policy::decision::decide;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{self, Event, HistoryChange, Principal, Record, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::setup::{PluginFacts, Provenance, Setup};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::capability::Capability;
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, Millis, PluginName, SecretName, TaskName};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::message::{Message, Role};
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::room_secret::RoomSecret;
use serde_json::json;

const RULES: &str = r#"
entry = "desk"
[plugins.chat]
source = "stock:chat"
[plugins.notes]
source = "notes.wasm"
[plugins.web]
source = "web.wasm"
[plugins.somebody]
source = "somebody.wasm"
[tasks.desk]
agent = "chat"
[[policy]]
tool = "notes.save"
caller = "somebody"
decide = "deny"
[[policy]]
tool = "web.*"
arguments = { url = "https://example.org/*" }
decide = "ask"
[[policy]]
tool = "notes.*"
decide = "allow"
"#;

const GRANTS: &str = r#"
entry = "desk"
[secrets.token_of_test]
from = { env = "T" }
hosts = ["api.example.org"]
[models.default]
kind = "scripted"
replies = "r.json"
[plugins.all]
source = "all.wasm"
grants.model = ["other", "default"]
grants.tools = ["a.b", "notes.*"]
grants.route = ["done", "user"]
grants.delegate = ["digest"]
grants.channels = ["terminal"]
grants.files = [{ dir = "docs", at = "/docs", mode = "read" }, { dir = "out", at = "/out", mode = "read-write" }]
grants.fetch = { urls = ["https://api.example.org/v1/*"], headers = ["x-own"] }
grants.kv = true
grants.secrets = ["token_of_test"]
[plugins.a]
source = "a.wasm"
[plugins.notes]
source = "notes.wasm"
[models.other]
kind = "scripted"
replies = "r.json"
[tasks.desk]
agent = "all"
subtasks = ["digest"]
[tasks.digest]
agent = "all"
"#;

/// Returns a setup in which only the rules matter.
fn setup() -> Setup {
    setup_of(RULES)
}

fn setup_of(text: &str) -> Setup {
    let config = Config::parse("c.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"));
    Setup {
        entry: "desk".into(),
        tasks: [].into(),
        plugins: [].into(),
        models: [].into(),
        channels: Default::default(),
        gates: Vec::new(),
        observers: Vec::new(),
        policy: config.policy,
        policy_now: None,
        limits: RunLimits::default(),
    }
}

#[test]
fn a_call_that_is_allowed_allocates_nothing() {
    let (setup, callers) = (setup(), ["desk", "chat"].map(PluginName::from));
    let arguments = json!({ "text": "x".repeat(1_000), "url": "https://example.org/a" });
    let mut decided = Decide::Deny;
    let counted = measure(|| {
        decided =
            decide(black_box(&setup), black_box(&callers), "notes.save", black_box(&arguments))
                .decide
    });
    assert_eq!((decided, counted.count_total), (Decide::Allow, 0));
    let counted = measure(|| {
        decided =
            decide(black_box(&setup), black_box(&callers), "web.get", black_box(&arguments)).decide
    });
    assert_eq!(
        (decided, counted.count_total),
        (Decide::Ask, 0),
        "patterns of arguments are matched in place"
    );
}

/// Rules for many folders, and a last one that allows the call.
fn many_folders(count: usize) -> Setup {
    let folder = |number| {
        format!(
            "[[policy]]\ntool = \"notes.save\"\narguments = {{ path = \"/folder{number}/*\" }}\n\
             decide = \"deny\"\n"
        )
    };
    let (plugins, _) = RULES.split_once("[[policy]]").expect("it has rules");
    let last = "[[policy]]\ntool = \"notes.*\"\ndecide = \"allow\"\n";
    let text = plugins.to_owned() + &(0..count).map(folder).collect::<String>() + last;
    setup_of(&text)
}

#[test]
fn a_call_that_the_last_of_a_thousand_rules_allows_allocates_nothing() {
    let (setup, callers) = (many_folders(999), ["desk", "chat"].map(PluginName::from));
    for path in ["/notes/a.md", "notes/a.md", "/notes/täglich.md", "/folder7", "5"] {
        let arguments = json!({ "path": path, "text": "x".repeat(1_000) });
        let mut decided = Decide::Deny;
        let counted = measure(|| {
            let decision =
                decide(black_box(&setup), black_box(&callers), "notes.save", black_box(&arguments));
            decided = decision.decide;
        });
        assert_eq!((decided, counted.count_total), (Decide::Allow, 0), "{path}");
    }
}

#[test]
fn a_path_that_hides_its_target_is_resolved_once_for_all_rules() {
    let callers = ["desk", "chat"].map(PluginName::from);
    let arguments = json!({ "path": "/notes/../folders/x" });
    let counted = |count| {
        let setup = many_folders(count);
        measure(|| {
            black_box(decide(black_box(&setup), &callers, "notes.save", black_box(&arguments)));
        })
        .count_total
    };
    assert_eq!((counted(10) > 0, counted(999)), (true, counted(10)));
}

/// Its name, the decision, an input that it allows and one that it denies.
type Decision<'a> = (&'a str, &'a dyn Fn(&str) -> bool, &'a str, &'a str);

#[test]
fn a_yes_of_every_capability_allocates_nothing() {
    let config =
        Config::parse("c.toml", "", GRANTS).unwrap_or_else(|problems| panic!("{problems}"));
    let asks = Capability::ALL
        .iter()
        .map(|capability| (capability.as_str().to_owned(), CapabilityRequest::default()))
        .collect();
    let manifest = Manifest { asks, ..Manifest::default() };
    // The task keeps all grants; the other task narrows folders by its own list.
    let (task, narrow) = (
        TaskName::from("desk"),
        TaskScope { files: Some(vec!["/docs".into(), "/out".into()]), ..TaskScope::default() },
    );
    let rights = Rights {
        plugin: "all",
        manifest: &manifest,
        grants: &config.plugins["all"].grants,
        narrowed: Some(ScopedTask { task: &task, scope: &narrow }),
    };
    let rights = black_box(&rights);
    let url = target("https://api.example.org/v1/now?at=1").expect("it is an address");
    let (granted, other) = (SecretName::from("token_of_test"), SecretName::from("another"));
    let closed = TaskScope { kv: Some(false), ..TaskScope::default() };
    let without = Rights { narrowed: Some(ScopedTask { task: &task, scope: &closed }), ..*rights };
    let decisions: [Decision<'_>; 10] = [
        ("model", &|name| rights.may_use_model(Some(name)).is_ok(), "default", "none"),
        ("tools", &|name| rights.may_call(name).is_ok(), "notes.save", "web.get"),
        ("route", &|name| rights.may_route(name).is_ok(), "USER", "nobody"),
        ("delegate", &|name| rights.may_delegate(name, |_| true).is_ok(), "digest", "desk"),
        ("rooms", &|name| rights.may_send(name, |_| true).is_ok(), "terminal", "radio"),
        (
            "files, to read",
            &|path| rights.may_touch(path, false).is_ok(),
            "/docs/a/b.md",
            "/other/b.md",
        ),
        (
            "files, to write",
            &|path| rights.may_touch(path, true).is_ok(),
            "/out/a/b.md",
            "/docs/a.md",
        ),
        (
            "fetch",
            &|method| rights.may_fetch(method, &url, ["accept", "x-own"]).is_ok(),
            "GET",
            "POST",
        ),
        (
            "secrets",
            &|name| {
                rights
                    .require_secret(if name == "granted" { &granted } else { &other }, || None)
                    .is_ok()
            },
            "granted",
            "other",
        ),
        (
            "kv",
            &|plugin| {
                if plugin == "all" {
                    rights.may_store("k").is_ok()
                } else {
                    without.may_store("k").is_ok()
                }
            },
            "all",
            "narrowed",
        ),
    ];
    for (what, may, yes, no) in decisions {
        let mut answer = false;
        let counted = measure(|| answer = may(black_box(yes)));
        assert_eq!((answer, counted.count_total), (true, 0), "{what}");
        let counted = measure(|| answer = may(black_box(no)));
        assert!(!answer && counted.count_total > 0, "{what}: a refusal is told in words");
    }
}

#[test]
fn a_snapshot_of_a_room_copies_no_text() {
    let sizes_of = |length: usize| {
        let message = |seq| Message {
            content: Some("x".repeat(length)),
            ..Message::new(seq, Role::User, "ada")
        };
        let change = HistoryChange::Import { messages: (0..1_000).map(message).collect() };
        let unfinished = Unfinished::fold([Record {
            seq: 0,
            at: Millis(0),
            principal: Principal("ada".into()),
            rules: event::RULES,
            epoch: 0,
            event: Event::HistoryChanged { task: "desk".into(), change },
        }]);
        let mut snapshot = None;
        let counted = measure(|| {
            snapshot = Some(Unfinished::of(
                black_box(&unfinished.room),
                &unfinished.in_flight,
                unfinished.history,
                1,
            ));
        });
        let written =
            snapshot.and_then(|snapshot| snapshot.to_snapshot().ok()).expect("it is fine");
        (counted.bytes_total, written.len())
    };
    let (short, long) = (sizes_of(10), sizes_of(10_000));
    assert!(short.1 > 10 * 1_000 && long.1 > 10_000 * 1_000, "the texts are in it");
    assert_eq!(short.0, long.0, "the loop pays for the room's maps alone");
}

const TALK: &str = r#"
entry = "talk"
[plugins.talker]
source = "talker.wasm"
[tasks.talk]
agent = "talker"
on_no_tool_call = { nudge = "go on" }
[limits.run]
turns = 1_000
"#;

/// A room whose agent says something in each step; the host answers each time.
struct Talk {
    room: Room,
    call: CallId,
}

impl Talk {
    fn open() -> Self {
        let manifest = Manifest {
            format: FORMAT,
            name: "talker".into(),
            version: "0.1.0".into(),
            contract: CONTRACT.into(),
            ..Manifest::default()
        };
        let sha256 = "00".repeat(32);
        let kinds = [PluginKind::Agent].into();
        let facts = PluginFacts {
            manifest,
            kinds,
            tools: Vec::new(),
            sha256,
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        };
        let facts = BTreeMap::from([(PluginName::from("talker"), facts)]);
        let config =
            Config::parse("c.toml", "", TALK).unwrap_or_else(|problems| panic!("{problems}"));
        let assembly = assemble(&config, &facts).unwrap_or_else(|problems| panic!("{problems}"));
        let limits = assembly.setup.limits.clone();
        let opening = RunOpening {
            entry: "talk".into(),
            content: Some("Who built the tower?".to_owned()),
            limits,
            ..RunOpening::default()
        };
        let secret = RoomSecret::new([7; RoomSecret::LENGTH]);
        let setup = Arc::new(assembly.setup);
        let mut talk = Self { room: Room::new(), call: CallId(0) };
        talk.room.handle(Event::RoomOpened { setup, opening, secret }, Millis(0));
        talk.posted();
        talk
    }

    /// Takes the room's output, and returns the messages posted.
    fn posted(&mut self) -> Vec<Arc<Message>> {
        while let Some(effect) = self.room.poll_effect() {
            if let Effect::StepAgent { call, .. } = effect {
                self.call = call;
            }
        }
        std::iter::from_fn(|| self.room.poll_notice())
            .filter_map(|notice| match notice {
                Notice::MessagePosted { message, .. } => Some(message),
                _ => None,
            })
            .collect()
    }

    /// Answers the agent's step, and returns the allocations meanwhile.
    fn step(&mut self, number: u64) -> u64 {
        let content = Some(format!("Let me think once more, for the {number}th time."));
        let turn = Turn {
            action: Action::Reply(Reply { content, ..Reply::default() }),
            thought: String::new(),
            wait_for_response: false,
            extra: Vec::new(),
        };
        let (call, report) = (self.call, CallReport::default());
        let event = Event::AgentStepped { call, answer: Ok(turn), report };
        let (mut event, room) = (Some(event), &mut self.room);
        measure(|| room.handle(event.take().expect("it runs once"), Millis(number))).count_total
    }
}

/// Each message has one allocation, its sender's name and the host's text another. The agent's
/// message is copied once, because its history's copy names no message that it answers, and its
/// text once more, for the actions that its next step reads. The responders that a step passed over
/// are a list. The rest are nodes of the histories.
#[test]
fn a_step_and_the_hosts_answer_allocate_little() {
    const STEPS: u64 = 64;
    let mut talk = Talk::open();
    let mut count = |steps: std::ops::Range<u64>| -> u64 {
        let of_step = |number| {
            let count = talk.step(number);
            assert_eq!(talk.posted().len(), 2, "the agent's message and the host's");
            count
        };
        steps.map(of_step).sum()
    };
    // No cleanup of links is due among those that are counted.
    count(0..300);
    let average = count(300..300 + STEPS) as f64 / STEPS as f64;
    assert!(average <= 15.0, "{average} allocations");
}
