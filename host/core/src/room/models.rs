//! Model calls of running plugins: which plugin may ask which model, and how much may be spent.
//! Nothing is sent before the budget allows it, and no answer reaches a plugin before it is
//! counted. `prompts` builds the prompt.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::budgets::{BudgetShortage, ModelRefusal, Reservation, fill_in_usage, is_agent_call};
use super::fallback::{self, Fallback};
use super::limit_increase::HeldRequest;
use super::prompts::{IncompleteAnswer, incomplete, is_text};
use super::{Frames, PluginCalls, Purpose, Room, RoomContext, RunControl};
use crate::protocol::effect::Effect;
use crate::protocol::event::Event;
use crate::protocol::notice::Notice;
use crate::tool_calls::truncate::DoesNotFit;
use crate::types::completion::{
    Completion, ModelDiagnostic, ModelDiagnosticKind, ModelError, ModelRequest, TokenUsage,
};
use crate::types::denial::DenialRecord;
use crate::types::fault::Fault;
use crate::types::ids::{CallId, ChannelId, ModelName, PluginName, TaskName};
use crate::types::usage::Spent;

/// A model that was not available for the only step under way.
#[derive(Clone, Copy, Debug)]
pub struct MissingModel<'e> {
    /// The index of the event with the failure.
    pub position: usize,
    pub model: &'e ModelName,
    /// The server concerned and a remedy; never contains a key.
    pub reason: &'e str,
    request: (CallId, u32),
}

impl MissingModel<'_> {
    /// The record of the failure, in place of an answer that would end the run.
    #[must_use]
    pub fn event(&self) -> Event {
        let (call, ordinal) = self.request;
        Event::ModelUnavailable { call, ordinal, reason: self.reason.to_owned() }
    }
}

/// A pending model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelCall {
    pub(super) call: CallId,
    pub(super) ordinal: u32,
    pub(super) plugin: PluginName,
    pub(super) model: ModelName,
    /// The task whose agent's calls are parsed from the answer's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reads_for: Option<TaskName>,
    /// True while the plugin waits for the answer.
    is_awaited: bool,
    /// Reserved until the answer.
    #[serde(rename = "aside", default)]
    pub(super) reservation: Reservation,
    /// The models that are asked if this one fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fallback: Option<Box<Fallback>>,
    /// Whether its model was not available, so that nothing is charged for the attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) was_unavailable: bool,
}

/// The pending model calls of a room's plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelCalls {
    pub(super) model_calls: Vec<ModelCall>,
    /// Pending steps whose model did not answer.
    #[serde(default)]
    pub(super) without_model: BTreeSet<CallId>,
    /// Pending steps whose model refused the last prompt because it does not fit.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) does_not_fit: BTreeSet<CallId>,
    /// Pending steps whose model's last answer is not whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) incomplete: BTreeMap<CallId, IncompleteAnswer>,
    /// Models whose unknown price was already reported.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unpriced: BTreeSet<ModelName>,
}

impl ModelCall {
    /// Returns a call that its plugin waits for.
    pub(super) fn new(
        call: CallId,
        ordinal: u32,
        plugin: PluginName,
        model: ModelName,
        reservation: Reservation,
    ) -> Self {
        Self {
            call,
            ordinal,
            plugin,
            model,
            reads_for: None,
            is_awaited: true,
            reservation,
            fallback: None,
            was_unavailable: false,
        }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }
}

