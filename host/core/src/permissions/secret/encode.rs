//! Encodings of a value in place of its placeholder, so that the surrounding text keeps its
//! meaning.

/// The value percent-encoded: all but letters, digits and `-._~`.
pub(super) fn percent(value: &str) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = Vec::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte);
        } else {
            encoded.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
    encoded
}

/// The value as it appears between the quotes of a JSON string.
pub(super) fn json(value: &str) -> Vec<u8> {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

/// The encoding of values in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json,
    Form,
    Raw,
}

impl BodyKind {
    /// The kind for the content type that the guest set.
    pub(super) fn of(headers: &[(String, String)]) -> Self {
        let content_type = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            .map(|(_, value)| value.as_str());
        let essence = content_type
            .and_then(|value| value.split(';').next())
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            json if json.ends_with("/json") || json.ends_with("+json") => Self::Json,
            _ => Self::Raw,
        }
    }

    pub(super) fn write(self, value: &str) -> Vec<u8> {
        match self {
            Self::Json => json(value),
            Self::Form => percent(value),
            Self::Raw => value.as_bytes().to_vec(),
        }
    }
}

/// Whether a header can hold the value: visible ASCII and spaces.
pub(super) fn fits_header(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_does_not_end_what_it_stands_in() {
        assert_eq!(percent("a&b=ü "), b"a%26b%3D%C3%BC%20");
        assert_eq!(json("a\"b\\\n"), br#"a\"b\\\n"#);
        assert!(fits_header("Bearer x") && !fits_header("a\r\nb") && !fits_header("ü"));
        let kind = |value: &str| BodyKind::of(&[("Content-Type".to_owned(), value.to_owned())]);
        assert_eq!(kind("application/problem+JSON; charset=utf-8"), BodyKind::Json);
        assert_eq!(kind("application/x-www-form-urlencoded"), BodyKind::Form);
        assert_eq!(kind("text/plain"), BodyKind::Raw);
    }
}
