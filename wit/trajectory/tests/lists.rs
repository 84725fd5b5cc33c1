//! What is done with lists of events: finding, redacting, viewing, replaying, streaming, loading.

use conclave_trajectory::{
    Action, Era, Event, EventStream, Filter, GapKind, HIDDEN, Redaction, Replay, Shown, Source, View, load, redact, redact_event,
    redact_text, search,
};
use serde_json::{Value, json};

fn events(values: &[Value]) -> Vec<Event> {
    values.iter().map(|value| Event::from_json(value).unwrap_or_else(|error| panic!("{value}: {error}"))).collect()
}

fn log() -> Vec<Event> {
    events(&[
        json!({"id": 0, "action": "message", "source": "user", "timestamp": "2025-01-01T00:00:00", "args": {"content": "Größe?"}}),
        json!({"id": 1, "action": "run", "source": "agent", "timestamp": "2025-01-02T00:00:00", "args": {"command": "du", "hidden": true}}),
        json!({"id": 2, "observation": "run", "source": "agent", "cause": 1, "content": "4K", "extras": {"command": "du"}}),
        json!({"id": 4, "action": "finish", "source": "agent", "timestamp": "2025-01-04T00:00:00", "args": {}}),
    ])
}

#[test]
fn a_filter_narrows_by_each_of_its_parts() {
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    for (filter, expected) in [
        (all(), vec![0, 1, 2, 4]),
        (Filter { include_types: strings(&["run"]), ..all() }, vec![1, 2]),
        (Filter { include_types: strings(&["run-observation", "finish-action"]), ..all() }, vec![2, 4]),
        (Filter { include_types: strings(&["CmdRunAction", "MessageAction"]), ..all() }, vec![0, 1]),
        (Filter { include_types: strings(&["observation"]), ..all() }, vec![2]),
        (Filter { include_types: strings(&["nonsense"]), ..all() }, vec![]),
        (Filter { exclude_types: strings(&["action"]), ..all() }, vec![2]),
        (Filter { source: text("user"), ..all() }, vec![0]),
        (Filter { source: text(""), ..all() }, vec![0, 1, 2, 4]),
        (Filter { start_date: text("2025-01-02"), ..all() }, vec![1, 2, 4]),
        (Filter { end_date: text("2025-01-02T00:00:00"), ..all() }, vec![0, 1, 2]),
        (Filter { exclude_hidden: true, ..all() }, vec![0, 2, 4]),
        (Filter { query: text("GRÖSSE"), ..all() }, vec![]),
        (Filter { query: text("GRÖßE"), ..all() }, vec![0]),
        (Filter { query: text("\"command\": \"DU\""), ..all() }, vec![1, 2]),
        (Filter { start_id: Some(1), end_id: Some(2), ..all() }, vec![1, 2]),
        (Filter { reverse: true, limit: Some(2), ..all() }, vec![4, 2]),
        (Filter { reverse: true, end_id: Some(1), ..all() }, vec![1, 0]),
        (Filter { limit: Some(0), ..all() }, vec![0, 1, 2, 4]),
    ] {
        let found: Vec<i64> = search(&log(), &filter).iter().filter_map(|event| event.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let filter = Filter { include_types: strings(&["run", "Run", "x-action", "run-x"]), ..all() };
    assert_eq!(filter.unknown_types(), ["Run", "x-action", "run-x"]);
}

#[test]
fn nothing_of_a_secret_is_left_anywhere() {
    let mut event = json!({
        "id": 7, "action": "call_tool_mcp", "source": "agent", "timestamp": "2025-07-07T00:00:00", "message": "with pw7",
        "args": {"name": "n", "arguments": {"list": ["a pw7", {"pw7": "pw7pw7"}], "pw7": 1, "_": 2}, "thought": "long-pw7"},
    });
    redact(&mut event, &["pw7", "", "long-pw7"], Redaction::Everywhere);
    assert!(!event.to_string().contains("pw7"), "{event}");
    assert_eq!(event["args"]["thought"], HIDDEN, "the longest goes first");
    assert_eq!(event["timestamp"], "2025-07-07T00:00:00");
    assert_eq!(event["args"]["name"], "n");
}

#[test]
fn words_of_the_protocol_survive_secrets_that_look_like_them() {
    let secrets = ["run", "agent", "args", "command", "confirmed", "2025", "extras", "knowledge", "exit_code"];
    for value in [
        json!({"id": 1, "action": "run", "source": "agent", "timestamp": "2025-01-01T00:00:00", "args": {"command": "run it"}}),
        json!({"id": 1, "observation": "run", "extras": {"command": "x", "metadata": {"exit_code": 3}}, "content": "agent"}),
        json!({"action": "recall", "args": {"recall_type": "knowledge", "query": "knowledge"}}),
    ] {
        let mut event = Event::from_json(&value).expect("it decodes");
        let kind = event.kind();
        redact_event(&mut event, &secrets, Redaction::Everywhere).expect("it is still an event");
        assert_eq!(event.kind(), kind);
        assert!(event.message(Era::V2025).contains(HIDDEN) || value["observation"] == "run", "{event:?}");
    }
    // A field that should hold such a word and does not is scrubbed.
    let mut odd = json!({"action": "my run", "source": "secret agent", "timestamp": "in 2025"});
    redact(&mut odd, &secrets, Redaction::Everywhere);
    assert_eq!(odd, json!({"action": format!("my {HIDDEN}"), "source": format!("secret {HIDDEN}"), "timestamp": format!("in {HIDDEN}")}));
}

#[test]
fn a_derived_line_that_cuts_a_secret_is_derived_anew() {
    let query = format!("{}hunter2", "x".repeat(46));
    let mut event = Event::from_json(&json!({"action": "recall", "args": {"recall_type": "knowledge", "query": query}}))
        .expect("it decodes")
        .to_json(Era::V2025);
    assert!(event["message"].as_str().is_some_and(|line| line.contains("hunt")));
    redact(&mut event, &["hunter2"], Redaction::Everywhere);
    assert!(!event.to_string().contains("hunt"), "{event}");
}

#[test]
fn the_references_holes_are_kept_where_they_are_asked_for() {
    let value = json!({"action": "run", "message": "Running command: pw", "args": {"command": "pw", "list": ["pw"]}});
    let mut reference = value.clone();
    redact(&mut reference, &["pw"], Redaction::Reference);
    assert_eq!(reference, json!({"action": "run", "message": "Running command: pw", "args": {"command": HIDDEN, "list": ["pw"]}}));
    let mut spoiled = json!({"content": "ab"});
    redact(&mut spoiled, &[""], Redaction::Reference);
    assert_eq!(spoiled["content"], format!("{HIDDEN}a{HIDDEN}b{HIDDEN}"));
    assert_eq!(redact_text("secret secrets", &["secret"]), format!("{HIDDEN} {HIDDEN}s"), "what is put in is not looked at again");
}

#[test]
fn a_view_forgets_and_puts_the_newest_summary_in_its_place() {
    let message = |text: &str| json!({"action": "message", "source": "agent", "args": {"content": text}});
    let condense = |args: Value| json!({"action": "condensation", "args": args});
    let view = View::of(&events(&[
        message("0"),
        message("1"),
        message("2"),
        condense(json!({"forgotten_event_ids": [0], "summary": "old", "summary_offset": 0})),
        message("4"),
        condense(json!({"forgotten_events_start_id": 1, "forgotten_events_end_id": 2, "summary": "new", "summary_offset": 9})),
        condense(json!({"forgotten_event_ids": []})),
        json!({"observation": "null"}),
    ]));
    assert_eq!(view.kept, [4, 7]);
    assert_eq!(view.shown(), [Shown::Event(4), Shown::Event(7), Shown::Summary("new")], "an offset too far is the end");
    assert!(!view.unhandled_request);

    let request = json!({"action": "condensation_request"});
    let view = View::of(&events(&[
        request.clone(),
        condense(json!({"forgotten_event_ids": [2], "summary": "s", "summary_offset": 0})),
        message("2"),
    ]));
    assert_eq!((view.kept.as_slice(), view.unhandled_request), (&[][..], false));
    assert_eq!(view.shown(), [Shown::Summary("s")]);
    assert!(View::of(&events(&[request])).unhandled_request);
}

#[test]
fn a_view_goes_by_ids_where_events_have_them() {
    let view = View::of(&events(&[
        json!({"id": 10, "action": "null"}),
        json!({"id": 11, "action": "null"}),
        json!({"id": 12, "action": "condensation", "args": {"forgotten_event_ids": [0, 11]}}),
    ]));
    assert_eq!(view.kept, [0]);
}

#[test]
fn a_replay_waits_only_on_its_last_event() {
    let message =
        |source: &str, wait: bool| json!({"action": "message", "source": source, "args": {"content": source, "wait_for_response": wait}});
    let waits = |log: &[Value]| -> Vec<bool> {
        let waits = |action: &Action| matches!(action, Action::Message(message) if message.wait_for_response);
        Replay::of(&events(log)).actions.iter().map(waits).collect()
    };
    assert_eq!(waits(&[message("user", false), message("agent", true), message("agent", true)]), [false, true]);
    let answered = [message("user", false), message("agent", true), json!({"observation": "success", "source": "agent"})];
    assert_eq!(waits(&answered), [false], "an observation after it is its answer");
    let empty = [message("user", false), message("agent", true), json!({"observation": "null"})];
    assert_eq!(waits(&empty), [true], "an empty observation is none");
    let replay = Replay::of(&events(&[message("agent", false), message("environment", false), json!({"action": "null"})]));
    assert_eq!((replay.task, replay.actions.len()), (None, 1));
    assert_eq!(Replay::of(&[]), Replay::default());
}

#[test]
fn a_damaged_stream_loads_what_is_whole() {
    let whole = |id: i64| format!(r#"{{"id":{id},"source":"agent","observation":"null","content":"c{id}","extras":{{}}}}"#);
    let files: Vec<(i64, String)> = (0..5).map(|id| (id, whole(id))).collect();
    let damaged = |change: &dyn Fn(i64, &str) -> Option<String>| {
        let files: Vec<(i64, String)> = files.iter().filter_map(|(id, text)| Some((*id, change(*id, text)?))).collect();
        let (stream, gaps) = EventStream::load(files.iter().map(|(id, text)| (*id, text.as_str())));
        let contents = stream.contents().into_iter().map(str::to_owned).collect::<Vec<_>>().join(" ");
        (contents, stream.next_id(), gaps.iter().map(|gap| (gap.id, gap.kind)).collect::<Vec<_>>())
    };
    assert_eq!(damaged(&|_, text| Some(text.to_owned())), ("c0 c1 c2 c3 c4".to_owned(), 5, vec![]));
    let torn = |at: i64| move |id: i64, text: &str| Some(if id == at { text[..20].to_owned() } else { text.to_owned() });
    assert_eq!(damaged(&torn(4)), ("c0 c1 c2 c3".to_owned(), 4, vec![(4, GapKind::TornTail)]));
    assert_eq!(damaged(&torn(2)), ("c0 c1 c3 c4".to_owned(), 5, vec![(2, GapKind::Torn)]));
    let missing = |id: i64, text: &str| (id != 1 && id != 2).then(|| text.to_owned());
    assert_eq!(damaged(&missing), ("c0 c3 c4".to_owned(), 5, vec![(1, GapKind::Missing)]));

    let (mut far, gaps) = EventStream::load([(i64::MAX - 1, whole(1).as_str())]);
    assert_eq!((far.len(), gaps.len(), far.pages(5).len()), (1, 1, 0));
    assert!(far.add(Event::from_json(&json!({"action": "null"})).expect("it decodes"), Source::User).is_ok());
}

#[test]
fn only_full_pages_count() {
    let mut stream = EventStream::default();
    for _ in 0..7 {
        stream.add(Event::from_json(&json!({"action": "null"})).expect("it decodes"), Source::User).expect("it has no id");
    }
    assert_eq!(stream.page_names(3), ["0-3", "3-6"]);
    assert_eq!(stream.page_names(0), [""; 0]);
}

#[test]
fn logs_of_every_shape_load() {
    let old = json!({"action": "run", "args": {"command": "a", "background": false, "thought": ""}});
    let told = json!({"observation": "run", "content": "x", "extras": {"command": "a", "command_id": -1, "exit_code": 0}});
    let new = json!({"action": "think", "args": {"thought": "t"}});
    let empty = json!({"observation": "null", "content": "", "extras": {}});
    let sdk = json!({"kind": "PauseEvent", "id": "p", "source": "user"});
    for (text, count, era) in [
        (json!([old, told]).to_string(), 2, Some(Era::V2024)),
        (json!([[old, told], [new, empty]]).to_string(), 3, Some(Era::V2024)),
        (json!({"history": [new, empty], "metrics": {}}).to_string(), 2, Some(Era::V2025)),
        (json!({"trajectory": [new]}).to_string(), 1, Some(Era::V2025)),
        (json!({"events": [empty]}).to_string(), 1, None),
        (old.to_string(), 1, Some(Era::V2024)),
        (format!("\u{feff}{old}\n\n{told}\n{sdk}\n"), 2, Some(Era::V2024)),
        (format!("{}\n{}\n", json!({"id": "a", "history": [[old, told]]}), json!({"history": [[old, empty]]})), 3, Some(Era::V2024)),
        ("[]".to_owned(), 0, None),
    ] {
        let loaded = load(&text);
        assert_eq!((loaded.events.len(), loaded.era, loaded.problems.len()), (count, era, 0), "{text}\n{:?}", loaded.problems);
    }
    let loaded = load(&json!([sdk]).to_string());
    assert_eq!((loaded.sdk.len(), loaded.events.len()), (1, 0), "a pause only tells of the run");
}

#[test]
fn loading_goes_on_after_what_cannot_be_read_and_says_what_it_was() {
    let good = json!({"action": "null"});
    let text = format!("{good}\n{{\"action\": \"ru\n{}\n3\n{good}", json!({"action": "initialize"}));
    let loaded = load(&text);
    assert_eq!(loaded.events.len(), 2);
    let problems: Vec<(&str, bool)> = loaded.problems.iter().map(|problem| (problem.at.as_str(), problem.raw.is_some())).collect();
    assert_eq!(problems, [("line 2", false), ("line 3", true), ("line 4", true)]);
    assert!(loaded.problems[1].text.contains("Action `initialize` does not exist"));

    let loaded = load(&json!([good, {"kind": "Nope"}, [good, {"observation": "nope"}], 4, {"x": []}]).to_string());
    let places: Vec<&str> = loaded.problems.iter().map(|problem| problem.at.as_str()).collect();
    assert_eq!(places, ["event 1", "pair 2, observation", "event 3", "event 4"]);

    assert_eq!(load("no log at all\nnor here").problems.len(), 1);
    assert_eq!(load("").problems.len(), 1);
    assert_eq!(load(&"[".repeat(100_000)).problems.len(), 1);
}
