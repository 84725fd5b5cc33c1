//! The description of a timeline's row: one line for the terminal and the pages, and the details
//! that open below it on a page. Plugins' and models' text in it is not escaped; its consumers do
//! that.

use std::time::Duration;

use super::{Effected, Given, InboundOutcome, RowSubject, SandboxUsage, TimelineRow};
use crate::inspect::amounts::{bytes, computing, downtime, money, thousands, time, took};
use crate::inspect::telling::{Tone, no_answer, passed_over};
use crate::types::completion::TokenUsage;

/// A row's kind, text and cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowText {
    pub name: String,
    pub text: String,
    pub amounts: String,
    pub tone: Tone,
}

/// The text of a row.
#[must_use]
pub fn words(row: &TimelineRow) -> RowText {
    let RowTelling { name, mut text, tone, .. } = tell_row(&row.what);
    if let (RowSubject::User { task, .. }, None) = (&row.what, row.end_ms) {
        text = format!("{task} waits for what you say");
    }
    let mut amounts: Vec<String> = Vec::new();
    if let RowSubject::Model { usage, .. } = &row.what {
        amounts.extend(usage_text(usage));
    }
    amounts.extend(row.what.sandbox().map(sandbox_text));
    if row.abandoned {
        amounts.push("given up".to_owned());
    }
    if row.end_ms.is_none() {
        amounts.push("not over".to_owned());
    }
    RowText { name, text, amounts: amounts.join(" · "), tone }
}

