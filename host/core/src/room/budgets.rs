//! The budgets of a run. An amount is reserved before a model is asked and settled when it has
//! answered, so concurrent calls cannot overspend together. Requests for more budget are in
//! `limit_increase`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::limit_increase::HeldRequest;
use super::models::ModelCall;
use super::state::frame::Frame;
use super::state::frame_state::FrameWait;
use super::{
    Background, BackgroundWork, Frames, Histories, ModelCalls, PluginCalls, Purpose, RoomContext,
    RunControl,
};
use crate::permissions::grants::ModelGrant;
use crate::policy::budget::{Budget, BudgetShortfall};
use crate::protocol::notice::Notice;
use crate::setup::ModelSetup;
use crate::tool_calls::truncate::{BYTES_PER_TOKEN, MAX_OUTPUT, MIN_OUTPUT};
use crate::types::completion::{Completion, ModelError, Prompt, TokenUsage};
use crate::types::ids::{CallId, ModelName, PluginName, TaskName};
use crate::types::limits::RunLimits;
use crate::types::usage::{Spent, Used, UsedByPlugin};
use crate::types::view::Remaining;

/// Number of tokens that a price is for.
const PER: u128 = 1_000_000;

/// The reservation for a model call: the most that it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reservation {
    /// Tokens of the prompt, as estimated; part of `tokens`.
    pub(super) input: u64,
    /// Tokens of prompt and answer together.
    pub(super) tokens: u64,
    /// Cost in micro-US-dollars; 0 if the price is unknown.
    pub(super) cost: u64,
    /// The part reserved from the run's budgets; 0 for a budget without a limit.
    pub(super) of_run: Spent,
}

/// A budget with too little left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BudgetShortage {
    pub(super) budget: Budget,
    /// The amount to reserve.
    pub(super) needed: u64,
    /// The least amount that would do.
    pub(super) least: u64,
}

impl BudgetShortage {
    /// The shortage of a budget of which nothing is left.
    pub(super) fn of_used_up(budget: Budget) -> Self {
        Self { budget, needed: 1, least: 1 }
    }
}

/// The amounts that a room has used and reserved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Budgets {
    pub(super) used: UsedByPlugin,
    /// The host names that each plugin has resolved in this room.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) host_names: BTreeMap<PluginName, BTreeSet<String>>,
    /// Amounts used up, background tasks included.
    pub(super) spent: Spent,
    /// Amounts reserved for running background tasks and pending model calls.
    pub(super) reserved: Spent,
    /// The open request for more budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) top_up: Option<CallId>,
    /// Model requests that await more budget.
    #[serde(default, rename = "held", skip_serializing_if = "Vec::is_empty")]
    pub(super) held_requests: Vec<HeldRequest>,
    /// The shortage that kept a step from asking its model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) out_of_budget: BTreeMap<CallId, BudgetShortage>,
    /// The exhausted budget that ends the run; `None` between events.
    #[serde(skip)]
    pub(super) over: Option<Budget>,
}

/// The reason why a model is not asked.
#[derive(Debug)]
pub(super) enum ModelRefusal {
    /// The run's budget is too low.
    Short(BudgetShortage),
    Error(ModelError),
}

impl From<ModelError> for ModelRefusal {
    fn from(error: ModelError) -> Self {
        Self::Error(error)
    }
}

/// The owner of a limit.
#[derive(Clone, Copy, Debug)]
enum LimitOwner {
    Run(Budget),
    /// The grant of the plugin, by the key of its limit.
    Grant(&'static str),
}

/// The answer length that a limit allows, in tokens. `output` is `None` if not even the prompt
/// fits.
struct OutputLimit {
    owner: LimitOwner,
    output: Option<u64>,
    needed: u64,
    least: u64,
}

impl Budgets {
    pub(super) fn remaining(&self, cx: &RoomContext, frame: &Frame) -> Remaining {
        let (limits, committed) = (&cx.opening.limits, self.committed());
        let rest = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let of_run = rest(limits.turns, committed.turns);
        let of_task = frame
            .counters()
            .turn_limit
            .map(|limit| u64::from(limit.saturating_sub(frame.counters().steps)));
        let turns = [of_run, of_task].into_iter().flatten().min();
        Remaining {
            turns: turns.map(|turns| u32::try_from(turns).unwrap_or(u32::MAX)),
            tokens: rest(limits.tokens, committed.tokens),
            cost_micro_usd: rest(limits.cost_micro_usd, committed.cost_micro_usd),
            wall_ms: cx.opening.deadline.map(|deadline| deadline.since(cx.now)),
            model_calls: rest(limits.model_calls, committed.model_calls),
            tool_calls: rest(limits.tool_calls, committed.tool_calls),
        }
    }

