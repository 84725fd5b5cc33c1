//! The codec beyond the reference. Every kind of each era survives a round trip, logs of both eras
//! load, and errors name the remedy.

use conclave_trajectory::{
    Action, Era, Malformed, MalformedKind, Observation, TrajectoryEvent, action, observation,
};
use serde_json::{Map, Value, json};

const ERAS: [Era; 2] = [Era::V2024, Era::V2025];

/// A small, deterministic generator of pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn text(&mut self) -> String {
        let parts = ["", "a", "é", "\n", "\"", "'", "\\", "{", "ls -l", "\u{1F600}", "0", "null"];
        (0..self.below(4)).map(|_| parts[self.below(parts.len() as u64) as usize]).collect()
    }

    /// Returns a valid value for a field of this name.
    fn field(&mut self, kind: &str, name: &str) -> Value {
        let number = self.below(9) as i64 - 1;
        let flag = number % 2 == 0;
        match name {
            "background"
            | "is_input"
            | "blocking"
            | "is_static"
            | "hidden"
            | "include_extra"
            | "return_axtree"
            | "error"
            | "filter_visible_only"
            | "prev_exist"
            | "wait_for_response" => json!(flag),
            "share_channels" if flag => json!([self.text()]),
            "share_channels" => json!([]),
            "context" => json!({ "a": number }),
            "start" | "end" | "option" | "active_page_index" | "status_code" | "exit_code"
            | "security_risk" => json!(number),
            "command_id" if kind == "kill" && flag => json!(number.to_string()),
            "task_id" if flag => json!(self.text()),
            "command_id" | "task_id" => json!(number),
            "confirmation_state" => {
                json!(["confirmed", "rejected", "awaiting_confirmation"][self.below(3) as usize])
            }
            "recall_type" => json!(if flag { "knowledge" } else { "workspace_context" }),
            "impl_source" => json!("oh_aci"),
            "outputs"
            | "inputs"
            | "arguments"
            | "dom_object"
            | "axtree_object"
            | "extra_element_properties" => {
                json!({self.text(): self.text(), "n": [number, null, {"deep": 1.5}]})
            }
            "subtasks" | "task_list" => json!([{"goal": self.text()}]),
            "delegates" => json!([{"agent": self.text(), "inputs": {"task": self.text()}}]),
            "open_pages_urls" | "goal_image_urls" | "memories" => json!([self.text()]),
            "view_range" if flag => json!([1, number]),
            "file_urls" | "image_urls" if flag => json!([self.text()]),
            "tools" if flag => json!([{"type": "function"}]),
            "insert_line" if flag => json!(number),
            "view_range" | "file_urls" | "image_urls" | "tools" | "insert_line" => Value::Null,
            "metadata" => json!({"exit_code": number, "pid": 3, "working_dir": self.text()}),
            "runtime_hosts" => json!({"h": number}),
            "custom_secrets_descriptions" => json!({"S": self.text()}),
            "microagent_knowledge" => {
                json!([{"name": "n", "trigger": self.text(), "content": "c"}])
            }
            "cwd" | "file_text" | "old_str" | "new_str" | "screenshot_path" if flag => Value::Null,
            _ => json!(self.text()),
        }
    }

    fn object(&mut self, kind: &str, known: &[&str], required: &[&str]) -> Map<String, Value> {
        let mut map = Map::new();
        for name in known {
            if required.contains(name) || self.below(2) == 0 {
                map.insert((*name).to_owned(), self.field(kind, name));
            }
        }
        map
    }

    fn event(&mut self, family: &str, kind: &str, fields: (Vec<&str>, Vec<&str>)) -> Value {
        let (mut known, required) = fields;
        known.retain(|name| *name != "content" || family == "action");
        let mut event = json!({family: kind, "id": self.below(99), "source": "agent", "timestamp": "2025-01-01T00:00:00"});
        let mut object = self.object(kind, &known, &required);
        if kind == "condensation" {
            object = json!({"forgotten_event_ids": [1, 2], "summary": "s", "summary_offset": 1})
                .as_object()
                .cloned()
                .unwrap_or_default();
        }
        event[if family == "action" { "args" } else { "extras" }] = Value::Object(object);
        if family == "observation" {
            event["content"] = json!(self.text());
            event["cause"] = json!(self.below(99));
        }
        event
    }
}

