//! The forms of the pages. Each calls the function that API v1 calls for the same request, and leads
//! back to a page that says what came of it.

use axum::Extension;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Redirect, Response};
use conclave_core::policy::roles::Action;
use conclave_core::types::approval::parse_approval_id;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::store::RunRow;
use futures_util::StreamExt as _;
use maud::{Markup, html};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::text::{address, run_path};
use super::{PageFailure, inbox};
use crate::api::acting::{ReasonRequest, SettleRequest, StartRequest};
use crate::api::{bad_arguments, owner};
use crate::http::{Failure, form_body};
use crate::run_request::RunRequest;
use crate::sessions::Session;
use crate::visible_configs::{VisibleConfig, VisibleConfigs};

/// The field with the number of records that the page showed. It is no part of the request, and
/// tells a form from the same one on a later page.
const SEEN: &str = "seen";

/// Calls that are refused by one press, and those of them that are decided at once.
const SELECTED: usize = 100;
const AT_ONCE: usize = 4;

/// A form as a browser sent it.
struct Form<T> {
    request: T,
    /// The idempotency key: a form that is sent twice, as by a double click, takes effect once.
    key: String,
}

async fn form<T: DeserializeOwned>(request: Request) -> Result<Form<T>, Failure> {
    let path = request.uri().path().to_owned();
    let body = form_body(request).await?;
    let fields = url::form_urlencoded::parse(body.as_bytes())
        .filter(|(name, value)| name != SEEN && !value.is_empty())
        // Browsers end the lines of a field with both characters.
        .map(|(name, value)| (name.into_owned(), Value::from(value.replace("\r\n", "\n"))));
    let request = serde_json::from_value(Value::Object(fields.collect()));
    let request = request.map_err(|error| bad_arguments(&format!("the form: {error}")))?;
    Ok(Form { request, key: format!("{path}?{body}") })
}

type Done = Result<Redirect, PageFailure>;

/// Starts a run, and leads to its page.
pub(super) async fn start(Extension(visible): Extension<VisibleConfigs>, request: Request) -> Done {
    visible.where_may(Action::Start)?;
    let Form::<StartRequest> { request, key } = form(request).await?;
    let VisibleConfig { server, session } = visible.choose(request.config.as_deref())?;
    let (run, _) = server.start_run(session, request, Some(&key)).await?;
    Ok(Redirect::to(&run_path(run["run"].as_str().unwrap_or_default())))
}

/// The form that starts a run, for configs that have no conversations or are several; `now` tells it
/// from the same one later.
pub(super) fn start_form(visible: &VisibleConfigs, now: Millis) -> Markup {
    let configs = visible.where_may(Action::Start).unwrap_or_default();
    let has_channel = |it: &&VisibleConfig| it.server.conversations().channel().is_some();
    let is_shown = !configs.is_empty() && (configs.len() > 1 || !configs.iter().all(has_channel));
    html! {
        @if is_shown {
            details.start {
                summary { "New run…" }
                form method="post" action="/runs" {
                    input type="hidden" name=(SEEN) value=(now.0);
                    @match configs.as_slice() {
                        [only] => { input type="hidden" name="config" value=(only.server.name()); }
                        several => {
                            select name="config" aria-label="Config" {
                                @for config in several {
                                    option value=(config.server.name()) { (config.server.name()) }
                                }
                            }
                        }
                    }
                    textarea name="text" rows="2" required aria-label="First message"
                        placeholder="The first message" {}
                    button type="submit" { "Start" }
                }
            }
        }
    }
}

pub(super) async fn say(RunRequest { server, session, run }: RunRequest, request: Request) -> Done {
    let Form { request, key } = form(request).await?;
    Ok(back(&run, &server.say(&session, &run, request, Some(&key)).await?))
}

