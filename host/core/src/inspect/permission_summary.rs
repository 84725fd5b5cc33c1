//! A summary of each plugin's permissions in words, and of the destinations of data: the head of a
//! run, before anything has run. Pure data; the printer decides on its layout.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::permissions::grants::{AccessRequest, Destination, ToolsGrant, in_brackets, join};
use crate::setup::{
    GatePoint, GateRule, ModelSetup, PluginFacts, ServerConfinement, Setup, TaskSetup,
};
use crate::types::capability::Capability;
use crate::types::confirm::ConfirmPolicy;
use crate::types::ids::{ModelName, PluginName};
use crate::types::plugin_kind::PluginKind;
use crate::types::wording::count;

/// The destination text if no data can leave.
pub const NOWHERE: &str = "nowhere";

/// A plugin with its permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsRow {
    pub plugin: PluginName,
    /// `stock`, or the file as the operator wrote it.
    pub source: String,
    /// Whether the lock marks it as built by the operator.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dev: bool,
    /// The names of the trusted keys whose signatures were verified.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub signed_by: BTreeSet<String>,
    /// The other keys whose signatures were verified.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_signers: BTreeSet<String>,
    /// Permissions such as `read docs/`; empty if the plugin can only compute.
    pub may: Vec<String>,
}

/// A row for each plugin, in order of name. A permission must be in the manifest, granted, and left
/// by the plugin's tasks.
#[must_use]
pub fn rights_table(setup: &Setup, sources: &BTreeMap<PluginName, String>) -> Vec<RightsRow> {
    let row = |plugin: &PluginName| {
        let provenance = setup.plugins.get(plugin).map(|plugin| &plugin.facts.provenance);
        RightsRow {
            plugin: plugin.clone(),
            source: sources.get(plugin).cloned().unwrap_or_default(),
            dev: false,
            signed_by: provenance.map(|it| it.signed_by.clone()).unwrap_or_default(),
            unknown_signers: provenance.map(|it| it.unknown_signers.clone()).unwrap_or_default(),
            may: rights_of(setup, plugin),
        }
    };
    setup.plugins.keys().map(row).collect()
}

