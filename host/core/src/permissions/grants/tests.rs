use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::permissions::command::CommandPattern;
use crate::permissions::fetch::HostPattern;
use crate::permissions::fetch::target;
use crate::permissions::manifest::CapabilityRequest;
use crate::permissions::task_scope::ScopedTask;
use crate::types::denial::DenialRecord;
use crate::types::ids::TaskName;

/// A request of a capability, and its decision.
type Probe = (&'static str, fn(&Rights<'_>) -> bool);

/// A capability with grants that range from less to more, and requests that tell them apart.
struct Case {
    capability: Capability,
    less: fn() -> Grants,
    more: fn() -> Grants,
    /// A grant that has nothing in common with `less`.
    other: fn() -> Grants,
    probes: &'static [Probe],
}

fn manifest() -> Manifest {
    let all = [
        "model", "tools", "delegate", "route", "files", "channels", "fetch", "kv", "secrets",
        "history", "exec",
    ];
    let asks = all.map(|name| (name.to_owned(), CapabilityRequest::default()));
    Manifest { asks: asks.into(), ..Manifest::default() }
}

fn decisions(grants: &Grants, probes: &[Probe]) -> BTreeMap<&'static str, bool> {
    let manifest = manifest();
    let rights = Rights { plugin: "p", manifest: &manifest, grants, narrowed: None };
    probes.iter().map(|(name, probe)| (*name, probe(&rights))).collect()
}

fn models(names: &[&str]) -> Grants {
    let names = names.iter().map(|name| (*name).into()).collect();
    let model = ModelGrant { names, tokens: None, cost_micro_usd: None, calls: None };
    Grants { model: Some(model), ..Grants::default() }
}

fn tools(names: &[&str]) -> Grants {
    let names = names.iter().map(|name| ToolPattern((*name).to_owned())).collect();
    Grants { tools: Some(ToolsGrant { names, calls: None }), ..Grants::default() }
}

fn delegates(names: &[&str]) -> Grants {
    let tasks = names.iter().map(|name| (*name).into()).collect();
    Grants {
        delegate: Some(DelegateGrant { tasks, ..DelegateGrant::default() }),
        ..Grants::default()
    }
}

fn routes(names: &[&str]) -> Grants {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Grants { route: Some(RouteGrant { names }), ..Grants::default() }
}

fn folder(at: &str, dir: &str, mode: FileMode) -> FileGrant {
    FileGrant {
        dir: dir.into(),
        display_path: dir.into(),
        at: at.into(),
        mode,
        bytes: 10,
        files: 10,
    }
}

fn folders(files: Vec<FileGrant>) -> Grants {
    Grants { files, ..Grants::default() }
}

fn channels(names: &[&str]) -> Grants {
    let channels = names.iter().map(|name| (*name).into()).collect();
    Grants { channels: Some(ChannelsGrant { channels, messages: None }), ..Grants::default() }
}

fn fetches(rules: &[(&str, &[&str])]) -> Grants {
    let rule = |(url, methods): &(&str, &[&str])| FetchRule {
        url: UrlPattern::parse(url).expect("a pattern"),
        methods: methods.iter().map(|method| (*method).to_owned()).collect(),
    };
    let grant = FetchGrant::new(rules.iter().map(rule).collect());
    Grants { fetch: Some(grant), ..Grants::default() }
}

fn secrets(names: &[&str], hosts: &[&str]) -> Grants {
    let hosts: Vec<HostPattern> =
        hosts.iter().map(|host| HostPattern::parse(host).expect("a host")).collect();
    let secret = |name: &&str| SecretGrant {
        name: (*name).into(),
        hosts: hosts.clone(),
        request_parts: BTreeSet::from([SecretPlace::Header]),
    };
    Grants { secrets: names.iter().map(secret).collect(), ..Grants::default() }
}

fn commands(commands: &[&str]) -> Grants {
    let command = |text: &&str| CommandPattern::parse(text).expect("a command");
    let exec = ExecGrant::new(commands.iter().map(command).collect());
    Grants { exec: Some(exec), ..Grants::default() }
}

fn has_secret(rights: &Rights<'_>, name: &str, host: &str) -> bool {
    let grants = &rights.grants.secrets;
    grants.iter().any(|grant| {
        grant.name.as_str() == name && grant.hosts.iter().any(|pattern| pattern.covers(host))
    })
}

fn runs(rights: &Rights<'_>, words: &[&str]) -> bool {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    rights.may_run("/usr/bin/git", &words).is_ok()
}

