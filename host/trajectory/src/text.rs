//! Truncation of long text, and removal of browser data that models do not need.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The line that replaces truncated text.
const CUT: &str = "\n[... Observation truncated due to length ...]\n";

/// Browser extras that the memory form omits, at any depth (O-008).
const BULK: [&str; 9] = [
    "screenshot",
    "dom_object",
    "axtree_object",
    "open_pages_urls",
    "active_page_index",
    "last_browser_action",
    "last_browser_action_error",
    "focused_element_bid",
    "extra_element_properties",
];

/// Truncates the middle of a text of more than `max` characters. Keeps ⌊max/2⌋ at each end, with a
/// line in between (O-009).
pub fn truncate(text: &str, max: usize) -> String {
    // A text has at most as many characters as bytes, so a short one need not be counted.
    if text.len() <= max {
        return text.to_owned();
    }
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let half = max / 2;
    let at = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(offset, _)| offset);
    format!("{}{CUT}{}", &text[..at(half)], &text[at(count - half)..])
}

/// The first `most` characters of a text, and `…` for the rest.
pub fn cut_chars(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// The characters within the first `most` bytes of a text, and `…` for the rest.
pub fn cut_bytes(text: &str, most: usize) -> Cow<'_, str> {
    match text.floor_char_boundary(most) {
        end if end < text.len() => format!("{}…", &text[..end]).into(),
        _ => text.into(),
    }
}

/// Removes the browser's bulk data at any depth.
pub(crate) fn remove_bulk(map: &mut Map<String, Value>) {
    map.retain(|key, _| !BULK.contains(&key.as_str()));
    map.values_mut().for_each(remove_bulk_below);
}

fn remove_bulk_below(value: &mut Value) {
    match value {
        Value::Object(map) => remove_bulk(map),
        Value::Array(items) => items.iter_mut().for_each(remove_bulk_below),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ellipsis_stands_for_the_rest() {
        assert_eq!((cut_chars("äöü", 2), cut_chars("äöü", 3)), ("äö…".into(), "äöü".into()));
        assert_eq!((cut_bytes("äöü", 5), cut_bytes("äöü", 6)), ("äö…".into(), "äöü".into()));
        assert_eq!((cut_chars("a", 0), cut_bytes("", 0)), ("…".into(), "".into()));
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        assert_eq!(truncate("ééééé", 5), "ééééé");
        assert_eq!(truncate("aaaaaxbbbbb", 10), format!("aaaaa{CUT}bbbbb"));
        assert_eq!(truncate("éèàùçô", 4), format!("éè{CUT}çô"));
    }

    #[test]
    fn an_odd_limit_rounds_down_and_a_tiny_one_leaves_only_the_line() {
        assert_eq!(truncate("abcdef", 5), format!("ab{CUT}ef"));
        assert_eq!(truncate("ab", 1), CUT);
        assert_eq!(truncate("ab", 0), CUT);
        assert_eq!(truncate("", 0), "");
    }
}
