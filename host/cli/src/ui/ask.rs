//! Questions to the user at the terminal, on stderr with answers from stdin. Without a user nothing
//! is asked, and nothing waits.

use std::io::{IsTerminal, Write};

use crate::ui::screen::columns;
use crate::ui::show::columns::wrap_styled;
use crate::ui::show::{FAINT, paint};

/// The separator between a question and its answer.
const PROMPT: &str = " > ";

/// Whether a user can read a question and answer it.
pub(crate) fn is_user_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for yes or no. Anything but a clear yes counts as no, and so does the end of the input.
pub(crate) fn confirm(question: &str) -> bool {
    let answer = line(&format!("{question} {}", paint(FAINT, "[y/N]")));
    answer.is_some_and(|answer| matches!(answer.to_lowercase().as_str(), "y" | "yes"))
}

/// Asks for a line. Returns `None` if it is empty.
pub(crate) fn line(question: &str) -> Option<String> {
    if !is_user_there() {
        return None;
    }
    let mut err = crate::ui::output::stderr();
    // The terminal would break a long question in the middle of a word.
    let rows = wrap_styled(question, columns().saturating_sub(PROMPT.len()));
    let _ = write!(err, "{}{}", rows.join("\n"), paint(FAINT, PROMPT));
    let _ = err.flush();
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(read) if read > 0 => Some(line.trim().to_owned()).filter(|line| !line.is_empty()),
        // The cursor is still behind the question.
        _ => {
            let _ = writeln!(err);
            None
        }
    }
}

/// Asks for names, separated by blanks or commas.
pub(crate) fn names(question: &str) -> Vec<String> {
    let line = line(question).unwrap_or_default();
    let names = line.split([' ', ',', '\t']).map(|name| name.trim_matches(['"', '\'']));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
