//! Views of runs: tasks, timeline, audit, budget, a call, changes, and what waits for a person. Each
//! is a fold of the records by a function of the core.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use conclave_core::inspect::audit::{AuditEntry, decision_entry, entries};
use conclave_core::inspect::background::{BackgroundTasks, TaskRow};
use conclave_core::inspect::explain::explain_denial;
use conclave_core::inspect::questions::{Question, QuestionFold};
use conclave_core::inspect::timeline::Timeline;
use conclave_core::journal::record::retold;
use conclave_core::policy::roles::{Action, RoleRefusal};
use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::parse_approval_id;
use conclave_core::types::ids::{CallId, RoomId};
use conclave_runtime::overlay::diff::{TextChange, as_text, text_change};
use conclave_runtime::overlay::{FolderChanges, PendingChange, RunChanges};
use conclave_runtime::store::{RunRow, RunState, StoreError, StoreReader};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::acting::{changes_failure, failed, no_question};
use super::{Problem, bad_arguments, owner};
use crate::http::{Failure, Server, now};
use crate::sessions::Session;

/// Bytes of both contents of a file up to which its difference is shown.
const COMPARED: usize = 512 << 10;

type Answer = Result<Json<Value>, Problem>;

/// A question that waits, for one person.
pub(crate) struct PersonQuestion {
    pub(crate) question: Question,
    /// Whether a process has its room open: only then its time passes.
    pub(crate) is_live: bool,
    /// Whether this person may settle it.
    pub(crate) may_settle: Result<(), RoleRefusal>,
}

/// The records of the rooms of a run, the root's first.
fn rooms_of(reader: &StoreReader, run: &RoomId) -> Result<Vec<(RoomId, Vec<Record>)>, StoreError> {
    let rooms = reader.rooms(run)?.into_iter().map(|row| row.room);
    rooms.map(|room| reader.records(&room).map(|records| (room, records))).collect()
}

impl Server {
    /// The background tasks of a run, with the state of their deliveries.
    pub(crate) async fn background_tasks(
        &self,
        session: &Session,
        run: &str,
    ) -> Result<Vec<TaskRow>, Failure> {
        let row = self.run(session, Action::Read, run).await?;
        let rooms = self.read({
            let run = row.run.clone();
            move |reader, _| rooms_of(reader, &run)
        });
        let mut tasks = BackgroundTasks::default();
        for (room, records) in rooms.await? {
            tasks.take(&row.run, &room, records);
        }
        Ok(tasks.into_rows())
    }

    /// The timeline of a run.
    pub(crate) async fn timeline_view(
        &self,
        session: &Session,
        run: &str,
    ) -> Result<Timeline, Failure> {
        let row = self.run(session, Action::Read, run).await?;
        let run = row.run.clone();
        let rooms = self.read(move |reader, _| rooms_of(reader, &run)).await?;
        let timeline = Timeline::of(rooms.into_iter().map(|(_, records)| records));
        let mut timeline = timeline.ok_or_else(failed)?;
        if !matches!(row.state, RunState::Ended(_)) {
            timeline.extend(row.until(now()));
        }
        Ok(timeline)
    }

    /// The audit of a run with the room of each entry, oldest first.
    pub(crate) async fn audit_view(
        &self,
        session: &Session,
        run: &str,
    ) -> Result<Vec<(RoomId, AuditEntry)>, Failure> {
        let row = self.run(session, Action::Audit, run).await?;
        let run = row.run.clone();
        let read = self
            .read(move |reader, _| Ok((rooms_of(reader, &run)?, reader.change_decisions(&run)?)));
        let (rooms, decisions) = read.await?;
        let mut all = Vec::new();
        for (room, records) in rooms {
            all.extend(entries(&retold(records)).into_iter().map(|entry| (room.clone(), entry)));
        }
        all.extend(decisions.iter().map(|decision| (row.run.clone(), decision_entry(decision))));
        all.sort_by_key(|(_, entry)| entry.at);
        Ok(all)
    }

    /// What happened in a call, and why something was refused in it.
    pub(crate) async fn call_view(
        &self,
        session: &Session,
        run: &str,
        call: &str,
    ) -> Result<Value, Failure> {
        let row = self.run(session, Action::Read, run).await?;
        let number = call.strip_prefix('c').unwrap_or(call).parse();
        let call = CallId(number.map_err(|_| bad_arguments("a call is a number, such as c7"))?);
        let run = row.run.clone();
        let records = self.read(move |reader, _| reader.records(&run)).await?;
        let mut all = Vec::new();
        for of in retold(records) {
            for notice in &of.notices {
                let mut value = json!(notice);
                if value["call"] != json!(call) {
                    continue;
                }
                (value["seq"], value["at"]) = (of.record.seq.into(), json!(of.record.at));
                if let (Notice::Denied { plugin, record, .. }, Some(setup)) = (notice, &of.setup) {
                    value["explanation"] = json!(explain_denial(setup, plugin, record, None));
                }
                all.push(value);
            }
        }
        if all.is_empty() {
            let what = "the run has no such call";
            return Err(Failure::new(StatusCode::NOT_FOUND, "call_not_found", what));
        }
        Ok(json!({ "call": call, "notices": all }))
    }

