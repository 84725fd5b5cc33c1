//! Consent: no action runs before an approval, a failing analyzer causes an approval request, and
//! an absent approver counts as a denial.

use std::path::Path;

use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::risk::Risk;
use conclave_test_support::block_on;
use serde_json::{Value, json};

use super::world::{World, acting, hostile, inline, seen, steps, stocked};

const FILES: &str = "grants.files = [{ dir = \"box\", at = \"/box\", mode = \"read-write\" }]";
/// Allows every tool, so that only `confirm` asks.
const ALLOW: &str = "[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";
const GRANTS: &str = "grants.tools = [\"workspace.*\"]";

fn write(path: &str, content: &str) -> Value {
    json!({ "action": "write", "args": { "path": path, "content": content, "start": 0, "end": -1 } })
}

fn config(script: &Value, confirm: &Value, rest: &str) -> String {
    let task = format!(
        "action_plugins = [\"workspace\"]\nstuck_detection = false\nconfirm = {}",
        inline(confirm)
    );
    acting(script, GRANTS, &task, &format!("{}{ALLOW}{rest}", stocked("workspace", FILES)))
}

/// Checks that the folder is unchanged.
fn untouched(folder: &Path) {
    let files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .flatten()
        .map(|file| file.path())
        .collect();
    assert!(files.is_empty(), "nothing is done before the answer: {files:?}");
}

fn ask_about_a_write(approval: Approval, confirm: &Value, rest: &str) -> (World, Vec<Value>) {
    let world = World::new().deciding(move |_, folder| {
        untouched(folder);
        approval.clone()
    });
    let script = json!([write("/box/a.txt", "as it was meant"), { "action": "think", "args": { "thought": "well" } }]);
    let config = config(&script, confirm, rest);
    let told = block_on(async { steps(&world.run(&config, "go").await) });
    (world, told)
}

#[test]
fn nothing_is_done_before_somebody_says_yes_and_then_it_is() {
    let (world, told) = ask_about_a_write(Approval::Approved, &json!("always"), "");
    assert_eq!(
        world.file("a.txt").as_deref().map(str::trim_end),
        Some("as it was meant"),
        "{told:#?}"
    );
    let asked = world.asked();
    assert_eq!(asked.len(), 1, "a thought waits for nobody: {asked:#?}");
    assert_eq!((asked[0].task.as_str(), asked[0].caller.as_str()), ("main", "actor"));
    assert!(
        asked[0].source.contains("tasks.main.confirm asks about all that is done"),
        "{}",
        asked[0].source
    );
    assert_eq!(asked[0].arguments["path"], "/box/a.txt");
}

#[test]
fn what_is_refused_does_not_happen_and_its_agent_reads_why() {
    let refused = Approval::Refused { reason: "not on a Sunday".to_owned() };
    let (world, told) = ask_about_a_write(refused, &json!("always"), "");
    assert_eq!(world.file("a.txt"), None);
    let seen = seen(&told, 1);
    assert_eq!(seen["custom"], "user_rejected", "{told:#?}");
    assert!(
        seen["content"].as_str().is_some_and(|text| text.contains("not on a Sunday")),
        "{seen}"
    );
}

#[test]
fn what_somebody_wrote_in_the_place_of_the_arguments_is_done() {
    let arguments =
        json!({ "path": "/box/b.txt", "content": "as somebody wrote", "start": 0, "end": -1 });
    let (world, told) = ask_about_a_write(Approval::Edited { arguments }, &json!("always"), "");
    assert_eq!(world.file("a.txt"), None);
    assert_eq!(
        world.file("b.txt").as_deref().map(str::trim_end),
        Some("as somebody wrote"),
        "{told:#?}"
    );
}

#[test]
fn the_patterns_say_what_is_risky_and_why_and_only_that_is_asked_about() {
    let patterns = stocked("patterns", "config.folders = [\"/box\"]");
    let confirm = json!({ "policy": "risky", "threshold": "high", "analyzer": "patterns" });
    let script = json!([
        write("/box/plain.txt", "hello"),
        write("/box/key.txt", "-----BEGIN RSA PRIVATE KEY-----"),
        { "call": "workspace.read", "arguments": { "path": "/box/plain.txt", "start": 0, "end": -1 } },
    ]);
    let world = World::new()
        .deciding(|_: &ApprovalRequest, _| Approval::Refused { reason: "keep it".to_owned() });
    let told =
        block_on(async { steps(&world.run(&config(&script, &confirm, &patterns), "go").await) });
    let asked = world.asked();
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert_eq!(
        (asked[0].risk, asked[0].arguments["path"].as_str()),
        (Some(Risk::High), Some("/box/key.txt"))
    );
    assert!(
        asked[0].risk_reason.as_deref().is_some_and(|reason| reason.contains("secret")),
        "{:?}",
        asked[0].risk_reason
    );
    assert!(world.file("plain.txt").is_some() && world.file("key.txt").is_none(), "{told:#?}");
}