impl RunControl<'_> {
    pub(super) fn model_asked(&mut self, call: CallId, ordinal: u32, request: ModelRequest) {
        self.ask_model(call, ordinal, request, None);
    }

    /// Asks the first of the models; `None` for those that the request means.
    fn ask_model(
        &mut self,
        call: CallId,
        ordinal: u32,
        request: ModelRequest,
        models: Option<Vec<ModelName>>,
    ) {
        if caller_of(self.frames, self.cx, call).is_none() {
            // The call was abandoned, and its plugin is being stopped.
            return;
        }
        if self.budgets.is_waiting_for_more() {
            self.budgets.held_requests.push(HeldRequest { call, ordinal, request });
            return;
        }
        // `admit_model_call` consumes the request, but it must be held if the budget is short.
        let request_to_hold = self.cx.asks_for_more().then(|| request.clone());
        match self.admit_model_call(call, ordinal, request, models) {
            Ok(Some(effect)) => self.cx.effects.push_back(effect),
            // It is answered already.
            Ok(None) => {}
            Err(ModelRefusal::Short(short)) => {
                self.hold_or_refuse(call, ordinal, short, request_to_hold)
            }
            Err(ModelRefusal::Error(error)) => {
                self.cx.effects.push_back(Effect::AnswerModel { call, ordinal, answer: Err(error) })
            }
        }
    }

    /// Holds a request that the budget cannot cover until more is granted. If no operator can grant
    /// more, the plugin gets an error.
    fn hold_or_refuse(
        &mut self,
        call: CallId,
        ordinal: u32,
        short: BudgetShortage,
        request_to_hold: Option<ModelRequest>,
    ) {
        if let Some(request) = request_to_hold {
            self.plugin_calls().ask_for_more(short);
            self.budgets.held_requests.push(HeldRequest { call, ordinal, request });
            return;
        }
        // The fault of this step then ends the run with the budget as its reason.
        if is_agent_call(self.cx, call) {
            self.budgets.out_of_budget.insert(call, short);
        }
        let answer = Err(ModelError::BudgetExhausted { what: short.budget.key().to_owned() });
        self.cx.effects.push_back(Effect::AnswerModel { call, ordinal, answer });
    }

    fn admit_model_call(
        &mut self,
        call: CallId,
        ordinal: u32,
        request: ModelRequest,
        models: Option<Vec<ModelName>>,
    ) -> Result<Option<Effect>, ModelRefusal> {
        let Some((plugin, task)) = caller_of(self.frames, self.cx, call) else { return Ok(None) };
        let models = match models {
            Some(models) => models,
            None => granted_models(self.cx, &plugin, task.as_ref(), request.model.as_deref())?,
        };
        let Some(model) = models.first().cloned() else { return Ok(None) };
        let fallback = Fallback::after_first(&models, &request);
        self.plugin_calls().check_model_budget(&plugin)?;
        let mut prompt = self.dialogue().prompt(call, task.as_ref(), request)?;
        let fits = self.dialogue().fit_prompt(call, task.as_ref(), &model, &mut prompt);
        let reservation = match &fits {
            Ok(()) => {
                self.plugin_calls().reservation_for(&plugin, task.as_ref(), &model, &mut prompt)?
            }
            Err(_) => Reservation::default(),
        };
        // Reserved before the call is sent, so that concurrent calls cannot spend it too.
        self.budgets.reserved = self.budgets.reserved.plus(reservation.of_run);
        let reads = |name: &TaskName| {
            self.cx.setup.tasks.get(name).is_some_and(|task| task.text_rules.calls)
                || is_text(prompt.tool_format)
        };
        let reads_for = task.clone().filter(reads);
        let stream = prompt.stream;
        let under_way = ModelCall {
            reads_for,
            fallback,
            ..ModelCall::new(call, ordinal, plugin.clone(), model.clone(), reservation)
        };
        self.models.model_calls.push(under_way);
        self.cx.notify(Notice::ModelCalled {
            call,
            ordinal,
            task: task.clone(),
            plugin: plugin.clone(),
            model: model.clone(),
            stream,
        });
        // The call is recorded first and then answered here, so observers see a call and its
        // failure.
        if let Err(excess) = fits {
            let context = self.cx.setup.models.get(&model).and_then(|setup| setup.context);
            let trouble = too_long(task.as_ref(), &model, excess, context);
            self.model_answered(
                call,
                ordinal,
                Err(ModelError::ContextTooLong { tokens: excess.most }),
                Some(trouble),
                false,
            );
            return Ok(None);
        }
        self.budgets.used_by(&plugin).model_calls += 1;
        self.budgets.spent = self.budgets.spent.plus(Spent { model_calls: 1, ..Spent::default() });
        Ok(Some(Effect::CallModel { call, ordinal, model, prompt }))
    }

    pub(super) fn model_answered(
        &mut self,
        call: CallId,
        ordinal: u32,
        answer: Result<Completion, ModelError>,
        trouble: Option<ModelDiagnostic>,
        was_shown: bool,
    ) {
        let Some(index) = self
            .models
            .model_calls
            .iter()
            .position(|under_way| under_way.call == call && under_way.ordinal == ordinal)
        else {
            return;
        };
        let under_way = self.models.model_calls.swap_remove(index);
        if !under_way.is_awaited && answer.is_err() {
            // It was given up, and its actual use is unknown.
            self.budgets.charge_given_up(self.cx, &under_way);
            return self.stop_if_spent();
        }
        let ModelCall { plugin, model, reads_for, is_awaited, reservation, fallback, .. } =
            under_way;
        let answer = answer.map(|mut completion| {
            fill_in_usage(self.cx, &model, &reservation, &mut completion);
            completion.usage.cost_micro_usd = price(self.cx, &model, completion.usage);
            completion
        });
        let usage = answer.as_ref().map(|completion| completion.usage).unwrap_or_default();
        self.budgets.settle_model_call(&plugin, reservation, usage);
        if answer.is_ok() && usage.cost_micro_usd.is_none() {
            self.models.report_unknown_price(self.cx, &plugin, &model);
        }
        let error = answer.as_ref().err().map(error_text);
        let reported_model = answer.as_ref().ok().map(|completion| completion.model.clone());
        let stop = answer.as_ref().ok().map(|completion| completion.stop);
        let is_empty = answer.as_ref().is_ok_and(|answer| {
            answer.tool_calls.is_empty() && answer.content.iter().all(|text| text.trim().is_empty())
        });
        // People cannot unread a text, so another model must not begin it anew.
        let is_helped = answer.as_ref().is_err_and(fallback::helps_against) && !was_shown;
        let fallback = fallback.filter(|_| is_helped);
        self.cx.notify(Notice::ModelAnswered {
            call,
            ordinal,
            usage,
            model: reported_model,
            stop,
            is_empty,
            error,
            trouble,
            fallback: fallback.as_ref().and_then(|next| next.models.first().cloned()),
        });
        if let Some(next) = fallback {
            return self.ask_model(call, ordinal, next.request, Some(next.models));
        }
        // The last answer counts: an agent that got an answer in the end did not fail for lack of a
        // model.
        let is_step = is_agent_call(self.cx, call);
        if answer.is_ok() {
            self.models.without_model.remove(&call);
            self.budgets.out_of_budget.remove(&call);
        } else if is_awaited && is_step {
            self.models.without_model.insert(call);
        }
        if is_awaited && is_step && matches!(answer, Err(ModelError::ContextTooLong { .. })) {
            self.models.does_not_fit.insert(call);
        } else {
            self.models.does_not_fit.remove(&call);
        }
        let incomplete =
            answer.as_ref().ok().filter(|_| is_awaited && is_step).and_then(incomplete);
        match incomplete {
            Some(why) => self.models.incomplete.insert(call, why),
            None => self.models.incomplete.remove(&call),
        };
        if is_awaited {
            let answer = answer.map(|mut completion| {
                reads_for
                    .iter()
                    .for_each(|task| self.histories.find_calls(self.cx, task, &mut completion));
                completion
            });
            self.cx.effects.push_back(Effect::AnswerModel { call, ordinal, answer });
        }
        // The actual use may exceed the reservation.
        self.stop_if_spent();
    }
}

