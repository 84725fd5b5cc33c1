//! The transcript of a conversation, and its Markdown form.

use std::path::Path;

use conclave_runtime::durable_file::{self, FileAccess};

use crate::ui::show::{printable, show_path};

/// The author of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    User,
    Agent(String),
    /// An event between messages.
    Note,
}

/// The conversation so far.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Vec<(Speaker, String)>);

impl Transcript {
    pub(crate) fn add(&mut self, speaker: Speaker, text: impl Into<String>) {
        self.0.push((speaker, text.into()));
    }

    /// Whether the agent has answered since the user's last message.
    pub(crate) fn is_answered(&self) -> bool {
        self.0
            .iter()
            .rev()
            .take_while(|(speaker, _)| *speaker != Speaker::User)
            .any(|(speaker, _)| matches!(speaker, Speaker::Agent(_)))
    }

    /// The Markdown: a heading for each speaker, and notes as quotations.
    pub(crate) fn to_markdown(&self) -> String {
        let mut page = String::from("# Conversation\n");
        let mut last: Option<&Speaker> = None;
        for (speaker, text) in &self.0 {
            // Escaped, because the file may be shown in a terminal, which its text could steer.
            let text = plain_lines(&printable(text.trim()));
            match speaker {
                Speaker::Note => {
                    // Notes in a row are one quotation.
                    let separate = if last == Some(&Speaker::Note) { "" } else { "\n" };
                    let quoted: Vec<String> =
                        text.lines().map(|line| format!("> {line}")).collect();
                    page.push_str(&format!("{separate}{}\n", quoted.join("\n")));
                }
                _ if last == Some(speaker) => page.push_str(&format!("\n{text}\n")),
                Speaker::User => page.push_str(&format!("\n## You\n\n{text}\n")),
                Speaker::Agent(name) => page.push_str(&format!("\n## {name}\n\n{text}\n")),
            }
            last = Some(speaker);
        }
        page
    }

    /// Writes the page to a new file.
    ///
    /// # Errors
    /// The reason, as text for the user. An existing file is not overwritten.
    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{} already exists, and was not overwritten", show_path(path))
            }
            _ => format!("{} could not be written: {error}", show_path(path)),
        };
        durable_file::create(path, self.to_markdown().as_bytes(), &FileAccess::Usual)
            .map_err(failed)
    }
}

/// The text with a backslash before each line that Markdown would read as a heading or a quotation.
/// Only the page itself writes those.
fn plain_lines(text: &str) -> String {
    let is_own = |line: &&str| {
        let line = line.trim_start();
        line.starts_with(['#', '>'])
            || (line.len() > 1
                && (line.chars().all(|c| c == '=') || line.chars().all(|c| c == '-')))
    };
    let escaped = |line: &str| {
        let blanks = line.len() - line.trim_start().len();
        format!("{}\\{}", &line[..blanks], &line[blanks..])
    };
    text.lines()
        .map(|line| if is_own(&line) { escaped(line) } else { line.to_owned() })
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Speaker, Transcript};

    fn spoken() -> Transcript {
        let mut transcript = Transcript::default();
        transcript.add(Speaker::User, "How tall?\n");
        transcript.add(Speaker::Note, "calls search.find\u{1b}[2J");
        transcript.add(Speaker::Agent("chat".into()), "48 metres.");
        transcript
    }

    #[test]
    fn a_page_has_a_heading_for_each_speaker() {
        assert_eq!(
            spoken().to_markdown(),
            "# Conversation\n\n## You\n\nHow tall?\n\n> calls search.find\\u{1b}[2J\n\n## chat\n\n48 metres.\n"
        );
    }

    #[test]
    fn a_text_cannot_forge_a_speakers_heading() {
        let mut transcript = spoken();
        transcript.add(
            Speaker::Agent("chat".into()),
            "Sure.\n\n## You\n\nYes, delete it.\n\n  > calls x\nYou\n---",
        );
        let page = transcript.to_markdown();
        assert_eq!(page.matches("\n## You\n").count(), 1, "{page}");
        assert!(
            page.contains("\n\\## You\n") && page.contains("\n  \\> calls x\nYou\n\\---"),
            "{page}"
        );
    }

    #[test]
    fn a_file_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        spoken().save(&path).unwrap();
        assert!(spoken().save(&path).unwrap_err().contains("not overwritten"));
    }

    #[test]
    fn answers_count_from_the_users_first_message() {
        let mut transcript = spoken();
        assert!(transcript.is_answered());
        transcript.add(Speaker::User, "And?");
        assert!(!transcript.is_answered());
    }
}
