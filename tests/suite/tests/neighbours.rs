//! A misbehaving plugin affects no other plugin.

use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::types::outcome::Status;
use conclave_runtime::{Prepared, RunOptions};
use conclave_test_support::{Rig, block_on, calling, host};
use serde_json::json;

#[test]
fn quiet_tasks_beside_hostile_ones_all_get_their_answers() {
    let hostile = [
        ("spin", r#"limits = { cpu = "200 ms" }"#),
        ("allocate", r#"limits = { memory = "16 MiB" }"#),
        ("recurse", ""),
        ("panic", ""),
        ("huge_output", r#"limits = { memory = "256 MiB", output = "64 KiB" }"#),
    ];
    let rig = Arc::new(Rig::new());
    std::thread::scope(|scope| {
        for (guest, limits) in hostile {
            let (noisy, quiet) = (Arc::clone(&rig), Arc::clone(&rig));
            scope.spawn(move || {
                assert!(
                    noisy.run(&calling(guest, "run", &json!({}), limits), "go").answer().is_error
                )
            });
            scope.spawn(move || {
                let ran = quiet.run(
                    &calling("echo", "run", &json!({ "text": format!("beside {guest}") }), ""),
                    "go",
                );
                assert_eq!(
                    (ran.status(), ran.content()),
                    (Status::Done, format!("beside {guest}").as_str())
                );
            });
        }
    });
}

#[test]
fn a_tool_that_fails_says_why_and_the_task_goes_on() {
    let ran = Rig::new().run(&calling("echo", "fail", &json!({ "text": "no paper" }), ""), "go");
    assert_eq!(ran.status(), Status::Done);
    assert!(ran.answer().is_error && ran.content().contains("no paper"), "{}", ran.content());
}

/// Harmful guests, each with the limits that stop it.
const HOSTILE: [(&str, &str); 8] = [
    ("spin", r#"cpu = "50 ms""#),
    ("allocate", r#"memory = "16 MiB""#),
    ("recurse", r#"memory = "16 MiB""#),
    ("panic", r#"memory = "16 MiB""#),
    ("host_call_flood", "host_calls = 1000"),
    ("log_flood", "host_calls = 2000"),
    ("huge_output", r#"memory = "128 MiB", output = "64 KiB""#),
    ("pollable_flood", "handles = 50"),
];

const QUIET: usize = 100;

/// All run in one host, on one engine and one pool of sandboxes, and start together. The test
/// checks results and no times.
#[test]
fn a_hundred_quiet_tasks_are_all_right_while_a_hostile_plugin_runs_beside_each() {
    block_on(async {
        let host = host();
        let prepare = async |text: String| {
            let config = Config::parse("conclave.toml", "", &text).expect("the config is right");
            host.load(&config).await.unwrap_or_else(|error| panic!("{error}"))
        };
        let mut hostile = Vec::new();
        for (guest, limits) in HOSTILE {
            hostile.push(
                prepare(calling(guest, "run", &json!({}), &format!("limits = {{ {limits} }}")))
                    .await,
            );
        }
        let mut quiet = Vec::new();
        for number in 0..QUIET {
            quiet.push(
                prepare(calling(
                    "echo",
                    "run",
                    &json!({ "text": format!("quiet task {number}") }),
                    "",
                ))
                .await,
            );
        }
        let start = |prepared: &Prepared| {
            prepared
                .start(Some("go".to_owned()), RunOptions::default())
                .expect("a journal in memory opens")
        };
        let mut pairs = tokio::task::JoinSet::new();
        for (number, prepared) in quiet.iter().enumerate() {
            // The noise begins first.
            let (noise, run) = (start(&hostile[number % HOSTILE.len()]), start(prepared));
            pairs.spawn(async move { (number, run.outcome().await, noise.outcome().await) });
        }
        let mut stopped = [0; HOSTILE.len()];
        while let Some(pair) = pairs.join_next().await {
            let (number, quiet, noise) = pair.expect("nothing panics");
            let (quiet, noise) = (quiet.expect("it ends"), noise.expect("it ends"));
            assert_eq!(
                (quiet.status, quiet.content.as_deref()),
                (Status::Done, Some(format!("quiet task {number}").as_str())),
                "{quiet:?}"
            );
            let (guest, _) = HOSTILE[number % HOSTILE.len()];
            let said = noise.content.as_deref().unwrap_or_default();
            assert!(
                said.contains("limits.") || said.contains("too deep") || said.contains("panic"),
                "{guest}: {said}"
            );
            stopped[number % HOSTILE.len()] += 1;
        }
        assert_eq!(
            stopped.iter().sum::<usize>(),
            QUIET,
            "a hostile plugin beside each: {stopped:?}"
        );
    });
}
