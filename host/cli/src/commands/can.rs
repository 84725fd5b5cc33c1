//! `conclave can PLUGIN CAPABILITY [TARGET]`: whether a plugin may do something, by the same
//! decisions that a run makes. Runs nothing but each plugin's list of tools.

use conclave_core::inspect::explain::{
    AccessQuestion, Explanation, LayerVerdict, NoAnswer, UnknownTarget, explain, foreign_option,
    has_target, unknown_target,
};
use conclave_core::permissions::grants::verb;
use conclave_core::tool_calls::arguments::check;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{ModelName, PluginName, TaskName};
use conclave_runtime::Prepared;
use serde_json::Value;

use crate::approve::unfit_arguments;
use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::json_object::object_of_option;
use crate::program::shell::shell;
use crate::state::setup::{self, Models, Warnings};
use crate::ui::show::explanation::{ConfigLines, as_json, lines, print, sentence};
use crate::ui::stdout;

pub(crate) async fn can(args: &args::Can, output: OutputArgs) -> Result<u8, CliError> {
    let question = question(args)?;
    let config = setup::read_config(&args.file, &Models::new())?;
    let (prepared, warnings) = setup::prepare((&args.file, &config), output).await?;
    // Before the answer, whose proposed grant could not give what the config lacks.
    if let Some(unknown) = unknown(&prepared, &question) {
        return Err(unknown);
    }
    check_arguments(args, &prepared)?;
    let explanation = explain(prepared.setup(), &question).map_err(|problem| {
        let (error, setup) = (CliError::usage(problem.to_string()), prepared.setup());
        match &problem {
            NoAnswer::Plugin(name) => {
                let names = setup.plugins.keys().map(PluginName::as_str);
                error.known(name.as_str(), "its plugins are", names)
            }
            NoAnswer::Task(name) => {
                let names = setup.tasks.keys().map(TaskName::as_str);
                error.known(name.as_str(), "its tasks are", names)
            }
            NoAnswer::OtherAgent { .. } => error,
        }
    })?;
    let at = ConfigLines { config: Some(&config), file: &args.file };
    if output.json {
        let mut value = as_json(&explanation, &at);
        value["type"] = "can".into();
        value["exit_code"] = code(&explanation).into();
        stdout::json(value)?;
    } else {
        let about = sentence(&explanation, verb(question.capability, question.writes));
        let rows = lines(&explanation, &about, &at);
        let rows = if output.quiet { &rows[..1] } else { &rows[..] };
        print(rows)?;
    }
    if !output.quiet {
        setup::report_warnings(&warnings, &args.file, Warnings::Counted);
    }
    Ok(code(&explanation))
}

fn question(args: &args::Can) -> Result<AccessQuestion, CliError> {
    let capability = Capability::from_name(&args.capability).ok_or_else(|| {
        let known = Capability::ALL.iter().map(|capability| capability.as_str());
        CliError::usage(format!("the capability {} does not exist", args.capability)).known(
            &args.capability,
            "the capabilities are",
            known,
        )
    })?;
    check_options(args, capability)?;
    let arguments = match &args.arguments {
        Some(text) => object_of_option("--arguments", text)?,
        None => Value::Object(serde_json::Map::new()),
    };
    Ok(AccessQuestion {
        target: args.target.clone(),
        writes: args.write,
        method: args.method.as_deref().unwrap_or("GET").to_ascii_uppercase(),
        headers: args.header.iter().map(|name| name.to_ascii_lowercase()).collect(),
        host: args.host.clone(),
        arguments,
        task: args.task.as_deref().map(TaskName::from),
        ..AccessQuestion::new(args.plugin.as_str(), capability)
    })
}

/// Refuses a target or an option that the capability does not have. The answer would be about
/// another question.
fn check_options(args: &args::Can, capability: Capability) -> Result<(), CliError> {
    if let Some(target) = &args.target
        && !has_target(capability)
    {
        let what = format!("the capability {capability} has no target, such as {}", shell(target));
        return Err(CliError::usage(what)
            .hint(format!("ask about all of it: conclave can {} {capability}", args.plugin)));
    }
    let is_given = |option: &str| match option {
        "write" => args.write,
        "method" => args.method.is_some(),
        "header" => !args.header.is_empty(),
        "host" => args.host.is_some(),
        _ => args.arguments.is_some(),
    };
    if let Some((option, of)) = foreign_option(capability, is_given) {
        let what = format!("--{option} has no meaning for the capability {capability}");
        return Err(CliError::usage(what).hint(format!("it is for `conclave can PLUGIN {of}`")));
    }
    Ok(())
}

/// Refuses arguments with which a run would not make the call.
fn check_arguments(args: &args::Can, prepared: &Prepared) -> Result<(), CliError> {
    let tool = args.target.as_deref().and_then(|name| prepared.setup().tool(name));
    let (Some((_, tool)), Some(text)) = (tool, &args.arguments) else { return Ok(()) };
    // `question` has refused arguments that are not JSON.
    let arguments: Value = serde_json::from_str(text).unwrap_or_default();
    check(&tool.input_schema, &arguments)
        .map(drop)
        .map_err(|wrong| unfit_arguments(args.target.as_deref().unwrap_or_default(), &wrong))
}

/// The error for a target that the config lacks, and that no grant could give.
fn unknown(prepared: &Prepared, question: &AccessQuestion) -> Option<CliError> {
    let setup = prepared.setup();
    let unknown = unknown_target(setup, question)?;
    let error = CliError::usage(unknown.to_string());
    Some(match &unknown {
        UnknownTarget::HostTool(target) => {
            let plugin = &question.plugin;
            error.hint(format!(
                "an agent needs no grant for it: the `tools` of its task offer it; a tool that steers the task of its caller needs `grants.route`: conclave can {plugin} route {target}"
            ))
        }
        UnknownTarget::Tool(target) => {
            let tools = prepared.tools();
            if tools.is_empty() {
                error.hint("no plugin of this config has tools")
            } else {
                error.known(target, "the tools are", tools.iter().map(String::as_str))
            }
        }
        UnknownTarget::Model(target) => {
            let known = setup.models.keys().map(ModelName::as_str);
            error.known(target, "the models are", known)
        }
        UnknownTarget::Task(target) => {
            let known = setup.tasks.keys().map(TaskName::as_str);
            error.known(target, "the tasks are", known)
        }
    })
}

fn code(explanation: &Explanation) -> u8 {
    match explanation.verdict {
        LayerVerdict::Yes => exit::OK,
        LayerVerdict::Ask => exit::POLICY,
        LayerVerdict::No | LayerVerdict::NotReached => exit::FAILED,
    }
}
