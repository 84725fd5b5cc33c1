//! Delegator: delegates to one agent that studies the material, one that works, and one that
//! verifies. If the work is rejected it is repeated, with the reason, until it is accepted or the
//! rounds are used up (O-093). It has no model: the order is fixed.
//!
//! ```toml
//! [plugins.delegator]
//! source = "../../target/conclave/guests/delegator.wasm"
//! grants.delegate = ["study", "work", "verify"]
//! config = { rounds = 3 }
//!
//! [tasks.mend]
//! agent = "delegator"
//! ```
//!
//! Each of the three gets `task`, the user's request, and the results of the others: `summary`,
//! `result` and `reason`. The last two are empty for the first round of work. The verifier returns
//! `completed`, true or false, and a `reason`.

use conclave_sdk::{Agent, Observation, Result, Turn, View, act, config, finish, reject, scratch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The `config` table of this plugin.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct Settings {
    study: String,
    work: String,
    verify: String,
    rounds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { study: "study".into(), work: "work".into(), verify: "verify".into(), rounds: 3 }
    }
}

/// The agent that works now, and the results so far. Stored between steps, because each step is a
/// fresh instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Progress {
    phase: Phase,
    /// The round of work and verification, from 1.
    round: u32,
    task: String,
    summary: Value,
    result: Value,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
enum Phase {
    #[default]
    Study,
    Work,
    Verify,
}

struct Delegator;

impl Agent for Delegator {
    fn step(view: &View) -> Result<Turn> {
        let settings: Settings = config::get()?;
        let kept: Option<Progress> = if view.iteration() == 0 { None } else { scratch::get()? };
        let (progress, turn) = match kept {
            None => begin(
                &settings,
                view.latest_user_message()
                    .or_else(|| view.pending().map(|message| message.content))
                    .unwrap_or_default(),
            ),
            Some(progress) => go_on(&settings, progress, view.last_observation()),
        };
        scratch::set(&progress)?;
        Ok(turn)
    }
}

fn begin(settings: &Settings, task: String) -> (Progress, Turn) {
    let turn =
        act::delegate(&settings.study, json!({ "task": task })).because("to know what there is");
    (Progress { task, ..Progress::default() }, turn)
}

/// Continues after a delegate has returned its result.
fn go_on(
    settings: &Settings,
    mut progress: Progress,
    observed: Option<Observation>,
) -> (Progress, Turn) {
    let who = match progress.phase {
        Phase::Study => &settings.study,
        Phase::Work => &settings.work,
        Phase::Verify => &settings.verify,
    };
    let given = match observed {
        Some(Observation::Delegated((_, outputs))) => {
            serde_json::from_str(&outputs).unwrap_or(Value::String(outputs))
        }
        Some(Observation::Error(text)) => {
            return (progress, reject(format!("{who} could not help: {text}")));
        }
        _ => return (progress, reject(format!("{who} gave nothing."))),
    };
    let turn = match progress.phase {
        Phase::Study => {
            progress.summary = given;
            work(settings, &mut progress, None)
        }
        Phase::Work => {
            progress.phase = Phase::Verify;
            progress.result = given;
            let inputs = json!({ "task": progress.task, "summary": progress.summary, "result": progress.result });
            act::delegate(&settings.verify, inputs).because("somebody else should look at it")
        }
        Phase::Verify if is_completed(&given) => finish(progress.result.clone()),
        Phase::Verify if progress.round >= settings.rounds => {
            let times = if progress.round == 1 {
                "once".to_owned()
            } else {
                format!("{} times", progress.round)
            };
            reject(format!("The work was done {times} and is not good: {}", reason(&given)))
        }
        Phase::Verify => work(settings, &mut progress, Some(reason(&given))),
    };
    (progress, turn)
}

fn work(settings: &Settings, progress: &mut Progress, reason: Option<String>) -> Turn {
    progress.phase = Phase::Work;
    progress.round += 1;
    let why = if reason.is_some() {
        "what was done is not good yet"
    } else {
        "it is known what there is"
    };
    // Empty but present in the first round: a micro-agent may declare them as inputs, and is not
    // started without them.
    let result = if progress.result.is_null() { Value::from("") } else { progress.result.clone() };
    let reason = reason.unwrap_or_default();
    let inputs = json!({ "task": progress.task, "summary": progress.summary, "result": result, "reason": reason });
    act::delegate(&settings.work, inputs).because(why)
}

