//! Plugins that are refused before any of their code runs, and the reports about them.

use std::sync::{Arc, Mutex};

use conclave_core::config::{Config, ProblemCode};
use conclave_runtime::{Follow, Host, HostOptions, LoadStep};
use conclave_test_support::{Rig, calling, guest, refused, stepping};
use serde_json::json;

#[test]
fn a_component_without_a_manifest_is_refused() {
    let problems = refused(&Rig::new(), &calling("no_manifest", "run", &json!({}), ""));
    assert_eq!(problems.codes(), [ProblemCode::PluginRefused], "{problems}");
}

#[test]
fn a_required_capability_of_a_later_version_is_refused_at_load() {
    let problems = refused(&Rig::new(), &calling("wants_fetch", "run", &json!({}), ""));
    assert_eq!(problems.codes(), [ProblemCode::MissingGrant], "{problems}");
}

#[test]
fn a_required_capability_without_a_grant_is_refused_with_the_line_to_write() {
    let problems = refused(&Rig::new(), &calling("files_escape", "run", &json!({}), ""));
    assert_eq!(problems.codes(), [ProblemCode::MissingGrant], "{problems}");
    assert!(
        problems.to_string().contains("grants.files = [")
            && problems.to_string().contains("`at` is the path that the plugin reads"),
        "{problems}"
    );
}

#[test]
fn a_schema_that_would_keep_the_host_busy_is_refused_at_load() {
    let problems = refused(&Rig::new(), &calling("schema_bomb", "run", &json!({}), ""));
    assert_eq!(problems.codes(), [ProblemCode::PluginRefused], "{problems}");
}

#[test]
fn a_file_that_is_no_component_is_refused() {
    for (content, what) in [
        (&b"not wasm"[..], "text"),
        (b"\0asm\x01\0\0\0", "a core module"),
        (b"\0asm\x0d\0\x01\0", "an empty component"),
        (b"", "nothing"),
    ] {
        let rig = Rig::new().with_file("x.wasm", content);
        let config = "entry = \"t\"\n[plugins.p]\nsource = \"x.wasm\"\n[tasks.t]\nagent = \"p\"\n";
        let problems = refused(&rig, config);
        let found: Vec<_> = problems.0.iter().map(|it| (it.line, it.column, it.code)).collect();
        assert_eq!(found, [(3, 1, ProblemCode::PluginRefused)], "{what}: {problems}");
    }
}

#[test]
fn a_component_that_was_cut_off_or_changed_never_panics_the_host() {
    // The smallest guest, so that a change that affects only data is compiled quickly.
    let whole = std::fs::read(guest("agent_spin")).expect("the guest is there");
    let config = "entry = \"t\"\n[plugins.p]\nsource = \"x.wasm\"\n[tasks.t]\nagent = \"p\"\n";
    for cut in [8, 100, 1_000, whole.len() / 2, whole.len() - 1] {
        drop(refused(&Rig::new().with_file("x.wasm", &whole[..cut]), config));
    }
    for place in (8..whole.len()).step_by(whole.len() / 23) {
        let mut changed = whole.clone();
        changed[place] ^= 0xff;
        // Some changes affect only data; then it loads, which is correct.
        drop(Rig::new().with_file("x.wasm", changed).prepare(config));
    }
}

#[test]
fn all_problems_of_a_config_and_its_plugins_come_at_once() {
    let config = format!(
        "entry = \"t\"\n[plugins.a]\nsource = \"no-such-file.wasm\"\n[plugins.b]\nsource = \"stock:no-such\"\n[plugins.c]\nsource = \"{}\"\ngrants.files = [\"no-such-folder\"]\n[tasks.t]\nagent = \"a\"\nsubtasks = []\n[tasks.u]\nagent = \"b\"\n[tasks.v]\nagent = \"c\"\n",
        guest("no_manifest").display()
    );
    let problems = refused(&Rig::new(), &config);
    let found: Vec<_> = problems.0.iter().map(|it| (it.line, it.column, it.code)).collect();
    for expected in [
        (3, 1, ProblemCode::MissingPlugin),
        (5, 1, ProblemCode::MissingPlugin),
        (7, 1, ProblemCode::PluginRefused),
        (8, 17, ProblemCode::MissingFolder),
    ] {
        assert!(found.contains(&expected), "{expected:?} is missing:\n{problems}");
    }
}

#[test]
fn an_agent_that_is_none_is_refused() {
    let problems = refused(&Rig::new(), &stepping("echo", "", ""));
    assert_eq!(problems.codes(), [ProblemCode::WrongPluginKind], "{problems}");
}

#[test]
fn a_tampered_cache_entry_is_refused_and_compiled_anew() {
    let rig = Rig::new();
    let cache = rig.folder().join("cache");
    let config = Config::parse("conclave.toml", "", &stepping("agent_echo", "", ""))
        .expect("the config is right");
    let load = || {
        let host = Host::new(HostOptions { cache: Some(cache.clone()), ..HostOptions::default() })
            .expect("the engine starts");
        let steps = Arc::new(Mutex::new((None, Vec::new())));
        let told = Arc::clone(&steps);
        let follow: Follow = Arc::new(move |step| match step {
            LoadStep::Loaded { from_cache, .. } => {
                told.lock().expect("nobody panics").0 = Some(from_cache)
            }
            LoadStep::Warning { message, .. } => {
                told.lock().expect("nobody panics").1.push(message)
            }
            LoadStep::Downloading { .. } | LoadStep::Compiling { .. } => {}
        });
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(host.prepare(&config, &follow)).map(drop).expect("it loads");
        let loaded = steps.lock().expect("nobody panics");
        loaded.clone()
    };
    assert_eq!(load(), (Some(false), vec![]), "the first time it is compiled");
    assert_eq!(load(), (Some(true), vec![]), "the second time it comes from the cache");
    let mut tampered = 0;
    for entry in std::fs::read_dir(&cache).expect("the cache is there").flatten() {
        let path = entry.path();
        if entry.metadata().expect("it is there").len() > 10_000 {
            let mut bytes = std::fs::read(&path).expect("it can be read");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).expect("it can be written");
            tampered += 1;
        }
    }
    assert!(tampered > 0);
    let (from_cache, warnings) = load();
    assert_eq!((from_cache, warnings.len()), (Some(false), 1), "{warnings:?}");
    assert_eq!(load(), (Some(true), vec![]));
}