/// Returns many events of every kind of an era.
fn every_kind(era: Era) -> Vec<Value> {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut events = Vec::new();
    for _ in 0..40 {
        for kind in Action::KINDS {
            events.extend(
                Action::fields_of(kind, era).map(|fields| numbers.event("action", kind, fields)),
            );
        }
        for kind in Observation::KINDS {
            events.extend(Observation::fields_of(kind, era).map(|mut fields| {
                if *kind == "run" && era == Era::V2024 {
                    fields =
                        (vec!["command_id", "command", "exit_code"], vec!["command_id", "command"]);
                }
                numbers.event("observation", kind, fields)
            }));
        }
    }
    events
}

#[test]
fn writing_and_reading_again_changes_nothing() {
    for era in ERAS {
        for value in every_kind(era) {
            let event = TrajectoryEvent::from_json_of(&value, era)
                .unwrap_or_else(|error| panic!("{value}: {error}"));
            let written = event.to_json(era);
            assert_eq!(
                TrajectoryEvent::from_json_of(&written, era).map(|event| event.to_json(era)),
                Ok(written.clone()),
                "{value}"
            );
            assert_eq!(
                serde_json::from_str::<Value>(&event.to_json_text(era)).ok(),
                Some(written.clone()),
                "{value}"
            );
            assert_eq!(
                serde_json::from_str::<Value>(&event.to_stored_text(era)).ok(),
                Some(written),
                "{value}"
            );
        }
    }
}

#[test]
fn stored_events_lose_nothing_of_either_era() {
    for era in ERAS {
        for value in every_kind(era) {
            let event = TrajectoryEvent::from_json(&value)
                .unwrap_or_else(|error| panic!("{value}: {error}"));
            let stored = serde_json::to_string(&event).expect("it is JSON");
            assert_eq!(
                serde_json::from_str::<TrajectoryEvent>(&stored).ok(),
                Some(event),
                "{value}"
            );
        }
    }
}

#[test]
fn our_own_kinds_are_read_and_written() {
    for (value, message) in [
        (json!({"action": "talk", "args": {"content": "hello"}}), "hello"),
        (
            json!({"action": "delegate_task", "args": {"agent": "A", "task": "t", "context": {"a": 1}, "share_channels": ["terminal"]}}),
            "I'm asking A for help with this task.",
        ),
        (
            json!({"action": "delegate_all", "args": {"delegates": [{"agent": "A", "inputs": {"task": "t"}}, {"agent": "B"}]}}),
            "I'm asking A, B for help with this task.",
        ),
    ] {
        let event = TrajectoryEvent::from_json(&value).expect("it decodes");
        assert_eq!(event.message(Era::V2025), message);
        for era in ERAS {
            assert_eq!(TrajectoryEvent::from_json(&event.to_json(era)).as_ref(), Ok(&event));
            let refused = TrajectoryEvent::from_json_of(&value, era).expect_err("no era knew it");
            assert_eq!(refused.kind, MalformedKind::MalformedAction);
        }
    }
}

#[test]
fn the_union_reads_what_each_era_alone_refuses() {
    for (value, refusing) in [
        (json!({"action": "kill", "args": {"command_id": 3}}), Era::V2025),
        (json!({"action": "add_task", "args": {"parent": "", "goal": "g"}}), Era::V2025),
        (json!({"action": "modify_task", "args": {"task_id": "0", "state": "open"}}), Era::V2025),
        (json!({"action": "run", "args": {"command": "a", "background": true}}), Era::V2025),
        (json!({"action": "recall", "args": {"query": "q"}}), Era::V2025),
        (json!({"action": "run", "args": {"command": "a", "security_risk": 1}}), Era::V2024),
        (json!({"action": "think", "args": {"thought": "t"}}), Era::V2024),
        (json!({"observation": "mcp", "content": "m"}), Era::V2024),
        (
            json!({"observation": "run", "content": "m", "extras": {"command": "ls", "metadata": {"exit_code": 0}}}),
            Era::V2024,
        ),
        (json!({"action": "null", "source": "environment"}), Era::V2024),
        (json!({"action": "null", "source": "hook"}), Era::V2025),
    ] {
        assert!(TrajectoryEvent::from_json(&value).is_ok(), "{value}");
        assert!(TrajectoryEvent::from_json_of(&value, refusing).is_err(), "{value}");
    }
}

