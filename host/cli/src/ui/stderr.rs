//! Lines on stderr beside a result: notes, warnings and errors. They take the queue of `output`, so
//! a slow reader blocks no run, and a closed stderr stops none.

use std::fmt::Display;
use std::io::Write;

use anstyle::Style;

use crate::program::error::CliError;
use crate::ui::output;
use crate::ui::show::{BAD, FAINT, ODD, paint, printable};

/// Writes a line.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(output::stderr(), "{text}");
}

/// Writes text that has its own line ends.
pub(crate) fn text(text: impl Display) {
    let _ = write!(output::stderr(), "{text}");
}

/// Writes a line in a style.
pub(crate) fn styled(style: Style, text: impl Display) {
    line(paint(style, text));
}

/// Writes a faint line.
pub(crate) fn note(text: impl Display) {
    styled(FAINT, text);
}

/// Writes a warning.
pub(crate) fn warning(text: impl Display) {
    line(format_args!("{} {text}", paint(ODD, "warning:")));
}

/// Writes an error. Names from a component can be part of it.
pub(crate) fn error(error: &CliError) {
    let text = error.to_string();
    if error.is_failure() {
        line(format_args!("{} {}", paint(BAD, "error:"), printable(&text)));
    } else {
        line(printable(&text));
    }
}
