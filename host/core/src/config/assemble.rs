//! The combination of a config with its plugins: the operator's text is checked against the
//! plugins' exports, manifests and tools. Reports all problems at once, at the lines of the config.
//! Pure; loads nothing.

mod asks;
mod idle_keys;
mod mentions;
mod rules;
mod settings;
mod starting;
mod toolbox;
mod tools;
mod unread;
mod unused;

pub(super) use tools::DESCRIPTION_MAX;
pub use tools::faults as tool_faults;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::confusables::pairs;
use crate::config::describe;
use crate::config::{
    Config, ConfigProblem, ModelConfig, ModelKind, ModelServerConfig, PluginConfig, ProblemCode,
    Problems, TaskConfig,
};
use crate::setup::{AgentResponder, PluginFacts, PluginSetup, Setup, TaskSetup};
use crate::types::ids::{PluginName, TaskName};
use crate::types::limits::PluginLimits;
use crate::types::plugin_kind::PluginKind;
use crate::types::wording::code;

/// The number of successive model calls that fit into one plugin call, if the operator sets no wall
/// time.
const MODEL_CALLS: u64 = 2;

/// A setup with its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    pub setup: Setup,
    /// Warnings, such as a grant without effect. Those of the config itself are in
    /// [`Config::warnings`].
    pub warnings: Problems,
}

/// The plugins that were loaded, by their names in the config.
type Plugins = BTreeMap<PluginName, PluginFacts>;

/// Returns the setup of a run.
///
/// # Errors
/// All problems, warnings among them, in the order of the config's lines:
/// - a plugin of the config that is not among `plugins`;
/// - a task whose agent or strategy lacks the export;
/// - a required request without a grant, or one that this host does not offer;
/// - tools and settings that differ from their declaration;
/// - a pattern that covers no admitted tool;
/// - two tools of a task under one name, and a name without a tool.
pub fn assemble(config: &Config, plugins: &Plugins) -> Result<Assembly, Problems> {
    let mut problems = Problems::default();
    let mut setups = BTreeMap::new();
    // Everything below, and thus every model, sees the operator's descriptions.
    let plugins: &Plugins = &plugins
        .iter()
        .map(|(name, facts)| (name.clone(), config.described(name, facts).into_owned()))
        .collect();
    for (name, plugin) in &config.plugins {
        let Some(facts) = plugins.get(name) else {
            problems.push(config.problem(
                ProblemCode::MissingPlugin,
                &format!("plugins.{name}.source"),
                format!("the plugin `{name}` is not loaded"),
            ));
            continue;
        };
        asks::check(config, name, facts, plugins, &mut problems);
        describe::check(config, name, facts, &mut problems);
        tools::check_declared(config, name, facts, &mut problems);
        let settings = settings::check(config, name, facts, &plugin.config, &mut problems);
        let limits = limits_of(config, name, plugin);
        let setup = PluginSetup {
            facts: facts.clone(),
            grants: plugin.grants.clone(),
            limits,
            config: settings,
        };
        setups.insert(name.clone(), Arc::new(setup));
    }
    check_lookalikes(config, &mut problems);
    check_gates(config, plugins, &mut problems);
    check_observers(config, plugins, &mut problems);
    check_channels(config, plugins, &mut problems);
    check_chosen_strategies(config, plugins, &mut problems);
    tools::check_patterns(config, plugins, &mut problems);
    let admitted = tools::admitted(plugins);
    let is_whole = config.plugins.keys().all(|name| plugins.contains_key(name));
    if is_whole {
        // Without all plugins, rules would seem to be about unknown tools.
        rules::check(config, plugins, &mut problems);
    }
    let mut tasks = BTreeMap::new();
    for (name, task) in &config.tasks {
        check_exports(config, name, task, plugins, &mut problems);
        let toolbox = toolbox::of_task(config, name, task, plugins, &admitted, &mut problems);
        // The tools of a plugin that is not loaded are unknown; the missing plugin has its own
        // problem.
        if is_whole {
            mentions::check(config, name, task, &toolbox, &mut problems);
            mentions::check_wanted(task, &toolbox, &mut problems);
        }
        let mut setup = TaskSetup { toolbox: Arc::new(toolbox), ..task.setup.clone() };
        let agent = config.plugins.get(&setup.agent);
        setup.background.host_reports = agent.is_some_and(|agent| agent.grants.delegate.is_some());
        tasks.insert(name.clone(), Arc::new(setup));
    }
    starting::mark(config, plugins, &mut tasks);
    if problems.has_errors() {
        return Err(problems.in_order());
    }
    // Next to mistakes, these warnings would only distract.
    unused::check(config, plugins, &mut problems);
    idle_keys::check(config, plugins, &mut problems);
    unread::check(config, plugins, &mut problems);
    let setup = Setup {
        entry: config.entry.clone(),
        tasks,
        plugins: setups,
        models: config
            .models
            .iter()
            .map(|(name, model)| (name.clone(), model.prices.clone()))
            .collect(),
        channels: Arc::new(config.channels.clone()),
        gates: config.gates.clone(),
        observers: config.observers.clone(),
        policy: config.policy.clone(),
        policy_now: None,
        limits: config.limits.clone(),
    };
    Ok(Assembly { setup, warnings: problems.in_order() })
}

