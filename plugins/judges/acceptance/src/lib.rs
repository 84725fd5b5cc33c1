//! Acceptance: patterns that an answer has to match, a pattern that ends the task, and one that
//! extracts the result. Calls, and answers of other responders than its own, are left to the host.
//! A pattern that is wrong is an error, which ends the task.

use conclave_sdk::judge::{Answer, Ending, Judge, TaskResult};
use conclave_sdk::{Error, Result, View, config};
use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    require: Vec<String>,
    #[serde(default)]
    done_when: Option<String>,
    #[serde(default)]
    result: Option<String>,
    #[serde(default = "model")]
    responders: Vec<String>,
    #[serde(default = "usually")]
    ignore_case: bool,
    /// Whether the agent reads which pattern its answer lacks.
    #[serde(default)]
    explain: bool,
}

fn model() -> Vec<String> {
    vec!["llm".to_owned()]
}

fn usually() -> bool {
    true
}

struct Acceptance;

impl Judge for Acceptance {
    fn valid(answer: &Answer, _view: &View) -> Result<Option<bool>> {
        let settings: Settings = config::get()?;
        if settings.require.is_empty() || !settings.judges(answer) {
            return Ok(None);
        }
        Ok(Some(settings.missing(answer)?.is_none()))
    }

    fn done(answer: &Answer, _view: &View) -> Result<Option<bool>> {
        let settings: Settings = config::get()?;
        let Some(pattern) = settings.done_when.as_ref().filter(|_| settings.judges(answer)) else {
            return Ok(None);
        };
        let pattern = settings.compiled("done_when", pattern)?;
        Ok(pattern.is_match(&answer.message.content).then_some(true))
    }

    fn feedback(answer: &Answer, _view: &View) -> Result<Option<String>> {
        let settings: Settings = config::get()?;
        let missing = settings.missing(answer)?.filter(|_| settings.explain);
        Ok(missing.map(|pattern| format!("It must match the pattern {pattern:?}.")))
    }

    fn result(ending: &Ending, _view: &View) -> Result<Option<TaskResult>> {
        let settings: Settings = config::get()?;
        let Some(pattern) = &settings.result else { return Ok(None) };
        let pattern = settings.compiled("result", pattern)?;
        let extracted = pattern.captures(&ending.result.text).and_then(|captures| {
            let found = captures.get(1).or_else(|| captures.get(0))?;
            Some(TaskResult::text(found.as_str()))
        });
        Ok(extracted)
    }
}

impl Settings {
    /// Whether the answer is a text of a responder that is judged. A message with calls answers
    /// nothing yet.
    fn judges(&self, answer: &Answer) -> bool {
        answer.message.tool_calls.is_empty() && self.responders.contains(&answer.responder)
    }

    /// Returns the first required pattern that the answer does not match.
    fn missing(&self, answer: &Answer) -> Result<Option<&str>> {
        for (index, pattern) in self.require.iter().enumerate() {
            let compiled = self.compiled(&format!("require[{index}]"), pattern)?;
            if !compiled.is_match(&answer.message.content) {
                return Ok(Some(pattern));
            }
        }
        Ok(None)
    }

    fn compiled(&self, key: &str, pattern: &str) -> Result<Regex> {
        if pattern.is_empty() {
            return Err(Error::other(format!("{key} is empty, and would match every text")));
        }
        let built = RegexBuilder::new(pattern).case_insensitive(self.ignore_case).build();
        built.map_err(|error| Error::other(format!("{key} is wrong: {error}")))
    }
}

conclave_sdk::export!(judge: Acceptance);

#[cfg(test)]
mod tests {
    use conclave_sdk::ToolCall;
    use conclave_sdk::testing::{FakeHost, TaskSnapshot, answer, ending};
    use serde_json::{Value, json};

    use super::*;

    fn valid(settings: &Value, answer: &Answer) -> Result<Option<bool>> {
        let task = TaskSnapshot::asked("When was it lit?");
        let mut host = FakeHost::new().config(settings.clone());
        host.run(|| Acceptance::valid(answer, &task.view()))
    }

    #[test]
    fn an_answer_is_valid_if_every_pattern_matches() {
        let settings = json!({ "require": [r"\b1\d{3}\b", "LIT"] });
        let valid = |answer: &Answer| valid(&settings, answer).unwrap();
        assert_eq!(valid(&answer("It was lit in 1844.")), Some(true));
        assert_eq!(valid(&answer("In 1844.")), Some(false));
        assert_eq!(valid(&answer("It was lit long ago.")), Some(false));
        // Calls, and what others say, are none of its business.
        let mut calls = answer("");
        let (id, name) = ("1".to_owned(), "search.find".to_owned());
        calls.message.tool_calls = vec![ToolCall { id, name, arguments: "{}".to_owned() }];
        assert_eq!(valid(&calls), None);
        assert_eq!(valid(&Answer { responder: "user".to_owned(), ..answer("Go on.") }), None);
    }

    #[test]
    fn an_agent_reads_which_pattern_its_answer_lacks_if_the_operator_wants_it() {
        let task = TaskSnapshot::asked("When was it lit?");
        let words = |explain: bool| {
            let settings = json!({ "require": ["lit", r"\d"], "explain": explain });
            let mut host = FakeHost::new().config(settings);
            host.run(|| Acceptance::feedback(&answer("It was lit."), &task.view()))
        };
        assert_eq!(words(true), Ok(Some(r#"It must match the pattern "\\d"."#.to_owned())));
        assert_eq!(words(false), Ok(None));
    }

    #[test]
    fn a_pattern_ends_the_task_and_one_extracts_the_result() {
        let task = TaskSnapshot::asked("When was it lit?");
        let settings = json!({ "done_when": "that is all", "result": r"year:\s*(\d+)" });
        let mut host = FakeHost::new().config(settings);
        host.run(|| {
            let done = |text: &str| Acceptance::done(&answer(text), &task.view()).unwrap();
            assert_eq!(done("Year: 1844. That is all."), Some(true));
            assert_eq!(done("Year: 1844."), None);
            let result = |text: &str| Acceptance::result(&ending(text), &task.view()).unwrap();
            assert_eq!(result("Year: 1844. That is all."), Some(TaskResult::text("1844")));
            assert_eq!(result("I do not know."), None);
        });
        let mut whole = FakeHost::new().config(json!({ "result": r"\d+" }));
        let result = whole.run(|| Acceptance::result(&ending("In 1844."), &task.view()));
        assert_eq!(result, Ok(Some(TaskResult::text("1844"))));
    }

    #[test]
    fn a_wrong_pattern_is_an_error_with_its_key() {
        for (settings, key) in [
            (json!({ "require": ["("] }), "require[0]"),
            (json!({ "require": ["a", ""] }), "require[1]"),
        ] {
            let error = valid(&settings, &answer("a")).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        let exact = json!({ "require": ["lit"], "ignore_case": false });
        assert_eq!(valid(&exact, &answer("LIT")), Ok(Some(false)));
    }
}
