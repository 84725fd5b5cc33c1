//! The telling of each kind of notice; its words stand in one snapshot.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Subject, TextRole, Tone, tell};
use crate::protocol::notice::Notice;
use crate::types::observed::EVENT_KINDS;
use crate::types::usage::Spent;

const DONE: &str = "The lamp was lit in 1844.";

/// Every kind of notice, in the order of [`Notice`], with those variants that have words of their
/// own.
#[expect(clippy::too_many_lines, reason = "an example of each notice")]
fn examples() -> Vec<Notice> {
    let message = |more: Value| {
        let mut message = json!({
            "seq": 3, "sender": "llm", "sender_name": "desk", "content": DONE,
        });
        let fields = message.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        message
    };
    let report = json!({ "wall_us": 5_000, "cpu_ticks": 0, "memory": 65_536 });
    let skipped = json!([
        { "responder": "user", "reason": "user-not-asked" },
        { "responder": "llm", "reason": "sent-message" },
    ]);
    let blob =
        |length: u64| json!({ "sha256": "ab", "length": length, "media_type": "text/plain" });
    let digest = |length: u64| json!({ "sha256": "ab", "length": length });
    let answer = |call: Value, is_error: bool| {
        json!({
            "notice": "tool-answered", "call": call, "task": "desk", "name": "search.find",
            "content": DONE, "is_error": is_error, "fault": null, "report": report,
        })
    };
    let posted = |more: Value| {
        json!({
            "notice": "message-posted", "task": "desk", "agent": "clerk", "message": message(more),
        })
    };
    let started = |side_effect: Value, overlay: bool| {
        json!({
            "notice": "side-effect-started", "call": 7, "ordinal": 0, "plugin": "notes",
            "side_effect": side_effect, "overlay": overlay,
        })
    };
    let ended = |answer: Value| {
        json!({
            "notice": "side-effect-ended", "call": 7, "ordinal": 0, "plugin": "notes",
            "answer": answer,
        })
    };
    let request = |more: Value| {
        let mut request = json!({
            "task": "desk", "caller": "clerk", "tool": "notes.write", "arguments": { "n": 1 },
            "source": "conclave.toml:9", "causes": ["grants"],
        });
        let fields = request.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        json!({ "notice": "approval-asked", "call": 7, "request": request })
    };
    let approval = |approval: Value, author: Value| json!({ "notice": "approval-given", "call": 7, "approval": approval, "author": author });
    let top_up = |problem: Value| {
        json!({ "notice": "top-up-asked", "call": 7, "top_up": {
            "budget": "tokens", "limit": 1_000, "used": 1_000, "set_aside": 0, "proposed": 500,
            "task": "desk", "problem": problem,
        } })
    };
    let model = |more: Value| {
        let mut answered = json!({
            "notice": "model-answered", "call": 7, "ordinal": 0, "model": "m-1", "stop": "end",
            "usage": {
                "input_tokens": 9, "cached_input_tokens": 0, "output_tokens": 2,
                "cost_micro_usd": null,
            },
            "is_empty": false, "error": null, "trouble": null,
        });
        let fields = answered.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        answered
    };
    let finished = |status: &str, output: Value, error: Value| {
        json!({ "notice": "background-ended", "ended": {
            "id": "task-1", "worker": "slow", "description": "x", "status": status,
            "output": output, "error": error, "duration_ms": 3_000, "metadata": null,
        } })
    };
    let by_hand = json!({ "person": { "at": "the terminal" } });
    let groups = [
        json!([
        { "notice": "task-started", "task": "desk", "agent": "clerk", "caller": "front" },
        { "notice": "invariant-violated", "code": "frame/none", "reason": "no frame has the call" },
        posted(json!({})),
        posted(json!({ "recipient": "billing" })),
        posted(json!({ "signal": { "signal": "done" } })),
        posted(json!({ "signal": { "signal": "rejected" } })),
        { "notice": "step-ended", "task": "desk", "by": "llm", "message": null, "skipped": skipped },
        { "notice": "step-stalled", "task": "desk", "stalled": 1, "of": 3, "skipped": skipped },
        { "notice": "step-stalled", "task": "desk", "stalled": 3, "of": 3 },
        { "notice": "question-unanswered", "task": "desk", "question": "Which year?" },
        { "notice": "tool-called", "call": 7, "task": "desk", "caller": "clerk",
          "name": "search.find", "arguments": { "n": 1 } },
        { "notice": "tool-called", "call": 7, "task": "desk", "caller": "clerk",
          "name": "search.find", "arguments": {}, "led_by": ["relay", "proxy"] },
        answer(json!(7), false),
        answer(json!(7), true),
        answer(json!(null), true),
        { "notice": "plugin-faulted", "call": 7, "plugin": "clerk",
          "fault": { "kind": "memory", "message": "more than 64 MiB" } },
        { "notice": "denied", "call": 7, "plugin": "notes", "record": {
            "capability": "files", "target": "/other/x", "detail": "", "layer": "config",
            "reason": "outside every granted folder" } },
        { "notice": "denied", "call": null, "plugin": "notes", "record": {
            "capability": "notify", "target": "", "detail": "", "layer": "manifest",
            "reason": "the manifest does not ask for it" } },
        ]),
        json!([
            started(
                json!({ "side_effect": "fetch", "method": "POST", "url": "https://a.example/x",
                        "headers": [] }),
                false
            ),
            started(
                json!({ "side_effect": "write-file", "path": "/n/a", "offset": 0, "truncate": true,
                        "bytes": digest(12) }),
                false
            ),
            started(
                json!({ "side_effect": "write-file", "path": "/n/a", "offset": 0, "truncate": true,
                        "bytes": digest(12) }),
                true
            ),
            started(json!({ "side_effect": "remove-file", "path": "/n/a" }), false),
            started(json!({ "side_effect": "remove-file", "path": "/n/a" }), true),
            started(json!({ "side_effect": "set-key", "key": "count", "value": digest(5) }), false),
            started(json!({ "side_effect": "delete-key", "key": "count" }), false),
            started(
                json!({ "side_effect": "run-program", "program": "cargo", "arguments": ["test"] }),
                false
            ),
            ended(json!({ "answer": "done", "length": 12 })),
            ended(json!({ "answer": "fetched", "status": 200, "headers": [], "body": blob(1_024),
                      "url": "https://a.example/x" })),
            ended(json!({ "answer": "ran", "ending": { "ended": "exited", "code": 1 },
                      "stdout": blob(5), "stderr": blob(7), "dropped": 0 })),
            ended(json!({ "answer": "denied", "denial": {
            "capability": "fetch", "target": "https://b.example/", "detail": "" } })),
            ended(json!({ "answer": "failed", "cause": { "code": "not-found" },
                      "message": "there is no such file" })),
            request(json!({})),
            request(json!({ "led_by": ["relay"], "risk": "high", "risk_reason": "it goes live" })),
            approval(json!({ "approval": "approved" }), by_hand.clone()),
            approval(json!({ "approval": "edited", "arguments": { "n": 2 } }), by_hand.clone()),
            approval(json!({ "approval": "refused", "reason": "not today" }), by_hand.clone()),
            approval(json!({ "approval": "invalid", "message": "n is missing" }), json!("program")),
        ]),
        json!([
        top_up(json!(null)),
        top_up(json!("`add` is no number")),
        { "notice": "topped-up", "call": 7, "budget": "tokens", "more": 500, "reason": null,
          "author": by_hand },
        { "notice": "topped-up", "call": 7, "budget": "tokens", "more": null,
          "reason": "it is enough", "author": by_hand },
        { "notice": "price-unknown", "model": "big", "limit": "limits.cost" },
        { "notice": "attempt-lost", "call": 7, "ordinal": 0, "model": "big", "input_tokens": 90,
          "cost_micro_usd": 20_000 },
        { "notice": "attempt-lost", "call": 7, "ordinal": 0, "model": "big", "input_tokens": 0,
          "cost_micro_usd": 0, "reason": "no server answers" },
        { "notice": "step-started", "call": 7, "task": "desk", "agent": "clerk" },
        { "notice": "model-called", "call": 7, "ordinal": 0, "task": "desk", "plugin": "clerk",
          "model": "big", "stream": false },
        model(json!({})),
        model(json!({ "is_empty": true })),
        model(json!({ "stop": "length" })),
        model(json!({ "stop": "content-filter" })),
        model(json!({ "stop": "other" })),
        model(json!({ "error": "the model failed",
                      "trouble": { "kind": "key", "text": "set BIG_KEY" } })),
        model(json!({ "error": "no server answers", "fallback": "small" })),
        ]),
        json!([
        { "notice": "history-cut", "task": "desk", "cut": 2, "dropped": 0 },
        { "notice": "history-cut", "task": "desk", "cut": 2, "dropped": 9 },
        { "notice": "resumed", "down_ms": 3_000 },
        { "notice": "resumed", "down_ms": 3_000, "is_exact": true },
        { "notice": "plugin-replaced", "plugin": "clerk", "sha256": "abcd" },
        { "notice": "turn-stopped", "task": "desk", "reason": "stopped by the user" },
        { "notice": "plan-changed", "task": "desk", "plan": [{ "goal": "write" }] },
        { "notice": "agent-state-changed", "task": "desk", "state": "running", "reason": null },
        { "notice": "agent-stuck", "task": "desk", "reason": "the same action 4 times",
          "recovery": "ask" },
        { "notice": "run-paused", "reason": "lunch" },
        { "notice": "run-unpaused" },
        { "notice": "user-message-read", "task": "desk", "message": message(json!({})) },
        { "notice": "user-message-dropped", "task": "desk", "text": "hurry",
          "reason": "the task ended" },
        { "notice": "history-condensed", "task": "desk", "forgotten": 4, "masked": 1,
          "summarised": true },
        { "notice": "history-condensed", "task": "desk", "forgotten": 0, "masked": 3,
          "summarised": false },
        { "notice": "knowledge-added", "task": "desk", "file": "notes/lamps.md",
          "trigger": "lamp" },
        { "notice": "gate-blocked", "point": "inbound", "plugin": "guard", "reason": "no names" },
        { "notice": "gate-modified", "point": "inbound", "plugin": "guard" },
        {
            "notice": "gate-blocked", "point": "tool-call", "plugin": "guard",
            "reason": "no strangers", "tool": "mail.send",
        },
        {
            "notice": "gate-modified", "point": "tool-result", "plugin": "guard",
            "tool": "mail.read",
        },
        { "notice": "answer-overruled", "task": "desk", "plugin": "judge", "responder": "llm",
          "ruling": { "valid": false, "feedback": "name the year" } },
        { "notice": "result-replaced", "task": "desk", "plugin": "judge" },
        ]),
        json!([
        { "notice": "handed-off", "from": "desk", "to": "billing", "phase": "paying",
          "reason": "it is about money" },
        { "notice": "handed-off", "from": "desk", "to": null, "phase": "", "reason": "done" },
        { "notice": "handoff-rejected", "from": "desk", "to": "boss", "refusal": {
            "error": "unknown_agent", "message": "there is no such task" } },
        { "notice": "inbound", "index": 0, "channel": "web", "sender": "ada", "text": "hello" },
        { "notice": "inbound", "index": 0, "channel": "web", "sender": "", "text": "hello" },
        { "notice": "inbound-refused", "channel": "web", "sender": "ada", "error": "room_closed",
          "reason": "the room is closed" },
        { "notice": "channel-refused", "channel": "web", "key": "answer-1", "reason": "it is gone" },
        { "notice": "channel-bound", "channel": "web", "binding": { "kind": "web" } },
        { "notice": "channel-bound", "channel": "web", "binding": { "kind": "web", "muted": true } },
        { "notice": "channel-unbound", "channel": "web" },
        { "notice": "room-closed", "reason": "the server stops" },
        ]),
        json!([
        { "notice": "background-started", "id": "task-1", "task": "slow", "room": "r/1",
          "by": "desk", "brief": "Find the year." },
        { "notice": "background-started", "id": "task-1", "task": "slow", "room": "r/1",
          "by": null, "brief": "Find the year." },
        finished("completed", json!(DONE), json!(null)),
        finished("timed-out", json!(null), json!("longer than 3 s")),
        { "notice": "delivered", "id": "task-1", "worker": "slow", "strategy": "immediate",
          "channel": "web", "text": DONE },
        { "notice": "delivered", "id": "task-1", "worker": "slow", "channel": "web", "text": DONE },
        { "notice": "not-delivered", "id": "task-1", "worker": "slow", "reason": "it stays" },
        { "notice": "dead-letter", "id": "task-1", "worker": "slow", "attempts": 3,
          "reason": "the channel is gone" },
        { "notice": "results-relayed", "task": "desk", "ids": ["task-1"],
          "message": message(json!({})) },
        { "notice": "results-read", "task": "desk", "ids": ["task-1", "task-2"] },
        { "notice": "task-ended", "task": "desk", "status": "DONE", "reason": "it has a result" },
        { "notice": "task-ended", "task": "desk", "status": "REJECTED", "reason": "no tool" },
        { "notice": "task-ended", "task": "desk", "status": "STALLED", "reason": "no answer" },
        { "notice": "result-ready", "outcome": {
            "status": "DONE", "reason": "it has a result", "content": DONE, "spent": Spent::default() } },
        { "notice": "observer-retried", "observer": "webhook", "attempts": 1, "of": 5,
          "pause_ms": 2_000, "reason": "the server is away" },
        { "notice": "observer-stopped", "observer": "webhook", "attempts": 5,
          "reason": "the server is away" },
        ]),
    ];
    let values = groups.iter().flat_map(|group| group.as_array().expect("a list")).cloned();
    let read = |value: Value| {
        let text = value.to_string();
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    values.map(read).collect()
}

#[test]
fn every_kind_has_an_example_and_its_own_code() {
    let examples = examples();
    let codes: BTreeSet<&str> = examples.iter().map(|notice| tell(notice).code).collect();
    // A room's notices about its observers are for no observer.
    let kinds = EVENT_KINDS.into_iter().chain(["observer-retried", "observer-stopped"]);
    assert_eq!(codes, kinds.collect());
    assert!(examples.iter().all(|notice| tell(notice).code == notice.kind()));
}

#[test]
fn the_words_of_every_notice() {
    let mut words = String::new();
    for notice in &examples() {
        let telling = tell(notice);
        let role = telling.text.as_ref().map(|text| text.role);
        let role = role.map_or_else(|| "-".to_owned(), |role| format!("{role:?}"));
        let (code, tone, sentence) = (telling.code, telling.tone, telling.sentence());
        let subject = telling.subject.name();
        let _ = writeln!(words, "{code} [{subject}, {role}, {tone:?}] {sentence}");
    }
    insta::assert_snapshot!("words", words);
}

#[test]
fn a_telling_has_no_loose_ends() {
    for notice in &examples() {
        let telling = tell(notice);
        let sentence = telling.sentence();
        assert!(!sentence.trim().is_empty(), "{telling:?}");
        assert_eq!(sentence, sentence.trim(), "{telling:?}");
        assert!(telling.facts.iter().all(|(_, value)| !value.is_empty()), "{telling:?}");
        // The subject of a delegation is the task that delegates.
        if let (Subject::Task(task), Some(about)) = (telling.subject, notice.task())
            && !matches!(notice, Notice::BackgroundStarted { .. })
        {
            assert_eq!(task, about, "{telling:?}");
        }
    }
}

#[test]
fn an_answer_of_a_model_without_a_problem_is_plain() {
    let plain = |notice: &Notice| {
        matches!(notice, Notice::ModelAnswered { .. }) && tell(notice).tone == Tone::Plain
    };
    assert_eq!(examples().iter().filter(|notice| plain(notice)).count(), 1);
    let problems = examples();
    let problems = problems.iter().filter_map(|notice| tell(notice).text);
    assert!(problems.filter(|text| text.role == TextRole::Problem).count() > 5);
}
