//! Truncation of long text, and removal of browser data that models do not need.

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
    fn characters_are_counted_not_bytes() {
        assert_eq!(truncate("ééééé", 5), "ééééé");
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
