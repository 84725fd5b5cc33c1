//! Authorization: the decision for each capability that is a list of names, and the one for paths.
//! The room, the imports and the explanations ask the same functions. An allowed request allocates
//! nothing.

use crate::permissions::grant::{
    DelegateGrant, FOLDER_BYTES, FOLDER_FILES, FileGrant, FileMode, HistoryGrant, Rights, list,
    list_with,
};
use crate::permissions::paths::{GuestPath, suggested_folder};
use crate::types::capability::Capability;
use crate::types::delegation::{OnClose, ResultForm};
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{ChannelId, ModelName, PluginName, TaskName};
use crate::types::side_effect::SideEffect;
use crate::types::text::show_size;

/// Stands in a suggested grant for the folder that the operator has to choose.
pub const CHOSEN_FOLDER: &str = "…";

/// The record of a refusal.
pub type Refused = Box<DenialRecord>;

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
    /// Returns the model of this name; without a name `default` if it was granted, else the first
    /// granted one.
    ///
    /// # Errors
    /// The record, if the model is not requested, not granted, or only others are granted.
    pub fn may_use_model(&self, name: Option<&str>) -> Result<&'a ModelName, Refused> {
        let target = name.unwrap_or("default");
        let smallest = || {
            let granted =
                self.grants.model.iter().flat_map(|grant| &grant.names).map(ModelName::as_str);
            Some(format!("[plugins.{}] grants.model = {}", self.plugin, list_with(granted, target)))
        };
        self.require(Capability::Model, target, smallest)?;
        let names = self.grants.model.as_ref().map_or(&[][..], |grant| &grant.names);
        let found = match name {
            Some(name) => names.iter().find(|granted| granted.as_str() == name),
            None => {
                let mut in_scope = names.iter().filter(|model| self.leaves_model(model).is_ok());
                let first = in_scope.clone().next();
                in_scope
                    .find(|granted| granted.as_str() == "default")
                    .or(first)
                    .or_else(|| names.first())
            }
        };
        let model = found.ok_or_else(|| self.not_held(Capability::Model, target, smallest()))?;
        self.leaves_model(model).map(|()| model)
    }

    /// Allows an address, or a host tool.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_route(&self, name: &str) -> Result<(), Refused> {
        let smallest = || {
            let granted =
                self.grants.route.iter().flat_map(|grant| &grant.names).map(String::as_str);
            Some(format!("[plugins.{}] grants.route = {}", self.plugin, list_with(granted, name)))
        };
        self.require(Capability::Route, name, smallest)?;
        let names = self.grants.route.as_ref().map_or(&[][..], |grant| &grant.names);
        // L-063: addresses ignore case.
        if names.iter().any(|granted| granted.eq_ignore_ascii_case(name)) {
            return self.leaves_route(name);
        }
        Err(self.not_held(Capability::Route, name, smallest()))
    }

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
        let smallest = || {
            is_task(name).then(|| {
                let granted = self
                    .grants
                    .delegate
                    .iter()
                    .flat_map(|grant| &grant.tasks)
                    .map(TaskName::as_str);
                format!("[plugins.{}] grants.delegate = {}", self.plugin, list_with(granted, name))
            })
        };
        self.require(Capability::Delegate, name, smallest)?;
        let tasks = self.grants.delegate.as_ref().map_or(&[][..], |grant| &grant.tasks);
        let found = tasks.iter().find(|task| task.as_str() == name);
        let task = found.ok_or_else(|| self.not_held(Capability::Delegate, name, smallest()))?;
        self.leaves_delegate(task).map(|()| task)
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
        let grant = self.grants.delegate.as_ref();
        let smallest = || {
            is_channel(channel)
                .then(|| self.wider_delegate(|grant| grant.channels.push(ChannelId::from(channel))))
        };
        self.require(Capability::Delegate, channel, smallest)?;
        if grant
            .is_some_and(|grant| grant.channels.iter().any(|granted| granted.as_str() == channel))
        {
            return Ok(());
        }
        let reason =
            format!("plugins.{}.grants.delegate.channels does not contain it", self.plugin);
        Err(self.refuse(Capability::Delegate, channel, Layer::Config, &reason, smallest()))
    }

    /// Allows a choice of the delegating agent that goes beyond what the tasks of the config say.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_choose(&self, choice: &DelegationChoice<'_>) -> Result<(), Refused> {
        let (key, target) = (choice.key(), choice.target());
        let smallest = || {
            Some(self.wider_delegate(|grant| match choice {
                DelegationChoice::Strategy(name) => {
                    grant.delivery_strategies.push(PluginName::clone(name));
                }
                DelegationChoice::Form(form) => drop(grant.result_delivery.insert(*form)),
                DelegationChoice::OnClose(fate) => drop(grant.on_close.insert(*fate)),
            }))
        };
        self.require(Capability::Delegate, target, smallest)?;
        let is_granted = self.grants.delegate.as_ref().is_some_and(|grant| match choice {
            DelegationChoice::Strategy(name) => grant.delivery_strategies.contains(name),
            DelegationChoice::Form(form) => grant.result_delivery.contains(form),
            DelegationChoice::OnClose(fate) => grant.on_close.contains(fate),
        });
        if is_granted {
            return Ok(());
        }
        let reason = format!("plugins.{}.grants.delegate.{key} does not contain it", self.plugin);
        Err(self.refuse(Capability::Delegate, target, Layer::Config, &reason, smallest()))
    }

    /// Returns the line of config with a wider `grants.delegate`. The line replaces the whole
    /// table, so it repeats what is granted already.
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
        format!("[plugins.{}] grants.delegate = {{ {} }}", self.plugin, fields.join(", "))
    }

    /// Returns the channel to send to. A line of config is suggested only for an existing channel.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_send(
        &self,
        name: &str,
        is_channel: impl Fn(&str) -> bool,
    ) -> Result<&'a ChannelId, Refused> {
        let smallest = || {
            is_channel(name).then(|| {
                let granted = self
                    .grants
                    .channels
                    .iter()
                    .flat_map(|grant| &grant.channels)
                    .map(ChannelId::as_str);
                format!("[plugins.{}] grants.channels = {}", self.plugin, list_with(granted, name))
            })
        };
        self.require(Capability::Channels, name, smallest)?;
        let channels = self.grants.channels.as_ref().map_or(&[][..], |grant| &grant.channels);
        channels
            .iter()
            .find(|channel| channel.as_str() == name)
            .ok_or_else(|| self.not_held(Capability::Channels, name, smallest()))
    }

    /// Returns the grant of the conversation around the plugin's tool calls.
    ///
    /// # Errors
    /// The record, if the capability is not requested or not granted.
    pub fn may_read_history(&self) -> Result<HistoryGrant, Refused> {
        let smallest = || Some(format!("[plugins.{}] grants.history = true", self.plugin));
        self.require(Capability::History, "", smallest)?;
        Ok(self.grants.history.unwrap_or_default())
    }

    /// Allows a tool, `plugin.tool`, by the grant alone; the toolbox of the task and the policy are
    /// checked elsewhere.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_call(&self, tool: &str) -> Result<(), Refused> {
        let smallest = || {
            let granted = self
                .grants
                .tools
                .iter()
                .flat_map(|grant| &grant.names)
                .map(|pattern| pattern.0.as_str());
            let list = list_with(granted, tool);
            // A plain list in place of the table would drop its limit.
            let value = match self.grants.tools.as_ref().and_then(|grant| grant.calls) {
                Some(calls) => format!("{{ names = {list}, calls = {calls} }}"),
                None => list,
            };
            Some(format!("[plugins.{}] grants.tools = {value}", self.plugin))
        };
        self.require(Capability::Tools, tool, smallest)?;
        let names = self.grants.tools.as_ref().map_or(&[][..], |grant| &grant.names);
        if names.iter().any(|pattern| pattern.covers(tool)) {
            return Ok(());
        }
        let reason = format!("plugins.{}.grants.tools does not cover it", self.plugin);
        Err(self.refuse(Capability::Tools, tool, Layer::Config, &reason, smallest()))
    }

    /// Returns the index of the folder grant that holds a path, and the path below that folder.
    /// Only the text is checked; the folder resolves links on the disk.
    ///
    /// # Errors
    /// The record, if the capability is not requested or not granted, if the path is invalid or
    /// outside every folder, or if the folder is read-only.
    pub fn may_touch<'p>(&self, path: &'p str, writes: bool) -> Result<(usize, &'p str), Refused> {
        self.folder_of(path, writes).map_err(|record| Box::new(DenialRecord { writes, ..*record }))
    }

    /// Whether a side effect changes a file of a folder that is granted as an overlay.
    #[must_use]
    pub fn is_of_overlay(&self, side_effect: &SideEffect) -> bool {
        let (SideEffect::WriteFile { path, .. } | SideEffect::RemoveFile { path }) = side_effect
        else {
            return false;
        };
        let index = self.may_touch(path, true).map(|(index, _)| index);
        let grant = index.ok().and_then(|index| self.grants.files.get(index));
        grant.is_some_and(|grant| grant.mode == FileMode::Overlay)
    }

    fn folder_of<'p>(&self, path: &'p str, writes: bool) -> Result<(usize, &'p str), Refused> {
        self.require(Capability::Files, path, || self.wider_files(path, writes))?;
        let parsed = GuestPath::parse(path)
            .map_err(|reason| self.refuse(Capability::Files, path, Layer::Runtime, reason, None))?;
        let Some(index) = self.grants.files.iter().position(|folder| folder.at == parsed.folder)
        else {
            let granted: Vec<&str> =
                self.grants.files.iter().map(|folder| folder.at.as_str()).collect();
            // Which folder is meant, only the operator knows: the suggestion leaves it open.
            let choice = suggested_folder(path).map_or_else(String::new, |name| {
                format!(
                    ": choose the folder that the plugin shall see as /{name}, or, if {} is meant, change its `at`",
                    if granted.len() == 1 { "the granted folder" } else { "a granted folder" }
                )
            });
            let reason = format!(
                "{} has files at {} only; this path is outside every granted folder{choice}",
                self.plugin,
                granted.join(", ")
            );
            return Err(self.refuse(
                Capability::Files,
                path,
                Layer::Config,
                &reason,
                self.wider_files(path, writes),
            ));
        };
        if writes && self.grants.files.get(index).is_none_or(|folder| !folder.mode.writes()) {
            let reason =
                format!("{} was granted to {} for reading only", parsed.folder, self.plugin);
            return Err(self.refuse(
                Capability::Files,
                path,
                Layer::Config,
                &reason,
                self.wider_files(path, writes),
            ));
        }
        self.leaves_folder(path, parsed.folder, writes)?;
        Ok((index, parsed.rest))
    }

    /// The smallest line of config that would allow a path; `None` if no line should be offered. A
    /// path outside of every granted folder needs one of the operator's choice: `…` stands for it,
    /// because a guessed name need not exist.
    fn wider_files(&self, path: &str, writes: bool) -> Option<String> {
        let name = suggested_folder(path)?;
        let line = |dir: &str, at: &str, mode: FileMode, quotas: &str| {
            format!("{{ dir = {dir:?}, at = {at:?}, mode = {:?}{quotas} }}", mode.as_str())
        };
        let place = format!("/{name}");
        let mode = if writes { FileMode::ReadWrite } else { FileMode::Read };
        let as_it_is = |grant: &FileGrant| {
            let is_usual = grant.mode == FileMode::Read
                || (grant.bytes, grant.files) == (FOLDER_BYTES, FOLDER_FILES);
            let quotas = if is_usual {
                String::new()
            } else {
                format!(", bytes = {:?}, files = {}", show_size(grant.bytes), grant.files)
            };
            line(
                &grant.display_path,
                &grant.at,
                if writes && grant.at == place { mode } else { grant.mode },
                &quotas,
            )
        };
        let mut grants: Vec<String> = self.grants.files.iter().map(as_it_is).collect();
        if self.grants.files.iter().all(|grant| grant.at != place) {
            grants.push(line(CHOSEN_FOLDER, &place, mode, ""));
        }
        Some(format!("[plugins.{}] grants.files = [{}]", self.plugin, grants.join(", ")))
    }

    /// The record for a capability that is granted, but not for this name.
    fn not_held(&self, capability: Capability, name: &str, suggestion: Option<String>) -> Refused {
        let reason =
            format!("plugins.{}.grants.{capability} does not contain {name:?}", self.plugin);
        self.refuse(capability, name, Layer::Config, &reason, suggestion)
    }
}
