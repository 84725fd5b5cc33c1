//! The traits that `#[tool]` implements, and the facts about a call. The macro writes the impls;
//! authors only read `Call`.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bindings::tool::conclave::plugin::call;
use crate::bindings::tool::exports::conclave::plugin::tools::{Outcome, ToolSpec};
use crate::{Error, Result};

/// A function that `#[tool]` marked. The macro implements it for a type of the function's name.
#[doc(hidden)]
pub trait Tool {
    /// The description that the host reads at admission.
    fn spec() -> ToolSpec;

    /// Runs the tool. `call` is called only if the function takes a `&Call`, because each fact
    /// costs a call to the host.
    fn call(arguments: &str, call: &dyn Fn() -> Call) -> Result<Outcome>;
}

/// Tools that are known only from the plugin's settings; `export!(toolset: X)` exports them.
///
/// ```
/// use conclave_sdk::{Call, Outcome, Result, ToolSpec, Toolset, config};
///
/// /// One tool for each phrase of the settings.
/// struct Phrases;
///
/// impl Toolset for Phrases {
///     fn list() -> Result<Vec<ToolSpec>> {
///         let phrases: std::collections::BTreeMap<String, String> = config::get()?;
///         Ok(phrases.into_keys().map(|name| ToolSpec::new(name, "Says its phrase.", r#"{"type":"object"}"#)).collect())
///     }
///
///     fn call(name: &str, _: serde_json::Value, _: &Call) -> Result<Outcome> {
///         let phrases: std::collections::BTreeMap<String, String> = config::get()?;
///         Ok(Outcome::text(phrases.get(name).map(String::as_str).unwrap_or_default()))
///     }
/// }
/// # conclave_sdk::export!(toolset: Phrases, asks: []);
/// # assert!(Phrases::list().unwrap().is_empty());
/// ```
pub trait Toolset {
    /// Returns the tools when the plugin is admitted. Its settings can be read, and nothing is
    /// granted.
    fn list() -> Result<Vec<ToolSpec>>;

    /// Runs one of the tools.
    fn call(name: &str, arguments: Value, call: &Call) -> Result<Outcome>;
}

impl ToolSpec {
    /// Returns a tool without any optional fields; `input_schema` is the JSON Schema of an object.
    ///
    /// `extra` takes `title`, `result-tokens`, `retained-tokens` and `examples`, each with a value
    /// in JSON; `#[tool(title = "Find")]` sets them too.
    ///
    /// ```
    /// use conclave_sdk::{Extra, ToolSpec};
    ///
    /// let mut find = ToolSpec::new("find", "Finds lines.", r#"{"type":"object"}"#);
    /// find.extra.push(Extra { key: "result-tokens".into(), value: "2000".into() });
    /// find.extra.push(Extra { key: "title".into(), value: r#""Find""#.into() });
    /// assert_eq!(find.extra.len(), 2);
    /// ```
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema: input_schema.into(),
            output_schema: None,
            idempotent: false,
            extra: Vec::new(),
        }
    }
}

/// Facts about the call that a tool serves, stamped by the host. A tool gets them by taking a
/// `&Call`, which is no argument that the model sees.
///
/// ```
/// use conclave_sdk::{Call, tool};
///
/// /// Says who is asking.
/// #[tool]
/// fn whoami(call: &Call) -> String {
///     call.caller.clone()
/// }
///
/// let call = Call { caller: "librarian".into(), ..Call::default() };
/// assert_eq!(whoami(&call), "librarian");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The id that all attempts at this call share: the key for idempotent work.
    pub call_id: String,
    /// The number of the attempt, from 1; above 1 only after an interrupted attempt.
    pub attempt: u32,
    /// The task that the call belongs to.
    pub task_name: String,
    /// The room in which the task runs.
    pub room_id: String,
    /// The plugin of the agent that called.
    pub caller: String,
    /// Milliseconds that were left for the call when it began.
    pub deadline_ms: u64,
    /// W3C trace context.
    pub traceparent: String,
}

impl Call {
    /// The facts of the current call.
    pub(crate) fn read() -> Self {
        Self {
            call_id: call::call_id(),
            attempt: call::attempt(),
            task_name: call::task_name(),
            room_id: call::room_id(),
            caller: call::caller(),
            deadline_ms: call::deadline_ms(),
            traceparent: call::traceparent(),
        }
    }
}

/// A type of a tool's parameter. Every type with both derives is one.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "it lacks `serde::Deserialize` or `schemars::JsonSchema`",
    note = "write `#[derive(serde::Deserialize, schemars::JsonSchema)]` on the type, with `serde` and `schemars` in its Cargo.toml",
    note = "for a type of another crate: take a `String` or a `serde_json::Value`, and convert it"
)]
pub trait Argument: DeserializeOwned + JsonSchema {}

// Otherwise the compiler reports the derive that is missing, without the remedy.
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> Argument for T {}

/// The arguments of one call, taken out one by one so that an error names the wrong one.
#[doc(hidden)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// Parses the arguments. Fails if the text is not a JSON object.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map(Self).map_err(|error| {
            Error::InvalidArguments(format!("the arguments are no JSON object: {error}"))
        })
    }

    /// Takes an argument. An absent one reads as null, so an `Option` becomes `None`, and any other
    /// type reports it as missing.
    pub fn take<T: Argument>(&mut self, name: &str) -> Result<T> {
        match self.0.remove(name) {
            Some(value) => serde_json::from_value(value)
                .map_err(|error| Error::InvalidArguments(format!("{name}: {error}"))),
            None => serde_json::from_value(Value::Null)
                .map_err(|_| Error::InvalidArguments(format!("{name}: is missing"))),
        }
    }

    /// Fails if an argument is left that no parameter took.
    pub fn finish(self) -> Result<()> {
        match self.0.keys().next() {
            Some(name) => {
                Err(Error::InvalidArguments(format!("{name}: there is no such argument")))
            }
            None => Ok(()),
        }
    }
}

/// The JSON Schema of a tool's arguments: one object without `$ref`, because not every model
/// provider resolves them.
#[doc(hidden)]
pub fn input_schema<T: JsonSchema>() -> String {
    let mut schema = settings().into_generator().into_root_schema_for::<T>();
    // The generated struct's name and doc comment mean nothing to a model.
    schema.remove("title");
    schema.remove("description");
    // A tool without parameters: providers require the key nevertheless.
    schema.ensure_object().entry("properties").or_insert_with(|| Value::Object(Map::new()));
    schema.to_value().to_string()
}

/// The JSON Schema of a tool's structured result.
pub(crate) fn output_schema<T: JsonSchema>() -> String {
    let generator = settings().for_serialize().into_generator();
    generator.into_root_schema_for::<T>().to_value().to_string()
}

fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings
}
