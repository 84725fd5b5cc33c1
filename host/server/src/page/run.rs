//! `/runs/{run}`: one run. Its state and amounts, the tree of its tasks as a waterfall, and its
//! events in tree order, some at a time. Each event has an address.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use conclave_core::inspect::amounts::{moment, money, plural, thousands, took};
use conclave_core::inspect::foreign_text::readable;
use conclave_core::inspect::prompts::{ModelPrompt, RowPrompts, prompts};
use conclave_core::inspect::telling::Tone;
use conclave_core::inspect::timeline::groups::{RowGroup, group, span};
use conclave_core::inspect::timeline::row_text::{tooltip, words};
use conclave_core::inspect::timeline::{RowSubject, Timeline, TimelineRow};
use conclave_core::policy::roles::Action;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::blocking;
use conclave_runtime::store::{RunRow, RunState, StoreError, StoreReader};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::json;

use super::act;
use super::budgets::budget_bars;
use super::event::{EventAddress, addresses, event};
use super::parts::{RunPart, tabs};
use super::text::{address, age, foreign, foreign_block, markdown, run_path, state, tone_class};
use super::{PageFailure, Place, now, page};
use crate::api::acting::failed;
use crate::folds::FoldedRun;
use crate::http::Server;
use crate::sessions::Session;

/// Events on a page.
const EVENTS: usize = 200;
/// Bars of all tasks together: a browser draws more only slowly.
const BARS: usize = 3_000;
/// Rows of the tree of tasks.
const TASKS: usize = 200;

/// The events that a page is narrowed to.
#[derive(Debug, Default)]
struct EventQuery {
    /// The class of a group, or [`NOTABLE`].
    kind: Option<String>,
    /// A part of the event's line, in any case.
    text: Option<String>,
    /// The number of the first event.
    from: usize,
    /// The event that is shown in full.
    event: Option<String>,
    /// What came of the form that led here.
    outcome: Option<&'static str>,
    /// Whether the page has nothing but the events, for a script that fetches more of them.
    is_list_alone: bool,
}

/// The kind of those events that a reader of a long run should notice.
const NOTABLE: &str = "notable";

