//! The rights of all plugins as a graph: what each can reach, and which plugin can call which. It
//! lists what is granted and asks [`explain`] about each call; it decides nothing itself.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::inspect::explain::{AccessQuestion, LayerVerdict, explain};
use crate::inspect::permission_summary::{
    CapabilityRights, data_can_leave, nested_tools, rights_by_capability, server_of,
};
use crate::permissions::grants::{Grants, folder, join};
use crate::setup::{PluginSetup, Setup};
use crate::types::capability::Capability;
use crate::types::ids::{PluginName, TaskName};
use crate::types::plugin_kind::PluginKind;

/// The rights of all plugins of a setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RightsMap {
    /// The plugins, in order of name.
    pub plugins: Vec<PluginNode>,
    /// The calls that no layer refuses, by caller.
    pub calls: Vec<CallRight>,
    /// The destinations of data, as at the head of a run.
    pub data_can_leave: String,
}

/// A plugin with what it can reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginNode {
    pub plugin: PluginName,
    pub kinds: BTreeSet<PluginKind>,
    /// The tasks whose agent it is.
    pub tasks: Vec<TaskName>,
    /// What it may do; empty if it can only compute.
    pub rights: Vec<CapabilityRights>,
    /// What it can reach outside of itself, besides other plugins.
    pub reaches: Vec<Reach>,
}

/// A folder, an address, a model or another thing that a plugin can reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Reach {
    pub kind: ReachKind,
    /// The name of the operator: `docs/`, `https://api.example.org/*`.
    pub name: String,
    /// The kind of access: `read`, `GET, POST`.
    pub how: String,
}

/// The kind of a thing that a plugin can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReachKind {
    Program,
    Model,
    Folder,
    Address,
    Secret,
    Channel,
}

impl ReachKind {
    /// Every kind, in the order of lists.
    pub const ALL: [Self; 6] =
        [Self::Program, Self::Model, Self::Folder, Self::Address, Self::Secret, Self::Channel];

    /// The word of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Model => "model",
            Self::Folder => "folder",
            Self::Address => "address",
            Self::Secret => "secret",
            Self::Channel => "channel",
        }
    }
}

/// The right of a plugin to call another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CallRight {
    pub from: PluginName,
    pub to: PluginName,
    pub by: CallKind,
    /// The tool, or the task whose agent is `to`.
    pub name: String,
    /// Whether an approver is asked each time. Rules about arguments may decide otherwise.
    pub asks: bool,
}

/// How a plugin calls another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    Tool,
    /// Its task tries the other one as a sub-task.
    Subtask,
    /// It starts the other one's task in the background.
    Delegate,
    /// It addresses the other one's task with a message.
    Route,
}

impl CallKind {
    /// The verb in a sentence, in front of the name.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Tool => "calls",
            Self::Subtask => "has the sub-task",
            Self::Delegate => "delegates to",
            Self::Route => "addresses",
        }
    }
}

impl RightsMap {
    /// The rights by a setup.
    #[must_use]
    pub fn of(setup: &Setup) -> Self {
        let calls: BTreeSet<CallRight> =
            setup.plugins.keys().flat_map(|name| calls_of(setup, name)).collect();
        Self {
            plugins: setup.plugins.iter().map(|(name, it)| node(setup, name, it)).collect(),
            calls: calls.into_iter().collect(),
            data_can_leave: data_can_leave(setup),
        }
    }
}

fn node(setup: &Setup, name: &PluginName, plugin: &PluginSetup) -> PluginNode {
    let tasks = setup.tasks.iter().filter(|(_, task)| task.agent == *name);
    let granted = plugin.grants.requested_by(&plugin.facts.manifest);
    PluginNode {
        plugin: name.clone(),
        kinds: plugin.facts.kinds.clone(),
        tasks: tasks.map(|(task, _)| task.clone()).collect(),
        rights: rights_by_capability(setup, name),
        reaches: reaches(setup, &granted).into_iter().collect(),
    }
}

