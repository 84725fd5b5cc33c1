//! Messages in the table `inbox` of a database. Whoever sends one also wakes the run, if it sleeps. A
//! pause keeps workers from taking it.

use conclave_core::types::ids::{CallId, ControlId, RoomId};

use super::{ControlMessage, DAY_MS, MailState, WORD_BYTES};
use crate::storage::store::ControlCommand;
use crate::storage::store::sql::{Sql, SqlError, SqlErrorKind, SqlResult, Value};
use crate::storage::store::wake_at::WakeAt;

/// The states of a row: sent, received by a host, or unreadable.
const SENT: i64 = 0;
const TAKEN: i64 = 1;
const BAD: i64 = 2;

pub(super) fn send(tables: &dyn Sql, message: &ControlMessage) -> SqlResult<()> {
    insert(tables, message, None).map(drop)
}

/// Sends a message that settles a call. Returns the one that is on its way instead, if there is
/// one: the table holds one for each call.
pub(super) fn send_unless_rival(
    tables: &dyn Sql,
    message: &ControlMessage,
) -> SqlResult<Option<ControlMessage>> {
    let Some(call) = message.word.settles() else { return send(tables, message).map(|()| None) };
    let settles = i64::try_from(call.0).unwrap_or(i64::MAX);
    loop {
        if insert(tables, message, Some(settles))? {
            return Ok(None);
        }
        let rival = tables.first(
            "SELECT body FROM inbox WHERE room = ?1 AND settles = ?2",
            &[message.room.as_str().into(), settles.into()],
            |row| row.get::<String>(0),
        )?;
        // Without one it was deleted meanwhile, so this message may be sent.
        if let Some(rival) = rival {
            return Ok(Some(parse(&rival)?));
        }
    }
}

/// Inserts a message and wakes its run, in one statement. Returns whether it was inserted.
fn insert(tables: &dyn Sql, message: &ControlMessage, settles: Option<i64>) -> SqlResult<bool> {
    let body = serde_json::to_string(message).map_err(malformed)?;
    if body.len() as u64 > WORD_BYTES {
        let what = format!("a word of {} bytes is too long; {WORD_BYTES} are taken", body.len());
        return Err(SqlError::new(SqlErrorKind::Other, what));
    }
    let run = message.room.run();
    // Others wait with the pause.
    let lifts_pause = matches!(message.word, ControlCommand::Unpause | ControlCommand::Stop { .. });
    let wake_at = if is_pause(message) { WakeAt::PauseLifted } else { WakeAt::Now };
    let inserted = tables.first(
        "WITH recipient AS (SELECT room FROM rooms WHERE room = ?2),
         sent AS (
             INSERT INTO inbox (id, room, body, settles, state)
             SELECT ?1, room, ?3, CAST(?4 AS BIGINT), 0 FROM recipient
             ON CONFLICT DO NOTHING RETURNING id),
         woken AS (UPDATE rooms SET wake_at = ?6 WHERE room = ?5 AND EXISTS (SELECT 1 FROM sent)
             AND (wake_at <> ?7 OR ?8 = 1) RETURNING room)
         SELECT count(*) FROM sent HAVING EXISTS (SELECT 1 FROM recipient)",
        &[
            message.id.as_str().into(),
            message.room.as_str().into(),
            body.as_str().into(),
            settles.into(),
            run.as_str().into(),
            wake_at.column().into(),
            WakeAt::PauseLifted.column().into(),
            lifts_pause.into(),
        ],
        |row| row.get::<bool>(0),
    )?;
    let unknown = || SqlError::new(SqlErrorKind::UnknownRoom, message.room.to_string());
    inserted.ok_or_else(unknown)
}

pub(super) fn pending(tables: &dyn Sql) -> SqlResult<Vec<ControlMessage>> {
    messages(tables, "TRUE", &[])
}

/// Returns the messages to the rooms of a run.
pub(super) fn of_run(tables: &dyn Sql, run: &RoomId) -> SqlResult<Vec<ControlMessage>> {
    messages(tables, "split_part(room, '/', 1) = ?1", &[run.as_str().into()])
}

/// Returns the messages that settle calls.
pub(super) fn decisions(tables: &dyn Sql) -> SqlResult<Vec<ControlMessage>> {
    messages(tables, "settles IS NOT NULL", &[])
}

/// Returns the message that settles a call of a room.
pub(super) fn decision(
    tables: &dyn Sql,
    room: &RoomId,
    call: CallId,
) -> SqlResult<Option<ControlMessage>> {
    let values = [room.as_str().into(), call.0.into()];
    Ok(messages(tables, "room = ?1 AND settles = ?2", &values)?.pop())
}

