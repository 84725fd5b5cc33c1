//! `/budgets`: what the runs that have not ended spend of what they may, together and each. The
//! page of a run has the same, with the tasks that spent it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Html;
use conclave_core::inspect::amounts::{bytes, moment, money, thousands, took};
use conclave_core::inspect::timeline::{RowSubject, Timeline};
use conclave_core::policy::budget::{Budget, BudgetUse, describe};
use conclave_core::types::usage::Spent;
use maud::{Markup, html};

use super::parts::{RunPart, part};
use super::run::fact;
use super::text::{badge, foreign, run_path};
use super::{PageFailure, Place, page};
use crate::api::budgets::{RoomSpent, RunBudget};
use crate::daily_spending::PersonsDay;
use crate::http::Server;
use crate::sessions::Session;

/// Rows of a table of what was spent.
const ROWS: usize = 200;

pub(super) async fn list(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Result<Html<String>, PageFailure> {
    let (budgets, has_more) = server.open_budgets(&session).await?;
    let day = server.persons_day(&session.identity.principal).await?;
    Ok(page("Budgets", Place::Budgets, &session, &view(day.as_ref(), &budgets, has_more)))
}

pub(super) async fn of_run(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Result<Html<String>, PageFailure> {
    let budget = server.run_budget(&session, &run).await?;
    let folded = server.folded(&budget.row.run).await?;
    Ok(part(RunPart::Budget, &budget.row, &session, &run_view(&budget, &folded.timeline)))
}

pub(super) fn view(day: Option<&PersonsDay>, budgets: &[Arc<RunBudget>], has_more: bool) -> Markup {
    let all = budgets.iter().fold(Spent::default(), |all, budget| all.plus(budget.spent()));
    html! {
        h1 { "Budgets" }
        div data-live {
            @if let Some(day) = day { (today(day)) }
            @if budgets.is_empty() {
                p.empty { "No run is under way. The page of a run has what it has spent." }
            } @else {
                p.faint {
                    (budgets.len()) " runs that have not ended, together"
                    @if has_more { "; the newest of each state" }
                    ":"
                }
                (amounts(&all))
                ol.parts {
                    @for budget in budgets { li id={ "b-" (budget.row.run) } { (of_list(budget)) } }
                }
            }
        }
    }
}

/// What the reader's own runs spend today.
fn today(day: &PersonsDay) -> Markup {
    html! {
        section.today aria-label="Your runs today" {
            h2 { "Your runs today" }
            (budget_bars(&day.budget.uses(&day.spent)))
            @match day.check() {
                Ok(()) => { p.faint { "The day ends at " (moment(day.day.until)) " UTC." } }
                Err(refusal) => { p { (refusal) "." } }
            }
        }
    }
}

/// What was spent, as numbers. An amount that is zero is none, or of a model without a price.
fn amounts(spent: &Spent) -> Markup {
    let amount = |name: &str, amount: u64, show: fn(u64) -> String| {
        let text = html! { @if amount > 0 { (show(amount)) } @else { span.faint { "–" } } };
        fact(name, &text)
    };
    html! {
        dl.facts {
            (amount("Cost", spent.cost_micro_usd, money))
            (amount("Tokens", spent.tokens, thousands))
            (amount("Steps", spent.turns, thousands))
            (amount("Model calls", spent.model_calls, thousands))
            (amount("Tool calls", spent.tool_calls, thousands))
            (amount("Computed", spent.cpu_ms, took))
            (amount("In background", spent.tasks, thousands))
        }
    }
}

fn of_list(budget: &RunBudget) -> Markup {
    let (tone, word) = budget.row.state.in_words(&budget.row.command);
    let run = budget.row.run.as_str();
    html! {
        h2 {
            a href={ (run_path(run)) "/budget" } { (foreign(&budget.row.entry)) } " "
            (badge(tone, &word)) " " code.faint { (run) }
        }
        @match uses(budget) {
            Some(uses) if !uses.is_empty() => { (budget_bars(&uses)) }
            Some(_) => { p.faint { "It has no limit." } }
            None => { p.faint { "Its limits cannot be read." } }
        }
        (rooms(budget))
    }
}

fn uses(budget: &RunBudget) -> Option<Vec<BudgetUse>> {
    Some(Budget::uses(budget.limits.as_ref()?, &budget.spent()))
}

/// A bar for each limit, with its numbers.
pub(super) fn budget_bars(uses: &[BudgetUse]) -> Markup {
    html! {
        @if !uses.is_empty() {
            ul.budgets aria-label="Budget" {
                @for BudgetUse { budget, used, limit } in uses {
                    @let (name, show) = amount_of(*budget);
                    li {
                        span { (name) }
                        meter min="0" max=(limit) value=(used.min(limit)) aria-label=(name)
                            high=(limit - limit / 5) optimum="0" {}
                        span.num { (show(*used)) " of " (show(*limit)) }
                    }
                }
            }
        }
    }
}

/// The name of a budget beside its bar, and how its amounts are written there: without the unit that
/// the name says.
fn amount_of(budget: Budget) -> (&'static str, fn(u64) -> String) {
    match budget {
        Budget::Turns => ("steps", thousands),
        Budget::Tokens => ("tokens", thousands),
        Budget::ModelCalls => ("model calls", thousands),
        Budget::ToolCalls => ("tool calls", thousands),
        Budget::Cost => ("cost", money),
        Budget::Cpu => ("computed", took),
        Budget::Wall => ("time", took),
        Budget::History => ("history", bytes),
    }
}

/// The rooms of a run that has background tasks, with what each spent itself.
fn rooms(budget: &RunBudget) -> Markup {
    let root = budget.row.run.as_str();
    let total = budget.spent();
    html! {
        @if budget.rooms.len() > 1 {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Room" }
                        th.bars scope="col" { "Share" }
                        th.num scope="col" { "Steps" }
                        th.num scope="col" { "Tokens" }
                        th.num scope="col" { "Cost" }
                    }
                }
                tbody {
                    @for RoomSpent { room, own } in budget.rooms.iter().take(ROWS) {
                        @let name = room.room.as_str();
                        @let place = name.strip_prefix(root).unwrap_or(name);
                        tr {
                            td {
                                (foreign(&room.entry)) " " code.faint { (place.trim_start_matches('/')) }
                            }
                            td.bars { (share(weight(own), weight(&total))) }
                            td.num { (thousands(own.turns)) }
                            td.num { (thousands(own.tokens)) }
                            td.num { (money(own.cost_micro_usd)) }
                        }
                    }
                }
            }
            @if budget.rooms.len() > ROWS { p.faint { "Further rooms are not shown." } }
        }
    }
}

