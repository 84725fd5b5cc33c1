//! The text of a timeline's row, for the terminal and for the page. Plugins' and models' text in it
//! is not escaped; its consumers do that.

use std::time::Duration;

use conclave_core::inspect::timeline::{Effected, Given, RowSubject, SandboxUsage, TimelineRow};
use conclave_core::types::completion::TokenUsage;

use crate::ui::show::amounts::{computing, downtime, money, thousands};
use crate::ui::show::{bytes, not_asked, passed_over, refusal, time};

/// The style of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Name,
    Good,
    Odd,
    Bad,
}

/// A row's kind, text and cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowText {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) amounts: String,
    pub(crate) tone: Tone,
}

/// The text of a row.
pub(crate) fn words(row: &TimelineRow) -> RowText {
    let (name, mut text, tone) = subject_words(&row.what);
    if let (RowSubject::User { task, .. }, None) = (&row.what, row.end_ms) {
        text = format!("{task} waits for what you say");
    }
    let mut amounts: Vec<String> = Vec::new();
    if let RowSubject::Model { usage, .. } = &row.what {
        amounts.extend(told_usage(usage));
    }
    amounts.extend(row.what.sandbox().map(told_sandbox));
    if row.abandoned {
        amounts.push("given up".to_owned());
    }
    if row.end_ms.is_none() {
        amounts.push("not over".to_owned());
    }
    RowText { name, text, amounts: amounts.join(" · "), tone }
}

/// `1 200 in, 80 out · $0.02`.
fn told_usage(usage: &TokenUsage) -> Option<String> {
    if usage.input_tokens == 0 && usage.output_tokens == 0 {
        return None;
    }
    let cost = usage.cost_micro_usd.map(|cost| format!(" · {}", money(cost))).unwrap_or_default();
    Some(format!(
        "{} in, {} out{cost}",
        thousands(usage.input_tokens),
        thousands(usage.output_tokens)
    ))
}

