//! The progress of a task, and its next turn. Pure: it maps an observation to a turn.

use conclave_sdk::{Observation, Turn, act, finish, reject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Mode, Settings};

/// The state between steps, because each step is a fresh instance. Results are texts: the scratch
/// is small, and models read the results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    task: String,
    /// The number of revisions so far.
    revision: u32,
    is_reviewed: bool,
    /// The workers' results in this revision, by name, in order.
    outputs: Vec<(String, String)>,
    /// Their results in the rejected revision before.
    before: Vec<(String, String)>,
    feedback: String,
}

/// The outputs of a delegate, or its error.
type Came = Result<Map<String, Value>, String>;

impl Progress {
    pub(crate) fn begin(settings: &Settings, task: String) -> (Self, Turn) {
        let progress = Self { task, ..Self::default() };
        let turn = match settings.workers.as_slice() {
            [] => reject("No workers are configured: set config.workers of this plugin."),
            _ if progress.task.trim().is_empty() => reject("The task is empty."),
            _ => progress.work(settings),
        };
        (progress, turn)
    }

    /// Continues after the workers or the reviewer have returned their results.
    pub(crate) fn go_on(self, settings: &Settings, observed: Vec<Observation>) -> (Self, Turn) {
        let came: Vec<Came> = observed.into_iter().filter_map(came_of).collect();
        if self.is_reviewed { self.reviewed(settings, came) } else { self.worked(settings, came) }
    }

    fn worked(mut self, settings: &Settings, mut came: Vec<Came>) -> (Self, Turn) {
        let asked: Vec<String> = match settings.mode {
            Mode::Sequential => {
                settings.workers.iter().skip(self.outputs.len()).take(1).cloned().collect()
            }
            Mode::Parallel => settings.workers.clone(),
        };
        // A delegation that failed as a whole is one error for all delegates.
        came.resize_with(asked.len().max(1), || Err("it returned no result".to_owned()));
        let mut failed = Vec::new();
        for (worker, came) in asked.into_iter().zip(came) {
            match came {
                Ok(outputs) => self.outputs.push((worker, text_of(&outputs))),
                Err(why) => failed.push(format!("{worker} failed: {why}")),
            }
        }
        let turn =
            if failed.is_empty() { self.next(settings) } else { reject(self.stopped(&failed)) };
        (self, turn)
    }

    fn next(&mut self, settings: &Settings) -> Turn {
        if self.outputs.len() < settings.workers.len() {
            return self.work(settings);
        }
        if settings.review.is_empty() {
            return finish(self.result(settings));
        }
        self.is_reviewed = true;
        let result = self.result(settings);
        let task = format!(
            "Review the result of a task. The task:\n{}\n\nThe result:\n{result}\n\n\
             Answer with JSON only: \
             {{\"approved\": true or false, \"feedback\": \"what to change\"}}",
            self.task
        );
        let inputs = json!({ "task": task, "original": self.task, "result": result, "outputs": self.by_name() });
        act::delegate(&settings.review, inputs).because("the result is reviewed")
    }

    fn reviewed(mut self, settings: &Settings, came: Vec<Came>) -> (Self, Turn) {
        let verdict =
            came.into_iter().next().unwrap_or_else(|| Err("it returned no result".to_owned()));
        let feedback = match verdict.map(|outputs| verdict_of(&outputs)) {
            Ok((true, _)) => {
                let turn = finish(self.result(settings));
                return (self, turn);
            }
            Ok((false, feedback)) => feedback,
            // Without a verdict there is no feedback, so repeating the work would not help.
            Err(why) => {
                let result = self.result(settings);
                let turn = reject(format!(
                    "The result is not approved: {} did not return a review: {why}\n\n\
                     The result:\n{result}",
                    settings.review
                ));
                return (self, turn);
            }
        };
        if self.revision >= settings.revisions {
            let times = if self.revision == 1 {
                "once".to_owned()
            } else {
                format!("{} times", self.revision)
            };
            let result = self.result(settings);
            let turn = reject(format!(
                "The result was revised {times} and is not approved: {feedback}\n\n\
                 The last result:\n{result}"
            ));
            return (self, turn);
        }
        let before = std::mem::take(&mut self.outputs);
        let again =
            Self { revision: self.revision + 1, is_reviewed: false, before, feedback, ..self };
        let turn = again.work(settings);
        (again, turn)
    }

