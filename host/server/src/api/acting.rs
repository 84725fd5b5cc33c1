//! What people do to runs: start, send a text, stop, pause, resume, decide, answer, apply changes.
//! Each is a function of [`Server`] that the page calls too, over the function of the library that
//! the command line calls. The session says who acts; the journal has that name.

use std::time::Duration;

use axum::extract::{Path, Request};
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use conclave_core::policy::roles::Action;
use conclave_core::types::approval::{Approval, approval_id, parse_approval_id};
use conclave_core::types::ids::{CallId, Principal, RoomId, TaskName};
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::overlay::{OverlayError, RunChanges};
use conclave_runtime::steering::{
    self, DecisionPlace, Paused, SteeringError, Stopped, TextPlace, Unpaused,
};
use conclave_runtime::store::{ControlCommand, ControlMessage, RunRow, StoreReader, WaitRow};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::views::changes_version;
use super::{Problem, bad_arguments};
use crate::conversations::FAILED;
use crate::http::{Failure, Server, body};
use crate::run_request::RunRequest;
use crate::runs::{StartRefusal, is_started_by};
use crate::sessions::Session;
use crate::visible_configs::{VisibleConfig, VisibleConfigs};

/// The time in which a process has to receive a message, and a run to end.
const MOST: Duration = Duration::from_secs(20);
/// The header that makes a request take effect once.
const KEY: &str = "idempotency-key";
/// Bytes of a key.
const KEY_MAX: usize = 255;
/// Bytes of a text or reason. A message in the mail may have 1 MiB, and JSON can make six bytes of
/// one.
const TEXT_MAX: usize = 128 << 10;

/// The body of a start.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRequest {
    pub(crate) text: String,
    /// The entry task, instead of that of the config.
    pub(crate) task: Option<TaskName>,
    /// The name of the config, if the person sees several.
    pub(crate) config: Option<String>,
}

/// The body of a text for a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageRequest {
    pub(crate) text: String,
    /// The task whose agent reads it; `None` for the entry task.
    pub(crate) task: Option<TaskName>,
}

/// The body of a stop or a pause.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonRequest {
    pub(crate) reason: Option<String>,
}

/// The body of a resume: no field.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}

/// The body of a decision or an answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum SettleRequest {
    /// With `arguments_sha256` it counts only for the arguments that were read.
    Approve {
        arguments_sha256: Option<String>,
    },
    Refuse {
        reason: Option<String>,
        arguments_sha256: Option<String>,
    },
    Answer {
        text: String,
    },
}

/// The body of a decision about changes. `version` is that of the changes as they were read.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum ChangesRequest {
    Apply { version: Option<String> },
    Drop { version: Option<String> },
}

/// The idempotency key of a request; `None` if it has none.
///
/// # Errors
/// `bad_arguments` for a key of other characters, or a long one.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut keys = headers.get_all(KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let is_valid = (1..=KEY_MAX).contains(&key.len())
        && key.as_bytes().iter().all(u8::is_ascii_graphic)
        && keys.next().is_none();
    match key.to_str() {
        Ok(key) if is_valid => Ok(Some(key.to_owned())),
        _ => Err(bad_arguments("`Idempotency-Key` has 1 to 255 visible characters of ASCII")),
    }
}

