//! The one description of each notice: a code, a subject, a verb, a target, a text, facts and a
//! tone. The trace, the timeline, `why`, the audit and the transcript select and lay out; they have
//! words of their own only for calls, faults, refusals and the end of a background task. Texts come
//! from plugins, models and people; they are neither cut nor sanitised.

mod parts;
#[cfg(test)]
mod tests;

use crate::inspect::timeline::short;
use crate::protocol::notice::{Notice, SkippedResponder};
use crate::setup::GatePoint;
use crate::types::approval::led_by;
use crate::types::ids::BackgroundId;
use crate::types::message::{Message, Role, Signal};
use crate::types::text::show_duration;

pub use parts::{Subject, Telling, TellingText, TextRole, Tone};
use parts::{approved, effect_ended, effect_started, model_answered, status_tone};

/// The item that a gate checked: its point, with the tool of a call or a result.
fn gated_item(point: GatePoint, tool: Option<&str>) -> String {
    match (point, tool) {
        (GatePoint::ToolCall, Some(tool)) => format!("a call of {tool}"),
        (GatePoint::ToolResult, Some(tool)) => format!("a result of {tool}"),
        _ => format!("({})", point.as_str()),
    }
}

/// The description of a notice. A new kind of notice does not compile until it has one.
#[must_use]
#[expect(clippy::too_many_lines, reason = "one arm for each notice")]
pub fn tell(notice: &Notice) -> Telling<'_> {
    use Subject::{Background, Budget, Channel, Host, Model, Plugin, Task, Tool};
    let of = |subject, verb| Telling::new(notice.kind(), subject, verb);
    match notice {
        Notice::TaskStarted { task, agent, caller } => of(Task(task), "begins")
            .fact("agent", agent.as_str())
            .fact("for", caller.as_ref().map_or("", |caller| caller.as_str())),
        Notice::InvariantViolated { code, reason } => {
            of(Host, "").problem(reason).fact("code", code).tone(Tone::Bad)
        }
        Notice::MessagePosted { task, message, .. } => posted(of(Task(task), ""), message),
        Notice::StepEnded { task, by, skipped, .. } => of(Task(task), "takes the answer of")
            .target(by.as_ref())
            .fact("passed over", passed_over(skipped)),
        Notice::StepStalled { task, stalled, of: most, skipped } => {
            of(Task(task), "stalled").reason(no_answer(*stalled, *most, skipped)).tone(Tone::Odd)
        }
        Notice::QuestionUnanswered { task, question } => {
            of(Task(task), "asks its user, and there is none").message(question)
        }
        Notice::ToolCalled { task, caller, name, arguments, led_by: by, .. } => {
            of(Plugin(caller), "calls")
                .target(name)
                .detail(arguments.to_string())
                .fact("for the task", task.as_str())
                .fact("requested by", led_by("", by).trim_start().to_owned())
        }
        Notice::ToolAnswered { call, name, content, is_error, .. } => {
            let answer = |verb| of(Tool(name), verb);
            match (is_error, call) {
                (false, _) => answer("answered").message(content),
                (true, Some(_)) => answer("failed").problem(content).tone(Tone::Bad),
                (true, None) => answer("was refused").problem(content).tone(Tone::Bad),
            }
        }
        Notice::PluginFaulted { plugin, fault, .. } => of(Plugin(plugin), "failed")
            .problem(format!("{}: {}", fault.kind.as_str(), fault.message))
            .tone(Tone::Bad),
        Notice::Denied { plugin, record, .. } => of(Plugin(plugin), "was refused")
            .target(parts::denied(&record.denial))
            .reason(&record.reason)
            .fact("by the", record.layer.as_str())
            .tone(Tone::Bad),
        Notice::SideEffectStarted { plugin, side_effect, overlay, .. } => {
            effect_started(of(Plugin(plugin), ""), side_effect, *overlay)
        }
        Notice::SideEffectEnded { plugin, answer, .. } => {
            effect_ended(of(Plugin(plugin), ""), answer)
        }
        Notice::ApprovalAsked { request, .. } => {
            of(Plugin(&request.caller), "asks for approval of")
                .target(format!("{}{}", request.tool, request.origin()))
                .detail(request.arguments.to_string())
                .fact("because of", &request.source)
                .fact("risk", request.risk.map_or("", |risk| risk.as_str()))
                .fact(
                    "rated so because",
                    request.risk_reason.as_deref().map(short).unwrap_or_default(),
                )
        }
        Notice::ApprovalGiven { approval, author, .. } => {
            approved(of(Host, ""), approval).fact("by", author.to_string())
        }
        Notice::DecisionRejected { call, author, fault } => of(Host, "rejected a decision about")
            .target(call.to_string())
            .reason(fault.to_string())
            .fact("by", author.to_string())
            .tone(Tone::Odd),
        Notice::TopUpAsked { top_up, .. } => match &top_up.problem {
            Some(problem) => of(Budget, "the run asks again for more of")
                .target(top_up.budget.key())
                .reason(problem)
                .tone(Tone::Odd),
            None => of(Budget, "the run asks for more of")
                .target(top_up.budget.key())
                .reason(top_up.sentence()),
        },
        Notice::ToppedUp { budget, more: Some(more), author, .. } => of(Budget, "")
            .target(format!("{} more for {}", budget.show(*more), budget.key()))
            .fact("by", author.to_string()),
        Notice::ToppedUp { budget, more: None, reason, author, .. } => of(Budget, "no more for")
            .target(budget.key())
            .reason(reason.as_deref().unwrap_or_default())
            .fact("by", author.to_string())
            .tone(Tone::Odd),
        Notice::PriceUnknown { model, limit } => {
            let consequence = format!(
                "{model} is not known: {limit} does not hold it back, only a limit on tokens does"
            );
            of(Budget, "the price of the model").target(consequence).tone(Tone::Odd)
        }
        Notice::AttemptLost { model, reason: Some(reason), .. } => {
            of(Host, "the run is left without an answer of")
                .target(model.as_str())
                .reason(reason)
                .tone(Tone::Odd)
        }
        Notice::AttemptLost { model, input_tokens, cost_micro_usd, reason: None, .. } => {
            parts::attempt_lost(of(Host, "a request to the model"), model, *input_tokens)
                .fact("cost", parts::cost_of(*cost_micro_usd))
        }
        Notice::StepStarted { task, agent, .. } => {
            of(Task(task), "begins a step").fact("agent", agent.as_str())
        }
        Notice::ModelCalled { task, plugin, model, .. } => of(Plugin(plugin), "asks the model")
            .target(model.as_str())
            .fact("for the task", task.as_ref().map_or("", |task| task.as_str())),
        Notice::ModelAnswered { stop, is_empty, error, trouble, fallback, .. } => {
            let problem = trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref());
            let problem = problem.map(String::as_str);
            model_answered(of(Model, ""), problem, fallback.as_ref(), (*stop, *is_empty))
        }
        Notice::HistoryCut { task, cut, dropped } => {
            let verb = if *dropped > 0 { "leaves out" } else { "cuts" };
            let count = if *dropped > 0 { dropped } else { cut };
            of(Task(task), verb)
                .target(format!("{count} of its older messages: too long for the model"))
                .tone(Tone::Odd)
        }
        Notice::Resumed { down_ms, is_exact } => {
            let bound = if *is_exact { "" } else { "at most " };
            of(Host, "resumes where it was interrupted; no host ran for")
                .target(format!("{bound}{}", show_duration(*down_ms)))
        }
        Notice::PluginReplaced { plugin, sha256 } => {
            of(Plugin(plugin), "was built anew").fact("component", sha256)
        }
        Notice::TurnStopped { task, reason } => {
            of(Task(task), "stopped").reason(reason).tone(Tone::Odd)
        }
        Notice::PlanChanged { task, plan } => of(Task(task), "plans").message(plan.to_string()),
        Notice::AgentStateChanged { task, state, reason } => of(Task(task), "is now")
            .target(state.as_str())
            .reason(reason.as_deref().unwrap_or_default()),
        Notice::AgentStuck { task, reason, recovery } => of(Task(task), "stuck")
            .problem(reason)
            .fact("recovery", parts::recovery(*recovery))
            .tone(Tone::Odd),
        Notice::RunPaused { reason } => of(Host, "paused").message(reason).tone(Tone::Odd),
        Notice::RunUnpaused => of(Host, "resumes after a pause"),
        Notice::UserMessageRead { task, message } => {
            of(Task(task), "reads what was said").message(message.text())
        }
        Notice::UserMessageDropped { task, text, reason } => {
            of(Task(task), "does not read what was said")
                .reason(reason)
                .fact("it was", text)
                .tone(Tone::Odd)
        }
        Notice::HistoryCondensed { task, forgotten, masked, summarised } => {
            let summary = if *summarised { ", with a summary in its place" } else { "" };
            of(Task(task), "condenses its history:")
                .target(format!("{forgotten} messages left out, {masked} masked{summary}"))
                .tone(Tone::Faint)
        }
        Notice::KnowledgeAdded { task, file, trigger } => {
            let target = format!("{file}, which the message names");
            of(Task(task), "reads").target(target).detail(trigger).tone(Tone::Faint)
        }
        Notice::GateBlocked { point, plugin, reason, tool } => of(Plugin(plugin), "blocked")
            .target(gated_item(*point, tool.as_deref()))
            .problem(reason)
            .tone(Tone::Bad),
        Notice::GateModified { point, plugin, tool } => of(Plugin(plugin), "changed")
            .target(match tool {
                Some(tool) => gated_item(*point, Some(tool)),
                None => format!("the text {}", gated_item(*point, None)),
            })
            .tone(Tone::Faint),
        Notice::AnswerOverruled { task, plugin, responder, ruling } => {
            of(Plugin(plugin), "overrules an answer of")
                .target(format!("{responder} in {task}"))
                .reason(ruling.to_text())
                .tone(Tone::Odd)
        }
        Notice::ResultReplaced { task, plugin } => {
            of(Plugin(plugin), "replaced the result of").target(task.as_str()).tone(Tone::Faint)
        }
        Notice::HandedOff { from, to, phase, reason } => {
            let to = to.as_ref().map_or("its user", |to| to.as_str());
            let handoff = of(Task(from), "hands the conversation to").target(to);
            handoff.reason(reason).fact("phase", phase)
        }
        Notice::HandoffRejected { from, to, refusal } => {
            of(Task(from), "may not hand the conversation to")
                .target(to)
                .reason(&refusal.message)
                .tone(Tone::Odd)
        }
        Notice::Inbound { channel, sender, text, .. } => {
            let from = if sender.is_empty() { String::new() } else { format!("{sender}: ") };
            of(Channel(channel), "").message(format!("{from}{text}"))
        }
        Notice::InboundRefused { channel, sender, reason, .. } => {
            of(Channel(channel), "not taken").reason(reason).fact("from", sender).tone(Tone::Odd)
        }
        Notice::ChannelRefused { channel, key, reason } => {
            of(Channel(channel), "was not told").reason(reason).fact("key", key).tone(Tone::Odd)
        }
        Notice::ChannelBound { channel, binding } => {
            let muted = if binding.muted { ", muted" } else { "" };
            of(Channel(channel), "joined the room")
                .target(format!("({}{muted})", binding.kind.as_str()))
        }
        Notice::ChannelUnbound { channel } => of(Channel(channel), "left the room"),
        Notice::RoomClosed { reason } => of(Host, "the room is closed").detail(reason),
        Notice::BackgroundStarted { id, task, by, brief, .. } => {
            let by = by.as_ref().map_or(Host, Task);
            of(by, "→").target(format!("{task} ({id})")).detail(brief)
        }
        Notice::BackgroundEnded { ended } => {
            let subject = Background { id: &ended.id, task: &ended.worker };
            let end = of(subject, ended.status.as_str());
            let end = match (&ended.output, &ended.error) {
                (Some(output), _) => end.message(output).tone(Tone::Good),
                (None, error) => end.problem(error.as_deref().unwrap_or_default()).tone(Tone::Bad),
            };
            end.fact("after", show_duration(ended.duration_ms))
        }
        Notice::Delivered { id, worker, strategy, channel, text } => {
            let by = strategy.as_ref().map(|strategy| format!("by {strategy} "));
            of(Background { id, task: worker }, "delivered")
                .target(format!("{}on {channel}", by.unwrap_or_default()))
                .message(text)
        }
        Notice::NotDelivered { id, worker, reason } => {
            of(Background { id, task: worker }, "not delivered").reason(reason).tone(Tone::Odd)
        }
        Notice::DeadLetter { id, worker, attempts, reason } => {
            of(Background { id, task: worker }, "not delivered,")
                .target(format!("tried {attempts} times"))
                .reason(reason)
                .tone(Tone::Bad)
        }
        Notice::ResultsRelayed { task, ids, .. } | Notice::ResultsRead { task, ids } => {
            let results = match ids.len() {
                1 => "1 background result".to_owned(),
                count => format!("{count} background results"),
            };
            of(Task(task), "reads").target(results).fact("of", names_of(ids))
        }
        Notice::TaskEnded { task, status, reason } => {
            of(Task(task), status.as_str()).problem(reason).tone(status_tone(*status))
        }
        Notice::ResultReady { outcome } => of(Host, "the result is ready")
            .message(outcome.content.as_deref().unwrap_or_default())
            .fact("status", outcome.status.as_str())
            .tone(status_tone(outcome.status)),
        Notice::ObserverRetried { observer, attempts, of: most, pause_ms, reason } => {
            let pause = show_duration(*pause_ms);
            of(Plugin(observer), "failed")
                .target(format!("({attempts} of {most} calls); again in {pause}"))
                .reason(reason)
                .tone(Tone::Odd)
        }
        Notice::ObserverStopped { observer, attempts, reason } => {
            of(Plugin(observer), "gets no more events")
                .reason(reason)
                .fact("failed calls", attempts.to_string())
                .tone(Tone::Bad)
        }
    }
}

