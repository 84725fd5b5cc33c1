//! How a run's end is told: its result on stdout, everything else on stderr.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use conclave_core::event::Spent;
use conclave_core::message::ToolCall;
use conclave_core::outcome::{EndCause, Outcome, Status};
use conclave_runtime::Prepared;

use crate::args::Output;
use crate::chat::status;
use crate::error::CliError;
use crate::screen::total_columns;
use crate::show::entry::Entry;
use crate::show::tally::{Counts, Tally};
use crate::show::{BAD, FAINT, NAME, ODD, foreign, paint, plural, time};
use crate::stdout;

/// What to do about an entry task that asks its user where nobody can answer.
pub(crate) const ASKS_NOBODY: &str = "set `interactive = false` for it, or talk with it: conclave chat";
/// The same for one that asks a question of its own accord.
const ASKED_NOBODY: &str = "run it in a terminal, talk with it (conclave chat), or say more in the message";

/// The entry task asks its user after each of its answers.
pub(crate) fn asks_user(prepared: &Prepared) -> bool {
    let setup = prepared.setup();
    setup.tasks.get(&setup.entry).is_some_and(|task| task.interactive)
}

pub(super) fn finish(
    outcome: &Outcome,
    code: u8,
    (output, asks_user): (Output, bool),
    took: Duration,
    tally: &Tally,
    journal: Option<&Path>,
) -> Result<(), CliError> {
    if output.json {
        return stdout::json(serde_json::json!({ "type": "result", "exit_code": code, "outcome": outcome }));
    }
    let counts = tally.counts();
    let mut err = crate::output::stderr();
    if outcome.status.is_success() {
        if !output.quiet {
            let _ = writeln!(err);
        }
        match result(outcome) {
            Some(result) => stdout::line(stdout::safe(&result))?,
            // Every ending says why, also when there is no result.
            None => drop(writeln!(err, "{}", ending(ODD, outcome))),
        }
    } else if let Some((task, question)) = tally.unanswered().filter(|_| outcome.cause == Some(EndCause::NobodyToAsk)) {
        let _ = writeln!(err, "\n{}", ending(BAD, outcome));
        let question = foreign::block(question.trim(), Style::new(), 0, total_columns());
        let _ = writeln!(err, "{}\n{question}", paint(NAME, format_args!("{task} asks:")));
        let _ = writeln!(err, "{} {}", paint(FAINT, "help:"), if asks_user { ASKS_NOBODY } else { ASKED_NOBODY });
    } else {
        let _ = writeln!(err, "\n{}", ending(BAD, outcome));
        let said = outcome.content.as_deref().filter(|said| outcome.status != Status::Kill && !said.trim().is_empty());
        if let Some(said) = said {
            let rows = Entry::new(FAINT, "what was said last").whole(FAINT, said.trim()).rows(total_columns());
            let _ = writeln!(err, "{}", rows.join("\n"));
        }
        if let Some(hint) = limit_hint(outcome) {
            let _ = writeln!(err, "{}", paint(FAINT, hint));
        }
    }
    if !output.quiet {
        let _ = writeln!(err, "\n{}", paint(FAINT, summary(took, (counts, &outcome.spent), journal)));
    }
    Ok(())
}

/// Returns the status and the reason of an end, in rows.
pub(crate) fn ending(style: Style, outcome: &Outcome) -> String {
    Entry::new(style, outcome.status.as_str()).whole(Style::new(), outcome.reason.trim()).rows(total_columns()).join("\n")
}

/// What the run was for: its text, else a value, else calls, else what it was to be, as JSON; none when it ended without anything.
pub(crate) fn result(outcome: &Outcome) -> Option<String> {
    let text = outcome.content.clone().filter(|content| !content.trim().is_empty());
    let value = || outcome.value.as_ref().map(ToString::to_string);
    let calls = || Some(outcome.tools.iter().map(|call| as_json(call).to_string()).collect::<Vec<_>>().join("\n"));
    let typed = || outcome.typed.as_ref().map(ToString::to_string);
    text.or_else(value).or_else(|| calls().filter(|calls| !calls.is_empty())).or_else(typed)
}

/// A call as results show it.
pub(crate) fn as_json(call: &ToolCall) -> serde_json::Value {
    serde_json::json!({ "name": call.name, "arguments": call.arguments })
}

/// Which key of the config allows more, where a hard limit ended it.
pub(crate) fn limit_hint(outcome: &Outcome) -> Option<String> {
    let key = match outcome.status {
        // Two limits have this end; its reason says which it was.
        Status::MaxTurns if outcome.reason.contains("limits.run.task_turns") => "task_turns",
        Status::MaxTurns => "turns",
        Status::MaxTokens => "tokens",
        Status::MaxCost => "cost_usd",
        Status::MaxCalls if outcome.reason.contains("limits.run.tool_calls") => "tool_calls",
        Status::MaxCalls => "model_calls",
        Status::MaxCpu => "cpu",
        Status::MaxHistory => "history",
        Status::Timeout => "wall",
        _ => return None,
    };
    Some(format!("the config allows more with a larger `{key}` under [limits.run]"))
}

fn summary(took: Duration, (counts, spent): (Counts, &Spent), journal: Option<&Path>) -> String {
    let mut parts = vec![format!("done in {}", time(took)), plural(counts.sandboxes, "sandbox", "sandboxes")];
    if counts.denials > 0 {
        parts.push(plural(counts.denials, "denial", "denials"));
    }
    if counts.faults > 0 {
        parts.push(plural(counts.faults, "fault", "faults"));
    }
    if counts.approvals > 0 {
        parts.push(format!("{} approved", counts.approvals));
    }
    if counts.refusals > 0 {
        parts.push(format!("{} refused", counts.refusals));
    }
    parts.push(status::spent(counts));
    parts.extend(status::in_all(spent, counts));
    if let Some(folder) = journal {
        parts.push(format!("journal: {}", folder.display()));
    }
    parts.join(" · ")
}
