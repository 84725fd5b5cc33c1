//! Small configs and plugins. The only module that calls the API.

use std::collections::{BTreeMap, BTreeSet};

use conclave_core::config::assemble::{Assembly, assemble};
use conclave_core::config::{Config, Problems};
use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use conclave_core::setup::{PluginFacts, Provenance};
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolSpec;
use serde_json::{Value, json};

/// The smallest config, with additional lines in its parts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'a> {
    pub top: &'a str,
    pub plugin: &'a str,
    pub task: &'a str,
    pub end: &'a str,
}

impl Parts<'_> {
    pub(crate) fn text(self) -> String {
        let Self { top, plugin, task, end } = self;
        format!(
            "entry = \"desk\"\n{top}\n[plugins.chat]\nsource = \"stock:chat\"\n{plugin}\n[tasks.desk]\nagent = \"chat\"\n{task}\n{end}\n"
        )
    }
}

/// The config of the design document, without later features.
pub(crate) const LIBRARY: &str = r#"#:schema ./conclave.schema.json
entry = "desk"                          # the task that gets the message

[models.default]
kind = "scripted"
replies = "replies.json"
input_price = 0.25
output_price = 2

[plugins.coordinator]
source = "stock:pipeline"
grants.route = ["answer", "user", "done"]
grants.delegate = { tasks = ["digest"], at_once = 1, total = 1 }

[plugins.librarian]
source = "stock:chat"
grants.tools = ["search.*", "notes.save"]
grants.model = { names = ["default"], tokens = 50_000, cost_usd = 0.20 }

[plugins.search]
source = "stock:search"
grants.files = [{ dir = "docs", at = "/folder", mode = "read" }]
limits = { memory = "64 MiB", cpu = "500 ms", wall = "2 s", output = "256 KiB" }

[plugins.digest]
source = "stock:chat"
grants.tools = { names = ["search.read"], calls = 10 }

[plugins.notes]
source = "./notes.wasm"
grants.files = ["./notes"]
config = { greeting = "hello" }

[plugins.immediate]
source = "stock:immediate"
grants.channels = { names = ["terminal"], messages = 5 }

[tasks.desk]
agent = "coordinator"
subtasks = ["answer"]
[tasks.answer]
agent = "librarian"
tools = ["search.find", "notes.save"]
[tasks.digest]
agent = "digest"
delivery_strategy = "immediate"

[limits.run]
wall = "5 min"
turns = 40
cost_usd = 0.50
"#;

/// Every rule of a task, each with a value other than its default.
pub(crate) const RULES: &str = r#"entry = "Desk"

[plugins.chat]
source = "stock:chat"
grants.tools = ["search.*"]

[plugins.search]
source = "stock:search"

[tasks.Desk]
scope = { route = ["user"], read_only = true }
agent = "chat"
description = "D"
system = "S"
user_message = "M"
subtasks = ["Answer-1"]
tools = ["search.*", "done", { tool = "search.find", as = "find", title = "Find", use = true, handle = false, final = true, result_tokens = 9, retained_tokens = 8 }, { tool = "recipient_message", recipients = ["answer-1", "user"], default_recipient = "user" }]
force_tool = "find"
interactive = true
only_user_quits_root = false
default_human_response = "H"
single_round = true
llm_delegate = true
max_stalled_steps = 2
restart = false
restart_as_subtask = true
erase_substeps = true
done_if_response = ["llm", "Answer-1"]
done_if_no_response = ["agent"]
done_if_tool = true
done_sequences = ["T[find], A", "C[a,b]"]
returns = { tool = "search.read" }
on_no_tool_call = { tool = "find", arguments = { query = "q", n = 1 } }
agent_responder = "host"
responders = ["llm", "agent"]
allow_null_result = true
tool_format = "xml"
allow_multiple_tools = false
respond_tools_only = true
allow_subtask_multi_tools = false
overflow = "drop-turns"
bytes_per_token = 3
loop_detection = { cycle_len = 4, dominance = 2, repeats = 3, alternation = false }
text_rules = { signals = true, recipients = true, address_prefix = "|@|", calls = true, system_prefix = true }

