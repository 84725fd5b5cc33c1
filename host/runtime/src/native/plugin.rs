//! A native plugin as the embedding program defines it: what it offers and what it asks for. Not what a config grants it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use conclave_core::manifest::{Ask, CONTRACT, Capability, FORMAT, Manifest};
use conclave_core::setup::{PluginFacts, PluginKind};
use serde_json::Value;

use super::agent::{AgentBody, IntoTurn, Step};
use super::failure::Failure;
use super::tool::Tool;

/// What native code can be granted. Files, addresses and the like it reaches without asking anybody.
const OFFERED: [Capability; 4] = [Capability::Model, Capability::Tools, Capability::Delegate, Capability::Route];

/// A plugin of closures: tools, an agent, or both. It asks for nothing unless it is told to. Cloning is cheap.
///
/// ```
/// use conclave_runtime::manifest::Capability;
/// use conclave_runtime::native::{self, Plugin, Step};
/// use serde_json::json;
///
/// // Calls a tool, and ends with what the tool said.
/// let desk = Plugin::agent("desk", |step: Step| async move {
///     Ok(match step.results() {
///         [] => native::call("book.lookup", json!({ "name": step.text() })),
///         [answer, ..] => native::finish(answer.content.clone()),
///     })
/// })
/// .asks(Capability::Tools, "Looks numbers up.");
/// # assert_eq!(desk.name(), "desk");
/// ```
#[derive(Clone)]
pub struct Plugin {
    name: String,
    description: String,
    asks: BTreeMap<String, Ask>,
    settings: BTreeMap<String, Value>,
    pub(super) tools: Vec<Tool>,
    pub(super) agent: Option<AgentBody>,
}

impl Plugin {
    /// A plugin of tools. Configs name it as `native:NAME`.
    pub fn tools(name: &str, tools: impl IntoIterator<Item = Tool>) -> Self {
        Self { tools: tools.into_iter().collect(), ..Self::empty(name) }
    }

    /// A plugin that is an agent. The closure is called for each step, and returns text, a completion, an action or a turn; several steps
    /// can be under way at once. What it keeps in its captures is in no journal, and a step that was cut off when the host stopped is run
    /// again: it must do nothing that may not be done twice, but through `step.host`.
    pub fn agent<F, W, T>(name: &str, body: F) -> Self
    where
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoTurn,
    {
        Self::empty(name).with_agent(body)
    }

    fn empty(name: &str) -> Self {
        let (asks, settings) = (BTreeMap::new(), BTreeMap::new());
        Self { name: name.to_owned(), description: String::new(), asks, settings, tools: Vec::new(), agent: None }
    }

    /// The same plugin with an agent, for one that has tools too.
    #[must_use]
    pub fn with_agent<F, W, T>(mut self, body: F) -> Self
    where
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoTurn,
    {
        self.agent = Some(Arc::new(move |step| {
            let work = body(step);
            Box::pin(async move { work.await.map(T::into_turn) })
        }));
        self
    }

    /// The same plugin with a sentence that says what it is.
    #[must_use]
    pub fn described(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    /// Asks for a capability, and says why: `tools`, `model`, `delegate` or `route`. A config that does not grant it is refused.
    #[must_use]
    pub fn asks(self, capability: Capability, why: &str) -> Self {
        self.asking(capability, why, false)
    }

    /// Asks for a capability that it can do without.
    #[must_use]
    pub fn may_use(self, capability: Capability, why: &str) -> Self {
        self.asking(capability, why, true)
    }

    fn asking(mut self, capability: Capability, why: &str, optional: bool) -> Self {
        let ask = Ask { why: why.to_owned(), optional, detail: BTreeMap::new() };
        self.asks.insert(capability.as_str().to_owned(), ask);
        self
    }

    /// Declares a setting, as `[config]` of a manifest does: `{ "type": "string", "default": "celsius" }`.
    #[must_use]
    pub fn setting(mut self, name: &str, declaration: Value) -> Self {
        self.settings.insert(name.to_owned(), declaration);
        self
    }

    /// What configs call it, after `native:`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the core needs to know of it.
    ///
    /// # Errors
    /// What it asks for and could not be given.
    pub(crate) fn facts(&self) -> Result<PluginFacts, String> {
        if let Some(other) = self.asks.keys().find(|name| !OFFERED.iter().any(|offered| offered.as_str() == *name)) {
            return Err(format!("it asks for `{other}`, which native code needs no grant for: it runs in no sandbox"));
        }
        let manifest = Manifest {
            format: FORMAT,
            name: self.name.clone(),
            version: "native".to_owned(),
            contract: CONTRACT.to_owned(),
            description: self.description.clone(),
            license: String::new(),
            asks: self.asks.clone(),
            config: self.settings.clone(),
        };
        let mut kinds = BTreeSet::new();
        kinds.extend(self.agent.as_ref().map(|_| PluginKind::Agent));
        kinds.extend((!self.tools.is_empty()).then_some(PluginKind::Tools));
        let tools = self.tools.iter().map(|tool| tool.spec.clone()).collect();
        // There is no component to take a digest of.
        Ok(PluginFacts { manifest, kinds, tools, sha256: String::new(), mcp: false })
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plugin").field("name", &self.name).field("tools", &self.tools).finish_non_exhaustive()
    }
}