impl ModelCalls {
    /// Notes that a request got no answer, and is repeated when the run is resumed.
    pub(super) fn model_unavailable(
        &mut self,
        cx: &mut RoomContext,
        (call, ordinal): (CallId, u32),
        reason: String,
    ) {
        let mut calls = self.model_calls.iter_mut();
        let Some(pending) =
            calls.find(|pending| (pending.call, pending.ordinal) == (call, ordinal))
        else {
            return;
        };
        pending.was_unavailable = true;
        let model = pending.model.clone();
        let (input_tokens, cost_micro_usd, reason) = (0, 0, Some(reason));
        cx.notify(Notice::AttemptLost {
            call,
            ordinal,
            model,
            input_tokens,
            cost_micro_usd,
            reason,
        });
    }
}

/// The plugin behind a call, and the task that its prompt may draw on. Steps, answers of
/// agents, and queries on behalf of a frame have a task; others do not.
pub(super) fn caller_of(
    frames: &Frames,
    cx: &RoomContext,
    call: CallId,
) -> Option<(PluginName, Option<TaskName>)> {
    match cx.calls.get(&call)? {
        Purpose::Step { frame } | Purpose::Respond { frame } => {
            let (frame, task) = frames.task_of(cx, *frame)?;
            Some((task.agent.clone(), Some(frame.task.clone())))
        }
        Purpose::Tool { plugin, .. }
        | Purpose::Job { plugin, .. }
        | Purpose::Gate { plugin, .. }
        | Purpose::Observer { plugin }
        | Purpose::Strategy { strategy: plugin } => Some((plugin.clone(), None)),
        Purpose::QueryPlugin { frame, plugin, .. } => {
            let (frame, _) = frames.task_of(cx, *frame)?;
            Some((plugin.clone(), Some(frame.task.clone())))
        }
        Purpose::Approval { .. }
        | Purpose::HeldTool { .. }
        | Purpose::TopUp { .. }
        | Purpose::User { .. }
        | Purpose::Background { .. } => None,
        Purpose::Post { channel, .. } => Some((plugin_of(cx, channel)?, None)),
        Purpose::Send { gated } => Some((plugin_of(cx, &gated.outgoing.channel)?, None)),
    }
}