#[test]
fn the_exit_code_a_log_of_2024_leaves_out_is_zero_and_unknown_in_2025() {
    let run = |extras: Value, form: Option<Era>| -> i64 {
        let value = json!({"observation": "run", "extras": extras});
        let read = form
            .map_or_else(
                || TrajectoryEvent::from_json(&value),
                |era| TrajectoryEvent::from_json_of(&value, era),
            )
            .expect("it decodes");
        match read.observation() {
            Some(Observation::Run(run)) => run.metadata.exit_code,
            _ => panic!("it is a run"),
        }
    };
    assert_eq!(run(json!({"command": "ls", "command_id": 1}), None), 0);
    assert_eq!(run(json!({"command": "ls", "command_id": 1}), Some(Era::V2024)), 0);
    assert_eq!(run(json!({"command": "ls", "command_id": 1}), Some(Era::V2025)), -1);
    assert_eq!(run(json!({"command": "ls"}), None), -1);
}

#[test]
fn long_output_is_cut_when_a_run_is_made_but_not_when_a_log_is_loaded() {
    let long = "é".repeat(observation::MAX_COMMAND_OUTPUT + 1);
    let made = observation::Run::new("cat", &long, 0);
    assert!(made.content.contains("[... Observation truncated due to length ...]"));
    assert_eq!(
        made.content.chars().filter(|char| *char == 'é').count(),
        observation::MAX_COMMAND_OUTPUT
    );
    let value = json!({"observation": "run", "content": long, "extras": {"command": "cat"}});
    let content = |event: Result<TrajectoryEvent, Malformed>| {
        event.ok().and_then(|event| Some(event.observation()?.content().to_owned()))
    };
    assert_eq!(content(TrajectoryEvent::from_json(&value)), Some(long.clone()));
    assert_eq!(content(TrajectoryEvent::from_json_of(&value, Era::V2025)), Some(made.content));
    let hidden = json!({"observation": "run", "content": long, "extras": {"command": "cat", "hidden": true}});
    assert_eq!(content(TrajectoryEvent::from_json_of(&hidden, Era::V2025)), Some(long));
}

#[test]
fn refusals_tell_the_model_what_is_wrong_and_what_is_right() {
    for (value, kind, says) in [
        (
            json!({"action": "run", "args": {"cmd": "ls"}}),
            MalformedKind::MalformedAction,
            "unknown: cmd; missing: command",
        ),
        (
            json!({"action": "run", "args": {"command": 1}}),
            MalformedKind::MalformedAction,
            "`command` of `run` must be a string, and is 1.",
        ),
        (
            json!({"action": "run", "args": {"command": null}}),
            MalformedKind::MalformedAction,
            "missing: command",
        ),
        (
            json!({"action": "runn"}),
            MalformedKind::MalformedAction,
            "Action `runn` does not exist. Known are: null, run, kill",
        ),
        (json!({"action": {}}), MalformedKind::MalformedAction, "`action` must be a string"),
        (
            json!({"action": "run", "args": 3}),
            MalformedKind::MalformedAction,
            "`args` of action `run` must be an object",
        ),
        (
            json!({"action": "recall"}),
            MalformedKind::MalformedAction,
            "`query` (2024-07) or `recall_type` (2025-11)",
        ),
        (
            json!({"observation": "chat"}),
            MalformedKind::UnknownObservation,
            "Observation `chat` does not exist. Known are: null, run",
        ),
        (
            json!({"observation": "recall"}),
            MalformedKind::BadObservationArgs,
            "`memories` (2024-07) or `recall_type`",
        ),
        (
            json!({"observation": "error", "content": 3}),
            MalformedKind::BadObservationArgs,
            "`content` of `error` must be a string",
        ),
        (
            json!({"observation": "error", "extras": {"content": "x"}}),
            MalformedKind::BadObservationArgs,
            "belongs at the top level",
        ),
        (
            json!({"id": 1, "kind": "x"}),
            MalformedKind::ValueError,
            "must have `action` or `observation`; this one has: id, kind.",
        ),
        (json!([]), MalformedKind::ValueError, "must be an object"),
        (
            json!({"action": "null", "id": "x"}),
            MalformedKind::ValueError,
            "`id` must be a whole number",
        ),
        (
            json!({"action": "null", "timeout": "x"}),
            MalformedKind::ValueError,
            "`timeout` must be a number",
        ),
        (
            json!({"action": "null", "timestamp": 1}),
            MalformedKind::ValueError,
            "`timestamp` must be",
        ),
        (
            json!({"action": "condensation", "args": {}}),
            MalformedKind::ValueError,
            "in exactly one way",
        ),
    ] {
        let refused = TrajectoryEvent::from_json(&value).expect_err("it is refused");
        assert_eq!(refused.kind, kind, "{value}");
        assert!(refused.text.contains(says), "{value}: {refused}");
    }
}