fn fetched(rights: &Rights<'_>, method: &str, url: &str) -> bool {
    rights.may_fetch(method, &target(url).expect("a URL"), []).is_ok()
}

const CASES: &[Case] = &[
    Case {
        capability: Capability::Model,
        less: || models(&["small"]),
        more: || models(&["small", "large"]),
        other: || models(&["third"]),
        probes: &[
            ("small", |rights| rights.may_use_model(Some("small")).is_ok()),
            ("large", |rights| rights.may_use_model(Some("large")).is_ok()),
            ("third", |rights| rights.may_use_model(Some("third")).is_ok()),
        ],
    },
    Case {
        capability: Capability::Tools,
        less: || tools(&["notes.list"]),
        more: || tools(&["notes.*", "search.find"]),
        other: || tools(&["bell.ring"]),
        probes: &[
            ("list", |rights| rights.may_call("notes.list").is_ok()),
            ("save", |rights| rights.may_call("notes.save").is_ok()),
            ("find", |rights| rights.may_call("search.find").is_ok()),
            ("ring", |rights| rights.may_call("bell.ring").is_ok()),
        ],
    },
    Case {
        capability: Capability::Delegate,
        less: || delegates(&["digest"]),
        more: || delegates(&["digest", "research"]),
        other: || delegates(&["mail"]),
        probes: &[
            ("digest", |rights| rights.may_delegate("digest", |_| true).is_ok()),
            ("research", |rights| rights.may_delegate("research", |_| true).is_ok()),
            ("mail", |rights| rights.may_delegate("mail", |_| true).is_ok()),
        ],
    },
    Case {
        capability: Capability::Route,
        less: || routes(&["done"]),
        more: || routes(&["Done", "user"]),
        other: || routes(&["pass"]),
        probes: &[
            ("done", |rights| rights.may_route("done").is_ok()),
            ("user", |rights| rights.may_route("user").is_ok()),
            ("pass", |rights| rights.may_route("pass").is_ok()),
        ],
    },
    Case {
        capability: Capability::Files,
        less: || folders(vec![folder("/docs", "/srv/docs", FileMode::Read)]),
        more: || {
            let docs = folder("/docs", "/srv/docs", FileMode::ReadWrite);
            folders(vec![docs, folder("/private", "/srv/private", FileMode::Read)])
        },
        other: || folders(vec![folder("/mail", "/srv/mail", FileMode::ReadWrite)]),
        probes: &[
            ("read", |rights| rights.may_touch("/docs/a", false).is_ok()),
            ("write", |rights| rights.may_touch("/docs/a", true).is_ok()),
            ("private", |rights| rights.may_touch("/private/a", false).is_ok()),
            ("mail", |rights| rights.may_touch("/mail/a", true).is_ok()),
        ],
    },
    Case {
        capability: Capability::Channels,
        less: || channels(&["desk"]),
        more: || channels(&["desk", "phone"]),
        other: || channels(&["pager"]),
        probes: &[
            ("desk", |rights| rights.may_send("desk", |_| true).is_ok()),
            ("phone", |rights| rights.may_send("phone", |_| true).is_ok()),
            ("pager", |rights| rights.may_send("pager", |_| true).is_ok()),
        ],
    },
    Case {
        capability: Capability::Fetch,
        less: || fetches(&[("https://a.example/docs/*", &["GET"])]),
        more: || fetches(&[("https://a.example/*", &["GET", "POST"])]),
        other: || fetches(&[("https://b.example/*", &["GET"])]),
        probes: &[
            ("docs", |rights| fetched(rights, "GET", "https://a.example/docs/x")),
            ("root", |rights| fetched(rights, "GET", "https://a.example/secret")),
            ("post", |rights| fetched(rights, "POST", "https://a.example/docs/x")),
            ("b", |rights| fetched(rights, "GET", "https://b.example/docs/x")),
        ],
    },
    Case {
        capability: Capability::Kv,
        less: || Grants { kv: Some(KvGrant { bytes: 1, keys: 1 }), ..Grants::default() },
        more: || Grants { kv: Some(KvGrant { bytes: 9, keys: 9 }), ..Grants::default() },
        other: Grants::default,
        probes: &[
            ("key", |rights| rights.may_store("k").is_ok()),
            ("bytes", |rights| rights.grants.kv.is_some_and(|kv| kv.bytes >= 9)),
            ("keys", |rights| rights.grants.kv.is_some_and(|kv| kv.keys >= 9)),
        ],
    },
    Case {
        capability: Capability::Secrets,
        less: || secrets(&["key"], &["api.a.example"]),
        more: || secrets(&["key", "token"], &["*.a.example"]),
        other: || secrets(&["third"], &["c.example"]),
        probes: &[
            ("key", |rights| has_secret(rights, "key", "api.a.example")),
            ("host", |rights| has_secret(rights, "key", "evil.a.example")),
            ("token", |rights| has_secret(rights, "token", "api.a.example")),
            ("third", |rights| has_secret(rights, "third", "c.example")),
        ],
    },
    Case {
        capability: Capability::History,
        less: || Grants { history: Some(HistoryGrant { messages: 1 }), ..Grants::default() },
        more: || Grants { history: Some(HistoryGrant { messages: 9 }), ..Grants::default() },
        other: Grants::default,
        probes: &[
            ("read", |rights| rights.may_read_history().is_ok()),
            ("nine", |rights| rights.grants.history.is_some_and(|grant| grant.messages >= 9)),
        ],
    },
    Case {
        capability: Capability::Exec,
        less: || commands(&["/usr/bin/git log *"]),
        more: || commands(&["/usr/bin/git **"]),
        other: || commands(&["/usr/bin/git status"]),
        probes: &[
            ("log", |rights| runs(rights, &["log", "main"])),
            ("option", |rights| runs(rights, &["log", "--exec=x"])),
            ("push", |rights| runs(rights, &["push"])),
            ("status", |rights| runs(rights, &["status"])),
        ],
    },
];

