//! The state of a stored run in one word, and the command that continues it: `runs`, `show`,
//! `approvals`, `approve` and `resume` say the same.

use anstyle::Style;
pub(crate) use conclave_runtime::store::{CLOSED, SERVED};
use conclave_runtime::store::{RunRow, RunState};

use super::style_of;
use crate::program::shell::shell;

/// The command under which runs that people started at a server are stored.
pub(crate) const API_RUN: &str = "api";

/// Whether a server continues the runs of this command: conversations, and runs that people started
/// there.
pub(crate) fn is_of_server(command: &str) -> bool {
    [SERVED, API_RUN].contains(&command)
}

/// The word for a run's state, and its style.
pub(crate) fn run_state(of: RunState, command: &str) -> (Style, String) {
    let (tone, word) = of.in_words(command);
    (style_of(tone), word)
}

/// The state of a run one of whose calls is pending. An ended run has no pending calls.
pub(crate) fn state_of_pending(is_live: bool, run: Option<&RunRow>) -> (Style, String) {
    let state = match run {
        _ if is_live => RunState::Running,
        Some(run) if run.state.goes_on() => run.state,
        _ => RunState::Interrupted,
    };
    run_state(state, run.map_or("", |run| run.command.as_str()))
}

/// The command that continues a run which no process has open.
pub(crate) fn continued_by(run: &RunRow) -> String {
    if matches!(run.state, RunState::Queued | RunState::Asleep) {
        return "its workers do, by themselves".to_owned();
    }
    if !is_of_server(&run.command) {
        return format!("conclave resume {}", run.run);
    }
    let config = run.config.as_deref().map(|config| shell(&config.display().to_string()));
    format!("conclave serve {}", config.unwrap_or_default()).trim_end().to_owned()
}
