//! The parts of a telling, and the words of side effects, models and approvals.

use std::borrow::Cow;

use crate::policy::budget::Budget;
use crate::types::approval::Approval;
use crate::types::completion::StopReason;
use crate::types::denial::Denial;
use crate::types::ids::{BackgroundId, ChannelId, ModelName, PluginName, TaskName};
use crate::types::outcome::Status;
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use crate::types::stuck_rules::Recovery;
use crate::types::text::show_size;

/// The description of a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling<'a> {
    /// The kind of the notice, which stays stable when words change.
    pub code: &'static str,
    pub subject: Subject<'a>,
    /// What the subject does; empty if target or text say it all.
    pub verb: &'static str,
    /// The object of the verb; empty if there is none. It may hold names that a plugin chose.
    pub target: Cow<'a, str>,
    pub text: Option<TellingText<'a>>,
    /// Further facts, each a key and a value.
    pub facts: Vec<(&'static str, Cow<'a, str>)>,
    pub tone: Tone,
}

/// The text of a plugin, a model or a person in a telling, or a reason of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TellingText<'a> {
    pub role: TextRole,
    pub text: Cow<'a, str>,
}

/// The part that a text has in a telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRole {
    /// Why it happened; less important than what happened.
    Reason,
    /// Why it failed, or how it ended: as important as what happened.
    Problem,
    /// The text of a person, a model or a plugin, such as a message.
    Message,
    /// A detail, such as arguments.
    Aside,
}

/// The subject of a telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The host, or the run as a whole.
    Host,
    /// A limit of the run.
    Budget,
    /// The model that was asked.
    Model,
    Task(&'a TaskName),
    Plugin(&'a PluginName),
    Channel(&'a ChannelId),
    /// A tool by the name that the agent sees.
    Tool(&'a str),
    Background {
        id: &'a BackgroundId,
        task: &'a TaskName,
    },
}

/// How a telling is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// Less important.
    Faint,
    /// A heading: a task, a user's message.
    Name,
    Good,
    /// Unexpected, but no failure.
    Odd,
    /// A failure or refusal.
    Bad,
}

impl<'a> Telling<'a> {
    pub(super) fn new(code: &'static str, subject: Subject<'a>, verb: &'static str) -> Self {
        let (target, text, facts, tone) = (Cow::default(), None, Vec::new(), Tone::Plain);
        Self { code, subject, verb, target, text, facts, tone }
    }

    pub(super) fn verb(self, verb: &'static str) -> Self {
        Self { verb, ..self }
    }

    pub(super) fn target(self, target: impl Into<Cow<'a, str>>) -> Self {
        Self { target: target.into(), ..self }
    }

    pub(super) fn reason(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.text(TextRole::Reason, text.into())
    }

    pub(super) fn problem(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.text(TextRole::Problem, text.into())
    }

    pub(super) fn message(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.text(TextRole::Message, text.into())
    }

    pub(super) fn detail(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.text(TextRole::Aside, text.into())
    }

    fn text(self, role: TextRole, text: Cow<'a, str>) -> Self {
        Self { text: Some(TellingText { role, text }), ..self }
    }

    /// Adds a fact, unless its value is empty.
    pub(super) fn fact(mut self, key: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.facts.push((key, value));
        }
        self
    }

    pub(super) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// Verb and target: `hands the conversation to billing`.
    #[must_use]
    pub fn predicate(&self) -> String {
        let blank = if self.verb.is_empty() || self.target.is_empty() { "" } else { " " };
        format!("{}{blank}{}", self.verb, self.target)
    }

    /// Subject and predicate: `desk hands the conversation to billing`.
    #[must_use]
    pub fn headline(&self) -> String {
        let predicate = self.predicate();
        match self.subject {
            // Their predicates are whole sentences.
            Subject::Host | Subject::Budget | Subject::Model => predicate,
            subject => format!("{} {predicate}", subject.name()).trim_end().to_owned(),
        }
    }

    /// Everything but the subject: `hands the conversation to billing: it is about money (phase
    /// paying)`.
    #[must_use]
    pub fn statement(&self) -> String {
        self.with_rest(self.predicate())
    }

    /// The whole telling in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.with_rest(self.headline())
    }

    /// The facts in one line: `phase paying, by desk`.
    #[must_use]
    pub fn facts_text(&self) -> String {
        let one = |(key, value): &(&str, Cow<'_, str>)| format!("{key} {value}");
        self.facts.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn with_rest(&self, head: String) -> String {
        let text = self.text.as_ref().map_or("", |text| text.text.as_ref());
        let colon = if head.is_empty() || text.is_empty() { "" } else { ": " };
        match self.facts_text() {
            facts if facts.is_empty() => format!("{head}{colon}{text}"),
            facts => format!("{head}{colon}{text} ({facts})"),
        }
    }
}

impl Subject<'_> {
    /// The subject's name for people.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Host => "host".into(),
            Self::Budget => "budget".into(),
            Self::Model => "model".into(),
            Self::Task(task) => task.as_str().into(),
            Self::Plugin(plugin) => plugin.as_str().into(),
            Self::Channel(channel) => channel.as_str().into(),
            Self::Tool(tool) => (*tool).into(),
            Self::Background { id, task } => format!("{task} ({id})").into(),
        }
    }

    /// The plugin, if it is one.
    #[must_use]
    pub fn plugin(&self) -> Option<&PluginName> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }
}

