//! The report of a run's end: its result on stdout, everything else on stderr.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use conclave_core::types::ids::{RoomId, TaskName};
use conclave_core::types::message::ToolCall;
use conclave_core::types::outcome::{EndCause, Outcome, Status};

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::shell::shell;
use crate::ui::screen::total_columns;
use crate::ui::show::amounts::took_for;
use crate::ui::show::entry::EntryText;
use crate::ui::show::tally::{Counts, RunTally};
use crate::ui::show::usage;
use crate::ui::show::{BAD, FAINT, NAME, ODD, foreign, paint, plural, printable, show_path};
use crate::ui::{stderr, stdout};

/// The remedy for a task that asks its user after each answer, if there is no user.
pub(crate) fn interactive_help(task: &TaskName, file: &Path) -> String {
    let key = format!("write `interactive = false` in [tasks.{task}]");
    format!("{key}, or start a conversation: conclave chat {}", shell(&file.display().to_string()))
}

/// The same for a task that asked a question on its own.
fn question_help(file: &Path) -> String {
    let chat = format!("conclave chat {}", shell(&file.display().to_string()));
    format!(
        "put the answer into the message or a file (--answers FILE), run in a terminal, or start a \
         conversation: {chat}"
    )
}

/// The context of a run's end, beside its outcome.
pub(super) struct EndContext<'a> {
    pub(super) code: u8,
    pub(super) output: OutputArgs,
    pub(super) took: Duration,
    pub(super) tally: &'a RunTally,
    pub(super) journal: Option<&'a Path>,
    pub(super) run: &'a RoomId,
    /// The number of files that wait in overlays.
    pub(super) pending_changes: usize,
    /// The command that lists the refusals, without `conclave`; `None` if the run is not stored.
    pub(super) why: Option<String>,
    /// The config of the run.
    pub(super) file: &'a Path,
    /// The tasks that ask their user after each answer.
    pub(super) interactive: &'a BTreeSet<TaskName>,
    /// Whether another process began the run.
    pub(super) is_resumed: bool,
    /// Whether anything was shown below the head, which ends with an empty row.
    pub(super) has_written: bool,
}

pub(super) fn finish(outcome: &Outcome, context: &EndContext<'_>) -> Result<(), CliError> {
    let EndContext { code, output, tally, file, .. } = *context;
    if output.json {
        let mut result =
            serde_json::json!({ "type": "result", "exit_code": code, "outcome": outcome });
        if context.pending_changes > 0 {
            result["pending_changes"] = context.pending_changes.into();
        }
        return stdout::json(result);
    }
    let counts = tally.counts();
    if context.has_written && !(output.quiet && outcome.status.is_success()) {
        stderr::line("");
    }
    if outcome.status.is_success() {
        match result(outcome) {
            Some(result) => stdout::line(stdout::safe(&result))?,
            // Every end states its reason, even without a result.
            None => stderr::line(ending(ODD, outcome)),
        }
    } else if let Some((task, question)) =
        tally.unanswered().filter(|_| outcome.cause == Some(EndCause::NobodyToAsk))
    {
        stderr::line(ending(BAD, outcome));
        let question = foreign::block(question.trim(), Style::new(), 0, total_columns());
        stderr::line(format_args!("{}\n{question}", paint(NAME, format_args!("{task} asks:"))));
        let is_interactive = context.interactive.contains(&task);
        let help = if is_interactive { interactive_help(&task, file) } else { question_help(file) };
        stderr::line(format_args!("{} {}", paint(FAINT, "help:"), printable(&help)));
    } else {
        stderr::line(ending(BAD, outcome));
        let last_message = outcome
            .content
            .as_deref()
            .filter(|text| outcome.status != Status::Kill && !text.trim().is_empty());
        if let Some(last_message) = last_message {
            let rows = EntryText::new(FAINT, "last message")
                .in_full(FAINT, last_message.trim())
                .rows(total_columns());
            stderr::line(rows.join("\n"));
        }
        if let Some(hint) = limit_hint(outcome, true) {
            stderr::note(hint);
        }
    }
    // At a terminal they were shown when they came.
    if output.quiet || !std::io::stdout().is_terminal() {
        for text in tally.delivered() {
            stdout::line(stdout::safe(&text))?;
        }
    }
    if !output.quiet {
        stderr::line(format_args!("\n{}", paint(FAINT, summary(outcome, counts, context))));
        if let Some(line) = changes_line(context.run, context.pending_changes) {
            stderr::styled(ODD, line);
        }
        if let Some(line) = unread_line(context.run, tally.unread()) {
            stderr::styled(ODD, line);
        }
        let is_refused = counts.denials + counts.refusals > 0;
        if let Some(why) = context.why.as_ref().filter(|_| is_refused) {
            stderr::note(format_args!("refused: conclave {why}"));
        }
    }
    Ok(())
}

/// The status and the reason of an end, in rows.
pub(crate) fn ending(style: Style, outcome: &Outcome) -> String {
    EntryText::new(style, outcome.status.as_str())
        .in_full(Style::new(), outcome.reason.trim())
        .rows(total_columns())
        .join("\n")
}