#[test]
fn a_condensation_over_an_absurd_range_costs_nothing() {
    let condensation = action::Condensation {
        forgotten_events_start_id: Some(i64::MIN),
        forgotten_events_end_id: Some(i64::MAX),
        ..action::Condensation::default()
    };
    assert!(condensation.forgotten().is_some_and(|forgotten| forgotten.contains(7)));
    let message = Action::from(condensation).message(Era::V2025);
    assert!(message.len() < 100, "{message}");
}

#[test]
fn the_memory_form_drops_the_browsers_bulk_at_any_depth() {
    let extras = json!({"url": "u", "screenshot": "S", "dom_object": {"a": 1}, "error": true});
    let event = TrajectoryEvent::from_json(&json!({"observation": "browse", "content": "abcdef", "extras": extras, "id": 3, "cause": 2}))
        .expect("it decodes");
    assert_eq!(
        event.memory_form(4),
        json!({"observation": "browse", "content": "ab\n[... Observation truncated due to length ...]\nef",
               "extras": {"url": "u", "status_code": 200, "error": true}})
    );
    let delegate = json!({"observation": "delegate", "extras": {"outputs": {"deep": [{"screenshot": "S", "kept": 1}]}}});
    let memory = TrajectoryEvent::from_json(&delegate).expect("it decodes").memory_form(10);
    assert_eq!(memory["extras"]["outputs"], json!({"deep": [{"kept": 1}]}));
}

#[test]
fn runnable_is_what_the_host_must_answer() {
    let runnable: Vec<&str> = every_kind(Era::V2024)
        .iter()
        .take(40)
        .filter_map(|value| Some(TrajectoryEvent::from_json(value).ok()?.action()?.clone()))
        .filter(Action::runnable)
        .map(|action| action.kind())
        .collect();
    let expected =
        ["run", "kill", "run_ipython", "browse", "browse_interactive", "read", "write", "recall"];
    assert!(expected.iter().all(|kind| runnable.contains(kind)), "{runnable:?}");
    assert!(
        !runnable.contains(&"message")
            && !runnable.contains(&"add_task")
            && !runnable.contains(&"finish"),
        "{runnable:?}"
    );
}

#[test]
fn no_value_in_any_place_panics() {
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!("é"),
        json!([]),
        json!([[null]]),
        json!({}),
        json!({"a": {"b": []}}),
        json!(true),
    ];
    let mut read = 0;
    for era in ERAS {
        for value in every_kind(era).into_iter().take(200) {
            let Value::Object(event) = &value else { continue };
            for key in event.keys() {
                for odd in &odd {
                    let mut broken = value.clone();
                    broken[key] = odd.clone();
                    read += use_it(&broken);
                    let Value::Object(fields) = &value[key] else { continue };
                    for name in fields.keys() {
                        let mut broken = value.clone();
                        broken[key][name] = odd.clone();
                        read += use_it(&broken);
                    }
                }
            }
        }
    }
    assert!(read > 1000, "some of them are events: {read}");
}

/// Applies every operation to a value that may be an event.
fn use_it(value: &Value) -> usize {
    let read = [
        TrajectoryEvent::from_json(value),
        TrajectoryEvent::from_json_of(value, Era::V2024),
        TrajectoryEvent::from_json_of(value, Era::V2025),
    ];
    for event in read.iter().flatten() {
        for era in ERAS {
            assert!(!event.to_json_text(era).is_empty());
        }
        assert!(event.memory_form(3).is_object());
        assert!(
            serde_json::to_value(event)
                .is_ok_and(|stored| TrajectoryEvent::from_json(&stored).as_ref() == Ok(event)),
            "{value}"
        );
    }
    read.iter().flatten().count()
}
