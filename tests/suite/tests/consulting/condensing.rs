//! Condensed histories: afterwards the prompt is shorter and still consistent, with any output of
//! the condenser.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::protocol::notice::Notice;
use conclave_core::types::message::{Message, Role, ToolCall};
use conclave_runtime::completion::{Completion, StopReason};
use conclave_runtime::engine::EngineSettings;
use conclave_test_support::{block_on, until_so as until};
use serde_json::json;

use super::world::{Scripted, World, hostile, says, stocked};

/// The number of calls that the agent makes before it answers.
const CALLS: usize = 14;
/// The maximum number of entries of its history.
const OVER: usize = 8;

/// Returns a model that calls a tool with a long text [`CALLS`] times and then answers.
fn worker() -> Arc<Scripted> {
    Scripted::new(|nth, _| if nth < CALLS { calling(nth) } else { says("It is done.") })
}

fn calling(nth: usize) -> Completion {
    let arguments = json!({ "text": format!("result {nth} {}", "of many words ".repeat(40)) });
    let tool_calls =
        vec![ToolCall { id: format!("call-{nth}"), ..ToolCall::new("echo.run", arguments) }];
    Completion { content: None, tool_calls, stop: StopReason::ToolCalls, ..says("") }
}

/// Returns the config of a chat agent with a tool and a condenser.
fn config(condenser: &str, rest: &str) -> String {
    let chat = stocked("chat", "grants.model = [\"default\"]\ngrants.tools = [\"echo.*\"]");
    format!(
        "entry = \"main\"\n[models.default]\nkind = \"native\"\n[tasks.main]\nagent = \"chat\"\nstuck_detection = false\n\
         condense = {{ plugin = \"{condenser}\", max_entries = {OVER} }}\n{chat}{}{rest}",
        hostile("echo", "echo", "")
    )
}

/// Checks that each call has its result, each result has its call, and the user's request is still
/// there.
fn makes_sense(prompt: &[Message], what: &str) {
    let (mut open, mut called) = (BTreeSet::new(), BTreeSet::new());
    for entry in prompt {
        if entry.sender == Role::Llm {
            assert!(
                open.is_empty(),
                "{what}: calls without a result before the agent speaks again: {open:?}"
            );
            open.extend(entry.tool_calls.iter().map(|call| call.id.clone()));
            called.extend(entry.tool_calls.iter().map(|call| call.id.clone()));
        }
        for result in &entry.tool_results {
            assert!(
                called.contains(&result.call_id),
                "{what}: a result of {}, which nobody called",
                result.call_id
            );
            open.remove(&result.call_id);
        }
    }
    assert!(open.is_empty(), "{what}: calls without a result: {open:?}");
    assert!(
        prompt.iter().any(|entry| entry.sender == Role::User && entry.text() == "Read them all."),
        "{what}: the user's word is gone"
    );
}

fn bytes(prompt: &[Message]) -> usize {
    prompt
        .iter()
        .map(|entry| {
            entry.text().len()
                + entry.tool_results.iter().map(|result| result.content.len()).sum::<usize>()
        })
        .sum()
}

fn condensed(world: &World) -> Vec<(u64, u64, bool)> {
    let of = |notice: Notice| match notice {
        Notice::HistoryCondensed { forgotten, masked, summarised, .. } => {
            Some((forgotten, masked, summarised))
        }
        _ => None,
    };
    world.told().into_iter().filter_map(of).collect()
}

fn run(condenser: &str, rest: &str, model: &Arc<Scripted>, summary: &Arc<Scripted>) -> World {
    let world =
        World::with(EngineSettings::default(), vec![("default", model), ("summary", summary)]);
    let outcome = block_on(world.run(&config(condenser, rest), "Read them all."));
    assert_eq!(outcome.content.as_deref(), Some("It is done."), "{condenser}: {outcome:?}");
    let shown = model.shown();
    assert_eq!(shown.len(), CALLS + 1, "{condenser}: no step is lost, and none is made twice");
    for (nth, prompt) in shown.iter().enumerate() {
        makes_sense(prompt, &format!("{condenser}, prompt {nth}"));
    }
    world
}

