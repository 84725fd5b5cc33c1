//! `/audit`: whether the store is what was written, by each chain of its audit.

use axum::Extension;
use axum::extract::State;
use axum::response::Html;
use conclave_core::inspect::amounts::{moment, plural, thousands};
use conclave_core::inspect::telling::Tone;
use conclave_core::types::ids::Millis;
use conclave_runtime::store::StoreCheck;
use maud::{Markup, html};

use super::text::{age, badge, foreign};
use super::{PageFailure, Place, now, page};
use crate::cached::Computed;
use crate::http::Server;
use crate::sessions::Session;

pub(super) async fn show(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Result<Html<String>, PageFailure> {
    let verified = server.verified(&session).await?;
    Ok(page("Audit", Place::Audit, &session, &view(verified.as_deref(), now())))
}

pub(super) fn view(verified: Option<&Computed<StoreCheck>>, now: Millis) -> Markup {
    html! {
        h1 { "Audit" }
        div data-live {
            @match verified {
                None => p.empty { "The store is being verified. This page has the result in a moment." },
                Some(Computed { value, at, .. }) => { (check(value, *at, now)) }
            }
        }
        p.faint.note {
            "Each line of a chain has the hash of the line before, and of its record. A hash that was "
            "noted elsewhere proves more: " code { "conclave audit verify --head HASH" }
            " says whether it is still part of a chain. The audit of a run is on the run's page."
        }
    }
}

fn check(check: &StoreCheck, at: Millis, now: Millis) -> Markup {
    let is_intact = check.problems.is_empty();
    html! {
        p.outcome {
            @if is_intact { (badge(Tone::Good, "intact")) } @else { (badge(Tone::Bad, "changed")) }
            " " (plural(check.records, "record", "records")) " in "
            (plural(check.rooms, "room", "rooms")) ", verified " (age(at, now))
        }
        @if !is_intact {
            ul.problems {
                @for problem in &check.problems { li.problem { (foreign(problem)) } }
            }
        }
        @if check.chains.is_empty() { p.empty { "The audit has no line yet." } }
        @else {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Chain" }
                        th scope="col" { "State" }
                        th.num scope="col" { "Lines" }
                        th scope="col" { "Newest hash" }
                    }
                }
                tbody {
                    @for chain in &check.chains {
                        tr {
                            td { (chain.chain) }
                            td {
                                @match chain.broken_at {
                                    None => (badge(Tone::Good, "intact")),
                                    Some(line) => {
                                        (badge(Tone::Bad, "broken")) " at line " (thousands(line))
                                    }
                                }
                            }
                            td.num { (thousands(chain.lines)) }
                            td { code { (chain.head) } }
                        }
                    }
                }
            }
        }
        @if !check.removed_runs.is_empty() {
            details {
                summary {
                    (plural(check.removed_runs.len() as u64, "run", "runs"))
                    " removed by retention: their lines stay, their records are gone"
                }
                ul { @for run in &check.removed_runs { li { code { (run.run) } " " (moment(run.at)) } } }
            }
        }
    }
}
