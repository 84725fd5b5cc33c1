//! `/inbox`: the approvals and questions of all runs that the person may read, the oldest first.
//! Each is decided or answered by a form, which names the arguments that were shown.

use std::collections::BTreeMap;

use axum::Extension;
use axum::http::Uri;
use axum::response::{Html, IntoResponse, Response};
use conclave_core::inspect::amounts::{about, plural};
use conclave_core::inspect::approval_reasons::{asking_causes, layers_of};
use conclave_core::inspect::foreign_text::readable;
use conclave_core::inspect::questions::{
    ApprovalSubject, Question, QuestionKind, QuestionState, Settlement,
};
use conclave_core::policy::roles::Action;
use conclave_core::types::approval::{ApprovalRequest, led_by, parse_approval_id};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::text::show_size;
use conclave_runtime::overlay::diff::LineSign;
use conclave_runtime::overlay::named_files::{
    FileState, NamedFile, ReplacedFile, named_file, replaced_file,
};
use conclave_runtime::store::DamagedRow;
use maud::{Markup, html};
use serde_json::Value;

use super::rights::layers;
use super::text::{
    age, exact, exact_block, first_line, foreign, foreign_block, path_part, run_path,
};
use super::{PageFailure, Place, now, page};
use crate::api::acting::failed;
use crate::api::views::{PersonQuestion, QuestionPage};
use crate::http::Failure;
use crate::sessions::Session;
use crate::visible_configs::{VisibleConfig, VisibleConfigs};

/// The path to which the form for the selected calls is sent, and its id.
pub(super) const REFUSE: &str = "/inbox/refuse";
const BULK: &str = "refuse-selected";
/// The field with the id of the question about which the page says where it stands.
pub(super) const SETTLED: &str = "settled";

