//! `delegate`: tasks in the background, and the choices of the delegating agent about them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::texts::{join, joined, list};
use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Layer, Refused, Rights, TaskScope,
    has_any,
};
use crate::permissions::overlap::common;
use crate::types::delegation::{OnClose, ResultForm};
use crate::types::ids::{ChannelId, PluginName, TaskName};
use crate::types::wording::thousands;

/// The grant of tasks that a plugin may delegate to, and of its choices about such a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegateGrant {
    pub tasks: Vec<TaskName>,
    pub at_once: u32,
    pub total: u32,
    /// Channels that it may share with such a task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelId>,
    /// Delivery strategies that it may choose for a result, besides those that the tasks name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivery_strategies: Vec<PluginName>,
    /// Forms of delivery that it may choose.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub result_delivery: BTreeSet<ResultForm>,
    /// Fates of a task after its parent that it may choose.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub on_close: BTreeSet<OnClose>,
}

impl DelegateGrant {
    /// The default number of concurrent background tasks.
    pub const AT_ONCE: u32 = 1;
    /// The default number of background tasks in a run.
    pub const TOTAL: u32 = 8;
}

/// A choice of a delegating agent that needs a grant.
#[derive(Clone, Copy, Debug)]
pub enum DelegationChoice<'a> {
    /// The strategy that delivers the result.
    Strategy(&'a PluginName),
    /// The form in which the result is delivered.
    Form(ResultForm),
    /// The fate of the task if its parent is stopped or closed.
    OnClose(OnClose),
}

impl<'a> DelegationChoice<'a> {
    /// The key below `grants.delegate`.
    fn key(&self) -> &'static str {
        match self {
            Self::Strategy(_) => "delivery_strategies",
            Self::Form(_) => "result_delivery",
            Self::OnClose(_) => "on_close",
        }
    }

    fn target(&self) -> &'a str {
        match self {
            Self::Strategy(name) => name.as_str(),
            Self::Form(form) => form.as_str(),
            Self::OnClose(fate) => fate.as_str(),
        }
    }
}

