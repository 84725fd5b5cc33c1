//! Patterns for the arguments of a call. Matching takes time in proportion to the text: a pattern is plain pieces with `*` between them,
//! and no piece is looked for twice at one place.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::odd::{is_odd, led_to};

/// Whether a rule, or a part of it, holds for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    No,
    /// The value hides what it leads to: good enough to ask or to refuse, never to allow.
    Maybe,
    Yes,
}

/// Which argument is meant: a property's name, or a JSON pointer when it begins with a slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArgumentPlace(pub String);

impl ArgumentPlace {
    /// What is wrong with a text as a place; none when nothing is.
    #[must_use]
    pub fn problem(text: &str) -> Option<&'static str> {
        if text.is_empty() {
            return Some("names no argument");
        }
        let is_pointer = text.starts_with('/');
        let is_wrong = |after: &str| !after.starts_with(['0', '1']);
        (is_pointer && text.split('~').skip(1).any(is_wrong)).then_some("is no JSON pointer: `~` stands before `0` or `1` only")
    }

    /// The place of a property.
    #[must_use]
    pub fn of_property(name: &str) -> Self {
        if name.is_empty() || name.starts_with('/') {
            Self(format!("/{}", name.replace('~', "~0").replace('/', "~1")))
        } else {
            Self(name.to_owned())
        }
    }

    fn find<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        if self.0.starts_with('/') { arguments.pointer(&self.0) } else { arguments.get(&self.0) }
    }
}

/// One argument and what it may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentRule {
    pub at: ArgumentPlace,
    /// One of them must match.
    pub patterns: Vec<Pattern>,
}

impl ArgumentRule {
    /// An argument that is not there matches nothing.
    pub(super) fn holds(&self, arguments: &Value) -> Holds {
        let Some(value) = self.at.find(arguments) else { return Holds::No };
        self.patterns.iter().map(|pattern| pattern.holds(value)).max().unwrap_or(Holds::No)
    }
}

/// A text in which `*` stands for any text, also none. `*` alone matches whatever is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl Pattern {
    fn holds(&self, value: &Value) -> Holds {
        if self.0 == "*" {
            return Holds::Yes;
        }
        match value {
            Value::String(text) => self.holds_for(text),
            other if is_json_of(&self.0, other) => Holds::Yes,
            _ => Holds::No,
        }
    }

    fn holds_for(&self, text: &str) -> Holds {
        if self.0 == text && !self.has_wildcard() {
            return Holds::Yes;
        }
        if !is_odd(text) {
            return if self.covers(text) { Holds::Yes } else { Holds::No };
        }
        let led_to = led_to(text);
        let is_meant = |text: &str| self.covers(text);
        let folder = || is_meant(&format!("{led_to}/"));
        if is_meant(text) || is_meant(&led_to) || folder() { Holds::Maybe } else { Holds::No }
    }

    fn has_wildcard(&self) -> bool {
        self.0.contains('*')
    }

    /// The text has the pieces of the pattern, in order, and begins and ends as it does.
    fn covers(&self, text: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(start) else { return false };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        for piece in middle.split('*') {
            match text.find(piece) {
                Some(at) => text = &text[at + piece.len()..],
                None => return false,
            }
        }
        text.ends_with(end)
    }
}

/// The text is how the value is written as JSON.
fn is_json_of(text: &str, value: &Value) -> bool {
    let mut rest = Rest(Some(text));
    write!(rest, "{value}").is_ok() && rest.0 == Some("")
}

/// Takes what is written off the front of a text, and fails where it differs.
struct Rest<'a>(Option<&'a str>);

impl fmt::Write for Rest<'_> {
    fn write_str(&mut self, written: &str) -> fmt::Result {
        self.0 = self.0.and_then(|rest| rest.strip_prefix(written));
        self.0.map(drop).ok_or(fmt::Error)
    }
}

/// A value as a pattern that matches it alone; none where it holds a `*`, which would stand for any text.
pub(super) fn exactly(value: &Value) -> Option<Pattern> {
    let text = match value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        other => Cow::Owned(other.to_string()),
    };
    (!text.contains('*')).then(|| Pattern(text.into_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(pattern: &str, value: &Value) -> Holds {
        Pattern(pattern.to_owned()).holds(value)
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
        let no = [("a*", "ba"), ("a*a", "a"), ("a*b*c", "acb"), ("", "a"), ("*ab*ab*", "xab"), ("/notes/*", "/notes"), ("A*", "a")];
        for (pattern, text) in yes {
            assert_eq!(holds(pattern, &json!(text)), Holds::Yes, "{pattern:?} {text:?}");
        }
        for (pattern, text) in no {
            assert_eq!(holds(pattern, &json!(text)), Holds::No, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn what_hides_where_it_leads_matches_no_wildcard_for_sure() {
        assert_eq!(holds("/notes/public/*", &json!("/notes/public\\..\\x")), Holds::No, "it leads elsewhere");
        for text in ["/notes/public/../x", "/notes/public/%2e%2e/x", "/notes/public\\x", "/notes/public/\u{0}", "/notes/public//x"] {
            assert_eq!(holds("/notes/public/*", &json!(text)), Holds::Maybe, "{text:?}");
            assert_eq!(holds(text, &json!(text)), Holds::Yes, "written out it is meant: {text:?}");
        }
        assert_eq!(holds("/notes/secret/*", &json!("/notes/public/../secret/x")), Holds::Maybe);
        assert_eq!(holds("/notes/secret", &json!("/notes//secret")), Holds::Maybe);
        assert_eq!(holds("/notes/secret/*", &json!("/notes/x/../secret")), Holds::Maybe, "the folder itself");
        assert_eq!(holds("/other/*", &json!("/notes/public/../secret/x")), Holds::No);
    }

    #[test]
    fn other_values_are_compared_as_json() {
        for (pattern, value) in [("5", json!(5)), ("true", json!(true)), ("null", Value::Null), (r#"["a",1]"#, json!(["a", 1]))] {
            assert_eq!(holds(pattern, &value), Holds::Yes, "{pattern}");
            assert_eq!(holds("*", &value), Holds::Yes);
        }
        for (pattern, value) in [("5", json!(50)), ("50", json!(5)), ("5*", json!(50)), ("a", json!(["a"])), ("", json!([]))] {
            assert_eq!(holds(pattern, &value), Holds::No, "{pattern}");
        }
    }

    #[test]
    fn an_argument_is_named_or_pointed_at() {
        let arguments = json!({ "path": "/a", "user": { "id": 7 }, "/odd": "x", "list": ["a", "b"] });
        let rule = |at: &str, pattern: &str| ArgumentRule { at: ArgumentPlace(at.to_owned()), patterns: vec![Pattern(pattern.to_owned())] };
        for (at, pattern) in [("path", "/a"), ("/path", "/a"), ("/user/id", "7"), ("/~1odd", "x"), ("/list/1", "b")] {
            assert_eq!(rule(at, pattern).holds(&arguments), Holds::Yes, "{at}");
        }
        assert_eq!(rule("missing", "*").holds(&arguments), Holds::No);
        assert_eq!(rule("path", "*").holds(&json!("text")), Holds::No);
        assert_eq!(ArgumentPlace::of_property("/odd").find(&arguments), Some(&json!("x")));
        assert!(
            ArgumentPlace::problem("/a~2").is_some() && ArgumentPlace::problem("").is_some() && ArgumentPlace::problem("a~2").is_none()
        );
    }
}
