use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq, proptest};
use serde_json::json;

use super::*;
use crate::room::fixture::{self, Parts};

fn message(seq: u64, kind: u8) -> Arc<Message> {
    let mut message =
        Message::new(seq, if kind.is_multiple_of(2) { Role::Llm } else { Role::Agent }, "desk");
    message.content = Some("word ".repeat(usize::from(kind % 7)));
    if kind % 5 == 1 {
        message.tool_calls = vec![ToolCall::new("box.a", json!({ "n": kind }))];
    }
    if kind % 5 == 3 {
        let result = |content: &str| ToolResult {
            call_id: String::new(),
            name: "box.a".to_owned(),
            content: content.to_owned(),
            value: Some(json!([kind])),
            is_error: false,
        };
        message.tool_results = vec![result(""), result("three")];
    }
    Arc::new(message)
}

proptest! {
    #[test]
    fn a_history_is_counted_as_it_grows_and_shrinks(row in vec(any::<(u8, u8, u8)>(), 0..80), bytes_per_token in 0_u32..5) {
        let mut memory = AgentHistory { bytes_per_token, ..AgentHistory::default() };
        for (what, place, kind) in row {
            match what % 8 {
                6 => memory.set(usize::from(place % 40), message(u64::from(place), kind)),
                7 => drop(memory.split_off(usize::from(place % 40))),
                _ => drop(memory.push(&message(u64::from(place % 9), kind))),
            }
            let mut counted = memory.clone();
            counted.count(bytes_per_token);
            prop_assert_eq!((memory.tokens(), memory.weight()), (counted.tokens(), counted.weight()));
        }
    }
}

/// Appends a message that answers another, with its links.
fn follow(parts: &mut Parts, task: &str, seq: u64, parent: Option<u64>) {
    let message = Message { parent, ..fixture::message(seq, Role::Llm, "a word") };
    let message = Arc::new(message);
    let place = parts.histories.memory(&parts.cx, &task.into()).push(&message);
    parts.histories.link(&message).place = Some((task.into(), place));
    if let Some(link) = parent.and_then(|parent| parts.histories.links.get_mut(&parent)) {
        link.child = Some(seq);
    }
}

fn linked(parts: &Parts) -> Vec<u64> {
    parts.histories.links.keys().copied().collect()
}

#[test]
fn pruning_takes_what_followed_also_from_other_histories() {
    let mut parts = Parts::new("");
    for (task, seq, parent) in [
        ("desk", 0, None),
        ("digest", 1, None),
        ("desk", 2, Some(0)),
        ("digest", 3, Some(2)),
        ("desk", 4, Some(3)),
    ] {
        follow(&mut parts, task, seq, parent);
    }
    assert_eq!(parts.histories.prune(&"desk".into(), 1), Some(0), "the message that it answered");
    assert_eq!((parts.history_of("desk"), parts.history_of("digest")), (vec![0], vec![1]));
    assert_eq!(linked(&parts), [0, 1]);
}

#[test]
fn pruning_past_the_end_changes_nothing() {
    let mut parts = Parts::new("");
    follow(&mut parts, "desk", 0, None);
    let before = parts.histories.clone();
    assert_eq!(parts.histories.prune(&"desk".into(), 1), None);
    assert_eq!(parts.histories.prune(&"digest".into(), 0), None);
    assert_eq!(parts.histories, before);
}

#[test]
fn pruning_ends_in_a_circle_of_links() {
    let mut parts = Parts::new("");
    follow(&mut parts, "desk", 0, None);
    for (seq, child) in [(0, 1), (1, 2), (2, 1)] {
        let message = Arc::new(fixture::message(seq, Role::Llm, "a word"));
        parts.histories.link(&message).child = Some(child);
    }
    parts.histories.prune(&"desk".into(), 0);
    assert_eq!((parts.history_of("desk"), linked(&parts)), (vec![], vec![]));
}

