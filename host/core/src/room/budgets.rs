//! The budgets of a run: what is set aside before a model is asked, and settled when it has
//! answered, so that what goes on at once can never overspend together. When one is used up the run
//! ends, or asks for more; that is in `top_ups`.

use serde::{Deserialize, Serialize};

use super::frame::FrameWait;
use super::histories::AgentHistory;
use super::models::ModelCall;
use super::{Purpose, Room};
use crate::permissions::grant::ModelGrant;
use crate::policy::budget::Budget;
use crate::protocol::notice::Notice;
use crate::setup::ModelSetup;
use crate::tool_calls::truncate::{BYTES_PER_TOKEN, MAX_OUTPUT, MIN_OUTPUT};
use crate::types::completion::{Completion, ModelError, Prompt, TokenUsage};
use crate::types::ids::{CallId, ModelName, PluginName, TaskName};
use crate::types::limits::RunLimits;
use crate::types::usage::Spent;

/// Tokens that prices are for.
const PER: u128 = 1_000_000;

/// What a model call may use up at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Aside {
    /// Of it, what the prompt is taken to have.
    pub(super) input: u64,
    /// Tokens in all.
    pub(super) tokens: u64,
    /// Micro-US-dollars; 0 when the price is not known.
    pub(super) cost: u64,
    /// What of it is held back of the run's budgets: nothing of one that has no limit.
    pub(super) of_run: Spent,
}

/// A budget has too little left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) budget: Budget,
    /// What was to be set aside.
    pub(super) needed: u64,
    /// The least that would do.
    pub(super) least: u64,
}

/// Why a model is not asked.
#[derive(Debug)]
pub(super) enum Unasked {
    /// The run has too little left.
    Short(Short),
    Error(ModelError),
}

impl From<ModelError> for Unasked {
    fn from(error: ModelError) -> Self {
        Self::Error(error)
    }
}

/// Whose amount it is.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Run(Budget),
    /// A key of the plugin's grant.
    Grant(&'static str),
}

/// How many tokens of an answer an amount leaves room for; none: not even for the prompt.
struct Leaves {
    whose: Whose,
    output: Option<u64>,
    needed: u64,
    least: u64,
}

impl Room {
    /// Used up and set aside together: what is left of the run's limits is what lies above it.
    pub(super) fn committed(&self) -> Spent {
        self.spent.plus(self.reserved)
    }

    /// What is left of a budget; none: it has no limit.
    pub(super) fn left(&self, budget: Budget) -> Option<u64> {
        let used = if budget == Budget::History {
            self.held_bytes()
        } else {
            budget.of(&self.committed())
        };
        Some(budget.limit(&self.opening.limits)?.saturating_sub(used))
    }

    /// Returns the bytes of messages, calls and results that the room holds. Both are counted as
    /// they come and go, so this is a sum over tasks and activations.
    pub(super) fn held_bytes(&self) -> u64 {
        let histories = self.memories.values().map(AgentHistory::weight);
        let rounds = self.frames.values().filter_map(|frame| match &frame.attempt.as_ref()?.wait {
            FrameWait::Tools(round) => Some(round.weight()),
            _ => None,
        });
        histories.chain(rounds).fold(0, u64::saturating_add)
    }

    pub(super) fn is_used_up(&self, budget: Budget) -> bool {
        self.left(budget) == Some(0)
    }

    /// Something is there to ask a model with at all.
    pub(super) fn check_model_budget(&mut self, plugin: &PluginName) -> Result<(), Unasked> {
        if let Some(budget) = [Budget::Tokens, Budget::Cost, Budget::ModelCalls]
            .into_iter()
            .find(|budget| self.is_used_up(*budget))
        {
            return Err(Unasked::Short(Short { budget, needed: 1, least: 1 }));
        }
        let used = self.used_by(plugin).model_calls;
        let over = |limit: Option<u64>, left: Option<u64>| limit.is_some() && left == Some(0);
        let (tokens, cost) = self.left_of_grant(plugin);
        let Some(grant) = self.model_grant(plugin) else { return Ok(()) };
        let granted = [
            ("calls", grant.calls.is_some_and(|limit| used >= limit)),
            ("tokens", over(grant.tokens, tokens)),
            ("cost_usd", over(grant.cost_micro_usd, cost)),
        ];
        match granted.iter().find(|(_, over)| *over) {
            Some((what, _)) => Err(Unasked::Error(grant_used_up(plugin, what))),
            None => Ok(()),
        }
    }