impl EventQuery {
    /// Reads the query of an address; other fields mean nothing.
    fn of(uri: &Uri) -> Self {
        let mut query = Self::default();
        for (name, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        {
            let value = Some(value.into_owned()).filter(|value| !value.is_empty());
            match &*name {
                "kind" => query.kind = value,
                "text" => query.text = value,
                "event" => query.event = value,
                "part" => query.is_list_alone = value.as_deref() == Some("events"),
                "done" => query.outcome = value.and_then(|state| act::outcome(&state)),
                "from" => query.from = value.and_then(|from| from.parse().ok()).unwrap_or(0),
                _ => {}
            }
        }
        query
    }

    fn has(&self, row: &TimelineRow) -> bool {
        let kind = self.kind.as_deref().is_none_or(|kind| match kind {
            NOTABLE => row.what.stands_out(),
            kind => group(&row.what).class() == kind,
        });
        kind && self.text.as_deref().is_none_or(|text| {
            let row = words(row);
            let line = format!("{} {}", row.name, row.text).to_lowercase();
            line.contains(&text.to_lowercase())
        })
    }

    fn address(&self, run: &str, from: Option<usize>) -> String {
        let from = from.filter(|from| *from > 0).map(|from| from.to_string());
        address(
            &run_path(run),
            [
                ("kind", self.kind.as_deref()),
                ("text", self.text.as_deref()),
                ("from", from.as_deref()),
            ],
        )
    }
}

/// What a page says about a run.
struct RunView {
    row: RunRow,
    run: Arc<FoldedRun>,
    /// The timeline of the run up to the time of the page.
    timeline: Timeline,
    beside: BesideRecords,
    /// The prompts of the event that is shown in full.
    prompts: Vec<ModelPrompt>,
}

/// What the store has about a run beside its records.
#[derive(Serialize)]
struct BesideRecords {
    /// What the run waits for: kind and target.
    waits: Vec<(String, String)>,
    pending_changes: usize,
}

pub(super) async fn show(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, PageFailure> {
    let row = server.run(&session, Action::Read, &run).await?;
    let folded = server.folds().run(&row.run).await?;
    let folded = folded.ok_or_else(|| PageFailure::unreadable(&run))?;
    let id = row.run.clone();
    let beside = server.read(move |reader, _| BesideRecords::read(reader, &id)).await?;
    let now = now();
    let tag = server.entity_tag(&json!([
        uri.to_string(),
        [session.name(), Some(session.identity.role.as_str())],
        [json!(row), json!(beside), json!(folded.timeline.totals.records)],
        now.0 / shown_time_ms(&row),
    ]));
    if tag.is_known(&headers) {
        return Ok(tag.unchanged());
    }
    let query = EventQuery::of(&uri);
    let id = row.run.clone();
    let prompts = match query.event {
        Some(_) => server.read(move |reader, _| read_prompts(reader, &id)).await?,
        None => Vec::new(),
    };
    // A page of many events is work of its own, which must not delay other requests.
    let writing = blocking::spawn(move || {
        let timeline = folded.timeline_until(&row, now);
        let view = RunView { row, run: folded, timeline, beside, prompts };
        let body = body(&view, &query, &session, now);
        page(&format!("Run {run}"), Place::Runs, &session, &body)
    });
    Ok(tag.with(writing.await.map_err(|_| failed())?))
}

/// The milliseconds after which the times of an unchanged page are shown anew: durations that still
/// grow are shown in seconds, and the age of a run in minutes.
fn shown_time_ms(row: &RunRow) -> u64 {
    if row.state == RunState::Running { 10_000 } else { 60_000 }
}

impl BesideRecords {
    fn read(reader: &StoreReader, run: &RoomId) -> Result<Self, StoreError> {
        let waits = reader.waits(Some(run))?.into_iter();
        let waits = waits.map(|wait| (wait.wait.kind, wait.wait.target)).collect();
        Ok(Self { waits, pending_changes: reader.pending_changes(run)? })
    }
}

fn read_prompts(reader: &StoreReader, run: &RoomId) -> Result<Vec<ModelPrompt>, StoreError> {
    let mut all = Vec::new();
    for room in reader.rooms(run)? {
        all.extend(prompts(reader.records(&room.room)?));
    }
    Ok(all)
}

fn body(view: &RunView, query: &EventQuery, session: &Session, now: Millis) -> Markup {
    let RunView { row, timeline, run, .. } = view;
    let is_over = matches!(row.state, RunState::Ended(_));
    let addresses = addresses(timeline);
    if query.is_list_alone {
        return events(view, query, &addresses);
    }
    html! {
        @if let Some(outcome) = query.outcome { p.outcome role="status" { (outcome) } }
        div data-live[!is_over] { (head(view, now)) }
        @if !is_over { (act::forms(session, row, run.paused.is_some(), timeline.totals.records)) }
        (tabs(RunPart::Events, row, session))
        div data-live[!is_over] { (tasks(timeline, &addresses)) }
        (events(view, query, &addresses))
    }
}

fn head(view: &RunView, now: Millis) -> Markup {
    let RunView { row, run, timeline, beside, .. } = view;
    let ended = timeline.ended.as_ref();
    let reason = ended.map(|ended| ended.reason.as_str()).or(row.reason.as_deref());
    let cost = match timeline.totals.cost() {
        Some(cost) => money(cost),
        None if timeline.totals.model_calls == 0 => "–".to_owned(),
        None => "not known".to_owned(),
    };
    let changes = beside.pending_changes as u64;
    let answer = ended.and_then(|ended| ended.answer.as_deref()).unwrap_or_default();
    // A conversation waits for its next message most of the time.
    let for_people = beside.waits.iter().filter(|(kind, _)| match &**kind {
        "approval" | "top-up" => true,
        kind => kind == "user" && !row.is_conversation(),
    });
    let for_people: Vec<_> = for_people.collect();
    html! {
        section.head id="head" {
            p.crumbs { a href="/runs" { "Runs" } " / " code { (row.run) } }
            h1 { (state(row, !for_people.is_empty())) " " (foreign(&timeline.entry.to_string())) }
            @if !timeline.message.is_empty() { (foreign_block(&timeline.message)) }
            @if !answer.is_empty() { div.answer { (markdown(answer)) } }
            dl.facts {
                (fact("Started", &age(row.started, now)))
                (fact("Took", &html! { (took(timeline.took_ms)) }))
                (fact("Cost", &html! { (cost) }))
                (fact("Tokens", &html! { (thousands(timeline.totals.tokens())) }))
                (fact("Who", &foreign(&row.principal)))
                (fact("Records", &html! { (thousands(timeline.totals.records)) }))
            }
            (counts(timeline))
            (budget_bars(&run.budgets))
            @for (kind, target) in for_people {
                p.waits {
                    @match &**kind {
                        "approval" => { b { (foreign(target)) } " waits for an approval. " }
                        "top-up" => { "A limit is used up: the run waits for an increase. " }
                        _ => { "The run waits for the answer to a question. " }
                    }
                    a href="/inbox" { "To the inbox" }
                }
            }
            @if let Some(reason) = &run.paused { p.waits { "Paused: " (foreign(reason)) } }
            @if changes > 0 {
                p.waits {
                    (plural(changes, "changed file waits", "changed files wait"))
                    " to be applied or dropped: "
                    a href={ (run_path(row.run.as_str())) "/changes" } { "Changes" }
                }
            }
            @if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                p.reason { (foreign(reason)) }
            }
        }
    }
}

pub(super) fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// The amounts of a run that are not zero. Those that one looks for lead to their events.
fn counts(timeline: &Timeline) -> Markup {
    let totals = &timeline.totals;
    let run = run_path(timeline.run.as_str());
    let counts = [
        (totals.steps, "step", "steps", None),
        (totals.model_calls, "model call", "model calls", None),
        (totals.tool_calls, "tool call", "tool calls", None),
        (totals.sandboxes, "sandbox", "sandboxes", None),
        (totals.side_effects, "side effect", "side effects", Some((Tone::Odd, "effect"))),
        (totals.approvals, "approval", "approvals", Some((Tone::Odd, "approval"))),
        (totals.denials, "refusal", "refusals", Some((Tone::Bad, "refusal"))),
        (totals.faults, "fault", "faults", Some((Tone::Bad, NOTABLE))),
        (totals.background, "background task", "background tasks", None),
        (totals.resumed, "resumption", "resumptions", None),
    ];
    html! {
        ul.counts {
            @for (count, one, many, link) in counts.into_iter().filter(|(count, ..)| *count > 0) {
                li {
                    @match link {
                        Some((tone, kind)) => {
                            a class=(tone_class(tone)) href=(address(&run, [("kind", Some(kind))])) {
                                (plural(count, one, many))
                            }
                        }
                        None => (plural(count, one, many)),
                    }
                }
            }
        }
    }
}

/// A task or a background task in the waterfall, with the events of its own.
struct TaskLane<'t> {
    row: &'t TimelineRow,
    address: &'t EventAddress,
    /// The depth among the tasks alone.
    depth: usize,
    events: Vec<(&'t TimelineRow, &'t EventAddress)>,
}

