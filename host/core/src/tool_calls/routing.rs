//! Signals in text: addresses, passing on, and the end of a task. Pure functions over text; `room`
//! decides which messages to examine and what follows.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// As the whole text: passes the pending message to the next responder.
pub const PASS: &str = "__PASS__";
/// Before a name: passes the pending message to that recipient.
pub const PASS_TO: &str = "__PASS__:";
/// Before a name and a text: sends the text to that recipient.
pub const SEND_TO: &str = "__SEND__:";
/// As a word of its own: ends the task.
pub const DONE: &str = "DONE";

/// The route of a text with a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The pending message goes to the next responder.
    Pass,
    /// The pending message goes to this recipient.
    PassTo(String),
    /// The content, which is not empty, goes to this recipient.
    SendTo { name: String, content: String },
}

/// The last recipient that the text addresses with `prefix`, and the trimmed text after it.
///
/// An address is the prefix, word characters, and one other character or the end (L-067 as of
/// 0.69.16: the end suffices). `None` without an address.
#[must_use]
pub fn addressed(text: &str, prefix: &str) -> Option<(String, String)> {
    let mut last = None;
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(prefix) {
        let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
        let (name, after_name) = after.split_at(end);
        let mut beyond = after_name.chars();
        if !name.is_empty() {
            // The character that ends the name belongs to the address: the next address begins
            // after it.
            beyond.next();
            last = Some((name, beyond.as_str()));
            rest = beyond.as_str();
        } else if prefix.is_empty() {
            if beyond.next().is_none() {
                break;
            }
            rest = beyond.as_str();
        } else {
            // The prefix may begin again inside itself, as in `@@@bob` with the prefix `@@`.
            let start = rest.len() - after.len() - prefix.len();
            let mut next = rest.get(start..).unwrap_or_default().chars();
            next.next();
            rest = next.as_str();
        }
    }
    last.map(|(name, after)| (name.to_owned(), after.trim().to_owned()))
}

/// The recipient in a leading `TO[name]:`, and the text after it without leading blanks (L-065).
///
/// Blanks may precede `TO[` and surround the name. A name has ASCII letters, digits, `_` and `-`.
#[must_use]
pub fn directed(text: &str) -> Option<(String, String)> {
    let inside = skip_blanks(skip_blanks(text).strip_prefix("TO[")?);
    let end = inside
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
        .unwrap_or(inside.len());
    let (name, after) = inside.split_at_checked(end)?;
    let rest = skip_blanks(after).strip_prefix("]:")?;
    (!name.is_empty()).then(|| (name.to_owned(), skip_blanks(rest).to_owned()))
}

/// Whether the text contains [`DONE`] as a word of its own: `ABANDONED` does not (L-087,
/// corrected).
#[must_use]
pub fn says_done(text: &str) -> bool {
    done_words(text).next().is_some()
}

/// The trimmed text without the word [`DONE`]; a text without it stays unchanged.
#[must_use]
pub fn without_done(text: &str) -> Cow<'_, str> {
    let mut result = String::new();
    let mut from = 0;
    for at in done_words(text) {
        result.push_str(text.get(from..at).unwrap_or_default());
        from = at + DONE.len();
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    result.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(result.trim().to_owned())
}

/// The route that the text requests, if any (L-066); an empty `prefix` disables addressing.
///
/// A message with a tool call is routed only if it begins with a signal, and never by a bare
/// address (L-068). [`PASS`] counts only as the whole text.
#[must_use]
pub fn route(text: &str, prefix: &str, has_tool: bool) -> Option<Route> {
    if has_tool && !text.starts_with(PASS) && !text.starts_with(SEND_TO) {
        return None;
    }
    let text = text.trim();
    if text == PASS {
        return Some(Route::Pass);
    }
    if let Some((_, after)) = text.split_once(PASS_TO) {
        let name = after.split(':').next().unwrap_or_default().trim();
        if !name.is_empty() {
            return Some(Route::PassTo(name.to_owned()));
        }
    }
    let by_prefix = || if prefix.is_empty() { None } else { addressed(text, prefix) };
    let (name, content) = addressed(text, SEND_TO).or_else(by_prefix)?;
    if !content.is_empty() {
        return Some(Route::SendTo { name, content });
    }
    (!has_tool).then_some(Route::PassTo(name))
}

/// The characters skipped by the grammar of `TO[name]:`, fewer than Unicode's white space.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches(BLANKS)
}