/// The line about changes in overlays, with the command that shows them.
pub(crate) fn changes_line(run: &RoomId, pending: usize) -> Option<String> {
    let files = plural(pending as u64, "changed file waits", "changed files wait");
    (pending > 0).then(|| format!("{files} to be applied or dropped: conclave diff {run}"))
}

/// The line about unread background results, with the command that shows them.
pub(crate) fn unread_line(run: &RoomId, unread: usize) -> Option<String> {
    let results = plural(unread as u64, "background result was", "background results were");
    (unread > 0).then(|| format!("{results} read by nobody: conclave tasks {run}"))
}

/// The run's result: its text, else its value, else its calls, else its typed result as JSON.
/// `None` if the run ended without a result.
pub(crate) fn result(outcome: &Outcome) -> Option<String> {
    let text = outcome.content.clone().filter(|content| !content.trim().is_empty());
    let value = || outcome.value.as_ref().map(ToString::to_string);
    let calls = || {
        Some(
            outcome
                .tools
                .iter()
                .map(|call| as_json(call).to_string())
                .collect::<Vec<_>>()
                .join("\n"),
        )
    };
    let typed = || outcome.typed.as_ref().map(ToString::to_string);
    text.or_else(value).or_else(|| calls().filter(|calls| !calls.is_empty())).or_else(typed)
}

/// A call in the form that results show.
pub(crate) fn as_json(call: &ToolCall) -> serde_json::Value {
    serde_json::json!({ "name": call.name, "arguments": call.arguments })
}

/// The config key that raises the limit which ended the run, if a hard limit did. `is_option` says
/// that the command has the option `--limit`, which replaces the config's limit.
pub(crate) fn limit_hint(outcome: &Outcome, is_option: bool) -> Option<String> {
    let key = match outcome.status {
        // Two limits share this status, and only the reason tells them apart.
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
    let option = if is_option { format!(", or with --limit {key}=MORE") } else { String::new() };
    Some(format!("to allow more, raise `{key}` under [limits.run] in the config{option}"))
}

fn summary(outcome: &Outcome, counts: Counts, context: &EndContext<'_>) -> String {
    let ended = if outcome.status.is_success() { "done in" } else { "ended after" };
    let took = took_for(context.took);
    let mut parts =
        vec![format!("{ended} {took}"), plural(counts.sandboxes, "sandbox", "sandboxes")];
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
        parts.push(format!("{} refused", plural(counts.refusals, "call", "calls")));
    }
    parts.push(usage::spent(counts));
    if context.is_resumed {
        parts.extend(usage::in_all(&outcome.spent, counts));
    }
    if let Some(folder) = context.journal {
        parts.push(format!("journal: {}", show_path(folder)));
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use conclave_core::types::usage::Spent;

    use super::*;

    #[test]
    fn a_summary_says_done_of_success_alone_and_in_all_of_a_resumed_run_alone() {
        let (tally, interactive) = (RunTally::default(), BTreeSet::new());
        let context = EndContext {
            code: 0,
            output: OutputArgs { json: false, quiet: false, no_color: true },
            took: Duration::from_secs(83),
            tally: &tally,
            journal: None,
            run: &RoomId::from("r"),
            pending_changes: 0,
            why: None,
            file: Path::new("c.toml"),
            interactive: &interactive,
            is_resumed: false,
            has_written: false,
        };
        let of = |status| summary(&Outcome::new(status, ""), tally.counts(), &context);
        assert!(of(Status::Done).starts_with("done in 1 min 23 s · "), "{}", of(Status::Done));
        let spent = Spent { tokens: 5_787, ..Spent::default() };
        let outcome = Outcome { spent, ..Outcome::new(Status::Done, "") };
        let tokens = |context: &EndContext<'_>| {
            let line = summary(&outcome, tally.counts(), context);
            line.split_once("sandboxes · ").map(|(_, tokens)| tokens.to_owned())
        };
        assert_eq!(tokens(&context).as_deref(), Some("0 tokens"));
        assert!(
            of(Status::Error).starts_with("ended after 1 min 23 s · "),
            "{}",
            of(Status::Error)
        );
        let resumed = EndContext { is_resumed: true, ..context };
        assert_eq!(tokens(&resumed).as_deref(), Some("0 tokens · in all 5 787 tokens"));
    }

    #[test]
    fn a_limit_that_was_an_option_is_raised_by_the_option() {
        let ended = Outcome::new(Status::MaxTurns, "the run reached limits.run.turns");
        let in_run = limit_hint(&ended, true).unwrap_or_default();
        assert!(in_run.ends_with("in the config, or with --limit turns=MORE"), "{in_run}");
        let in_chat = limit_hint(&ended, false).unwrap_or_default();
        assert!(in_chat.ends_with("in the config"), "{in_chat}");
    }

    #[test]
    fn the_remedies_name_the_task_and_the_config() {
        let help = interactive_help(&"desk".into(), Path::new("my lights/c.toml"));
        let chat = "conclave chat 'my lights/c.toml'";
        assert_eq!(
            help,
            format!("write `interactive = false` in [tasks.desk], or start a conversation: {chat}")
        );
        assert!(question_help(Path::new("c.toml")).ends_with("conclave chat c.toml"));
    }
}
