//! Policy rules about tools and arguments that do not exist, and tasks that narrow what was not
//! granted. These are warnings: a rule that never matches denies nothing, without any sign of it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Plugins;
use crate::config::{Config, ProblemCode, Problems};
use crate::permissions::policy_rules::{ArgumentPlace, glob};
use crate::permissions::task_scope::TaskScope;
use crate::types::wording::{code, suggest};

/// Adds a warning for each.
pub(super) fn check(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    let schemas: Vec<(String, &Value)> = plugins
        .iter()
        .flat_map(|(plugin, facts)| {
            facts
                .tools
                .iter()
                .map(move |tool| (format!("{plugin}.{}", tool.name), &tool.input_schema))
        })
        .collect();
    for (index, rule) in config.policy.iter().enumerate() {
        let covered: Vec<&Value> = schemas
            .iter()
            .filter(|(tool, _)| rule.covers(tool))
            .map(|(_, schema)| *schema)
            .collect();
        if covered.is_empty() {
            let tools: Vec<&str> = schemas.iter().map(|(tool, _)| tool.as_str()).collect();
            let at = format!("policy[{index}].tool");
            let why = "the rule never applies";
            no_tool(config, (&at, "rule"), &rule.tool.0, &tools, why, problems);
            continue;
        }
        for argument in &rule.arguments {
            no_argument(config, index, &argument.at, &covered, problems);
        }
    }
    let tools: Vec<&str> = schemas.iter().map(|(tool, _)| tool.as_str()).collect();
    for (index, gate) in config.gates.iter().enumerate() {
        for (place, pattern) in gate.tools.iter().enumerate() {
            if tools.iter().any(|tool| glob::covers(&pattern.0, tool)) {
                continue;
            }
            let at = format!("gates[{index}].tools[{place}]");
            let why = "the gate is never asked about it";
            no_tool(config, (&at, "gate"), &pattern.0, &tools, why, problems);
        }
    }
    for (name, task) in &config.tasks {
        for (key, scope_entry, granted) in not_granted(config, &task.setup.agent, &task.setup.scope)
        {
            let what = format!(
                "{} in `scope` of the task `{name}` was not granted to its agent `{}`, so it has no effect",
                code(&scope_entry),
                task.setup.agent
            );
            let help = suggest(&scope_entry, &granted, "granted are").unwrap_or_else(|| {
                format!("nothing of `{key}` is granted in [plugins.{}]", task.setup.agent)
            });
            problems.push(
                config
                    .problem(ProblemCode::NoEffect, &format!("tasks.{name}.scope.{key}"), what)
                    .help(help)
                    .as_warning(),
            );
        }
    }
}

fn no_tool(
    config: &Config,
    (at, who): (&str, &str),
    pattern: &str,
    tools: &[&str],
    why: &str,
    problems: &mut Problems,
) {
    let what = format!("the {who} covers {}, and no plugin has such a tool", code(pattern));
    let help = suggest(pattern, tools, "tools here")
        .unwrap_or_else(|| "no plugin here has tools".to_owned());
    problems
        .push(config.problem(ProblemCode::NoEffect, at, what).because(why).help(help).as_warning());
}

fn no_argument(
    config: &Config,
    index: usize,
    at: &ArgumentPlace,
    schemas: &[&Value],
    problems: &mut Problems,
) {
    let name = at.property();
    let mut known = BTreeSet::new();
    for schema in schemas {
        match properties(schema) {
            Some(names) => known.extend(names),
            None => return,
        }
    }
    if known.contains(name.as_str()) {
        return;
    }
    let known: Vec<&str> = known.into_iter().collect();
    let what = format!("no tool that the rule covers has an argument {}", code(&name));
    let help = suggest(&name, &known, "arguments are")
        .unwrap_or_else(|| "its tools have no arguments".to_owned());
    let path = format!("policy[{index}].arguments.{}", at.0);
    problems.push(
        config
            .problem(ProblemCode::NoEffect, &path, what)
            .because("an absent argument matches nothing")
            .help(help)
            .as_warning(),
    );
}