    pub(super) fn used_by(&mut self, plugin: &PluginName) -> &mut Used {
        // Avoids a clone of the name in the common case.
        if !self.used.contains_key(plugin) {
            self.used.insert(plugin.clone(), Used::default());
        }
        self.used.get_mut(plugin).expect("it was put in above")
    }

    /// Returns used and reserved amounts together. The rest of each limit is available.
    pub(super) fn committed(&self) -> Spent {
        self.spent.plus(self.reserved)
    }

    /// The rest of a budget; `None` if it has no limit.
    pub(super) fn rest_of(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        histories: &Histories,
        budget: Budget,
    ) -> Option<u64> {
        // A history can become shorter, so its bytes are measured, and not counted like the others.
        let used = if budget == Budget::History {
            histories.held_bytes(frames)
        } else {
            budget.of(&self.committed())
        };
        Some(budget.limit(&cx.opening.limits)?.saturating_sub(used))
    }

    /// The amounts of a budget with too little left.
    pub(super) fn shortfall(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        histories: &Histories,
        short: BudgetShortage,
    ) -> BudgetShortfall {
        let BudgetShortage { budget, least, .. } = short;
        let limit = budget.limit(&cx.opening.limits).unwrap_or_default();
        let (used, set_aside) = match budget {
            // Neither time nor history is reserved.
            Budget::Wall => (cx.now.since(cx.opened), 0),
            Budget::History => (histories.held_bytes(frames), 0),
            budget => (budget.of(&self.spent), budget.of(&self.reserved)),
        };
        let needed = self
            .rest_of(cx, frames, histories, budget)
            .filter(|rest| *rest > 0 && *rest < least && used <= limit)
            .map(|_| least);
        BudgetShortfall { budget, limit, used, set_aside, needed }
    }

    pub(super) fn is_used_up(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        histories: &Histories,
        budget: Budget,
    ) -> bool {
        self.rest_of(cx, frames, histories, budget) == Some(0)
    }

    /// The first budget of which more was used than its limit, and the amount used. These are the
    /// budgets whose use is known only afterwards.
    fn overspent(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        histories: &Histories,
    ) -> Option<(Budget, u64)> {
        [Budget::Tokens, Budget::Cost, Budget::Cpu, Budget::History].into_iter().find_map(
            |budget| {
                let used = match budget {
                    Budget::History => histories.held_bytes(frames),
                    budget => budget.of(&self.spent),
                };
                (used > budget.limit(&cx.opening.limits)?).then_some((budget, used))
            },
        )
    }

    /// The tokens and the money left of a plugin's grant, less the reservations of its pending
    /// calls.
    fn rest_of_grant(
        &self,
        cx: &RoomContext,
        models: &ModelCalls,
        plugin: &PluginName,
    ) -> (Option<u64>, Option<u64>) {
        let Some(grant) = model_grant(cx, plugin)
            .filter(|grant| grant.tokens.is_some() || grant.cost_micro_usd.is_some())
        else {
            return (None, None);
        };
        let used = self.used.get(plugin).copied().unwrap_or_default();
        let (mut tokens, mut cost) = (used.model_tokens, used.model_cost);
        for under_way in models.model_calls.iter().filter(|under_way| under_way.plugin == *plugin) {
            tokens = tokens.saturating_add(under_way.reservation.tokens);
            cost = cost.saturating_add(under_way.reservation.cost);
        }
        let rest = |limit: Option<u64>, used| limit.map(|limit| limit.saturating_sub(used));
        (rest(grant.tokens, tokens), rest(grant.cost_micro_usd, cost))
    }

    /// Releases the reservation of a model call, and counts the actual use.
    pub(super) fn settle_model_call(
        &mut self,
        plugin: &PluginName,
        reservation: Reservation,
        usage: TokenUsage,
    ) {
        self.reserved = self.reserved.minus(reservation.of_run);
        self.count(
            plugin,
            usage.input_tokens.saturating_add(usage.output_tokens),
            usage.cost_micro_usd.unwrap_or_default(),
        );
    }