/// The plugin that delivers the messages of a channel; `None` if none does.
fn plugin_of(cx: &RoomContext, channel: &ChannelId) -> Option<PluginName> {
    cx.setup.channels.get(channel)?.plugin.clone()
}

/// The task that the agent behind a call works on; `None` for tools and strategies.
fn works_on(frames: &Frames, cx: &RoomContext, call: CallId) -> Option<TaskName> {
    let (plugin, task) = caller_of(frames, cx, call)?;
    // A task narrows the grants of its own agent only.
    task.filter(|task| cx.setup.tasks.get(task).is_some_and(|setup| setup.agent == plugin))
}

impl Room {
    /// The task that the agent behind a call works on; `None` for tools and strategies.
    #[must_use]
    pub fn works_on(&self, call: CallId) -> Option<TaskName> {
        works_on(&self.frames, &self.cx, call)
    }

    /// The first exchanged plugin that fails in these events before it has answered a call well,
    /// and its fault.
    #[must_use]
    pub fn failed_exchange<'e>(&self, events: &'e [Event]) -> Option<(PluginName, &'e Fault)> {
        if self.cx.unproven.is_empty() {
            return None;
        }
        let mut proven = BTreeSet::new();
        for (call, fault) in events.iter().filter_map(Event::plugin_end) {
            let Some((plugin, _)) = caller_of(&self.frames, &self.cx, call) else { continue };
            match fault {
                None => {
                    proven.insert(plugin);
                }
                Some(fault) if self.cx.unproven.contains(&plugin) && !proven.contains(&plugin) => {
                    return Some((plugin, fault));
                }
                Some(_) => {}
            }
        }
        None
    }

    /// The first event that would end the run for lack of a model: one that is not available does
    /// not answer a step, and nothing else is under way. A run that is left before that event asks
    /// again when it is resumed.
    ///
    /// `None` in background tasks and in rooms that stay open, whose callers and users read of it,
    /// and in the first turn before any answer: such a run has nothing to resume.
    #[must_use]
    pub fn lacks_model<'e>(&'e self, events: &'e [Event]) -> Option<MissingModel<'e>> {
        let opening = &self.cx.opening;
        let [pending] = &self.models.model_calls[..] else { return None };
        // A turn counts when it begins, so the first one is under way at 1.
        let has_results = self.budgets.spent.turns > 1 || self.budgets.spent.tokens > 0;
        let is_of_use = has_results && opening.depth == 0 && !opening.persistent;
        if !is_of_use || !pending.is_awaited {
            return None;
        }
        let is_alone = self.cx.calls.keys().count() == 1 && is_agent_call(&self.cx, pending.call);
        let (_, task) = caller_of(&self.frames, &self.cx, pending.call).filter(|_| is_alone)?;
        // An interactive task shows the failure to its user.
        if self.cx.setup.tasks.get(&task?)?.interactive {
            return None;
        }
        let failure = |(position, event): (usize, &'e Event)| match event.effective() {
            Event::ModelAnswered {
                call,
                ordinal,
                answer: Err(ModelError::Unavailable { .. }),
                trouble,
                was_shown,
            } if (*call, *ordinal) == (pending.call, pending.ordinal)
                && (pending.fallback.is_none() || *was_shown) =>
            {
                Some((position, trouble.as_ref()))
            }
            _ => None,
        };
        let (position, trouble) = events.iter().enumerate().find_map(failure)?;
        let reason = trouble.map_or("it is not available now", |trouble| &trouble.text);
        let request = (pending.call, pending.ordinal);
        Some(MissingModel { position, model: &pending.model, reason, request })
    }
}

/// Returns the models that a request means, in the order in which they are asked: the one that
/// it names, else those of the agent's task, else the default of the grant.
///
/// # Errors
/// The denial of the first one that is not granted: a fallback is no way around a grant.
fn granted_models(
    cx: &mut RoomContext,
    plugin: &PluginName,
    task: Option<&TaskName>,
    name: Option<&str>,
) -> Result<Vec<ModelName>, ModelError> {
    let of_task = task
        .filter(|_| name.is_none())
        .and_then(|task| cx.setup.tasks.get(task))
        .filter(|task| task.agent == *plugin)
        .map(|task| task.models.clone())
        .unwrap_or_default();
    if of_task.is_empty() {
        return Ok(vec![granted_model(cx, plugin, task, name)?]);
    }
    of_task.iter().map(|model| granted_model(cx, plugin, task, Some(model.as_str()))).collect()
}

