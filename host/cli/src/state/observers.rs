//! The observers of a run at its end: their last events are waited for, and what they did not take
//! is reported with the command that delivers it.

use std::io::Write;
use std::time::Duration;

use conclave_runtime::{Host, ObserverBacklog};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::interrupt::Interrupts;
use crate::ui::show::{ODD, one_line, paint, plural};
use crate::ui::stdout;

/// The wait for observers after a run. Its result is shown before.
const AT_MOST: Duration = Duration::from_secs(5);
/// Characters of the reason why an observer was stopped.
const REASON: usize = 300;

/// Waits for the observers of ended runs, at most until Ctrl-C, and reports undelivered events.
pub(crate) async fn drain(
    host: &Host,
    is_stored: bool,
    output: OutputArgs,
    interrupts: &Interrupts,
) -> Result<(), CliError> {
    let mut interrupts = interrupts.clone();
    let left = tokio::select! {
        left = host.drain_observers(AT_MOST) => left,
        () = interrupts.next() => host.drain_observers(Duration::ZERO).await,
    };
    for backlog in left {
        if output.json {
            stdout::json(json!({
                "type": "observer-backlog", "room": backlog.run, "observer": backlog.observer,
                "undelivered": backlog.undelivered, "reason": backlog.stopped, "is_stored": is_stored,
            }))?;
        } else {
            let line = words(&backlog, is_stored);
            let _ = writeln!(crate::ui::output::stderr(), "{}", paint(ODD, line));
        }
    }
    Ok(())
}

fn words(backlog: &ObserverBacklog, is_stored: bool) -> String {
    let ObserverBacklog { run, observer, undelivered, is_catching_up, stopped } = backlog;
    let why = match stopped {
        Some(reason) => format!(": {}", one_line(reason, REASON)),
        None if *is_catching_up => ": it still gets earlier events".to_owned(),
        None => ": it needs more time".to_owned(),
    };
    let then = if is_stored {
        format!("`conclave resume {run}` delivers them")
    } else {
        "they are lost, because the run was not stored".to_owned()
    };
    let count = plural(*undelivered, "event", "events");
    format!("observer {observer} did not take {count} of {run}{why}; {then}")
}
