//! Levels of lines for the journal of systemd, which reads them from the beginning of each line. A
//! line of a plugin cannot choose its own: the journal takes the first level of a line alone.

use std::sync::LazyLock;

/// Levels of syslog.
const ERROR: u8 = 3;
const WARNING: u8 = 4;
const INFORMATION: u8 = 6;

/// Returns lines for stderr with their levels, if the journal reads it.
pub(crate) fn with_levels(text: String) -> String {
    static IS_JOURNAL: LazyLock<bool> = LazyLock::new(is_journal);
    if *IS_JOURNAL { leveled(&text) } else { text }
}

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
    let mut level = INFORMATION;
    let lines = text.split_inclusive('\n').map(|line| {
        // A line that begins with a space belongs to the one before.
        if !line.starts_with(' ') {
            level = level_of(line);
        }
        format!("<{level}>{line}")
    });
    lines.collect()
}

fn level_of(line: &str) -> u8 {
    match line.split_once(' ').map_or(line, |(first, _)| first) {
        "error:" => ERROR,
        "warning:" => WARNING,
        _ => INFORMATION,
    }
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