/// Reports plugin names that resemble another one: a model or a reader of a log would confuse their
/// tools.
fn check_lookalikes(config: &Config, problems: &mut Problems) {
    for (earlier, name) in pairs(config.plugins.keys().map(PluginName::as_str)) {
        let path = |name: &str| format!("plugins.{name}");
        let line = config.problem(ProblemCode::SimilarNames, &path(earlier), "").line;
        let what = format!(
            "the names of the plugins {} and {} look alike at a glance",
            code(earlier),
            code(name)
        );
        let help = format!("rename one of them; {} stands in line {line}", code(earlier));
        problems.push(config.problem(ProblemCode::SimilarNames, &path(name), what).help(help));
    }
}

/// The limits of a plugin. One that waits for a model has at least the model's time limits, unless
/// the operator sets another limit.
fn limits_of(config: &Config, name: &PluginName, plugin: &PluginConfig) -> PluginLimits {
    let mut limits = plugin.limits.clone();
    if config.is_written(&format!("plugins.{name}.limits.wall")) {
        return limits;
    }
    let granted = plugin
        .grants
        .model
        .iter()
        .flat_map(|grant| &grant.names)
        .filter_map(|model| config.models.get(model));
    let patience = |model: &ModelConfig| match &model.kind {
        ModelKind::Server(server) => server.timeout_ms,
        ModelKind::Native => ModelServerConfig::TIMEOUT_MS,
        ModelKind::Scripted { .. } => 0,
    };
    // The models of a task are asked one after the other.
    let in_turn = config.tasks.values().filter(|task| task.setup.agent == *name).map(|task| {
        let models = task.setup.models.iter().filter_map(|model| config.models.get(model));
        models.map(patience).fold(0, u64::saturating_add)
    });
    if let Some(patience) =
        granted.map(patience).chain(in_turn).max().filter(|patience| *patience > 0)
    {
        limits.wall_ms = limits.wall_ms.saturating_add(patience.saturating_mul(MODEL_CALLS));
    }
    limits
}

/// Reports gates whose plugin does not export `gate`.
fn check_gates(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    let gates = config.gates.iter().map(|gate| &gate.plugin).enumerate();
    let gates = gates.map(|(index, plugin)| (format!("gates[{index}]"), plugin));
    check_entries(config, plugins, PluginKind::Gate, gates, problems);
}

/// Reports strategies that an agent may choose and that are none.
fn check_chosen_strategies(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    for (name, plugin) in &config.plugins {
        let Some(grant) = &plugin.grants.delegate else { continue };
        let list = format!("plugins.{name}.grants.delegate.delivery_strategies");
        let kind = PluginKind::DeliveryStrategy;
        for plugin in &grant.delivery_strategies {
            let Some(facts) = plugins.get(plugin).filter(|facts| !facts.kinds.contains(&kind))
            else {
                continue;
            };
            let what = format!("the plugin `{plugin}` exports no `{}`", kind.as_str());
            let problem = config.problem(ProblemCode::WrongPluginKind, &list, what);
            problems.push(problem.because(exports(facts)));
        }
    }
}

/// Reports observers whose plugin does not export `observer`.
fn check_observers(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    let observers = config.observers.iter().map(|observer| &observer.plugin).enumerate();
    let observers = observers.map(|(index, plugin)| (format!("observers[{index}]"), plugin));
    check_entries(config, plugins, PluginKind::Observer, observers, problems);
}

/// Reports channels whose plugin does not export `channel`.
fn check_channels(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    let channels = config.channels.iter().filter_map(|(channel, binding)| {
        Some((format!("channels.{channel}"), binding.plugin.as_ref()?))
    });
    check_entries(config, plugins, PluginKind::Channel, channels, problems);
}

