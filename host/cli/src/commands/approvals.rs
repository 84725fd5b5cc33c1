//! `conclave approvals`: the pending approvals of all runs.

use std::collections::BTreeMap;

use anstyle::Style;
use conclave_core::inspect::questions::{Question, QuestionState};
use conclave_core::journal::pending_work::WaitKey;
use conclave_core::types::approval::{ApprovalRequest, approval_id};
use conclave_core::types::ids::Millis;
use conclave_core::types::risk::Risk;
use conclave_runtime::store::{QuestionRow, RunRow, WaitRow};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::state::pending_call::APPROVALS;
use crate::state::stores::{OpenStores, damage_of};
use crate::ui::show::amounts::{ago, now, remaining};
use crate::ui::show::listing::Listing;
use crate::ui::show::run_state::state_of_pending;
use crate::ui::show::table::{self, Cells, Column};
use crate::ui::show::{FAINT, NAME, ODD, one_line};

/// Characters of arguments in a table.
const ARGUMENTS: usize = 400;
/// Characters of an analyzer's reason in a table.
const REASON: usize = 60;
const COLUMNS: [Column; 8] = [
    Column { head: "ID", most: 28, goes: 0 },
    Column { head: "SINCE", most: 12, goes: 2 },
    Column { head: "EXPIRES", most: 26, goes: 3 },
    Column { head: "RUN STATE", most: 24, goes: 5 },
    Column { head: "TASK", most: 16, goes: 4 },
    Column { head: "TOOL", most: 40, goes: 0 },
    Column { head: "RISK", most: 40, goes: 1 },
    Column { head: "ARGUMENTS", most: usize::MAX, goes: 0 },
];

pub(crate) fn approvals(args: &args::ApprovalList, output: OutputArgs) -> Result<u8, CliError> {
    let stores = OpenStores::of(args.store.as_ref())?;
    let (mut rows, mut damaged, mut runs) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (reader, run) in stores.search(args.run.as_deref())? {
        let (mut waits, damaged_of_store) = reader.waits_for_people(run.as_ref())?;
        damaged.extend(damaged_of_store);
        waits.retain(APPROVALS.is_of);
        for row in reader.with_questions(waits).0 {
            let run = row.wait.room.run();
            // `runs` reports a row that cannot be read.
            runs.entry(run.clone()).or_insert_with(|| reader.run(&run).ok().flatten());
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| row.wait.since);
    let now = now();
    let run = |row: &QuestionRow| runs.get(&row.wait.room.run()).and_then(Option::as_ref);
    let code = Listing {
        rows: table::rows(&COLUMNS, rows.iter().map(|row| cells(row, run(row), now))),
        json: rows.iter().map(|row| as_json(row, run(row))),
        empty: "no call waits for an approval".to_owned(),
        notes: vec![
            "`conclave approve ID` shows a call in full and approves it; `conclave refuse ID` refuses it"
                .to_owned(),
        ],
    }
    .print(output)?;
    // Printed last, and in the exit code.
    damage_of(&damaged).map_or(Ok(code), Err)
}

/// The decision that waits until a process of the run receives it.
fn decision(question: &Question) -> Option<&'static str> {
    match &question.state {
        QuestionState::OnItsWay { settlement } => Some(settlement.decision.as_str()),
        _ => None,
    }
}

fn request(row: &QuestionRow) -> Option<&ApprovalRequest> {
    Some(&row.question.as_ref()?.subject()?.request)
}

/// The id of the call, or `None` if the entry is not an approval.
fn id(wait: &WaitRow) -> Option<String> {
    match wait.wait.key {
        WaitKey::Call(call) => Some(approval_id(&wait.room, call)),
        WaitKey::Model(..) | WaitKey::Timer(_) => None,
    }
}

fn cells(row: &QuestionRow, run: Option<&RunRow>, now: Millis) -> Cells {
    let (wait, request) = (&row.wait, request(row));
    let decision = row.question.as_ref().and_then(decision);
    let arguments = request
        .map(|request| one_line(&request.arguments.to_string(), ARGUMENTS))
        .unwrap_or_default();
    let (style, state) = state_of_pending(wait.is_live, run);
    vec![
        (NAME, id(wait).unwrap_or_default()),
        (FAINT, ago(wait.since, now)),
        (Style::new(), expires(row, now)),
        (style, format!("{state}, {}", decision.unwrap_or("waiting"))),
        (Style::new(), request.map(|request| request.task.to_string()).unwrap_or_default()),
        (Style::new(), tool(wait, request)),
        request.map(risk).unwrap_or_default(),
        (Style::new(), arguments),
    ]
}

/// The tool, with the tool plugins that led to the call, if any did.
fn tool(wait: &WaitRow, request: Option<&ApprovalRequest>) -> String {
    let led_by = request.map(|request| request.led_by.as_slice()).unwrap_or_default();
    match led_by.split_last() {
        Some((last, others)) => {
            let others: Vec<String> =
                others.iter().rev().map(|plugin| format!(" for {plugin}")).collect();
            format!("{} (by {last}{})", wait.wait.target, others.concat())
        }
        None => wait.wait.target.clone(),
    }
}

/// The analyzer's risk assessment, or an empty text if no analyzer was asked.
fn risk(request: &ApprovalRequest) -> (Style, String) {
    let reason = request
        .risk_reason
        .as_deref()
        .map(|reason| one_line(reason, REASON))
        .filter(|reason| !reason.is_empty());
    let words: Vec<String> =
        request.risk.map(|risk| risk.as_str().to_owned()).into_iter().chain(reason).collect();
    (if request.risk.is_some_and(|risk| risk > Risk::Low) { ODD } else { FAINT }, words.join(": "))
}

/// The time until the call expires. That time pauses while no process has the run in progress.
fn expires(QuestionRow { wait, question }: &QuestionRow, now: Millis) -> String {
    let Some(ms) = question.as_ref().and_then(|question| question.expires_ms) else {
        return String::new();
    };
    if wait.is_live {
        format!("in {}", remaining(ms.saturating_sub(now.since(wait.since))))
    } else {
        format!("{} of run time", remaining(ms))
    }
}

fn as_json(row: &QuestionRow, run: Option<&RunRow>) -> serde_json::Value {
    let QuestionRow { wait, question } = row;
    let question = question.as_ref();
    let subject = question.and_then(Question::subject);
    json!({
        "type": "approval", "id": id(wait), "run": wait.room.run(), "room": wait.room,
        "kind": wait.wait.kind, "target": wait.wait.target, "since": wait.since,
        "expires_ms": question.and_then(|question| question.expires_ms),
        "run_state": state_of_pending(wait.is_live, run).1,
        "decision": question.and_then(decision),
        "chain": question.map(|question| &question.chain),
        "may_answer": question.map(|question| &question.may_answer),
        "arguments_sha256": subject.map(|subject| &subject.arguments_sha256),
        "effects": subject.map(|subject| &subject.effects),
        "request": request(row),
    })
}
