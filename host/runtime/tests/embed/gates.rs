//! Native gates in front of an open room, and a handed-over conversation that stays with its task
//! from run to run.

use std::sync::{Arc, Mutex};

use conclave_core::setup::plugin_query::{GateInput, GateVerdict};
use conclave_runtime::Capability;
use conclave_runtime::RunOptions;
use conclave_runtime::native::{self, Check, Failure, Plugin, Step};
use conclave_runtime::notice::Notice;
use conclave_runtime::request::RefusalCode;
use conclave_runtime::setup::GatePoint;
use serde_json::json;

use crate::support::{Told, config, prepared};

/// A gate that decides by the text and records its input.
fn guard(inputs: &Arc<Mutex<Vec<GateInput>>>) -> Plugin {
    let inputs = Arc::clone(inputs);
    Plugin::gate("app", move |ask: Check| {
        inputs.lock().unwrap().push(ask.input.clone());
        async move {
            match ask.input.text.as_str() {
                "hang" => std::future::pending().await,
                "panic" => panic!("the gate panics"),
                "fail" => Err(Failure::new("no idea")),
                "long" => Ok(GateVerdict::Block { reason: "x".repeat(5_000) }),
                text if text.contains("password") => {
                    Ok(GateVerdict::Block { reason: "no passwords".to_owned() })
                }
                text => Ok(GateVerdict::Modify { text: text.replace("1234", "…") }),
            }
        }
    })
}

#[tokio::test]
async fn a_native_gate_stands_in_front_of_a_room_and_whatever_goes_wrong_with_it_blocks() {
    let (inputs, recorder) = (Arc::default(), Told::default());
    let step_texts = Arc::new(Mutex::new(Vec::new()));
    let desk = Plugin::agent("desk", {
        let step_texts = Arc::clone(&step_texts);
        move |step: Step| {
            step_texts.lock().unwrap().push(step.text().to_owned());
            async { Ok(native::finish("yes")) }
        }
    });
    let gates = "[[gates]]\non = \"inbound\"\nplugin = \"app\"\ndeadline = \"100 ms\"";
    let prepared = prepared([desk, guard(&inputs)], &config("", gates)).await;
    let (room, hosted) = prepared.open_room(recorder.options()).unwrap();
    for (text, expected) in [
        ("the password is x", "gate app blocked it: no passwords"),
        ("hang", "gate app failed: it gave no answer within 100 ms"),
        ("panic", "gate app failed: it panicked: the gate panics"),
        ("fail", "gate app failed: "),
        ("long", "gate app failed: the reason of its `block` has 5000 bytes"),
    ] {
        let refused = room.say("terminal", text).await.unwrap_err();
        assert_eq!(refused.error, RefusalCode::Blocked, "{text}: {refused:?}");
        let notices = recorder.notices();
        let why = notices.iter().rev().find_map(|notice| match notice {
            Notice::GateBlocked { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert!(why.is_some_and(|why| why.contains(expected)), "{text}: {notices:?}");
        // The sender learns no details of a gate's failure.
        assert!(
            expected.starts_with(&refused.message) || refused.message.contains(expected),
            "{text}: {refused:?}"
        );
    }
    room.say("terminal", "it is 1234").await.unwrap();
    room.close("enough").await.unwrap();
    hosted.closed().await.unwrap();
    assert_eq!(
        *step_texts.lock().unwrap(),
        ["it is …"],
        "nothing that was blocked reached anybody"
    );
    let inputs = inputs.lock().unwrap();
    assert!(
        inputs.iter().all(|input| input.point == GatePoint::Inbound && input.from_task.is_none())
    );
    assert_eq!(
        recorder
            .notices()
            .iter()
            .filter(|notice| matches!(notice, Notice::GateBlocked { .. }))
            .count(),
        5
    );
}

#[tokio::test]
async fn a_conversation_that_was_handed_over_stays_there_in_later_runs() {
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(match step.view.task.as_str() {
            "desk" => native::call(
                "handoff_conversation",
                json!({ "target": "billing", "reason": "money", "summary": "charged twice" }),
            ),
            task => native::finish(format!("{task}: {}", step.text())),
        })
    })
    .may_use(Capability::Route, "Hands conversations over.");
    let text = "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\ngrants.route = [\"billing\"]\n[tasks.desk]\nagent = \"desk\"\n\
        tools = [\"handoff_conversation\"]\n[tasks.billing]\nagent = \"desk\"\nrestart = false\n";
    let mut session = prepared([desk], text).await.session(RunOptions::default()).unwrap();
    let first = session.run("one").await.unwrap();
    assert_eq!(first.content.as_deref(), Some("billing: one"), "{first:?}");
    let second = session.run("two").await.unwrap();
    assert_eq!(second.content.as_deref(), Some("billing: two"), "it is sticky");
}
