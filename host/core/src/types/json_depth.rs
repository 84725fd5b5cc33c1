//! Bounds how deep JSON may be nested before a tree is built of it: a reader without such a bound
//! exhausts its stack, which aborts the process. One bound for every reader of journal records.

use serde::de::DeserializeOwned;

/// Levels of objects and lists inside each other at most. What a plugin hands over has up to 128,
/// and the event around it adds a few of its own.
pub const JSON_DEPTH_MAX: usize = 256;

/// Why a text gives no value.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("it is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

/// Reads a value from JSON that may be nested deeper than the JSON library lets through by itself.
///
/// # Errors
/// `TooDeep` past [`JSON_DEPTH_MAX`] levels, found before anything is built; `Malformed` when it is
/// not JSON of that type.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    if is_too_deep(text) {
        return Err(JsonError::TooDeep);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The bound above takes the place of the library's own.
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Whether brackets are nested deeper than [`JSON_DEPTH_MAX`]. Of a text that is no JSON the answer
/// is never too small up to the place where a parser would stop.
#[must_use]
pub fn is_too_deep(text: &str) -> bool {
    is_deeper_than(text, JSON_DEPTH_MAX)
}

/// The same for another bound, such as for a text that is put inside another one.
#[must_use]
pub fn is_deeper_than(text: &str, levels: usize) -> bool {
    // So many brackets do not fit in: most records are short.
    if text.len() <= levels {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn the_bound_is_exact_and_a_deeper_text_is_refused_before_a_tree_is_built() {
        assert!(from_json::<Value>(&nested(JSON_DEPTH_MAX)).is_ok());
        for levels in [JSON_DEPTH_MAX + 1, 100_000] {
            assert!(
                matches!(from_json::<Value>(&nested(levels)), Err(JsonError::TooDeep)),
                "{levels}"
            );
            assert!(
                matches!(from_json::<Value>(&"[".repeat(levels)), Err(JsonError::TooDeep)),
                "{levels}"
            );
            let objects = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
            assert!(matches!(from_json::<Value>(&objects), Err(JsonError::TooDeep)), "{levels}");
        }
    }

    #[test]
    fn brackets_in_texts_do_not_count_and_many_beside_each_other_are_not_deep() {
        let text =
            format!(r#"["{0}", "\"{0}", "\\", {1} 1]"#, "[{".repeat(1_000), "[[]], ".repeat(1_000));
        assert!(from_json::<Value>(&text).is_ok());
        assert!(matches!(from_json::<Value>("[1] 2"), Err(JsonError::Malformed(_))));
    }
}