/// Returns the readable messages that meet a condition, in the order in which they arrived.
fn messages(
    tables: &dyn Sql,
    condition: &str,
    values: &[Value<'_>],
) -> SqlResult<Vec<ControlMessage>> {
    let query = format!("SELECT body FROM inbox WHERE state <> 2 AND {condition} ORDER BY number");
    let bodies = tables.rows(&query, values, |row| row.get::<String>(0))?;
    Ok(bodies.iter().filter_map(|body| parse(body).ok()).collect())
}

/// Deletes a message unless a receiver has taken it. Returns whether it was deleted. Without its
/// pause, a run is due again.
pub(super) fn withdraw(tables: &dyn Sql, message: &ControlMessage) -> SqlResult<bool> {
    tables.has_row(
        "WITH gone AS (DELETE FROM inbox WHERE id = ?1 AND state = ?2 RETURNING id),
         woken AS (UPDATE rooms SET wake_at = 0 WHERE room = ?3 AND wake_at = ?4 AND ?5 = 1
             AND EXISTS (SELECT 1 FROM gone) RETURNING room)
         SELECT id FROM gone",
        &[
            message.id.as_str().into(),
            SENT.into(),
            message.room.as_str().into(),
            WakeAt::PauseLifted.column().into(),
            is_pause(message).into(),
        ],
    )
}

/// Whether the message pauses a whole run.
fn is_pause(message: &ControlMessage) -> bool {
    matches!(message.word, ControlCommand::Pause { .. }) && message.room == message.room.run()
}

/// Deletes the messages more than a day old whose rooms have ended or are not stored.
pub(in crate::storage::store) fn delete_undeliverable(tables: &dyn Sql) -> SqlResult<u64> {
    tables.execute(
        "DELETE FROM inbox WHERE sent < now() - CAST(?1 AS BIGINT) * INTERVAL '1 millisecond'
         AND NOT EXISTS (SELECT 1 FROM rooms WHERE rooms.room = inbox.room AND ended IS NULL)",
        &[DAY_MS.into()],
    )
}

pub(super) fn state(tables: &dyn Sql, message: &ControlMessage) -> SqlResult<MailState> {
    let id = message.id.as_str();
    let state = tables
        .first("SELECT state FROM inbox WHERE id = ?1", &[id.into()], |row| row.get::<i64>(0))?;
    Ok(match state {
        Some(SENT) => MailState::Waiting,
        Some(BAD) => MailState::PutAside,
        Some(_) => MailState::Taken,
        None => MailState::Gone,
    })
}

pub(super) fn remove(tables: &dyn Sql, message: &ControlMessage) -> SqlResult<()> {
    delete(tables, &message.id)
}

pub(in crate::storage::store) fn delete(tables: &dyn Sql, id: &ControlId) -> SqlResult<()> {
    tables.execute("DELETE FROM inbox WHERE id = ?1", &[id.as_str().into()]).map(drop)
}

/// Returns the messages to the runs that a host has, oldest first, and those that a receiver of a
/// room that has ended could not delete: no host takes its run any more. One that cannot be parsed is
/// put aside.
pub(in crate::storage::store) fn to_runs_of(
    tables: &dyn Sql,
    host: &str,
) -> SqlResult<Vec<ControlMessage>> {
    let rows = tables.rows(
        "SELECT inbox.number, inbox.id, inbox.body FROM inbox
         JOIN rooms AS root ON root.room = split_part(inbox.room, '/', 1)
         WHERE root.host = ?1 AND inbox.state <> 2
         UNION SELECT inbox.number, inbox.id, inbox.body FROM inbox JOIN rooms ON rooms.room = inbox.room
         WHERE inbox.state = ?2 AND rooms.ended IS NOT NULL ORDER BY 1",
        &[host.into(), TAKEN.into()],
        |row| Ok((row.get::<String>(1)?, row.get::<String>(2)?)),
    )?;
    let mut messages = Vec::with_capacity(rows.len());
    for (id, body) in rows {
        match parse(&body) {
            Ok(message) => messages.push(message),
            Err(_) => drop(set_state(tables, &id, BAD)?),
        }
    }
    Ok(messages)
}

/// Marks a message as taken, from which on its sender cannot withdraw it. Returns false if it was
/// withdrawn before.
pub(in crate::storage::store) fn take(tables: &dyn Sql, id: &ControlId) -> SqlResult<bool> {
    set_state(tables, id.as_str(), TAKEN)
}

fn set_state(tables: &dyn Sql, id: &str, state: i64) -> SqlResult<bool> {
    let changed =
        tables.execute("UPDATE inbox SET state = ?2 WHERE id = ?1", &[id.into(), state.into()])?;
    Ok(changed > 0)
}

fn parse(body: &str) -> SqlResult<ControlMessage> {
    serde_json::from_str(body).map_err(malformed)
}

fn malformed(error: serde_json::Error) -> SqlError {
    SqlError::new(SqlErrorKind::Other, error.to_string())
}
