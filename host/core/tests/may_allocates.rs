//! A yes of every capability's decision allocates nothing, and a no does. A test binary of its own, because it counts what its allocator is
//! asked for.

use std::hint::black_box;

use allocation_counter::measure;
use conclave_core::config::Config;
use conclave_core::fetch::target;
use conclave_core::grant::Rights;
use conclave_core::manifest::{Ask, Capability, Manifest};

const CONFIG: &str = r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "r.json"
[plugins.all]
source = "all.wasm"
grants.model = ["other", "default"]
grants.tools = ["a.b", "notes.*"]
grants.route = ["done", "user"]
grants.delegate = ["digest"]
grants.rooms = ["terminal"]
grants.files = [{ dir = "docs", at = "/docs", mode = "read" }, { dir = "out", at = "/out", mode = "read-write" }]
grants.fetch = ["https://api.example.org/v1/*"]
grants.kv = true
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

/// What it is called, the question, and what it says yes and no to.
type Decision<'a> = (&'a str, &'a dyn Fn(&str) -> bool, &'a str, &'a str);

#[test]
fn a_yes_allocates_nothing() {
    let config = Config::parse("c.toml", "", CONFIG).unwrap_or_else(|problems| panic!("{problems}"));
    let asks = Capability::ALL.iter().map(|capability| (capability.as_str().to_owned(), Ask::default())).collect();
    let manifest = Manifest { asks, ..Manifest::default() };
    let rights = Rights { plugin: "all", manifest: &manifest, grants: &config.plugins["all"].grants, narrowed: None };
    let rights = black_box(&rights);
    let url = target("https://api.example.org/v1/now?at=1").expect("it is an address");
    let decisions: [Decision<'_>; 8] = [
        ("model", &|name| rights.may_use_model(Some(name)).is_ok(), "default", "none"),
        ("tools", &|name| rights.may_call(name).is_ok(), "notes.save", "web.get"),
        ("route", &|name| rights.may_route(name).is_ok(), "USER", "nobody"),
        ("delegate", &|name| rights.may_delegate(name, |_| true).is_ok(), "digest", "desk"),
        ("rooms", &|name| rights.may_speak(name, |_| true).is_ok(), "terminal", "radio"),
        ("files, to read", &|path| rights.may_touch(path, false).is_ok(), "/docs/a/b.md", "/other/b.md"),
        ("files, to write", &|path| rights.may_touch(path, true).is_ok(), "/out/a/b.md", "/docs/a.md"),
        ("fetch", &|method| rights.may_fetch(method, &url).is_ok(), "GET", "POST"),
    ];
    for (what, may, granted, other) in decisions {
        let mut answer = false;
        let counted = measure(|| answer = may(black_box(granted)));
        assert_eq!((answer, counted.count_total), (true, 0), "{what}");
        let counted = measure(|| answer = may(black_box(other)));
        assert!(!answer && counted.count_total > 0, "{what}: a refusal is told in words");
    }
}