/// Each capability, granted less, more, otherwise or not at all, at the start and today.
#[test]
fn a_request_is_allowed_if_both_the_start_and_today_allow_it() {
    let mut seen = BTreeSet::new();
    for case in CASES {
        let versions: [(&str, Grants); 4] = [
            ("none", Grants::default()),
            ("less", (case.less)()),
            ("more", (case.more)()),
            ("other", (case.other)()),
        ];
        let (less, more) = (&versions[1].1, &versions[2].1);
        assert_ne!(
            decisions(less, case.probes),
            decisions(more, case.probes),
            "{}: the probes tell less from more",
            case.capability
        );
        for (at_start, initial) in &versions {
            for (today, now) in &versions {
                let effective = initial.narrowed_by(now);
                let (initial, now) = (decisions(initial, case.probes), decisions(now, case.probes));
                for (probe, allowed) in decisions(&effective, case.probes) {
                    assert_eq!(
                        allowed,
                        initial[probe] && now[probe],
                        "{}: {at_start} at the start, {today} today, {probe}",
                        case.capability
                    );
                }
            }
        }
        seen.insert(case.capability);
    }
    let granted = Capability::ALL.into_iter().filter(|capability| !capability.is_own());
    assert_eq!(seen, granted.collect(), "each capability that is granted has a case");
}

#[test]
fn what_did_not_change_stays_as_it_was_written() {
    for case in CASES {
        for grants in [(case.less)(), (case.more)(), (case.other)()] {
            assert_eq!(grants.narrowed_by(&grants), grants, "{}", case.capability);
        }
    }
}

#[test]
fn another_directory_under_the_same_name_is_no_longer_granted() {
    let initial = folders(vec![folder("/docs", "/srv/docs", FileMode::Read)]);
    let today = folders(vec![folder("/docs", "/srv/private", FileMode::Read)]);
    assert_eq!(initial.narrowed_by(&today).files, []);
}

#[test]
fn a_directory_within_a_granted_one_keeps_the_smaller_grant() {
    let (read, write) = (FileMode::Read, FileMode::ReadWrite);
    let outer = folders(vec![folder("/docs", "/srv/docs", write)]);
    let part = folders(vec![folder("/docs/sub", "/srv/docs/sub", read)]);
    let sub = vec![folder("/docs/sub", "/srv/docs/sub", read)];
    assert_eq!(outer.narrowed_by(&part).files, sub);
    assert_eq!(part.narrowed_by(&outer).files, sub);
    let both = folders(vec![
        folder("/docs", "/srv/docs", write),
        folder("/docs/sub", "/srv/docs/sub", read),
    ]);
    assert_eq!(outer.narrowed_by(&both), both, "a part that is read-only today stays so");
    assert_eq!(both.narrowed_by(&outer), both);
}

