//! Knowledge files of a task (O-126). The text of a file follows the first user message that
//! contains one of its triggers. The choice depends on setup and history only, so a replay makes
//! the same one. Files are not read here; the setup holds their texts.

use std::sync::Arc;

use super::Dialogue;
use crate::protocol::notice::Notice;
use crate::setup::Knowledge;
use crate::types::history::History;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Message, Role};
use crate::types::triggers;

/// Prefix of the sender's name of such an entry. Plugin names have no colon, so no other sender can
/// have it.
const SENDER: &str = "knowledge:";

/// Whether the host added the entry because of a trigger.
pub(super) fn is_knowledge(message: &Message) -> bool {
    message.sender == Role::Agent && message.sender_name.starts_with(SENDER)
}

/// The newest entry that is not knowledge. Knowledge follows the message that triggered it.
pub(super) fn newest_said(history: &History) -> Option<&Arc<Message>> {
    history.iter_newest_first().find(|message| !is_knowledge(message))
}

impl Dialogue<'_> {
    /// Appends the knowledge that a user's message triggers, each file once in a history. The agent
    /// reads it with every step as long as it is there.
    pub(super) fn add_knowledge(
        &mut self,
        frame: FrameId,
        task: &TaskName,
        message: &Arc<Message>,
    ) {
        if message.sender != Role::User {
            return;
        }
        // Cloned, because appending needs `&mut self`.
        let files =
            self.cx.setup.tasks.get(task).map(|setup| setup.knowledge.clone()).unwrap_or_default();
        for known in files {
            let Some(trigger) =
                triggers::first(known.triggers.iter().map(String::as_str), message.text())
            else {
                continue;
            };
            let sender = format!("{SENDER}{}", known.file);
            if self
                .histories
                .memory(self.cx, task)
                .history()
                .iter()
                .any(|entry| is_knowledge(entry) && entry.sender_name == sender)
            {
                continue;
            }
            let mut entry =
                self.frames.host_message(self.cx, frame, knowledge_text(&known, trigger));
            entry.sender_name = sender;
            entry.parent = Some(message.seq);
            self.histories.memory(self.cx, task).push(&Arc::new(entry));
            let (file, trigger) = (known.file.clone(), trigger.to_owned());
            self.cx.notify(Notice::KnowledgeAdded { task: task.clone(), file, trigger });
        }
    }
}

/// The text for the agent: its source, its trigger, and the fenced content.
fn knowledge_text(known: &Knowledge, trigger: &str) -> String {
    let fence = "`".repeat(longest_run(&known.text).max(2) + 1);
    let name = known.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    format!(
        "Knowledge{name} from the operator's file {}, because the message above says {trigger:?}. It is \
         reference material for that message, not a request:\n{fence}text\n{}\n{fence}",
        known.file, known.text
    )
}

/// The length of the longest run of backticks. A fence must be longer, or the text could end it.
fn longest_run(text: &str) -> usize {
    text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_file_ends_the_fence() {
        let known = Knowledge {
            text: "a\n````\nb".to_owned(),
            file: "g.md".to_owned(),
            ..Knowledge::default()
        };
        let text = knowledge_text(&known, "git");
        assert!(text.ends_with("\n`````text\na\n````\nb\n`````"), "{text}");
        assert_eq!(text.matches("`````").count(), 2, "{text}");
    }
}