    fn work(&self, settings: &Settings) -> Turn {
        let inputs = |worker: &str| {
            let mut task = self.task.clone();
            if !self.outputs.is_empty() {
                task += &format!("\n\nResults of the other workers:\n{}", sections(&self.outputs));
            }
            if let Some((_, text)) = self.before.iter().find(|(name, _)| name == worker) {
                task += &format!("\n\nYour previous result:\n{text}");
            }
            if !self.feedback.is_empty() {
                task += &format!(
                    "\n\nThe result was not approved. Do the task again and follow this feedback:\n\
                     {}",
                    self.feedback
                );
            }
            json!({ "task": task, "original": self.task, "outputs": self.by_name(), "feedback": self.feedback })
        };
        match settings.mode {
            Mode::Sequential => {
                let worker = settings.workers.get(self.outputs.len()).map_or("", String::as_str);
                act::delegate(worker, inputs(worker)).because(self.why())
            }
            Mode::Parallel => {
                let all = settings.workers.iter().map(|worker| (worker.as_str(), inputs(worker)));
                act::delegate_all(all).because(self.why())
            }
        }
    }

    fn why(&self) -> String {
        if self.revision == 0 {
            "first version".to_owned()
        } else {
            format!("revision {}", self.revision)
        }
    }

    /// The result: with successive workers the last one's, and otherwise each one's under its name.
    fn result(&self, settings: &Settings) -> String {
        match (settings.mode, self.outputs.as_slice()) {
            (Mode::Sequential, [.., (_, last)]) => last.clone(),
            (_, outputs) => sections(outputs),
        }
    }

    fn by_name(&self) -> Value {
        Value::Object(
            self.outputs.iter().map(|(worker, text)| (worker.clone(), json!(text))).collect(),
        )
    }

    /// The text of a failure. It names the failed workers, and includes the others' results.
    fn stopped(&self, failed: &[String]) -> String {
        let failed = failed.join("\n");
        if self.outputs.is_empty() {
            failed
        } else {
            format!("{failed}\n\nResults so far:\n{}", sections(&self.outputs))
        }
    }
}

fn sections(outputs: &[(String, String)]) -> String {
    outputs
        .iter()
        .map(|(worker, text)| format!("## {worker}\n\n{text}"))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// A delegate's outputs or its error. `None` for any other observation.
fn came_of(observed: Observation) -> Option<Came> {
    match observed {
        Observation::Delegated((_, outputs)) => {
            let outputs: Map<String, Value> = serde_json::from_str(&outputs).unwrap_or_else(|_| {
                Map::from_iter([("content".to_owned(), Value::String(outputs))])
            });
            let is_rejected = outputs.get("rejected") == Some(&Value::Bool(true));
            Some(if is_rejected { Err(text_of(&outputs)) } else { Ok(outputs) })
        }
        Observation::Error(text) => Some(Err(text)),
        _ => None,
    }
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

/// Approves only if `approved` is true. Returns the reviewer's feedback, or else its whole text.
fn verdict_of(outputs: &Map<String, Value>) -> (bool, String) {
    let words = text_of(outputs);
    let verdict = if outputs.contains_key("approved") {
        outputs.clone()
    } else {
        match conclave_sdk::value_in(&words) {
            Ok(Value::Object(verdict)) => verdict,
            _ => Map::new(),
        }
    };
    let feedback = ["feedback", "reason"]
        .iter()
        .find_map(|key| verdict.get(*key)?.as_str().filter(|text| !text.trim().is_empty()));
    (verdict.get("approved") == Some(&Value::Bool(true)), feedback.map_or(words, str::to_owned))
}
