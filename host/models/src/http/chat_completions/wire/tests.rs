//! Values that are small on the wire and would be large in memory.

use super::{CALLS_MAX, Chunk};

#[test]
fn of_a_million_choices_one_is_kept() {
    let body = format!(
        r#"{{"choices":[{{"index":1}},{{"message":{{"content":"a"}}}}{}]}}"#,
        ",{}".repeat(1_000_000)
    );
    let chunk: Chunk = serde_json::from_str(&body).unwrap();
    assert!(chunk.choices.any);
    assert_eq!(chunk.choices.first.unwrap().message.unwrap().content.unwrap().0, "a");
}

#[test]
fn only_another_choice_is_none_to_use() {
    let chunk: Chunk = serde_json::from_str(r#"{"choices":[{"index":1}]}"#).unwrap();
    assert!(chunk.choices.any && chunk.choices.first.is_none());
    let chunk: Chunk = serde_json::from_str(r#"{"choices":null}"#).unwrap();
    assert!(!chunk.choices.any);
}

#[test]
fn calls_are_counted_before_they_are_kept() {
    let calls = |count: usize| {
        let calls = vec!["{}"; count].join(",");
        serde_json::from_str::<Chunk>(&format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{calls}]}}}}]}}"#
        ))
    };
    let most = calls(CALLS_MAX).unwrap().choices.first.unwrap().delta.unwrap().tool_calls.unwrap();
    assert_eq!(most.0.len(), CALLS_MAX);
    assert!(calls(CALLS_MAX + 1).is_err());
}

#[test]
fn parts_are_put_together_as_they_come() {
    let parts = format!(
        r#"[{{"text":"a","type":"text"}},{{"text":null}},7,["x"],"y"{},{{"text":"b"}}]"#,
        ",{}".repeat(1_000_000)
    );
    let body =
        format!(r#"{{"choices":[{{"delta":{{"content":{parts},"reasoning":{{"text":"no"}}}}}}]}}"#);
    let delta = serde_json::from_str::<Chunk>(&body).unwrap().choices.first.unwrap().delta.unwrap();
    assert_eq!(
        (delta.content.unwrap().0.as_str(), delta.reasoning.unwrap().0.as_str()),
        ("ab", "")
    );
}

#[test]
fn arguments_that_come_as_json_become_its_text() {
    let json = r#"{"a":[1,-2,0.5,null,true,"\"é\n"],"b":{},"c":[]}"#;
    for (arguments, text) in
        [(json, json), (r#""{\"a\":1}""#, r#"{"a":1}"#), ("null", ""), ("[ ]", "[]"), ("7", "7")]
    {
        let body = format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"function":{{"arguments":{arguments}}}}}]}}}}]}}"#
        );
        let delta =
            serde_json::from_str::<Chunk>(&body).unwrap().choices.first.unwrap().delta.unwrap();
        assert_eq!(delta.tool_calls.unwrap().0.remove(0).function.unwrap().arguments, text);
    }
}
