//! Components that are not built for the contract, served as tools: each exported function of plain
//! types is a tool, and so is the program of a `wasi:cli/command`.

mod function_docs;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::tool::{ToolError, ToolOutcome, ToolSpec};
use serde_json::{Map, Value, json};
use wasmtime::Store;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, Instance, Type, Val};
use wasmtime_wasi::I32Exit;

use crate::imports::call::wasi::ProgramInput;
use crate::imports::state::CallState;
use crate::support::escape::excerpt;
pub(crate) use function_docs::FunctionDocs;
use values::{TypeWriter, Unserved, WRITTEN};

/// The export of a program, with any version of WASI 0.2.
const PROGRAM: &str = "wasi:cli/run@0.2.";
/// The export by which componentize-py starts its own interpreter before the component is stored.
/// It is part of the toolchain and no function of the author.
const TOOLCHAIN: (&str, &str) = ("exports", "init");
/// The tool of a program.
const RUN: &str = "run";
/// Maximum exported functions that are looked at. Fewer can be tools; the rest is named with the
/// reason why it is none.
const FUNCTIONS: usize = 1_000;
/// Maximum bytes of the description of a function.
const DESCRIPTION: usize = 4 << 10;

/// A component has more than is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// What it has too much of, in the plural.
    pub(crate) what: &'static str,
    /// The limit.
    pub(crate) limit: u64,
}

/// The tools of a component that is not built for the contract.
#[derive(Default)]
pub(crate) struct PlainTools {
    tools: Vec<PlainTool>,
    /// Functions that cannot be tools, with the reasons.
    pub(crate) unserved: Vec<String>,
}

/// A function or a program, served as a tool.
pub(crate) struct PlainTool {
    spec: ToolSpec,
    export: ComponentExportIndex,
    form: PlainForm,
}

enum PlainForm {
    Function { params: Vec<(String, Type)>, result: Option<Type> },
    Program,
}

/// A function as it is found, before its tool has a name.
struct ExportedFunction {
    /// The interface; empty for a function of the component itself.
    interface: Arc<str>,
    name: String,
    export: ComponentExportIndex,
    ty: ComponentFunc,
}

impl PlainTools {
    /// Finds the functions and the program of a component.
    ///
    /// # Errors
    /// `Excess` if it exports too many functions, or their types are too large when they are
    /// written.
    pub(crate) fn find(component: &Component, docs: &FunctionDocs) -> Result<Self, Excess> {
        let engine = component.engine();
        let mut found = Self::default();
        let mut functions = Vec::new();
        let itself: Arc<str> = Arc::default();
        for (name, item) in component.component_type().exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(ty) => {
                    let export = component.get_export_index(None, name);
                    functions.extend(export.map(|export| ExportedFunction {
                        interface: Arc::clone(&itself),
                        name: name.to_owned(),
                        export,
                        ty,
                    }));
                }
                ComponentItem::ComponentInstance(_) if name.starts_with(PROGRAM) => {
                    found.tools.extend(program(component, name));
                }
                ComponentItem::ComponentInstance(interface) => {
                    let Some(instance) = component.get_export_index(None, name) else { continue };
                    let interface_name: Arc<str> = name.into();
                    for (function, item) in interface.exports(engine) {
                        let export = component.get_export_index(Some(&instance), function);
                        if let (ComponentItem::ComponentFunc(ty), Some(export)) = (item.ty, export)
                        {
                            functions.push(ExportedFunction {
                                interface: Arc::clone(&interface_name),
                                name: function.to_owned(),
                                export,
                                ty,
                            });
                        }
                        require_few(&functions)?;
                    }
                }
                _ => {}
            }
            require_few(&functions)?;
        }
        found.add_functions(functions, docs)?;
        Ok(found)
    }

    /// Adds the functions with plain types as tools. A function has its own name unless
    /// another has it too; then the name of its interface precedes it.
    fn add_functions(
        &mut self,
        functions: Vec<ExportedFunction>,
        docs: &FunctionDocs,
    ) -> Result<(), Excess> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        self.tools.iter().for_each(|tool| *counts.entry(tool.spec.name.clone()).or_default() += 1);
        let is_own = |function: &&ExportedFunction| {
            (&*function.interface, function.name.as_str()) != TOOLCHAIN
        };
        for function in functions.iter().filter(is_own) {
            *counts.entry(tool_name(&function.name)).or_default() += 1;
        }
        let mut names: BTreeSet<String> =
            self.tools.iter().map(|tool| tool.spec.name.clone()).collect();
        let mut writer = TypeWriter::default();
        for function in functions {
            if (&*function.interface, function.name.as_str()) == TOOLCHAIN {
                self.unserved
                    .push(format!("{}: it belongs to the toolchain", function.display_name()));
                continue;
            }
            let own = tool_name(&function.name);
            let name = match counts.get(&own) {
                Some(1) | None => own,
                Some(_) => tool_name(&format!("{}-{own}", interface_name(&function.interface))),
            };
            let display = function.display_name();
            let tool = if !is_tool_name(&name) {
                Err(Unserved(format!("{} cannot be the name of a tool", excerpt(&name, 64))))
            } else if names.contains(&name) {
                Err(Unserved(format!("another tool is called {name}")))
            } else {
                let doc = docs.get(&function.interface, &function.name).map(str::to_owned);
                function.tool(name, doc.as_deref(), &mut writer)
            };
            if writer.is_used_up() {
                return Err(Excess {
                    what: "bytes in the types of its functions, written out",
                    limit: WRITTEN as u64,
                });
            }
            match tool {
                Ok(tool) => {
                    names.insert(tool.spec.name.clone());
                    self.tools.push(tool);
                }
                Err(Unserved(why)) => self.unserved.push(format!("{display}: {why}")),
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The descriptions of the tools.
    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec.clone()).collect()
    }

    /// A tool by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&PlainTool> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }
}

