//! The weight of a JSON text: about how much memory its values take, counted while its bytes pass.
//! An object of a few bytes takes some hundred in memory, so the bytes alone say little.

/// Weight of an object, relative to any other value.
const OBJECT: usize = 8;

/// Counts the values of one message after the other, without parsing them.
#[derive(Debug, Default)]
pub(super) struct JsonWeight {
    weight: usize,
    is_in_text: bool,
    is_escaped: bool,
}

impl JsonWeight {
    /// Returns the weight of the message so far, with this byte. A line end begins the next one.
    pub(super) fn add(&mut self, byte: u8) -> usize {
        match byte {
            // JSON has no line end within a text.
            b'\n' => *self = Self::default(),
            _ if std::mem::take(&mut self.is_escaped) => {}
            b'\\' => self.is_escaped = self.is_in_text,
            b'"' => self.is_in_text = !self.is_in_text,
            _ if self.is_in_text => {}
            b'{' => self.weight += OBJECT,
            b'[' | b',' => self.weight += 1,
            _ => {}
        }
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(text: &str) -> usize {
        let mut weight = JsonWeight::default();
        text.bytes().map(|byte| weight.add(byte)).last().unwrap_or_default()
    }

    #[test]
    fn values_count_and_characters_of_texts_do_not() {
        assert_eq!(weight(r#"{"a":[1,2,{}]}"#), 2 * OBJECT + 3);
        assert_eq!(weight(r#""{[,\\\"{[,""#), 0);
        assert_eq!(weight("[1,2]\n[1"), 1);
    }
}