    fn model_grant(&self, plugin: &PluginName) -> Option<&ModelGrant> {
        self.setup.plugins.get(plugin)?.grants.model.as_ref()
    }

    /// Tokens and money that are left of a plugin's grant, without what is set aside for its calls
    /// under way.
    fn left_of_grant(&self, plugin: &PluginName) -> (Option<u64>, Option<u64>) {
        let Some(grant) = self
            .model_grant(plugin)
            .filter(|grant| grant.tokens.is_some() || grant.cost_micro_usd.is_some())
        else {
            return (None, None);
        };
        let used = self.used.get(plugin).copied().unwrap_or_default();
        let (mut tokens, mut cost) = (used.model_tokens, used.model_cost);
        for under_way in self.model_calls.iter().filter(|under_way| under_way.plugin == *plugin) {
            tokens = tokens.saturating_add(under_way.aside.tokens);
            cost = cost.saturating_add(under_way.aside.cost);
        }
        let left = |limit: Option<u64>, used| limit.map(|limit| limit.saturating_sub(used));
        (left(grant.tokens, tokens), left(grant.cost_micro_usd, cost))
    }

    /// Works out what a request may use up at most, and lets the answer be no longer than what is
    /// left allows.
    ///
    /// # Errors
    /// When that is too little for an answer.
    pub(super) fn aside_for(
        &self,
        plugin: &PluginName,
        task: Option<&TaskName>,
        model: &ModelName,
        prompt: &mut Prompt,
    ) -> Result<Aside, Unasked> {
        let Some(setup) = self.setup.models.get(model) else { return Ok(Aside::default()) };
        let input = self.prompt_tokens(task, prompt);
        // Where the reference's rules hold, it is looked at what was used, and nothing is set aside
        // (L-085).
        if self.is_langroid() {
            return Ok(Aside { input, ..Aside::default() });
        }
        let wanted = prompt.max_output().unwrap_or(MAX_OUTPUT);
        let least = setup.min_output.unwrap_or(MIN_OUTPUT).min(wanted);
        let leaves = self.leaves(plugin, setup, input, (least, wanted));
        let Some(tightest) = leaves.iter().min_by_key(|leaves| leaves.output) else {
            return Ok(Aside { input, ..Aside::default() });
        };
        let output = tightest.output.map(|output| output.min(wanted));
        let Some(output) = output.filter(|output| *output >= least) else {
            return Err(match tightest.whose {
                Whose::Run(budget) => {
                    Unasked::Short(Short { budget, needed: tightest.needed, least: tightest.least })
                }
                Whose::Grant(what) => Unasked::Error(grant_used_up(plugin, what)),
            });
        };
        prompt.limit_output(Some(output));
        let tokens = input.saturating_add(output);
        let cost = cost_of(setup, input, output).unwrap_or_default();
        let limits = &self.opening.limits;
        let of_run = Spent {
            tokens: limits.tokens.map_or(0, |_| tokens),
            cost_micro_usd: limits.cost_micro_usd.map_or(0, |_| cost),
            ..Spent::default()
        };
        Ok(Aside { input, tokens, cost, of_run })
    }

    /// Each limit on tokens and money, and how long an answer it leaves room for. Money holds
    /// nothing back where no price is known.
    fn leaves(
        &self,
        plugin: &PluginName,
        setup: &ModelSetup,
        input: u64,
        (least, wanted): (u64, u64),
    ) -> Vec<Leaves> {
        let (of_grant, money_of_grant) = self.left_of_grant(plugin);
        let tokens = |output: u64| input.saturating_add(output);
        let by_tokens = |whose, left: Option<u64>| {
            Some(Leaves {
                whose,
                output: left?.checked_sub(input),
                needed: tokens(wanted),
                least: tokens(least),
            })
        };
        let by_money = |whose, left: Option<u64>| {
            let (left, needed, least) =
                (left?, cost_of(setup, input, wanted)?, cost_of(setup, input, least)?);
            let rest = left.checked_sub(cost_of(setup, input, 0)?);
            Some(Leaves { whose, output: rest.map(|rest| affordable(setup, rest)), needed, least })
        };
        let all = [
            by_tokens(Whose::Run(Budget::Tokens), self.left(Budget::Tokens)),
            by_money(Whose::Run(Budget::Cost), self.left(Budget::Cost)),
            by_tokens(Whose::Grant("tokens"), of_grant),
            by_money(Whose::Grant("cost_usd"), money_of_grant),
        ];
        all.into_iter().flatten().collect()
    }

    fn is_langroid(&self) -> bool {
        self.setup.tasks.get(&self.opening.entry).is_some_and(|task| task.as_langroid)
    }