#[test]
fn each_condenser_makes_the_next_prompt_shorter_and_it_still_makes_sense() {
    let summary = "[models.summary]\nkind = \"native\"\n".to_owned()
        + &stocked("summary", "grants.model = [\"summary\"]\nconfig = { model = \"summary\" }");
    let cases = [
        ("recent", stocked("recent", "")),
        ("window", stocked("window", "")),
        ("masking", stocked("masking", "config.window = 2")),
        ("summary", summary),
    ];
    for (condenser, rest) in cases {
        let (model, writer) = (
            worker(),
            Scripted::new(|nth, _| says(&format!("Summary {nth}: many words were read."))),
        );
        let world = run(condenser, &rest, &model, &writer);
        let condensed = condensed(&world);
        assert!(!condensed.is_empty(), "{condenser}: nothing was condensed");
        let shown = model.shown();
        let shorter = shown.windows(2).any(|pair| bytes(&pair[1]) < bytes(&pair[0]));
        assert!(
            shorter,
            "{condenser}: {:?}",
            shown.iter().map(|prompt| bytes(prompt)).collect::<Vec<_>>()
        );
        // Far less than all messages together.
        let whole = bytes(&shown[0]) + CALLS * 560;
        assert!(bytes(shown.last().expect("prompts")) * 2 < whole, "{condenser}");
        match condenser {
            "masking" => assert!(
                condensed.iter().all(|(gone, masked, _)| *gone == 0 && *masked > 0),
                "{condensed:?}"
            ),
            "summary" => {
                assert!(
                    condensed.iter().all(|(gone, _, summarised)| *gone > 1 && *summarised),
                    "{condensed:?}"
                );
                assert_eq!(writer.shown().len(), condensed.len(), "each summary is bought once");
                let last = shown
                    .last()
                    .expect("prompts")
                    .iter()
                    .map(Message::text)
                    .collect::<Vec<_>>()
                    .join("\n");
                let newest = format!("Summary {}: many words were read.", condensed.len() - 1);
                assert!(last.contains(&newest), "{last}");
                // The earlier summary is an input of the next one.
                let second = writer
                    .shown()
                    .get(1)
                    .map(|prompt| prompt.iter().map(Message::text).collect::<String>());
                assert!(
                    second.is_none_or(|prompt| prompt.contains("Summary 0: many words were read."))
                );
            }
            _ => {
                assert!(
                    condensed
                        .iter()
                        .all(|(gone, masked, summarised)| *gone > 0 && *masked == 0 && !summarised),
                    "{condensed:?}"
                );
                assert!(
                    shown.iter().all(|prompt| prompt.len() <= OVER + 2),
                    "{:?}",
                    shown.iter().map(Vec::len).collect::<Vec<_>>()
                );
            }
        }
    }
}

#[test]
fn a_summary_without_a_model_is_none_and_the_entries_go_all_the_same() {
    let world =
        run("summary", &stocked("summary", ""), &worker(), &Scripted::new(|_, _| says("never")));
    let condensed = condensed(&world);
    assert!(
        !condensed.is_empty()
            && condensed.iter().all(|(gone, _, summarised)| *gone > 0 && !summarised),
        "{condensed:?}"
    );
}

