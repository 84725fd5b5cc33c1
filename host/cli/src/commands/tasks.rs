//! `conclave tasks [RUN [TASK]]`: the background tasks of a run, with their status and results.
//! Cancels a task, or sends a text to a task that runs in another process.

use std::time::Duration;

use anstyle::Style;
use conclave_core::inspect::background::{BackgroundTasks, TaskRow};
use conclave_core::journal::recovery::Unfinished;
use conclave_core::types::delegation::{BackgroundRecord, BackgroundState};
use conclave_core::types::delivery::DeliveryState;
use conclave_core::types::request::RoomRequest;
use conclave_runtime::steering::Delivery;
use conclave_runtime::store::{ControlCommand, RunRow, RunState};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{self, send};
use crate::state::stored_run::{StoredRun, journals};
use crate::ui::show::amounts::{now, took};
use crate::ui::show::entry::EntryText;
use crate::ui::show::listing::Listing;
use crate::ui::show::table::{self, Cells, Column};
use crate::ui::show::{BAD, FAINT, GOOD, NAME, ODD, one_line, paint, plural, printable};
use crate::ui::stdout;

const COLUMNS: [Column; 6] = [
    Column { head: "TASK", most: 24, goes: 0 },
    Column { head: "WORKER", most: 20, goes: 0 },
    Column { head: "STATE", most: 12, goes: 0 },
    Column { head: "DURATION", most: 12, goes: 1 },
    Column { head: "DELIVERY", most: 40, goes: 0 },
    Column { head: "WORK", most: usize::MAX, goes: 2 },
];

pub(crate) async fn tasks(args: &args::TasksArgs, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(args.run.as_deref(), args.store.as_ref())?;
    let row = found.row()?;
    let (all, unread) = listed(&found)?;
    let Some(name) = &args.task else {
        return match unread {
            Some(error) if all.is_empty() => Err(error),
            // Printed last, and in the exit code: a list with gaps must not pass for a whole one.
            unread => list(&row, &all, output).and_then(|code| unread.map_or(Ok(code), Err)),
        };
    };
    let task = find(&all, name, &row)?;
    if args.cancel || args.redeliver || args.tell.is_some() {
        return ask(args, &found, task, output).await;
    }
    show(task, &row, output)
}

/// Lists the tasks of the root room and all rooms below it, each folded from the room's journal, and
/// returns the error of the first room that cannot be read.
fn listed(found: &StoredRun) -> Result<(Vec<TaskRow>, Option<CliError>), CliError> {
    let run = found.run();
    let (mut tasks, mut unread) = (BackgroundTasks::default(), None);
    for journal in journals(&found.reader, &run)? {
        match journal {
            Ok((_, records)) => tasks.take(&run, &Unfinished::fold(records).room),
            Err(error) => {
                unread.get_or_insert(error);
            }
        }
    }
    Ok((tasks.into_rows(), unread))
}

fn find<'a>(all: &'a [TaskRow], name: &str, row: &RunRow) -> Result<&'a TaskRow, CliError> {
    // `task-1`, or its number alone.
    let is_named = |task: &&TaskRow| task.name == name || task.name == format!("task-{name}");
    all.iter().find(is_named).ok_or_else(|| {
        let what = format!("the run {} has no background task {}", row.run, printable(name));
        let known = all.iter().map(|task| task.name.as_str()).take(20);
        match all {
            [] => CliError::usage(what).hint("it started none"),
            _ => CliError::usage(what).known(name, "its tasks are", known),
        }
    })
}

fn list(row: &RunRow, all: &[TaskRow], output: OutputArgs) -> Result<u8, CliError> {
    let goes_on = row.state.goes_on();
    let running = all.iter().filter(|task| !task.record.state.is_end()).count();
    let hint = (running > 0 && goes_on).then(|| {
        format!(
            "{}; `conclave tasks {} TASK --cancel` cancels one, `--tell TEXT` sends it a message",
            plural(running as u64, "task runs", "tasks run"),
            row.run
        )
    });
    Listing {
        rows: table::rows(&COLUMNS, all.iter().map(|task| cells(task, row, goes_on))),
        json: all.iter().map(|task| as_json(task, row)),
        empty: format!("the run {} started no background task", row.run),
        notes: hint.into_iter().collect(),
    }
    .print(output)
}

fn as_json(task: &TaskRow, row: &RunRow) -> serde_json::Value {
    let mut value = json!(task.record);
    value["type"] = "task".into();
    (value["run"], value["name"], value["parent"]) =
        (json!(row.run), json!(task.name), json!(task.parent));
    value["took_ms"] = json!(lasted(&task.record, row));
    value
}

fn cells(task: &TaskRow, row: &RunRow, goes_on: bool) -> Cells {
    let record = &task.record;
    let (style, state) = state(record.state, goes_on);
    vec![
        (NAME, task.name.clone()),
        (Style::new(), record.worker.to_string()),
        (style, state),
        (Style::new(), took(lasted(record, row))),
        delivery(record),
        (FAINT, one_line(&record.description, 200)),
    ]
}

fn state(state: BackgroundState, goes_on: bool) -> (Style, String) {
    let style = match state {
        BackgroundState::Completed => GOOD,
        BackgroundState::Failed | BackgroundState::TimedOut | BackgroundState::Interrupted => BAD,
        _ => ODD,
    };
    // Its record says that it runs, and the process that ran it is gone.
    let word = if state.is_end() || goes_on { state.as_str() } else { "interrupted" };
    (style, word.to_owned())
}

