//! Levels of lines for the journal of systemd, which reads them from the beginning of each line. A
//! line of a plugin cannot choose its own: the journal takes the first level of a line alone.

use std::sync::LazyLock;

/// The level of a line, as syslog has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Error = 3,
    Warning = 4,
    Information = 6,
}

impl Priority {
    /// The level that the first word of a line says.
    pub(crate) fn of_line(line: &str) -> Self {
        match line.split_once(' ').map_or(line, |(first, _)| first) {
            "error:" => Self::Error,
            "warning:" => Self::Warning,
            _ => Self::Information,
        }
    }

    /// The word for programs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Information => "info",
        }
    }
}

/// Returns lines for stderr with their levels, if the journal reads it.
pub(crate) fn with_levels(text: String) -> String {
    if *IS_JOURNAL { leveled(&text) } else { text }
}

/// The beginning of a line of this level; empty if the journal does not read it.
pub(crate) fn prefix(level: Priority) -> String {
    if *IS_JOURNAL { mark(level) } else { String::new() }
}

fn mark(level: Priority) -> String {
    format!("<{}>", level as u8)
}

static IS_JOURNAL: LazyLock<bool> = LazyLock::new(is_journal);

/// Whether stderr is the stream that the variable names. It may be that of a parent process.
#[cfg(unix)]
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(own) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", own.st_dev, own.st_ino)
}

#[cfg(not(unix))]
fn is_journal() -> bool {
    false
}

fn leveled(text: &str) -> String {
    let mut level = Priority::Information;
    let lines = text.split_inclusive('\n').map(|line| {
        // A line that begins with a space belongs to the one before.
        if !line.starts_with(' ') {
            level = Priority::of_line(line);
        }
        format!("{}{line}", mark(level))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_level_of_its_first_word_and_a_plugin_chooses_none() {
        let text = "error: it failed\n  → do this\nwarning: odd\nserving\n<0>emergency\n";
        let expected =
            "<3>error: it failed\n<3>  → do this\n<4>warning: odd\n<6>serving\n<6><0>emergency\n";
        assert_eq!(leveled(text), expected);
    }
}