fn told_sandbox(used: SandboxUsage) -> String {
    let wall = time(Duration::from_micros(used.wall_us));
    let cpu = computing(used.cpu_ms, used.wall_us / 1_000).map(|time| format!(" · {time} cpu"));
    let cpu = cpu.unwrap_or_default();
    if used.memory > 0 {
        format!("{wall}{cpu} · {}", bytes(used.memory))
    } else {
        format!("{wall}{cpu}")
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each subject")]
fn subject_words(what: &RowSubject) -> (String, String, Tone) {
    match what {
        RowSubject::Task { task, agent, status, reason, .. } => {
            let tone = if status.is_none_or(|status| status.is_success()) {
                Tone::Name
            } else {
                Tone::Bad
            };
            let ended = status
                .map(|status| status.as_str().to_ascii_lowercase().replace('_', "-"))
                .unwrap_or_default();
            let agent = if agent.as_str() == task.as_str() {
                String::new()
            } else {
                format!("agent {agent}")
            };
            (format!("task {task}"), joined(&[&agent, &ended, reason]), tone)
        }
        RowSubject::Step { agent, says, fault, .. } => match fault {
            Some(fault) => (format!("step {agent}"), format!("was stopped: {fault}"), Tone::Bad),
            None => (format!("step {agent}"), says.clone(), Tone::Plain),
        },
        RowSubject::Model { plugin, model, answered_by, error, .. } => {
            let by = answered_by.as_ref().map(|by| format!("{by} for ")).unwrap_or_default();
            match error {
                Some(error) => (format!("model {model}"), format!("{plugin}: {error}"), Tone::Bad),
                None => (format!("model {model}"), format!("{by}{plugin}"), Tone::Good),
            }
        }
        RowSubject::Tool { name, arguments, answer, is_error, fault, .. } => {
            let came = match fault {
                Some(fault) => format!("was stopped: {fault}"),
                None => answer.clone(),
            };
            let arguments = if arguments == "{}" || arguments == "null" { "" } else { arguments };
            let arrow = if came.is_empty() { String::new() } else { format!("→ {came}") };
            (
                format!("tool {name}"),
                joined_with(" ", &[arguments, &arrow]),
                if *is_error { Tone::Bad } else { Tone::Plain },
            )
        }
        RowSubject::SideEffect { plugin, verb, target, bytes: sent, came } => {
            let size = sent.map(|sent| format!(" ({})", bytes(sent))).unwrap_or_default();
            let (came, tone) = came.as_ref().map_or((String::new(), Tone::Odd), effected);
            (
                format!("{plugin} {verb}"),
                joined_with(" ", &[&format!("{target}{size}"), &came]),
                tone,
            )
        }
        RowSubject::Approval { caller, tool, arguments, source, given, author, .. } => {
            let (said, tone) =
                given.as_ref().map_or_else(|| ("waits".to_owned(), Tone::Odd), given_words);
            let said =
                author.as_ref().map_or(said.clone(), |author| format!("{said}, by {author}"));
            (
                format!("approval {tool}"),
                joined(&[&said, &format!("{caller} wants it: {arguments}"), source]),
                tone,
            )
        }
        RowSubject::TopUp { budget, more, reason } => match (more, reason) {
            (Some(more), _) => {
                (format!("top-up {budget}"), format!("raised by {}", thousands(*more)), Tone::Odd)
            }
            (None, Some(reason)) => (format!("top-up {budget}"), refusal(reason), Tone::Bad),
            (None, None) => (format!("top-up {budget}"), "waits".to_owned(), Tone::Odd),
        },
        RowSubject::AttemptLost { model, reason: Some(reason), .. } => {
            (format!("no answer of {model}"), format!("the run was left: {reason}"), Tone::Odd)
        }
        RowSubject::AttemptLost { model, tokens, cost_micro_usd, .. } => {
            let cost = if *cost_micro_usd > 0 {
                format!(" ({})", money(*cost_micro_usd))
            } else {
                String::new()
            };
            (
                format!("lost {model}"),
                format!("no answer came; {} tokens are counted{cost}", thousands(*tokens)),
                Tone::Odd,
            )
        }
        RowSubject::PriceUnknown { model, limit } => {
            (format!("price {model}"), format!("not known: {limit} holds nothing back"), Tone::Odd)
        }
        RowSubject::User { task, channel, prompt, answer } => {
            let said = answer
                .as_ref()
                .map_or_else(|| "no answer".to_owned(), |answer| format!("“{answer}”"));
            let asked = if prompt.trim().is_empty() {
                String::new()
            } else {
                format!("{task} asks on {channel}: {prompt}")
            };
            ("you:".to_owned(), joined(&[&said, &asked]), Tone::Name)
        }
        RowSubject::Background { id, task, status, came, .. } => {
            let status = status.as_deref().unwrap_or_default();
            let tone = if matches!(status, "" | "completed") { Tone::Name } else { Tone::Bad };
            (format!("background {task}"), joined(&[id.as_str(), status, came]), tone)
        }
        RowSubject::PluginQuery { plugin, kind, asks, says, fault, .. } => match fault {
            Some(fault) => (
                format!("{} {plugin}", kind.as_str()),
                joined(&[asks, &format!("was stopped: {fault}")]),
                Tone::Bad,
            ),
            None => (format!("{} {plugin}", kind.as_str()), joined(&[asks, says]), Tone::Plain),
        },
        RowSubject::Strategy { strategy, wake, decided, fault, .. } => match fault {
            Some(fault) => {
                (format!("delivery {strategy}"), format!("was stopped: {fault}"), Tone::Bad)
            }
            None => (format!("delivery {strategy}"), joined(&[wake, decided]), Tone::Plain),
        },
        RowSubject::Delivered { task, strategy, channel, text, .. } => {
            let by = strategy.as_ref().map(|strategy| format!("by {strategy} "));
            let said = format!("{}on {channel}: {text}", by.unwrap_or_default());
            (format!("delivered {task}"), said, Tone::Good)
        }
        RowSubject::NotDelivered { task, reason, .. } => {
            (format!("not delivered {task}"), reason.clone(), Tone::Odd)
        }
        RowSubject::Denied { plugin, capability, target, layer, reason, .. } => (
            format!("DENIED {plugin}"),
            format!("{capability}: {target} ({}: {reason})", layer.as_str()),
            Tone::Bad,
        ),
        RowSubject::Stalled { task, stalled, of, skipped } => (
            format!("stalled {task}"),
            format!("nobody had an answer, {stalled} of {of}{}", not_asked(skipped)),
            Tone::Odd,
        ),
        RowSubject::PassedOver { task, by, skipped } => {
            (format!("answered {task}"), format!("by {by}; {}", passed_over(skipped)), Tone::Plain)
        }
        RowSubject::HistoryCut { task, cut, dropped } => {
            let cut = format!("{} cut, {} left out", thousands(*cut), thousands(*dropped));
            (format!("history {task}"), format!("too long for the model: {cut}"), Tone::Odd)
        }
        RowSubject::Message { text, .. } => ("you:".to_owned(), format!("“{text}”"), Tone::Name),
        RowSubject::Resumed { down_ms, is_exact } => (
            "resumed".to_owned(),
            format!("no host ran for {}", downtime(*down_ms, *is_exact)),
            Tone::Odd,
        ),
        RowSubject::Replaced { plugin, sha256 } => (
            format!("replaced {plugin}"),
            format!("by {}", sha256.chars().take(12).collect::<String>()),
            Tone::Odd,
        ),
        RowSubject::Stopped { task, reason, .. } => {
            let whom = task.as_ref().map(|task| format!(" {task}")).unwrap_or_default();
            (format!("stopped{whom}"), reason.clone(), Tone::Odd)
        }
        RowSubject::Other { event } => (event.clone(), String::new(), Tone::Plain),
    }
}

fn effected(came: &Effected) -> (String, Tone) {
    match came {
        Effected::Done { .. } => (String::new(), Tone::Odd),
        Effected::Answered { status, length, address } => {
            let address =
                address.as_ref().map(|address| format!(" from {address}")).unwrap_or_default();
            (format!("→ {status}, {}{address}", bytes(*length)), Tone::Odd)
        }
        Effected::Ran { ending, length } => {
            (format!("→ {ending}, {} of output", bytes(*length)), Tone::Odd)
        }
        Effected::Denied { target } => (format!("→ refused on the way: {target}"), Tone::Bad),
        Effected::Failed { message } => (format!("→ failed: {message}"), Tone::Bad),
    }
}

fn given_words(given: &Given) -> (String, Tone) {
    match given {
        Given::Approved => ("yes".to_owned(), Tone::Good),
        Given::Edited { arguments } => (format!("yes, with {arguments}"), Tone::Good),
        Given::Refused { reason } => (refusal(reason), Tone::Bad),
    }
}

fn joined(parts: &[&str]) -> String {
    joined_with(" · ", parts)
}

fn joined_with(between: &str, parts: &[&str]) -> String {
    let some: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    some.join(between)
}