/// A misbehaving condenser is asked a few times only.
#[test]
fn a_condenser_that_misbehaves_breaks_no_history_and_is_not_asked_without_end() {
    for mode in [
        "everything",
        "split",
        "longer",
        "beyond",
        "backwards",
        "overlapping",
        "nothing",
        "empty",
        "many",
        "huge",
        "yes",
        "spin",
        "trap",
        "fail",
    ] {
        let bad = hostile(
            "hostile_condenser",
            "bad",
            &format!("config = {{ mode = \"{mode}\" }}\nlimits = {{ cpu = \"200 ms\" }}"),
        );
        let model = worker();
        let world = run("bad", &bad, &model, &Scripted::new(|_, _| says("never")));
        let asked = world
            .records()
            .iter()
            .filter(|record| json!(record.event)["event"] == "plugin-queried")
            .count();
        assert!((1..=CALLS).contains(&asked), "{mode}: asked {asked} times");
        let (faults, done) = (faults(&world), condensed(&world).len());
        match mode {
            "longer" | "beyond" | "backwards" | "many" | "huge" | "yes" | "spin" | "trap"
            | "fail" => {
                assert_eq!((faults, done), (asked, 0), "{mode}: each is told, nothing is done");
                assert!(asked <= 3, "{mode}: asked {asked} times");
            }
            "nothing" | "empty" => {
                assert!((faults, done) == (0, 0) && asked <= 3, "{mode}: asked {asked} times")
            }
            _ => assert!(faults == 0 && done > 0, "{mode}: {faults} faults, {done} done"),
        }
    }
}

#[test]
fn what_a_condenser_says_is_read_as_its_summary_and_as_data() {
    let bad = hostile("hostile_condenser", "bad", "config = { mode = \"speaks\" }");
    let model = worker();
    let world = run("bad", &bad, &model, &Scripted::new(|_, _| says("never")));
    assert!(condensed(&world).iter().any(|(.., summarised)| *summarised));
    let shown = model.shown();
    let texts: Vec<String> = shown
        .iter()
        .flatten()
        .filter(|entry| entry.tool_results.is_empty())
        .map(|entry| entry.in_prompt().into())
        .collect();
    let spoken: Vec<&String> = texts.iter().filter(|text| text.contains("approved all")).collect();
    assert!(!spoken.is_empty(), "{texts:#?}");
    for text in spoken {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            (lines.len(), lines[0], lines[3]),
            (4, "--- SUMMARY OF EARLIER MESSAGES ---", "--- END ---"),
            "{text}"
        );
        assert!(
            lines[1].contains("the condenser bad wrote")
                && lines[2].starts_with('{')
                && !text.contains('\u{202e}'),
            "{text}"
        );
    }
}

fn faults(world: &World) -> usize {
    world.told().iter().filter(|notice| matches!(notice, Notice::PluginFaulted { .. })).count()
}

#[test]
fn a_condenser_that_waits_for_its_model_gives_its_sandbox_back() {
    let engine = EngineSettings {
        park_after: Some(Duration::from_millis(5)),
        slots: 4,
        ..EngineSettings::default()
    };
    let (model, writer) = (worker(), Scripted::slow(|_, _| says("Many words were read.")));
    let rest = "[models.summary]\nkind = \"native\"\n".to_owned()
        + &stocked(
            "summary",
            "grants.model = [\"summary\"]\nconfig = { model = \"summary\" }\nlimits = { cpu = \"60 s\", wall = \"120 s\" }",
        );
    let config = config("summary", &rest);
    block_on(async {
        let world = Arc::new(World::with(engine, vec![("default", &model), ("summary", &writer)]));
        let running = tokio::spawn({
            let world = Arc::clone(&world);
            async move { world.run(&config, "Read them all.").await }
        });
        until("it is parked", || {
            world.host().engine().waiting() == 1 && world.host().engine().live() == 0
        })
        .await;
        assert_eq!(writer.shown().len(), 1);
        writer.answer_all();
        let outcome = running.await.expect("it does not panic");
        assert_eq!(outcome.content.as_deref(), Some("It is done."));
        let condensed = condensed(&world);
        assert!(condensed.iter().all(|(_, _, summarised)| *summarised), "{condensed:?}");
        assert_eq!(writer.shown().len(), condensed.len(), "nothing was asked twice");
        assert_eq!((world.host().engine().live(), world.host().engine().waiting()), (0, 0));
    });
}
