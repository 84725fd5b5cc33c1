//! Webhooks that come in: `POST /hooks/CHANNEL`, signed with the secret of the channel. The signature
//! takes the place of a session. From there on it is a message of the channel like any other: its
//! access, rate, keys and gates apply.

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Json, http::HeaderMap};
use conclave_core::types::ids::{ChannelId, Millis, Principal, TaskName, WEBHOOK_PREFIX};
use conclave_core::types::request::Inbound;
use conclave_runtime::endpoints::{HookRefusal, HookRequest};
use conclave_runtime::webhook::{ID, SIGNATURE, SignedHeaders, TIMESTAMP};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::api::{Problem, bad_arguments};
use crate::conversations::FAILED;
use crate::http::{Failure, Server, form_body, now};

/// The beginning of the paths of webhooks, which need no session.
pub(crate) const HOOKS: &str = "/hooks/";

/// The beginning of the keys of their messages.
pub(crate) const HOOK_KEY: &str = "webhook:";

/// The routes of webhooks.
pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    vec![("/hooks/{channel}", post(receive))]
}

/// What a sender says; other fields are left to it.
#[derive(Deserialize)]
struct HookBody {
    data: HookData,
}

#[derive(Deserialize)]
struct HookData {
    text: String,
    /// The conversation; without one, the channel's own.
    room: Option<String>,
    /// The task that should answer.
    task: Option<TaskName>,
    /// Only what this host sends has it: with the same secret it could be sent back.
    channel: Option<IgnoredAny>,
}

async fn receive(
    State(server): State<Server>,
    Path(channel): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let body = form_body(request).await?;
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (id, time) = (text(ID), text(TIMESTAMP));
    let channel = ChannelId::from(channel);
    let at = now();
    let unverified = server.hook_permit()?;
    let sender = server
        .conversations()
        .verify_hook(HookRequest {
            channel: &channel,
            headers: SignedHeaders { id, time, signatures: text(SIGNATURE) },
            body: body.as_bytes(),
            now: at.0 / 1000,
        })
        .await?;
    drop(unverified);
    // Only then: a stranger takes none of the places of those who may act.
    let _permit = server.acting_permit()?;
    let HookBody { data } = serde_json::from_str(&body).map_err(|error| {
        bad_arguments(&format!("the body must be {{\"data\": {{\"text\": …}}}}: {error}"))
    })?;
    if data.channel.is_some() {
        return Err(bad_arguments("the message is one that a host has sent").into());
    }
    let signed = Millis(time.parse::<u64>().unwrap_or_default().saturating_mul(1000));
    let conversation =
        server.conversations().of_hook(&channel, data.room.as_deref(), signed).await?;
    let by = Principal(format!("{WEBHOOK_PREFIX}{channel}").into());
    let message = Inbound {
        sender,
        // Beside the keys of the page, whose clients choose them.
        key: Some(format!("{HOOK_KEY}{channel}/{id}")),
        to: data.task,
        ..Inbound::new(channel, data.text)
    };
    let accepted = server.inbound(&conversation, &by, message).await?;
    let answer = json!({
        "room": conversation.room(), "index": accepted.index, "duplicate": accepted.duplicate,
    });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

impl From<HookRefusal> for Failure {
    fn from(refusal: HookRefusal) -> Self {
        let (status, code) = match refusal {
            HookRefusal::Unsigned => (StatusCode::UNAUTHORIZED, "wrong_signature"),
            HookRefusal::Time => (StatusCode::UNAUTHORIZED, "wrong_time"),
            // The operator sees the reason.
            HookRefusal::NoSecret(_) => {
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, "failed", FAILED);
            }
        };
        Self::new(status, code, refusal.to_string())
    }
}