    /// The calls and questions that wait for a person, of all runs that this one may read, the
    /// oldest first.
    pub(crate) async fn questions(
        &self,
        session: &Session,
    ) -> Result<Vec<PersonQuestion>, Failure> {
        session.may(Action::List, None)?;
        let read = self.read(|reader, config| {
            let (questions, _) = reader.questions(None)?;
            let mut runs: BTreeMap<RoomId, Option<RunRow>> = BTreeMap::new();
            let mut all = Vec::new();
            for row in questions {
                let id = row.wait.room.run();
                if !runs.contains_key(&id) {
                    let run = reader.run(&id)?;
                    runs.insert(id.clone(), run);
                }
                let Some(Some(run)) = runs.get(&id) else { continue };
                if run.config.as_deref() != Some(config) || row.is_next_message(run) {
                    continue;
                }
                let is_live = row.wait.is_live;
                all.extend(row.question.map(|question| (owner(run), question, is_live)));
            }
            all.sort_by_key(|(_, question, _)| question.since);
            Ok(all)
        });
        let all = read.await?.into_iter().filter_map(|(owner, question, is_live)| {
            session.may(Action::Read, Some(&owner)).ok()?;
            let may_settle = session.may(question.action(), Some(&owner));
            Some(PersonQuestion { question, is_live, may_settle })
        });
        Ok(all.collect())
    }

    /// A question by its id, wherever it stands.
    pub(crate) async fn question(&self, session: &Session, id: &str) -> Result<Question, Failure> {
        let (room, call) = parse_approval_id(id).ok_or_else(no_question)?;
        let room = RoomId::from(room);
        let row = self.run(session, Action::Read, room.run().as_str()).await?;
        let read = self.read(move |reader, _| {
            let (waiting, _) = reader.questions(Some(&row.run))?;
            let mut waiting = waiting.into_iter().filter_map(|row| row.question);
            if let Some(found) = waiting.find(|it| it.room == room && it.call == call) {
                return Ok(Some(found));
            }
            let mut all = QuestionFold::default();
            all.extend(reader.records(&room)?);
            Ok(all.of_call(call).cloned())
        });
        read.await?.ok_or_else(no_question)
    }

    /// The pending changes of a run in its folders, with their version.
    pub(crate) async fn change_view(&self, session: &Session, run: &str) -> Result<Value, Failure> {
        let row = self.run(session, Action::Read, run).await?;
        let store = self.conversations().store().clone();
        let reading = tokio::task::spawn_blocking(move || {
            let changes = store.changes(&row.run).map_err(|error| changes_failure(&error))?;
            let changes = changes.ok_or_else(failed)?;
            let folders =
                changes.folders.iter().map(folder_value).collect::<Result<Vec<_>, _>>()?;
            Ok(json!({ "version": version_of(&changes), "folders": folders }))
        });
        reading.await.unwrap_or_else(|_| Err(failed()))
    }
}

/// The version of changes: a decision about them names it, so that only what was read is applied.
pub(super) fn version_of(changes: &RunChanges) -> String {
    let mut digest = Sha256::new();
    for folder in &changes.folders {
        for file in &folder.files {
            let new = file.new.as_ref();
            let parts = json!([folder.display_path, file.path, new, file.is_lost]);
            digest.update(parts.to_string());
        }
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn folder_value(folder: &FolderChanges) -> Result<Value, Failure> {
    let file_value = |file: &PendingChange| -> Result<Value, Failure> {
        Ok(json!({
            "path": file.path, "old": file.old, "new": file.new, "is_lost": file.is_lost,
            "conflict": file.conflict, "difference": difference(folder, file)?,
        }))
    };
    let files = folder.files.iter().map(file_value).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "folder": folder.display_path, "files": files }))
}

/// The difference of a file in lines; null for a binary, large or lost one.
fn difference(folder: &FolderChanges, file: &PendingChange) -> Result<Value, Failure> {
    if file.is_lost {
        return Ok(Value::Null);
    }
    let contents = folder.contents(file).map_err(|error| changes_failure(&error))?;
    let (old, new) = (contents.old.unwrap_or_default(), contents.new.unwrap_or_default());
    let (Some(before), Some(after)) = (as_text(&old), as_text(&new)) else {
        return Ok(Value::Null);
    };
    if old.len() + new.len() > COMPARED {
        return Ok(Value::Null);
    }
    let TextChange { hunks, added, removed } = text_change(before, after);
    let hunks: Vec<Value> = hunks
        .iter()
        .map(|hunk| {
            let line = |line: &conclave_runtime::overlay::diff::HunkLine| {
                format!("{}{}", line.sign.as_char(), line.text)
            };
            json!({ "header": hunk.header, "lines": hunk.lines.iter().map(line).collect::<Vec<_>>() })
        })
        .collect();
    Ok(json!({ "added": added, "removed": removed, "hunks": hunks }))
}

pub(super) async fn tasks(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    let tasks = server.background_tasks(&session, &run).await?.into_iter().map(|task| {
        let mut value = json!(task.record);
        (value["name"], value["parent"]) = (json!(task.name), json!(task.parent));
        value
    });
    Ok(Json(json!({ "tasks": tasks.collect::<Vec<_>>() })))
}

pub(super) async fn timeline(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    Ok(Json(json!(server.timeline_view(&session, &run).await?)))
}

pub(super) async fn audit(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    let all = server.audit_view(&session, &run).await?;
    let entries = all.into_iter().map(|(room, entry)| {
        let mut value = json!(entry);
        value["room"] = json!(room);
        value
    });
    Ok(Json(json!({ "entries": entries.collect::<Vec<_>>() })))
}

pub(super) async fn why(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path((run, call)): Path<(String, String)>,
) -> Answer {
    Ok(Json(server.call_view(&session, &run, &call).await?))
}

pub(super) async fn questions(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Answer {
    let all = server.questions(&session).await?.into_iter().map(|it| {
        let mut value = json!(it.question);
        value["roles"] = json!(it.question.may_answer);
        value["may_answer"] = it.may_settle.is_ok().into();
        value
    });
    Ok(Json(json!({ "questions": all.collect::<Vec<_>>() })))
}

pub(super) async fn changes(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    Ok(Json(server.change_view(&session, &run).await?))
}