#[test]
fn an_overlay_and_a_writable_directory_are_an_overlay() {
    let at = |mode| folders(vec![folder("/docs", "/srv/docs", mode)]);
    let mode = |initial, today| at(initial).narrowed_by(&at(today)).files[0].mode;
    assert_eq!(mode(FileMode::ReadWrite, FileMode::Overlay), FileMode::Overlay);
    assert_eq!(mode(FileMode::Overlay, FileMode::ReadWrite), FileMode::Overlay);
    assert_eq!(mode(FileMode::Overlay, FileMode::Read), FileMode::Read);
}

#[test]
fn patterns_of_which_none_covers_the_other_share_what_both_cover() {
    let url = |one: &str, two: &str| {
        let parse = |text| UrlPattern::parse(text).expect("a pattern");
        parse(one).overlap(&parse(two)).map(|it| it.as_str().to_owned())
    };
    let of_both = url("https://*.a.example/*", "https://x.a.example/v1/*");
    assert_eq!(of_both.as_deref(), Some("https://x.a.example/v1/*"));
    let mixed = url("https://*.a.example/v1/*", "https://x.a.example/*");
    assert_eq!(mixed.as_deref(), Some("https://x.a.example:443/v1/*"));
    assert_eq!(url("https://a.example/v1/*", "https://a.example/v2/*"), None);
    assert_eq!(url("https://a.example/*", "http://a.example/*"), None);
    let command = |one: &str, two: &str| {
        let parse = |text| CommandPattern::parse(text).expect("a command");
        parse(one).overlap(&parse(two)).map(|it| it.as_str().to_owned())
    };
    assert_eq!(command("/bin/a * x", "/bin/a y *").as_deref(), Some("/bin/a y x"));
    assert_eq!(command("/bin/a *", "/bin/a -rf"), None, "a star covers no option");
    assert_eq!(command("/bin/a **", "/bin/a b c").as_deref(), Some("/bin/a b c"));
    assert_eq!(command("/bin/a b", "/bin/b b"), None);
}

fn scoped_grants() -> Grants {
    Grants {
        files: vec![
            folder("/notes", "/srv/notes", FileMode::ReadWrite),
            folder("/docs", "/srv/docs", FileMode::ReadWrite),
        ],
        kv: Some(KvGrant::default()),
        secrets: secrets(&["one_secret", "other"], &[]).secrets,
        ..fetches(&[("https://a.example/*", &["GET"])])
    }
}

/// The refusing layers for the imports, in the order files to read, files to write, fetch,
/// secret, store.
fn layers_in(narrow: &TaskScope) -> [Option<Layer>; 5] {
    let (manifest, grants, task) = (manifest(), scoped_grants(), TaskName::from("desk"));
    let rights = Rights {
        plugin: "desk",
        manifest: &manifest,
        grants: &grants,
        narrowed: Some(ScopedTask { task: &task, scope: narrow }),
    };
    let url = target("https://a.example/v1/x").unwrap();
    let layer = |refused: Option<Box<DenialRecord>>| refused.map(|record| record.layer);
    [
        layer(rights.may_touch("/notes/a", false).err()),
        layer(rights.may_touch("/notes/a", true).err()),
        layer(rights.may_fetch("GET", &url, []).err()),
        layer(rights.require_secret(&"other".into(), || None).err()),
        layer(rights.may_store("k").err()),
    ]
}

#[test]
fn what_is_not_named_is_left_as_it_was_granted() {
    assert_eq!(layers_in(&TaskScope::default()), [None; 5]);
}

#[test]
fn each_capability_is_narrowed_by_its_own_list() {
    let task = Some(Layer::Task);
    let with = |change: fn(&mut TaskScope)| {
        let mut narrow = TaskScope::default();
        change(&mut narrow);
        layers_in(&narrow)
    };
    assert_eq!(
        with(|narrow| narrow.files = Some(vec!["/docs".to_owned()])),
        [task, task, None, None, None]
    );
    assert_eq!(with(|narrow| narrow.read_only = true), [None, task, None, None, None]);
    assert_eq!(
        with(|narrow| narrow.fetch =
            Some(vec![UrlPattern::parse("https://a.example/v2/*").unwrap()])),
        [None, None, task, None, None]
    );
    assert_eq!(
        with(|narrow| narrow.secrets = Some(vec!["one_secret".into()])),
        [None, None, None, task, None]
    );
    assert_eq!(with(|narrow| narrow.kv = Some(false)), [None, None, None, None, task]);
}