    fn count(&mut self, plugin: &PluginName, tokens: u64, cost: u64) {
        self.spent = self.spent.plus(Spent { tokens, cost_micro_usd: cost, ..Spent::default() });
        let used = self.used_by(plugin);
        used.model_tokens = used.model_tokens.saturating_add(tokens);
        used.model_cost = used.model_cost.saturating_add(cost);
    }

    /// Charges the attempts that were lost when the host stopped. Calls that are still awaited are
    /// asked again; the others are given up.
    pub(super) fn charge_lost_attempts(&mut self, cx: &mut RoomContext, models: &mut ModelCalls) {
        let (mut awaited, abandoned): (Vec<ModelCall>, Vec<ModelCall>) =
            std::mem::take(&mut models.model_calls).into_iter().partition(ModelCall::is_awaited);
        for model_call in &mut awaited {
            self.charge_lost(cx, model_call);
            // It is sent again, and the next attempt may be lost.
            model_call.was_unavailable = false;
        }
        abandoned.iter().for_each(|model_call| self.charge_given_up(cx, model_call));
        models.model_calls = awaited;
    }

    /// Gives up all pending model calls at the end of a run.
    pub(super) fn give_up_model_calls(&mut self, cx: &mut RoomContext, models: &mut ModelCalls) {
        std::mem::take(&mut models.model_calls)
            .iter()
            .for_each(|given_up| self.charge_given_up(cx, given_up));
        self.held_requests.clear();
    }

    /// Releases the reservation of a request that gets no answer, except for the prompt that it
    /// sent.
    pub(super) fn charge_given_up(&mut self, cx: &mut RoomContext, given_up: &ModelCall) {
        self.reserved = self.reserved.minus(given_up.reservation.of_run);
        self.charge_lost(cx, given_up);
    }

    /// Charges the prompt of an attempt without an answer, because its server may charge for it;
    /// nothing if the model was not available.
    fn charge_lost(&mut self, cx: &mut RoomContext, model_call: &ModelCall) {
        if model_call.was_unavailable {
            return;
        }
        let (call, ordinal, input_tokens) =
            (model_call.call, model_call.ordinal, model_call.reservation.input);
        let setup = cx.setup.models.get(&model_call.model);
        let cost_micro_usd =
            setup.and_then(|setup| cost_of(setup, input_tokens, 0)).unwrap_or_default();
        self.count(&model_call.plugin, input_tokens, cost_micro_usd);
        cx.notify(Notice::AttemptLost {
            call,
            ordinal,
            model: model_call.model.clone(),
            input_tokens,
            cost_micro_usd,
            reason: None,
        });
    }

    /// Counts the CPU time of plugins.
    pub(super) fn count_cpu(&mut self, ticks: u64) {
        let cpu_ms = ticks.saturating_mul(crate::types::limits::TICK_MS);
        self.spent = self.spent.plus(Spent { cpu_ms, ..Spent::default() });
    }
}

impl Histories {
    /// The bytes of messages, calls and results that the room holds. Both parts keep running
    /// totals, so this only sums over tasks and activations.
    pub(super) fn held_bytes(&self, frames: &Frames) -> u64 {
        let histories = self.memories.values().map(|memory| memory.weight());
        let rounds = frames.values().filter_map(|frame| match frame.wait()? {
            FrameWait::Tools(round) => Some(round.counted()),
            _ => None,
        });
        histories.chain(rounds).fold(0, u64::saturating_add)
    }
}

impl PluginCalls<'_> {
    /// Checks that a model may be asked at all.
    pub(super) fn check_model_budget(&mut self, plugin: &PluginName) -> Result<(), ModelRefusal> {
        if let Some(budget) = [Budget::Tokens, Budget::Cost, Budget::ModelCalls]
            .into_iter()
            .find(|budget| self.budgets.is_used_up(self.cx, self.frames, self.histories, *budget))
        {
            return Err(ModelRefusal::Short(BudgetShortage::of_used_up(budget)));
        }
        let used = self.budgets.used_by(plugin).model_calls;
        let over = |limit: Option<u64>, rest: Option<u64>| limit.is_some() && rest == Some(0);
        let (tokens, cost) = self.budgets.rest_of_grant(self.cx, self.models, plugin);
        let Some(grant) = model_grant(self.cx, plugin) else { return Ok(()) };
        let granted = [
            ("calls", grant.calls.is_some_and(|limit| used >= limit)),
            ("tokens", over(grant.tokens, tokens)),
            ("cost_usd", over(grant.cost_micro_usd, cost)),
        ];
        match granted.iter().find(|(_, over)| *over) {
            Some((what, _)) => Err(ModelRefusal::Error(grant_used_up(plugin, what))),
            None => Ok(()),
        }
    }

