//! Which entries of the grants plugins have used, by a fold of stored runs. A use counts for the
//! entry of today's grants that covers it. What journals do not hold is never called unused.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::journal::record::ReplayedRecord;
use crate::permissions::grants::{
    AccessRequest, FetchGrant, FileGrant, Grants, Rights, folder, kind_of,
};
use crate::protocol::notice::Notice;
use crate::setup::{PluginSetup, Setup};
use crate::types::capability::Capability;
use crate::types::ids::PluginName;
use crate::types::side_effect::SideEffect;

/// Whether a granted entry was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UseState {
    Used,
    Unused,
    /// It was not seen, but journals do not hold each use of it.
    NotRecorded,
}

/// An entry of a grant, or a grant without entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrantEntry {
    pub plugin: PluginName,
    pub capability: Capability,
    /// The entry in words, such as `docs/` or `notes.*`; empty for a grant without entries.
    pub entry: String,
    pub state: UseState,
}

/// The uses of the grants of a setup.
#[derive(Debug)]
pub struct GrantUse {
    setup: Arc<Setup>,
    /// The entries that were used; `None` for a use whose entry is not known.
    used: BTreeSet<(PluginName, Capability, Option<usize>)>,
}

impl GrantUse {
    /// No use yet.
    #[must_use]
    pub fn new(setup: Arc<Setup>) -> Self {
        Self { setup, used: BTreeSet::new() }
    }

    /// Adds the uses of a room, whose setup may be an older one.
    pub fn take(&mut self, retold: &[ReplayedRecord]) {
        for record in retold {
            for notice in &record.notices {
                self.notice(notice, record.setup.as_deref());
            }
        }
    }

    fn notice(&mut self, notice: &Notice, then: Option<&Setup>) {
        match notice {
            Notice::ModelCalled { plugin, model, .. } => {
                self.mark(plugin, Capability::Model, model.as_str(), "GET");
            }
            Notice::ToolCalled { caller, name, led_by, .. } => {
                for plugin in led_by.iter().chain([caller]) {
                    self.mark(plugin, Capability::Tools, name, "GET");
                }
            }
            Notice::BackgroundStarted { task, by: Some(by), .. }
            | Notice::TaskStarted { task, caller: Some(by), .. } => {
                let agent = then.and_then(|setup| Some(setup.tasks.get(by)?.agent.clone()));
                // A sub-task of the config is started without a grant.
                if let Some(agent) = agent
                    && let entry @ Some(_) =
                        self.entry_of(&agent, Capability::Delegate, task.as_str(), "GET")
                {
                    self.used.insert((agent, Capability::Delegate, entry));
                }
            }
            Notice::Delivered { strategy: Some(plugin), channel, .. } => {
                self.mark(plugin, Capability::Channels, channel.as_str(), "GET");
            }
            Notice::SideEffectStarted { plugin, side_effect, .. } => {
                let method = match side_effect {
                    SideEffect::Fetch { method, secrets, .. } => {
                        for name in secrets {
                            self.mark(plugin, Capability::Secrets, name, "GET");
                        }
                        method
                    }
                    _ => "GET",
                };
                self.mark(plugin, side_effect.capability(), &side_effect.target(), method);
            }
            _ => {}
        }
    }

    fn mark(&mut self, plugin: &PluginName, capability: Capability, target: &str, method: &str) {
        let entry = self.entry_of(plugin, capability, target, method);
        self.used.insert((plugin.clone(), capability, entry));
    }

    /// The index of the entry that covers the target.
    fn entry_of(
        &self,
        plugin: &PluginName,
        capability: Capability,
        target: &str,
        method: &str,
    ) -> Option<usize> {
        let setup = self.setup.plugins.get(plugin)?;
        let request = AccessRequest { target, method, ..AccessRequest::new(setup.rights(plugin)) };
        match &setup.grants.fetch {
            Some(grant) if capability == Capability::Fetch => rule_of(grant, &request),
            _ => setup.grants.get(capability)?.texts(&request).entry,
        }
    }

    /// All entries of the grants, by plugin.
    #[must_use]
    pub fn entries(&self) -> Vec<GrantEntry> {
        let all = self.setup.plugins.iter();
        all.flat_map(|(name, plugin)| self.entries_of(name, plugin)).collect()
    }

    fn entries_of(&self, name: &PluginName, plugin: &PluginSetup) -> Vec<GrantEntry> {
        let granted = plugin.grants.requested_by(&plugin.facts.manifest);
        let mut all = Vec::new();
        for (capability, _) in granted.all() {
            let entries = entries(&plugin.grants, capability);
            let has_entries = !entries.is_empty();
            let entries = if has_entries { entries } else { vec![String::new()] };
            let is_used = |entry| self.used.contains(&(name.clone(), capability, entry));
            let is_vague = is_used(None);
            for (index, entry) in entries.into_iter().enumerate() {
                let state = match () {
                    () if is_used(Some(index)) || (is_vague && !has_entries) => UseState::Used,
                    () if is_vague => UseState::NotRecorded,
                    () if !is_recorded(&plugin.grants, capability, index) => UseState::NotRecorded,
                    () => UseState::Unused,
                };
                all.push(GrantEntry { plugin: name.clone(), capability, entry, state });
            }
        }
        all
    }
}