/// The digest of parts that do not run into each other.
fn digest(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A message of the person of a session. Under a key it has the same id whenever it is sent, and
/// takes effect once.
fn message_of(
    session: &Session,
    room: RoomId,
    word: ControlCommand,
    key: Option<&str>,
) -> ControlMessage {
    let principal = session.identity.principal.clone();
    let mut message = ControlMessage::new(room, word);
    if let Some(key) = key {
        let key = digest(&[&*principal.0, message.room.as_str(), key].map(str::as_bytes));
        message = message.under_key(&key);
    }
    message.by = Some(principal);
    message
}

fn check_text(text: &str, what: &str) -> Result<(), Failure> {
    match text.len() {
        0 => Err(bad_arguments(&format!("the {what} is empty"))),
        length if length > TEXT_MAX => {
            Err(bad_arguments(&format!("the {what} is longer than {TEXT_MAX} bytes")))
        }
        _ => Ok(()),
    }
}

/// The reason of a stop or a pause, which the journal and the agent's room have.
fn reason_of(reason: Option<String>, default: &str) -> Result<String, Failure> {
    let reason = reason.unwrap_or_else(|| default.to_owned());
    check_text(&reason, "reason").map(|()| reason)
}

impl Server {
    /// Starts a run, and returns it when it is durable, with whether this request started it.
    pub(crate) async fn start_run(
        &self,
        session: &Session,
        StartRequest { text, task, config: _ }: StartRequest,
        key: Option<&str>,
    ) -> Result<(Value, bool), Failure> {
        session.may(Action::Start, None)?;
        check_text(&text, "text")?;
        let principal = session.identity.principal.clone();
        let conversations = self.conversations();
        let config = conversations.config().as_os_str().as_encoded_bytes();
        let id = match key {
            Some(key) => {
                RoomId::from(digest(&[principal.0.as_bytes(), config, key.as_bytes()]).as_str())
            }
            None => RandomIds.run(),
        };
        let has_started = || self.check_start(key, &id, task.as_ref(), &text);
        if has_started().await? {
            return Ok((self.run_value(&self.until_stored(&id).await?), false));
        }
        let limits = self.limits_of_start(&principal).await?;
        let input = (task.clone(), text.clone(), limits);
        let is_new = match conversations.runs().start(&id, principal, input).await {
            Ok(is_new) => is_new,
            // A request with the key at another server of the store was first.
            Err(StartRefusal::Failed) if has_started().await? => false,
            Err(refusal) => return Err(start_failure(refusal)),
        };
        let row = self.until_stored(&id).await?;
        // A request with the key may have come in between at this server.
        if !is_new {
            has_started().await?;
        }
        Ok((self.run_value(&row), is_new))
    }

    /// Returns whether the store has the run of a key; false without a key.
    async fn check_start(
        &self,
        key: Option<&str>,
        id: &RoomId,
        task: Option<&TaskName>,
        text: &str,
    ) -> Result<bool, Failure> {
        if key.is_none() {
            return Ok(false);
        }
        let run = id.clone();
        let first = self.read(move |reader, _| match reader.run(&run)? {
            Some(_) => reader.records_from(&run, 0, 1).map(Some),
            None => Ok(None),
        });
        match first.await? {
            None => Ok(false),
            Some(records)
                if is_started_by(
                    &records,
                    task.unwrap_or(&self.conversations().runs().entry()),
                    text,
                ) =>
            {
                Ok(true)
            }
            Some(_) => Err(key_reused()),
        }
    }

    /// Sends a text to a run.
    pub(crate) async fn say(
        &self,
        session: &Session,
        run: &str,
        MessageRequest { text, task }: MessageRequest,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let row = self.run(session, Action::Say, run).await?;
        check_text(&text, "text")?;
        let word = ControlCommand::Tell { task, text };
        let message = message_of(session, row.run.clone(), word, key);
        self.check_budget_for(&row, &message).await?;
        self.steer(move |reader| {
            let place = steering::tell(reader, &message, MOST)?;
            Ok(json!({ "state": match place {
                TextPlace::Recorded => "recorded",
                TextPlace::WaitsForWorker | TextPlace::WaitsForResume => "waiting",
            } }))
        })
        .await
    }

    /// Stops a run, and returns how it has ended; `stopping` if it takes long.
    pub(crate) async fn stop_run(
        &self,
        session: &Session,
        run: &str,
        ReasonRequest { reason }: ReasonRequest,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let row = self.run(session, Action::Stop, run).await?;
        let reason = reason_of(reason, "it was stopped at the server")?;
        let message = message_of(session, row.run, ControlCommand::Stop { reason }, key);
        let server = self.clone();
        self.steer(move |reader| {
            // A stop that was sent before is only waited for.
            steering::repeated(reader, &message)?;
            let open = || server.conversations().writer();
            match steering::stop(reader, &message, &open, MOST) {
                Ok(Stopped::Before(status) | Stopped::Ended(status)) => {
                    Ok(json!({ "state": "ended", "status": status.as_str() }))
                }
                Ok(Stopped::GivenUp(_)) => Ok(json!({ "state": "ended", "status": "KILL" })),
                Err(SteeringError::NotEnded { .. }) => Ok(json!({ "state": "stopping" })),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Pauses a run.
    pub(crate) async fn pause_run(
        &self,
        session: &Session,
        run: &str,
        ReasonRequest { reason }: ReasonRequest,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let row = self.run(session, Action::Pause, run).await?;
        let reason = reason_of(reason, "it was paused at the server")?;
        let message = message_of(session, row.run, ControlCommand::Pause { reason }, key);
        self.steer(move |reader| {
            if !steering::repeated(reader, &message)? {
                let (Paused::Before | Paused::InProcess | Paused::WithoutHost) =
                    steering::pause(reader, &message, MOST)?;
            }
            Ok(json!({ "state": "paused" }))
        })
        .await
    }

    /// Lifts the pause of a run.
    pub(crate) async fn resume_run(
        &self,
        session: &Session,
        run: &str,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let row = self.run(session, Action::Resume, run).await?;
        let message = message_of(session, row.run, ControlCommand::Unpause, key);
        self.steer(move |reader| {
            if steering::repeated(reader, &message)? {
                return Ok(json!({ "state": "running" }));
            }
            Ok(json!({ "state": match steering::unpause(reader, &message, MOST)? {
                Unpaused::Before | Unpaused::InProcess => "running",
                Unpaused::WithoutHost => "waiting",
            } }))
        })
        .await
    }

    /// Decides a call that waits for an approval, or answers a question.
    pub(crate) async fn settle_question(
        &self,
        session: &Session,
        (run, id): (&str, &str),
        request: SettleRequest,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let action = match request {
            SettleRequest::Approve { .. } | SettleRequest::Refuse { .. } => Action::Decide,
            SettleRequest::Answer { .. } => Action::Say,
        };
        let row = self.run(session, action, run).await?;
        let (room, call) = question_of(&row, id)?;
        let word = match request {
            SettleRequest::Approve { arguments_sha256 } => {
                ControlCommand::Decide { call, approval: Approval::Approved, arguments_sha256 }
            }
            SettleRequest::Refuse { reason, arguments_sha256 } => {
                let reason = reason_of(reason, "it was refused at the server")?;
                let approval = Approval::Refused { reason };
                ControlCommand::Decide { call, approval, arguments_sha256 }
            }
            SettleRequest::Answer { text } => {
                check_text(&text, "answer")?;
                ControlCommand::Answer { call, text }
            }
        };
        let is_of_kind = match action {
            Action::Decide => |row: &WaitRow| row.wait.asks_approval(),
            _ => |row: &WaitRow| row.wait.kind == "user",
        };
        let message = message_of(session, room, word, key);
        self.steer(move |reader| {
            let (id, decision) =
                (approval_id(&message.room, call), steering::word_of(&message.word));
            let answer = |state| Ok(json!({ "id": id, "decision": decision, "state": state }));
            match steering::settle_once(reader, &message, call, is_of_kind, MOST)? {
                DecisionPlace::Recorded => answer("recorded"),
                DecisionPlace::InMail | DecisionPlace::WaitsForResume => answer("waiting"),
            }
        })
        .await
    }

    /// Applies or drops the changes of a run to its folders.
    pub(crate) async fn decide_run_changes(
        &self,
        session: &Session,
        run: &str,
        request: ChangesRequest,
    ) -> Result<Value, Failure> {
        let row = self.run(session, Action::Apply, run).await?;
        let principal = session.identity.principal.clone();
        let store = self.conversations().store().clone();
        let permit = self.acting_permit()?;
        let deciding = conclave_runtime::blocking::spawn(move || {
            let _permit = permit;
            let changes = store.changes(&row.run).map_err(|error| changes_failure(&error))?;
            decide_changes_now(changes, principal, request)
        });
        deciding.await.unwrap_or_else(|_| Err(failed()))
    }

    /// Calls a function of the library on a thread that may block.
    async fn steer<T: Send + 'static>(
        &self,
        act: impl FnOnce(&StoreReader) -> Result<T, SteeringError> + Send + 'static,
    ) -> Result<T, Failure> {
        let store = self.conversations().store().clone();
        let permit = self.acting_permit()?;
        let acting = conclave_runtime::blocking::spawn(move || {
            // A request whose client has left still acts, and has its place until then.
            let _permit = permit;
            act(&StoreReader::open(&store)?)
        });
        match acting.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.steering_failure(error)),
            Err(_) => Err(failed()),
        }
    }

    fn steering_failure(&self, error: SteeringError) -> Failure {
        let (code, what) = (error.code(), error.to_string());
        let status = match error {
            SteeringError::Store(error) => {
                self.conversations().report_unreadable(&error);
                return failed();
            }
            SteeringError::Unconfirmed { error, .. } => {
                self.conversations().report_unreadable(&error);
                let what = "the store was lost after the request; it may still take effect";
                return Failure::new(StatusCode::SERVICE_UNAVAILABLE, code, what);
            }
            SteeringError::UnknownTask { known, .. } => return unknown_task(&known),
            SteeringError::KeyReused { .. } => return key_reused(),
            SteeringError::Unknown { .. } | SteeringError::NotPending { .. } => {
                StatusCode::NOT_FOUND
            }
            SteeringError::Ended { .. }
            | SteeringError::ReceiverEnded { .. }
            | SteeringError::Interrupted { .. }
            | SteeringError::Dropped { .. }
            | SteeringError::DecisionOnItsWay { .. }
            | SteeringError::AlreadyDecided { .. }
            | SteeringError::DecisionReceived { .. }
            | SteeringError::Rejected { .. } => StatusCode::CONFLICT,
            // It was not received or not recorded in time.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failure::new(status, code, what)
    }
}

/// The room and the call of a question of this run.
fn question_of(row: &RunRow, id: &str) -> Result<(RoomId, CallId), Failure> {
    let parsed = parse_approval_id(id).map(|(room, call)| (RoomId::from(room), call));
    parsed.filter(|(room, _)| room.run() == row.run).ok_or_else(no_question)
}

pub(super) fn no_question() -> Failure {
    let what = "the run has no such question; an id is that of the list of questions";
    Failure::new(StatusCode::NOT_FOUND, "question_not_found", what)
}

fn decide_changes_now(
    changes: Option<RunChanges>,
    principal: Principal,
    request: ChangesRequest,
) -> Result<Value, Failure> {
    let Some(mut changes) = changes else { return Err(failed()) };
    let (ChangesRequest::Apply { version } | ChangesRequest::Drop { version }) = &request;
    if version.as_ref().is_some_and(|version| *version != changes_version(&changes)) {
        let what = "the changes are others than those that were read; read them again";
        return Err(Failure::new(StatusCode::CONFLICT, "changes_changed", what));
    }
    changes.principal = principal;
    let (word, count) = match request {
        ChangesRequest::Apply { .. } => ("applied", changes.apply()),
        ChangesRequest::Drop { .. } => ("dropped", changes.discard()),
    };
    let count = count.map_err(|error| changes_failure(&error))?;
    Ok(json!({ "decision": word, "files": count }))
}

/// The refusal for changes that are not read, applied or dropped, without paths of this machine.
pub(super) fn changes_failure(error: &OverlayError) -> Failure {
    let (code, what, files) = match error {
        OverlayError::InUse { .. } => (
            "run_in_use",
            "the run has not ended, or another request applies its changes",
            Vec::new(),
        ),
        OverlayError::Conflicts { files, .. } => {
            let files = files.iter().map(|file| file.path.clone()).collect();
            ("changes_conflict", "nothing was applied: the folder changed since the run", files)
        }
        OverlayError::ChangedAgain { files, .. } => (
            "changes_changed",
            "nothing was done: the run changed files again; read the changes again",
            files.clone(),
        ),
        OverlayError::Folder { .. } | OverlayError::Store { .. } => return failed(),
    };
    Failure::new(StatusCode::CONFLICT, code, what).with("files", json!(files))
}

/// The answer to a request that the store did not allow; the operator knows why.
pub(crate) fn failed() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "failed", FAILED)
}

fn key_reused() -> Failure {
    let what = "the key was used for another request; send each request with a key of its own";
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", what)
}

fn unknown_task(known: &[String]) -> Failure {
    let what = format!("there is no such task; these are there: {}", known.join(", "));
    Failure::new(StatusCode::BAD_REQUEST, "unknown_task", what)
}

fn start_failure(refusal: StartRefusal) -> Failure {
    match refusal {
        StartRefusal::UnknownTask(known) => unknown_task(&known),
        StartRefusal::LimitReached => {
            let what =
                "too many runs are active at this server; wait for the end of one, or stop one";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "limit_reached", what)
        }
        StartRefusal::Failed => failed(),
    }
}

