//! Further pages of a run: its background tasks, its changes of folders as differences, its audit.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Html;
use conclave_core::inspect::amounts::{moment, plural, took};
use conclave_core::inspect::audit::AuditEntry;
use conclave_core::inspect::background::TaskRow;
use conclave_core::policy::roles::Action;
use conclave_core::types::delivery::DeliveryState;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::store::RunRow;
use maud::{Markup, html};
use serde_json::Value;

use super::text::{address, exact, foreign, foreign_block, run_path};
use super::{PageFailure, Place, act, now, page};
use crate::api::owner;
use crate::http::Server;
use crate::sessions::Session;

/// Audit entries on a page.
const ENTRIES: usize = 500;

/// A page of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunPart {
    Events,
    Background,
    Changes,
    Budget,
    Audit,
}

impl RunPart {
    const ALL: [Self; 5] =
        [Self::Events, Self::Background, Self::Changes, Self::Budget, Self::Audit];

    fn name(self) -> &'static str {
        match self {
            Self::Events => "Events",
            Self::Background => "Background",
            Self::Changes => "Changes",
            Self::Budget => "Budget",
            Self::Audit => "Audit",
        }
    }

    fn path(self, run: &str) -> String {
        let run = run_path(run);
        match self {
            Self::Events => run,
            Self::Background => run + "/background",
            Self::Changes => run + "/changes",
            Self::Budget => run + "/budget",
            Self::Audit => run + "/audit",
        }
    }

    fn action(self) -> Action {
        match self {
            Self::Audit => Action::Audit,
            _ => Action::Read,
        }
    }
}

/// Links to the pages of a run that the person may read.
pub(super) fn tabs(here: RunPart, row: &RunRow, session: &Session) -> Markup {
    let may = |part: &RunPart| session.may(part.action(), Some(&owner(row))).is_ok();
    html! {
        nav.tabs aria-label="Pages of the run" {
            @for part in RunPart::ALL.into_iter().filter(may) {
                a href=(part.path(row.run.as_str())) aria-current=[(part == here).then_some("page")] {
                    (part.name())
                }
            }
        }
    }
}

pub(super) fn part(here: RunPart, row: &RunRow, session: &Session, body: &Markup) -> Html<String> {
    let title = format!("{} of run {}", here.name(), row.run);
    let body = html! {
        p.crumbs {
            a href="/runs" { "Runs" } " / "
            a href=(run_path(row.run.as_str())) { code { (row.run) } }
        }
        h1 { (here.name()) " " span.faint { (foreign(&row.entry)) } }
        (tabs(here, row, session))
        (body)
    };
    page(&title, Place::Runs, session, &body)
}

