//! Runs the cases of the behaviour reference for event lists and texts, through the public
//! functions.

use std::collections::BTreeMap;

use conclave_trajectory::{
    Action, Era, Filter, Replay, Source, TrajectoryEvent, read_lines, search, truncate, write_lines,
};
use serde_json::{Value, json};

const CASES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/conformance/openhands.jsonl");

/// Runs the input of a case in an era.
type Play = fn(&Value, &str) -> Value;

/// The function of each kind of case, and the minimum number of its cases.
const KINDS: &[(&str, Play, usize)] = &[
    ("codec", codec, 41),
    ("codec_error", codec_error, 10),
    ("truncate", cut, 2),
    ("read_lines", read, 6),
    ("write_lines", write, 6),
    ("search", searched, 7),
    ("replay", replayed, 1),
];

#[test]
fn the_reference_cases_hold() {
    let text = std::fs::read_to_string(CASES).expect("the cases are part of the repository");
    let mut played: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("each line is JSON");
        let Some((kind, play, _)) = KINDS.iter().find(|(kind, ..)| case["kind"] == **kind) else {
            continue;
        };
        *played.entry(kind).or_default() += 1;
        let got = play(&case["in"], case["era"].as_str().unwrap_or_default());
        if got != case["expect"] {
            wrong.push(format!(
                "{}: {}\n  got      {got}\n  expected {}",
                case["id"], case["in"], case["expect"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    for (kind, _, least) in KINDS {
        assert!(played.get(kind).is_some_and(|count| count >= least), "too few cases of {kind}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn codec(input: &Value, era: &str) -> Value {
    let era = Era::parse(era).expect("a known era");
    let event = TrajectoryEvent::from_json_of(input, era).expect("it decodes");
    // The union reads everything that an era reads, and encodes it equally.
    assert_eq!(
        TrajectoryEvent::from_json(input).map(|union| union.to_json(era)),
        Ok(event.to_json(era))
    );
    assert_eq!(
        serde_json::from_str::<Value>(&event.to_json_text(era)).ok(),
        Some(event.to_json(era))
    );
    let mut got = json!({"dict": event.to_json(era)});
    if era == Era::V2024 {
        got["memory"] = event.memory_form(10_000);
    }
    got
}

fn codec_error(input: &Value, era: &str) -> Value {
    let era = Era::parse(era).expect("a known era");
    let refused = TrajectoryEvent::from_json_of(input, era).expect_err("it is refused");
    assert!(refused.text.len() > 20, "a refusal explains itself: {refused}");
    let name = match refused.kind.name() {
        "value-error" => "ValueError",
        name => name,
    };
    json!({"error": name})
}

fn cut(input: &Value, _: &str) -> Value {
    json!({"content": truncate(text(&input["content"]), number(&input["max_chars"]) as usize)})
}

fn read(input: &Value, _: &str) -> Value {
    json!({"content": read_lines(text(&input["text"]), number(&input["start"]), number(&input["end"]))})
}

fn write(input: &Value, _: &str) -> Value {
    let (start, end) = (number(&input["start"]), number(&input["end"]));
    json!({"text": write_lines(input["existing"].as_str(), text(&input["content"]), start, end)})
}

/// Returns the events that a case adds, numbered as in a log.
fn filled(input: &Value) -> Vec<TrajectoryEvent> {
    let added = list(&input["ops"]).iter().filter(|op| op[0] == "add");
    (0..)
        .zip(added)
        .map(|(id, op)| TrajectoryEvent {
            id: Some(id),
            ..TrajectoryEvent::from_json(&op[1])
                .expect("it decodes")
                .from_source(Source::from(text(&op[2])))
        })
        .collect()
}

fn searched(input: &Value, _: &str) -> Value {
    let events = filled(input);
    let filter = Filter {
        include_types: list(&input["types"]).iter().map(|name| text(name).to_owned()).collect(),
        source: input["source"].as_str().map(str::to_owned),
        query: input["query"].as_str().map(str::to_owned),
        start_id: input["start_id"].as_i64(),
        end_id: input["end_id"].as_i64(),
        reverse: input["reverse"] == json!(true),
        limit: input["limit"].as_u64().map(|limit| limit as usize),
        ..Filter::default()
    };
    let found = search(&events, &filter);
    if input.get("query").is_some() || input.get("types").is_some() || input.get("source").is_some()
    {
        return json!({"ids": found.iter().map(|event| event.id).collect::<Vec<_>>()});
    }
    json!({"contents": found.iter().filter_map(|event| event.observation()).map(|it| it.content()).collect::<Vec<_>>()})
}

fn replayed(input: &Value, _: &str) -> Value {
    let events: Vec<TrajectoryEvent> = list(&input["trajectory"])
        .iter()
        .enumerate()
        .map(|(at, sketch)| sketched(at, sketch))
        .collect();
    let replay = Replay::of(&events);
    let waits: Vec<usize> = replay
        .actions
        .iter()
        .enumerate()
        .filter(
            |(_, action)| matches!(action, Action::Message(message) if message.wait_for_response),
        )
        .map(|(at, _)| at)
        .collect();
    let task = if replay.task.as_deref() == Some("message 0") {
        "first message"
    } else {
        "another message"
    };
    json!({"task": task, "replayed": replay.actions.iter().map(Action::kind).collect::<Vec<_>>(), "waits": waits})
}

/// Returns the event of a sketch, which only has kind, source and wait flag.
fn sketched(at: usize, sketch: &Value) -> TrajectoryEvent {
    let mut event = sketch.clone();
    let wait = event["wait_for_response"] == json!(true);
    match (text(&sketch["action"]), text(&sketch["observation"])) {
        ("message", _) => {
            event["args"] = json!({"content": format!("message {at}"), "wait_for_response": wait})
        }
        ("run", _) => event["args"] = json!({"command": "ls"}),
        (_, "run") => event["extras"] = json!({"command": "ls"}),
        (_, "agent_state_changed") => event["extras"] = json!({"agent_state": "running"}),
        _ => {}
    }
    TrajectoryEvent::from_json(&event).expect("it decodes")
}
