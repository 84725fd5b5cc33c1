//! A decision that lets something through allocates nothing: it is made at every call of a tool and of an import. A test binary of its own,
//! because it counts what its allocator is asked for.

use std::hint::black_box;

use allocation_counter::measure;
use conclave_core::config::Config;
use conclave_core::grant::{Grants, ModelGrant, Rights};
use conclave_core::ids::{ModelName, PluginName};
use conclave_core::limits::RunLimits;
use conclave_core::manifest::{Ask, Capability, Manifest};
use conclave_core::policy::{Decide, decide};
use conclave_core::setup::Setup;
use serde_json::json;

const CONFIG: &str = r#"
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

/// Nothing but the rules counts here.
fn setup() -> Setup {
    let config = Config::parse("c.toml", "", CONFIG).unwrap_or_else(|problems| panic!("{problems}"));
    Setup {
        entry: "desk".into(),
        tasks: [].into(),
        plugins: [].into(),
        models: [].into(),
        channels: [].into(),
        policy: config.policy,
        limits: RunLimits::default(),
    }
}

#[test]
fn a_call_that_is_allowed_allocates_nothing() {
    let (setup, callers) = (setup(), ["desk", "chat"].map(PluginName::from));
    let arguments = json!({ "text": "x".repeat(1_000), "url": "https://example.org/a" });
    let mut decided = Decide::Deny;
    let counted = measure(|| decided = decide(black_box(&setup), black_box(&callers), "notes.save", black_box(&arguments)).decide);
    assert_eq!((decided, counted.count_total), (Decide::Allow, 0));
    let counted = measure(|| decided = decide(black_box(&setup), black_box(&callers), "web.get", black_box(&arguments)).decide);
    assert_eq!((decided, counted.count_total), (Decide::Ask, 0), "patterns of arguments are matched in place");
}

#[test]
fn a_capability_that_is_granted_allocates_nothing() {
    let asks = [(Capability::Model.as_str().to_owned(), Ask::default())].into();
    let manifest = Manifest { asks, ..Manifest::default() };
    let model = ModelGrant { names: vec![ModelName::from("default")], tokens: None, cost_micro_usd: None, calls: None };
    let grants = Grants { model: Some(model), ..Grants::default() };
    let rights = Rights { plugin: "chat", manifest: &manifest, grants: &grants, narrowed: None };
    let counted = measure(|| assert!(black_box(&rights).require(Capability::Model, "default", || Some("never made".to_owned())).is_ok()));
    assert_eq!(counted.count_total, 0);
    // The same counter sees a refusal, which is told in words.
    let counted = measure(|| assert!(black_box(&rights).require(Capability::Fetch, "https://example.org", || None).is_err()));
    assert!(counted.count_total > 0);
}