fn granted_model(
    cx: &mut RoomContext,
    plugin: &PluginName,
    task: Option<&TaskName>,
    name: Option<&str>,
) -> Result<ModelName, ModelError> {
    let setup = Arc::clone(&cx.setup);
    let rights = task.map_or_else(|| setup.rights(plugin), |task| setup.rights_in(plugin, task));
    let Some(rights) = rights else {
        return Err(ModelError::UnknownModel { name: String::new() });
    };
    match rights.may_use_model(name) {
        Ok(model) if setup.models.contains_key(model) => Ok(model.clone()),
        Ok(model) => Err(ModelError::UnknownModel { name: model.to_string() }),
        Err(record) => Err(deny_model(cx, plugin, *record)),
    }
}

fn deny_model(cx: &mut RoomContext, plugin: &PluginName, record: DenialRecord) -> ModelError {
    let denial = record.denial.clone();
    cx.denied(plugin, record);
    ModelError::Denied { denial }
}

/// The provider's own figure, or else the cost by the operator's prices; `None` if unknown
/// (L-184).
fn price(cx: &RoomContext, model: &ModelName, usage: TokenUsage) -> Option<u64> {
    let prices = cx.setup.models.get(model)?;
    let of = |price: Option<u64>, tokens: u64| {
        price.map(|price| price.saturating_mul(tokens) / 1_000_000)
    };
    // A provider may report more cached tokens than input tokens.
    let cached = usage.cached_input_tokens.min(usage.input_tokens);
    let of_cached = of(prices.cached_input_price.or(prices.input_price), cached);
    let of_input = of(prices.input_price, usage.input_tokens - cached)
        .zip(of_cached)
        .map(|(new, cached)| new.saturating_add(cached));
    let computed = of_input.zip(of(prices.output_price, usage.output_tokens));
    usage.cost_micro_usd.or_else(|| computed.map(|(input, output)| input.saturating_add(output)))
}

impl PluginCalls<'_> {
    /// Drops the requests of a call that is over.
    pub(super) fn forget_requests(&mut self, call: CallId, purpose: Option<&Purpose>) {
        self.forget_model_calls(call);
        if let Some(Purpose::Tool { frame, .. }) = purpose {
            self.abandon_nested(*frame, call);
        }
    }

    /// Marks a plugin's model calls as no longer awaited. The provider charges for them all the
    /// same, so their answers are still counted.
    pub(super) fn forget_model_calls(&mut self, call: CallId) {
        for under_way in
            self.models.model_calls.iter_mut().filter(|under_way| under_way.call == call)
        {
            under_way.is_awaited = false;
        }
        self.histories.removals.remove(&call);
        self.budgets.held_requests.retain(|request| request.call != call);
    }
}

/// The diagnostic for a prompt that does not fit, with the remedy for the operator.
fn too_long(
    task: Option<&TaskName>,
    model: &ModelName,
    excess: DoesNotFit,
    context: Option<u64>,
) -> ModelDiagnostic {
    let whose =
        task.map_or_else(|| "the prompt".to_owned(), |task| format!("what {task} has to say"));
    let DoesNotFit { tokens, most } = excess;
    let reserved = context.and_then(|context| Some((context, context.checked_sub(most)?)));
    let of = reserved.map(|(context, rest)| {
        format!(" of a context of {context}, because {rest} are reserved for the answer")
    });
    let of = of.unwrap_or_default();
    let text = format!(
        "{whose} does not fit into the model {model}: {tokens} tokens once all was shortened that may be, where {most} fit{of}. If the model \
         takes more, write it as `context` in [models.{model}]."
    );
    ModelDiagnostic { kind: ModelDiagnosticKind::Limit, text }
}

fn error_text(error: &ModelError) -> String {
    match error {
        ModelError::Denied { denial } => denial.detail.clone(),
        ModelError::BudgetExhausted { what } => {
            format!("too little of {what} is left for this request")
        }
        ModelError::UnknownModel { name } => format!("there is no model {name:?} in the config"),
        ModelError::ContextTooLong { tokens } => {
            format!("the prompt does not fit into {tokens} tokens")
        }
        ModelError::Unavailable { .. } => "the model is not available now".to_owned(),
        ModelError::Other { message } => message.clone(),
    }
}
