//! The effective setup of a resumed run: the intersection of its setup at the start and today's. The
//! room, the imports, the policy and the head of a run read only this. Does not find or load plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    GatePoint, GateRule, ModelSetup, PluginFacts, PluginSetup, Setup, TaskBudget, TaskSetup,
};
use crate::permissions::grants::{Grants, Rights, ToolPattern};
use crate::permissions::overlap::{smaller, smaller_of};
use crate::tool_calls::toolbox::{TaskTool, ToolTarget, Toolbox};
use crate::types::ids::PluginName;

/// A plugin whose component is not the one that the run began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedComponent {
    pub plugin: PluginName,
    /// The digests, in lower-case hexadecimal: of the component, or of the way to a server.
    pub before: String,
    /// `None` if the config does not have the plugin any more.
    pub now: Option<String>,
    /// The reason why the run cannot go on with it: it is another plugin, not another version.
    pub refusal: Option<String>,
}

impl Setup {
    /// Returns what both allow: this setup, with which the run began, and today's. Plugins that
    /// today's config lacks keep no grant. Of the plugins that are new, only gates have a part in
    /// the run.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        if self == today {
            return self.clone();
        }
        let gates = self.gates_with(today);
        let mut plugins: BTreeMap<PluginName, Arc<PluginSetup>> = self
            .plugins
            .iter()
            .map(|(name, initial)| {
                let narrowed = initial.narrowed_by(today.plugins.get(name).map(AsRef::as_ref));
                (name.clone(), same_or_new(initial, narrowed))
            })
            .collect();
        let tasks = self.tasks.iter().map(|(name, initial)| {
            let today = today.tasks.get(name).map(AsRef::as_ref);
            let agent = plugins.get(&initial.agent).map(AsRef::as_ref);
            (name.clone(), same_or_new(initial, initial.narrowed_by(today, agent)))
        });
        let tasks = tasks.collect();
        for gate in &gates {
            if let Some(today) = today.plugins.get(&gate.plugin) {
                plugins.entry(gate.plugin.clone()).or_insert_with(|| Arc::clone(today));
            }
        }
        Self {
            tasks,
            gates,
            // Requests go to the servers of today's config, so their addresses and prices count.
            models: self
                .models
                .iter()
                .map(|(name, initial)| {
                    let model: &ModelSetup = today.models.get(name).unwrap_or(initial);
                    (name.clone(), model.clone())
                })
                .collect(),
            policy_now: (self.policy != today.policy).then(|| today.policy.clone()),
            limits: self.limits.narrowed_by(&today.limits),
            plugins,
            ..self.clone()
        }
    }

    /// The gates of both, because a gate only restricts.
    fn gates_with(&self, today: &Self) -> Vec<GateRule> {
        fn key(gate: &GateRule) -> (GatePoint, &PluginName, &[ToolPattern]) {
            (gate.on, &gate.plugin, &gate.tools)
        }
        let same = |of: &GateRule, gates: &[GateRule]| {
            gates.iter().find(|gate| key(gate) == key(of)).cloned()
        };
        let initial = self.gates.iter().map(|gate| GateRule {
            fails_open: gate.fails_open
                && same(gate, &today.gates).is_none_or(|today| today.fails_open),
            ..gate.clone()
        });
        let new = today.gates.iter().filter(|gate| same(gate, &self.gates).is_none());
        initial.chain(new.cloned()).collect()
    }

    /// The plugins of the run whose components are other ones today, in order of name.
    #[must_use]
    pub fn changed_components(&self, today: &Self) -> Vec<ChangedComponent> {
        let changed = |(name, initial): (&PluginName, &Arc<PluginSetup>)| {
            let facts = today.plugins.get(name).map(|plugin| &plugin.facts);
            let is_same = |facts: &PluginFacts| facts.origin() == initial.facts.origin();
            (!facts.is_some_and(is_same)).then(|| ChangedComponent {
                plugin: name.clone(),
                before: initial.facts.origin().1.to_owned(),
                refusal: facts.and_then(|facts| initial.facts.is_no_version_of(facts)),
                now: facts.map(|facts| facts.origin().1.to_owned()),
            })
        };
        self.plugins.iter().filter_map(changed).collect()
    }
}

