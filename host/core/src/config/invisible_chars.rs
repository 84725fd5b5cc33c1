//! Characters that a model reads and a person does not see, so that they can hide instructions.
//! Finds them in the texts of tools. Characters that deceive a reader of the terminal are in
//! `text`.

use serde_json::Value;

use crate::types::text::{is_deceptive, is_emoji_joiner, is_mark};
use crate::types::tool::ToolSpec;

/// Marks on one letter, at most: more than any script needs. Each further one could be a bit.
const MARKS: u32 = 3;

/// The first hidden character of a text; `None` if there is none. Joiners of scripts and of emoji
/// belong to ordinary text: one at a time, after a character that they can join. So do the blanks
/// of typography, where it has them.
#[must_use]
pub fn hidden_char(text: &str) -> Option<char> {
    let (mut before, mut marks, mut chars) = (None, 0, text.chars().peekable());
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        marks = if is_mark(c) { marks + 1 } else { 0 };
        if marks > MARKS || is_hidden(before, c, next) || is_rare_blank(before, c, next) {
            return Some(c);
        }
        before = Some(c);
    }
    None
}

/// Whether the character is a blank that a reader takes for another, so that each blank of a
/// text could be a bit.
fn is_rare_blank(before: Option<char>, c: char, next: Option<char>) -> bool {
    let is = |beside: Option<char>, predicate: fn(char) -> bool| beside.is_some_and(predicate);
    match c {
        ' ' | '\n' | '\t' => false,
        // In French before these signs, and within numbers and units.
        '\u{a0}' | '\u{202f}' => {
            let is_french = is(before, |c| c == '«') || is(next, |c| "»:;!?%€".contains(c));
            !is_french && !is(before, |c| c.is_ascii_digit())
        }
        // The blank of Chinese and Japanese.
        '\u{3000}' => !is(before, is_wide),
        c => c.is_whitespace(),
    }
}

/// Whether it is a letter or sign of the scripts of East Asia.
fn is_wide(c: char) -> bool {
    matches!(c, '\u{3001}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{ff01}'..='\u{ff60}')
}

/// The field of a tool with the first hidden character, and the character.
#[must_use]
pub fn in_tool(tool: &ToolSpec) -> Option<(&'static str, char)> {
    let examples = || {
        tool.examples.iter().find_map(|example| {
            example.thought.as_deref().and_then(hidden_char).or_else(|| in_json(&example.arguments))
        })
    };
    let parts: [(&'static str, Option<char>); 6] = [
        ("name", hidden_char(&tool.name)),
        ("description", hidden_char(&tool.description)),
        ("title", tool.title.as_deref().and_then(hidden_char)),
        ("input schema", in_json(&tool.input_schema)),
        ("output schema", tool.output_schema.as_ref().and_then(in_json)),
        ("examples", examples()),
    ];
    parts.into_iter().find_map(|(place, c)| Some((place, c?)))
}

/// The usual notation: `U+E0041`.
#[must_use]
pub fn code_point(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

fn is_hidden(before: Option<char>, c: char, next: Option<char>) -> bool {
    let Some(before) = before else { return is_deceptive(c) && !matches!(c, '\n' | '\t') };
    match c {
        '\n' | '\t' => false,
        c if is_emoji_joiner(Some(before), c) => false,
        // A keycap emoji.
        '\u{fe0f}' => !(matches!(before, '0'..='9' | '#' | '*') && next == Some('\u{20e3}')),
        // A run of joiners could encode a hidden text bit by bit; scripts use one at a time,
        // between their own letters.
        '\u{200c}' | '\u{200d}' => before.is_ascii() || is_deceptive(before),
        c => is_deceptive(c),
    }
}

/// Finds it in a key or a text of a JSON value. JSON writes a carriage return as an escape, so it
/// hides nothing.
fn in_json(value: &Value) -> Option<char> {
    let text = |text: &str| hidden_char(&text.replace('\r', ""));
    match value {
        Value::String(inner) => text(inner),
        Value::Array(items) => items.iter().find_map(in_json),
        Value::Object(map) => {
            map.iter().find_map(|(key, value)| text(key).or_else(|| in_json(value)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_writing_is_seen_whole() {
        for text in [
            "Finds pages.\n\tIn all.",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "\u{1f469}\u{200d}\u{1f4bb}",
            "❤\u{fe0f}\u{200d}\u{1f525}",
            "1\u{fe0f}\u{20e3}",
            "日本語\u{3000}日本語",
            "Cherche\u{a0}: «\u{202f}oui\u{202f}»",
            "10\u{a0}km, 1\u{202f}000",
            "Vie\u{302}\u{323}t",
            "שָׁלוֹם",
        ] {
            assert_eq!(hidden_char(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_only_a_model_reads_is_found() {
        let cases = [
            ("a\u{e0041}\u{e0042}", '\u{e0041}'),
            ("a\u{200b}b", '\u{200b}'),
            ("a\u{202e}b", '\u{202e}'),
            ("a\u{1b}[8m", '\u{1b}'),
            ("a\rb", '\r'),
            ("a\u{200d}b", '\u{200d}'),
            ("é\u{200d}\u{200c}", '\u{200c}'),
            ("é\u{fe01}\u{fe02}", '\u{fe01}'),
            // Four hidden bits after each letter (B13).
            ("a\u{fe00}", '\u{fe00}'),
            ("1\u{fe0f}", '\u{fe0f}'),
            ("to\u{180b}do", '\u{180b}'),
            ("\u{1d173}", '\u{1d173}'),
            ("\u{e000}", '\u{e000}'),
            ("\u{e0100}", '\u{e0100}'),
            ("\u{2063}", '\u{2063}'),
            // A bit for each blank.
            ("a\u{2009}b", '\u{2009}'),
            ("a\u{a0}b", '\u{a0}'),
            ("a\u{202f}b", '\u{202f}'),
            ("a\u{3000}b", '\u{3000}'),
            ("a\u{205f}b", '\u{205f}'),
            ("a\u{1680}b", '\u{1680}'),
            ("a\u{2028}b", '\u{2028}'),
            ("e\u{301}\u{301}\u{301}\u{301}", '\u{301}'),
            ("a\u{fffc}b", '\u{fffc}'),
            ("\u{1d159}", '\u{1d159}'),
            ("\u{1d17b}", '\u{1d17b}'),
        ];
        for (text, expected) in cases {
            assert_eq!(hidden_char(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn all_texts_of_a_tool_are_looked_at() {
        let hidden = "x\u{e0041}";
        let schema = json!({ "type": "object", "properties": { "a": { "description": hidden } } });
        let key = json!({ "properties": { hidden: {} } });
        let example = json!([{ "thought": hidden, "arguments": {} }]);
        let tool = |field: &str, value: Value| {
            let mut tool = json!({ "name": "find", "description": "Finds.", "input_schema": { "type": "object", "default": "\r\n" } });
            tool[field] = value;
            serde_json::from_value::<ToolSpec>(tool).expect("a tool")
        };
        assert_eq!(in_tool(&tool("idempotent", json!(true))), None);
        let cases = [
            ("name", json!(hidden), "name"),
            ("description", json!(hidden), "description"),
            ("title", json!(hidden), "title"),
            ("input_schema", schema, "input schema"),
            ("input_schema", key, "input schema"),
            ("output_schema", json!({ "const": hidden }), "output schema"),
            ("examples", example, "examples"),
        ];
        for (field, value, place) in cases {
            assert_eq!(in_tool(&tool(field, value)), Some((place, '\u{e0041}')), "{field}");
        }
        assert_eq!(code_point('\u{e0041}'), "U+E0041");
    }
}
