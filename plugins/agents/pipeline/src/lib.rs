//! Pipeline: delegates to its stages, one after the other. Each gets the task and the output of the
//! stage before, and the last output is the answer. A failing stage ends the pipeline, and is named
//! (R-133). It has no model: the order is fixed.
//!
//! ```toml
//! [plugins.pipeline]
//! source = "stock:pipeline"
//! grants.delegate = ["research", "draft", "polish"]
//! config.stages = ["research", "draft", "polish"]
//!
//! [tasks.article]
//! agent = "pipeline"
//! ```
//!
//! A stage gets `task`, in words: the user's request and the previous stage's output. For stages
//! with declared inputs there are also `original`, the request alone, `previous`, the previous
//! stage's outputs, and `stage`, its own name.

use conclave_sdk::{Agent, Observation, Result, Turn, View, act, config, finish, reject, scratch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The `config` table of this plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    stages: Vec<String>,
}

/// The present stage. Stored between steps, because each step is a fresh instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Progress {
    /// The index of the stage, from 0.
    at: usize,
    task: String,
}

struct Pipeline;

impl Agent for Pipeline {
    fn step(view: &View) -> Result<Turn> {
        let settings: Settings = config::get()?;
        let kept: Option<Progress> = if view.iteration() == 0 { None } else { scratch::get()? };
        let (progress, turn) = match kept {
            None => begin(
                &settings.stages,
                view.latest_user_message()
                    .or_else(|| view.pending().map(|message| message.content))
                    .unwrap_or_default(),
            ),
            Some(progress) => go_on(&settings.stages, progress, view.last_observation()),
        };
        scratch::set(&progress)?;
        Ok(turn)
    }
}

fn begin(stages: &[String], task: String) -> (Progress, Turn) {
    let progress = Progress { at: 0, task };
    let turn = match stages.first() {
        Some(stage) if !progress.task.trim().is_empty() => hand_to(stage, &progress, None),
        Some(_) => reject("The task is empty."),
        None => reject("No stages are configured: set config.stages of this plugin."),
    };
    (progress, turn)
}

/// Continues after a stage has returned its outputs.
fn go_on(stages: &[String], progress: Progress, observed: Option<Observation>) -> (Progress, Turn) {
    let stage = stages.get(progress.at).map_or("a stage", String::as_str);
    let failed = |why: String| {
        reject(format!("Stage {} of {}, {stage}, failed: {why}", progress.at + 1, stages.len()))
    };
    let given = match given(observed) {
        Ok(given) => given,
        Err(why) => {
            let turn = failed(why);
            return (progress, turn);
        }
    };
    let next = Progress { at: progress.at + 1, ..progress };
    let turn = match stages.get(next.at) {
        Some(stage) => hand_to(stage, &next, Some(&given)),
        None => finish(answer(given)),
    };
    (next, turn)
}

fn hand_to(stage: &str, progress: &Progress, previous: Option<&Map<String, Value>>) -> Turn {
    let task = match previous {
        Some(previous) => {
            format!("{}\n\nResult of the previous stage:\n{}", progress.task, text_of(previous))
        }
        None => progress.task.clone(),
    };
    let inputs = json!({ "task": task, "original": progress.task, "previous": previous.cloned().unwrap_or_default(), "stage": stage });
    act::delegate(stage, inputs).because(format!("stage {}", progress.at + 1))
}

/// Returns a delegate's outputs, or the reason why there are none.
fn given(observed: Option<Observation>) -> std::result::Result<Map<String, Value>, String> {
    match observed {
        Some(Observation::Delegated((_, outputs))) => {
            let outputs: Map<String, Value> = serde_json::from_str(&outputs)
                .unwrap_or_else(|_| Map::from_iter([content(outputs)]));
            if outputs.get("rejected") == Some(&Value::Bool(true)) {
                Err(text_of(&outputs))
            } else {
                Ok(outputs)
            }
        }
        Some(Observation::Error(text)) => Err(text),
        _ => Err("it returned no result".into()),
    }
}

fn content(text: String) -> (String, Value) {
    ("content".to_owned(), Value::String(text))
}

