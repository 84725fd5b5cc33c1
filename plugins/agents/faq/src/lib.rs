//! FAQ: answers known questions with texts of the config, as its responder, and asks a model the
//! rest. With the task's `agent_responder = "host-then-component"`, which is the default, the
//! responder is asked before the model.

use conclave_sdk::{Agent, Error, Responder, Result, Role, Turn, View, config, finish, model};
use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Settings {
    answers: Vec<Known>,
}

/// A known question, and its answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// Words that a question holds, in any order and any case.
    words: Vec<String>,
    text: String,
}

struct Faq;

impl Responder for Faq {
    fn respond(view: &View) -> Result<Option<Turn>> {
        // A model's text is an answer already, and a tool's result is for the model.
        let asked = view.pending().filter(|message| message.sender == Role::User);
        let Some(question) = asked else { return Ok(None) };
        let settings: Settings = config::get()?;
        // The answer ends the task, so no model is asked about it; in a conversation only the user
        // ends it.
        Ok(answer(&settings.answers, &question.content)?.map(finish))
    }
}

impl Agent for Faq {
    fn step(_view: &View) -> Result<Turn> {
        Ok(model::answer()?.into())
    }
}

/// Returns the first answer whose words all occur in the question.
fn answer<'a>(known: &'a [Known], question: &str) -> Result<Option<&'a str>> {
    if known.iter().any(|known| known.words.is_empty()) {
        return Err(Error::other("`answers` of its config has an entry without `words`"));
    }
    let question: Vec<String> = words(question).collect();
    let holds = |word: &String| words(word).all(|word| question.contains(&word));
    let fits = |known: &&Known| known.words.iter().all(holds);
    Ok(known.iter().find(fits).map(|known| known.text.as_str()))
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

conclave_sdk::export!(agent: Faq, responder: Faq);

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::TaskSnapshot;

    use super::*;

    fn known() -> Vec<Known> {
        let one = |words: &[&str], text: &str| Known {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            text: text.to_owned(),
        };
        vec![one(&["open", "Sunday"], "Not on Sundays."), one(&["open"], "From nine to five.")]
    }

    #[test]
    fn the_first_entry_whose_words_all_occur_answers() {
        let known = known();
        let answer = |question| answer(&known, question).unwrap();
        assert_eq!(answer("When do you OPEN?"), Some("From nine to five."));
        assert_eq!(answer("open on sunday?"), Some("Not on Sundays."));
        assert_eq!(answer("Are the doors opened?"), None);
        assert_eq!(answer(""), None);
    }

    #[test]
    fn an_entry_without_words_would_answer_everything_and_is_refused() {
        let all = [Known { words: Vec::new(), text: "yes".to_owned() }];
        assert!(answer(&all, "Anything?").is_err());
    }

    #[test]
    fn only_a_users_question_is_answered() {
        let said = TaskSnapshot::asked("When do you open?").says(Role::Llm, "Let me see.");
        assert_eq!(Faq::respond(&said.view()), Ok(None));
        // Without settings nothing is known.
        assert_eq!(Faq::respond(&TaskSnapshot::asked("open?").view()), Ok(None));
    }
}
