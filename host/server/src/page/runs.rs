//! `/runs`: the runs of configs that the person may read, the newest first.

use axum::Extension;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use conclave_core::inspect::amounts::{money, thousands, took};
use conclave_core::types::ids::Millis;
use conclave_runtime::store::RunFilter;
use maud::{Markup, html};

use super::text::{address, age, first_line, foreign, run_path, state};
use super::{PageFailure, Place, act, now, page};
use crate::api::run_list::RunQuery;
use crate::entity_tag::EntityTag;
use crate::sessions::Session;
use crate::visible_configs::{ListedRun, ListedRuns, VisibleConfigs};

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
    Extension(visible): Extension<VisibleConfigs>,
    Extension(session): Extension<Session>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, PageFailure> {
    let query = RunQuery::of(&uri)?;
    let found = visible.runs(query.clone()).await?;
    let down_ms = visible.down_ms(&found.runs).await?;
    let waiting = visible.waiting(&found.runs).await?;
    let rows: Vec<Markup> = found
        .runs
        .iter()
        .zip(down_ms)
        .map(|(run, down_ms)| row(run, down_ms, waiting.contains(&run.row.run), now()))
        .collect();
    let page_with = |seen: Millis| {
        let start = act::start_form(&visible, seen);
        let view = view((&query, session.config()), &start, &found, &rows);
        page("Runs", Place::Runs, &session, &view)
    };
    // The form of a start is another one each time, and tells a reader nothing.
    let tag = EntityTag::of(&page_with(Millis::default()).0.into());
    if tag.is_known(&headers) {
        return Ok(tag.unchanged());
    }
    Ok(tag.with(page_with(now())))
}

/// The page, of one of several configs if it names one.
fn view(
    (query, config): (&RunQuery, Option<&str>),
    start: &Markup,
    found: &ListedRuns,
    rows: &[Markup],
) -> Markup {
    let has_filter = query.filter != RunFilter::default();
    let has_configs = found.runs.iter().any(|run| run.server.config_name().is_some());
    html! {
        h1 { "Runs" }
        (start)
        (form(query, config))
        div id="live" data-live {
            @if found.runs.is_empty() {
                p.empty {
                    @if has_filter {
                        "No run matches. " a href=(address("/runs", [("config", config)])) { "All runs" }
                    }
                    @else { "There is no run yet. A run appears here once it has begun." }
                }
            } @else {
                table.runs {
                    thead {
                        tr {
                            th scope="col" { "State" }
                            th scope="col" { "Run" }
                            @if has_configs { th scope="col" { "Config" } }
                            th scope="col" { "Task" }
                            th scope="col" { "Who" }
                            th scope="col" { "Started" }
                            th.num scope="col" { "Took" }
                            th.num scope="col" { "Tokens" }
                            th.num scope="col" { "Cost" }
                        }
                    }
                    tbody data-keyed { @for row in rows { (row) } }
                }
            }
            @if let Some(next) = &found.next {
                p.more { a rel="next" href=(next_address(query, config, next)) { "Older runs" } }
            }
        }
    }
}

/// The form that narrows the list.
fn form(query: &RunQuery, config: Option<&str>) -> Markup {
    let status = query.filter.status.as_deref().unwrap_or_default();
    let is_other = !status.is_empty() && !STATES.contains(&status);
    html! {
        form.filters role="search" action="/runs" {
            @if let Some(config) = config { input type="hidden" name="config" value=(config); }
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

fn next_address(query: &RunQuery, config: Option<&str>, next: &str) -> String {
    let limit = query.limit.map(|limit| limit.to_string());
    address(
        "/runs",
        [
            ("config", config),
            ("text", query.filter.text.as_deref()),
            ("status", query.filter.status.as_deref()),
            ("agent", query.filter.agent.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", Some(next)),
        ],
    )
}

/// A run; `down_ms` is the time in which no host ran it.
fn row(
    ListedRun { row: run, server }: &ListedRun,
    down_ms: u64,
    is_waiting: bool,
    now: Millis,
) -> Markup {
    let took_ms = run.until(now).since(run.started).saturating_sub(down_ms);
    let some = |amount: u64, show: fn(u64) -> String| {
        html! { @if amount > 0 { (show(amount)) } @else { span.faint { "–" } } }
    };
    html! {
        tr id={ "run-" (run.run) } {
            td.state { (state(run, is_waiting)) }
            td.run {
                a href=(run_path(run.run.as_str())) {
                    span.message { (foreign(first_line(&run.message))) }
                    code { (run.run) }
                }
            }
            @if let Some(config) = server.config_name() { td.config { (foreign(config)) } }
            td.task { (foreign(&run.entry)) }
            td.person { (foreign(&run.principal)) }
            td.started { (age(run.started, now)) }
            td.num.took { (took(took_ms)) }
            td.num.tokens { (some(run.tokens, thousands)) }
            td.num.cost { (some(run.cost_micro_usd, money)) }
        }
    }
}