/// The tree of tasks and background tasks; each event belongs to the innermost one around it.
fn task_lanes<'t>(timeline: &'t Timeline, addresses: &'t [EventAddress]) -> Vec<TaskLane<'t>> {
    let mut lanes: Vec<TaskLane<'_>> = Vec::new();
    // The tasks around a row, with the depth of each among all rows.
    let mut around: Vec<(u32, usize)> = Vec::new();
    let (mut drawn, mut bars) = (BTreeSet::new(), 0);
    for (row, address) in timeline.rows.iter().zip(addresses) {
        while around.last().is_some_and(|(depth, _)| *depth >= row.depth) {
            around.pop();
        }
        if matches!(row.what, RowSubject::Task { .. } | RowSubject::Background { .. }) {
            around.push((row.depth, lanes.len()));
            lanes.push(TaskLane { row, address, depth: around.len() - 1, events: Vec::new() });
        } else if let Some((_, lane)) = around.last() {
            // Of events that would be drawn one over the other, the first is.
            let bar = span(row.start_ms, row.end_ms, timeline.took_ms);
            let is_new = drawn.insert((*lane, group(&row.what).class(), bar));
            if is_new && bars < BARS && *lane < TASKS {
                bars += 1;
                lanes[*lane].events.push((row, address));
            }
        }
    }
    lanes
}

/// The waterfall: each task over time, in the tree of tasks, with the bars of its events.
fn tasks(timeline: &Timeline, addresses: &[EventAddress]) -> Markup {
    let lanes = task_lanes(timeline, addresses);
    html! {
        @if !lanes.is_empty() {
            section.tasks {
                h2 { "Tasks over time" }
                ol { @for lane in lanes.iter().take(TASKS) { (task_lane(lane, timeline)) } }
                div.axis aria-hidden="true" {
                    span { "0" }
                    span { (took(timeline.took_ms / 2)) }
                    span { (took(timeline.took_ms)) }
                }
                @if lanes.len() > TASKS {
                    p.faint { "More tasks are among the events below." }
                }
            }
        }
    }
}

fn task_lane(
    TaskLane { row, address, depth, events }: &TaskLane<'_>,
    timeline: &Timeline,
) -> Markup {
    let line = words(row);
    let (x, wide) = span(row.start_ms, row.end_ms, timeline.took_ms);
    html! {
        li class={ "d" (depth.min(&8)) } {
            span.what {
                a class=(tone_class(line.tone)) href=(address.link(timeline.run.as_str())) {
                    (foreign(&line.name))
                }
                " " span.faint { (foreign(&line.text)) }
            }
            svg viewBox="0 0 1000 22" preserveAspectRatio="none" aria-hidden="true" {
                rect.track x=(x) y="3" width=(wide) height="16" {}
                @for (row, address) in events {
                    @let (x, wide) = span(row.start_ms, row.end_ms, timeline.took_ms);
                    @let (y, high) = group(&row.what).place();
                    rect class={ "k-" (group(&row.what).class()) } data-event=(address.id())
                        x=(x) y=(y) width=(wide) height=(high) {
                        title { (readable(&tooltip(row))) }
                    }
                }
            }
            span.num { (length(row, timeline.took_ms)) }
        }
    }
}