/// `1 200 in, 80 out · $0.02`.
fn usage_text(usage: &TokenUsage) -> Option<String> {
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

fn sandbox_text(usage: SandboxUsage) -> String {
    let wall = time(Duration::from_micros(usage.wall_us));
    let cpu = computing(usage.cpu_ms, usage.wall_us / 1_000).map(|time| format!(" · {time} cpu"));
    let cpu = cpu.unwrap_or_default();
    if usage.memory > 0 {
        format!("{wall}{cpu} · {}", bytes(usage.memory))
    } else {
        format!("{wall}{cpu}")
    }
}

/// The description of a row's subject.
struct RowTelling {
    name: String,
    text: String,
    tone: Tone,
    facts: Vec<(&'static str, String)>,
}

impl RowTelling {
    fn fact(mut self, key: &'static str, value: impl ToString) -> Self {
        self.facts.push((key, value.to_string()));
        self
    }

    /// Adds a fact that may be missing.
    fn some(self, key: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.fact(key, value),
            None => self,
        }
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each subject")]
fn tell_row(what: &RowSubject) -> RowTelling {
    let of = |name, text, tone| RowTelling { name, text, tone, facts: Vec::new() };
    match what {
        RowSubject::Task { task, agent, caller, status, reason } => {
            let is_well = status.is_none_or(|status| status.is_success());
            let end = status.map(|status| status.as_str().to_ascii_lowercase().replace('_', "-"));
            let is_namesake = agent.as_str() == task.as_str();
            let by = if is_namesake { String::new() } else { format!("agent {agent}") };
            let text = joined(&[&by, &end.unwrap_or_default(), reason]);
            let tone = if is_well { Tone::Name } else { Tone::Bad };
            of(format!("task {task}"), text, tone)
                .fact("task", task)
                .fact("agent", agent)
                .some("called by", caller.as_ref())
                .some("ended", status.map(|status| status.as_str()))
                .fact("why", reason)
        }
        RowSubject::Step { task, agent, says, fault, .. } => {
            let (text, tone) = unless_stopped(says.clone(), fault.as_deref());
            of(format!("step {agent}"), text, tone)
                .fact("task", task)
                .fact("agent", agent)
                .fact("says", says)
                .some("fault", fault.as_ref())
        }
        RowSubject::Model { task, plugin, model, answered_by, usage, error } => {
            let by = answered_by.as_ref().map(|by| format!("{by} for ")).unwrap_or_default();
            let (text, tone) = match error {
                Some(error) => (format!("{plugin}: {error}"), Tone::Bad),
                None => (format!("{by}{plugin}"), Tone::Good),
            };
            let cost = usage.cost_micro_usd.map_or_else(|| "price not known".to_owned(), money);
            let tokens = format!(
                "{} in ({} cached), {} out, {cost}",
                thousands(usage.input_tokens),
                thousands(usage.cached_input_tokens),
                thousands(usage.output_tokens)
            );
            of(format!("model {model}"), text, tone)
                .fact("plugin", plugin)
                .some("task", task.as_ref())
                .fact("model", model)
                .some("answered by", answered_by.as_ref())
                .fact("tokens", tokens)
                .some("error", error.as_ref())
        }
        RowSubject::Tool { task, caller, name, arguments, answer, is_error, fault, .. } => {
            let (came, _) = unless_stopped(answer.clone(), fault.as_deref());
            let is_bare = arguments == "{}" || arguments == "null";
            let arrow = if came.is_empty() { String::new() } else { format!("→ {came}") };
            let text = joined_with(" ", &[if is_bare { "" } else { arguments }, &arrow]);
            let tone = if *is_error { Tone::Bad } else { Tone::Plain };
            of(format!("tool {name}"), text, tone)
                .fact("tool", name)
                .some("called by", caller.as_ref())
                .fact("task", task)
                .fact("arguments", arguments)
                .fact("answer", answer)
                .some("fault", fault.as_ref())
        }
        RowSubject::SideEffect { plugin, verb, target, bytes: sent, came } => {
            let size = sent.map(|sent| format!(" ({})", bytes(sent))).unwrap_or_default();
            let arrow = match came {
                None | Some(Effected::Done { .. }) => String::new(),
                Some(came) => format!("→ {}", came_text(came)),
            };
            let is_bad = matches!(came, Some(Effected::Denied { .. } | Effected::Failed { .. }));
            let text = joined_with(" ", &[&format!("{target}{size}"), &arrow]);
            of(format!("{plugin} {verb}"), text, if is_bad { Tone::Bad } else { Tone::Odd })
                .fact("plugin", plugin)
                .fact("does", verb)
                .fact("to", target)
                .some("sent", sent.map(bytes))
                .some("came", came.as_ref().map(came_text))
        }
        RowSubject::Approval { task, caller, tool, arguments, source, given, author } => {
            let (answer, tone) = given.as_ref().map_or((None, Tone::Odd), |answer| {
                let (answer, tone) = given_text(answer);
                (Some(answer), tone)
            });
            let mut state = answer.clone().unwrap_or_else(|| "waits".to_owned());
            if let Some(author) = author {
                state.push_str(&format!(", by {author}"));
            }
            let text = joined(&[&state, &format!("{caller} wants it: {arguments}"), source]);
            of(format!("approval {tool}"), text, tone)
                .fact("tool", tool)
                .fact("wanted by", caller)
                .fact("task", task)
                .fact("arguments", arguments)
                .fact("asked because", source)
                .fact("answer", answer.unwrap_or_else(|| "none yet".to_owned()))
                .some("answered by", author.as_ref())
        }
        RowSubject::TopUp { budget, more, reason } => {
            let (text, tone) = match (more, reason) {
                (Some(more), _) => (format!("raised by {}", thousands(*more)), Tone::Odd),
                (None, Some(reason)) => (refusal(reason), Tone::Bad),
                (None, None) => ("waits".to_owned(), Tone::Odd),
            };
            of(format!("top-up {budget}"), text, tone)
                .fact("budget", budget)
                .some("more", more.map(thousands))
                .some("why not", reason.as_ref())
        }
        RowSubject::AttemptLost { model, tokens, cost_micro_usd, reason } => {
            let (name, text) = match reason {
                Some(reason) => {
                    (format!("no answer of {model}"), format!("the run was left: {reason}"))
                }
                None => {
                    let cost = Some(*cost_micro_usd).filter(|cost| *cost > 0);
                    let cost = cost.map(|cost| format!(" ({})", money(cost))).unwrap_or_default();
                    let tokens = thousands(*tokens);
                    let text = format!("no answer came; {tokens} tokens are counted{cost}");
                    (format!("lost {model}"), text)
                }
            };
            of(name, text, Tone::Odd)
                .fact("counted", thousands(*tokens))
                .some("why", reason.as_ref())
        }
        RowSubject::PriceUnknown { model, limit } => {
            let text = format!("not known: {limit} holds nothing back");
            of(format!("price {model}"), text, Tone::Odd).fact("limit", limit)
        }
        RowSubject::User { task, channel, prompt, answer } => {
            let reply = answer.as_ref().map(|answer| format!("“{answer}”"));
            let reply = reply.unwrap_or_else(|| "no answer".to_owned());
            let is_open = prompt.trim().is_empty();
            let question =
                if is_open { String::new() } else { format!("{task} asks on {channel}: {prompt}") };
            of("you:".to_owned(), joined(&[&reply, &question]), Tone::Name)
                .fact("task", task)
                .fact("channel", channel)
                .fact("asked", prompt)
                .fact("answer", answer.as_deref().unwrap_or("none"))
        }
        RowSubject::Background { id, task, child, status, came } => {
            let status = status.as_deref().unwrap_or_default();
            let tone = if matches!(status, "" | "completed") { Tone::Name } else { Tone::Bad };
            of(format!("background {task}"), joined(&[id.as_str(), status, came]), tone)
                .fact("task", task)
                .fact("id", id)
                .fact("room", child)
                .fact("ended", status)
                .fact("came", came)
        }
        RowSubject::PluginQuery { task, plugin, kind, asks, says, fault, .. } => {
            let (answer, tone) = unless_stopped(says.clone(), fault.as_deref());
            of(format!("{} {plugin}", kind.as_str()), joined(&[asks, &answer]), tone)
                .fact("plugin", plugin)
                .fact("task", task)
                .fact("asked", asks)
                .fact("says", says)
                .some("fault", fault.as_ref())
        }
        RowSubject::Strategy { strategy, wake, decided, fault, .. } => {
            let (text, tone) = unless_stopped(joined(&[wake, decided]), fault.as_deref());
            of(format!("delivery {strategy}"), text, tone)
                .fact("strategy", strategy)
                .fact("woken by", wake)
                .fact("decided", decided)
                .some("fault", fault.as_ref())
        }
        RowSubject::Delivered { task, strategy, channel, text, .. } => {
            let by = strategy.as_ref().map(|strategy| format!("by {strategy} "));
            let line = format!("{}on {channel}: {text}", by.unwrap_or_default());
            of(format!("delivered {task}"), line, Tone::Good)
                .fact("task", task)
                .fact("by", strategy.as_ref().map_or("host", |strategy| strategy.as_str()))
                .fact("channel", channel)
                .fact("text", text)
        }
        RowSubject::NotDelivered { task, reason, .. } => {
            of(format!("not delivered {task}"), reason.clone(), Tone::Odd).fact("why", reason)
        }
        RowSubject::Denied { plugin, capability, target, layer, reason, suggestion } => {
            let text = format!("{capability}: {target} ({}: {reason})", layer.as_str());
            of(format!("DENIED {plugin}"), text, Tone::Bad)
                .fact("plugin", plugin)
                .fact("capability", capability)
                .fact("target", target)
                .fact("layer", layer.as_str())
                .fact("why", reason)
                .some("to allow it", suggestion.as_ref())
        }
        RowSubject::Stalled { task, stalled, of: most, skipped } => {
            of(format!("stalled {task}"), no_answer(*stalled, *most, skipped), Tone::Odd)
        }
        RowSubject::PassedOver { task, by, skipped } => {
            let text = format!("by {by}; {}", passed_over(skipped));
            of(format!("answered {task}"), text, Tone::Plain)
        }
        RowSubject::HistoryCut { task, cut, dropped } => {
            let cut = format!("{} cut, {} left out", thousands(*cut), thousands(*dropped));
            of(format!("history {task}"), format!("too long for the model: {cut}"), Tone::Odd)
        }
        RowSubject::Message { text, .. } => {
            of("you:".to_owned(), format!("“{text}”"), Tone::Name).fact("text", text)
        }
        RowSubject::Inbound { channel, sender, text, outcome } => {
            let (state, tone) = match outcome {
                None => ("gates check it".to_owned(), Tone::Odd),
                Some(InboundOutcome::Refused { reason }) => {
                    (format!("not taken: {reason}"), Tone::Bad)
                }
                Some(_) => (String::new(), Tone::Name),
            };
            let name = if sender.is_empty() { "message".to_owned() } else { format!("{sender}:") };
            let line = joined(&[&format!("“{text}”"), &format!("on {channel}"), &state]);
            of(name, line, tone)
                .fact("from", sender)
                .fact("channel", channel)
                .fact("text", text)
                .fact("state", state)
        }
        RowSubject::Resumed { down_ms, is_exact } => {
            let text = format!("no host ran for {}", downtime(*down_ms, *is_exact));
            of("resumed".to_owned(), text, Tone::Odd)
        }
        RowSubject::TakenOver { host, epoch } => {
            let text = format!("took the run over (epoch {epoch})");
            of(format!("host {host}"), text, Tone::Odd)
        }
        RowSubject::Replaced { plugin, sha256 } => {
            let text = format!("by {}", sha256.chars().take(12).collect::<String>());
            of(format!("replaced {plugin}"), text, Tone::Odd).fact("component", sha256)
        }
        RowSubject::Stopped { task, reason, .. } => {
            let whom = task.as_ref().map(|task| format!(" {task}")).unwrap_or_default();
            of(format!("stopped{whom}"), reason.clone(), Tone::Odd).fact("why", reason)
        }
        RowSubject::Other { event } => of(event.clone(), String::new(), Tone::Plain),
    }
}

/// The text of a call, unless a fault stopped it.
fn unless_stopped(text: String, fault: Option<&str>) -> (String, Tone) {
    match fault {
        Some(fault) => (format!("was stopped: {fault}"), Tone::Bad),
        None => (text, Tone::Plain),
    }
}

/// The result of a side effect.
fn came_text(came: &Effected) -> String {
    match came {
        Effected::Done { length } => format!("done; {} are there now", bytes(*length)),
        Effected::Answered { status, length, address } => {
            let address = address.as_ref().map(|address| format!(" from {address}"));
            format!("{status}, {}{}", bytes(*length), address.unwrap_or_default())
        }
        Effected::Ran { ending, length } => format!("{ending}, {} of output", bytes(*length)),
        Effected::Denied { target } => format!("refused on the way: {target}"),
        Effected::Failed { message } => format!("failed: {message}"),
    }
}

fn given_text(answer: &Given) -> (String, Tone) {
    match answer {
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

/// A row as one text, for its tooltip.
#[must_use]
pub fn tooltip(row: &TimelineRow) -> String {
    let RowText { name, text, amounts, .. } = words(row);
    let when = match row.end_ms {
        Some(end) if end > row.start_ms => format!("{} to {}", took(row.start_ms), took(end)),
        Some(_) => format!("at {}", took(row.start_ms)),
        None => format!("from {}, not over", took(row.start_ms)),
    };
    let text: String = text.chars().take(160).collect();
    format!("{name} {text}\n{when} {amounts}")
}

/// All details of a row.
#[must_use]
pub fn facts(row: &TimelineRow) -> Vec<(&'static str, String)> {
    let mut facts = vec![("address", format!("{}:{}", row.room, row.seq))];
    let from_to = match row.end_ms {
        Some(end) => format!("{} to {}", took(row.start_ms), took(end)),
        None => format!("from {}; its end is not in the store", took(row.start_ms)),
    };
    facts.push(("when", from_to));
    facts.extend(tell_row(&row.what).facts);
    if matches!(row.what, RowSubject::Denied { .. }) {
        facts.push(("more", format!("conclave why {}:{}", row.room, row.seq)));
    }
    if let Some(used) = row.what.sandbox() {
        let wall = time(Duration::from_micros(used.wall_us));
        let cpu = computing(used.cpu_ms, used.wall_us / 1_000);
        let cpu = cpu.map(|time| format!("{time} of computing"));
        let (name, memory) = match used.is_sandboxed() {
            true => ("sandbox", Some(format!("{} of memory at most", bytes(used.memory)))),
            false => ("took", None),
        };
        let used: Vec<String> = [Some(wall), cpu, memory].into_iter().flatten().collect();
        facts.push((name, used.join(", ")));
    }
    if row.abandoned {
        facts.push(("given up", "nobody waited for its end any more".to_owned()));
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// The answer to a question that was refused. A reason that says no more than the answer is left
/// out.
#[must_use]
pub fn refusal(reason: &str) -> String {
    match reason.trim().trim_end_matches(['.', '!']).to_lowercase().as_str() {
        "" | "n" | "no" => "no, without a reason".to_owned(),
        _ => format!("no: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_repeats_the_refusal_is_left_out() {
        for reason in ["no", " No.", "n", ""] {
            assert_eq!(refusal(reason), refusal(""), "{reason:?}");
        }
        assert_eq!(refusal("not on Sundays"), "no: not on Sundays");
    }
}
