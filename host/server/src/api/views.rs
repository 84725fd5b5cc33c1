//! Views of runs: tasks, timeline, audit, budget, a call, changes, and what waits for a person. Each
//! is a fold of the records by a function of the core.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use conclave_core::inspect::audit::{AuditEntry, decision_entry, entries};
use conclave_core::inspect::explain::explain_denial;
use conclave_core::inspect::questions::{Question, QuestionFold};
use conclave_core::journal::record::retold;
use conclave_core::policy::roles::{Action, RoleRefusal};
use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::parse_approval_id;
use conclave_core::types::ids::{CallId, RoomId};
use conclave_runtime::blocking;
use conclave_runtime::overlay::diff::{TextChange, as_text, text_change};
use conclave_runtime::overlay::{FolderChanges, PendingChange, RunChanges};
use conclave_runtime::store::{DamagedRow, RunRow, StoreError, StoreReader, WaitRow};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::acting::{changes_failure, failed, no_question};
use super::budgets::RunBudget;
use super::{Problem, bad_arguments, owner, ownerless};
use crate::folds::FoldedRun;
use crate::http::{Failure, Server, now};
use crate::open_questions::OpenQuestions;
use crate::sessions::Session;
use crate::view_cache::ViewCache;
use crate::visible_configs::VisibleConfigs;

/// Bytes of both contents of a file up to which its difference is shown.
const COMPARED: usize = 512 << 10;

/// Views in memory, the newest: of budgets more than a list of them has.
const BUDGETS: usize = 64;
const AUDITS: usize = 16;
const CALLS: usize = 64;

type Answer = Result<Json<Value>, Problem>;

/// The views that are computed from all records of a run or a room.
pub(crate) struct RunViews {
    pub(super) budgets: ViewCache<RoomId, RunBudget>,
    audits: ViewCache<RoomId, AuditView>,
    calls: ViewCache<(RoomId, CallId), Vec<Value>>,
}

/// The entries of an audit, each with its room, the oldest first.
pub(crate) type AuditView = Vec<(RoomId, AuditEntry)>;

impl Default for RunViews {
    fn default() -> Self {
        Self {
            budgets: ViewCache::new(BUDGETS),
            audits: ViewCache::new(AUDITS),
            calls: ViewCache::new(CALLS),
        }
    }
}

/// What a view of a run depends on: how many records it has, when it had the newest, and its state.
pub(super) fn version_of(row: &RunRow) -> String {
    format!("{} {} {}", row.records, row.updated.0, row.state.word())
}

/// A question that waits, for one person.
pub(crate) struct PersonQuestion {
    /// The name of its config, if there are several.
    pub(crate) config: Option<String>,
    pub(crate) question: Question,
    /// The beginning of the first message of its run.
    pub(crate) message: String,
    /// Whether a process has its room open: only then its time passes.
    pub(crate) is_live: bool,
    /// Whether this person may settle it.
    pub(crate) may_settle: Result<(), RoleRefusal>,
    /// Whether this person may read the rights of the plugins of its config.
    pub(crate) may_inspect: bool,
}

/// The questions that wait, the oldest first, and the rows of the store that cannot be read.
pub(crate) struct QuestionPage {
    pub(crate) questions: Vec<PersonQuestion>,
    /// Empty for a person who may not read the runs of everybody: of such a row nobody knows whose
    /// it is.
    pub(crate) damaged: Vec<DamagedRow>,
}

/// The notices about a call, with the explanation of each refusal in it.
fn notices_of(records: Vec<Record>, call: CallId) -> Vec<Value> {
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
    all
}

/// The questions of the runs of a config that a person may read. Only their rooms are folded.
fn questions_of(
    reader: &StoreReader,
    config: &FilePath,
    session: &Session,
    open: &OpenQuestions,
) -> Result<QuestionPage, StoreError> {
    let (waits, mut damaged) = reader.waits_for_people(None)?;
    open.retain(&waits);
    let mut runs: BTreeMap<RoomId, Option<RunRow>> = BTreeMap::new();
    for id in waits.iter().map(|wait| wait.room.run()) {
        if runs.contains_key(&id) {
            continue;
        }
        let run = match reader.run(&id) {
            Ok(run) => run,
            Err(StoreError::Damaged { what, .. }) => {
                damaged.push(DamagedRow { room: id.clone(), what });
                None
            }
            Err(error) => return Err(error),
        };
        let is_for_person = |run: &RunRow| {
            run.config.as_deref() == Some(config)
                && session.may(Action::Read, Some(&owner(run))).is_ok()
        };
        runs.insert(id, run.filter(is_for_person));
    }
    let run_of = |room: &RoomId| runs.get(&room.run()).and_then(Option::as_ref);
    let waits = waits.into_iter().filter(|wait| run_of(&wait.room).is_some()).collect();
    let (rows, unfolded) = open.of(reader, waits);
    damaged.extend(unfolded);
    let mut questions: Vec<PersonQuestion> = rows
        .into_iter()
        .filter_map(|row| {
            let run = run_of(&row.wait.room).filter(|run| !row.is_next_message(run))?;
            let (question, is_live) = (row.question?, row.wait.is_live);
            let may_settle = session.may(question.action(), Some(&owner(run)));
            // The server adds its name.
            let may_inspect = session.may(Action::Inspect, None).is_ok();
            let message = run.message.clone();
            Some(PersonQuestion {
                config: None,
                question,
                message,
                is_live,
                may_settle,
                may_inspect,
            })
        })
        .collect();
    questions.sort_by_key(|it| it.question.since);
    if session.may(Action::Read, Some(&ownerless())).is_err() {
        damaged.clear();
    }
    Ok(QuestionPage { questions, damaged })
}

