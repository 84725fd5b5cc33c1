//! `conclave answer`: the questions of tasks that wait for their user, and `conclave answer ID TEXT`,
//! which answers one, from another terminal or after a restart.

use conclave_core::inspect::questions::{OpenQuestion, open_questions};
use conclave_core::journal::pending_work::WaitKey;
use conclave_core::types::approval::approval_id;
use conclave_core::types::ids::TaskName;
use conclave_runtime::store::{ControlCommand, RunRow, StoreReader, WaitRow};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::state::control::message_text;
use crate::state::interrupted_runs::CONVERSATION;
use crate::state::pending_call::{PendingCall, QUESTIONS, decisions};
use crate::state::stores::OpenStores;
use crate::ui::screen::columns;
use crate::ui::show::amounts::{ago, now};
use crate::ui::show::listing::Listing;
use crate::ui::show::run_state::{SERVED, state_of_pending};
use crate::ui::show::{FAINT, NAME, foreign, paint};
use crate::ui::stdout;

/// Columns that a question is indented by.
const INDENT: usize = 6;

pub(crate) fn answer(args: &args::Answer, output: OutputArgs) -> Result<u8, CliError> {
    let (Some(id), Some(text)) = (&args.id, &args.text) else {
        return list(&OpenStores::of(args.store.as_ref())?, output);
    };
    let text = message_text(text, "conclave answer ID \"TEXT\"")?;
    let waiting = PendingCall::find(id, args.store.as_ref(), &QUESTIONS)?;
    let call = waiting.call();
    waiting.settle(ControlCommand::Answer { call, text }, args.instead, output)
}

/// A question, and the state of its run.
type QuestionRow = (WaitRow, OpenQuestion, String);

/// Lists the questions of all runs, the oldest first.
fn list(stores: &OpenStores, output: OutputArgs) -> Result<u8, CliError> {
    let mut questions: Vec<QuestionRow> = Vec::new();
    for reader in stores.readers()? {
        let waits = reader.waits(None)?;
        for row in waits.into_iter().filter(QUESTIONS.is_of) {
            let Some(question) = question(&reader, &row)? else { continue };
            let run = reader.run(&row.room.run())?;
            let is_message =
                |run: &RunRow| is_next_message(&run.command, &run.entry, &question.task);
            // `conclave resume` or the page in a browser takes the next message of a conversation.
            if run.as_ref().is_some_and(is_message) {
                continue;
            }
            let (_, state) = state_of_pending(row.is_live, run.as_ref());
            questions.push((row, question, state));
        }
    }
    questions.sort_by_key(|(row, ..)| row.since);
    let answers = decisions(stores);
    let is_answered = |row: &WaitRow| answers.contains_key(&(row.room.clone(), row.wait.key));
    let (now, columns) = (now(), columns());
    let rows = |(row, OpenQuestion { call, task, prompt, .. }, state): &QuestionRow| {
        let answered = if is_answered(row) { ", answered" } else { "" };
        let about = format!("{}, {task}, {state}{answered}", ago(row.since, now));
        let id = paint(NAME, approval_id(&row.room, *call));
        let head = format!("{id}  {}", paint(FAINT, about));
        let prompt = foreign::block(prompt.trim(), anstyle::Style::new(), INDENT, columns);
        [head, prompt].map(|text| stdout::hung(0, text))
    };
    let as_json = |(row, OpenQuestion { call, task, prompt, .. }, state): &QuestionRow| {
        json!({
            "type": "question", "id": approval_id(&row.room, *call), "room": row.room, "task": task,
            "question": prompt, "since": row.since, "run_state": state,
            "is_answered": is_answered(row),
        })
    };
    Listing {
        rows: questions.iter().flat_map(rows),
        json: questions.iter().map(as_json),
        empty: "no task waits for an answer".to_owned(),
        notes: vec!["`conclave answer ID \"TEXT\"` answers a question".to_owned()],
    }
    .print(output)
}

/// Whether a conversation waits for its next message, rather than a task for an answer.
fn is_next_message(command: &str, entry: &str, task: &TaskName) -> bool {
    [CONVERSATION, SERVED].contains(&command) && task.as_str() == entry
}

/// Returns the question of a call; `None` if it was answered since.
fn question(reader: &StoreReader, row: &WaitRow) -> Result<Option<OpenQuestion>, CliError> {
    let WaitKey::Call(call) = row.wait.key else { return Ok(None) };
    let records = reader.records(&row.room)?;
    Ok(open_questions(records).into_iter().find(|question| question.call == call))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_that_waits_for_its_next_message_asks_no_question() {
        let desk = TaskName::from("desk");
        assert!(is_next_message(CONVERSATION, "desk", &desk));
        assert!(is_next_message(SERVED, "desk", &desk));
        assert!(!is_next_message("run", "desk", &desk));
        assert!(!is_next_message(CONVERSATION, "front", &desk), "a task below the conversation");
    }
}