fn require_few(functions: &[ExportedFunction]) -> Result<(), Excess> {
    if functions.len() > FUNCTIONS {
        return Err(Excess { what: "exported functions", limit: FUNCTIONS as u64 });
    }
    Ok(())
}

fn program(component: &Component, name: &str) -> Option<PlainTool> {
    let instance = component.get_export_index(None, name)?;
    let export = component.get_export_index(Some(&instance), "run")?;
    let input_schema = json!({
        "type": "object",
        "properties": {
            "arguments": { "type": "array", "items": { "type": "string" }, "description": "The arguments on its command line, without its own name." },
            "stdin": { "type": "string", "description": "Its standard input." },
        },
        "additionalProperties": false,
    });
    let spec = ToolSpec {
        name: RUN.to_owned(),
        description: "Runs the program, and returns what it prints. An exit code other than 0 is an error with what it printed on standard error.".to_owned(),
        input_schema,
        ..ToolSpec::default()
    };
    Some(PlainTool { spec, export, form: PlainForm::Program })
}

impl ExportedFunction {
    /// Its name with that of its interface, as text for a person.
    fn display_name(&self) -> String {
        let name = excerpt(&self.name, 200);
        match &*self.interface {
            "" => name,
            interface => format!("{}.{name}", excerpt(interface, 200)),
        }
    }

    /// # Errors
    /// If one of its types cannot be written as JSON.
    fn tool(
        self,
        name: String,
        doc: Option<&str>,
        writer: &mut TypeWriter,
    ) -> Result<PlainTool, Unserved> {
        if self.ty.async_() {
            return Err(Unserved("it is asynchronous, and this host calls plain functions".into()));
        }
        writer.begin();
        writer.count([&*self.interface, &*self.name])?;
        writer.count(self.ty.params().map(|(name, _)| name))?;
        let params: Vec<(String, Type)> =
            self.ty.params().map(|(name, ty)| (name.to_owned(), ty)).collect();
        let result = self.ty.results().next();
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut signature = Vec::new();
        for (param, ty) in &params {
            properties.insert(param.clone(), writer.schema(ty)?);
            signature.push(format!("{param}: {}", writer.text(ty)?));
            if !matches!(ty, Type::Option(_)) {
                required.push(param.clone());
            }
        }
        let mut signature = format!("{}({})", self.name, signature.join(", "));
        let mut output_schema = None;
        if let Some(ty) = &result {
            signature += &format!(" -> {}", writer.text(ty)?);
            // An error is reported as the error of the tool.
            output_schema = match ty {
                Type::Result(result) => result.ok().map(|ok| writer.schema(&ok)).transpose()?,
                ty => Some(writer.schema(ty)?),
            };
        }
        let mut input_schema = json!({
            "type": "object", "properties": properties, "additionalProperties": false,
        });
        if !required.is_empty() {
            input_schema["required"] = json!(required);
        }
        let place = match &*self.interface {
            "" => "the component".to_owned(),
            interface => interface.to_owned(),
        };
        let about = match doc {
            Some(doc) => doc.to_owned(),
            None => format!("A function of {place}, with its types in WIT."),
        };
        let description = format!("{signature}\n\n{about}");
        if description.len() > DESCRIPTION {
            return Err(Unserved(format!("its types take more than {DESCRIPTION} bytes as WIT")));
        }
        let spec =
            ToolSpec { name, description, input_schema, output_schema, ..ToolSpec::default() };
        Ok(PlainTool { spec, export: self.export, form: PlainForm::Function { params, result } })
    }
}

