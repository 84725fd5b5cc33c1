//! The type of a response, and the decoding of its bytes to text.

/// Bytes that are searched for a page's declared encoding.
const HEAD: usize = 2_048;

/// The treatment of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Html,
    /// Shown unchanged: plain text, JSON, feeds.
    Text,
    /// Not text: a picture, an archive.
    Other,
}

/// The kind by content type, or by the first bytes without one.
pub(crate) fn kind(content_type: Option<&str>, bytes: &[u8]) -> Kind {
    let name = content_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let is_text = ["json", "xml", "javascript", "yaml", "toml", "csv", "x-www-form-urlencoded"]
        .iter()
        .any(|word| name.ends_with(word));
    match name.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Html,
        "" | "application/octet-stream" if looks_like_html(bytes) => Kind::Html,
        "" if !bytes.iter().take(HEAD).any(|byte| *byte == 0) => Kind::Text,
        name if name.starts_with("text/") || is_text => Kind::Text,
        _ => Kind::Other,
    }
}

fn looks_like_html(bytes: &[u8]) -> bool {
    let head =
        String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD)]).trim_start().to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<body"].iter().any(|start| head.starts_with(start))
}

/// The text, in the encoding of the header, or else of the page, or else UTF-8, or Latin-1 if it is
/// invalid.
pub(crate) fn decoded(bytes: &[u8], content_type: Option<&str>) -> String {
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return String::from_utf8_lossy(rest).into_owned();
    }
    if let Some(rest) = bytes.strip_prefix(b"\xff\xfe") {
        return utf16(rest, u16::from_le_bytes);
    }
    if let Some(rest) = bytes.strip_prefix(b"\xfe\xff") {
        return utf16(rest, u16::from_be_bytes);
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD)]).to_ascii_lowercase();
    let declared = content_type
        .and_then(|value| charset(&value.to_ascii_lowercase()))
        .or_else(|| charset(&head));
    match declared.as_deref() {
        Some(
            "iso-8859-1" | "latin1" | "latin-1" | "windows-1252" | "cp1252" | "us-ascii" | "ascii"
            | "iso-8859-15",
        ) => latin(bytes),
        Some(_) => String::from_utf8_lossy(bytes).into_owned(),
        None => std::str::from_utf8(bytes).map_or_else(|_| latin(bytes), str::to_owned),
    }
}

fn charset(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("charset")?;
    let name = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let name: String = name
        .chars()
        .take_while(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The characters of Windows-1252 that differ from Latin-1. Browsers use it for both.
const WINDOWS: [char; 32] = [
    '€', '\u{fffd}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{fffd}', 'Ž',
    '\u{fffd}', '\u{fffd}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{fffd}',
    'ž', 'Ÿ',
];

fn latin(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| {
            if (0x80..0xa0).contains(byte) {
                WINDOWS[usize::from(byte - 0x80)]
            } else {
                char::from(*byte)
            }
        })
        .collect()
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Kind, decoded, kind};

    #[test]
    fn the_kind_is_that_of_the_header_or_of_the_first_letters() {
        for (content_type, bytes, expected) in [
            (Some("text/html; charset=utf-8"), &b""[..], Kind::Html),
            (Some("Application/XHTML+xml"), b"", Kind::Html),
            (None, b" <!DOCTYPE html>", Kind::Html),
            (None, b"plain", Kind::Text),
            (None, b"\x89PNG\0", Kind::Other),
            (Some("application/json"), b"{}", Kind::Text),
            (Some("application/ld+json"), b"{}", Kind::Text),
            (Some("text/plain"), b"<html>", Kind::Text),
            (Some("image/png"), b"<html>", Kind::Other),
            (Some("application/octet-stream"), b"<html>", Kind::Html),
        ] {
            assert_eq!(kind(content_type, bytes), expected, "{content_type:?}");
        }
    }

    #[test]
    fn letters_are_as_header_or_page_say() {
        for (bytes, content_type, expected) in [
            (&b"\xe9"[..], Some("text/html; charset=ISO-8859-1"), "é"),
            (b"<meta charset='latin1'>\xe9\x80", None, "<meta charset='latin1'>é€"),
            (
                b"<meta http-equiv=x content=\"text/html; charset=windows-1252\">\x93",
                None,
                "<meta http-equiv=x content=\"text/html; charset=windows-1252\">“",
            ),
            ("é".as_bytes(), None, "é"),
            (b"\xe9", None, "é"),
            (b"\xe9", Some("text/html; charset=utf-8"), "\u{fffd}"),
            (b"\xef\xbb\xbfa", Some("text/html; charset=latin1"), "a"),
            (b"\xff\xfea\0\xe9\0", None, "aé"),
            (b"\xfe\xff\0a\xd8\0", None, "a\u{fffd}"),
            (b"", None, ""),
        ] {
            assert_eq!(decoded(bytes, content_type), expected);
        }
    }
}
