//! The contract supports each plugin kind from Rust. Python and JavaScript components load as well
//! (tested manually, see docs/write-plugins/contract.md).

use conclave_core::types::outcome::Status;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_runtime::plugin::inspect;
use conclave_test_support::{guest, stock};

fn kinds(component: &std::path::Path) -> Vec<&'static str> {
    let bytes = std::fs::read(component).expect("it is built");
    inspect(&bytes).expect("it is a plugin").kinds.into_iter().map(PluginKind::as_str).collect()
}

#[test]
fn each_kind_is_served_from_rust() {
    assert_eq!(kinds(&guest("echo")), ["tools"]);
    assert_eq!(kinds(&guest("agent_echo")), ["agent"]);
    assert_eq!(kinds(&guest("strategy_silent")), ["delivery-strategy"]);
    assert_eq!(kinds(&guest("two_kinds")), ["agent", "tools"]);
    assert_eq!(kinds(&stock().join("immediate.wasm")), ["delivery-strategy"]);
}

#[test]
fn a_manifest_is_found_and_its_asks_have_reasons() {
    let bytes = std::fs::read(stock().join("search.wasm")).expect("it is built");
    let manifest = inspect(&bytes).expect("it is a plugin").manifest;
    assert_eq!(manifest.name, "search");
    assert!(manifest.asks.get("files").is_some_and(|ask| !ask.why.is_empty()), "{manifest:?}");
}

#[test]
fn a_rust_component_imports_only_what_it_uses() {
    let bytes = std::fs::read(guest("agent_echo")).expect("it is built");
    let imports = inspect(&bytes).expect("it is a plugin").imports;
    assert!(imports.iter().any(|import| import.contains("conclave:plugin/state")), "{imports:?}");
    assert!(
        !imports.iter().any(|import| import.contains("conclave:plugin/files")
            || import.contains("conclave:plugin/kv")),
        "{imports:?}"
    );
}

/// Every function of the contract is documented.
#[test]
fn every_function_of_the_contract_is_documented() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let mut functions = 0;
    for file in std::fs::read_dir(folder).expect("the contract is there").flatten() {
        if file.path().extension().is_none_or(|extension| extension != "wit") {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).expect("it is text");
        // One documentation line covers all functions directly below it, as in a resource with
        // short methods.
        let mut documented = false;
        for line in text.lines().map(str::trim) {
            if line.contains(": func(") {
                functions += 1;
                assert!(
                    documented || line.ends_with("-> string;"),
                    "{}: {line}",
                    file.path().display()
                );
            }
            documented = line.starts_with("///");
        }
    }
    assert!(functions > 40, "{functions}");
}

#[test]
fn the_outcome_of_a_contract_tool_reaches_the_agent() {
    let ran = conclave_test_support::Rig::new().run(
        &conclave_test_support::calling("echo", "run", &serde_json::json!({ "text": "hi" }), ""),
        "go",
    );
    assert_eq!((ran.status(), ran.content()), (Status::Done, "hi"));
}
