//! `/runs`: the runs of the config that the person may read, the newest first.

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Html;
use conclave_core::inspect::amounts::{money, thousands, took};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::store::{RunFilter, RunRow};
use maud::{Markup, html};

use super::text::{address, age, badge, foreign, run_path};
use super::{PageFailure, Place, now, page};
use crate::api::run_list::{RunPage, RunQuery};
use crate::http::Server;
use crate::sessions::Session;

/// The states that the form offers.
const STATES: [&str; 10] = [
    "running",
    "interrupted",
    "queued",
    "asleep",
    "done",
    "rejected",
    "error",
    "kill",
    "timeout",
    "stalled",
];

pub(super) async fn list(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Result<Html<String>, PageFailure> {
    let query = RunQuery::of(&uri)?;
    let found = server.runs(&session, query.clone()).await?;
    let runs: Vec<RoomId> = found.runs.iter().map(|row| row.run.clone()).collect();
    let down = server.read(move |reader, _| runs.iter().map(|run| reader.down_ms(run)).collect());
    let down_ms: Vec<u64> = down.await?;
    Ok(page("Runs", Place::Runs, &session, &view(&query, &found, &down_ms, now())))
}

/// The page; `down_ms` are the times in which no host ran each run.
fn view(query: &RunQuery, found: &RunPage, down_ms: &[u64], now: Millis) -> Markup {
    let has_filter = query.filter != RunFilter::default();
    html! {
        h1 { "Runs" }
        (form(query))
        div id="live" data-live {
            @if found.runs.is_empty() {
                p.empty {
                    @if has_filter { "No run matches. " a href="/runs" { "All runs" } }
                    @else { "There is no run yet. A run appears here once it has begun." }
                }
            } @else {
                table.runs {
                    thead {
                        tr {
                            th scope="col" { "State" }
                            th scope="col" { "Run" }
                            th scope="col" { "Task" }
                            th scope="col" { "Who" }
                            th scope="col" { "Started" }
                            th.num scope="col" { "Took" }
                            th.num scope="col" { "Tokens" }
                            th.num scope="col" { "Cost" }
                        }
                    }
                    tbody data-keyed {
                        @for (run, down_ms) in found.runs.iter().zip(down_ms) {
                            (row(run, *down_ms, now))
                        }
                    }
                }
            }
            @if let Some(next) = &found.next {
                p.more { a rel="next" href=(next_address(query, &next.to_string())) { "Older runs" } }
            }
        }
    }
}

/// The form that narrows the list.
fn form(query: &RunQuery) -> Markup {
    let status = query.filter.status.as_deref().unwrap_or_default();
    let is_other = !status.is_empty() && !STATES.contains(&status);
    html! {
        form.filters role="search" action="/runs" {
            input type="search" name="text" aria-label="Text of the first message"
                placeholder="Search the first messages"
                value=(query.filter.text.as_deref().unwrap_or_default());
            select name="status" aria-label="State" {
                option value="" { "Any state" }
                @for state in STATES { option value=(state) selected[state == status] { (state) } }
                @if is_other { option value=(status) selected { (status) } }
            }
            input name="agent" aria-label="Agent" placeholder="Agent"
                value=(query.filter.agent.as_deref().unwrap_or_default());
            button type="submit" { "Filter" }
        }
    }
}

fn next_address(query: &RunQuery, next: &str) -> String {
    let limit = query.limit.map(|limit| limit.to_string());
    address(
        "/runs",
        [
            ("text", query.filter.text.as_deref()),
            ("status", query.filter.status.as_deref()),
            ("agent", query.filter.agent.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", Some(next)),
        ],
    )
}

fn row(run: &RunRow, down_ms: u64, now: Millis) -> Markup {
    let (tone, word) = run.state.in_words(&run.command);
    let took_ms = run.until(now).since(run.started).saturating_sub(down_ms);
    let some = |amount: u64, show: fn(u64) -> String| {
        html! { @if amount > 0 { (show(amount)) } @else { span.faint { "–" } } }
    };
    html! {
        tr id={ "run-" (run.run) } {
            td.state { (badge(tone, &word)) }
            td.run {
                a href=(run_path(run.run.as_str())) {
                    span.message { (foreign(first_line(&run.message))) }
                    code { (run.run) }
                }
            }
            td.task {
                (foreign(&run.entry))
                @if !run.agents.is_empty() { " " span.faint { (foreign(&run.agents.join(", "))) } }
            }
            td.person { (foreign(&run.principal)) }
            td.started { (age(run.started, now)) }
            td.num.took { (took(took_ms)) }
            td.num.tokens { (some(run.tokens, thousands)) }
            td.num.cost { (some(run.cost_micro_usd, money)) }
        }
    }
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or("(no message)")
}
