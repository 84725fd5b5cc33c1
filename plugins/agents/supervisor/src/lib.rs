//! Supervisor: delegates a task to its workers, one after the other with the earlier results, or to
//! all at once. An optional reviewer then checks the result, and the work is repeated until it is
//! approved or the revisions are used up (R-132). It has no model: the order is fixed. A supervisor
//! with a model of its own is a `stock:chat` with one `delegate_task` for each worker.
//!
//! ```toml
//! [plugins.supervisor]
//! source = "stock:supervisor"
//! grants.delegate = { tasks = ["research", "write", "review"], at_once = 2 }
//! config = { workers = ["research", "write"], mode = "sequential", review = "review", revisions = 3 }
//!
//! [tasks.article]
//! agent = "supervisor"
//!
//! [tasks.research]
//! agent = "chat"
//! ```
//!
//! A worker gets `task`, in words, with the others' results and the reviewer's feedback. For
//! workers with declared inputs there are also `original`, the request alone, `outputs`, the
//! others' results by name, and `feedback`. The reviewer gets the same with `result`. It returns
//! `approved`, true or false, and `feedback`, as outputs or as JSON in its text. **Anything else is
//! a rejection.**

mod progress;

use conclave_sdk::actions::Action;
use conclave_sdk::{Agent, Result, Turn, View, config, reject, scratch};
use serde::Deserialize;

use progress::Progress;

/// The `config` table of this plugin.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    workers: Vec<String>,
    mode: Mode,
    /// The reviewer; empty for none.
    review: String,
    revisions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Sequential,
    Parallel,
}

impl Default for Settings {
    fn default() -> Self {
        Self { workers: Vec::new(), mode: Mode::Sequential, review: String::new(), revisions: 3 }
    }
}

struct Supervisor;

impl Agent for Supervisor {
    fn step(view: &View) -> Result<Turn> {
        let settings: Settings = config::get()?;
        let kept: Option<Progress> = if view.iteration() == 0 { None } else { scratch::get()? };
        let (progress, turn) = match kept {
            None => Progress::begin(
                &settings,
                view.latest_user_message()
                    .or_else(|| view.pending().map(|message| message.content))
                    .unwrap_or_default(),
            ),
            Some(progress) => progress.go_on(&settings, view.observations()),
        };
        Ok(match scratch::set(&progress) {
            Err(error) if !is_last(&turn) => reject(format!(
                "The results are too large to store ({error}): raise limits.scratch of this plugin."
            )),
            _ => turn,
        })
    }
}

/// Whether the turn ends the task, so that no state is stored.
fn is_last(turn: &Turn) -> bool {
    matches!(turn.action(), Action::Finish(_) | Action::Reject(_))
}

conclave_sdk::export!(agent: Supervisor);

#[cfg(test)]
mod tests;