pub(super) async fn list(
    Extension(visible): Extension<VisibleConfigs>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Result<Html<String>, PageFailure> {
    let query = uri.query().unwrap_or_default();
    let mut fields = url::form_urlencoded::parse(query.as_bytes());
    let line = match fields.find(|(name, _)| name == SETTLED) {
        // What the journal says, and not the address, which anybody can write.
        Some((_, id)) => question(&visible, &id).await.map(|it| outcome(&it)),
        None => None,
    };
    show(&visible, &session, line).await
}

/// A question by its id, wherever it stands.
async fn question(visible: &VisibleConfigs, id: &str) -> Option<Question> {
    let (room, _) = parse_approval_id(id)?;
    let VisibleConfig { server, session } =
        visible.of_run(RoomId::from(room).run().as_str()).await.ok()?;
    server.question(session, id).await.ok()
}

/// The inbox with what came of a decision about several calls: how many were refused, and why each
/// of the others was not.
pub(super) async fn refused_selected(
    visible: &VisibleConfigs,
    session: &Session,
    settled: Vec<(String, Result<(), Failure>)>,
) -> Result<Response, PageFailure> {
    let line = selected_outcome(settled);
    Ok(show(visible, session, Some(line)).await?.into_response())
}

pub(super) fn selected_outcome(settled: Vec<(String, Result<(), Failure>)>) -> Markup {
    let refusals = settled.iter().filter(|(_, outcome)| outcome.is_ok()).count() as u64;
    let failures = settled.into_iter().filter_map(|(id, outcome)| Some((id, outcome.err()?)));
    let failures: Vec<(String, Failure)> = failures.collect();
    html! {
        p.outcome role="status" {
            @if refusals == 0 && failures.is_empty() { "No call was selected." }
            @else { (plural(refusals, "call was refused", "calls were refused")) "." }
        }
        @for (id, failure) in failures {
            @let (_, body) = failure.into_parts();
            p.problem.outcome role="alert" {
                code { (foreign(&id)) } ": "
                (foreign(body["message"].as_str().unwrap_or_default()))
            }
        }
    }
}

/// The inbox with the reason why nothing was decided.
pub(super) async fn refused(
    visible: &VisibleConfigs,
    session: &Session,
    failure: Failure,
) -> Result<Response, PageFailure> {
    let (status, body) = failure.into_parts();
    let message = body["message"].as_str().unwrap_or_default();
    let line = html! { p.problem.outcome role="alert" { (foreign(message)) } };
    Ok((status, show(visible, session, Some(line)).await?).into_response())
}

async fn show(
    visible: &VisibleConfigs,
    session: &Session,
    line: Option<Markup>,
) -> Result<Html<String>, PageFailure> {
    let QuestionPage { questions, damaged } = visible.questions().await?;
    // It looks at the disk.
    let looking = conclave_runtime::blocking::spawn(move || {
        let files: Vec<FilesNow> = questions.iter().map(FilesNow::of).collect();
        questions.into_iter().zip(files).collect::<Vec<_>>()
    });
    let all = looking.await.map_err(|_| failed())?;
    let shows_why = visible.where_may(Action::Inspect).is_ok();
    let list = view(&all, (line.as_ref(), shows_why), now());
    let body = html! { (list) (damaged_rows(&damaged)) };
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

/// The files that the arguments of a call name, as they are now: what `conclave approve` shows.
#[derive(Default)]
pub(super) struct FilesNow {
    /// By the name of the argument.
    paths: BTreeMap<String, NamedFile>,
    replaced: Option<ReplacedFile>,
}

impl FilesNow {
    /// Looks at the files. The contents are for those alone who decide about the call.
    pub(super) fn of(of: &PersonQuestion) -> Self {
        let subject = of.question.subject().filter(|_| of.may_settle.is_ok());
        let Some((subject, (_, plugin))) = subject.and_then(|it| Some((it, it.performer()?)))
        else {
            return Self::default();
        };
        let fields = subject.request.arguments.as_object().into_iter().flatten();
        let paths = fields.filter_map(|(name, value)| {
            Some((name.clone(), named_file(value.as_str()?, &plugin.grants.files)?))
        });
        Self { paths: paths.collect(), replaced: replaced_file(&subject.request, plugin) }
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

/// The page; with `shows_why` for a person who may read the rights of plugins.
pub(super) fn view(
    all: &[(PersonQuestion, FilesNow)],
    (line, shows_why): (Option<&Markup>, bool),
    now: Millis,
) -> Markup {
    let is_refusable = |(it, _): &(PersonQuestion, FilesNow)| may_refuse(it);
    html! {
        h1 { "Inbox" }
        @if let Some(line) = line { (line) }
        p.keys hidden {
            kbd { "j" } " next " kbd { "k" } " previous " kbd { "a" } " approve, or answer "
            kbd { "r" } " refuse " kbd { "w" } " why " kbd { "x" } " select" span role="status" {}
        }
        div data-live {
            @if all.is_empty() {
                p.empty { "Nothing waits for a person." }
            } @else {
                ol.questions data-keyed { @for (question, files) in all { (item(question, (files, shows_why), now)) } }
                @if all.iter().any(is_refusable) { (refuse_selected()) }
            }
        }
        script src="/inbox.js" type="module" {}
    }
}

/// The form that refuses the selected calls, each for the arguments that were shown. It is seen as
/// soon as one is selected.
fn refuse_selected() -> Markup {
    html! {
        form.bulk id=(BULK) method="post" action=(REFUSE) data-decide="refuse-selected" {
            input name="reason" aria-label="Reason for the selected calls"
                placeholder="Reason, which the agents read";
            button.bad type="submit" { "Refuse the selected" }
        }
    }
}

/// Whether this person may refuse it now.
fn may_refuse(PersonQuestion { question, may_settle, .. }: &PersonQuestion) -> bool {
    question.subject().is_some() && question.is_open() && may_settle.is_ok()
}

fn item(of: &PersonQuestion, (files, shows_why): (&FilesNow, bool), now: Millis) -> Markup {
    let PersonQuestion { config, question, message, is_live, may_settle, may_inspect } = of;
    let shows_why = shows_why && *may_inspect;
    let (kind, title) = match &question.kind {
        QuestionKind::Approval(subject) => ("approval", exact(&subject.request.tool)),
        QuestionKind::TopUp(subject) => ("limit", exact(&subject.request.tool)),
        QuestionKind::Ask { .. } => ("question", html! { "A question to the user" }),
    };
    let digest = question.subject().map_or("", |subject| &subject.arguments_sha256);
    html! {
        li id={ "q-" (question.id) } tabindex="-1" {
            header {
                @if may_refuse(of) {
                    input type="checkbox" form=(BULK) name="question"
                        value={ (question.id) " " (digest) }
                        aria-label={ "Select " (question.id) };
                }
                span.kind { (kind) }
                @if let Some(config) = config { span.config { (foreign(config)) } }
                h2 { (title) }
                @if let Some(subject) = question.subject() {
                    span { "for " (foreign(&subject.request.caller.to_string())) }
                }
                span.faint { (age(question.since, now)) (expiry(question, *is_live, now)) }
            }
            @match &question.kind {
                QuestionKind::Approval(subject) => { (arguments(&subject.request, files)) }
                QuestionKind::TopUp(subject) => { p { (foreign(&subject.request.source)) } }
                QuestionKind::Ask { question, .. } => { (foreign_block(question)) }
            }
            @if let Some(replaced) = &files.replaced { (difference(replaced)) }
            dl.details {
                dt { "Who asks" }
                dd { (chain(question)) }
                @if let Some(subject) = question.subject() { (reasons(subject)) }
                dt { "Run" }
                dd {
                    a href=(run_path(question.run.as_str())) { (foreign(first_line(message))) }
                    " " code.faint { (question.run) }
                }
            }
            @if let Some(subject) = question.subject().filter(|_| shows_why) { (why(subject)) }
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

/// Each cause with the rule that asks, and the answer of every layer.
fn why(subject: &ApprovalSubject) -> Markup {
    let setup = &subject.setup;
    html! {
        details.why {
            summary { "Why" }
            @for cause in asking_causes(setup, &subject.request) {
                p { (foreign(&cause.text)) }
                @if let Some(rule) = cause.rule { pre.rule dir="auto" { (readable(&rule)) } }
            }
            @if let Some(explanation) = layers_of(setup, &subject.request) {
                (layers(&explanation))
            }
        }
    }
}

/// What would be written, beside what is there.
fn difference(ReplacedFile { argument, change }: &ReplacedFile) -> Markup {
    html! {
        @if change.hunks.is_empty() {
            p.faint { code { (exact(argument)) } " is what the file holds now." }
        } @else {
            p.faint { "The file now (-) and " code { (exact(argument)) } " (+):" }
            pre.diff {
                @for hunk in &change.hunks {
                    span.faint { (hunk.header) "\n" }
                    @for line in &hunk.lines {
                        @let class = match line.sign {
                            LineSign::Added => Some("t-good"),
                            LineSign::Removed => Some("t-bad"),
                            LineSign::Context => None,
                        };
                        span class=[class] {
                            (line.sign.as_char()) (exact(&line.text)) "\n"
                            @if line.unterminated { "\\ No newline at end of file\n" }
                        }
                    }
                }
            }
        }
    }
}

/// What is at the path that an argument names.
fn on_disk(NamedFile { state, folder, rest }: &NamedFile) -> Markup {
    let here = || html! { code { (exact(&format!("{folder}/{rest}"))) } };
    html! {
        p.faint {
            @match *state {
                FileState::Unusual => strong.t-bad { "The path is written unusually: it may mean another place." },
                FileState::Link => { "A link: " (here()) },
                FileState::Folder => { "The folder " (here()) },
                FileState::File { bytes } => { (show_size(bytes)) " now: " (here()) },
                FileState::New { depth } => {
                    "A new file: " (here())
                    @if depth > 0 { ", " (plural(depth, "folder", "folders")) " down" }
                },
                FileState::Missing => { "Nothing is there: " (here()) },
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
fn arguments(request: &ApprovalRequest, files: &FilesNow) -> Markup {
    let value = |value: &Value| match value {
        Value::String(text) => exact_block(text),
        other => html! { code { (exact(&other.to_string())) } },
    };
    html! {
        dl.arguments {
            @match &request.arguments {
                Value::Object(fields) => {
                    // Those of one line first: they say what the others are for.
                    @let has_lines = |value: &Value| value.as_str().is_some_and(|it| it.contains('\n'));
                    @let (long, short): (Vec<_>, Vec<_>) = fields.iter().partition(|it| has_lines(it.1));
                    @for (name, argument) in short.into_iter().chain(long) {
                        dt { (exact(name)) }
                        dd {
                            (value(argument))
                            @if let Some(file) = files.paths.get(name) { (on_disk(file)) }
                        }
                    }
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
        dd {
            @if request.rule().is_some() { "The rule at " }
            (foreign(&request.source))
        }
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
