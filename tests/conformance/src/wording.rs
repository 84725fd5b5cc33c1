//! Texts that a framework writes: the host's own, and those of the reference that expectations
//! still contain. Both become the tokens of the scenario format.

use std::sync::LazyLock;

use conclave_core::tool_calls::arguments::explanation_fields;
use regex::{Captures, Regex};
use serde_json::{Deserializer, Value};

/// The start and the end of the explanation of wrong arguments.
const EXPLAINED: (&str, &str) = ("The call of ", "Correct this and send the whole call again.");
/// The prefix of a call that the reference writes into a text.
const FLATTENED: &str = "OAI-TOOL: ";

/// Patterns, and tokens in which `$1` and `$2` are groups of the pattern.
#[rustfmt::skip]
const WORDINGS: [(&str, &str); 21] = [
    // Sentences of the host.
    (r"not run: one call in a message, please", "«one-tool»"),
    (r"not run: a call that steers the task must be the only one in its message; none was run", "«one-tool»"),
    (r"[\w-]+ takes one call at a time; none was passed on", "«one-tool-to-subtask»"),
    (r"Your message names no recipient\. Call `add_recipient` with the recipient alone; do not repeat the message\.", "«ask-recipient»"),
    (r"There is no message that waits for a recipient\. Send it with `recipient_message`\.", "«nothing-to-address»"),
    (r"There is no message (-?\d+) of yours to go back to: look at `n`, which counts your own messages from 1\.", "«cannot-rewind $1»"),
    (r"\s*\[The result was cut to (\d+) tokens; ask for less at a time\.\]", "«truncated $1»"),
    (r"\s*\[Of this result (\d+) tokens remain; for all of it call (\S+) again\.\]", "«retained $2 $1»"),
    (r"The call in XML cannot be read: [^\n]*", "«bad-xml»"),
    (r#"There is no tool "([^"]+)"(?:, and none that you may call\.|\. You may call: [^\n]*\.)"#, "«unknown-tool $1»"),
    (r"(?m)(^|: )([\w.-]+) failed: ([^\n]*)", "$1«tool-failed $2: $3»"),
    // Sentences of both.
    (r"Invalid recipient: (\S+)", "«invalid-recipient $1»"),
    // Sentences of the reference.
    (r"(?:ERROR: )?(?:Please use|Use) ONE tool at a time!", "«one-tool»"),
    (r"(?s)\s*Empty recipient field!.*?tool/function-call\.\s*", "«ask-recipient»"),
    (r"(?s)\s*Your message did not have a recipient\..*?tool/function-call\.\s*", "«ask-recipient»"),
    (r"(?s)\s*Recipient specified but content is empty!.*?Resend the message using \S+ tool/function\.\s*", "«nothing-to-address»"),
    (r"(?s)\s*Could not rewind to (-?\d+)th Assistant message!.*?use the `rewind_tool`\.\s*", "«cannot-rewind $1»"),
    (r"\s*The TOOL result was large, so it was truncated to (\d+) tokens\.\s+To get the full result, the TOOL must be called again\.", "«truncated $1»"),
    (r"\s*The result of the (\S+) tool were too large,\s+and has been truncated to (\d+) tokens\.\s+To obtain the full result, the tool needs to be re-used\.", "«retained $1 $2»"),
    (r"Error extracting XML fields:[^\n]*\n?[^\n]*", "«bad-xml»"),
    (r"Error parsing XML:[^\n]*", "«bad-xml»"),
];

static COMPILED: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    WORDINGS
        .into_iter()
        .filter_map(|(pattern, token)| Some((Regex::new(pattern).ok()?, token)))
        .collect()
});

/// A call that the host writes into a text.
static WRITTEN_CALL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?m)(^| )([\w.-]+)\((\{.*\})\)$").ok());

/// Returns the text with each sentence of a framework replaced by its token.
#[must_use]
pub(crate) fn tokens(text: &str) -> String {
    let mut text = calls(&explanations(text));
    for (pattern, token) in COMPILED.iter() {
        let filled = |found: &Captures<'_>| {
            let group = |number: usize| found.get(number).map_or("", |group| group.as_str());
            (1..=3).fold((*token).to_owned(), |token, number| {
                token.replace(&format!("${number}"), group(number))
            })
        };
        text = pattern.replace_all(&text, filled).into_owned();
    }
    text.trim().to_owned()
}

fn explanations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(EXPLAINED.0) {
        let (before, from) = rest.split_at(start);
        let Some((tool, fields)) = explanation_fields(from) else { break };
        let Some(end) = from.find(EXPLAINED.1) else { break };
        out.push_str(before);
        out.push_str(&format!("«bad-args {tool} {}»", fields.join(",")));
        rest = &from[end + EXPLAINED.1.len()..];
    }
    out.push_str(rest);
    out
}

/// Replaces native calls in the text of a message for another agent: `OAI-TOOL: {"name",
/// "arguments"}` and `name({…})`.
fn calls(text: &str) -> String {
    let written = |name: &str, arguments: &Value| {
        let mut arguments = arguments.clone();
        if let Some(arguments) = arguments.as_object_mut() {
            // The reference adds the name to the arguments of parsed calls.
            arguments.remove("request");
        }
        format!("«call {name} {arguments}»")
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, from)) = rest.split_once(FLATTENED) {
        let mut values = Deserializer::from_str(from).into_iter::<Value>();
        let Some(Ok(call)) = values.next() else { break };
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        out.push_str(before);
        out.push_str(&written(name, call.get("arguments").unwrap_or(&Value::Null)));
        rest = from.get(values.byte_offset()..).unwrap_or_default();
    }
    out.push_str(rest);
    let Some(pattern) = WRITTEN_CALL.as_ref() else { return out };
    let shown = |found: &Captures<'_>| match serde_json::from_str::<Value>(&found[3]) {
        Ok(arguments) => format!("{}{}", &found[1], written(&found[2], &arguments)),
        Err(_) => found[0].to_owned(),
    };
    pattern.replace_all(&out, shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_one() {
        assert_eq!(COMPILED.len(), WORDINGS.len());
        assert!(WRITTEN_CALL.is_some());
    }

    #[test]
    fn texts_of_both_become_the_same_tokens() {
        let retained = "he\n\n      The result of the my_tool tool were too large,\n   and has been truncated to 2 tokens.\n   To obtain the full result, the tool needs to be re-used.";
        let cases = [
            (retained, "he«retained my_tool 2»"),
            (
                "he\n[Of this result 2 tokens remain; for all of it call my_tool again.]",
                "he«retained my_tool 2»",
            ),
            ("Result from a: Invalid recipient: Z", "Result from a: «invalid-recipient Z»"),
            (
                "Result from b: b failed: no\n\nResult from c: ok",
                "Result from b: «tool-failed b: no»\n\nResult from c: ok",
            ),
            ("There is no tool \"x\". You may call: a, b.c.", "«unknown-tool x»"),
            (
                "OAI-TOOL: {\n \"name\": \"w\",\n \"arguments\": {\"x\": 6, \"request\": \"w\"}\n}",
                "«call w {\"x\":6}»",
            ),
            ("w({\"x\":6})", "«call w {\"x\":6}»"),
            ("plain", "plain"),
        ];
        for (text, expected) in cases {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }
}