/// Returns outputs in words: a single text unchanged, anything else as JSON.
fn text_of(outputs: &Map<String, Value>) -> String {
    let told: Vec<_> =
        outputs.iter().filter(|(key, _)| *key != "rejected" && *key != "metrics").collect();
    match told.as_slice() {
        [(_, Value::String(text))] => text.clone(),
        _ => Value::Object(
            told.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        )
        .to_string(),
    }
}

/// The last stage's outputs unchanged.
fn answer(outputs: Map<String, Value>) -> Value {
    match outputs.get("content") {
        Some(Value::String(text)) if outputs.len() == 1 => Value::String(text.clone()),
        _ => Value::Object(outputs),
    }
}

conclave_sdk::export!(agent: Pipeline);

#[cfg(test)]
mod tests {
    use conclave_sdk::actions::Action;
    use conclave_sdk::{Observation, Turn};
    use serde_json::{Value, json};

    use super::{Progress, begin, go_on};

    fn stages() -> Vec<String> {
        ["research", "draft"].map(str::to_owned).to_vec()
    }

    fn delegate(turn: &Turn) -> (String, Value) {
        let Action::Delegate(delegate) = turn.action() else { panic!("nobody is asked: {turn:?}") };
        (delegate.task.clone(), serde_json::from_str(&delegate.inputs).unwrap())
    }

    fn gave(progress: Progress, outputs: &Value) -> (Progress, Turn) {
        go_on(
            &stages(),
            progress,
            Some(Observation::Delegated((String::new(), outputs.to_string()))),
        )
    }

    #[test]
    fn each_stage_gets_the_task_and_what_the_one_before_gave() {
        let (progress, turn) = begin(&stages(), "write about lights".into());
        let (stage, inputs) = delegate(&turn);
        assert_eq!(
            (stage.as_str(), &inputs["task"], &inputs["previous"]),
            ("research", &json!("write about lights"), &json!({}))
        );
        let (progress, turn) = gave(progress, &json!({ "content": "lit in 1844" }));
        let (stage, inputs) = delegate(&turn);
        assert_eq!(stage, "draft");
        assert_eq!(
            inputs["task"],
            "write about lights\n\nResult of the previous stage:\nlit in 1844"
        );
        assert_eq!(
            (&inputs["original"], &inputs["previous"]["content"]),
            (&json!("write about lights"), &json!("lit in 1844"))
        );
        let (_, turn) = gave(progress, &json!({ "content": "A light." }));
        assert_eq!(turn.action(), &Action::Finish("\"A light.\"".into()));
    }

    #[test]
    fn outputs_stay_what_they_are() {
        let (progress, _) = begin(&stages(), "x".into());
        let (progress, turn) = gave(progress, &json!({ "facts": ["a"], "metrics": {} }));
        assert_eq!(
            delegate(&turn).1["task"],
            "x\n\nResult of the previous stage:\n{\"facts\":[\"a\"]}"
        );
        let (_, turn) = gave(progress, &json!({ "title": "A", "text": "B" }));
        assert_eq!(turn.action(), &Action::Finish(r#"{"text":"B","title":"A"}"#.into()));
    }

    #[test]
    fn a_stage_that_fails_ends_it_and_is_named() {
        let failures = [
            (Some(Observation::Error("no disk".into())), "Stage 1 of 2, research, failed: no disk"),
            (
                Some(Observation::Delegated((
                    String::new(),
                    json!({ "content": "not mine", "rejected": true }).to_string(),
                ))),
                "Stage 1 of 2, research, failed: not mine",
            ),
            (None, "Stage 1 of 2, research, failed: it returned no result"),
        ];
        for (observed, expected) in failures {
            let (_, turn) = go_on(&stages(), Progress { at: 0, task: "x".into() }, observed);
            assert_eq!(turn.action(), &Action::Reject(Value::from(expected).to_string()));
        }
    }

    #[test]
    fn without_stages_or_a_task_nothing_begins() {
        assert!(
            matches!(begin(&[], "x".into()).1.action(), Action::Reject(text) if text.contains("config.stages"))
        );
        assert!(
            matches!(begin(&stages(), " ".into()).1.action(), Action::Reject(text) if text.contains("task is empty"))
        );
    }
}
