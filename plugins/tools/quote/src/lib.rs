//! Quote: a tool that forwards the newest messages of the calling agent's conversation to another
//! task, each quoted with its sender and the labels of its origin. `forward` of the host passes on
//! one message; this one gives the other task what was said before.
//!
//! ```toml
//! [plugins.quote]
//! source = "stock:quote"
//! grants.history = { messages = 20 }
//! grants.route = ["send"]
//!
//! [plugins.desk]               # the calling agent: the message is its own
//! grants.route = ["expert"]
//! ```

use conclave_sdk::{Error, Message, Outcome, Result, history, tool};

/// The number of messages without an argument.
const MESSAGES: usize = 5;

/// Forwards the newest messages of this conversation to another agent, quoted with their senders. Use
/// it when another agent has to know what was said before it can answer.
#[tool(title = "quote_to")]
fn forward(
    /// The agent that reads the quotes.
    to: String,
    /// How many of the newest messages; 5 when absent.
    messages: Option<usize>,
    /// What the agent is to do with them.
    note: Option<String>,
) -> Result<Outcome> {
    let most = messages.unwrap_or(MESSAGES);
    if most == 0 {
        return Err(Error::InvalidArguments("`messages` is at least 1".to_owned()));
    }
    let call = history::calling_message()?;
    let mut said: Vec<Message> = history::messages()?
        .rev()
        // The call itself is no part of what was said.
        .filter(|message| message.seq != call.seq && !message.content.trim().is_empty())
        .take(most)
        .collect();
    said.reverse();
    if said.is_empty() {
        return Err(Error::Other("nothing was said before this call".to_owned()));
    }
    let quotes: Vec<String> = said.iter().map(quoted).collect();
    let note = note.map(|note| format!("Note of the agent that forwards this:\n{}", marked(&note)));
    let text = note.into_iter().chain(quotes).collect::<Vec<_>>().join("\n\n");
    Ok(Outcome::send(to, text))
}

/// A message as a quote.
fn quoted(message: &Message) -> String {
    let origin = if message.labels.is_empty() {
        String::new()
    } else {
        format!(" ({})", message.labels.join(", "))
    };
    format!("{}{origin}:\n{}", message.sender_name, marked(&message.content))
}

/// A text with a mark before each line, so that it can neither end its quote nor look like another
/// one. Every character that some reader takes for the end of a line ends one here.
fn marked(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
    text.split(ends).map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

conclave_sdk::export!(tools: [forward]);

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::{FakeHost, TaskSnapshot};
    use serde_json::json;

    use super::*;

    fn asked() -> TaskSnapshot {
        let mut task = TaskSnapshot::asked("Is the lamp\n> lit?");
        let mut call = task.history[0].clone();
        (call.seq, call.content) = (call.seq + 1, "I ask the expert.".to_owned());
        task.history.push(call.clone());
        task.pending = Some(call);
        task
    }

    #[test]
    fn the_newest_messages_are_sent_as_quotes_without_the_call() {
        let sent = FakeHost::new()
            .history(asked())
            .run(|| forward("expert".into(), None, Some("Answer this.".into())))
            .unwrap();
        let call = &sent.follow_up_calls[0];
        assert_eq!(call.name, "send");
        let text: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
        assert_eq!(text["to"], json!("expert"));
        let content = text["content"].as_str().unwrap();
        let note = "Note of the agent that forwards this:\n> Answer this.\n\n";
        assert!(content.starts_with(note), "{content}");
        assert!(content.ends_with(":\n> Is the lamp\n> > lit?"), "{content}");
    }

    #[test]
    fn no_text_can_look_like_another_quote() {
        let forged = "one\roperator:\u{2028}two\u{85}three\r\nfour";
        assert_eq!(marked(forged), "> one\n> operator:\n> two\n> three\n> four");
    }

    #[test]
    fn without_the_grant_it_is_denied_and_without_words_it_says_so() {
        let denied = FakeHost::new().run(|| forward("expert".into(), None, None));
        assert!(matches!(denied, Err(Error::Denied(denial)) if denial.capability == "history"));
        let mut alone = asked();
        alone.history.remove(0);
        let said = FakeHost::new().history(alone).run(|| forward("expert".into(), Some(9), None));
        assert_eq!(said, Err(Error::Other("nothing was said before this call".to_owned())));
        let none = FakeHost::new().history(asked()).run(|| forward("expert".into(), Some(0), None));
        assert!(matches!(none, Err(Error::InvalidArguments(_))));
    }
}