/// The names of a tool's arguments; `None` if it may have others too.
fn properties(schema: &Value) -> Option<impl Iterator<Item = &str>> {
    let is_open = [
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "$dynamicRef",
        "if",
        "patternProperties",
        "dependentSchemas",
    ];
    if is_open.iter().any(|key| schema.get(key).is_some())
        || schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
    {
        return None;
    }
    let names = schema.get("properties").and_then(Value::as_object);
    Some(names.into_iter().flat_map(|names| names.keys().map(String::as_str)))
}

/// The key of `scope`, the name in it, and the existing grants.
fn not_granted(
    config: &Config,
    agent: &crate::types::ids::PluginName,
    narrow: &TaskScope,
) -> Vec<(&'static str, String, Vec<String>)> {
    let Some(grants) = config.plugins.get(agent).map(|agent| &agent.grants) else {
        return Vec::new();
    };
    let texts = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>();
    let mut found = Vec::new();
    let mut compare = |key, scope: Option<Vec<String>>, granted: Vec<String>| {
        for name in scope.into_iter().flatten().filter(|name| !granted.contains(name)) {
            found.push((key, name, granted.clone()));
        }
    };
    let model = grants.model.iter().flat_map(|grant| &grant.names).map(ToString::to_string);
    compare(
        "model",
        narrow.model.as_ref().map(|names| texts(&mut names.iter().map(ToString::to_string))),
        texts(&mut { model }),
    );
    let delegate = grants.delegate.iter().flat_map(|grant| &grant.tasks).map(ToString::to_string);
    compare(
        "delegate",
        narrow.delegate.as_ref().map(|names| texts(&mut names.iter().map(ToString::to_string))),
        texts(&mut { delegate }),
    );
    let files = grants.files.iter().map(|grant| grant.at.clone());
    compare("files", narrow.files.clone(), texts(&mut { files }));
    let secrets = grants.secrets.iter().map(|grant| grant.name.to_string());
    compare(
        "secrets",
        narrow.secrets.as_ref().map(|names| texts(&mut names.iter().map(ToString::to_string))),
        texts(&mut { secrets }),
    );
    let route = grants.route.iter().flat_map(|grant| grant.names.clone());
    compare("route", narrow.route.clone(), texts(&mut { route }));
    if grants.fetch.is_none() {
        compare(
            "fetch",
            narrow.fetch.as_ref().map(|urls| texts(&mut urls.iter().map(ToString::to_string))),
            Vec::new(),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::permissions::manifest::Manifest;
    use crate::setup::{PluginFacts, Provenance};
    use crate::types::tool::ToolSpec;

    #[test]
    fn a_rule_that_never_holds_and_an_empty_narrowing_are_warnings() {
        let text = "entry = \"t\"\n[plugins.p]\nsource = \"p.wasm\"\ngrants.files = [{ dir = \"notes\", at = \"/notes\" }]\n\
            [tasks.t]\nagent = \"p\"\nscope = { files = [\"/note\"] }\n\
            [[policy]]\ntool = \"p.sav\"\ndecide = \"deny\"\n\
            [[policy]]\ntool = \"p.save\"\narguments = { pth = \"/x\", path = \"/y\" }\ndecide = \"deny\"\n";
        let config =
            Config::parse("c.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"));
        let spec = json!({ "name": "save", "description": "d", "input_schema": { "type": "object", "properties": { "path": {} } } });
        let tools: Vec<ToolSpec> = vec![serde_json::from_value(spec).expect("it is a tool")];
        let facts = PluginFacts {
            manifest: Manifest::default(),
            kinds: [].into(),
            tools,
            sha256: String::new(),
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        };
        let mut problems = Problems::default();
        check(&config, &[("p".into(), facts)].into(), &mut problems);
        assert!(!problems.has_errors(), "{problems}");
        let found: Vec<(usize, ProblemCode, Option<&str>)> = problems
            .0
            .iter()
            .map(|problem| (problem.line, problem.code, problem.remedy.as_deref()))
            .collect();
        let expected = [
            (9, ProblemCode::NoEffect, Some("did you mean `p.save`?")),
            (13, ProblemCode::NoEffect, Some("did you mean `path`?")),
            (7, ProblemCode::NoEffect, Some("did you mean `/notes`?")),
        ];
        assert_eq!(found, expected, "{problems}");
    }
}