/// Reports the plugins of these tables of the config that lack the export of the table's kind.
fn check_entries<'c>(
    config: &Config,
    plugins: &Plugins,
    kind: PluginKind,
    entries: impl Iterator<Item = (String, &'c PluginName)>,
    problems: &mut Problems,
) {
    for (table, plugin) in entries {
        let Some(facts) = plugins.get(plugin).filter(|facts| !facts.kinds.contains(&kind)) else {
            continue;
        };
        let what = format!("the plugin `{plugin}` exports no `{}`", kind.as_str());
        let help = others(plugins, kind).map(|others| format!("plugins here that do: {others}"));
        let help = help.unwrap_or_else(|| {
            let list = table.split_once('[').map(|(list, _)| format!("[{list}]"));
            let table = list.as_ref().unwrap_or(&table);
            format!("leave this [{table}] out, or take a plugin that exports `{}`", kind.as_str())
        });
        problems.push(
            config
                .problem(ProblemCode::WrongPluginKind, &format!("{table}.plugin"), what)
                .because(exports(facts))
                .help(help),
        );
    }
}

/// Reports plugins of a task that lack the required exports.
fn check_exports(
    config: &Config,
    name: &TaskName,
    task: &TaskConfig,
    plugins: &Plugins,
    problems: &mut Problems,
) {
    let mut need = |plugin: &PluginName, kind: PluginKind, key: &str, help: Option<String>| {
        let Some(facts) = plugins.get(plugin).filter(|facts| !facts.kinds.contains(&kind)) else {
            return;
        };
        let what = format!("the plugin `{plugin}` exports no `{}`", kind.as_str());
        let help = help.or_else(|| {
            others(plugins, kind).map(|others| format!("plugins here that do: {others}"))
        });
        problems.push(
            config
                .problem(ProblemCode::WrongPluginKind, &format!("tasks.{name}.{key}"), what)
                .because(exports(facts))
                .maybe_help(help),
        );
    };
    need(&task.setup.agent, PluginKind::Agent, "agent", None);
    if let Some(strategy) = &task.setup.delivery_strategy {
        need(strategy, PluginKind::DeliveryStrategy, "delivery_strategy", None);
    }
    if let Some(strategy) = &task.setup.background.delivery_strategy {
        need(strategy, PluginKind::DeliveryStrategy, "background.delivery_strategy", None);
    }
    for (index, executor) in task.setup.action_plugins.iter().enumerate() {
        need(executor, PluginKind::Tools, &format!("action_plugins[{index}]"), None);
    }
    if let Some(memory) = &task.setup.memory {
        need(memory, PluginKind::Memory, "memory", None);
    }
    if let Some(judge) = &task.setup.judge {
        need(judge, PluginKind::Judge, "judge", None);
    }
    if let Some(user) = &task.setup.simulated_user {
        need(user, PluginKind::SimulatedUser, "simulated_user", None);
    }
    if let Some(analyzer) = &task.setup.confirm.analyzer {
        need(analyzer, PluginKind::SecurityAnalyzer, "confirm.analyzer", None);
    }
    if let Some(condense) = &task.setup.condense {
        need(&condense.plugin, PluginKind::Condenser, "condense.plugin", None);
    }
    if task.setup.agent_responder == AgentResponder::Component {
        let help =
            "write `agent_responder = \"host\"`: the host then answers with tools and actions"
                .to_owned();
        need(&task.setup.agent, PluginKind::Responder, "agent_responder", Some(help));
    }
}

fn exports(facts: &PluginFacts) -> String {
    let kinds: Vec<String> = facts.kinds.iter().map(|kind| code(kind.as_str())).collect();
    if kinds.is_empty() {
        "it exports nothing that this host knows".to_owned()
    } else {
        format!("it exports {}", kinds.join(", "))
    }
}

fn others(plugins: &Plugins, kind: PluginKind) -> Option<String> {
    let names: Vec<String> = plugins
        .iter()
        .filter(|(_, facts)| facts.kinds.contains(&kind))
        .map(|(name, _)| code(name.as_str()))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// A problem of the plugin itself, at the line that names it: its author must correct it.
fn authors_problem(config: &Config, plugin: &PluginName, what: String) -> ConfigProblem {
    let help = format!("tell the author of `{plugin}`, or leave [plugins.{plugin}] out");
    config.problem(ProblemCode::InvalidPlugin, &format!("plugins.{plugin}.source"), what).help(help)
}