pub(super) async fn stop(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Done {
    let Form::<ReasonRequest> { request, .. } = form(request).await?;
    Ok(back(&run, &server.stop_run(&session, &run, request, None).await?))
}

pub(super) async fn pause(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Done {
    let Form::<ReasonRequest> { request, .. } = form(request).await?;
    Ok(back(&run, &server.pause_run(&session, &run, request, None).await?))
}

pub(super) async fn resume(RunRequest { server, session, run }: RunRequest) -> Done {
    Ok(back(&run, &server.resume_run(&session, &run, None).await?))
}

/// Decides or answers. The inbox then says where the question stands, or why nothing was decided.
pub(super) async fn settle(
    RunRequest { server, session, run }: RunRequest,
    Extension(visible): Extension<VisibleConfigs>,
    Path((_, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, PageFailure> {
    let settled = async {
        let Form { request, key } = form(request).await?;
        server.settle_question(&session, (&run, &id), request, Some(&key)).await
    };
    match settled.await {
        Ok(_) => Ok(to_inbox(Path((run, id))).await.into_response()),
        Err(failure) => inbox::refused(&visible, &session, failure).await,
    }
}

/// Refuses the selected calls, each for the arguments that were shown. The inbox then says which
/// were not refused, and why.
pub(super) async fn refuse_selected(
    Extension(visible): Extension<VisibleConfigs>,
    Extension(session): Extension<Session>,
    request: Request,
) -> Result<Response, PageFailure> {
    let body = form_body(request).await?;
    let (mut reason, mut selected) = (None, Vec::new());
    for (name, value) in url::form_urlencoded::parse(body.as_bytes()) {
        match &*name {
            "reason" => reason = Some(value.into_owned()).filter(|reason| !reason.is_empty()),
            "question" => selected.extend(
                value.split_once(' ').map(|(id, digest)| (id.to_owned(), digest.to_owned())),
            ),
            _ => return Err(bad_arguments("the form has a reason and questions").into()),
        }
    }
    if selected.len() > SELECTED {
        let what = format!("at most {SELECTED} calls are refused at once");
        return Err(bad_arguments(&what).into());
    }
    let refuse = |(id, digest): (String, String)| {
        let (visible, reason) = (&visible, reason.clone());
        async move {
            let key = format!("{}?{id}&{digest}&{reason:?}", inbox::REFUSE);
            let request = SettleRequest::Refuse { reason, arguments_sha256: Some(digest) };
            let room = parse_approval_id(&id).map(|(room, _)| RoomId::from(room).run());
            let settle = async {
                let run = room.ok_or_else(|| bad_arguments("there is no such question"))?;
                let VisibleConfig { server, session } = visible.of_run(run.as_str()).await?;
                let question = (run.as_str(), &*id);
                server.settle_question(session, question, request, Some(&key)).await.map(drop)
            };
            let settled: Result<(), Failure> = settle.await;
            (id, settled)
        }
    };
    let settled = futures_util::stream::iter(selected).map(refuse).buffered(AT_ONCE);
    inbox::refused_selected(&visible, &session, settled.collect().await).await
}

pub(super) async fn to_list() -> Redirect {
    Redirect::to("/inbox")
}

/// Applies or drops the changes of the version that was shown.
pub(super) async fn decide_changes(
    RunRequest { server, session, run }: RunRequest,
    request: Request,
) -> Done {
    let Form { request, .. } = form(request).await?;
    let answer = server.decide_run_changes(&session, &run, request).await?;
    let path = format!("{}/changes", run_path(&run));
    Ok(Redirect::to(&address(&path, [("done", answer["decision"].as_str())])))
}

pub(super) async fn to_run(Path(run): Path<String>) -> Redirect {
    Redirect::to(&run_path(&run))
}

pub(super) async fn to_inbox(Path((_, id)): Path<(String, String)>) -> Redirect {
    Redirect::to(&address("/inbox", [(inbox::SETTLED, Some(&*id))]))
}

/// Leads back to the page of a run, with the state in the answer of the API.
fn back(run: &str, answer: &Value) -> Redirect {
    Redirect::to(&address(&run_path(run), [("done", answer["state"].as_str())]))
}

/// What came of a form, by the state in the answer of the API; `None` for another word.
pub(super) fn outcome(state: &str) -> Option<&'static str> {
    Some(match state {
        "recorded" => "The run has the message.",
        "waiting" => "It is durable, and takes effect as soon as a process goes on with the run.",
        "ended" => "The run has ended.",
        "stopping" => "The run was asked to stop, and has not ended yet.",
        "paused" => "The run is paused.",
        "running" => "The run goes on.",
        "applied" => "The changes are applied to their folders.",
        "dropped" => "The changes are dropped.",
        _ => return None,
    })
}

/// The forms for what this person may do to a run that has not ended.
pub(super) fn forms(session: &Session, row: &RunRow, is_paused: bool, records: u64) -> Markup {
    let may = |action| session.may(action, Some(&owner(row))).is_ok();
    let path = |act: &str| format!("{}/{act}", run_path(row.run.as_str()));
    let (act, word) = if is_paused { ("resume", "Resume") } else { ("pause", "Pause") };
    let may_pause = may(if is_paused { Action::Resume } else { Action::Pause });
    html! {
        section.acts data-live aria-label="What you can do" {
            @if may(Action::Say) {
                form.say method="post" action=(path("messages")) {
                    input type="hidden" name=(SEEN) value=(records);
                    textarea name="text" rows="1" required aria-label="Message"
                        placeholder="A message, which the agent reads in its next step" {}
                    button type="submit" { "Send" }
                }
            }
            @if may_pause {
                form method="post" action=(path(act)) { button type="submit" { (word) } }
            }
            @if may(Action::Stop) {
                details {
                    summary { "Stop…" }
                    form method="post" action=(path("stop")) {
                        input name="reason" aria-label="Reason" placeholder="Reason";
                        button.bad type="submit" { "Stop the run" }
                    }
                }
            }
        }
    }
}
