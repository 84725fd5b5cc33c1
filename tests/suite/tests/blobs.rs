//! Attachments: a digest grants no access, and an answer contains only attachments that its call
//! could reach.

use conclave_core::protocol::event::Event;
use conclave_core::types::message::Blob;
use conclave_runtime::blobs::Blobs;
use conclave_test_support::{Rig, calling};
use serde_json::json;

const ALLOWED: &str = "[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";

#[test]
fn a_digest_alone_opens_nothing_and_is_not_passed_on() {
    let rig = Rig::new();
    let secret = rig.blobs().keep(b"SECRET", "text/plain", None).expect("it is kept");
    let ran = rig.run(
        &(calling("blobs_steal", "run", &json!({ "sha256": secret.sha256 }), "") + ALLOWED),
        "go",
    );
    assert!(
        ran.content().contains("Unknown") && ran.content().ends_with("; own bytes"),
        "{}",
        ran.content()
    );
    let attached: Vec<Blob> = ran
        .events("test")
        .into_iter()
        .filter_map(|event| match event {
            Event::ToolAnswered { answer, .. } => Some(answer.expect("it answers").attachments),
            _ => None,
        })
        .flatten()
        .collect();
    let seen: Vec<(&str, u64)> =
        attached.iter().map(|blob| (blob.media_type.as_str(), blob.length)).collect();
    assert_eq!(seen, [("text/plain", 9)], "its own, as the host knows it: {attached:?}");
    let denials = ran.denials();
    assert!(
        denials
            .iter()
            .any(|record| record.denial.capability == "blobs"
                && record.denial.target == secret.sha256),
        "{denials:?}"
    );
}

#[test]
fn what_one_call_keeps_is_bounded_altogether() {
    let limits = "limits = { blobs = \"1 MB\", cpu = \"20 s\" }";
    let ran =
        Rig::new().run(&(calling("blobs_steal", "hoard", &json!({}), limits) + ALLOWED), "go");
    assert!(
        ran.content().starts_with("1000000: ") && ran.content().contains("TooLarge(1000000)"),
        "{}",
        ran.content()
    );
}
