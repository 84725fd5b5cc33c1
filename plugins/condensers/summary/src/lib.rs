//! Summary: asks a model to summarise the entries that go, and puts the summary in their place
//! (O-124, O-125). An earlier summary is among them, so it becomes part of the new one. Without a
//! model, or if it fails, the same entries go without a summary.

mod prompt;

use std::ops::Range;

use conclave_condensing::{Entry, History, forgetting, is_needed};
use conclave_sdk::condenser::{Condensation, Condenser, Reason};
use conclave_sdk::model::{self, ModelError, Part, Request, ToolChoice, ToolFormat};
use conclave_sdk::trajectory::truncate;
use conclave_sdk::{Draft, Message, Result, Role, View, config, log};
use serde::Deserialize;

/// Attempts with a prompt that is too long; each shortens its text further (O-125).
const TRIES: u32 = 5;
const SHRINK: f64 = 0.8;

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    keep_first: usize,
    /// 0: half of the history.
    keep_last: usize,
    /// Empty: the default.
    model: String,
    /// Empty: the built-in ones.
    instructions: String,
    entry_chars: usize,
    total_chars: usize,
    summary_chars: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keep_first: 2,
            keep_last: 0,
            model: String::new(),
            instructions: String::new(),
            entry_chars: 10_000,
            total_chars: 200_000,
            summary_chars: 8_000,
        }
    }
}

struct Summary;

impl Condenser for Summary {
    fn condense(why: Reason, view: &View) -> Result<Option<Condensation>> {
        let settings: Settings = config::get()?;
        let messages: Vec<Message> = view.history().collect();
        let history = History::new(messages.iter().map(Entry::from).collect());
        let Some(gone) = gone(&history, &settings, is_needed(why)) else { return Ok(None) };
        let summary =
            summarised(&messages[gone.clone()], &settings, |prompt| ask(&settings, prompt));
        if let Err(error) = &summary {
            log::warn!("no summary, so the entries go without one: {error}");
        }
        let condensation = forgetting([gone]);
        Ok(Some(match summary {
            Ok(summary) => condensation.with_summary(summary),
            Err(_) => condensation,
        }))
    }
}

/// The entries that go, or `None` if a summary would not be worth it.
fn gone(history: &History, settings: &Settings, needed: bool) -> Option<Range<usize>> {
    let newest = (settings.keep_last > 0).then_some(settings.keep_last);
    let gone = history.recent(settings.keep_first, newest, needed)?;
    // The summary takes one place itself.
    (needed || (gone.len() > 1 && history.is_progress(gone.len() - 1))).then_some(gone)
}

/// Returns the summary, bounded. Fails with the reason, for the log.
fn summarised(
    messages: &[Message],
    settings: &Settings,
    ask: impl Fn(String) -> Result<Option<String>, ModelError>,
) -> Result<String, String> {
    let mut share = 1.0;
    for _ in 0..TRIES {
        let scaled = |chars: usize| (chars as f64 * share) as usize;
        let text =
            prompt::text(messages, scaled(settings.entry_chars), scaled(settings.total_chars));
        match ask(text) {
            Ok(answer) => {
                let summary =
                    answer.as_deref().map(str::trim).filter(|summary| !summary.is_empty());
                let summary = summary.ok_or("the model said nothing")?;
                return Ok(truncate(summary, settings.summary_chars));
            }
            Err(ModelError::ContextTooLong(_)) => share *= SHRINK,
            Err(error) => return Err(conclave_sdk::Error::from(error).to_string()),
        }
    }
    Err(format!("the prompt did not fit, {TRIES} times"))
}

fn ask(settings: &Settings, text: String) -> Result<Option<String>, ModelError> {
    let instructions = if settings.instructions.is_empty() {
        prompt::INSTRUCTIONS
    } else {
        &settings.instructions
    };
    let draft = |role: Role, content: String| {
        Part::Draft(Draft {
            role,
            content,
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            attachments: Vec::new(),
        })
    };
    let request = Request {
        model: (!settings.model.is_empty()).then(|| settings.model.clone()),
        prompt: vec![draft(Role::System, instructions.to_owned()), draft(Role::User, text)],
        tools: Some(Vec::new()),
        tool_format: Some(ToolFormat::Off),
        tool_choice: ToolChoice::None,
        stream: false,
        ..Request::default()
    };
    model::complete(&request).map(|completion| completion.content)
}

conclave_sdk::export!(condenser: Summary);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use conclave_condensing::EntryKind;

    use super::*;

    fn history(entries: usize) -> History {
        History::new(vec![
            Entry {
                kind: EntryKind::User,
                calls: Vec::new(),
                results: Vec::new(),
                chars: 1
            };
            entries
        ])
    }

    fn said(content: &str) -> Message {
        Message {
            seq: 0,
            sender: Role::User,
            sender_name: "you".into(),
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
    fn half_goes_and_the_start_stays() {
        assert_eq!(gone(&history(240), &Settings::default(), false), Some(2..122));
        assert_eq!(
            gone(&history(240), &Settings { keep_last: 100, ..Settings::default() }, false),
            Some(2..140)
        );
    }

    #[test]
    fn a_summary_of_little_is_no_progress() {
        let settings = Settings { keep_last: 88, ..Settings::default() };
        assert_eq!(gone(&history(100), &settings, false), None);
        assert_eq!(gone(&history(100), &settings, true), Some(2..12));
        assert_eq!(gone(&history(101), &settings, false), None);
        assert_eq!(gone(&history(102), &settings, false), Some(2..14));
    }

    #[test]
    fn the_answer_is_the_summary_and_bounded() {
        let settings = Settings { summary_chars: 10, ..Settings::default() };
        assert_eq!(
            summarised(&[said("hi")], &settings, |_| Ok(Some("  They met. ".into()))),
            Ok("They met.".into())
        );
        let long = summarised(&[said("hi")], &settings, |_| Ok(Some("x".repeat(100)))).unwrap();
        assert_eq!(long.chars().filter(|letter| *letter == 'x').count(), 10);
    }

    #[test]
    fn a_model_that_fails_or_says_nothing_gives_no_summary() {
        let settings = Settings::default();
        assert!(summarised(&[said("hi")], &settings, |_| Ok(None)).is_err());
        assert!(summarised(&[said("hi")], &settings, |_| Ok(Some(" ".into()))).is_err());
        let asked = RefCell::new(0);
        let refused = summarised(&[said("hi")], &settings, |_| {
            *asked.borrow_mut() += 1;
            Err(ModelError::BudgetExhausted("limits.run.tokens".into()))
        });
        assert_eq!(
            (refused, asked.into_inner()),
            (Err("model: too little of limits.run.tokens is left for this request".into()), 1)
        );
    }

    #[test]
    fn a_prompt_that_does_not_fit_is_made_shorter_five_times() {
        let settings = Settings { entry_chars: 1_000, ..Settings::default() };
        let lengths = RefCell::new(Vec::new());
        let answer = summarised(&[said(&"x".repeat(5_000))], &settings, |prompt| {
            lengths.borrow_mut().push(prompt.chars().filter(|letter| *letter == 'x').count());
            Err(ModelError::ContextTooLong(10))
        });
        assert!(answer.is_err());
        assert_eq!(
            lengths.into_inner(),
            [1_000, 800, 640, 512, 409].map(|length| length / 2 * 2 - "[user] ".len())
        );
    }
}