pub(super) async fn background(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Result<Html<String>, PageFailure> {
    let row = server.run(&session, Action::Read, &run).await?;
    let folded = server.folded(&row.run).await?;
    let until = row.until(now());
    Ok(part(RunPart::Background, &row, &session, &background_table(&folded.tasks, until)))
}

pub(super) fn background_table(tasks: &[TaskRow], until: Millis) -> Markup {
    html! {
        @if tasks.is_empty() { p.empty { "The run has no background task." } }
        @let is_dead = |task: &&TaskRow| task.record.delivery.state == DeliveryState::DeadLetter;
        @let dead = tasks.iter().filter(is_dead).count() as u64;
        @if dead > 0 {
            p.waits {
                (plural(dead, "dead letter", "dead letters"))
                ": the delivery failed too often, and is not tried again. The notified agent reads "
                "the result in its next turn."
            }
        }
        ol.parts {
            @for TaskRow { name, record, .. } in tasks {
                @let delivery = &record.delivery;
                li {
                    h2 { (foreign(name)) " " span.faint { (foreign(&record.worker.to_string())) } }
                    dl.details {
                        dt { "State" }
                        dd {
                            (record.state.as_str()) ", "
                            (took(record.ended.unwrap_or(until).since(record.started)))
                        }
                        dt { "Delivery" }
                        @let is_lost = matches!(delivery.state,
                            DeliveryState::DeadLetter | DeliveryState::Blocked);
                        dd class=[is_lost.then_some("problem")] {
                            (serde_word(&serde_json::json!(delivery.state)))
                            @if let Some(channel) = &delivery.channel { " on " (foreign(&channel.to_string())) }
                            @if let Some(strategy) = &delivery.strategy { " by " (foreign(&strategy.to_string())) }
                            @if delivery.attempts > 0 {
                                ", " (plural(u64::from(delivery.attempts), "attempt", "attempts"))
                            }
                            @if let Some(reason) = &delivery.reason { ": " (foreign(reason)) }
                        }
                        dt { "Work" }
                        dd { (foreign_block(&record.description)) }
                        @for (name, text) in [("Result", &record.output), ("Error", &record.error)] {
                            @if let Some(text) = text { dt { (name) } dd { (foreign_block(text)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The word of a state in JSON.
fn serde_word(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('-', " ")
}

pub(super) async fn audit(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
    uri: Uri,
) -> Result<Html<String>, PageFailure> {
    let row = server.run(&session, Action::Read, &run).await?;
    let all = server.audit_view(&session, &run).await?;
    let mut fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let from = fields.find(|(name, _)| name == "from").and_then(|(_, from)| from.parse().ok());
    let table = audit_table(&all, from.unwrap_or(0), &RunPart::Audit.path(row.run.as_str()));
    Ok(part(RunPart::Audit, &row, &session, &table))
}

pub(super) fn audit_table(all: &[(RoomId, AuditEntry)], from: usize, path: &str) -> Markup {
    let next = from.saturating_add(ENTRIES);
    html! {
        @if all.is_empty() { p.empty { "The audit has no entry." } }
        @else {
            table.audit {
                thead {
                    tr {
                        @for head in ["Time (UTC)", "Kind", "Plugin", "By", "What"] {
                            th scope="col" { (head) }
                        }
                    }
                }
                tbody {
                    @for (room, entry) in all.iter().skip(from).take(ENTRIES) {
                        tr {
                            td { (moment(entry.at)) }
                            td { (entry.kind.as_str()) }
                            td { @if let Some(plugin) = &entry.plugin { (foreign(plugin.as_str())) } }
                            td { @if let Some(by) = &entry.by { (foreign(&by.0)) } }
                            td {
                                (foreign_block(&entry.message))
                                small { (room) @if let Some(seq) = entry.seq { " " (seq) } }
                            }
                        }
                    }
                }
            }
        }
        @if next < all.len() {
            p.more { a rel="next" href=(address(path, [("from", Some(&*next.to_string()))])) { "Later entries" } }
        }
    }
}

pub(super) async fn changes(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
    uri: Uri,
) -> Result<Html<String>, PageFailure> {
    let row = server.run(&session, Action::Read, &run).await?;
    let all = server.change_view(&session, &run).await?;
    let mut fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let outcome = fields.find(|(name, _)| name == "done").and_then(|(_, word)| act::outcome(&word));
    let may_apply = session.may(Action::Apply, Some(&owner(&row))).is_ok();
    let body = html! {
        @if let Some(outcome) = outcome { p.outcome role="status" { (outcome) } }
        (differences(&all, &RunPart::Changes.path(row.run.as_str()), may_apply))
    };
    Ok(part(RunPart::Changes, &row, &session, &body))
}

/// The changes in the form of the API, with the forms that apply or drop what is shown.
pub(super) fn differences(all: &Value, path: &str, may_apply: bool) -> Markup {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let folders: Vec<(String, Vec<Value>)> = list(&all["folders"])
        .iter()
        .map(|folder| (text(&folder["folder"]), list(&folder["files"])))
        .filter(|(_, files)| !files.is_empty())
        .collect();
    html! {
        @if folders.is_empty() { p.empty { "No changed file waits." } }
        @else if may_apply {
            div.decide {
                @for (decision, word, class) in [("apply", "Apply all", "good"), ("drop", "Drop all", "bad")] {
                    form method="post" action=(path) {
                        input type="hidden" name="decision" value=(decision);
                        input type="hidden" name="version" value=(text(&all["version"]));
                        button class=(class) type="submit" { (word) }
                    }
                }
            }
        }
        @for (folder, files) in &folders {
            h2 { (exact(folder)) }
            ol.parts { @for file in files { li { (difference(file)) } } }
        }
    }
}

fn difference(file: &Value) -> Markup {
    let what = match (&file["old"], &file["new"]) {
        _ if file["is_lost"] == true => "its content is lost; it can only be dropped",
        (Value::Null, _) => "new",
        (_, Value::Null) => "removed",
        _ => "changed",
    };
    let hunks = file["difference"]["hunks"].as_array();
    html! {
        h3 { (exact(file["path"].as_str().unwrap_or_default())) " " span.faint { (what) } }
        @if let Some(conflict) = file["conflict"].as_str() { p.problem { (foreign(conflict)) } }
        @match hunks {
            None => p.faint { "No lines to compare: a binary or a large file." },
            Some(hunks) => @for hunk in hunks {
                pre.diff {
                    span.faint { (hunk["header"].as_str().unwrap_or_default()) "\n" }
                    @for line in hunk["lines"].as_array().into_iter().flatten() {
                        @let line = line.as_str().unwrap_or_default();
                        @let class = match line.chars().next() {
                            Some('+') => Some("t-good"),
                            Some('-') => Some("t-bad"),
                            _ => None,
                        };
                        span class=[class] { (foreign(line)) "\n" }
                    }
                }
            }
        }
    }
}
