//! `/inbox`: the approvals and questions of all runs that the person may read, the oldest first.
//! Each is decided or answered by a form, which names the arguments that were shown.

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};
use conclave_core::inspect::amounts::about;
use conclave_core::inspect::questions::{
    ApprovalSubject, Question, QuestionKind, QuestionState, Settlement,
};
use conclave_core::types::approval::{ApprovalRequest, led_by};
use conclave_core::types::ids::Millis;
use conclave_runtime::store::DamagedRow;
use maud::{Markup, html};
use serde_json::Value;

use super::text::{age, exact, exact_block, foreign, foreign_block, path_part, run_path};
use super::{PageFailure, Place, now, page};
use crate::api::views::{PersonQuestion, QuestionPage};
use crate::http::{Failure, Server};
use crate::sessions::Session;

/// The field with the id of the question about which the page says where it stands.
pub(super) const SETTLED: &str = "settled";

pub(super) async fn list(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Result<Html<String>, PageFailure> {
    let query = uri.query().unwrap_or_default();
    let mut fields = url::form_urlencoded::parse(query.as_bytes());
    let line = match fields.find(|(name, _)| name == SETTLED) {
        // What the journal says, and not the address, which anybody can write.
        Some((_, id)) => server.question(&session, &id).await.ok().map(|it| outcome(&it)),
        None => None,
    };
    show(&server, &session, line).await
}

/// The inbox with the reason why nothing was decided.
pub(super) async fn refused(
    server: &Server,
    session: &Session,
    failure: Failure,
) -> Result<Response, PageFailure> {
    let (status, body) = failure.into_parts();
    let message = body["message"].as_str().unwrap_or_default();
    let line = html! { p.problem.outcome role="alert" { (foreign(message)) } };
    Ok((status, show(server, session, Some(line)).await?).into_response())
}

async fn show(
    server: &Server,
    session: &Session,
    line: Option<Markup>,
) -> Result<Html<String>, PageFailure> {
    let QuestionPage { questions, damaged } = server.questions(session).await?;
    let body = html! { (view(&questions, line.as_ref(), now())) (damaged_rows(&damaged)) };
    Ok(page("Inbox", Place::Inbox, session, &body))
}

/// The rows of the store that cannot be read: something may wait in them.
fn damaged_rows(damaged: &[DamagedRow]) -> Markup {
    html! {
        @for DamagedRow { room, what } in damaged {
            p.problem { "A row of " code { (room) } " cannot be read: " (foreign(what)) }
        }
    }
}

/// Where a question stands, in a line.
fn outcome(question: &Question) -> Markup {
    let name = match &question.kind {
        QuestionKind::Approval(subject) | QuestionKind::TopUp(subject) => &*subject.request.tool,
        QuestionKind::Ask { .. } => "The question",
    };
    html! {
        p.outcome role="status" {
            b { (foreign(name)) } ": " (state(&question.state)) " "
            a href=(run_path(question.run.as_str())) { "The run" }
        }
    }
}

fn state(state: &QuestionState) -> Markup {
    let settled = |Settlement { decision, by, .. }: &Settlement| {
        html! { (decision.as_str()) @if let Some(by) = by { " by " (foreign(by)) } }
    };
    match state {
        QuestionState::Open => html! { "waits for a person." },
        QuestionState::OnItsWay { settlement } => html! {
            (settled(settlement)) "; the run has not received it yet."
        },
        QuestionState::Settled { settlement } => html! { (settled(settlement)) "." },
        QuestionState::Expired { .. } => html! { "nobody decided in time." },
        QuestionState::Withdrawn { .. } => html! { "the run does not ask any more." },
    }
}

pub(super) fn view(all: &[PersonQuestion], line: Option<&Markup>, now: Millis) -> Markup {
    html! {
        h1 { "Inbox" }
        @if let Some(line) = line { (line) }
        p.keys hidden {
            kbd { "j" } " next " kbd { "k" } " previous " kbd { "a" } " approve, or answer "
            kbd { "r" } " refuse" span role="status" {}
        }
        div data-live {
            @if all.is_empty() {
                p.empty { "Nothing waits for a person." }
            } @else {
                ol.questions data-keyed { @for question in all { (item(question, now)) } }
            }
        }
        script src="/inbox.js" type="module" {}
    }
}

fn item(PersonQuestion { question, is_live, may_settle }: &PersonQuestion, now: Millis) -> Markup {
    let (kind, title) = match &question.kind {
        QuestionKind::Approval(subject) => ("approval", exact(&subject.request.tool)),
        QuestionKind::TopUp(subject) => ("limit", exact(&subject.request.tool)),
        QuestionKind::Ask { .. } => ("question", html! { "A question to the user" }),
    };
    html! {
        li id={ "q-" (question.id) } tabindex="-1" {
            header {
                span.kind { (kind) }
                h2 { (title) }
                span.faint { (age(question.since, now)) (expiry(question, *is_live, now)) }
            }
            @match &question.kind {
                QuestionKind::Approval(subject) => { (arguments(&subject.request)) }
                QuestionKind::TopUp(subject) => { p { (foreign(&subject.request.source)) } }
                QuestionKind::Ask { question, .. } => { (foreign_block(question)) }
            }
            dl.details {
                dt { "Who asks" }
                dd { (chain(question)) }
                @if let Some(subject) = question.subject() { (reasons(subject)) }
                dt { "Run" }
                dd { a href=(run_path(question.run.as_str())) { code { (question.run) } } }
            }
            @if !question.is_open() {
                p.stands { (state(&question.state)) }
            } @else {
                @match may_settle {
                    Ok(()) => { (forms(question)) }
                    Err(refusal) => { p.faint { (refusal) } }
                }
            }
        }
    }
}

/// The time that is left, which passes only while a process has the run.
fn expiry(question: &Question, is_live: bool, now: Millis) -> Markup {
    html! {
        @if let Some(ms) = question.expires_ms {
            @if is_live {
                " · expires in " (about(ms.saturating_sub(now.since(question.since))))
            } @else {
                " · expires after " (about(ms)) " in which a process has the run"
            }
        }
    }
}

/// All arguments, exactly: what a reader could miss is escaped.
fn arguments(request: &ApprovalRequest) -> Markup {
    let value = |value: &Value| match value {
        Value::String(text) => exact_block(text),
        other => html! { code { (exact(&other.to_string())) } },
    };
    html! {
        dl.arguments {
            @match &request.arguments {
                Value::Object(fields) => {
                    @for (name, argument) in fields { dt { (exact(name)) } dd { (value(argument)) } }
                }
                other => { dt { "Argument" } dd { (value(other)) } }
            }
        }
    }
}

/// The tasks from the run's own to the one that asks, and the tools that led to the call.
fn chain(question: &Question) -> Markup {
    let tools = question.subject().map(|subject| led_by(", requested by", &subject.request.led_by));
    html! {
        @for (place, asker) in question.chain.iter().enumerate() {
            @if place > 0 { " → " }
            b { (foreign(&asker.task.to_string())) } " (" (foreign(&asker.agent.to_string())) ")"
        }
        @if let Some(tools) = tools { (foreign(&tools)) }
    }
}

fn reasons(ApprovalSubject { request, effects, .. }: &ApprovalSubject) -> Markup {
    let rated = request.risk.map(|risk| risk.as_str());
    html! {
        @for delegator in request.delegators.iter().filter(|it| !it.brief.is_empty()) {
            dt { (foreign(&delegator.task.to_string())) " delegated" }
            dd { (foreign_block(&delegator.brief)) }
        }
        @if let Some(performer) = request.performer() {
            dt { (foreign(&performer.to_string())) " may" }
            dd {
                @if effects.is_empty() { "only compute" }
                @else { ul { @for effect in effects { li { (foreign(effect)) } } } }
            }
        }
        dt { "Why it asks" }
        dd { (foreign(&request.source)) }
        @if rated.is_some() || request.risk_reason.is_some() {
            dt { "Risk" }
            dd {
                @if let Some(rated) = rated { b { (rated) } " " }
                @if let Some(reason) = &request.risk_reason { (foreign_block(reason)) }
            }
        }
        @if let Some(problem) = &request.problem {
            dt { "Problem" }
            dd.problem { (foreign_block(problem)) }
        }
    }
}

fn forms(question: &Question) -> Markup {
    let id = path_part(&question.id);
    let path = format!("{}/questions/{id}", run_path(question.run.as_str()));
    let hidden = |decision: &str| {
        html! {
            input type="hidden" name="decision" value=(decision);
            @if let Some(subject) = question.subject() {
                input type="hidden" name="arguments_sha256" value=(subject.arguments_sha256);
            }
        }
    };
    html! {
        div.decide {
            @if question.subject().is_some() {
                form method="post" action=(path) data-decide="approve" {
                    (hidden("approve"))
                    button.good type="submit" { "Approve" }
                }
                form method="post" action=(path) data-decide="refuse" {
                    (hidden("refuse"))
                    input name="reason" aria-label="Reason" placeholder="Reason, which the agent reads";
                    button.bad type="submit" { "Refuse" }
                }
            } @else {
                form method="post" action=(path) data-decide="answer" {
                    (hidden("answer"))
                    textarea name="text" rows="2" required aria-label="Answer" placeholder="Answer" {}
                    button.good type="submit" { "Answer" }
                }
            }
        }
    }
}
