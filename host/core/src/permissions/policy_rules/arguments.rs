//! Patterns for the arguments of a call.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PATTERN_MAX;
use super::call_arguments::{CallArguments, ExaminedText};
use super::glob::{covers, pieces};

/// The result of matching a rule, or a part of it, with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    No,
    /// The value hides its target: enough to ask or to deny, never to allow.
    Maybe,
    Yes,
}

/// The argument concerned: a property's name, or a JSON pointer if it begins with a slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArgumentPlace(pub String);

impl ArgumentPlace {
    /// The error in a text for an argument's position; `None` if it is valid.
    #[must_use]
    pub fn problem(text: &str) -> Option<&'static str> {
        if text.is_empty() {
            return Some("names no argument");
        }
        let is_pointer = text.starts_with('/');
        let is_wrong = |after: &str| !after.starts_with(['0', '1']);
        (is_pointer && text.split('~').skip(1).any(is_wrong))
            .then_some("is no JSON pointer: `~` stands before `0` or `1` only")
    }

    /// The position of a property.
    #[must_use]
    pub fn of_property(name: &str) -> Self {
        if name.is_empty() || name.starts_with('/') {
            Self(format!("/{}", name.replace('~', "~0").replace('/', "~1")))
        } else {
            Self(name.to_owned())
        }
    }

    /// The property at the position, or the one that contains it.
    pub(crate) fn property(&self) -> String {
        let Some(pointer) = self.0.strip_prefix('/') else { return self.0.clone() };
        pointer.split('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~")
    }

    pub(super) fn find<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        if self.0.starts_with('/') { arguments.pointer(&self.0) } else { arguments.get(&self.0) }
    }
}

/// One argument with its allowed values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentRule {
    pub at: ArgumentPlace,
    /// The patterns, one of which must match.
    pub patterns: Vec<ArgumentPattern>,
}

impl ArgumentRule {
    /// Whether the rule matches; a missing argument never does.
    pub(crate) fn holds(&self, arguments: &CallArguments<'_>) -> Holds {
        let Some(value) = self.at.find(arguments.value) else { return Holds::No };
        let holds = |pattern: &ArgumentPattern| pattern.holds(value, arguments);
        self.patterns.iter().map(holds).max().unwrap_or(Holds::No)
    }
}

/// A pattern for an argument. In a text, `*` stands for any text, also none, `\*` for a star and
/// `\\` for a backslash; `*` alone matches any value. Any other value matches itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArgumentPattern(pub Value);

impl ArgumentPattern {
    /// Whether the pattern matches this value of the call.
    fn holds<'a>(&self, value: &'a Value, arguments: &CallArguments<'a>) -> Holds {
        match (&self.0, value) {
            (Value::String(pattern), _) if pattern == "*" => Holds::Yes,
            (Value::String(pattern), Value::String(text)) => {
                arguments.examine(text, |text| holds_for(pattern, text))
            }
            (pattern, value) if pattern == value => Holds::Yes,
            // Tools accept 5 for "5" and vice versa, so a rule that denies must cover both.
            (Value::String(pattern), value) if is_json_of(pattern, value) => Holds::Maybe,
            (pattern, Value::String(text)) if is_json_of(text, pattern) => Holds::Maybe,
            (Value::Number(pattern), Value::Number(value))
                if pattern.as_f64() == value.as_f64() =>
            {
                Holds::Maybe
            }
            (Value::Number(pattern), Value::String(text))
                if text.trim().parse().ok() == pattern.as_f64() =>
            {
                Holds::Maybe
            }
            _ => Holds::No,
        }
    }

    /// Returns what a value must have in common with the pattern; `None` if nothing is known.
    ///
    /// A text pattern holds, or may hold, only for texts of which the text itself or its target
    /// begins with the prefix, at least after a slash was put in front (see [`holds_for`]), and for
    /// values whose JSON it is (see [`Self::may_be_json`]). A number holds, or may hold, only for
    /// values of the same [`NumberKey`]: its JSON, too, reads as the number.
    pub(super) fn key(&self) -> Option<PatternKey> {
        match &self.0 {
            Value::String(pattern) => {
                let prefix = pieces(pattern).into_iter().next()?;
                (!prefix.is_empty()).then_some(PatternKey::Prefix(prefix))
            }
            number => NumberKey::of(number).map(PatternKey::Number),
        }
    }

    /// Whether the pattern is a text that may be the JSON of a value other than a text.
    pub(super) fn may_be_json(&self) -> bool {
        let begins_json = |c: char| c.is_ascii_digit() || "-[{tfn".contains(c);
        self.0.as_str().is_some_and(|pattern| pattern.starts_with(begins_json))
    }
}

/// What a value must have in common with a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternKey {
    /// The characters before the first star, unescaped; at least one.
    Prefix(String),
    Number(NumberKey),
}

