//! The first run of a component, with limits, its own settings and no grants. It checks the types
//! of the exports and lists the tools. The model sees this list from then on.

use std::collections::BTreeSet;
use std::sync::Arc;

use conclave_core::config::invisible_chars::{code_point, in_tool};
use conclave_core::permissions::grants::Grants;
use conclave_core::setup::{PluginFacts, PluginSetup};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::Fault;
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::tool::ToolSpec;
use serde_json::Value;
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::LoadError;
use super::kinds::Exports;
use crate::calls::{CallStart, NoEffects, NoModels, NoSignatures, NoTools, Observer};
use crate::imports::bindings::exports::conclave::plugin::tools;
use crate::imports::call::{CallInput, PluginContext};
use crate::imports::convert::{spec_in, text_in};
use crate::imports::state::CallState;
use crate::observe::subscribe::Level;
use crate::sandbox::engine::Engine;
use crate::sandbox::plain::is_tool_name;
use crate::sandbox::run::{self, GuestCall};
use crate::support::escape::excerpt;

/// Maximum tools of one plugin.
const TOOLS: usize = 128;
/// Maximum bytes of a tool's description, which every model call carries.
const DESCRIPTION: usize = 16 << 10;
/// Maximum bytes of all texts that describe the tools of one plugin.
const LISTED: u64 = 1 << 20;

/// Starts the component once and lists its tools; empty if it exports none.
///
/// # Errors
/// `NotStarted` if it does not start, `Types` if an export has the wrong type, `Listing` if it
/// cannot list its tools, `Tool` if one of them is invalid.
pub(super) async fn probe(
    engine: &Engine,
    code: &InstancePre<CallState>,
    exports: &Exports,
    facts: PluginFacts,
    limits: &PluginLimits,
    settings: Value,
) -> Result<Vec<ToolSpec>, LoadError> {
    let name = PluginName::from(facts.manifest.name.as_str());
    let setup =
        PluginSetup { facts, grants: Grants::default(), limits: limits.clone(), config: settings };
    let context = Arc::new(
        PluginContext::new(name.clone(), Arc::new(setup))
            .expect("nothing is granted, so there is no folder to open"),
    );
    let start = CallStart {
        room: RoomId::from("load"),
        // The tool list is the same at every load, so its randomness need not be secret.
        secret: RoomSecret::WITHHELD,
        call: CallId(0),
        plugin: name,
        setup: None,
        now: Millis(0),
        scratch: Arc::default(),
        trace: Arc::default(),
        task: None,
        models: Arc::new(NoModels),
        tools: Arc::new(NoTools),
        effects: Arc::new(NoEffects),
        signatures: Arc::new(NoSignatures),
        observer: Arc::new(NoHost),
    };
    let state = Box::new(CallState::new(context, start, CallInput::Nothing));
    let (listed, _) = run::run(engine, code, None, state, &ListTools(exports)).await;
    if let (Ok(Ok(_)), Some(plain)) = (&listed, exports.plain()) {
        let specs = plain.specs();
        return off_the_loop(|| checked(specs)).await;
    }
    match listed {
        Err(fault) => Err(LoadError::NotStarted(fault)),
        Ok(Err(cause)) => Err(LoadError::Types(excerpt(&cause, 600))),
        Ok(Ok(None)) => Ok(Vec::new()),
        Ok(Ok(Some(Err(error)))) => Err(LoadError::Listing(sentence(error))),
        Ok(Ok(Some(Ok(specs)))) => off_the_loop(|| read(specs)).await,
    }
}

/// Reads what a plugin listed on a blocking thread: a megabyte of JSON takes a while.
async fn off_the_loop(
    read: impl FnOnce() -> Result<Vec<ToolSpec>, LoadError> + Send + 'static,
) -> Result<Vec<ToolSpec>, LoadError> {
    let reading = tokio::task::spawn_blocking(read);
    reading.await.unwrap_or_else(|panic| Err(LoadError::Listing(excerpt(&panic.to_string(), 600))))
}

struct ListTools<'a>(&'a Exports);

/// `None` if it exports no tools.
type Listed = Option<Result<Vec<tools::ToolSpec>, tools::ToolError>>;

impl GuestCall for ListTools<'_> {
    /// The outer error reports an export of the wrong type.
    type Answer = Result<Listed, String>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        // Before any export is called, so that a type mismatch is reported as such.
        if let Err(cause) = self.0.check_types(store, instance) {
            return Ok(Err(format!("{cause:#}")));
        }
        let Some(indices) = self.0.tools() else { return Ok(Ok(None)) };
        let tools = indices.load(&mut *store, instance)?;
        let listed = tools.call_list_tools(&mut *store).await?;
        store.data().core.meter.check_lists(&listed)?;
        Ok(Ok(Some(listed)))
    }
}

