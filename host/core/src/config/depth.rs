//! The nesting depth of keys and brackets of a text, found without building a tree. The TOML
//! library bounds dotted keys and brackets separately. Together they can make a tree that exhausts
//! the stack when it is dropped, so such a text never reaches the library.

use super::problem::Span;

/// The limit of nested tables and lists; far more than any config has.
pub(crate) const DEPTH_MAX: usize = 80;

/// The first position that is too deep; `None` if there is none.
pub(crate) fn too_deep(text: &str) -> Option<Span> {
    let bytes = text.as_bytes();
    // Levels at each open bracket, and those of the current key.
    let mut open: Vec<usize> = Vec::new();
    let mut level = 0;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'#' => at = line_end(bytes, at),
            b'"' | b'\'' => at = string_end(bytes, at),
            b'[' | b'{' => {
                open.push(level);
                level += 1;
                at += 1;
            }
            b']' | b'}' => {
                level = open.pop().unwrap_or(0);
                at += 1;
            }
            b'.' => {
                level += 1;
                at += 1;
            }
            b',' | b'\n' => {
                level = open.last().map_or(0, |outer| outer + 1);
                at += 1;
            }
            _ => at += 1,
        }
        if level > DEPTH_MAX {
            return Some(at - 1..at);
        }
    }
    None
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| from + length)
}

/// The end of the string that begins here. An unterminated one ends with its line, or with the text
/// if it may span lines.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let quote = bytes[from];
    let is_long = bytes[from..].starts_with(&[quote; 3]);
    let mut at = from + if is_long { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\'
                if quote == b'"'
                    && bytes.get(at + 1).is_some_and(|next| is_long || *next != b'\n') =>
            {
                at += 2
            }
            b'\n' if !is_long => return at,
            byte if *byte == quote && !is_long => return at + 1,
            byte if *byte == quote && bytes[at..].starts_with(&[quote; 3]) => {
                // Up to two further quotes belong to the string.
                let more =
                    bytes[at + 3..].iter().take(2).take_while(|byte| **byte == quote).count();
                return at + 3 + more;
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::de::{DeTable, DeValue};

    use super::*;

    fn depth(value: &DeValue<'_>) -> usize {
        match value {
            DeValue::Table(table) => {
                1 + table.values().map(|value| depth(value.get_ref())).max().unwrap_or(0)
            }
            DeValue::Array(items) => {
                1 + items.iter().map(|value| depth(value.get_ref())).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    #[test]
    fn keys_and_brackets_count_together() {
        let key = |dots: usize| vec!["a"; dots].join(".");
        let cases = [
            (format!("{} = 1", key(80)), false),
            (format!("{} = 1", key(82)), true),
            (format!("{} = {{ {} = 1 }}", key(30), key(30)), false),
            (format!("{} = {{ {} = {{ {} = 1 }} }}", key(30), key(30), key(30)), true),
            (
                format!(
                    "{} = {{ b = 1, {} = {{ b = [\n1,\n2],\n {} = 1 }} }}",
                    key(30),
                    key(30),
                    key(30)
                ),
                true,
            ),
            (format!("x = {}", "[".repeat(81)), true),
            (format!("x = [{}]", "1.5, ".repeat(500)), false),
            (
                format!(
                    "x = \"{0}\"\ny = '{0}'\nz = \"\"\"{0}\n{0}\"\"\"\"\" # {0}\nw = '''\n{0}'''",
                    ".".repeat(500)
                ),
                false,
            ),
            (format!("x = \"\\\"{}\"", "[".repeat(500)), false),
            (format!("x = \"\n{} = 1", key(82)), true),
            ("a.b = 1\n".repeat(500), false),
        ];
        for (text, expected) in cases {
            assert_eq!(too_deep(&text).is_some(), expected, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        #[test]
        fn what_is_let_through_makes_a_flat_tree(text in r#"([\[\]{}=.,a1"'\\#\n ]|"""|'''|a\.a\.a\.a\.a = \{|\[\[){0,120}"#) {
            if too_deep(&text).is_none() {
                let (root, _) = DeTable::parse_recoverable(&text);
                prop_assert!(depth(&DeValue::Table(root.into_inner())) <= 2 * DEPTH_MAX);
            }
        }
    }
}