/// The index of the rule that allows the request by itself.
fn rule_of(grant: &FetchGrant, request: &AccessRequest<'_>) -> Option<usize> {
    let decide = kind_of(Capability::Fetch)?.decide;
    (0..grant.rules.len()).find(|index| {
        let rules = vec![grant.rules[*index].clone()];
        let grants =
            Grants { fetch: Some(FetchGrant { rules, ..grant.clone() }), ..Grants::default() };
        let rights = Rights { grants: &grants, ..request.rights };
        decide(&AccessRequest { rights, ..*request }).is_ok()
    })
}

/// The entries of a grant in words, in the order of [`GrantTexts::entry`]; empty if it has none.
///
/// [`GrantTexts::entry`]: crate::permissions::grants::GrantTexts::entry
fn entries(grants: &Grants, capability: Capability) -> Vec<String> {
    fn all<T: ToString>(names: &[T]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }
    let found = match capability {
        Capability::Model => grants.model.as_ref().map(|grant| all(&grant.names)),
        Capability::Tools => {
            let names = grants.tools.iter().flat_map(|grant| &grant.names);
            Some(names.map(|pattern| pattern.0.clone()).collect())
        }
        Capability::Delegate => grants.delegate.as_ref().map(|grant| all(&grant.tasks)),
        Capability::Route => grants.route.as_ref().map(|grant| grant.names.clone()),
        Capability::Files => {
            let text = |grant: &FileGrant| format!("{} {}", grant.mode.describe(), folder(grant));
            Some(grants.files.iter().map(text).collect())
        }
        Capability::Channels => grants.channels.as_ref().map(|grant| all(&grant.channels)),
        Capability::Fetch => {
            let rules = grants.fetch.iter().flat_map(|grant| &grant.rules);
            Some(rules.map(|rule| format!("{} {}", rule.methods.join(", "), rule.url)).collect())
        }
        Capability::Secrets => {
            Some(grants.secrets.iter().map(|grant| grant.name.to_string()).collect())
        }
        Capability::Exec => {
            let commands = grants.exec.iter().flat_map(|grant| &grant.commands);
            Some(commands.map(|command| command.as_str().to_owned()).collect())
        }
        _ => None,
    };
    found.unwrap_or_default()
}

/// Whether journals hold each use of the entry. Reads are there only for calls that can act.
fn is_recorded(grants: &Grants, capability: Capability, index: usize) -> bool {
    match capability {
        Capability::Files => grants.files.get(index).is_some_and(|grant| grant.mode.writes()),
        Capability::Route | Capability::Channels | Capability::History | Capability::Kv => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::explain::tests::setup;
    use crate::types::ids::CallId;
    use serde_json::json;

    fn states(uses: &GrantUse) -> Vec<(String, UseState)> {
        let text = |entry: GrantEntry| {
            (format!("{} {} {}", entry.plugin, entry.capability, entry.entry), entry.state)
        };
        uses.entries().into_iter().map(text).collect()
    }

    #[test]
    fn a_use_counts_for_the_entry_that_covers_it_and_no_other() {
        let mut uses = GrantUse::new(Arc::new(setup()));
        let called = |name: &str| Notice::ToolCalled {
            call: CallId(1),
            task: "desk".into(),
            caller: "desk".into(),
            name: name.to_owned(),
            arguments: Arc::new(json!({})),
            within: None,
            led_by: Vec::new(),
        };
        uses.notice(&called("notes.list"), None);
        let written = Notice::SideEffectStarted {
            call: CallId(1),
            ordinal: 0,
            plugin: "notes".into(),
            side_effect: SideEffect::RemoveFile { path: "/out/a.md".to_owned() },
            overlay: false,
        };
        uses.notice(&written, None);
        let setup = setup();
        let started = |task: &str| Notice::TaskStarted {
            task: task.into(),
            agent: "desk".into(),
            caller: Some("desk".into()),
        };
        // A delegation, and a sub-task that needs no grant.
        uses.notice(&started("digest"), Some(&setup));
        uses.notice(&started("other"), Some(&setup));
        let found = states(&uses);
        let state = |text: &str| found.iter().find(|(it, _)| it == text).map(|(_, state)| *state);
        assert_eq!(state("desk tools notes.list"), Some(UseState::Used));
        assert_eq!(state("desk tools notes.save"), Some(UseState::Unused));
        assert_eq!(state("desk model default"), Some(UseState::Unused));
        assert_eq!(state("desk delegate digest"), Some(UseState::Used));
        assert_eq!(state("notes files read and write out/"), Some(UseState::Used));
        // Reads of a call that cannot act are in no journal.
        assert_eq!(state("notes files read notes/"), Some(UseState::NotRecorded));
        assert_eq!(state("notes kv "), Some(UseState::NotRecorded));
    }

    #[test]
    fn a_plugin_that_the_config_lacks_today_has_no_entry() {
        let mut uses = GrantUse::new(Arc::new(setup()));
        let before = states(&uses);
        uses.mark(&"gone".into(), Capability::Tools, "notes.list", "GET");
        assert_eq!(states(&uses), before);
    }
}
