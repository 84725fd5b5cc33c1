//! Character references of HTML: numbers, and the names that pages really use. An unknown one stays
//! as it is written.

/// Letters of a name or number, at most.
const LONGEST: usize = 32;

#[rustfmt::skip]
const NAMES: [(&str, &str); 93] = [
    ("AElig", "Æ"), ("AMP", "&"), ("Aacute", "Á"), ("Agrave", "À"), ("Aring", "Å"), ("Auml", "Ä"), ("Ccedil", "Ç"),
    ("Eacute", "É"), ("Egrave", "È"), ("GT", ">"), ("LT", "<"), ("Ntilde", "Ñ"), ("Oslash", "Ø"), ("Ouml", "Ö"), ("QUOT", "\""),
    ("Uuml", "Ü"), ("aacute", "á"), ("acirc", "â"), ("acute", "´"), ("aelig", "æ"), ("agrave", "à"), ("alpha", "α"), ("amp", "&"),
    ("apos", "'"), ("aring", "å"), ("atilde", "ã"), ("auml", "ä"), ("beta", "β"), ("bull", "•"), ("ccedil", "ç"), ("cent", "¢"),
    ("check", "✓"), ("copy", "©"), ("dagger", "†"), ("darr", "↓"), ("deg", "°"), ("divide", "÷"), ("eacute", "é"), ("ecirc", "ê"),
    ("egrave", "è"), ("emsp", " "), ("ensp", " "), ("euml", "ë"), ("euro", "€"), ("frac12", "½"), ("frac14", "¼"),
    ("frac34", "¾"), ("ge", "≥"), ("gt", ">"), ("harr", "↔"), ("hellip", "…"), ("iacute", "í"), ("icirc", "î"), ("iexcl", "¡"),
    ("infin", "∞"), ("iquest", "¿"), ("iuml", "ï"), ("laquo", "«"), ("larr", "←"), ("ldquo", "“"), ("le", "≤"), ("lsquo", "‘"),
    ("lt", "<"), ("mdash", "—"), ("micro", "µ"), ("middot", "·"), ("minus", "−"), ("nbsp", " "), ("ndash", "–"), ("ne", "≠"),
    ("ntilde", "ñ"), ("oacute", "ó"), ("ocirc", "ô"), ("oslash", "ø"), ("ouml", "ö"), ("para", "¶"), ("pi", "π"), ("plusmn", "±"),
    ("pound", "£"), ("quot", "\""), ("raquo", "»"), ("rarr", "→"), ("rdquo", "”"), ("reg", "®"), ("rsquo", "’"), ("sect", "§"),
    ("shy", ""), ("szlig", "ß"), ("thinsp", " "), ("times", "×"), ("trade", "™"), ("uacute", "ú"), ("uuml", "ü"),
];

/// The text with its references replaced.
pub(crate) fn decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest
            .as_bytes()
            .iter()
            .take(LONGEST)
            .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'#');
        let window = end.filter(|end| rest.as_bytes()[*end] == b';');
        match window.and_then(|end| Some((reference(&rest[..end])?, end))) {
            Some((meant, end)) => {
                decoded.push_str(&meant);
                rest = &rest[end + 1..];
            }
            None => decoded.push('&'),
        }
    }
    decoded.push_str(rest);
    decoded
}

fn reference(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return NAMES
            .binary_search_by(|(known, _)| (*known).cmp(name))
            .ok()
            .map(|found| NAMES[found].1.to_owned());
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok()?,
        None => number.parse().ok()?,
    };
    // Invalid and control characters are replaced, since they could steer a terminal.
    Some(
        char::from_u32(code)
            .filter(|letter| !letter.is_control() || letter.is_whitespace())
            .map_or_else(|| "\u{fffd}".into(), String::from),
    )
}

#[cfg(test)]
mod tests {
    use super::{NAMES, decoded};

    #[test]
    fn names_are_sorted_for_the_search() {
        assert!(NAMES.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn references_are_replaced_and_others_stay() {
        for (text, expected) in [
            ("a &amp; b &lt;c&gt;", "a & b <c>"),
            ("&#233;&#xE9;&eacute;", "ééé"),
            (
                "&#0;&#x1b;&#xD800;&#x110000;",
                "\u{fffd}\u{fffd}\u{fffd}&#x110000;".replace("&#x110000;", "\u{fffd}").as_str(),
            ),
            ("&amp;amp;", "&amp;"),
            ("AT&T; a & b; &unknown; &", "AT&T; a & b; &unknown; &"),
            ("&#99999999999999;", "&#99999999999999;"),
            ("ü&ouml;", "üö"),
        ] {
            assert_eq!(decoded(text), expected, "{text}");
        }
    }

    #[test]
    fn a_flood_of_references_is_read_once() {
        assert_eq!(decoded(&"&".repeat(200_000)).len(), 200_000);
        assert_eq!(decoded(&"&amp;".repeat(200_000)).len(), 200_000);
    }
}
