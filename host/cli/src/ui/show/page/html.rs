//! Escaping of text for an HTML page, against everything that a browser or a reader could
//! misinterpret.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conclave_runtime::store::RunState;
use sha2::{Digest as _, Sha256};

use crate::ui::show::printable;

/// Width of the drawings, in units.
const WIDTH: u64 = 1_000;

/// Escapes text for an element or a quoted attribute. Invisible and bidirectional characters are
/// escaped as in the terminal.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '`' => safe.push_str("&#96;"),
            c => safe.push(c),
        }
    }
    safe
}

/// The hash of a style, as a policy names it: `sha256-…`.
pub(super) fn source_of(style: &str) -> String {
    let mut source = "sha256-".to_owned();
    let _ = write!(source, "{}", STANDARD.encode(Sha256::digest(style.as_bytes())));
    source
}

/// The class with the color of a run's state.
pub(super) fn tag_of(state: RunState) -> &'static str {
    match state {
        RunState::Running | RunState::Queued | RunState::Asleep => "t-name",
        RunState::Interrupted => "t-odd",
        RunState::Ended(status) if status.is_success() => "t-good",
        RunState::Ended(_) => "t-bad",
    }
}

/// The start and the width of something in a drawing. The width is always visible.
pub(super) fn span(start: u64, end: Option<u64>, span_ms: u64) -> (u64, u64) {
    const LEAST: u64 = 3;
    let at = |ms: u64| {
        let units = u128::from(ms) * u128::from(WIDTH) / u128::from(span_ms.max(1));
        u64::try_from(units).unwrap_or(WIDTH).min(WIDTH)
    };
    let from = at(start).min(WIDTH - LEAST);
    let to = end.map_or(WIDTH, at);
    (from, to.saturating_sub(from).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            escape("</script><b a=\"x\" b='y'>&`"),
            "&lt;/script&gt;&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;&#96;"
        );
        assert_eq!(escape("a\u{202e}b\u{0}"), "a\\u{202e}b\\u{0}");
    }

    #[test]
    fn a_style_is_named_by_what_it_is() {
        // The output of `printf '' | openssl dgst -sha256 -binary | base64`.
        assert_eq!(source_of(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn a_bar_is_inside_the_drawing_and_seen() {
        for (start, end, span_ms) in [
            (0, Some(0), 0),
            (5, Some(5), 10),
            (10, Some(10), 10),
            (0, None, 10),
            (u64::MAX, None, 1),
            (9, Some(20), 10),
        ] {
            let (x, wide) = span(start, end, span_ms);
            assert!(wide >= 3 && x + wide <= WIDTH, "{start} {end:?} {span_ms}: {x} {wide}");
        }
    }
}
