//! `conclave answer`: the questions of tasks that wait for their user, and `conclave answer ID TEXT`,
//! which answers one, from another terminal or after a restart.

use conclave_core::inspect::questions::{Question, QuestionKind};
use conclave_runtime::store::{ControlCommand, QuestionRow};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::state::control::message_text;
use crate::state::pending_call::{PendingCall, QUESTIONS};
use crate::state::stores::{OpenStores, damage_of};
use crate::ui::screen::columns;
use crate::ui::show::amounts::{ago, now};
use crate::ui::show::listing::Listing;
use crate::ui::show::run_state::state_of_pending;
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

/// Lists the questions of all runs, the oldest first.
fn list(stores: &OpenStores, output: OutputArgs) -> Result<u8, CliError> {
    // Each with the state of its run.
    let (mut questions, mut damaged) = (Vec::<(Question, String)>::new(), Vec::new());
    for reader in stores.readers()? {
        let (mut waits, damaged_of_store) = reader.waits_for_people(None)?;
        damaged.extend(damaged_of_store);
        waits.retain(QUESTIONS.is_of);
        for row in reader.with_questions(waits).0 {
            // `runs` reports a row that cannot be read.
            let run = reader.run(&row.wait.room.run()).ok().flatten();
            // `conclave resume` or the page in a browser takes the next message of a conversation.
            if run.as_ref().is_some_and(|run| row.is_next_message(run)) {
                continue;
            }
            let QuestionRow { wait, question } = row;
            let Some(question) = question else { continue };
            let (_, state) = state_of_pending(wait.is_live, run.as_ref());
            questions.push((question, state));
        }
    }
    questions.sort_by_key(|(question, _)| question.since);
    let (now, columns) = (now(), columns());
    let rows = |(question, state): &(Question, String)| {
        let answered = if question.is_open() { "" } else { ", answered" };
        let (task, text) = (task_of(question), text_of(question));
        let about = format!("{}, {task}, {state}{answered}", ago(question.since, now));
        let head = format!("{}  {}", paint(NAME, &question.id), paint(FAINT, about));
        let text = foreign::block(text.trim(), anstyle::Style::new(), INDENT, columns);
        [head, text].map(|text| stdout::hung(0, text))
    };
    let as_json = |(question, state): &(Question, String)| {
        json!({
            "type": "question", "id": question.id, "run": question.run, "room": question.room,
            "task": task_of(question), "chain": question.chain, "question": text_of(question),
            "since": question.since, "may_answer": question.may_answer, "run_state": state,
            "is_answered": !question.is_open(),
        })
    };
    let code = Listing {
        rows: questions.iter().flat_map(rows),
        json: questions.iter().map(as_json),
        empty: "no task waits for an answer".to_owned(),
        notes: vec!["`conclave answer ID \"TEXT\"` answers a question".to_owned()],
    }
    .print(output)?;
    // Printed last, and in the exit code.
    damage_of(&damaged).map_or(Ok(code), Err)
}

/// The task that asks.
fn task_of(question: &Question) -> &str {
    question.chain.last().map_or("", |asker| asker.task.as_str())
}

fn text_of(question: &Question) -> &str {
    match &question.kind {
        QuestionKind::Ask { question, .. } => question,
        QuestionKind::Approval(_) | QuestionKind::TopUp(_) => "",
    }
}