[tasks.Answer-1]
agent = "chat"
"#;

/// Parses a config, and checks that the schema accepts the same keys as the parser.
pub(crate) fn parse(text: &str) -> Result<Config, Problems> {
    let parsed = Config::parse("conclave.toml", "/home/ann/library", text);
    crate::schema::agrees(text, &parsed);
    parsed
}

/// Returns a valid config.
pub(crate) fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns the problems of an invalid config.
pub(crate) fn refused(text: &str) -> Problems {
    parse(text).expect_err("the config should be refused")
}

/// Returns the problems of an invalid config, for snapshots of their texts.
pub(crate) fn bad(text: &str) -> String {
    refused(text).to_string()
}

/// Returns the problems of a config that does not fit its plugins.
pub(crate) fn unfit(text: &str, plugins: &BTreeMap<PluginName, PluginFacts>) -> Problems {
    assemble(&good(text), plugins).expect_err("they should not fit")
}

/// Returns a plugin of these kinds that requests these capabilities; a `?` after one makes it
/// optional.
pub(crate) fn plugin(kinds: &[PluginKind], asks: &[&str], tools: &[&str]) -> PluginFacts {
    let ask = |name: &&str| {
        let plain = name.trim_end_matches('?');
        (
            plain.to_owned(),
            CapabilityRequest {
                why: format!("Needs {plain} to work."),
                optional: plain != *name,
                detail: BTreeMap::new(),
            },
        )
    };
    PluginFacts {
        manifest: Manifest {
            format: FORMAT,
            name: "some".into(),
            version: "0.1.0".into(),
            contract: CONTRACT.into(),
            asks: asks.iter().map(ask).collect(),
            ..Manifest::default()
        },
        kinds: kinds.iter().copied().collect::<BTreeSet<_>>(),
        tools: tools.iter().map(|name| tool(name)).collect(),
        sha256: "00".repeat(32),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    }
}

pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: json!({ "type": "object" }),
        ..ToolSpec::default()
    }
}

/// Returns the plugins of `LIBRARY`.
pub(crate) fn library() -> BTreeMap<PluginName, PluginFacts> {
    let mut notes = plugin(&[PluginKind::Tools], &["files"], &["save"]);
    notes.manifest.config.insert("greeting".into(), json!({ "type": "string" }));
    notes.manifest.config.insert("size".into(), json!({ "type": "integer", "default": 3 }));
    by_name([
        ("coordinator", plugin(&[PluginKind::Agent], &["route", "delegate"], &[])),
        ("librarian", plugin(&[PluginKind::Agent], &["tools", "model?"], &[])),
        ("search", plugin(&[PluginKind::Tools], &["files", "log"], &["find", "read"])),
        ("digest", plugin(&[PluginKind::Agent], &["tools"], &[])),
        ("notes", notes),
        ("immediate", plugin(&[PluginKind::DeliveryStrategy], &["channels"], &[])),
    ])
}

pub(crate) fn by_name<const N: usize>(
    plugins: [(&str, PluginFacts); N],
) -> BTreeMap<PluginName, PluginFacts> {
    plugins.into_iter().map(|(name, facts)| (PluginName::from(name), facts)).collect()
}

pub(crate) fn assembled(text: &str, plugins: &BTreeMap<PluginName, PluginFacts>) -> Assembly {
    assemble(&good(text), plugins).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns the problems of a config that does not fit its plugins, for snapshots of their texts.
pub(crate) fn misfit(text: &str, plugins: &BTreeMap<PluginName, PluginFacts>) -> String {
    unfit(text, plugins).to_string()
}

pub(crate) fn settings(value: Value) -> BTreeMap<String, Value> {
    value.as_object().unwrap().clone().into_iter().collect()
}
