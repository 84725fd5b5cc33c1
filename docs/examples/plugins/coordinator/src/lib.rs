//! Coordinator: starts background work if it may, passes the question to the task that answers, and
//! finishes with its answer. It answers nothing itself. A refused background task must not keep the
//! user waiting, so the question is passed on regardless.

use conclave_sdk::{Agent, Message, Result, Role, Turn, View, config, delegate, finish, say};
use serde::Deserialize;

/// The assignment of the background task.
const BACKGROUND_WORK: &str = "Digest the folder.";
/// The answer if there is no question, in which case no task is started.
const NO_QUESTION: &str = "Ask me something.";

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    answer: String,
    background: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { answer: "answer".into(), background: "digest".into() }
    }
}

struct Coordinator;

impl Agent for Coordinator {
    fn step(view: &View) -> Result<Turn> {
        let settings: Settings = config::get()?;
        let pending = view.pending();
        if let Some(answer) =
            pending.as_ref().filter(|message| message.sender_name == settings.answer)
        {
            return Ok(finish(answer.content.as_str()));
        }
        let Some(question) = question(view.history()) else { return Ok(finish(NO_QUESTION)) };
        let has_background = view.peers().iter().any(|peer| peer.name == settings.background);
        Ok(match phase(view.iteration(), has_background) {
            Phase::Background => delegate(settings.background)
                .task(BACKGROUND_WORK)
                .start()
                .because("it can go on beside the answer"),
            Phase::Ask => say(question).to(settings.answer),
            Phase::GiveUp => finish(known(&settings.answer, pending)),
        })
    }
}

/// The progress of the task. Each phase happens once, so the task ends whatever the others do.
#[derive(Debug, PartialEq)]
enum Phase {
    Background,
    Ask,
    /// The question was passed on, and something other than its answer came back.
    GiveUp,
}

fn phase(iteration: u32, has_background: bool) -> Phase {
    match (iteration, has_background) {
        (0, true) => Phase::Background,
        (0, false) | (1, true) => Phase::Ask,
        _ => Phase::GiveUp,
    }
}

/// The question, from the beginning of the history. By the second step the pending message is the
/// background task's report, which is the host's text and not a question.
fn question(mut history: impl Iterator<Item = Message>) -> Option<String> {
    history
        .find(|message| message.sender == Role::User && !message.content.trim().is_empty())
        .map(|message| message.content)
}

fn known(answer: &str, pending: Option<Message>) -> String {
    match pending.map(|message| message.content).filter(|content| !content.trim().is_empty()) {
        Some(content) => format!("{answer} gave no answer: {content}"),
        None => format!("{answer} gave no answer."),
    }
}

conclave_sdk::export!(agent: Coordinator);

#[cfg(test)]
mod tests {
    use super::{Message, Phase, Role, known, phase, question};

    fn message(sender: Role, content: &str) -> Message {
        Message {
            seq: 0,
            sender,
            sender_name: String::new(),
            recipient: None,
            content: content.into(),
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            attachments: Vec::new(),
            labels: Vec::new(),
            extra: Vec::new(),
        }
    }

    #[test]
    fn only_the_user_asks() {
        let receipt = || message(Role::System, r#"{"started":"digest"}"#);
        assert_eq!(question([receipt()].into_iter()), None);
        assert_eq!(question([message(Role::User, " \n"), receipt()].into_iter()), None);
        let history = [message(Role::User, "When was it lit?"), receipt()];
        assert_eq!(question(history.into_iter()).as_deref(), Some("When was it lit?"));
    }

    #[test]
    fn background_work_comes_first_where_it_is_granted() {
        assert_eq!(
            [0, 1, 2, 9].map(|iteration| phase(iteration, true)),
            [Phase::Background, Phase::Ask, Phase::GiveUp, Phase::GiveUp]
        );
        assert_eq!(
            [0, 1, 2].map(|iteration| phase(iteration, false)),
            [Phase::Ask, Phase::GiveUp, Phase::GiveUp]
        );
    }

    #[test]
    fn without_an_answer_it_says_so() {
        assert_eq!(known("answer", None), "answer gave no answer.");
    }
}
