//! Pieces of a text that are no statement: code in prose, character drawings, places in brackets.

/// Percentage of non-blank characters that must be letters or digits.
const LETTERS: usize = 65;

/// Whether a passage of prose means nothing on its own: a command, a config table, a drawing, a
/// list of places in brackets.
pub fn is_scrap(text: &str) -> bool {
    let text = text.trim();
    let is_link = text.starts_with('[') && text.contains("](");
    let is_code = text.starts_with(['$', '{', '<', '[', '}', '#']) && !is_link;
    let is_aside = text.starts_with('(') && text.trim_end_matches('.').ends_with(')');
    let all = text.chars().filter(|c| !c.is_whitespace()).count();
    let letters = text.chars().filter(|c| c.is_alphanumeric()).count();
    is_code || is_aside || letters * 100 < all * LETTERS
}

#[cfg(test)]
mod tests {
    use super::is_scrap;

    #[test]
    fn what_says_nothing_alone_is_a_scrap() {
        for text in [
            "$ conclave run \"What?\"",
            "[plugins.weather] source = \"x.wasm\"",
            "{ \"rules\": [] }",
            "(`room/runs.rs`, `room/steps.rs`)",
            "┌──────┐ event ──▶ Room.handle",
            "--- | --- | ---",
        ] {
            assert!(is_scrap(text), "{text}");
        }
        for text in [
            "Skerryvore was first lit in 1844.",
            "[capabilities.md](capabilities.md) says how grants work.",
            "A `manifest` is what a plugin says of itself.",
            "(It was lit again) in 1854.",
            "東京湾の灯台は1869年に点灯した。",
        ] {
            assert!(!is_scrap(text), "{text}");
        }
    }
}
