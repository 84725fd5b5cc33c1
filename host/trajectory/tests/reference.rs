//! Compares the codec with outputs of the reference's codec for our inputs: text with key order,
//! memory form, and errors.

use conclave_trajectory::{Era, TrajectoryEvent};
use serde_json::Value;

const RUNS: &str = include_str!("reference.jsonl");

#[test]
fn the_codec_agrees_with_the_reference() {
    let mut wrong = Vec::new();
    for line in RUNS.lines() {
        let run: Value = serde_json::from_str(line).expect("each line is JSON");
        let era = run["era"].as_str().and_then(Era::parse).expect("a known era");
        let read = TrajectoryEvent::from_json_of(&run["in"], era);
        let mut differ = |what: &str, got: String, expected: &Value| {
            wrong.push(format!(
                "{} {}\n  {what}: {got}\n  expected {expected}",
                era.name(),
                run["in"]
            ));
        };
        match (&read, run.get("err")) {
            (Ok(event), None) => {
                if run["text"] != event.to_json_text(era) {
                    differ("text", event.to_json_text(era), &run["text"]);
                }
                if let Some(memory) =
                    run.get("memory").filter(|memory| **memory != event.memory_form(10_000))
                {
                    differ("memory", event.memory_form(10_000).to_string(), memory);
                }
            }
            (Ok(event), Some(error)) => differ("read", event.to_json(era).to_string(), error),
            (Err(malformed), Some(error)) if malformed.kind.name() == error => {}
            (Err(malformed), expected) => {
                differ("refused", malformed.to_string(), expected.unwrap_or(&run["text"]))
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