#[test]
fn a_call_is_open_again_once_its_result_is_dropped() {
    let mut parts = Parts::new("");
    let task = TaskName::from("desk");
    let call = ToolCall { id: "c1".to_owned(), ..ToolCall::new("notes.list", json!({})) };
    let result = ToolResult {
        call_id: "c1".to_owned(),
        name: "notes.list".to_owned(),
        content: "three".to_owned(),
        value: None,
        is_error: false,
    };
    let request =
        Message { tool_calls: vec![call.clone()], ..fixture::message(0, Role::Llm, "a look") };
    let answer =
        Message { tool_results: vec![result], ..fixture::message(1, Role::Agent, "three") };
    let id = parts.begin("desk", None);
    for (message, open) in [(request, vec![call.clone()]), (answer, vec![])] {
        assert!(parts.view().dialogue().write_history(id, &Arc::new(message)));
        assert_eq!(parts.histories.memory(&parts.cx, &task).open_calls, open);
    }
    for (start, open) in [(1, vec![call]), (0, vec![])] {
        parts.histories.clear_history(&task, start);
        assert_eq!(parts.histories.memory(&parts.cx, &task).open_calls, open);
    }
}

#[test]
fn only_what_says_something_is_written_and_only_once() {
    let mut parts = Parts::new("");
    let id = parts.begin("desk", None);
    let mut write = |id, seq, sender, text| {
        let message = Arc::new(fixture::message(seq, sender, text));
        parts.view().dialogue().write_history(id, &message)
    };
    assert!(write(id, 5, Role::Agent, "a word"));
    assert!(write(id, 5, Role::Agent, "a word"));
    assert!(!write(id, 6, Role::Agent, " \n"));
    assert!(write(id, 7, Role::Llm, ""), "the agent's own answer is part of the history");
    assert!(!write(FrameId(9), 8, Role::Agent, "a word"), "the frame is over");
    assert_eq!((parts.history_of("desk"), linked(&parts)), (vec![5, 7], vec![5, 7]));
}

#[test]
fn a_word_of_the_user_is_not_the_result_of_an_open_call() {
    let mut parts = Parts::new("");
    let id = parts.begin("desk", None);
    let call = ToolCall { id: "c1".to_owned(), ..ToolCall::new("notes.list", json!({})) };
    let request = Message { tool_calls: vec![call], ..fixture::message(0, Role::Llm, "a look") };
    let word =
        Message { sender_name: "terminal".to_owned(), ..fixture::message(1, Role::User, "stop") };
    for message in [request, word, fixture::message(2, Role::Agent, "three")] {
        parts.view().dialogue().write_history(id, &Arc::new(message));
    }
    let history = parts.histories.history(&"desk".into());
    let answers: Vec<usize> = history.iter().map(|message| message.tool_results.len()).collect();
    assert_eq!(answers, [0, 0, 1]);
}

#[test]
fn an_entry_put_in_moves_the_later_ones_and_the_start_of_the_activation() {
    let mut parts = Parts::new("");
    (0..3).for_each(|seq| follow(&mut parts, "desk", seq, None));
    let id = parts.begin("desk", None);
    assert_eq!(parts.frames.get(&id).unwrap().history_start, 3);
    let summary = Arc::new(fixture::message(9, Role::Agent, "a summary"));
    parts.view().dialogue().insert_entry(&"desk".into(), 1, &summary);
    assert_eq!(parts.history_of("desk"), [0, 9, 1, 2]);
    let place = |seq| parts.histories.links[&seq].place.as_ref().unwrap().1;
    assert_eq!([0, 1, 2, 9].map(place), [0, 2, 3, 1]);
    assert_eq!(parts.frames.get(&id).unwrap().history_start, 4);
}

#[test]
fn a_reset_reaches_sub_tasks_that_form_a_circle() {
    let mut parts = Parts::new("");
    parts.cx.task_mut("desk").subtasks = vec!["digest".into()];
    parts.cx.task_mut("digest").subtasks = vec!["desk".into()];
    for (task, seq) in [("desk", 0), ("digest", 1), ("stranger", 2)] {
        follow(&mut parts, task, seq, None);
    }
    parts.histories.reset(&parts.cx, &"desk".into());
    let remaining = ["desk", "digest", "stranger"].map(|task| parts.history_of(task));
    assert_eq!(remaining, [vec![], vec![], vec![2]]);
}

#[test]
fn the_operators_first_entry_begins_an_empty_history_only() {
    let mut parts = Parts::new("");
    let mut begin = |text: Option<&str>| {
        parts.histories.begin_history(&mut parts.cx, &"desk".into(), text.map(str::to_owned));
        parts.history_of("desk").len()
    };
    assert_eq!([None, Some(""), Some("Hello"), Some("Hello")].map(&mut begin), [0, 0, 1, 1]);
}