/// A number as a 64-bit float, by its bits. Patterns compare numbers of different forms as floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NumberKey(u64);

impl NumberKey {
    /// The key of a number, or of a text that reads as one.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        // Adding zero turns -0 into 0, which equals it.
        number.map(|number| Self((number + 0.0).to_bits()))
    }
}

/// Whether the pattern matches a text: as it is, as the path it resolves to, or either with
/// a slash in front. [`super::rule_index`] finds rules by these four forms, so a fifth belongs there
/// too.
fn holds_for(pattern: &str, examined: &ExaminedText<'_>) -> Holds {
    let text = examined.text;
    if pattern == text && !pattern.contains(['*', '\\']) {
        return Holds::Yes;
    }
    let is_odd = examined.is_odd();
    let is_covered = covers(pattern, text);
    if is_covered && (!is_odd || is_exactly(pattern)) {
        return Holds::Yes;
    }
    // A tool that takes the text for a path may begin at the root.
    let from_root = pattern.strip_prefix('/').filter(|_| examined.is_relative());
    let is_meant = |text: &str| {
        covers(pattern, text) || from_root.is_some_and(|pattern| covers(pattern, text))
    };
    if is_covered || is_meant(text) {
        return Holds::Maybe;
    }
    let Some(target) = examined.target() else { return Holds::No };
    if is_meant(target.path()) || is_meant(target.folder()) { Holds::Maybe } else { Holds::No }
}

/// Whether no star in the pattern stands for any text.
fn is_exactly(pattern: &str) -> bool {
    !pattern.contains('*') || pieces(pattern).len() == 1
}

/// Whether the text is the JSON of the value.
fn is_json_of(text: &str, value: &Value) -> bool {
    let mut rest = Rest(Some(text));
    write!(rest, "{value}").is_ok() && rest.0 == Some("")
}

/// The rest of a text after `fmt::Write` consumed its beginning; `None` at the first difference.
struct Rest<'a>(Option<&'a str>);

impl fmt::Write for Rest<'_> {
    fn write_str(&mut self, written: &str) -> fmt::Result {
        self.0 = self.0.and_then(|rest| rest.strip_prefix(written));
        self.0.map(drop).ok_or(fmt::Error)
    }
}

/// A pattern that matches only this value; `None` if a config cannot express it.
pub(crate) fn exactly(value: &Value) -> Option<ArgumentPattern> {
    match value {
        Value::String(text) => {
            let text = text.replace('\\', r"\\").replace('*', r"\*");
            (text.chars().count() <= PATTERN_MAX).then_some(ArgumentPattern(text.into()))
        }
        other => is_writable(other).then(|| ArgumentPattern(other.clone())),
    }
}