fn done_words(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.match_indices(DONE).map(|(at, _)| at).filter(|at| {
        let before = text.get(..*at).and_then(|before| before.chars().next_back());
        let after = text.get(at + DONE.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether it is a letter, a number or `_`; a combining mark is not, as in the reference.
pub(super) fn is_word(c: char) -> bool {
    static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}]$").ok());
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    WORD.as_ref().is_some_and(|word| word.is_match(c.encode_utf8(&mut [0; 4])))
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_address_wins() {
        for (text, prefix, name, after) in [
            ("thanks @bob, now @alice: where?", "@", "alice", "where?"),
            ("ok |@|all, |@|xyz here -- |@|Alice  Hello", "|@|", "Alice", "Hello"),
            ("to __SEND__:Alice, -- __SEND__:Alice, Hello ", SEND_TO, "Alice", "Hello"),
            ("thanks @bob", "@", "bob", ""),
            ("@bob\n", "@", "bob", ""),
            // The character after a name belongs to its address
            ("@a@b", "@", "a", "b"),
            ("@a @b c", "@", "b", "c"),
            ("@jörg_1 hi", "@", "jörg_1", "hi"),
            // A combining mark ends a name
            ("@नमस्ते", "@", "नमस", "ते"),
            ("@@@bob x", "@@", "bob", "x"),
            ("@@bob x", "@", "bob", "x"),
            ("hello there", "", "there", ""),
        ] {
            assert_eq!(
                addressed(text, prefix),
                Some((name.to_owned(), after.to_owned())),
                "{text:?} {prefix:?}"
            );
        }
        for (text, prefix) in
            [("no address", "@"), ("@ bob", "@"), ("@", "@"), ("", "@"), ("", ""), ("?!", "")]
        {
            assert_eq!(addressed(text, prefix), None, "{text:?} {prefix:?}");
        }
    }

    #[test]
    fn to_in_brackets_leads_the_text() {
        for (text, found) in DIRECTED {
            assert_eq!(
                directed(text),
                found.map(|(name, rest)| (name.to_owned(), rest.to_owned())),
                "{text:?}"
            );
        }
    }

    type Directed = (&'static str, Option<(&'static str, &'static str)>);
    const DIRECTED: [Directed; 16] = [
        ("TO[bob]: hi", Some(("bob", "hi"))),
        ("  \n TO[bob]: hi \n x \n ", Some(("bob", "hi \n x \n "))),
        ("TO[ bob ]: hi", Some(("bob", "hi"))),
        ("TO[\tb\n]:\n\n a\n", Some(("b", "a\n"))),
        ("TO[bob]:  ", Some(("bob", ""))),
        ("TO[bob]::x", Some(("bob", ":x"))),
        ("TO[_-]:q", Some(("_-", "q"))),
        ("TO[bob]: TO[al]: x", Some(("bob", "TO[al]: x"))),
        ("TO[bob]:\u{a0}x\u{a0}", Some(("bob", "\u{a0}x\u{a0}"))),
        ("TO[bob ] : hi", None),
        ("TO[]: x", None),
        ("TO[é]: x", None),
        ("to[bob]: x", None),
        ("TO [bob]: x", None),
        ("x TO[bob]: y", None),
        ("", None),
    ];

    #[test]
    fn done_counts_as_a_word() {
        for (text, expected) in [
            ("DONE: 4", ": 4"),
            ("DONE", ""),
            ("4 DONE", "4"),
            ("UNDONE but DONE now", "UNDONE but  now"),
            ("DONE, DONE.", ", ."),
            ("(DONE)", "()"),
        ] {
            assert!(says_done(text), "{text:?}");
            assert_eq!(without_done(text), expected, "{text:?}");
        }
        for text in ["ABANDONED", "DONE_4", "DONEé", "äDONE", "done", "DON E", " x "] {
            assert!(!says_done(text), "{text:?}");
            assert_eq!(without_done(text), text);
        }
    }

    #[test]
    fn signals_route() {
        let pass_to = |name: &str| Some(Route::PassTo(name.to_owned()));
        let send = |name: &str, content: &str| {
            Some(Route::SendTo { name: name.to_owned(), content: content.to_owned() })
        };
        for (text, prefix, has_tool, expected) in [
            (" __PASS__\n", "", false, Some(Route::Pass)),
            ("I would use __PASS__ here", "", false, None),
            ("__PASS__:C", "", false, pass_to("C")),
            ("so __PASS__: C now: then", "", false, pass_to("C now")),
            ("__PASS__:", "", false, None),
            ("__PASS__: __SEND__:a b", "", false, pass_to("__SEND__")),
            ("__PASS__::__SEND__:a b", "", false, send("a", "b")),
            ("Ok __SEND__:all here __SEND__:Alice 5", "", false, send("Alice", "5")),
            ("__SEND__:bob", "", false, pass_to("bob")),
            ("__SEND__:", "@", false, None),
            ("hi @bob go", "@", false, send("bob", "go")),
            ("hi @bob go", "", false, None),
            ("@bob", "@", false, pass_to("bob")),
            // A tool call
            ("@bob {}", "@", true, None),
            (" __SEND__:bob {}", "", true, None),
            ("__SEND__:bob {}", "", true, send("bob", "{}")),
            ("__SEND__:bob", "@", true, None),
            ("__SEND__: {} @bob", "@", true, None),
            ("__PASS__", "", true, Some(Route::Pass)),
            ("__PASS__:bob", "", true, pass_to("bob")),
        ] {
            assert_eq!(route(text, prefix, has_tool), expected, "{text:?} {prefix:?} {has_tool}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in any::<String>(), marks in "[@ DONE_TO\\[\\]:aé]{0,40}", prefix in "[@|]{0,2}") {
            for text in [&text, &marks] {
                let _ = (addressed(text, &prefix), directed(text), route(text, &prefix, false));
                prop_assert_eq!(says_done(&without_done(text)) && !without_done(text).contains(DONE), false);
            }
        }
    }

    /// Quadratic time would exceed the time limit of the test runner.
    #[test]
    fn hostile_texts_take_time_in_proportion() {
        for piece in ["@", "@@a", "DONE", "TO[", "é", "a@", "__PASS__:"] {
            let text = piece.repeat(1_000_000 / piece.len());
            let _ = (
                addressed(&text, "@"),
                addressed(&text, "@@"),
                directed(&text),
                without_done(&text),
                route(&text, "@", false),
            );
        }
    }
}
