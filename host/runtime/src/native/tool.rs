//! Native tools: a name, a description, a schema and an async closure.

use std::fmt;
use std::sync::Arc;

use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::tool::{CallableTool, NestedAnswer, NestedCall, ToolOutcome, ToolSpec};
use conclave_core::types::view::ConversationView;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::CallAccess;
use super::failure::Failure;
use crate::support::clock::BoxFuture;

pub(super) type ToolBody =
    Arc<dyn Fn(Call) -> BoxFuture<'static, Result<ToolOutcome, Failure>> + Send + Sync>;

/// One call of a tool. Its arguments match the tool's schema.
#[derive(Clone, Debug)]
pub struct Call {
    /// A JSON object.
    pub arguments: Value,
    /// The task of the calling agent.
    pub task: TaskName,
    /// The plugin of the calling agent.
    pub caller: PluginName,
    /// The conversation around the call; `None` without `grants.history`.
    pub conversation: Option<ConversationView>,
    /// The tools that it may call with [`call_tool`](Self::call_tool); empty without
    /// `grants.tools`.
    pub callable: Arc<Vec<CallableTool>>,
    /// Log, settings and models.
    pub host: CallAccess,
}

impl Call {
    /// The arguments as a type of the program's own.
    ///
    /// # Errors
    /// Fails when the arguments do not match the type, although the schema accepted them.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.arguments)
            .map_err(|error| Failure::invalid_arguments(error.to_string()))
    }

    /// Calls a tool of the calling agent, under the agent's name for it. Agent and plugin both need
    /// the grant; policy, approvals and budgets are those of the agent's own calls. Several calls
    /// run at the same time if their futures are polled together. The wait counts against the
    /// plugin's `limits.wall`.
    ///
    /// # Errors
    /// `Denied` if the plugin lacks the grant; `Failed` if the tool failed, was refused to the agent
    /// or was not approved.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> NestedAnswer {
        let call = NestedCall { name: name.to_owned(), arguments: Arc::new(arguments) };
        self.host.call_tool(call).await
    }
}

/// A type that a closure can return as a tool's outcome.
pub trait IntoOutcome {
    /// The value as an outcome.
    fn into_outcome(self) -> ToolOutcome;
}

impl IntoOutcome for ToolOutcome {
    fn into_outcome(self) -> ToolOutcome {
        self
    }
}

impl IntoOutcome for String {
    fn into_outcome(self) -> ToolOutcome {
        ToolOutcome { content: Some(self), ..ToolOutcome::default() }
    }
}

impl IntoOutcome for &'static str {
    fn into_outcome(self) -> ToolOutcome {
        self.to_owned().into_outcome()
    }
}

/// The model reads the value's text; other plugins get the value itself.
impl IntoOutcome for Value {
    fn into_outcome(self) -> ToolOutcome {
        let text = self.as_str().map_or_else(|| self.to_string(), str::to_owned);
        ToolOutcome { content: Some(text), value: Some(self), ..ToolOutcome::default() }
    }
}

/// A tool made of a closure. Cloning is cheap.
#[derive(Clone)]
pub struct Tool {
    pub(super) spec: ToolSpec,
    pub(super) body: ToolBody,
}

impl Tool {
    /// A tool. `name` is one of lower-case letters, digits and `_`; `description` is for the model;
    /// `schema` is JSON Schema 2020-12 of an object. The closure gets arguments that fit the schema
    /// and returns text, a JSON value or a [`ToolOutcome`]. Its future is dropped when it takes
    /// longer than the plugin's `limits.wall`, and when nobody waits for it any more.
    ///
    /// Name and schema are checked when a config that uses the plugin is prepared.
    pub fn new<F, W, O>(name: &str, description: &str, schema: Value, body: F) -> Self
    where
        F: Fn(Call) -> W + Send + Sync + 'static,
        W: Future<Output = Result<O, Failure>> + Send + 'static,
        O: IntoOutcome,
    {
        let spec = ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: schema,
            ..ToolSpec::default()
        };
        let body: ToolBody = Arc::new(move |call| {
            let work = body(call);
            Box::pin(async move { work.await.map(O::into_outcome) })
        });
        Self { spec, body }
    }

    /// Returns a tool with the schema of its arguments' type. Doc comments of the type's fields
    /// become descriptions for the model.
    ///
    /// ```
    /// use conclave_runtime::native::{Call, Tool};
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Range {
    ///     /// Nautical miles.
    ///     miles: f64,
    /// }
    ///
    /// let metres = Tool::typed("metres", "A distance at sea in metres.", |range: Range, _: Call| async move {
    ///     Ok(format!("{:.0}", range.miles * 1852.0))
    /// });
    /// # assert_eq!(metres.name(), "metres");
    /// ```
    #[cfg(feature = "schemars")]
    pub fn typed<A, F, W, O>(name: &str, description: &str, body: F) -> Self
    where
        A: DeserializeOwned + schemars::JsonSchema + Send + 'static,
        F: Fn(A, Call) -> W + Send + Sync + 'static,
        W: Future<Output = Result<O, Failure>> + Send + 'static,
        O: IntoOutcome + 'static,
    {
        let schema = schemars::schema_for!(A).to_value();
        let body = Arc::new(body);
        Self::new(name, description, schema, move |call: Call| {
            let body = Arc::clone(&body);
            async move { body(call.parse()?, call).await }
        })
    }

    /// Declares that repeating a call with the same arguments has no further effect.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.spec.idempotent = true;
        self
    }

    /// The tool's name, without the plugin's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Tool").field(&self.spec.name).finish()
    }
}