/// Reads a body whose fields all have a default, and which may be absent.
async fn optional_body<T: DeserializeOwned + Default>(request: Request) -> Result<T, Failure> {
    let headers = request.headers();
    let is_empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
        && !headers.contains_key(TRANSFER_ENCODING);
    if is_empty { Ok(T::default()) } else { body(request).await }
}

type Answer = Result<Json<Value>, Problem>;

pub(super) async fn start(
    Extension(visible): Extension<VisibleConfigs>,
    request: Request,
) -> Result<Response, Problem> {
    // Before the body is read.
    visible.where_may(Action::Start)?;
    let key = key_of(request.headers())?;
    let request: StartRequest = body(request).await?;
    let VisibleConfig { server, session } = visible.choose(request.config.as_deref())?;
    let (run, is_new) = server.start_run(session, request, key.as_deref()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(run)).into_response())
}

pub(super) async fn message(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Answer {
    let key = key_of(request.headers())?;
    Ok(Json(server.say(&session, &run, body(request).await?, key.as_deref()).await?))
}

pub(super) async fn stop(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Answer {
    let key = key_of(request.headers())?;
    let request = optional_body(request).await?;
    Ok(Json(server.stop_run(&session, &run, request, key.as_deref()).await?))
}

pub(super) async fn pause(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Answer {
    let key = key_of(request.headers())?;
    let request = optional_body(request).await?;
    Ok(Json(server.pause_run(&session, &run, request, key.as_deref()).await?))
}

pub(super) async fn resume(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Answer {
    let key = key_of(request.headers())?;
    let NoFields {} = optional_body(request).await?;
    Ok(Json(server.resume_run(&session, &run, key.as_deref()).await?))
}

pub(super) async fn settle(
    RunRequest { server, session, run }: RunRequest,
    Path((_, id)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let key = key_of(request.headers())?;
    let request = body(request).await?;
    Ok(Json(server.settle_question(&session, (&run, &id), request, key.as_deref()).await?))
}

pub(super) async fn decide_changes(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Answer {
    Ok(Json(server.decide_run_changes(&session, &run, body(request).await?).await?))
}