/// Whether a config can hold the value: it has no `null`, and no larger integers.
fn is_writable(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => !number.is_u64() || number.is_i64(),
        Value::Array(items) => items.iter().all(is_writable),
        Value::Object(fields) => fields.values().all(is_writable),
        Value::Bool(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(pattern: &str, value: &Value) -> Holds {
        holds_value(&ArgumentPattern(pattern.into()), value)
    }

    fn holds_value(pattern: &ArgumentPattern, value: &Value) -> Holds {
        pattern.holds(value, &CallArguments::new(value))
    }

    #[test]
    fn stars_stand_for_any_text() {
        let yes = [
            ("*", ""),
            ("a*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "abc"),
            ("a*c", "ac"),
            ("a**c", "abc"),
            ("*b*", "abc"),
            ("a*b*c", "aXbXbXc"),
            ("/notes/public/*", "/notes/public/a/b.md"),
            ("", ""),
            ("aé*", "aéé"),
        ];
        let no = [
            ("a*", "ba"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "a"),
            ("*ab*ab*", "xab"),
            ("/notes/*", "/notes"),
            ("A*", "a"),
        ];
        for (pattern, text) in yes {
            assert_eq!(holds(pattern, &json!(text)), Holds::Yes, "{pattern:?} {text:?}");
        }
        for (pattern, text) in no {
            assert_eq!(holds(pattern, &json!(text)), Holds::No, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn what_hides_where_it_leads_matches_no_wildcard_for_sure() {
        assert_eq!(
            holds("/notes/public/*", &json!("/notes/public\\..\\x")),
            Holds::No,
            "it leads elsewhere"
        );
        for text in [
            "/notes/public/../x",
            "/notes/public/%2e%2e/x",
            "/notes/public\\x",
            "/notes/public/\u{0}",
            "/notes/public//x",
        ] {
            assert_eq!(holds("/notes/public/*", &json!(text)), Holds::Maybe, "{text:?}");
            assert_eq!(holds(text, &json!(text)), Holds::Yes, "written out it is meant: {text:?}");
        }
        assert_eq!(holds("/notes/secret/*", &json!("/notes/public/../secret/x")), Holds::Maybe);
        assert_eq!(holds("/notes/secret", &json!("/notes//secret")), Holds::Maybe);
        assert_eq!(
            holds("/notes/secret/*", &json!("/notes/x/../secret")),
            Holds::Maybe,
            "the folder itself"
        );
        assert_eq!(holds("/other/*", &json!("/notes/public/../secret/x")), Holds::No);
    }

    #[test]
    fn other_values_are_themselves_and_what_looks_like_them_is_held_back() {
        let values = [json!(5), json!(true), json!(["a", 1]), json!({ "id": 7 }), json!(0.5)];
        for value in &values {
            assert_eq!(holds_value(&ArgumentPattern(value.clone()), value), Holds::Yes, "{value}");
            assert_eq!(holds("*", value), Holds::Yes);
            assert_eq!(
                holds_value(&ArgumentPattern(value.clone()), &json!(value.to_string())),
                Holds::Maybe,
                "{value}"
            );
            assert_eq!(holds(&value.to_string(), value), Holds::Maybe, "{value}");
        }
        assert_eq!(holds_value(&ArgumentPattern(json!(100)), &json!(100.0)), Holds::Maybe);
        assert_eq!(holds_value(&ArgumentPattern(json!(100)), &json!("1e2")), Holds::Maybe);
        for (pattern, value) in [
            ("5", json!(50)),
            ("50", json!(5)),
            ("5*", json!(50)),
            ("a", json!(["a"])),
            ("", json!([])),
        ] {
            assert_eq!(holds(pattern, &value), Holds::No, "{pattern}");
        }
        assert_eq!(holds_value(&ArgumentPattern(json!(5)), &json!(50)), Holds::No);
        assert_eq!(holds_value(&ArgumentPattern(json!(5)), &json!("five")), Holds::No);
    }

    #[test]
    fn a_star_and_a_backslash_can_be_meant() {
        for text in ["*", "a*b", "\\*", "\\\\x", "\\", "C:\\a\\*.md", "a", "../*"] {
            let pattern = exactly(&json!(text)).expect("any text can be written");
            assert_eq!(holds_value(&pattern, &json!(text)), Holds::Yes, "{text:?} {pattern:?}");
            assert_eq!(
                holds_value(&pattern, &json!(text.replace('*', "x") + "y")),
                Holds::No,
                "{text:?} {pattern:?}"
            );
            assert_eq!(
                holds_value(&pattern, &json!(format!("{text}y"))),
                Holds::No,
                "{text:?} {pattern:?}"
            );
        }
        assert_eq!(holds(r"a\*b*", &json!("a*bc")), Holds::Yes);
        assert_eq!(holds(r"a\*b*", &json!("axbc")), Holds::No);
        assert_eq!(exactly(&Value::Null), None);
    }

    #[test]
    fn a_path_from_nowhere_and_one_in_percent_forms_are_held_back_too() {
        for text in [
            "notes/secret/a",
            "./notes/secret/a",
            "/notes/%73ecret/a",
            "/notes/%2573ecret/a",
            "/notes/%252525252573ecret/a",
            "notes/sec%72et",
        ] {
            assert_eq!(holds("/notes/secret/*", &json!(text)), Holds::Maybe, "{text:?}");
        }
        assert_eq!(holds("/my notes/*", &json!("/my%20notes/a")), Holds::Maybe);
        assert_eq!(holds("/notes/*", &json!("https://notes/a")), Holds::No);
        assert_eq!(holds("/notes/secret/*", &json!("notes/public/a")), Holds::No);
    }

    #[test]
    fn an_argument_is_named_or_pointed_at() {
        let arguments =
            json!({ "path": "/a", "user": { "id": 7 }, "/odd": "x", "list": ["a", "b"] });
        let call = CallArguments::new(&arguments);
        let rule = |at: &str, pattern: &str| ArgumentRule {
            at: ArgumentPlace(at.to_owned()),
            patterns: vec![ArgumentPattern(pattern.into())],
        };
        for (at, pattern) in [("path", "/a"), ("/path", "/a"), ("/~1odd", "x"), ("/list/1", "b")] {
            assert_eq!(rule(at, pattern).holds(&call), Holds::Yes, "{at}");
        }
        assert_eq!(rule("missing", "*").holds(&call), Holds::No);
        assert_eq!(rule("path", "*").holds(&CallArguments::new(&json!("text"))), Holds::No);
        assert_eq!(ArgumentPlace::of_property("/odd").find(&arguments), Some(&json!("x")));
        assert!(
            ArgumentPlace::problem("/a~2").is_some()
                && ArgumentPlace::problem("").is_some()
                && ArgumentPlace::problem("a~2").is_none()
        );
    }
}