/// A message by its sign: an end, a refusal, a recipient, or a text alone.
fn posted<'a>(telling: Telling<'a>, message: &'a Message) -> Telling<'a> {
    let text = message.text();
    match (&message.signal, &message.recipient) {
        (Some(Signal::Done { .. }), _) if message.sender == Role::Llm => {
            telling.verb("is done").message(text).tone(Tone::Good)
        }
        (Some(Signal::Rejected), _) => telling.verb("gives up").message(text).tone(Tone::Odd),
        (_, Some(recipient)) => telling.verb("→").target(recipient.as_str()).detail(text),
        _ => telling.verb("says").detail(text),
    }
}

/// `task-1, task-2`.
fn names_of(ids: &[BackgroundId]) -> String {
    ids.iter().map(BackgroundId::as_str).collect::<Vec<_>>().join(", ")
}

/// The reason why a step is stalled, with the responders that it passed over.
#[must_use]
pub fn no_answer(stalled: u32, most: u32, skipped: &[SkippedResponder]) -> String {
    format!("no answer counted ({stalled} of {most} tries){}", not_asked(skipped))
}

/// The responders that were not asked, with the reasons: `; user is not asked here`.
#[must_use]
pub fn not_asked(skipped: &[SkippedResponder]) -> String {
    if skipped.is_empty() { String::new() } else { format!("; {}", passed_over(skipped)) }
}

/// The responders that a step passed over, with the reasons.
#[must_use]
pub fn passed_over(skipped: &[SkippedResponder]) -> String {
    let one = |one: &SkippedResponder| format!("{} {}", one.responder, one.reason.as_str());
    skipped.iter().map(one).collect::<Vec<_>>().join(", ")
}