/// The destinations of data: the servers of models that some plugin may ask and of channels, any
/// host for native code, or `nowhere`.
#[must_use]
pub fn data_can_leave(setup: &Setup) -> String {
    let reached = setup.channels.iter().filter_map(|(channel, binding)| {
        let to = binding.reached_at.as_ref().filter(|_| binding.can_receive())?;
        Some(format!("{to} (channel {channel})"))
    });
    let mut hosts: BTreeSet<String> = reached.collect();
    for (name, plugin) in &setup.plugins {
        if plugin.facts.is_unconfined_server() {
            hosts.insert(format!("wherever the MCP server {name} sends it"));
        } else if plugin.facts.is_native() && !plugin.facts.mcp {
            hosts.insert(format!("wherever the native plugin {name} sends it"));
        }
        let granted = plugin.grants.requested_by(&plugin.facts.manifest);
        for destination in granted.all().flat_map(|(_, grant)| grant.destinations()) {
            match destination {
                Destination::Url(url) => drop(hosts.insert(format!("{url} ({name})"))),
                Destination::Programs => {
                    hosts.insert(format!("wherever the programs of {name} send it"));
                }
                Destination::Model(model) => hosts.extend(server_of(setup, model)),
            }
        }
    }
    if hosts.is_empty() {
        NOWHERE.to_owned()
    } else {
        hosts.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// The server that gets a model's requests; `None` if there is none.
pub(super) fn server_of(setup: &Setup, model: &ModelName) -> Option<String> {
    // Destructured without `..`, so that a field that reaches out does not compile before it is
    // counted here.
    let ModelSetup {
        input_price: _,
        output_price: _,
        cached_input_price: _,
        reached_at,
        api: _,
        context: _,
        max_output: _,
        min_output: _,
    } = setup.models.get(model)?;
    reached_at.as_ref().map(|server| format!("{server} (model {model})"))
}

/// What a plugin may do by one capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityRights {
    /// The capability; `None` for what the config lets the plugin do without a grant.
    pub capability: Option<Capability>,
    /// Permissions such as `read docs/`, at least one.
    pub may: Vec<String>,
}

/// What a plugin may do, such as `read docs/`; empty if it can only compute.
pub(crate) fn rights_of(setup: &Setup, name: &PluginName) -> Vec<String> {
    rights_by_capability(setup, name).into_iter().flat_map(|rights| rights.may).collect()
}

/// What a plugin may do by each capability, those that reach the furthest first.
pub(crate) fn rights_by_capability(setup: &Setup, name: &PluginName) -> Vec<CapabilityRights> {
    use Capability::{Delegate, Exec, Fetch, Files, Model, Route, Secrets, Tools};
    let Some(plugin) = setup.plugins.get(name) else { return Vec::new() };
    let granted = plugin.grants.requested_by(&plugin.facts.manifest);
    let request = AccessRequest::new(plugin.rights(name));
    let words = |capability| match (capability, &granted.tools) {
        (Tools, Some(tools)) => {
            let tools = [may_call(setup, name, tools), may_nest(setup, name, tools)];
            tools.into_iter().chain([may_reach(setup, name)]).flatten().collect()
        }
        _ => granted.get(capability).map(|grant| grant.texts(&request).summary).unwrap_or_default(),
    };
    let ungranted =
        may_as_server(&plugin.facts).into_iter().chain(may_shape(setup, name)).collect();
    let ungranted = CapabilityRights { capability: None, may: ungranted };
    let first = &[Exec, Route, Delegate, Tools, Model, Files, Fetch, Secrets];
    let by_grants = Capability::beginning_with(first).map(|capability| CapabilityRights {
        capability: Some(capability),
        may: words(capability),
    });
    [ungranted].into_iter().chain(by_grants).filter(|rights| !rights.may.is_empty()).collect()
}

/// What a server may do besides its grants.
fn may_as_server(facts: &PluginFacts) -> Option<String> {
    if facts.is_unconfined_server() {
        return Some(
            "do whatever its server can: it runs UNCONFINED, outside the sandbox".to_owned(),
        );
    }
    let ServerConfinement { reads, starts } = facts.confinement.as_ref()?;
    let starts = starts.iter().map(|path| format!("may start {path}"));
    let reads = reads.iter().map(|path| format!("may read {path}"));
    let facts: Vec<String> = starts.chain(reads).collect();
    Some(format!("run its server, confined by the kernel ({})", facts.join(", ")))
}

/// The decisions or texts that the config lets a plugin contribute; these need no grant.
fn may_shape(setup: &Setup, plugin: &PluginName) -> Vec<String> {
    let tasks = |uses: &dyn Fn(&TaskSetup) -> bool| {
        join(setup.tasks.iter().filter(|(_, task)| uses(task)).map(|(name, _)| name.as_str()))
    };
    let is_it = |name: Option<&PluginName>| name == Some(plugin);
    let condensed = tasks(&|task| is_it(task.condense.as_ref().map(|rules| &rules.plugin)));
    let rated = tasks(&|task| {
        task.confirm.policy != ConfirmPolicy::Never && is_it(task.confirm.analyzer.as_ref())
    });
    let reminded = tasks(&|task| is_it(task.memory.as_ref()));
    let delivered = tasks(&|task| is_it(task.delivery_strategy.as_ref()));
    let judged = tasks(&|task| is_it(task.judge.as_ref()));
    let answered = tasks(&|task| is_it(task.simulated_user.as_ref()));
    let of_tasks = [
        (
            judged,
            "read what is said and overrule which answers count, end the task and are its result in ",
            "",
        ),
        (answered, "read what is said and speak in the place of the user in ", ""),
        (condensed, "shorten and sum up the history of ", ""),
        (rated, "rate the risk of actions of ", " and so decide which need approval"),
        (reminded, "speak as its memory to ", ""),
        (delivered, "decide how results of ", " are delivered and add text of its own"),
    ];
    let of_tasks = of_tasks
        .into_iter()
        .filter(|(tasks, ..)| !tasks.is_empty())
        .map(|(tasks, does, why)| format!("{does}{tasks}{why}"));
    let gates: BTreeSet<String> =
        setup.gates.iter().filter(|gate| gate.plugin == *plugin).map(passes).collect();
    let observes = setup
        .observers
        .iter()
        .filter(|observer| observer.plugin == *plugin)
        .map(|observer| may_observe(observer.events.as_ref()));
    let channels = setup.channels.iter().filter(|(_, it)| it.plugin.as_ref() == Some(plugin));
    let channels = channels.map(|(channel, _)| {
        format!("read what is sent on the channel {channel}, and say who wrote what comes from it")
    });
    of_tasks
        .chain(gates.into_iter().map(|what| format!("change or stop {what}")))
        .chain(observes)
        .chain(channels)
        .collect()
}

/// The kinds of events that are named; more are counted.
const EVENTS_SHOWN: usize = 3;

fn may_observe(events: Option<&BTreeSet<String>>) -> String {
    let Some(events) = events else {
        return "read all events of runs, with messages and arguments of tools".to_owned();
    };
    let rest = match events.len().saturating_sub(EVENTS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more kinds"),
    };
    let listed = join(events.iter().take(EVENTS_SHOWN).map(String::as_str));
    format!("read these events of runs: {listed}{rest}")
}

fn passes(gate: &GateRule) -> String {
    let tools = || match gate.tools.as_slice() {
        [] => "all tools".to_owned(),
        tools => join(tools.iter().map(|tool| tool.0.as_str())),
    };
    let what = match gate.on {
        GatePoint::Inbound => "messages from channels",
        GatePoint::Delegate => "the messages of delegations",
        GatePoint::Deliver => "results before delivery",
        GatePoint::Subtask => "messages between tasks, results and handoffs",
        GatePoint::Outbound => "questions and answers for people",
        GatePoint::ToolCall => return format!("calls of {}", tools()),
        GatePoint::ToolResult => return format!("results of {}", tools()),
    };
    what.to_owned()
}

/// `call search.find, search.read`: the part of the grant that all tasks together leave.
fn may_call(setup: &Setup, agent: &PluginName, grant: &ToolsGrant) -> Option<String> {
    let tasks = setup.tasks.values().filter(|task| task.agent == *agent);
    let tools: BTreeSet<&str> = tasks
        .flat_map(|task| task.toolbox.offered().iter())
        .map(|tool| tool.name.as_str())
        .collect();
    let names = join(shortened(setup, tools).iter().map(String::as_str));
    let bound = in_brackets([grant.calls.map(|calls| count(calls, "call"))]);
    (!names.is_empty()).then(|| format!("call {names}{bound}"))
}

/// `call search.find for its callers`: the tools that the plugin's own tools may call, as far as an
/// agent that calls the plugin may call them too.
fn may_nest(setup: &Setup, name: &PluginName, grant: &ToolsGrant) -> Option<String> {
    let tools = nested_tools(setup, name, grant);
    let names = join(
        shortened(setup, tools.iter().map(String::as_str).collect()).iter().map(String::as_str),
    );
    let bound = in_brackets([grant.calls.map(|calls| count(calls, "call"))]);
    (!names.is_empty()).then(|| format!("call {names} for the agents that call it{bound}"))
}

/// The tools that the plugin's own tools may call.
pub(super) fn nested_tools(
    setup: &Setup,
    name: &PluginName,
    grant: &ToolsGrant,
) -> BTreeSet<String> {
    let kinds = setup.plugins.get(name).map(|plugin| &plugin.facts.kinds);
    if !kinds.is_some_and(|kinds| kinds.contains(&PluginKind::Tools)) {
        return BTreeSet::new();
    }
    let others = setup.plugins.iter().filter(|(plugin, _)| *plugin != name);
    others
        .flat_map(|(plugin, setup)| {
            setup.facts.tools.iter().map(move |tool| format!("{plugin}.{}", tool.name))
        })
        .filter(|tool| grant.names.iter().any(|pattern| pattern.covers(tool)))
        .filter(|tool| setup.tasks.values().any(|task| task.calls(name) && task.carries_out(tool)))
        .collect()
}

/// `reach notes.save through relay`: the tools that the tools it calls may call in turn, at any
/// depth, and the plugins on the way. Rules that deny them for this plugin hold there too.
fn may_reach(setup: &Setup, name: &PluginName) -> Option<String> {
    let nested = |plugin: &PluginName| {
        let plugin_setup = setup.plugins.get(plugin)?;
        let granted = plugin_setup.grants.requested_by(&plugin_setup.facts.manifest).tools?;
        Some(nested_tools(setup, plugin, &granted))
    };
    let direct = nested(name)?;
    let plugin_of = |tool: &str| PluginName::from(tool.split_once('.').map_or(tool, |(of, _)| of));
    let (mut reached, mut through) = (BTreeSet::new(), BTreeSet::new());
    // A plugin is expanded once: grants can form a circle.
    let mut seen = BTreeSet::from([name.clone()]);
    let mut next: Vec<PluginName> = direct.iter().map(|tool| plugin_of(tool)).collect();
    while let Some(plugin) = next.pop() {
        if !seen.insert(plugin.clone()) {
            continue;
        }
        let tools: Vec<String> = nested(&plugin)
            .into_iter()
            .flatten()
            .filter(|tool| !direct.contains(tool) && plugin_of(tool) != *name)
            .collect();
        if !tools.is_empty() {
            through.insert(plugin);
        }
        next.extend(tools.iter().map(|tool| plugin_of(tool)));
        reached.extend(tools);
    }
    let tools = shortened(setup, reached.iter().map(String::as_str).collect());
    let names = join(tools.iter().map(String::as_str));
    let plugins = join(through.iter().map(PluginName::as_str));
    (!names.is_empty()).then(|| format!("reach {names} through {plugins}"))
}

/// Shortens all of a plugin's tools to one word if there are more than a few.
fn shortened(setup: &Setup, tools: BTreeSet<&str>) -> Vec<String> {
    const FEW: usize = 3;
    let mut words: Vec<String> = Vec::new();
    for tool in &tools {
        let plugin = tool.split_once('.').map_or(*tool, |(plugin, _)| plugin);
        let all = setup.plugins.get(plugin).map_or(0, |plugin| plugin.facts.tools.len());
        let granted = tools
            .iter()
            .filter(|tool| tool.split_once('.').is_some_and(|(of, _)| of == plugin))
            .count();
        let word =
            if granted == all && all > FEW { format!("{plugin}.*") } else { (*tool).to_owned() };
        if words.last() != Some(&word) {
            words.push(word);
        }
    }
    words
}