impl Server {
    /// A run with all its records, folded once for all who look at it.
    pub(crate) async fn folded(&self, run: &RoomId) -> Result<Arc<FoldedRun>, Failure> {
        self.folds().run(run).await?.ok_or_else(failed)
    }

    /// The audit of a run with the room of each entry, oldest first.
    pub(crate) async fn audit_view(
        &self,
        session: &Session,
        run: &str,
    ) -> Result<Arc<AuditView>, Failure> {
        let row = self.run(session, Action::Audit, run).await?;
        let id = row.run.clone();
        // Made beside the records, when the run has ended.
        let decisions = self.read(move |reader, _| reader.change_decisions(&id)).await?;
        let version = format!("{} {}", version_of(&row), decisions.len());
        let audit = self.views().audits.get(&row.run, &version, || {
            let run = row.run.clone();
            self.read(move |reader, _| {
                let mut all = Vec::new();
                for room in reader.rooms(&run)?.into_iter().map(|row| row.room) {
                    let entries = entries(&retold(reader.records(&room)?));
                    all.extend(entries.into_iter().map(|entry| (room.clone(), entry)));
                }
                let decided =
                    decisions.iter().map(|decision| (run.clone(), decision_entry(decision)));
                all.extend(decided);
                all.sort_by_key(|(_, entry)| entry.at);
                Ok(all)
            })
        });
        audit.await
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
        let (id, version) = ((row.run.clone(), call), version_of(&row));
        let notices = self.views().calls.get(&id, &version, || {
            self.read(move |reader, _| Ok(notices_of(reader.records(&row.run)?, call)))
        });
        let notices = notices.await?;
        if notices.is_empty() {
            let what = "the run has no such call";
            return Err(Failure::new(StatusCode::NOT_FOUND, "call_not_found", what));
        }
        Ok(json!({ "call": call, "notices": notices }))
    }

    /// The calls and questions that wait for a person, of all runs that this one may read.
    pub(crate) async fn questions(&self, session: &Session) -> Result<QuestionPage, Failure> {
        session.may(Action::List, None)?;
        let (of_session, open) = (session.clone(), self.open_questions().clone());
        let read =
            self.read(move |reader, config| questions_of(reader, config, &of_session, &open));
        let mut page = read.await?;
        for question in &mut page.questions {
            question.config = self.config_name().map(str::to_owned);
        }
        if self.shares_store() {
            // Of such a row nobody knows of which config it is.
            page.damaged.clear();
        }
        Ok(page)
    }

    /// A question by its id, wherever it stands.
    pub(crate) async fn question(&self, session: &Session, id: &str) -> Result<Question, Failure> {
        let (room, call) = parse_approval_id(id).ok_or_else(no_question)?;
        let room = RoomId::from(room);
        let row = self.run(session, Action::Read, room.run().as_str()).await?;
        let read = self.read(move |reader, _| {
            let (waits, _) = reader.waits_for_people(Some(&row.run))?;
            let is_it = |wait: &WaitRow| wait.room == room && wait.wait.key.call() == Some(call);
            let waits = waits.into_iter().filter(is_it).collect();
            let (found, _) = reader.with_questions(waits);
            let found = found.into_iter().find_map(|row| row.question);
            if found.is_some() {
                return Ok(found);
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
            Ok(json!({ "version": changes_version(&changes), "folders": folders }))
        });
        reading.await.unwrap_or_else(|_| Err(failed()))
    }
}

/// The version of changes: a decision about them names it, so that only what was read is applied.
pub(super) fn changes_version(changes: &RunChanges) -> String {
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
    let row = server.run(&session, Action::Read, &run).await?;
    let folded = server.folds().run(&row.run).await?;
    let tasks = folded.iter().flat_map(|run| &run.tasks).map(|task| {
        let mut value = json!(task.record);
        (value["name"], value["parent"]) = (json!(task.name), json!(task.parent));
        value
    });
    Ok(Json(json!({ "tasks": tasks.collect::<Vec<_>>() })))
}

/// The timeline of a run. Of a run that goes on it has another tag after its next record, and not
/// because time passes.
pub(super) async fn timeline(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let row = server.run(&session, Action::Read, &run).await?;
    let folded = server.folded(&row.run).await?;
    let tag = server.entity_tag(&json!([row.run, row.state, folded.timeline.totals.records]));
    if tag.is_known(&headers) {
        return Ok(tag.unchanged());
    }
    let writing = blocking::spawn(move || Json(folded.timeline_until(&row, now())).into_response());
    Ok(tag.with(writing.await.map_err(|_| failed())?))
}

pub(super) async fn audit(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    let all = server.audit_view(&session, &run).await?;
    let entries = all.iter().map(|(room, entry)| {
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

pub(super) async fn questions(Extension(visible): Extension<VisibleConfigs>) -> Answer {
    let QuestionPage { questions, damaged } = visible.questions().await?;
    let questions = questions.into_iter().map(|it| {
        let mut value = json!(it.question);
        if let Some(config) = it.config {
            value["config"] = config.into();
        }
        value["roles"] = json!(it.question.may_answer);
        value["may_answer"] = it.may_settle.is_ok().into();
        value
    });
    Ok(Json(json!({ "questions": questions.collect::<Vec<_>>(), "damaged": damaged })))
}

pub(super) async fn changes(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    Ok(Json(server.change_view(&session, &run).await?))
}