/// The amount by which parts are compared: cost, or tokens or steps where there is none.
fn weight(spent: &Spent) -> [u64; 3] {
    [spent.cost_micro_usd, spent.tokens, spent.turns]
}

/// A bar for the share of a total, by the first amount that the whole has.
fn share(part: [u64; 3], total: [u64; 3]) -> Markup {
    let known = part.into_iter().zip(total).find(|(_, total)| *total > 0);
    let wide = known.map_or(0, |(part, total)| part.saturating_mul(1_000) / total);
    html! {
        svg.bar viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true" {
            rect.track y="5" width="1000" height="2" {}
            rect.k-model width=(wide.min(1_000)) height="12" {}
        }
        span.faint { (wide.min(1_000) / 10) " %" }
    }
}

pub(super) fn run_view(budget: &RunBudget, timeline: &Timeline) -> Markup {
    html! {
        div data-live {
            (amounts(&budget.spent()))
            @if let Some(uses) = uses(budget) { (budget_bars(&uses)) }
            @if let Some(limits) = &budget.limits {
                h2 { "Limits in force" }
                ul.counts { @for line in describe(limits) { li { (line) } } }
            }
            @if budget.rooms.len() > 1 { h2 { "Background tasks" } (rooms(budget)) }
            (by_task(timeline))
        }
    }
}

/// What the models of a task cost.
#[derive(Default)]
struct TaskSpent {
    calls: u64,
    input: u64,
    output: u64,
    cost: u64,
    unpriced: u64,
}

/// The tasks that asked models, those that spent most first.
fn by_task(timeline: &Timeline) -> Markup {
    let mut spent: BTreeMap<[&str; 3], TaskSpent> = BTreeMap::new();
    for row in &timeline.rows {
        let RowSubject::Model { task, plugin, model, usage, .. } = &row.what else { continue };
        let task = task.as_ref().map_or("", |task| task.as_str());
        let of = spent.entry([task, plugin.as_str(), model.as_str()]).or_default();
        of.calls += 1;
        of.input = of.input.saturating_add(usage.input_tokens);
        of.output = of.output.saturating_add(usage.output_tokens);
        of.cost = of.cost.saturating_add(usage.cost_micro_usd.unwrap_or_default());
        of.unpriced += u64::from(usage.cost_micro_usd.is_none());
    }
    let weight = |it: &TaskSpent| [it.cost, it.input.saturating_add(it.output), it.calls];
    let total = spent.values().map(weight).fold([0; 3], |mut all: [u64; 3], part| {
        all.iter_mut().zip(part).for_each(|(all, part)| *all = all.saturating_add(part));
        all
    });
    let mut rows: Vec<_> = spent.into_iter().collect();
    rows.sort_by_key(|(_, it)| std::cmp::Reverse(weight(it)));
    html! {
        h2 { "Models, by task" }
        @if rows.is_empty() { p.empty { "The run has asked no model." } }
        @else {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Task" }
                        th scope="col" { "Plugin" }
                        th scope="col" { "Model" }
                        th.bars scope="col" { "Share" }
                        th.num scope="col" { "Calls" }
                        th.num scope="col" { "Tokens in" }
                        th.num scope="col" { "Tokens out" }
                        th.num scope="col" { "Cost" }
                    }
                }
                tbody {
                    @for ([task, plugin, model], it) in rows.iter().take(ROWS) {
                        tr {
                            td { (foreign(task)) }
                            td { (foreign(plugin)) }
                            td { (foreign(model)) }
                            td.bars { (share(weight(it), total)) }
                            td.num { (thousands(it.calls)) }
                            td.num { (thousands(it.input)) }
                            td.num { (thousands(it.output)) }
                            td.num {
                                @if it.unpriced > 0 { "not known" } @else { (money(it.cost)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