    /// What was set aside comes back, and what was used is counted.
    pub(super) fn settle_model_call(
        &mut self,
        plugin: &PluginName,
        aside: Aside,
        usage: TokenUsage,
    ) {
        self.reserved = self.reserved.minus(aside.of_run);
        self.count(
            plugin,
            usage.input_tokens.saturating_add(usage.output_tokens),
            usage.cost_micro_usd.unwrap_or_default(),
        );
    }

    /// A server that does not say what it used would have no budget at all: where there is a limit,
    /// what it left out is taken from the texts. What never leaves the process says what is so.
    pub(super) fn fill_in_usage(
        &self,
        model: &ModelName,
        aside: &Aside,
        completion: &mut Completion,
    ) {
        let is_server =
            self.setup.models.get(model).is_some_and(|setup| setup.reached_at.is_some());
        if !is_server || aside.tokens == 0 {
            return;
        }
        let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let calls: usize = completion
            .tool_calls
            .iter()
            .map(|call| call.name.len() + call.arguments.to_string().len())
            .sum();
        let said = (bytes(&completion.content) + bytes(&completion.reasoning) + calls) as u64;
        let usage = &mut completion.usage;
        if usage.input_tokens == 0 {
            usage.input_tokens = aside.input;
        }
        if usage.output_tokens == 0 {
            usage.output_tokens = said.div_ceil(u64::from(BYTES_PER_TOKEN.max(1)));
        }
    }

    fn count(&mut self, plugin: &PluginName, tokens: u64, cost: u64) {
        self.spent = self.spent.plus(Spent { tokens, cost_micro_usd: cost, ..Spent::default() });
        let used = self.used_by(plugin);
        used.model_tokens = used.model_tokens.saturating_add(tokens);
        used.model_cost = used.model_cost.saturating_add(cost);
    }

    /// The host stopped while models were asked. They are asked again where somebody waits for the
    /// answer, and what the lost attempts had sent is counted.
    pub(super) fn charge_lost_attempts(&mut self) {
        let (again, over): (Vec<ModelCall>, Vec<ModelCall>) =
            std::mem::take(&mut self.model_calls).into_iter().partition(ModelCall::is_awaited);
        again.iter().for_each(|lost| self.charge_lost(lost));
        over.iter().for_each(|lost| self.charge_given_up(lost));
        self.model_calls = again;
    }

    /// The run is over, and what is under way no longer is.
    pub(super) fn give_up_model_calls(&mut self) {
        std::mem::take(&mut self.model_calls)
            .iter()
            .for_each(|given_up| self.charge_given_up(given_up));
        self.held.clear();
    }

    /// No answer comes of a request any more: its reserve comes back, but for what it had sent.
    pub(super) fn charge_given_up(&mut self, given_up: &ModelCall) {
        self.reserved = self.reserved.minus(given_up.aside.of_run);
        self.charge_lost(given_up);
    }

    /// What an attempt had sent that has no answer: its server may charge for it.
    fn charge_lost(&mut self, lost: &ModelCall) {
        let (call, ordinal, input_tokens) = (lost.call, lost.ordinal, lost.aside.input);
        let setup = self.setup.models.get(&lost.model);
        let cost_micro_usd =
            setup.and_then(|setup| cost_of(setup, input_tokens, 0)).unwrap_or_default();
        self.count(&lost.plugin, input_tokens, cost_micro_usd);
        self.tell(Notice::AttemptLost {
            call,
            ordinal,
            model: lost.model.clone(),
            input_tokens,
            cost_micro_usd,
        });
    }

    /// Money is limited, and nobody knows what this model costs: said once.
    pub(super) fn note_price(&mut self, plugin: &PluginName, model: &ModelName) {
        let of_grant = self
            .model_grant(plugin)
            .and_then(|grant| grant.cost_micro_usd)
            .map(|_| format!("plugins.{plugin}.grants.model.cost_usd"));
        let of_run = self.opening.limits.cost_micro_usd.map(|_| Budget::Cost.key().to_owned());
        let Some(limit) = of_run.or(of_grant) else { return };
        if self.unpriced.insert(model.clone()) {
            self.tell(Notice::PriceUnknown { model: model.clone(), limit });
        }
    }

