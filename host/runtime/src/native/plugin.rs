//! A native plugin as the embedding program defines it: its closures and its requests for
//! capabilities. Grants are part of the config.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use conclave_core::setup::plugin_query::{
    ChannelDelivery, ChannelReception, Condensation, GateVerdict, ObserverReply, Ruling,
    TaskResult, Verdict,
};
use conclave_core::setup::{PluginFacts, Provenance};
use conclave_core::types::capability::Capability;
use conclave_core::types::plugin_kind::PluginKind;
use serde_json::Value;

use super::advisor::{
    Advice, AdvisorBody, AnswerAsUser, Assess, Check, Conclude, Condense, Deliver, Observe, Recall,
    Receive, Rule, without_closure,
};
use super::agent::{AgentBody, IntoTurn, ResponderBody, Step};
use super::failure::Failure;
use super::tool::Tool;

/// The capabilities that native code can be granted. Others, such as files and addresses, need no
/// grant without a sandbox.
const OFFERED: [Capability; 4] =
    [Capability::Model, Capability::Tools, Capability::Delegate, Capability::Route];

/// A plugin of closures: tools, an agent, a responder, a memory, an analyzer, a condenser, a gate, a
/// judge, a simulated user, an observer, or several of them. By default it requests no capability.
/// Cloning is cheap.
///
/// ```
/// use conclave_runtime::Capability;
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
    asks: BTreeMap<String, CapabilityRequest>,
    settings: BTreeMap<String, Value>,
    pub(super) tools: Vec<Tool>,
    pub(super) agent: Option<AgentBody>,
    pub(super) responder: Option<ResponderBody>,
    pub(super) advisors: BTreeMap<PluginKind, AdvisorBody>,
}

impl Plugin {
    /// A plugin of tools. Configs name it as `native:NAME`.
    pub fn tools(name: &str, tools: impl IntoIterator<Item = Tool>) -> Self {
        Self { tools: tools.into_iter().collect(), ..Self::empty(name) }
    }

    /// Returns a plugin with an agent. The closure is called for each step and returns text, a
    /// completion, an action or a turn; several steps can run concurrently.
    ///
    /// State in its captures is not journalled, and an interrupted step is run again after a
    /// restart. Actions that must not be repeated therefore have to go through `step.host`.
    pub fn agent<F, W, T>(name: &str, body: F) -> Self
    where
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoTurn,
    {
        Self::empty(name).with_agent(body)
    }

    fn empty(name: &str) -> Self {
        let (asks, settings, advisors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            name: name.to_owned(),
            description: String::new(),
            asks,
            settings,
            tools: Vec::new(),
            agent: None,
            responder: None,
            advisors,
        }
    }

