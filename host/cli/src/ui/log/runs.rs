//! The events of runs in the log of programs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use conclave_core::inspect::telling::{Subject, Telling, TextRole, Tone, tell};
use conclave_core::types::ids::{Principal, RoomId};
use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber};

use super::{LogFields, write};
use crate::ui::journald::Priority;
use crate::ui::show::trace::is_routine;

/// Runs whose principals are remembered. One beyond them begins anew with its next record.
const REMEMBERED: usize = 1_000;

/// Writes the events of runs with their run and principal. Texts of people, models and tools are
/// left to the journal, whose record each line names.
pub(crate) struct RunLog {
    /// The name of the config, if there are several.
    config: Option<String>,
    verbose: bool,
    principals: Mutex<BTreeMap<RoomId, Principal>>,
}

impl RunLog {
    pub(crate) fn new(config: Option<String>, verbose: bool) -> Self {
        Self { config, verbose, principals: Mutex::default() }
    }

    fn note(&self, run: RoomId, principal: &Principal) {
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        if principals.len() >= REMEMBERED && !principals.contains_key(&run) {
            principals.clear();
        }
        principals.entry(run).or_insert_with(|| principal.clone());
    }

    fn fields(&self, of: &Published, event: &'static str, level: Priority) -> LogFields {
        let run = of.room.run();
        let principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        LogFields {
            event: Some(event),
            level: Some(level),
            principal: principals.get(&run).cloned(),
            run: Some(run),
            room: Some(of.room.clone()),
            record: of.seq,
            config: self.config.clone(),
            request: None,
        }
    }
}

impl Subscriber for RunLog {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, of: &Published) {
        match &of.what {
            RunEvent::Recorded { record } => self.note(of.room.run(), &record.principal),
            RunEvent::Notice { notice } if !is_routine(notice) => {
                let telling = tell(notice);
                let level = match telling.tone {
                    Tone::Bad => Priority::Warning,
                    _ => Priority::Information,
                };
                write(&self.fields(of, telling.code, level), &sentence(&telling));
            }
            RunEvent::Logged { plugin, level, message, .. }
                if self.verbose || *level >= Level::Info =>
            {
                let level = match level {
                    Level::Warn | Level::Error => Priority::Warning,
                    _ => Priority::Information,
                };
                let text = format!("{plugin}: {}", one_line(message));
                write(&self.fields(of, "plugin-log", level), &text);
            }
            RunEvent::ObserverStopped { observer, reason, .. } => {
                let text = format!("the observer {observer} was stopped: {}", one_line(reason));
                write(&self.fields(of, "observer-stopped", Priority::Warning), &text);
            }
            _ => {}
        }
    }
}

/// The notices whose reasons the host writes, or a service that it asked. All other reasons can be
/// words of people, models and tools, which the log does not have.
const REASONS: [&str; 10] = [
    "attempt-lost",
    "channel-refused",
    "dead-letter",
    "decision-rejected",
    "denied",
    "not-delivered",
    "observer-retried",
    "observer-stopped",
    "step-stalled",
    "top-up-asked",
];

/// A telling in one line, without the texts of people, models and tools.
fn sentence(telling: &Telling<'_>) -> String {
    let subject = match telling.subject {
        // The predicate names the model.
        Subject::Host | Subject::Model => String::new(),
        Subject::Budget => "a limit".to_owned(),
        Subject::Task(task) => format!("the task {task}"),
        Subject::Plugin(plugin) => format!("the plugin {plugin}"),
        Subject::Channel(channel) => format!("the channel {channel}"),
        Subject::Tool(tool) => format!("the tool {tool}"),
        Subject::Background { id, task } => format!("the background task {id} ({task})"),
    };
    let why = telling.text.as_ref().filter(|text| text.role == TextRole::Reason);
    let why = why.filter(|_| REASONS.contains(&telling.code));
    let why = why.map(|text| format!(": {}", text.text)).unwrap_or_default();
    one_line(format!("{subject} {}{why}", telling.predicate()).trim())
}

/// A text as one line: a line end in it would begin another entry.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use conclave_core::inspect::telling::TellingText;
    use conclave_core::protocol::notice::Notice;
    use conclave_core::types::ids::TaskName;

    use super::*;

    #[test]
    fn the_log_has_no_text_of_people() {
        let telling = Telling {
            code: "tool-called",
            subject: Subject::Tool("save"),
            verb: "answered",
            target: "".into(),
            text: Some(TellingText { role: TextRole::Message, text: "my secret".into() }),
            facts: Vec::new(),
            tone: Tone::Plain,
        };
        assert_eq!(sentence(&telling), "the tool save answered");
    }

    #[test]
    fn the_log_has_no_reason_that_a_person_or_a_model_wrote() {
        let reason = "my secret".to_owned();
        let notice = Notice::TurnStopped { task: TaskName::from("desk"), reason };
        assert_eq!(sentence(&tell(&notice)), "the task desk stopped");
        let stalled = Telling { code: "step-stalled", ..tell(&Notice::RunUnpaused) };
        let text = Some(TellingText { role: TextRole::Reason, text: "no answer".into() });
        assert!(sentence(&Telling { text, ..stalled }).ends_with(": no answer"));
    }
}