/// The duration of a row; with an ellipsis while it is not over.
fn length(row: &TimelineRow, took_ms: u64) -> String {
    match row.end_ms {
        None => format!("{}…", took(took_ms.saturating_sub(row.start_ms))),
        Some(end) => took(end.saturating_sub(row.start_ms)),
    }
}

fn events(view: &RunView, query: &EventQuery, addresses: &[EventAddress]) -> Markup {
    let timeline = &view.timeline;
    let run = timeline.run.as_str();
    let chosen = query.event.as_ref();
    let is_chosen = |address: &EventAddress| chosen.is_some_and(|event| address.is(event));
    let all = timeline.rows.iter().zip(addresses);
    let found: Vec<_> = all.filter(|(row, address)| query.has(row) || is_chosen(address)).collect();
    let chosen_place = found.iter().position(|(_, address)| is_chosen(address));
    let from = chosen_place.unwrap_or(query.from.min(found.len().saturating_sub(1)));
    // Pages begin at the same events, wherever one comes from.
    let from = from / EVENTS * EVENTS;
    let mut prompts = RowPrompts::of(&view.prompts);
    // In the order of all rows: several requests of one record are told apart by it.
    let prompt_of: Option<&ModelPrompt> =
        timeline.rows.iter().zip(addresses).find_map(|(row, at)| {
            let prompt = prompts.take(row);
            is_chosen(at).then_some(prompt).flatten()
        });
    let on_page = found.iter().skip(from).take(EVENTS);
    let next = (found.len() > from + EVENTS).then_some(from + EVENTS);
    html! {
        section.events data-count=(found.len()) data-size=(EVENTS)
            data-address=(query.address(run, None)) {
            header {
                h2 { "Events " span.faint { (thousands(found.len() as u64)) } }
                (kinds(timeline, query))
            }
            @if from > 0 {
                @let earlier = query.address(run, Some(from.saturating_sub(EVENTS)));
                p.more { a rel="prev" href=(earlier) { "Earlier events" } }
            }
            @if found.is_empty() { p.empty { "No event matches." } }
            @let last = found.len().min(from + EVENTS);
            ol.rows data-from=(from) aria-label={ "Events " (from + 1) " to " (last) } {
                @for (row, address) in on_page {
                    @let is_chosen = is_chosen(address);
                    @let prompt = is_chosen.then_some(prompt_of).flatten();
                    (event(row, address, run, timeline.took_ms, is_chosen, prompt))
                }
            }
            @if let Some(next) = next {
                p.more {
                    a rel="next" href=(query.address(run, Some(next))) { "More events" }
                }
            }
            p.faint.note {
                "Times are the run's own, from " (moment(timeline.started))
                " UTC; those in which no host ran are left out."
            }
        }
    }
}

/// Links that narrow the events to a kind, with the form that searches them.
fn kinds(timeline: &Timeline, query: &EventQuery) -> Markup {
    let run = timeline.run.as_str();
    let mut of_group: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &timeline.rows {
        *of_group.entry(group(&row.what).class()).or_default() += 1;
    }
    let notable = timeline.rows.iter().filter(|row| row.what.stands_out()).count() as u64;
    let groups = RowGroup::ALL.map(|group| (group.class(), group.name()));
    let kinds = [(NOTABLE, "what stands out")].into_iter().chain(groups);
    let kinds = kinds.filter_map(|(class, name)| {
        let count = if class == NOTABLE { notable } else { *of_group.get(class)? };
        Some((class, name, count)).filter(|(.., count)| *count > 0)
    });
    let link = |kind: Option<&str>| {
        address(&run_path(run), [("kind", kind), ("text", query.text.as_deref())])
    };
    let current = |kind: Option<&str>| (query.kind.as_deref() == kind).then_some("true");
    html! {
        form.filters role="search" action=(run_path(run)) {
            @if let Some(kind) = &query.kind { input type="hidden" name="kind" value=(kind); }
            input type="search" name="text" aria-label="Text of an event"
                placeholder="Search the events"
                value=(query.text.as_deref().unwrap_or_default());
            button type="submit" { "Search" }
        }
        ul.kinds aria-label="Kinds of events" {
            li { a href=(link(None)) aria-current=[current(None)] { "all" } }
            @for (class, name, count) in kinds {
                li {
                    a href=(link(Some(class))) aria-current=[current(Some(class))] {
                        svg.key viewBox="0 0 9 9" aria-hidden="true" {
                            rect class={ "k-" (class) } width="9" height="9" rx="2" {}
                        }
                        (name) " " span.faint { (thousands(count)) }
                    }
                }
            }
        }
    }
}