/// The delivery of a task's result in words, or an empty text before the task has ended.
fn delivery(record: &BackgroundRecord) -> (Style, String) {
    let delivery = &record.delivery;
    let on = delivery.channel.as_ref().map(|channel| format!(" on {channel}")).unwrap_or_default();
    let by =
        delivery.strategy.as_ref().map(|strategy| format!(" by {strategy}")).unwrap_or_default();
    match delivery.state {
        DeliveryState::None => (FAINT, String::new()),
        DeliveryState::Waiting => (ODD, format!("waiting{by}")),
        DeliveryState::Delivering => (ODD, format!("being delivered{on}")),
        DeliveryState::Delivered => (GOOD, format!("delivered{on}{by}")),
        DeliveryState::Inbox => (ODD, "in the inbox".to_owned()),
        DeliveryState::Read => (GOOD, format!("read by {}", record.notify)),
        DeliveryState::Blocked if delivery.reason.as_deref() == Some("room_closed") => {
            (FAINT, "not delivered: the run had ended".to_owned())
        }
        DeliveryState::Blocked => (BAD, "blocked".to_owned()),
        DeliveryState::DeadLetter => (BAD, "dead letter".to_owned()),
    }
}

fn lasted(record: &BackgroundRecord, row: &RunRow) -> u64 {
    let end = record.ended.unwrap_or_else(|| row.until(now()));
    end.since(record.started)
}

fn show(task: &TaskRow, row: &RunRow, output: OutputArgs) -> Result<u8, CliError> {
    if output.json {
        stdout::json(as_json(task, row))?;
        return Ok(exit::OK);
    }
    let record = &task.record;
    let (style, word) = state(record.state, row.state == RunState::Running);
    stdout::styled(format!(
        "{} {} {}",
        paint(NAME, &task.name),
        record.worker,
        paint(style, word)
    ))?;
    let line = |name: &str, text: &str| match text {
        "" => Ok(()),
        text => {
            stdout::hanging(12, format!("  {} {text}", paint(FAINT, format_args!("{name:<9}"))))
        }
    };
    // Agents and models wrote this text.
    let foreign = |name: &str, text: &str| match text.trim() {
        "" => Ok(()),
        text => {
            let rows = EntryText::new(FAINT, name)
                .in_full(Style::new(), text)
                .rows(table::total().saturating_sub(2));
            rows.iter().try_for_each(|row| stdout::styled(format!("  {row}")))
        }
    };
    foreign("work", &record.description)?;
    line("room", record.room.as_str())?;
    line("duration", &took(lasted(record, row)))?;
    line("notifies", record.notify.as_str())?;
    foreign("output", record.output.as_deref().unwrap_or_default())?;
    foreign("error", record.error.as_deref().unwrap_or_default())?;
    line("delivery", &delivery(record).1)?;
    line(
        "attempts",
        &if record.delivery.attempts > 1 {
            record.delivery.attempts.to_string()
        } else {
            String::new()
        },
    )?;
    foreign("reason", record.delivery.reason.as_deref().unwrap_or_default())?;
    if record.metadata.as_object().is_some_and(|facts| !facts.is_empty()) {
        foreign("context", &record.metadata.to_string())?;
    }
    Ok(exit::OK)
}

async fn ask(
    args: &args::TasksArgs,
    found: &StoredRun,
    task: &TaskRow,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let row = found.in_progress("cancelling, messaging or redelivering a task")?;
    if args.redeliver {
        check_undelivered(task, &row)?;
    } else if task.record.state.is_end() {
        let what = format!("{} has already ended: {}", task.name, task.record.state.as_str());
        return Err(CliError::usage(what)
            .hint(format!("`conclave tasks {} {}` shows it", row.run, task.name)));
    }
    let id = task.record.id.clone();
    let (what, kind, message) = match &args.tell {
        Some(text) if text.trim().is_empty() => {
            return Err(CliError::usage("the message is empty"));
        }
        Some(text) => (
            RoomRequest::TellTask { task: id, text: text.clone() },
            "sent",
            "received the message; its agent reads it in its next step",
        ),
        None if args.redeliver => {
            (RoomRequest::Redeliver { task: id }, "redelivered", "is being delivered again")
        }
        None => (
            RoomRequest::CancelTask { task: id, reason: args.reason.clone() },
            "cancelled",
            "is being cancelled",
        ),
    };
    // To the room that started the task, which may be below that of the run.
    let room = RunRow { run: task.parent.clone(), ..row.clone() };
    let command = ControlCommand::Ask { what: Box::new(what) };
    let message = match send(&room, command, Duration::from_secs(args.wait)).await? {
        Delivery::Recorded(_) => message,
        Delivery::Waiting => "receives this when a worker takes the run; no host has it now",
    };
    control::report(&row, kind, &format!("{} {message}", task.name), output)?;
    Ok(exit::OK)
}

/// Checks that the result of a task can be delivered again.
fn check_undelivered(task: &TaskRow, row: &RunRow) -> Result<(), CliError> {
    let delivery = &task.record.delivery;
    if matches!(delivery.state, DeliveryState::Inbox | DeliveryState::DeadLetter) {
        return Ok(());
    }
    let what = format!("no result of {} is undelivered", task.name);
    Err(CliError::usage(what).hint(format!("`conclave tasks {}` shows each delivery", row.run)))
}