#[test]
fn an_analyzer_that_gives_no_answer_makes_somebody_be_asked_and_nobody_there_is_a_no() {
    let confirm =
        json!({ "policy": "risky", "threshold": "high", "unknown": false, "analyzer": "bad" });
    for mode in ["spin", "trap", "refuse", "fail", "huge"] {
        let bad = hostile(
            "hostile_analyzer",
            "bad",
            &format!("config = {{ mode = \"{mode}\" }}\nlimits = {{ cpu = \"50 ms\" }}"),
        );
        let nobody = Approval::Refused { reason: "no user can approve it".to_owned() };
        let (world, told) = ask_about_a_write(nobody, &confirm, &bad);
        assert_eq!(world.file("a.txt"), None, "{mode}");
        let asked = world.asked();
        // A failing analyzer also causes a request about the thought, but no more requests than
        // that.
        let of_write: Vec<_> =
            asked.iter().filter(|request| request.arguments["path"] == "/box/a.txt").collect();
        assert_eq!((of_write.len(), of_write[0].risk), (1, Some(Risk::High)), "{mode}: {asked:#?}");
        let reason = of_write[0].risk_reason.clone().unwrap_or_default();
        assert!(
            reason.contains("counts as a high risk") && reason.len() <= 5_000,
            "{mode}: {reason}"
        );
        assert_eq!(seen(&told, 1)["custom"], "user_rejected", "{mode}: {told:#?}");
        let faulted = world.told().iter().any(|notice| matches!(notice, Notice::PluginFaulted { plugin, .. } if plugin.as_str() == "bad"));
        let decided =
            world.records().iter().any(|record| matches!(record.event, Event::Decided { .. }));
        assert!(faulted && decided, "{mode}: what failed and what was decided are on the record");
    }
}

#[test]
fn an_analyzer_that_calls_everything_harmless_only_weighs_where_it_is_asked() {
    let low = hostile("hostile_analyzer", "bad", "config = { mode = \"low\" }");
    let risky = json!({ "policy": "risky", "threshold": "low", "analyzer": "bad" });
    for (confirm, rest, asks) in [
        (json!({ "policy": "risky", "threshold": "medium", "analyzer": "bad" }), "", 0),
        (risky, "", 1),
        (json!({ "policy": "always", "analyzer": "bad" }), "", 1),
        // A low risk does not override an operator's rule.
        (json!({ "policy": "never" }), "ask", 1),
    ] {
        let world = World::new().deciding(|_: &ApprovalRequest, _| Approval::Approved);
        let mut text = config(&json!([write("/box/a.txt", "x")]), &confirm, &low);
        if rest == "ask" {
            text =
                text.replace(ALLOW, "[[policy]]\ntool = \"workspace.write\"\ndecide = \"ask\"\n");
        }
        block_on(async { world.run(&text, "go").await });
        assert_eq!(world.asked().len(), asks, "{confirm}: {:#?}", world.asked());
        assert!(world.file("a.txt").is_some(), "{confirm}");
    }
}

#[test]
fn an_approver_is_asked_about_a_delegation_as_its_gates_have_left_it() {
    for approval in [Approval::Approved, Approval::Refused { reason: "no".to_owned() }] {
        let is_approved = approval == Approval::Approved;
        let world = World::new().deciding(move |_, _| approval.clone());
        let script = json!([{ "action": "delegate_task", "args": { "agent": "worker", "task": "Sum up the folder" } }]);
        let rest = format!(
            "[tasks.worker]\nagent = \"echo\"\n[[gates]]\non = \"delegate\"\nplugin = \"guard\"\ndeadline = \"20 s\"\n{}{}",
            hostile("agent_echo", "echo", ""),
            hostile("hostile_gate", "guard", "config = { mode = \"modify\" }"),
        );
        let config = acting(
            &script,
            "grants.delegate = [\"worker\"]",
            "stuck_detection = false\nconfirm = \"always\"\nbackground = { wait = true }",
            &rest,
        );
        let told = block_on(async { steps(&world.run(&config, "go").await) });
        let asked = world.asked();
        assert_eq!(asked.len(), 1, "{asked:#?}");
        assert_eq!(
            (asked[0].tool.as_str(), &asked[0].arguments["task"]),
            ("delegate_task", &json!("Sum up the drawer"))
        );
        let begun = world
            .told()
            .into_iter()
            .filter(|notice| matches!(notice, Notice::BackgroundStarted { .. }))
            .count();
        assert_eq!(begun, usize::from(is_approved), "{told:#?}");
        // The worker repeats its input.
        assert_eq!(
            told[1].to_string().contains("\\\"output\\\":\\\"Sum up the drawer\\\""),
            is_approved,
            "{told:#?}"
        );
    }
}