impl<'a> Rights<'a> {
    /// Returns the task to delegate to. A line of config is suggested only for an
    /// existing task.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_delegate(
        &self,
        name: &str,
        is_task: impl Fn(&str) -> bool,
    ) -> Result<&'a TaskName, Refused> {
        let granted = self.grants.delegate.as_ref().map_or(&[][..], |grant| &grant.tasks);
        let smallest =
            || is_task(name).then(|| self.line_with(Capability::Delegate, granted, name));
        let task = self.require_entry(Capability::Delegate, name, smallest, || {
            granted.iter().find(|task| task.as_str() == name)
        })?;
        self.leaves_delegate(task).map(|()| task)
    }

    pub(crate) fn leaves_delegate(&self, task: &TaskName) -> Result<(), Refused> {
        self.check_scope(Capability::Delegate, task.as_str(), |scope| {
            scope.delegate.as_ref().is_none_or(|tasks| tasks.contains(task))
        })
    }

    /// Allows sharing a channel with a background task. A line of config is suggested only for an
    /// existing channel.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_share(
        &self,
        channel: &str,
        is_channel: impl Fn(&str) -> bool,
    ) -> Result<(), Refused> {
        let is_granted = |grant: &DelegateGrant| {
            grant.channels.iter().any(|granted| granted.as_str() == channel)
        };
        let smallest = || {
            is_channel(channel)
                .then(|| self.wider_delegate(|grant| grant.channels.push(ChannelId::from(channel))))
        };
        self.require_choice("channels", channel, is_granted, smallest)
    }

    /// Allows a choice of the delegating agent that goes beyond what the tasks of the config say.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_choose(&self, choice: &DelegationChoice<'_>) -> Result<(), Refused> {
        let is_granted = |grant: &DelegateGrant| match choice {
            DelegationChoice::Strategy(name) => grant.delivery_strategies.contains(name),
            DelegationChoice::Form(form) => grant.result_delivery.contains(form),
            DelegationChoice::OnClose(fate) => grant.on_close.contains(fate),
        };
        let smallest = || {
            Some(self.wider_delegate(|grant| match choice {
                DelegationChoice::Strategy(name) => {
                    grant.delivery_strategies.push(PluginName::clone(name));
                }
                DelegationChoice::Form(form) => drop(grant.result_delivery.insert(*form)),
                DelegationChoice::OnClose(fate) => drop(grant.on_close.insert(*fate)),
            }))
        };
        self.require_choice(choice.key(), choice.target(), is_granted, smallest)
    }

    fn require_choice(
        &self,
        key: &str,
        target: &str,
        is_granted: impl Fn(&DelegateGrant) -> bool,
        smallest: impl Fn() -> Option<String>,
    ) -> Result<(), Refused> {
        self.require(Capability::Delegate, target, &smallest)?;
        if self.grants.delegate.as_ref().is_some_and(is_granted) {
            return Ok(());
        }
        let reason = format!("plugins.{}.grants.delegate.{key} does not contain it", self.plugin);
        Err(self.refuse(Capability::Delegate, target, Layer::Config, &reason, smallest()))
    }

    /// Returns the line of config with a wider `grants.delegate`. The line replaces the whole
    /// table, so it repeats the present grant.
    fn wider_delegate(&self, widen: impl FnOnce(&mut DelegateGrant)) -> String {
        let granted = self.grants.delegate.as_ref();
        let mut wider = granted.cloned().unwrap_or_default();
        widen(&mut wider);
        let mut fields =
            vec![format!("tasks = {}", list(wider.tasks.iter().map(TaskName::as_str)))];
        if let Some(granted) = granted {
            fields.push(format!("at_once = {}, total = {}", granted.at_once, granted.total));
        }
        let lists = [
            ("channels", list(wider.channels.iter().map(ChannelId::as_str))),
            ("delivery_strategies", list(wider.delivery_strategies.iter().map(PluginName::as_str))),
            ("result_delivery", list(wider.result_delivery.iter().map(|form| form.as_str()))),
            ("on_close", list(wider.on_close.iter().map(|fate| fate.as_str()))),
        ];
        let non_empty = lists.into_iter().filter(|(_, list)| list != "[]");
        fields.extend(non_empty.map(|(key, list)| format!("{key} = {list}")));
        self.line(Capability::Delegate, format_args!("{{ {} }}", fields.join(", ")))
    }
}

impl Grant for DelegateGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_delegate(request.target, request.is_task).map(drop)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(has_any(&scope.delegate))
    }

    fn why_no_line(_target: Option<&str>, layer: Layer) -> Option<String> {
        (layer == Layer::Config).then(|| "the config has nothing of that name".to_owned())
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let both = Self {
            tasks: common(&self.tasks, &today.tasks),
            at_once: self.at_once.min(today.at_once),
            total: self.total.min(today.total),
            channels: common(&self.channels, &today.channels),
            delivery_strategies: common(&self.delivery_strategies, &today.delivery_strategies),
            result_delivery: &self.result_delivery & &today.result_delivery,
            on_close: &self.on_close & &today.on_close,
        };
        Some(both).filter(|grant| !grant.tasks.is_empty())
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn acts(&self) -> bool {
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let effect = format!("delegate to {}", joined(&self.tasks));
        let shares = match self.channels.is_empty() {
            true => String::new(),
            false => format!(" and share {} with it", joined(&self.channels)),
        };
        let strategies = self.delivery_strategies.iter().map(PluginName::as_str);
        let choices = strategies
            .chain(self.result_delivery.iter().map(|form| form.as_str()))
            .chain(self.on_close.iter().map(|fate| fate.as_str()));
        let choices = match join(choices) {
            none if none.is_empty() => none,
            choices => format!(" and choose {choices} for it"),
        };
        let (at_once, total) = (thousands(self.at_once.into()), thousands(self.total.into()));
        let summary = format!("{effect} ({at_once} at once, {total} in total){shares}{choices}");
        GrantTexts {
            summary: vec![summary],
            effect,
            bounds: Some(format!(
                "within its limits for the run: {} at once, {} in total",
                self.at_once, self.total
            )),
            ..GrantTexts::of_names(&self.tasks, |name| name == request.target)
        }
    }
}