    /// Returns a plugin with a memory: a task's `memory` names it, and the agent's `recall` queries
    /// it. State in the closure is not journalled.
    ///
    /// ```
    /// use conclave_runtime::native::{Plugin, Recall};
    ///
    /// let facts = ["Skerryvore was lit in 1844.", "Bell Rock was lit in 1811."];
    /// let memory = Plugin::memory("facts", move |ask: Recall| async move {
    ///     Ok(facts.into_iter().filter(|fact| fact.contains(&ask.query)).map(str::to_owned).collect())
    /// });
    /// # assert_eq!(memory.name(), "facts");
    /// ```
    pub fn memory<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Recall) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Vec<String>, Failure>> + Send + 'static,
    {
        Self::empty(name).with_memory(body)
    }

    /// Returns a plugin with an analyzer, which rates the risk of actions. If the closure fails,
    /// panics or times out, the risk counts as high.
    pub fn analyzer<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Assess) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Verdict, Failure>> + Send + 'static,
    {
        Self::empty(name).with_analyzer(body)
    }

    /// Returns a plugin with a condenser, which decides what histories may forget. `None` forgets
    /// nothing.
    pub fn condenser<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Condense) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<Condensation>, Failure>> + Send + 'static,
    {
        Self::empty(name).with_condenser(body)
    }

    /// Returns a plugin with a gate, which decides what may pass; a `[[gates]]` entry names it. If
    /// the closure fails, panics or times out, nothing passes.
    ///
    /// ```
    /// use conclave_runtime::plugin_query::GateVerdict;
    /// use conclave_runtime::native::{Check, Plugin};
    ///
    /// let guard = Plugin::gate("guard", |ask: Check| async move {
    ///     Ok(match ask.input.text.contains("password") {
    ///         true => GateVerdict::Block { reason: "no passwords here".to_owned() },
    ///         false => GateVerdict::Allow,
    ///     })
    /// });
    /// # assert_eq!(guard.name(), "guard");
    /// ```
    pub fn gate<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Check) -> W + Send + Sync + 'static,
        W: Future<Output = Result<GateVerdict, Failure>> + Send + 'static,
    {
        Self::empty(name).with_gate(body)
    }

    /// Returns a plugin with a judge, which overrules the rules of a task for its answers: which are
    /// valid, and which end the task. The task's `judge` names it; `Ruling::default()` overrules
    /// nothing. [`with_conclusion`](Self::with_conclusion) adds its word on the result. If the
    /// closure fails, panics or times out, the task fails.
    ///
    /// ```
    /// use conclave_runtime::native::{Conclude, Plugin, Rule};
    /// use conclave_runtime::plugin_query::{Ruling, TaskResult};
    ///
    /// // Only a number counts; 42 ends the task; the result says so.
    /// let grader = Plugin::judge("grader", |ask: Rule| async move {
    ///     let number = ask.answer.message.text().trim().parse::<u32>().ok();
    ///     let (valid, is_done) = (Some(number.is_some()), Some(number == Some(42)));
    ///     Ok(Ruling { valid, is_done, ..Ruling::default() })
    /// })
    /// .with_conclusion(|ask: Conclude| async move {
    ///     let text = format!("the number is {}", ask.ending.result.text.trim());
    ///     Ok(Some(TaskResult { text, value: None }))
    /// });
    /// # assert_eq!(grader.name(), "grader");
    /// ```
    pub fn judge<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Rule) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Ruling, Failure>> + Send + 'static,
    {
        Self::empty(name).with_judge(body)
    }

    /// Returns a plugin with a simulated user, which answers in the place of the user; the task's
    /// `simulated_user` names it. Its text has the authority of the user in that task; `None` is no
    /// answer. If the closure fails, panics or times out, the task fails.
    ///
    /// ```
    /// use conclave_runtime::native::{AnswerAsUser, Plugin};
    ///
    /// let customer = Plugin::simulated_user("customer", |ask: AnswerAsUser| async move {
    ///     Ok(Some(match ask.question.contains("Which date?") {
    ///         true => "The first of June.".to_owned(),
    ///         false => "quit".to_owned(),
    ///     }))
    /// });
    /// # assert_eq!(customer.name(), "customer");
    /// ```
    pub fn simulated_user<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(AnswerAsUser) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<String>, Failure>> + Send + 'static,
    {
        Self::empty(name).with_simulated_user(body)
    }

    /// Returns a plugin with an observer, which gets the events of runs after they are durable; an
    /// `[[observers]]` entry names it. If the closure fails, it gets the same events again.
    ///
    /// ```
    /// use conclave_runtime::native::{Observe, Plugin};
    /// use conclave_runtime::plugin_query::ObserverReply;
    ///
    /// let hook = Plugin::observer("hook", |ask: Observe| async move {
    ///     for event in ask.events.iter() {
    ///         println!("{}:{} {}", event.room, event.position.seq, event.kind);
    ///     }
    ///     Ok(ObserverReply::Taken)
    /// });
    /// # assert_eq!(hook.name(), "hook");
    /// ```
    pub fn observer<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Observe) -> W + Send + Sync + 'static,
        W: Future<Output = Result<ObserverReply, Failure>> + Send + 'static,
    {
        Self::empty(name).with_observer(body)
    }

    /// Returns a plugin with a channel, which delivers messages; a `[channels.NAME]` names it.
    /// [`with_reception`](Self::with_reception) adds the reading of requests. A closure that fails
    /// leaves the outcome unknown.
    ///
    /// ```
    /// use conclave_runtime::native::{Deliver, Plugin};
    /// use conclave_runtime::plugin_query::ChannelDelivery;
    ///
    /// let pager = Plugin::channel("pager", |ask: Deliver| async move {
    ///     println!("{}: {}", ask.message.id, ask.message.text);
    ///     Ok(ChannelDelivery::Delivered { remote_id: None })
    /// });
    /// # assert_eq!(pager.name(), "pager");
    /// ```
    pub fn channel<F, W>(name: &str, body: F) -> Self
    where
        F: Fn(Deliver) -> W + Send + Sync + 'static,
        W: Future<Output = Result<ChannelDelivery, Failure>> + Send + 'static,
    {
        Self::empty(name).with_advisor(body)
    }

    /// Adds the reading of requests to a channel. The messages of a request count only if the
    /// closure had the host verify it: [`CallAccess::verify`](super::CallAccess::verify).
    #[must_use]
    pub fn with_reception<F, W>(self, body: F) -> Self
    where
        F: Fn(Receive) -> W + Send + Sync + 'static,
        W: Future<Output = Result<ChannelReception, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds a memory to the plugin.
    #[must_use]
    pub fn with_memory<F, W>(self, body: F) -> Self
    where
        F: Fn(Recall) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Vec<String>, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds an analyzer of risks to the plugin.
    #[must_use]
    pub fn with_analyzer<F, W>(self, body: F) -> Self
    where
        F: Fn(Assess) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Verdict, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds a condenser to the plugin.
    #[must_use]
    pub fn with_condenser<F, W>(self, body: F) -> Self
    where
        F: Fn(Condense) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<Condensation>, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds a gate to the plugin.
    #[must_use]
    pub fn with_gate<F, W>(self, body: F) -> Self
    where
        F: Fn(Check) -> W + Send + Sync + 'static,
        W: Future<Output = Result<GateVerdict, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds a judge's ruling on answers to the plugin. Without
    /// [`with_conclusion`](Self::with_conclusion), the results stay those of the host.
    #[must_use]
    pub fn with_judge<F, W>(self, body: F) -> Self
    where
        F: Fn(Rule) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Ruling, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds a judge's word on the result of the task: `Some` replaces it. Without
    /// [`with_judge`](Self::with_judge), the judge overrules no answer.
    #[must_use]
    pub fn with_conclusion<F, W>(self, body: F) -> Self
    where
        F: Fn(Conclude) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<TaskResult>, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds a simulated user to the plugin.
    #[must_use]
    pub fn with_simulated_user<F, W>(self, body: F) -> Self
    where
        F: Fn(AnswerAsUser) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<String>, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds an observer to the plugin.
    #[must_use]
    pub fn with_observer<F, W>(self, body: F) -> Self
    where
        F: Fn(Observe) -> W + Send + Sync + 'static,
        W: Future<Output = Result<ObserverReply, Failure>> + Send + 'static,
    {
        self.with_advisor(body)
    }

    /// Adds the closure of one query. The kind's other queries go to the closure that was there.
    fn with_advisor<A, F, W>(mut self, body: F) -> Self
    where
        A: Advice,
        F: Fn(A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<A::Answer, Failure>> + Send + 'static,
    {
        let previous = self.advisors.remove(&A::KIND);
        let advisor: AdvisorBody = Arc::new(move |query| match A::from_query(query) {
            Ok(query) => {
                let work = body(query);
                Box::pin(async move { work.await.map(A::into_reply) })
            }
            Err(query) => match &previous {
                Some(previous) => previous(query),
                None => Box::pin(ready(without_closure(&query))),
            },
        });
        self.advisors.insert(A::KIND, advisor);
        self
    }

    /// Adds an agent to the plugin, for one that has tools too.
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

    /// Adds an answer in the role `agent`, as the task's `agent_responder` asks for it. `None`
    /// leaves the answer to the next responder.
    ///
    /// ```
    /// use conclave_runtime::native::{self, Plugin, Step};
    ///
    /// // Answers known questions in code; the model answers the rest.
    /// let desk = Plugin::agent("desk", |step: Step| async move { Ok(step.complete().await?) })
    ///     .with_responder(|step: Step| async move {
    ///         Ok(step.text().contains("open").then(|| native::say("From nine to five.")))
    ///     });
    /// # assert_eq!(desk.name(), "desk");
    /// ```
    #[must_use]
    pub fn with_responder<F, W, T>(mut self, body: F) -> Self
    where
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<T>, Failure>> + Send + 'static,
        T: IntoTurn,
    {
        self.responder = Some(Arc::new(move |step| {
            let work = body(step);
            Box::pin(async move { work.await.map(|turn| turn.map(T::into_turn)) })
        }));
        self
    }

    /// Adds a description, one sentence.
    #[must_use]
    pub fn described(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    /// Requests a capability with a reason: `tools`, `model`, `delegate` or `route`. A config that
    /// does not grant it is refused.
    #[must_use]
    pub fn asks(self, capability: Capability, why: &str) -> Self {
        self.asking(capability, why, false)
    }

    /// Requests an optional capability.
    #[must_use]
    pub fn may_use(self, capability: Capability, why: &str) -> Self {
        self.asking(capability, why, true)
    }

    fn asking(mut self, capability: Capability, why: &str, optional: bool) -> Self {
        let ask = CapabilityRequest { why: why.to_owned(), optional, detail: BTreeMap::new() };
        self.asks.insert(capability.as_str().to_owned(), ask);
        self
    }

    /// Declares a setting, as `[config]` of a manifest does:
    /// `{ "type": "string", "default": "celsius" }`.
    #[must_use]
    pub fn setting(mut self, name: &str, declaration: Value) -> Self {
        self.settings.insert(name.to_owned(), declaration);
        self
    }

    /// The plugin's name, which configs use after `native:`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plugin without the tools of these names.
    pub(crate) fn without_tools(&self, names: &BTreeSet<&str>) -> Self {
        let mut fewer = self.clone();
        fewer.tools.retain(|tool| !names.contains(tool.spec.name.as_str()));
        fewer
    }

    /// Returns the facts of the plugin for the core.
    ///
    /// # Errors
    /// Returns a capability that it requests and that native code cannot be granted.
    pub(crate) fn facts(&self) -> Result<PluginFacts, String> {
        if let Some(other) =
            self.asks.keys().find(|name| !OFFERED.iter().any(|offered| offered.as_str() == *name))
        {
            return Err(format!(
                "it asks for `{other}`, which native code needs no grant for: it runs in no sandbox"
            ));
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
        kinds.extend(self.responder.as_ref().map(|_| PluginKind::Responder));
        kinds.extend((!self.tools.is_empty()).then_some(PluginKind::Tools));
        kinds.extend(self.advisors.keys().copied());
        let tools = self.tools.iter().map(|tool| tool.spec.clone()).collect();
        // A native plugin has no component and thus no digest.
        Ok(PluginFacts {
            manifest,
            kinds,
            tools,
            sha256: String::new(),
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        })
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plugin")
            .field("name", &self.name)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
