//! Repairs two faults of servers' JSON: escapes of half a surrogate pair, which servers in JavaScript
//! send when they split a text, and the numbers `NaN` and `Infinity`. Other faults stay errors.

/// The text with half characters replaced by U+FFFD and `NaN` and `Infinity` by null; `None`
/// if it has neither.
pub(super) fn repaired(json: &str) -> Option<String> {
    let mut mended = String::with_capacity(json.len());
    let (mut rest, mut is_in_text, mut is_changed) = (json, false, false);
    while let Some(character) = rest.chars().next() {
        let (length, written) = match character {
            '"' => {
                is_in_text = !is_in_text;
                (1, None)
            }
            '\\' if is_in_text => match surrogate(rest) {
                Some(0xd800..=0xdbff) => match rest.get(ESCAPE..).and_then(surrogate) {
                    Some(0xdc00..=0xdfff) => (2 * ESCAPE, None),
                    _ => (ESCAPE, Some("\\ufffd")),
                },
                Some(_) => (ESCAPE, Some("\\ufffd")),
                None => (1 + rest[1..].chars().next().map_or(0, char::len_utf8), None),
            },
            _ if is_in_text => (character.len_utf8(), None),
            _ => match NO_NUMBERS.iter().find(|word| rest.starts_with(**word)) {
                Some(word) => (word.len(), Some("null")),
                None => (character.len_utf8(), None),
            },
        };
        is_changed |= written.is_some();
        mended.push_str(written.unwrap_or(&rest[..length]));
        rest = &rest[length..];
    }
    is_changed.then_some(mended)
}

/// The bytes of `\uXXXX`.
const ESCAPE: usize = 6;
/// What JavaScript and Python write for numbers that JSON cannot.
const NO_NUMBERS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// The half of a pair of UTF-16 that the text begins with, as an escape.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)?;
    (0xd800..=0xdfff).contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_characters_and_no_numbers_are_mended_and_nothing_else() {
        for (json, expected) in [
            (r#""a\ud83d""#, Some(r#""a\ufffd""#)),
            (r#""\ude00b""#, Some(r#""\ufffdb""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud83d""#, None),
            (r#"{"a":NaN,"b":[-Infinity,Infinity]}"#, Some(r#"{"a":null,"b":[null,null]}"#)),
            (r#"{"a":"NaN"}"#, None),
            (r#"{"a":"#, None),
            (r#""\ud8"#, None),
            (r#""\"#, None),
            (r#""\ü""#, None),
        ] {
            assert_eq!(repaired(json).as_deref(), expected, "{json}");
        }
    }
}