    /// Returns the reservation for a request, and limits the length of the answer to what the
    /// budgets allow.
    ///
    /// # Errors
    /// If the rest is too small for an answer.
    pub(super) fn reservation_for(
        &self,
        plugin: &PluginName,
        task: Option<&TaskName>,
        model: &ModelName,
        prompt: &mut Prompt,
    ) -> Result<Reservation, ModelRefusal> {
        let Some(setup) = self.cx.setup.models.get(model) else {
            return Ok(Reservation::default());
        };
        let input = self.histories.prompt_tokens(self.cx, task, prompt);
        // L-085: without reservations only past use counts.
        if !reserves_budgets(self.cx) {
            return Ok(Reservation { input, ..Reservation::default() });
        }
        let most = prompt.max_output().unwrap_or(MAX_OUTPUT);
        let least = setup.min_output.unwrap_or(MIN_OUTPUT).min(most);
        let output_limits = self.output_limits(plugin, setup, input, (least, most));
        // The smallest of all is `None`: not even the prompt fits.
        let Some(tightest) = output_limits.iter().min_by_key(|limit| limit.output) else {
            // Without any limit there is nothing to reserve.
            return Ok(Reservation { input, ..Reservation::default() });
        };
        let output = tightest.output.map(|output| output.min(most));
        let Some(output) = output.filter(|output| *output >= least) else {
            return Err(match tightest.owner {
                LimitOwner::Run(budget) => ModelRefusal::Short(BudgetShortage {
                    budget,
                    needed: tightest.needed,
                    least: tightest.least,
                }),
                LimitOwner::Grant(what) => ModelRefusal::Error(grant_used_up(plugin, what)),
            });
        };
        // The reservation only holds if the model cannot write more.
        prompt.limit_output(Some(output));
        let tokens = input.saturating_add(output);
        let cost = cost_of(setup, input, output).unwrap_or_default();
        let limits = &self.cx.opening.limits;
        let of_run = Spent {
            tokens: limits.tokens.map_or(0, |_| tokens),
            cost_micro_usd: limits.cost_micro_usd.map_or(0, |_| cost),
            ..Spent::default()
        };
        Ok(Reservation { input, tokens, cost, of_run })
    }

    /// Each limit on tokens and money with the answer length that it allows. Money limits nothing
    /// if the price is unknown.
    fn output_limits(
        &self,
        plugin: &PluginName,
        setup: &ModelSetup,
        input: u64,
        (least, most): (u64, u64),
    ) -> Vec<OutputLimit> {
        let (of_grant, money_of_grant) = self.budgets.rest_of_grant(self.cx, self.models, plugin);
        let tokens = |output: u64| input.saturating_add(output);
        let by_tokens = |owner, rest: Option<u64>| {
            Some(OutputLimit {
                owner,
                output: rest?.checked_sub(input),
                needed: tokens(most),
                least: tokens(least),
            })
        };
        let by_money = |owner, money: Option<u64>| {
            let (money, needed, least) =
                (money?, cost_of(setup, input, most)?, cost_of(setup, input, least)?);
            // The prompt is paid first; the rest buys the answer.
            let rest = money.checked_sub(cost_of(setup, input, 0)?);
            Some(OutputLimit {
                owner,
                output: rest.map(|rest| affordable(setup, rest)),
                needed,
                least,
            })
        };
        let all = [
            by_tokens(
                LimitOwner::Run(Budget::Tokens),
                self.budgets.rest_of(self.cx, self.frames, self.histories, Budget::Tokens),
            ),
            by_money(
                LimitOwner::Run(Budget::Cost),
                self.budgets.rest_of(self.cx, self.frames, self.histories, Budget::Cost),
            ),
            by_tokens(LimitOwner::Grant("tokens"), of_grant),
            by_money(LimitOwner::Grant("cost_usd"), money_of_grant),
        ];
        all.into_iter().flatten().collect()
    }
}