impl PlainTool {
    /// The arguments and the input with which the program is started; `None` for a function.
    pub(crate) fn program_input(&self, arguments: &str) -> Option<ProgramInput> {
        if let PlainForm::Function { .. } = self.form {
            return None;
        }
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let list = arguments.get("arguments").and_then(Value::as_array).into_iter().flatten();
        let stdin = arguments.get("stdin").and_then(Value::as_str).unwrap_or_default();
        Some(ProgramInput {
            arguments: list.filter_map(Value::as_str).map(str::to_owned).collect(),
            stdin: stdin.to_owned(),
        })
    }

    /// Calls it with arguments that fit its schema.
    pub(crate) async fn call(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
        arguments: &str,
    ) -> wasmtime::Result<Result<ToolOutcome, ToolError>> {
        let Some(function) = instance.get_func(&mut *store, self.export) else {
            let fault = Fault::new(FaultKind::NotStarted, "the instance lacks the export");
            return Ok(Err(ToolError::Fault { fault }));
        };
        match &self.form {
            PlainForm::Program => {
                let mut results = [Val::Bool(false)];
                let ended = function.call_async(&mut *store, &[], &mut results).await;
                let code = match ended {
                    Ok(()) => i32::from(!matches!(results, [Val::Result(Ok(_))])),
                    Err(error) => match error.downcast_ref::<I32Exit>() {
                        Some(exit) => exit.0,
                        None => return Err(error),
                    },
                };
                Ok(ended_program(store.data(), code))
            }
            PlainForm::Function { params, result } => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                let arguments: Result<Vec<Val>, String> = params
                    .iter()
                    .map(|(name, ty)| {
                        let value = arguments.get(name).unwrap_or(&Value::Null);
                        values::from_json(value, ty).map_err(|why| format!("`{name}`: {why}"))
                    })
                    .collect();
                let arguments = match arguments {
                    Ok(arguments) => arguments,
                    Err(message) => return Ok(Err(ToolError::InvalidArguments { message })),
                };
                let mut results = vec![Val::Bool(false); usize::from(result.is_some())];
                function.call_async(&mut *store, &arguments, &mut results).await?;
                Ok(outcome(results.pop()))
            }
        }
    }
}

/// Returns what a program printed, or its error.
fn ended_program(state: &CallState, code: i32) -> Result<ToolOutcome, ToolError> {
    let (stdout, stderr) = state.wasi.printed();
    if code == 0 {
        return Ok(ToolOutcome { content: Some(stdout), ..ToolOutcome::default() });
    }
    let mut message = format!("it ended with exit code {code}");
    for (stream, text) in [("standard error", stderr), ("standard output", stdout)] {
        if !text.trim().is_empty() {
            message += &format!("\n{stream}:\n{text}");
        }
    }
    Err(ToolError::Other { message })
}

/// Returns the result of a function; the error of a `result` is the tool's error.
fn outcome(result: Option<Val>) -> Result<ToolOutcome, ToolError> {
    let value = match result {
        None | Some(Val::Result(Ok(None))) => None,
        Some(Val::Result(Ok(Some(value)))) => Some(values::to_json(&value)),
        Some(Val::Result(Err(error))) => {
            let message = match error {
                None => "it reported an error without a text".to_owned(),
                Some(error) => plain_text(&values::to_json(&error)),
            };
            return Err(ToolError::Other { message });
        }
        Some(value) => Some(values::to_json(&value)),
    };
    let content = value.as_ref().map_or_else(|| "done".to_owned(), plain_text);
    Ok(ToolOutcome { content: Some(content), value, ..ToolOutcome::default() })
}

/// A text as it is, and any other value as JSON.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The name of a function as the name of a tool: lower-case words with `_` between them. `[method]`
/// and the like stay, and make the name invalid.
fn tool_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// Whether the contract allows the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.split('_').all(word)
}

/// `calc` of `acme:math/calc@1.0.0`.
fn interface_name(interface: &str) -> &str {
    let name = interface.rsplit_once('/').map_or(interface, |(_, name)| name);
    name.split('@').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_names_of_tools() {
        assert_eq!(tool_name("to-UTF8-text"), "to_utf8_text");
        assert_eq!(interface_name("acme:math/calc@1.0.0"), "calc");
        assert_eq!(interface_name("calc"), "calc");
    }
}
