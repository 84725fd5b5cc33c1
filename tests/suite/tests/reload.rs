//! Hot reload: a rebuilt component is used from the next call on, provided that its admission still
//! holds.

use std::path::Path;

use conclave_core::types::tool::ToolError;
use conclave_runtime::reload::Reloaded;
use conclave_runtime::{Prepared, RunOptions};
use conclave_test_support::{Rig, block_on, guest};
use serde_json::json;

const CONFIG: &str = r#"
entry = "main"
[plugins.agent]
source = "agent.wasm"
grants.tools = ["weather.*"]
[plugins.weather]
source = "weather.wasm"
[tasks.main]
agent = "agent"
"#;

/// Returns the guest with one word changed, as if its author had rebuilt it.
fn rebuilt() -> Vec<u8> {
    let (old, new) = (b"there is no station in", b"we have no station in ");
    let mut bytes = std::fs::read(guest("weather")).expect("the guest is built");
    let at = bytes.windows(old.len()).position(|window| window == old).expect("the guest says so");
    bytes[at..at + old.len()].copy_from_slice(new);
    bytes
}

async fn complaint(prepared: &Prepared) -> String {
    let run = prepared.call_tool(
        "weather.temperature",
        json!({ "place": "Atlantis" }),
        RunOptions::default(),
    );
    match run.await.expect("the tool is there").answer {
        Err(ToolError::InvalidArguments { message }) => message,
        other => panic!("{other:?}"),
    }
}

fn write(rig: &Rig, bytes: &[u8]) {
    let path: &Path = rig.folder();
    std::fs::write(path.join("weather.wasm"), bytes).expect("the folder can be written");
}

#[test]
fn a_component_that_was_built_anew_is_taken_at_the_next_call() {
    let read = |name: &str| std::fs::read(guest(name)).expect("the guest is built");
    let rig = Rig::new()
        .with_file("agent.wasm", read("agent_caller"))
        .with_file("weather.wasm", read("weather"));
    let prepared = rig.prepare(CONFIG).expect("it is right");
    block_on(async {
        let mut reloader = prepared.reloader();
        assert_eq!(complaint(&prepared).await, "place: there is no station in Atlantis");
        assert_eq!(reloader.look().await, []);

        write(&rig, &rebuilt());
        assert_eq!(reloader.look().await, [], "it may still be written to");
        let told = reloader.look().await;
        assert!(
            matches!(&told[..], [Reloaded::Replaced { plugin, sha256, .. }] if plugin.as_str() == "weather" && sha256.len() == 64),
            "{told:?}"
        );
        assert_eq!(complaint(&prepared).await, "place: we have no station in  Atlantis");
        assert_eq!(reloader.look().await, [], "once");

        for (bytes, expected) in
            [(read("echo"), "its tool `run` is new"), (b"\0asm".to_vec(), "it is damaged")]
        {
            write(&rig, &bytes);
            reloader.look().await;
            let told = reloader.look().await;
            let reason = match &told[..] {
                [Reloaded::Refused { reason, .. }] => reason.clone(),
                other => panic!("{other:?}"),
            };
            assert!(reason.contains(expected), "{reason}");
            assert_eq!(
                complaint(&prepared).await,
                "place: we have no station in  Atlantis",
                "the one before it stays"
            );
        }
        std::fs::remove_file(rig.folder().join("weather.wasm")).expect("it is there");
        reloader.look().await;
        assert_eq!(reloader.look().await, [], "a file that is gone is about to be written");
    });
}