/// Only a clear yes counts: a verifier that says nothing about it has not verified.
fn is_completed(given: &Value) -> bool {
    match verdict(given).get("completed") {
        Some(Value::Bool(completed)) => *completed,
        Some(Value::String(text)) => {
            text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("yes")
        }
        _ => false,
    }
}

fn reason(given: &Value) -> String {
    let verdict = verdict(given);
    let said = ["reason", "summary", "content"]
        .iter()
        .find_map(|key| verdict.get(*key).and_then(Value::as_str).map(str::to_owned));
    said.unwrap_or_else(|| given.to_string())
}

/// The verifier's outputs, or an object with its words.
fn verdict(given: &Value) -> Map<String, Value> {
    let outputs = given.as_object().cloned().unwrap_or_default();
    if outputs.contains_key("completed") {
        return outputs;
    }
    let words = outputs.get("content").or(Some(given)).and_then(Value::as_str).unwrap_or_default();
    match conclave_sdk::value_in(words) {
        Ok(Value::Object(told)) => told,
        _ => outputs,
    }
}

conclave_sdk::export!(agent: Delegator);

#[cfg(test)]
mod tests {
    use conclave_sdk::actions::Action;
    use conclave_sdk::{Observation, Turn};
    use serde_json::{Value, json};

    use super::{Progress, Settings, begin, go_on, is_completed, reason};

    fn delegate(turn: &Turn) -> (String, Value) {
        let Action::Delegate(delegate) = turn.action() else { panic!("nobody is asked: {turn:?}") };
        (delegate.task.clone(), serde_json::from_str(&delegate.inputs).unwrap())
    }

    fn gave(progress: Progress, outputs: &Value) -> (Progress, Turn) {
        go_on(
            &Settings::default(),
            progress,
            Some(Observation::Delegated((String::new(), outputs.to_string()))),
        )
    }

    fn until_verified() -> Progress {
        let (progress, turn) = begin(&Settings::default(), "mend it".into());
        assert_eq!(delegate(&turn), ("study".into(), json!({ "task": "mend it" })));
        let (progress, turn) = gave(progress, &json!({ "summary": "a typo" }));
        assert_eq!(
            delegate(&turn),
            (
                "work".into(),
                json!({ "task": "mend it", "summary": { "summary": "a typo" }, "result": "", "reason": "" })
            )
        );
        let (progress, turn) = gave(progress, &json!({ "diff": "+a" }));
        assert_eq!(delegate(&turn).0, "verify");
        assert_eq!(delegate(&turn).1["result"], json!({ "diff": "+a" }));
        progress
    }

    #[test]
    fn good_work_is_the_answer() {
        let (_, turn) = gave(until_verified(), &json!({ "completed": true }));
        assert_eq!(turn.action(), &Action::Finish(r#"{"diff":"+a"}"#.into()));
    }

    #[test]
    fn other_work_is_done_again_with_the_reason_and_not_for_ever() {
        let bad = json!({ "completed": false, "reason": "no test" });
        let mut progress = until_verified();
        for _ in 1..Settings::default().rounds {
            let (again, turn) = gave(progress, &bad);
            assert_eq!(
                (delegate(&turn).0.as_str(), &delegate(&turn).1["reason"]),
                ("work", &json!("no test"))
            );
            progress = gave(again, &json!({ "diff": "+b" })).0;
        }
        let (_, turn) = gave(progress, &bad);
        assert_eq!(
            turn.action(),
            &Action::Reject(r#""The work was done 3 times and is not good: no test""#.into())
        );
    }

    #[test]
    fn whoever_cannot_help_ends_it() {
        for (observed, expected) in [
            (Some(Observation::Error("refused".into())), "study could not help: refused"),
            (None, "study gave nothing."),
        ] {
            let (_, turn) = go_on(&Settings::default(), Progress::default(), observed);
            assert_eq!(turn.action(), &Action::Reject(Value::from(expected).to_string()));
        }
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let yes = [
            json!({ "completed": true }),
            json!({ "completed": "Yes" }),
            json!({ "content": "So: {\"completed\": true}", "status": "DONE" }),
        ];
        let no = [
            json!({}),
            json!("fine"),
            json!({ "content": "completed" }),
            json!({ "completed": 1 }),
            json!({ "completed": "no" }),
        ];
        assert!(yes.iter().all(is_completed) && !no.iter().any(is_completed));
        assert_eq!(
            reason(&json!({ "content": "{\"completed\": false, \"reason\": \"slow\"}" })),
            "slow"
        );
        assert_eq!(reason(&json!({ "content": "It is slow." })), "It is slow.");
    }
}