    /// What a child room may use: half of what is left, so that neither side can starve the other,
    /// or as much as its config says, so that many can work at once; what is not used comes back.
    pub(super) fn share_of(&self, task: &TaskName) -> RunLimits {
        let limits = &self.opening.limits;
        let own = self.setup.tasks.get(task).map(|task| task.budget.clone()).unwrap_or_default();
        let share = |budget: Budget, own: Option<u64>| match (self.left(budget), own) {
            (Some(left), Some(own)) => Some(left.min(own)),
            (left, own) => own.or_else(|| left.map(|left| left / 2)),
        };
        // The task itself is one of them.
        let rest = |left: u64| {
            own.tasks.map_or(left.saturating_sub(1) / 2, |own| own.min(left.saturating_sub(1)))
        };
        let at_once =
            limits.tasks_at_once.map(|limit| u64::from(limit).saturating_sub(self.tasks_at_once()));
        RunLimits {
            turns: share(Budget::Turns, own.turns),
            wall_ms: limits.wall_ms,
            tokens: share(Budget::Tokens, own.tokens),
            cost_micro_usd: share(Budget::Cost, own.cost_micro_usd),
            model_calls: share(Budget::ModelCalls, own.model_calls),
            tool_calls: share(Budget::ToolCalls, own.tool_calls),
            history: share(Budget::History, None),
            cpu_ms: share(Budget::Cpu, own.cpu_ms),
            tasks: limits
                .tasks
                .map(|limit| rest(limit.saturating_sub(self.committed().tasks)))
                .or(own.tasks),
            tasks_at_once: at_once
                .map(rest)
                .or(own.tasks)
                .map(|tasks| u32::try_from(tasks).unwrap_or(u32::MAX)),
            depth: limits.depth,
            task_turns: limits.task_turns,
            when_used_up: limits.when_used_up,
        }
    }

    /// Why there can be no further background task, if so.
    pub(super) fn tasks_are_used_up(&self) -> Option<String> {
        let limits = &self.opening.limits;
        if let Some(limit) = limits.tasks.filter(|limit| self.committed().tasks >= *limit) {
            return Some(format!("limits.run.tasks leaves {limit} here"));
        }
        let limit =
            limits.tasks_at_once.filter(|limit| self.tasks_at_once() >= u64::from(*limit))?;
        Some(format!("limits.run.tasks_at_once leaves {limit} here"))
    }

    /// Background tasks under way, with those that they may start themselves.
    fn tasks_at_once(&self) -> u64 {
        self.background
            .values()
            .map(super::background::BackgroundTask::at_once)
            .fold(0, u64::saturating_add)
    }

    /// More was used than there was: the run ends, or asks for more.
    pub(super) fn stop_if_spent(&mut self) {
        let used = |budget: Budget| {
            if budget == Budget::History { self.held_bytes() } else { budget.of(&self.spent) }
        };
        let is_over = |budget: &Budget| {
            budget.limit(&self.opening.limits).is_some_and(|limit| used(*budget) > limit)
        };
        let Some(budget) =
            [Budget::Tokens, Budget::Cost, Budget::Cpu, Budget::History].into_iter().find(is_over)
        else {
            return;
        };
        if self.asks_for_more() {
            let needed = used(budget);
            self.ask_for_more(Short { budget, needed, least: needed });
        } else {
            self.stop(budget.status(), budget.reason());
        }
    }

    /// What plugins computed.
    pub(super) fn count_cpu(&mut self, ticks: u64) {
        let cpu_ms = ticks.saturating_mul(crate::types::limits::TICK_MS);
        self.spent = self.spent.plus(Spent { cpu_ms, ..Spent::default() });
    }

    /// The call is a step or an answer of an agent.
    pub(super) fn is_agents(&self, call: CallId) -> bool {
        matches!(self.calls.get(&call), Some(Purpose::Step { .. } | Purpose::Respond { .. }))
    }
}

fn grant_used_up(plugin: &PluginName, what: &str) -> ModelError {
    ModelError::BudgetExhausted { what: format!("plugins.{plugin}.grants.model.{what}") }
}

/// Micro-US-dollars of so many tokens, rounded up; none when the price is not known.
fn cost_of(setup: &ModelSetup, input: u64, output: u64) -> Option<u64> {
    let of = |price: u64, tokens: u64| (u128::from(price) * u128::from(tokens)).div_ceil(PER);
    let cost = of(setup.input_price?, input) + of(setup.output_price?, output);
    Some(u64::try_from(cost).unwrap_or(u64::MAX))
}

/// Tokens of output that so much money buys.
fn affordable(setup: &ModelSetup, money: u64) -> u64 {
    let price = u128::from(setup.output_price.unwrap_or_default());
    (u128::from(money) * PER)
        .checked_div(price)
        .map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX))
}
