//! A bound on the nesting of JSON, checked before a tree is built. A reader without such a bound
//! exhausts its stack, which aborts the process. All readers of journal records share this bound.

use serde::de::DeserializeOwned;

/// The limit of nested objects and lists. A plugin's value has up to 128 levels, and the event
/// around it adds a few of its own.
pub const JSON_DEPTH_MAX: usize = 256;

/// The error for a text that is not read.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("it is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

/// Reads a value from JSON, nested deeper than the JSON library allows by default.
///
/// # Errors
/// `TooDeep` past [`JSON_DEPTH_MAX`] levels, detected before anything is built; `Malformed` if the
/// text is not JSON of that type.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    from_json_within(text, JSON_DEPTH_MAX)
}

/// Reads a value from JSON of at most `levels` levels, such as a state that holds values of records.
///
/// # Errors
/// As [`from_json`].
pub fn from_json_within<T: DeserializeOwned>(text: &str, levels: usize) -> Result<T, JsonError> {
    if is_deeper_than(text, levels) {
        return Err(JsonError::TooDeep);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The check above replaces the library's own limit.
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Whether brackets are nested deeper than [`JSON_DEPTH_MAX`]. For a text that is not JSON, the
/// depth is never underestimated up to the position where a parser would stop.
#[must_use]
pub fn is_too_deep(text: &str) -> bool {
    is_deeper_than(text, JSON_DEPTH_MAX)
}

/// Whether brackets are nested deeper than `levels`, such as for a text that becomes part of
/// another one.
#[must_use]
pub fn is_deeper_than(text: &str, levels: usize) -> bool {
    // A short text cannot hold that many brackets; most records end here.
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