fn sentence(error: tools::ToolError) -> String {
    match error {
        tools::ToolError::InvalidArguments(text) | tools::ToolError::Other(text) => text_in(&text),
        tools::ToolError::Denied(denial) => {
            format!(
                "it was refused {}; tools are listed with nothing granted",
                excerpt(&denial.capability, 32)
            )
        }
        tools::ToolError::Unavailable(_) => "it says that it is not available".to_owned(),
    }
}

fn read(specs: Vec<tools::ToolSpec>) -> Result<Vec<ToolSpec>, LoadError> {
    let texts = |spec: &tools::ToolSpec| {
        spec.description.len()
            + spec.input_schema.len()
            + spec.output_schema.as_ref().map_or(0, String::len)
            + spec.extra.iter().map(|extra| extra.key.len() + extra.value.len()).sum::<usize>()
    };
    let bytes: u64 = specs.iter().map(|spec| texts(spec) as u64).sum();
    let read = specs.into_iter().map(|spec| {
        let name = excerpt(&spec.name, 64);
        spec_in(spec).map_err(|Fault { message, .. }| LoadError::Tool { name, problem: message })
    });
    // Count and bytes first: each description costs work, and JSON in memory takes up to a hundred
    // times as many bytes.
    if read.len() > TOOLS {
        return Err(too_many(read.len()));
    }
    if bytes > LISTED {
        return Err(LoadError::Budget { what: "bytes in the list of its tools", limit: LISTED });
    }
    checked(read.collect::<Result<_, _>>()?)
}

fn too_many(count: usize) -> LoadError {
    LoadError::Listing(format!("it lists {count} tools; {TOOLS} are taken"))
}

/// Checks descriptions, which reach models and people.
fn checked(tools: Vec<ToolSpec>) -> Result<Vec<ToolSpec>, LoadError> {
    if tools.len() > TOOLS {
        return Err(too_many(tools.len()));
    }
    let mut names = BTreeSet::new();
    for tool in &tools {
        let refuse = |problem: String| LoadError::Tool { name: excerpt(&tool.name, 64), problem };
        if !is_tool_name(&tool.name) {
            return Err(refuse(
                "its name must be lower-case ASCII letters and digits, with `_` between words"
                    .to_owned(),
            ));
        }
        if !names.insert(&tool.name) {
            return Err(refuse("it is listed twice".to_owned()));
        }
        if tool.description.len() > DESCRIPTION {
            return Err(refuse(format!("its description has more than {DESCRIPTION} bytes")));
        }
        if let Some((place, c)) = in_tool(tool) {
            return Err(refuse(format!(
                "its {place} has a character that a person does not see: {}",
                code_point(c)
            )));
        }
    }
    Ok(tools)
}

/// Discards logs while a plugin is loaded.
struct NoHost;

impl Observer for NoHost {
    fn log(&self, _: CallId, _: Level, _: &str) {}
    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
    fn denied(&self, _: CallId, _: &DenialRecord) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, schema: &str) -> tools::ToolSpec {
        tools::ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            input_schema: schema.to_owned(),
            output_schema: None,
            idempotent: false,
            extra: Vec::new(),
        }
    }

    #[test]
    fn names_of_tools_follow_the_contract() {
        for name in ["find", "read_file", "v2", "to_utf8"] {
            assert!(is_tool_name(name), "{name}");
        }
        for name in ["", "_a", "a_", "a__b", "Find", "read-file", "a.b", "é", "2a", "a b"] {
            assert!(!is_tool_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_tool_that_is_not_right_is_named() {
        let problem = |specs: Vec<tools::ToolSpec>| read(specs).unwrap_err().to_string();
        assert!(problem(vec![spec("a", "{}"); 129]).contains("129 tools; 128 are taken"));
        assert!(problem(vec![spec("a", "{}"), spec("a", "{}")]).contains("listed twice"));
        assert!(problem(vec![spec("a", "no")]).contains("its input schema is not JSON"));
        assert!(problem(vec![spec("a", "[]")]).contains("must be a JSON object"));
        assert!(
            problem(vec![spec("a", "{\"title\":\"\u{e0041}\"}")])
                .contains("its input schema has a character that a person does not see: U+E0041")
        );
        assert!(problem(vec![spec("A\u{1b}", "{}")]).contains("A\\u{1b}"));
    }
}
