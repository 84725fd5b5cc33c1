//! Text for users: styles that can be switched off, columns, sizes and times in words. Everything
//! here goes to stderr; other modules write results to stdout.

pub(crate) mod agents;
pub(crate) mod amounts;
pub(crate) mod columns;
pub(crate) mod component;
pub(crate) mod delegation;
pub(crate) mod entry;
pub(crate) mod explanation;
pub(crate) mod foreign;
pub(crate) mod head;
pub(crate) mod hunks;
pub(crate) mod listing;
pub(crate) mod page;
pub(crate) mod pending;
pub(crate) mod plan;
pub(crate) mod prompts;
pub(crate) mod run_state;
pub(crate) mod steps;
pub(crate) mod table;
pub(crate) mod tally;
pub(crate) mod timeline;
pub(crate) mod tool;
pub(crate) mod trace;
pub(crate) mod usage;

use std::fmt::Display;
use std::path::Path;

use anstyle::{AnsiColor, Style};
pub(crate) use conclave_core::inspect::amounts::{bytes, plural, time};
use conclave_core::inspect::telling::Tone;

use crate::program::error::CliError;

/// The style of names of plugins and tasks.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
/// The style of less important text.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// The style of refusals and errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// The style of warnings.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
/// The style of successes.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();

/// The text in a style. The stream removes styles if colors are off.
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The style of a telling of this tone.
pub(crate) fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Faint => FAINT,
        Tone::Name => NAME,
        Tone::Good => GOOD,
        Tone::Odd => ODD,
        Tone::Bad => BAD,
    }
}

/// The text in one line of at most `most` columns, with blanks for line ends. Characters that could
/// steer a terminal are escaped.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    foreign::one_row(&text.split_whitespace().collect::<Vec<_>>().join(" "), most).0
}

/// The text with all characters escaped that could steer a terminal or deceive a reader. Line ends
/// and blanks stay.
pub(crate) fn printable(text: &str) -> String {
    foreign::readable(text)
}

/// A path for display: like [`printable`], in one line, with tabs and line ends escaped. A folder
/// from elsewhere may have any name.
pub(crate) fn show_path(path: impl AsRef<Path>) -> String {
    let escaped = path.as_ref().display().to_string();
    let escaped = escaped.replace('\t', "\\u{9}").replace('\r', "\\u{d}");
    printable(&escaped.replace('\n', "\\u{a}"))
}

/// The error for a file that could not be read.
pub(crate) fn unread(path: impl AsRef<Path>, error: impl Display) -> CliError {
    CliError::usage(format!("{} could not be read: {error}", show_path(path)))
}

/// The error for a file that could not be written.
pub(crate) fn unwritten(path: impl AsRef<Path>, error: impl Display) -> CliError {
    CliError::internal(format!("{} could not be written: {error}", show_path(path)))
}

#[cfg(test)]
mod tests {
    use super::{one_line, printable, show_path};

    #[test]
    fn a_plugin_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!(
            printable("a\u{200d}b \u{1f469}\u{200d}\u{1f4bb}"),
            "a\\u{200d}b \u{1f469}\u{200d}\u{1f4bb}"
        );
        assert_eq!(one_line("first\n  second\u{7}", 80), "first second\\u{7}");
    }

    #[test]
    fn a_path_is_shown_in_one_line() {
        assert_eq!(show_path("a\n\u{1b}[2J/conclave.toml"), "a\\u{a}\\u{1b}[2J/conclave.toml");
        assert_eq!(show_path("a\tb\r\nc"), "a\\u{9}b\\u{d}\\u{a}c");
        assert_eq!(show_path("docs/My examples/a.toml"), "docs/My examples/a.toml");
    }

    #[test]
    fn a_long_line_is_cut_with_a_mark() {
        assert_eq!(one_line("abcdef", 5), "abc…");
        assert_eq!(one_line("abcd", 4), "abcd");
    }
}