pub(super) fn status_tone(status: Status) -> Tone {
    match status {
        Status::Rejected => Tone::Odd,
        status if status.is_success() => Tone::Good,
        _ => Tone::Bad,
    }
}

pub(super) fn recovery(recovery: Recovery) -> &'static str {
    match recovery {
        Recovery::Stop => "stop",
        Recovery::Ask => "ask",
        Recovery::Restart => "restart",
    }
}

/// The capability, and the target if there is one.
pub(super) fn denied(denial: &Denial) -> String {
    let Denial { capability, target, .. } = denial;
    if target.is_empty() { capability.clone() } else { format!("{capability} {target}") }
}

pub(super) fn effect_started<'a>(
    telling: Telling<'a>,
    side_effect: &'a SideEffect,
    overlay: bool,
) -> Telling<'a> {
    let telling = telling.message(side_effect.target());
    match side_effect {
        SideEffect::Fetch { method, .. } => telling.verb("sends").target(method),
        SideEffect::WriteFile { bytes, .. } => {
            let to = if overlay { " to an overlay" } else { "" };
            telling.verb("writes").target(format!("{}{to}", show_size(bytes.length)))
        }
        SideEffect::RemoveFile { .. } if overlay => telling.verb("removes in an overlay"),
        SideEffect::RemoveFile { .. } => telling.verb("removes"),
        SideEffect::SetKey { value, .. } => {
            telling.verb("sets a key of its own to").target(show_size(value.length))
        }
        SideEffect::DeleteKey { .. } => telling.verb("deletes a key of its own"),
        SideEffect::RunProgram { .. } => telling.verb("runs outside the sandbox"),
    }
}

pub(super) fn effect_ended<'a>(telling: Telling<'a>, answer: &'a SideEffectAnswer) -> Telling<'a> {
    match answer {
        SideEffectAnswer::Done { length } => {
            telling.verb("succeeded").fact("length", show_size(*length))
        }
        SideEffectAnswer::Fetched { status, body, .. } => {
            let target = format!("{status}, {}", show_size(body.length));
            telling.verb("got").target(target).tone(Tone::Faint)
        }
        SideEffectAnswer::Ran { ending, stdout, stderr, .. } => {
            let length = stdout.length.saturating_add(stderr.length);
            let target = format!("{ending}, {} of output", show_size(length));
            telling.target(target).tone(Tone::Faint)
        }
        SideEffectAnswer::Denied { denial } => {
            telling.verb("was refused on the way").message(&denial.target).tone(Tone::Bad)
        }
        SideEffectAnswer::Failed { message, .. } => {
            telling.verb("failed").reason(message).tone(Tone::Bad)
        }
    }
}

pub(super) fn attempt_lost<'a>(
    telling: Telling<'a>,
    model: &ModelName,
    input_tokens: u64,
) -> Telling<'a> {
    let tokens = Budget::Tokens.show(input_tokens);
    let target = format!("{model} has no answer; {tokens} that it sent are counted");
    telling.target(target).tone(Tone::Odd)
}

pub(super) fn cost_of(micro_usd: u64) -> String {
    if micro_usd == 0 { String::new() } else { Budget::Cost.show(micro_usd) }
}

/// The answer of a model. Its tone is plain if there is nothing to say about it.
pub(super) fn model_answered<'a>(
    telling: Telling<'a>,
    problem: Option<&'a str>,
    fallback: Option<&ModelName>,
    (stop, is_empty): (Option<StopReason>, bool),
) -> Telling<'a> {
    if let Some(next) = fallback {
        let instead = telling.target(format!("{next} is asked instead")).tone(Tone::Odd);
        return instead.reason(problem.unwrap_or_default());
    }
    if let Some(problem) = problem {
        return telling.problem(problem).tone(Tone::Bad);
    }
    match stop {
        Some(StopReason::Length) => {
            telling.verb("the server cut the answer at its limit").tone(Tone::Faint)
        }
        Some(StopReason::ContentFilter) => {
            telling.verb("the provider's filter cut or refused the answer").tone(Tone::Odd)
        }
        Some(StopReason::Other) => telling
            .verb("the server ended the answer for an unusual reason: it may be cut")
            .tone(Tone::Odd),
        _ if is_empty => telling.verb("the model said nothing").tone(Tone::Odd),
        _ => telling.verb("the model answered"),
    }
}

pub(super) fn approved<'a>(telling: Telling<'a>, approval: &'a Approval) -> Telling<'a> {
    match approval {
        Approval::Approved => telling.verb("approved").tone(Tone::Good),
        Approval::Edited { arguments } => {
            telling.verb("approved with").target(arguments.to_string()).tone(Tone::Good)
        }
        Approval::Refused { reason } => telling.verb("refused").reason(reason).tone(Tone::Bad),
        Approval::Invalid { message } => telling
            .verb("refused, because its arguments are not valid")
            .reason(message)
            .tone(Tone::Bad),
    }
}