impl PluginFacts {
    /// Returns what answers the calls: where it runs, and a digest.
    fn origin(&self) -> (&'static str, &str) {
        match (self.mcp, self.is_native()) {
            (true, _) if self.confinement.is_some() => ("a confined tool server", &self.server),
            (true, _) => ("a tool server outside any sandbox", &self.server),
            (false, true) => ("code of the embedding program", ""),
            (false, false) => ("a component", &self.sha256),
        }
    }

    /// The reason why today's component is another plugin; `None` if it may be another version of
    /// this one.
    fn is_no_version_of(&self, today: &Self) -> Option<String> {
        let (before, now) = (self.origin().0, today.origin().0);
        if before != now {
            return Some(format!("it is {now} now, and was {before}"));
        }
        if self.manifest.name != today.manifest.name {
            let (before, now) = (&self.manifest.name, &today.manifest.name);
            return Some(format!("it is {now:?} now, and was {before:?}"));
        }
        (self.kinds != today.kinds).then(|| "it exports other interfaces now".to_owned())
    }
}

impl PluginSetup {
    fn narrowed_by(&self, today: Option<&Self>) -> Self {
        let Some(today) = today else {
            return Self { grants: Grants::default(), ..self.clone() };
        };
        // A new version of a component must not come into a grant that the old one never asked for.
        let initial = self.grants.requested_by(&self.facts.manifest);
        Self {
            facts: today.facts.clone(),
            grants: initial.narrowed_by(&today.grants),
            limits: self.limits.narrowed_by(&today.limits),
            config: today.config.clone(),
        }
    }
}

impl TaskSetup {
    fn narrowed_by(&self, today: Option<&Self>, agent: Option<&PluginSetup>) -> Self {
        let may_call = |tool: &TaskTool| {
            let Some(admitted) = tool.target.admitted_name() else { return true };
            agent.is_some_and(|agent| {
                let rights = Rights {
                    plugin: self.agent.as_str(),
                    manifest: &agent.facts.manifest,
                    grants: &agent.grants,
                    narrowed: None,
                };
                rights.may_call(&admitted).is_ok()
            })
        };
        let tools = self.toolbox.iter().filter(|tool| may_call(tool));
        let Some(today) = today else {
            let toolbox = Arc::new(tools.cloned().collect::<Vec<_>>().into());
            return Self { toolbox, ..self.clone() };
        };
        let tools: Vec<TaskTool> =
            tools.filter_map(|tool| tool.narrowed_by(&today.toolbox)).collect();
        Self {
            toolbox: Arc::new(tools.into()),
            scope: self.scope.narrowed_by(&today.scope),
            confirm: self.confirm.narrowed_by(&today.confirm),
            budget: self.budget.narrowed_by(&today.budget),
            turns: smaller(self.turns, today.turns),
            deadline_ms: smaller(self.deadline_ms, today.deadline_ms),
            ..self.clone()
        }
    }
}

impl TaskTool {
    /// The tool as far as today's toolbox has it; `None` if that lacks a plugin's tool. The agent
    /// reads today's description, because today's component answers.
    fn narrowed_by(&self, today: &Toolbox) -> Option<Self> {
        let other = today.iter().find(|other| other.target == self.target);
        let (is_offered, is_handled) = match (other, &self.target) {
            (Some(other), _) => (other.offered, other.handled),
            (None, ToolTarget::Host(_)) => (false, self.handled),
            (None, ToolTarget::Plugin { .. }) => return None,
        };
        let mut tool = self.clone();
        (tool.offered, tool.handled) = (self.offered && is_offered, self.handled && is_handled);
        if let Some(other) = other {
            tool.summary.description.clone_from(&other.summary.description);
            tool.summary.input_schema.clone_from(&other.summary.input_schema);
            tool.result_tokens = smaller(self.result_tokens, other.result_tokens);
        }
        Some(tool)
    }
}

impl TaskBudget {
    fn narrowed_by(&self, today: &Self) -> Self {
        smaller_of! {
            self, today: ; turns tokens cost_micro_usd model_calls tool_calls cpu_ms tasks;
        }
    }
}

/// Keeps the shared value if nothing changed, so that caches of it stay valid.
fn same_or_new<T: PartialEq>(initial: &Arc<T>, narrowed: T) -> Arc<T> {
    if **initial == narrowed { Arc::clone(initial) } else { Arc::new(narrowed) }
}