fn reaches(setup: &Setup, grants: &Grants) -> BTreeSet<Reach> {
    let reach = |kind, name: String, how: &str| Reach { kind, name, how: how.to_owned() };
    // Destructured without `..`, so that a new grant does not compile before it is listed here.
    let Grants {
        model,
        tools: _,
        delegate: _,
        route: _,
        files,
        channels,
        fetch,
        kv: _,
        secrets,
        history: _,
        exec,
    } = grants;
    let models = model.iter().flat_map(|grant| &grant.names).map(|name| {
        let server = server_of(setup, name);
        let server = server.as_deref().and_then(|server| server.split(' ').next());
        reach(ReachKind::Model, name.to_string(), server.unwrap_or_default())
    });
    let folders =
        files.iter().map(|grant| reach(ReachKind::Folder, folder(grant), grant.mode.describe()));
    let addresses = fetch.iter().flat_map(|grant| &grant.rules).map(|rule| {
        let methods = join(rule.methods.iter().map(String::as_str));
        reach(ReachKind::Address, rule.url.to_string(), &methods)
    });
    let secrets = secrets.iter().map(|grant| {
        let hosts = join(grant.hosts.iter().map(|host| host.as_str()));
        reach(ReachKind::Secret, grant.name.to_string(), &format!("for {hosts}"))
    });
    let channels = channels.iter().flat_map(|grant| &grant.channels);
    let channels = channels.map(|name| reach(ReachKind::Channel, name.to_string(), "speak"));
    let programs = exec.iter().flat_map(|grant| {
        let how = if grant.network { "with network" } else { "without network" };
        grant.commands.iter().map(move |it| reach(ReachKind::Program, it.as_str().to_owned(), how))
    });
    models.chain(folders).chain(addresses).chain(secrets).chain(channels).chain(programs).collect()
}

/// The calls of a plugin that are not refused.
fn calls_of(setup: &Setup, name: &PluginName) -> Vec<CallRight> {
    let Some(plugin) = setup.plugins.get(name) else { return Vec::new() };
    let granted = plugin.grants.requested_by(&plugin.facts.manifest);
    let may = |capability, target: &str| {
        let question = AccessQuestion::new(name.clone(), capability).of(target);
        match explain(setup, &question).ok()?.verdict {
            LayerVerdict::Yes => Some(false),
            LayerVerdict::Ask => Some(true),
            LayerVerdict::No | LayerVerdict::NotReached => None,
        }
    };
    let right = |to: &PluginName, by, target: &str, asks| CallRight {
        from: name.clone(),
        to: to.clone(),
        by,
        name: target.to_owned(),
        asks,
    };
    let own = || setup.tasks.values().filter(|task| task.agent == *name);
    let handled = own().flat_map(|task| task.toolbox.iter()).filter(|tool| tool.handled);
    let mut tools: BTreeSet<String> =
        handled.filter_map(|tool| tool.target.admitted_name()).collect();
    tools.extend(granted.tools.iter().flat_map(|grant| nested_tools(setup, name, grant)));
    let tools = tools.iter().filter_map(|tool| {
        let (to, _) = setup.tool(tool)?;
        Some(right(to, CallKind::Tool, tool, may(Capability::Tools, tool)?))
    });
    let by_grant = [
        (CallKind::Delegate, Capability::Delegate, granted.delegate.is_some()),
        (CallKind::Route, Capability::Route, granted.route.is_some()),
    ];
    let by_grant = by_grant.into_iter().filter(|(.., is_granted)| *is_granted);
    let tasks = by_grant.flat_map(|(by, capability, _)| {
        setup.tasks.iter().filter_map(move |(task, it)| {
            Some(right(&it.agent, by, task.as_str(), may(capability, task.as_str())?))
        })
    });
    let subtasks = own().flat_map(|task| &task.subtasks).filter_map(|task| {
        let agent = &setup.tasks.get(task)?.agent;
        Some(right(agent, CallKind::Subtask, task.as_str(), false))
    });
    tools.chain(tasks).chain(subtasks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::explain::tests::setup;

    #[test]
    fn the_map_has_what_is_granted_and_the_calls_that_no_layer_refuses() {
        let map = RightsMap::of(&setup());
        let names: Vec<&str> = map.plugins.iter().map(|it| it.plugin.as_str()).collect();
        assert_eq!(names, ["desk", "notes", "voice"]);
        let reaches = |at: usize| -> Vec<(&str, &str)> {
            let reaches = map.plugins[at].reaches.iter();
            reaches.map(|reach| (reach.kind.as_str(), reach.name.as_str())).collect()
        };
        assert_eq!(reaches(0), [("model", "default")]);
        assert_eq!(reaches(1), [("folder", "notes/"), ("folder", "out/")]);
        assert_eq!(reaches(2), [("channel", "terminal")]);
        let calls: Vec<(&str, CallKind, bool)> =
            map.calls.iter().map(|call| (call.name.as_str(), call.by, call.asks)).collect();
        // `notes.drop` is denied by a rule, `notes.save` is in no toolbox, and the plugin may write.
        let expected =
            [("digest", CallKind::Delegate, false), ("notes.list", CallKind::Tool, true)];
        assert_eq!(calls, expected);
        assert!(map.calls.iter().all(|call| call.from == PluginName::from("desk")));
    }

    #[test]
    fn the_rights_of_the_map_are_those_of_the_summary() {
        let setup = setup();
        for node in RightsMap::of(&setup).plugins {
            let all: Vec<String> = node.rights.into_iter().flat_map(|it| it.may).collect();
            assert_eq!(all, crate::inspect::permission_summary::rights_of(&setup, &node.plugin));
        }
    }
}
