//! Escaping of text for an HTML page, against everything that a browser or a reader could
//! misinterpret.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conclave_runtime::store::RunState;
use sha2::{Digest as _, Sha256};

use crate::ui::show::printable;

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
}