fn model_grant<'r>(cx: &'r RoomContext, plugin: &PluginName) -> Option<&'r ModelGrant> {
    cx.setup.plugins.get(plugin)?.grants.model.as_ref()
}

fn reserves_budgets(cx: &RoomContext) -> bool {
    let entry = cx.setup.tasks.get(&cx.opening.entry);
    entry.is_none_or(|task| task.rules().reserves_budgets)
}

/// Fills in usage that a server left out, estimated from the texts, if there is a limit.
pub(super) fn fill_in_usage(
    cx: &RoomContext,
    model: &ModelName,
    reservation: &Reservation,
    completion: &mut Completion,
) {
    let is_server = cx.setup.models.get(model).is_some_and(|setup| setup.reached_at.is_some());
    // Models inside the process report their usage exactly.
    if !is_server || reservation.tokens == 0 {
        return;
    }
    let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let calls: usize = completion
        .tool_calls
        .iter()
        .map(|call| call.name.len() + call.arguments.to_string().len())
        .sum();
    let output_bytes = (bytes(&completion.content) + bytes(&completion.reasoning) + calls) as u64;
    let usage = &mut completion.usage;
    // Otherwise a server that reports no usage would have no budget.
    if usage.input_tokens == 0 {
        usage.input_tokens = reservation.input;
    }
    if usage.output_tokens == 0 {
        usage.output_tokens = output_bytes.div_ceil(u64::from(BYTES_PER_TOKEN.max(1)));
    }
}

/// Whether the call is a step or an answer of an agent.
pub(super) fn is_agent_call(cx: &RoomContext, call: CallId) -> bool {
    matches!(cx.calls.get(&call), Some(Purpose::Step { .. } | Purpose::Respond { .. }))
}

impl ModelCalls {
    /// Reports once that money is limited but the price of this model is unknown.
    pub(super) fn report_unknown_price(
        &mut self,
        cx: &mut RoomContext,
        plugin: &PluginName,
        model: &ModelName,
    ) {
        let of_grant = model_grant(cx, plugin)
            .and_then(|grant| grant.cost_micro_usd)
            .map(|_| format!("plugins.{plugin}.grants.model.cost_usd"));
        let of_run = cx.opening.limits.cost_micro_usd.map(|_| Budget::Cost.key().to_owned());
        let Some(limit) = of_run.or(of_grant) else { return };
        if self.unpriced.insert(model.clone()) {
            cx.notify(Notice::PriceUnknown { model: model.clone(), limit });
        }
    }
}

impl BackgroundWork<'_> {
    /// The limits of a child room: the amounts that its config sets, or else half of the
    /// rest. Halves keep either side from starving the other. Set amounts let many tasks run at
    /// once, and so does a limit of tasks at once: a task that starts none itself gets an equal part
    /// for each task that may still start, and for its parent. Unused amounts come back.
    pub(super) fn share_of(&self, task: &TaskName) -> RunLimits {
        let limits = &self.cx.opening.limits;
        let own = self.cx.setup.tasks.get(task).map(|task| task.budget.clone()).unwrap_or_default();
        let starts_none = self.cx.setup.tasks.get(task).is_some_and(|task| task.starts_no_tasks);
        let at_once = limits
            .tasks_at_once
            .map(|limit| u64::from(limit).saturating_sub(self.background.tasks.at_once()));
        let parts = at_once.filter(|_| starts_none).map_or(2, |free| free.max(1) + 1);
        let share = |budget: Budget, own: Option<u64>| match (
            self.budgets.rest_of(self.cx, self.frames, self.histories, budget),
            own,
        ) {
            (Some(rest), Some(own)) => Some(rest.min(own)),
            (rest, own) => own.or_else(|| rest.map(|rest| rest / parts)),
        };
        // The task itself counts as one of them.
        let task_share = |free: u64| match own.tasks {
            Some(own) => own.min(free.saturating_sub(1)),
            None if starts_none => 0,
            None => free.saturating_sub(1) / 2,
        };
        RunLimits {
            turns: share(Budget::Turns, own.turns),
            // Time passes in both rooms alike, so it is not divided.
            wall_ms: limits.wall_ms,
            tokens: share(Budget::Tokens, own.tokens),
            cost_micro_usd: share(Budget::Cost, own.cost_micro_usd),
            model_calls: share(Budget::ModelCalls, own.model_calls),
            tool_calls: share(Budget::ToolCalls, own.tool_calls),
            history: share(Budget::History, None),
            cpu_ms: share(Budget::Cpu, own.cpu_ms),
            tasks: limits
                .tasks
                .map(|limit| task_share(limit.saturating_sub(self.budgets.committed().tasks)))
                .or(own.tasks),
            tasks_at_once: at_once
                .map(task_share)
                .or(own.tasks)
                .map(|tasks| u32::try_from(tasks).unwrap_or(u32::MAX)),
            depth: limits.depth,
            task_turns: limits.task_turns,
            when_used_up: limits.when_used_up,
        }
    }
}

