//! The report of `conclave trajectory replay --compare`: for each action whether the replay's
//! observation is the log's.

use std::sync::{Mutex, PoisonError};

use anstyle::Style;
use conclave_core::inspect::export;
use conclave_core::protocol::event::Record;
use conclave_core::trajectory::{Action, AnsweredAction, Era, ReplayVerdict, TrajectoryEvent};
use conclave_core::types::ids::RoomId;
use conclave_runtime::overlay::diff::{LineSign, text_change};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::show::entry::EntryText;
use crate::ui::show::{BAD, FAINT, GOOD, NAME, ODD, foreign, paint, plural, table};
use crate::ui::stdout;

/// Rows of a difference that are shown; `--json` has both texts.
const ROWS: usize = 24;

/// Collects the records of a room.
pub(super) struct RecordedRun {
    room: RoomId,
    records: Mutex<Vec<Record>>,
}

impl RecordedRun {
    pub(super) fn new(room: &RoomId) -> Self {
        Self { room: room.clone(), records: Mutex::default() }
    }

    /// The records so far, in order.
    pub(super) fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for RecordedRun {
    fn on(&self, published: &Published) {
        if let RunEvent::Recorded { record } = &published.what
            && published.room == self.room
        {
            let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
            records.push(Record::clone(record));
        }
    }
}

/// An action of the log with its verdict.
pub(super) struct ComparedAction<'a> {
    number: i64,
    action: &'a Action,
    verdict: ReplayVerdict,
}

/// Compares the actions of a log with the records of its replay, which ended for this reason.
pub(super) fn compare<'a>(
    log: &'a [TrajectoryEvent],
    replay: Vec<Record>,
    reason: &str,
) -> Vec<ComparedAction<'a>> {
    let replayed: Vec<TrajectoryEvent> = export::log(replay, Era::V2025)
        .iter()
        .filter_map(|event| TrajectoryEvent::from_json(event).ok())
        .collect();
    let mut replayed = AnsweredAction::list(&replayed).into_iter();
    let ended = || ReplayVerdict::NotRun { reason: format!("the run ended before: {reason}") };
    let verdict = |recorded: &AnsweredAction<'_>| {
        let observation = replayed.next().and_then(|it| it.observation);
        observation.map_or_else(ended, |observation| recorded.compare(observation))
    };
    let recorded = AnsweredAction::list(log);
    let verdicts: Vec<ReplayVerdict> = recorded.iter().map(verdict).collect();
    recorded
        .into_iter()
        .zip(verdicts)
        .map(|(AnsweredAction { number, action, .. }, verdict)| ComparedAction {
            number,
            action,
            verdict,
        })
        .collect()
}

/// Prints the verdicts, and returns whether no action differs and each could be run.
pub(super) fn report(
    compared: &[ComparedAction<'_>],
    era: Option<Era>,
    output: OutputArgs,
) -> Result<bool, CliError> {
    let era = era.unwrap_or(Era::V2025);
    for one in compared {
        if output.json {
            stdout::json(as_json(one, era))?;
        } else if !(output.quiet && one.verdict == ReplayVerdict::Same) {
            stdout::unbroken(rows(one, era, table::total()).join("\n"))?;
        }
    }
    let count =
        |label: &str| compared.iter().filter(|one| word(&one.verdict).0 == label).count() as u64;
    if !output.json {
        let all = plural(compared.len() as u64, "action", "actions");
        let counts: Vec<String> = ["same", "differs", "not run", "unrecorded"]
            .into_iter()
            .filter(|word| count(word) > 0)
            .map(|word| format!("{} {word}", count(word)))
            .collect();
        stdout::styled(table::note(format_args!("{all}: {}", counts.join(", "))))?;
    }
    Ok(count("differs") + count("not run") == 0)
}

/// The word for a verdict, and its style.
fn word(verdict: &ReplayVerdict) -> (&'static str, Style) {
    match verdict {
        ReplayVerdict::Same => ("same", GOOD),
        ReplayVerdict::Differs { .. } => ("differs", BAD),
        ReplayVerdict::NotRun { .. } => ("not run", ODD),
        ReplayVerdict::Unrecorded => ("unrecorded", FAINT),
    }
}

/// The line about an action as a log has it.
fn line(action: &Action, era: Era) -> String {
    match action {
        Action::Edit(edit) => format!("Editing file: {}", edit.path),
        action => action.message(era),
    }
}

fn rows(one: &ComparedAction<'_>, era: Era, width: usize) -> Vec<String> {
    let (word, style) = word(&one.verdict);
    let entry = EntryText::new(style, format!("{word:<10}"))
        .words(FAINT, format!("{:>3}", one.number))
        .words(NAME, one.action.kind())
        .cut(Style::new(), &line(one.action, era));
    let mut rows = entry.rows(width);
    match &one.verdict {
        ReplayVerdict::Same | ReplayVerdict::Unrecorded => {}
        ReplayVerdict::NotRun { reason } => {
            let block = foreign::block(reason, Style::new(), 2, width);
            rows.extend(block.lines().map(str::to_owned));
        }
        ReplayVerdict::Differs { recorded, replayed } => {
            rows.extend(difference(recorded, replayed, width));
        }
    }
    rows
}

/// The changed lines with those around them: `-` the log's, `+` the replay's.
fn difference(recorded: &str, replayed: &str, width: usize) -> Vec<String> {
    // Both end with a line end, so that the last lines are compared as the others are.
    let change = text_change(&format!("{recorded}\n"), &format!("{replayed}\n"));
    let mut rows = Vec::new();
    for line in change.hunks.iter().flat_map(|hunk| &hunk.lines) {
        let style = match line.sign {
            LineSign::Context => FAINT,
            LineSign::Removed => BAD,
            LineSign::Added => GOOD,
        };
        let text_rows = foreign::line_rows(&line.text, width.saturating_sub(3));
        let row = |row: &String| {
            format!("  {}", paint(style, format_args!("{}{row}", line.sign.as_char())))
        };
        rows.extend(text_rows.iter().map(row));
    }
    let hidden_rows = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    if hidden_rows > 0 {
        rows.push(paint(FAINT, format_args!("  … {hidden_rows} more rows")));
    }
    rows
}

fn as_json(one: &ComparedAction<'_>, era: Era) -> serde_json::Value {
    let mut line = json!({
        "type": "compared", "n": one.number, "action": one.action.kind(),
        "message": line(one.action, era), "verdict": word(&one.verdict).0.replace(' ', "-"),
    });
    match &one.verdict {
        ReplayVerdict::Same | ReplayVerdict::Unrecorded => {}
        ReplayVerdict::NotRun { reason } => line["reason"] = json!(reason),
        ReplayVerdict::Differs { recorded, replayed } => {
            line["recorded"] = json!(recorded);
            line["replayed"] = json!(replayed);
        }
    }
    line
}
