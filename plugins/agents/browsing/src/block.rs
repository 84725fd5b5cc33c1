//! The action in a model's text: the first code block, as OpenHands' BrowsingAgent reads it.

use conclave_sdk::trajectory::truncate;
use conclave_sdk::{Error, Result, Turn, act, finish};

const FENCE: &str = "```";
const MESSAGE: &str = "send_msg_to_user(";
/// Characters of a wrong answer that are shown to its model again.
const SHOWN: usize = 500;

/// Returns the action of a text. The text behind the block is dropped, because models go on with a
/// page of their own invention.
///
/// # Errors
/// `invalid-arguments` with the remedy, for the model.
pub(crate) fn action(text: &str, is_cut: bool) -> Result<Turn> {
    let Some((thought, rest)) = text.split_once(FENCE) else {
        return match text.trim() {
            "" => Err(wrong(text, "There is neither an action nor an answer.")),
            answer if is_cut => Err(wrong(answer, "The answer was cut off at the token limit.")),
            answer => Ok(finish(answer)),
        };
    };
    let (block, is_closed) =
        rest.split_once(FENCE).map_or((rest, false), |(block, _)| (block, true));
    if !is_closed && is_cut {
        return Err(wrong(text, "The text was cut off at the token limit, so nothing was done."));
    }
    let actions = without_language(block).trim();
    if actions.is_empty() {
        return Err(wrong(text, "The code block is empty."));
    }
    if let Some(message) = message(actions) {
        return Ok(finish(message));
    }
    let written = format!("{thought}{FENCE}{block}{FENCE}");
    Ok(act::browse_interactive(actions).because(thought.trim()).with_text(written))
}

/// The block without the name of a language in its first line.
fn without_language(block: &str) -> &str {
    match block.split_once('\n') {
        Some((first, rest)) if first.trim().chars().all(char::is_alphanumeric) => rest,
        _ => block,
    }
}

/// The text for the user, if the actions have one: a literal of Python.
fn message(actions: &str) -> Option<String> {
    let (_, rest) = actions.split_once(MESSAGE)?;
    let literal = rest[..rest.rfind(')').unwrap_or(rest.len())].trim();
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| literal.starts_with(quote));
    let inner = quote.map_or(literal, |quote| {
        let inner = &literal[quote.len()..];
        inner.strip_suffix(quote).unwrap_or(inner)
    });
    let mut text = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => {}
            },
            (letter, false) => text.push(letter),
        }
    }
    Some(text)
}

/// The answer itself is in no history, so the error has to show it.
fn wrong(text: &str, what: &str) -> Error {
    let remedy = "Write one action such as goto(\"https://example.org/\") in a code block, or the answer without one.";
    Error::invalid_arguments(format!("{what} {remedy}\nYou wrote: {}", truncate(text, SHOWN)))
}

#[cfg(test)]
mod tests {
    use conclave_sdk::{act, finish};

    use super::action;

    #[test]
    fn the_first_block_is_the_action_and_the_rest_is_dropped() {
        for (text, written) in [
            ("I look.\n```\ngoto(\"a\")\n```", "I look.\n```\ngoto(\"a\")\n```"),
            ("I look.\n```goto(\"a\")``` The page says 7.", "I look.\n```goto(\"a\")```"),
            ("I look.\n```python\ngoto(\"a\")", "I look.\n```python\ngoto(\"a\")```"),
        ] {
            let expected = act::browse_interactive("goto(\"a\")").because("I look.");
            assert_eq!(action(text, false), Ok(expected.with_text(written)), "{text}");
        }
    }

    #[test]
    fn a_message_and_a_text_without_a_block_are_the_answer() {
        for text in [
            "It is \"48\" m.",
            "So:\n```\nsend_msg_to_user(\"It is \\\"48\\\" m.\")\n```",
            "```\nsend_msg_to_user('''It is \"48\" m.''')\n```",
        ] {
            assert_eq!(action(text, false), Ok(finish("It is \"48\" m.")), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_remedy() {
        for (text, is_cut) in
            [("", false), ("``` ```", false), ("```\ngoto(\"htt", true), ("It", true)]
        {
            let error = action(text, is_cut).expect_err("it is wrong").to_string();
            assert!(error.contains("goto(") && error.ends_with(text), "{error}");
        }
    }
}
