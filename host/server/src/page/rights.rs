//! `/rights`: what each plugin can reach and which plugin can call which, as a drawing and in words,
//! with what was granted and not used; and the answer to a question about one access.

mod graph;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Html;
use conclave_core::inspect::amounts::plural;
use conclave_core::inspect::explain::{Explanation, LayerVerdict};
use conclave_core::inspect::grant_use::{GrantEntry, UseState};
use conclave_core::inspect::rights_map::{CallRight, PluginNode, ReachKind, RightsMap};
use conclave_core::inspect::telling::Tone;
use conclave_core::permissions::grants::verb;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{Millis, PluginName};
use maud::{Markup, html};

use super::text::{age, badge, foreign, tone_class};
use super::{PageFailure, Place, now, page};
use crate::api::rights::{CanQuery, GrantUses};
use crate::cached::Computed;
use crate::http::{Failure, Server};
use crate::sessions::Session;

pub(super) async fn show(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Result<Html<String>, PageFailure> {
    let map = server.rights_map(&session)?;
    let uses = server.grant_uses(&session).await?;
    let mut fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let answer = if fields.any(|(name, _)| name != "config") {
        // A question that cannot be answered is told beside its form.
        Some(CanQuery::of(&uri).and_then(|query| server.can(&session, query)))
    } else {
        None
    };
    let query = CanQuery::of(&uri).unwrap_or_default();
    let body = html! {
        h1 { "Rights" }
        (view(&map, uses.as_deref(), now()))
        (question((&map, session.config()), &query, answer))
    };
    Ok(page("Rights", Place::Rights, &session, &body))
}

pub(super) fn view(map: &RightsMap, uses: Option<&Computed<GrantUses>>, now: Millis) -> Markup {
    let place = |name: &PluginName| map.plugins.iter().position(|it| it.plugin == *name);
    let entries = uses.map_or(&[][..], |uses| &uses.value.entries);
    html! {
        p.lead {
            "Data can leave to: " (foreign(&map.data_can_leave)) ". "
            span.faint { "Only the operator grants, in the config; nothing here changes it." }
        }
        (graph::drawing(map))
        section.unused {
            h2 { "Granted and not used" }
            @match uses {
                Some(uses) => { (unused(uses, now)) }
                None => p.empty { "The newest runs are being read. Come back in a moment." }
            }
        }
        h2 { "Plugins" }
        ol.parts.plugins {
            @for (index, node) in map.plugins.iter().enumerate() {
                li id={ "p" (index) } { (plugin(node, map, entries, &place)) }
            }
        }
    }
}

/// What was granted and not used, of all plugins.
fn unused(Computed { value, at, .. }: &Computed<GrantUses>, now: Millis) -> Markup {
    let unused: Vec<&GrantEntry> =
        value.entries.iter().filter(|entry| entry.state == UseState::Unused).collect();
    html! {
            p.faint {
                "In the newest " (plural(value.runs, "run", "runs"))
                @if let Some(since) = value.since { ", the oldest of them begun " (age(since, now)) }
                "; searched " (age(*at, now)) ". "
                @if value.unread > 0 {
                    (plural(value.unread, "run", "runs")) " could not be read. "
                }
                "Journals do not hold each read, so what is only read is not listed."
            }
            @if value.runs == 0 { p.empty { "No run is stored yet." } }
            @else if unused.is_empty() { p { "Each recorded grant was used." } }
            @else {
                table.wide {
                    thead {
                        tr {
                            th scope="col" { "Plugin" }
                            th scope="col" { "Capability" }
                            th scope="col" { "Grant" }
                        }
                    }
                    tbody {
                        @for entry in unused {
                            tr {
                                td { (foreign(entry.plugin.as_str())) }
                                td { code { (entry.capability) } }
                                td {
                                    @if entry.entry.is_empty() { "all of it" }
                                    @else { (foreign(&entry.entry)) }
                                }
                            }
                        }
                    }
                }
            }
    }
}

fn plugin(
    node: &PluginNode,
    map: &RightsMap,
    entries: &[GrantEntry],
    place: &dyn Fn(&PluginName) -> Option<usize>,
) -> Markup {
    let kinds: Vec<&str> = node.kinds.iter().map(|kind| kind.as_str()).collect();
    let tasks: Vec<&str> = node.tasks.iter().map(|task| task.as_str()).collect();
    let calls = |is_here: &dyn Fn(&CallRight) -> bool| -> Vec<&CallRight> {
        map.calls.iter().filter(|call| is_here(call)).collect()
    };
    let (to, from) =
        (calls(&|call| call.from == node.plugin), calls(&|call| call.to == node.plugin));
    let unused = entries
        .iter()
        .filter(|entry| entry.plugin == node.plugin && entry.state == UseState::Unused)
        .count() as u64;
    let link = |name: &PluginName| {
        html! {
            @match place(name) {
                Some(index) => a href={ "#p" (index) } { (foreign(name.as_str())) },
                None => (foreign(name.as_str())),
            }
        }
    };
    html! {
        h3 { (foreign(node.plugin.as_str())) " " span.faint { (kinds.join(", ")) } }
        dl.details {
            @if !tasks.is_empty() { dt { "Agent of" } dd { (foreign(&tasks.join(", "))) } }
            dt { "May" }
            dd {
                @if node.rights.is_empty() { "only compute" }
                @else {
                    ul {
                        @for rights in &node.rights {
                            @for may in &rights.may { li { (foreign(may)) } }
                        }
                    }
                }
            }
            @for kind in ReachKind::ALL {
                @let reached: Vec<_> = node.reaches.iter().filter(|it| it.kind == kind).collect();
                @if !reached.is_empty() {
                    dt { (graph::kind_name(kind)) }
                    dd {
                        ul {
                            @for reach in reached {
                                li { (foreign(&reach.name)) " " span.faint { (foreign(&reach.how)) } }
                            }
                        }
                    }
                }
            }
            @if !to.is_empty() {
                dt { "Can call" }
                dd { ul { @for call in to { li { (link(&call.to)) ": " (call_line(call)) } } } }
            }
            @if !from.is_empty() {
                dt { "Called by" }
                dd { ul { @for call in from { li { (link(&call.from)) ": " (call_line(call)) } } } }
            }
            @if unused > 0 {
                dt { "Not used" }
                dd { (plural(unused, "grant", "grants")) ", listed above" }
            }
        }
    }
}

fn call_line(call: &CallRight) -> Markup {
    html! {
        (call.by.verb()) " " (foreign(&call.name))
        @if call.asks { " " span.t-odd { "after an approval" } }
    }
}

/// The form of a question about one access, with the answer.
fn question(
    (map, config): (&RightsMap, Option<&str>),
    query: &CanQuery,
    answer: Option<Result<Explanation, Failure>>,
) -> Markup {
    let capabilities = Capability::ALL.into_iter().filter(|capability| !capability.is_own());
    html! {
        section id="can" {
            h2 { "May it?" }
            form.filters action="/rights#can" {
                @if let Some(config) = config { input type="hidden" name="config" value=(config); }
                select name="plugin" aria-label="Plugin" {
                    @for node in &map.plugins {
                        option value=(node.plugin) selected[query.plugin == node.plugin.as_str()] {
                            (node.plugin)
                        }
                    }
                }
                select name="capability" aria-label="Capability" {
                    @for capability in capabilities {
                        option value=(capability.as_str())
                            selected[query.capability == capability.as_str()] {
                            (verb(capability, false))
                        }
                    }
                }
                input type="search" name="target" aria-label="Target"
                    placeholder="A path, an address, a tool, a model, a task"
                    value=(query.target.as_deref().unwrap_or_default());
                label.check {
                    input type="checkbox" name="write" value="true" checked[query.write];
                    " writing a file"
                }
                button type="submit" { "Ask" }
            }
            @match answer {
                None => {}
                Some(Ok(explanation)) => { (explained(&explanation, query.write)) }
                Some(Err(failure)) => {
                    @let (_, body) = failure.into_parts();
                    p.problem role="alert" { (foreign(body["message"].as_str().unwrap_or_default())) }
                }
            }
        }
    }
}

fn explained(explanation: &Explanation, writes: bool) -> Markup {
    let (tone, may) = match explanation.verdict {
        LayerVerdict::Yes => (Tone::Good, "may"),
        LayerVerdict::Ask => (Tone::Odd, "may, after an approval,"),
        LayerVerdict::No | LayerVerdict::NotReached => (Tone::Bad, "may not"),
    };
    let capability = Capability::from_name(&explanation.capability);
    let verb = capability.map(|capability| verb(capability, writes)).unwrap_or_default();
    let verb = match explanation.target.is_empty() {
        true => verb.trim_end_matches(" under"),
        false => verb,
    };
    html! {
        p.outcome role="status" {
            (foreign(explanation.plugin.as_str())) " " b class=(tone_class(tone)) { (may) } " "
            (verb) " " (foreign(&explanation.target))
        }
        (layers(explanation))
    }
}

/// The answer of each layer, in order, and the smallest grant that would allow a refused access.
pub(super) fn layers(explanation: &Explanation) -> Markup {
    html! {
        ol.layers {
            @for answer in &explanation.layers {
                @let (tone, word) = match answer.verdict {
                    LayerVerdict::Yes => (Tone::Good, "yes"),
                    LayerVerdict::Ask => (Tone::Odd, "asks"),
                    LayerVerdict::No => (Tone::Bad, "no"),
                    LayerVerdict::NotReached => (Tone::Faint, "–"),
                };
                li {
                    (badge(tone, word)) b { (answer.layer.as_str()) }
                    span {
                        (foreign(&answer.text))
                        @if let Some(key) = &answer.key { " " code.faint { (foreign(key)) } }
                    }
                }
            }
        }
        @if let Some(line) = &explanation.suggestion {
            p.faint { "The smallest grant that would allow it, for the operator's config: " code { (foreign(line)) } }
        }
        @if let Some(why) = &explanation.no_suggestion { p.faint { (foreign(why)) } }
    }
}