impl Background {
    /// The reason why no further background task may start, if any.
    pub(super) fn tasks_are_used_up(&self, cx: &RoomContext, budgets: &Budgets) -> Option<String> {
        let limits = &cx.opening.limits;
        let is_child = cx.opening.depth > 0;
        // A running task is part of the reserved ones until it has ended.
        let running = self.tasks.values().count() as u64;
        let committed = budgets.committed().tasks;
        if let Some(limit) = limits.tasks.filter(|limit| committed >= *limit) {
            let started = budgets.spent.tasks;
            return Some(used_up("tasks", limit, is_child, (started, "started"), committed));
        }
        let (limit, committed) = (limits.tasks_at_once.map(u64::from)?, self.tasks.at_once());
        (committed >= limit)
            .then(|| used_up("tasks_at_once", limit, is_child, (running, "under way"), committed))
    }
}

/// A sentence about a limit of tasks: how much is in use, and what the rest is reserved for.
fn used_up(
    key: &str,
    limit: u64,
    is_child: bool,
    (used, verb): (u64, &str),
    committed: u64,
) -> String {
    let whose = if is_child { "this task's part of " } else { "" };
    let reserved = match committed.saturating_sub(used) {
        0 => String::new(),
        reserved => format!(
            ", and {reserved} more are reserved for tasks that these may start; `tasks.NAME.budget = {{ tasks = 0 }}` reserves none"
        ),
    };
    let are = if used == 1 { "is" } else { "are" };
    format!("{whose}limits.run.{key} is {limit}: {used} {are} {verb}{reserved}")
}

impl RunControl<'_> {
    /// Ends the run if more was used than its budgets allow, or asks for more.
    pub(super) fn stop_if_spent(&mut self) {
        let Some((budget, needed)) = self.budgets.overspent(self.cx, self.frames, self.histories)
        else {
            return;
        };
        let short = BudgetShortage { budget, needed, least: needed };
        if self.cx.asks_for_more() {
            self.plugin_calls().ask_for_more(short);
        } else {
            self.stop_for_lack(short);
        }
    }

    /// Ends the run for lack of a budget, with the amounts.
    pub(super) fn stop_for_lack(&mut self, short: BudgetShortage) {
        let shortfall = self.budgets.shortfall(self.cx, self.frames, self.histories, short);
        self.stop(short.budget.status(), &shortfall.reason());
    }
}

fn grant_used_up(plugin: &PluginName, what: &str) -> ModelError {
    ModelError::BudgetExhausted { what: format!("plugins.{plugin}.grants.model.{what}") }
}

/// The cost of so many tokens in micro-US-dollars, rounded up; `None` if the price is unknown.
fn cost_of(setup: &ModelSetup, input: u64, output: u64) -> Option<u64> {
    // A product of two u64 needs u128.
    let of = |price: u64, tokens: u64| (u128::from(price) * u128::from(tokens)).div_ceil(PER);
    let cost = of(setup.input_price?, input) + of(setup.output_price?, output);
    Some(u64::try_from(cost).unwrap_or(u64::MAX))
}

/// The number of output tokens that an amount of money buys.
fn affordable(setup: &ModelSetup, money: u64) -> u64 {
    let price = u128::from(setup.output_price.unwrap_or_default());
    // Output without a price is not limited by money.
    (u128::from(money) * PER)
        .checked_div(price)
        .map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX))
}
