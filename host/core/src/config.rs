//! The operator's conclave.toml as a value. Strict and complete: every mistake of a file is
//! reported at once, with line, column, reason and remedy; nothing is ignored. Reads no file: it
//! takes text and folder, and returns joined paths without checking them.

mod acting;
mod address;
mod amounts;
pub mod assemble;
mod background;
pub mod changes;
mod channels;
pub mod confusables;
pub(crate) mod depth;
mod describe;
pub mod edit;
mod endpoints;
pub mod foreign_names;
mod gates;
mod grants;
mod idle_keys;
pub mod invisible_chars;
mod json;
pub(crate) mod keys;
mod langroid;
mod limits;
pub mod lockfile;
mod mcp;
pub mod micro;
mod model;
pub(crate) mod names;
mod observers;
mod oidc;
mod plugin;
mod policy;
mod prices;
mod problem;
mod problem_code;
mod reader;
mod references;
pub mod reload;
pub mod schema;
mod secret;
mod server;
mod spans;
mod store;
mod task;
mod task_rules;
mod task_tools;
mod trust;
pub(crate) mod usage;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toml::de::DeTable;

use crate::permissions::fetch::HostPattern;
use crate::permissions::grants::{Grants, SecretPlace, ToolPattern};
use crate::permissions::policy_rules::Policy;
use crate::setup::{GateRule, ModelSetup, ObserverRule, TaskSetup};
use crate::types::channel::Binding;
use crate::types::completion::ModelApi;
use crate::types::durability::Durability;
use crate::types::host_tool::HostTool;
use crate::types::ids::{ChannelId, ModelName, PluginName, SecretName, TaskName};
use crate::types::limits::{PluginLimits, RunLimits};
use crate::types::oci::OciReference;

pub use endpoints::{ChannelEndpoint, ChannelPeer, Senders};
pub use keys::{ConfigKey, KEYS, KeyDefault, ValueShape};
pub use limits::{config_value, replace_run_limits};
pub use mcp::{MCP_CLIENT, McpReach, McpSource, ServerLimits, ServerTools, YOU, is_direct_caller};
pub use model::{is_reserved_option, least_context};
pub use names::{
    NAME_MAX, NameError, ORCHESTRATION_TOOLS, ROLE_NAMES, check_name, check_task_name,
    default_place, is_reserved_task,
};
pub use oidc::{OidcConfig, UnnamedPerson};
pub use prices::{Price, Prices};
pub use problem::{ConfigProblem, Problems, Severity};
pub use problem_code::ProblemCode;
pub use server::{RunRetention, ServerConfig, ServerUser, TrustedProxy};
pub use trust::{
    PublicKey, PublicKeyError, SignatureRule, SignedComponent, Trust, TrustRefusal, lost_signers,
};

use crate::types::wording::{code, one_of, string};
use problem::{SourceText, Span};
use reader::{ConfigReader, Table};
use references::References;
use spans::SourceSpans;

/// The limit of reported syntax errors. A file with more of them is hardly TOML, and one line of it
/// may cause hundreds.
const SYNTAX_ERRORS: usize = 20;

/// The channel that every config has by default.
pub const TERMINAL: &str = "terminal";

/// A path of the config: as the operator wrote it, and resolved for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigPath {
    /// The path for people.
    pub display_path: String,
    /// The path joined to the config's folder, lexically: `..` stays.
    pub path: String,
}

/// The source of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginSource {
    /// A plugin bundled with the host, by its name.
    Stock(String),
    /// A .wasm file.
    File(ConfigPath),
    /// Functions of the program that embeds the host.
    Native(String),
    /// A .wasm file at a URL, pinned to its digest.
    Url {
        url: String,
        /// The digest in lower-case hexadecimal.
        sha256: String,
    },
    /// A component in an OCI registry.
    Oci {
        /// Without a digest until the lock resolves the tag.
        reference: OciReference,
        /// The reference for people: as the config has it.
        display_text: String,
    },
    /// An external server, which speaks the Model Context Protocol.
    Mcp(Box<McpSource>),
}

impl PluginSource {
    /// Whether it is a tag of a registry without a digest.
    #[must_use]
    pub fn is_open_tag(&self) -> bool {
        matches!(self, Self::Oci { reference, .. } if reference.digest().is_none())
    }

    /// The source for people: `stock`, or the path as written.
    #[must_use]
    pub fn label(&self) -> &str {
        match self {
            Self::Stock(_) => "stock",
            Self::File(path) => &path.display_path,
            Self::Native(_) => "native",
            Self::Url { url, .. } => url,
            Self::Oci { display_text, .. } => display_text,
            Self::Mcp(source) => &source.label,
        }
    }
}

/// `[plugins.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConfig {
    pub source: PluginSource,
    /// The signatures that its component needs; `None` for those that `[trust]` requires.
    pub require_signed: Option<SignatureRule>,
    pub grants: Grants,
    pub limits: PluginLimits,
    /// A JSON object; checked against the manifest when the plugin is known.
    pub config: Value,
    /// Descriptions in place of the plugin's own, by `TOOL` or `TOOL.ARGUMENT`.
    pub describe: BTreeMap<String, String>,
}

/// The source of a model server's key. Never the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRef {
    /// An environment variable.
    Env(String),
    /// The first line of a file.
    File(ConfigPath),
    /// The first line of a program's output; it is started in the config's folder.
    Command(Vec<String>),
}

/// `[secrets.NAME]`: a secret that the host may insert into requests of plugins with a grant.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretConfig {
    pub from: KeyRef,
    /// The hosts that may receive it.
    pub hosts: Vec<HostPattern>,
    /// The parts of a request that may hold it.
    pub request_parts: BTreeSet<SecretPlace>,
}

/// The server of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelServerConfig {
    pub api: ModelApi,
    /// The URL before `/chat/completions` or `/messages`.
    pub url: String,
    /// The model's name on the server.
    pub model: String,
    pub key: Option<KeyRef>,
    pub headers: BTreeMap<String, String>,
    /// Options sent with every request.
    pub options: serde_json::Map<String, Value>,
    pub proxy: Option<String>,
    /// The number of attempts after the first.
    pub retries: u32,
    /// The time limit of all attempts together, in milliseconds.
    pub timeout_ms: u64,
    pub attempt_timeout_ms: u64,
    /// The limit of silence within a stream, in milliseconds.
    pub idle_timeout_ms: u64,
    /// The limit of a reply in bytes.
    pub reply_max: u64,
    /// The marks around the thinking that the server leaves in the text; `None` for none.
    pub thinking: Option<ThinkingMarks>,
}

impl ModelServerConfig {
    /// The default time limit of all attempts together, in milliseconds.
    pub(crate) const TIMEOUT_MS: u64 = 600_000;
    pub(crate) const RETRIES: u32 = 3;
    pub(crate) const ATTEMPT_TIMEOUT_MS: u64 = 300_000;
    pub(crate) const IDLE_TIMEOUT_MS: u64 = 60_000;
    pub(crate) const REPLY_MAX: u64 = 8 << 20;

    /// Returns a server without a key, with the default limits.
    #[must_use]
    pub fn new(api: ModelApi, url: String, model: String) -> Self {
        Self {
            api,
            url,
            model,
            key: None,
            headers: BTreeMap::new(),
            options: serde_json::Map::new(),
            proxy: None,
            retries: Self::RETRIES,
            timeout_ms: Self::TIMEOUT_MS,
            attempt_timeout_ms: Self::ATTEMPT_TIMEOUT_MS,
            idle_timeout_ms: Self::IDLE_TIMEOUT_MS,
            reply_max: Self::REPLY_MAX,
            thinking: Some(ThinkingMarks::default()),
        }
    }
}

/// The marks around a model's thinking in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinkingMarks {
    /// The beginning; empty if the answer begins with the thinking, without a mark.
    pub open: String,
    pub close: String,
}

impl Default for ThinkingMarks {
    fn default() -> Self {
        Self { open: "<think>".to_owned(), close: "</think>".to_owned() }
    }
}

/// The way to reach a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelKind {
    /// A server with Chat Completions or the Messages API.
    Server(Box<ModelServerConfig>),
    /// A file with prepared replies.
    Scripted { replies: ConfigPath },
    /// A model of the embedding program.
    Native,
}

/// `[models.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub kind: ModelKind,
    pub prices: ModelSetup,
}

/// The subject of an entry in a task's `tools`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolsEntry {
    Plugins(ToolPattern),
    Host(HostTool),
}

impl ToolsEntry {
    /// The pattern, or the host's own name for its tool.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Plugins(pattern) => &pattern.0,
            Self::Host(tool) => tool.as_str(),
        }
    }
}

/// An entry of a task's `tools`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolEntry {
    pub tool: ToolsEntry,
    /// The name for the agent; `None` for the usual one.
    pub alias: Option<String>,
    /// Whether the agent is offered the tool.
    pub offered: bool,
    /// Whether this task carries it out.
    pub handled: bool,
    /// Whether a call of it is the result of the task and of all its callers.
    pub is_final: bool,
    pub title: Option<String>,
    pub result_tokens: Option<u64>,
    pub retained_tokens: Option<u64>,
    /// The recipients allowed in `recipient_message`; empty for any.
    pub recipients: Vec<String>,
    pub default_recipient: Option<String>,
    /// For `delegate_task`: the only worker.
    pub agent: Option<TaskName>,
    /// For `delegate_task`: whether its calls wait for the result.
    pub wait: bool,
}

impl ToolEntry {
    /// Returns a tool listed by its name alone: offered and carried out.
    #[must_use]
    pub fn new(tool: ToolsEntry) -> Self {
        Self {
            tool,
            alias: None,
            offered: true,
            handled: true,
            is_final: false,
            title: None,
            result_tokens: None,
            retained_tokens: None,
            recipients: Vec::new(),
            default_recipient: None,
            agent: None,
            wait: false,
        }
    }
}

/// `[tasks.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskConfig {
    /// The task as it will be in a room. The toolbox is empty until the plugins are known.
    pub setup: TaskSetup,
    /// The listed tools; `None` if the task does not narrow its agent's grant.
    pub tools: Option<Vec<ToolEntry>>,
    /// The file of a prompt agent. Its content is in `setup`.
    pub micro_file: Option<ConfigPath>,
    /// Knowledge files; the agent reads one when a user's message contains its trigger. Their
    /// content is in `setup`.
    pub knowledge_files: Vec<ConfigPath>,
    /// Tools that those files require; checked when the task's toolbox is known.
    pub wanted_tools: Vec<WantedTool>,
}

/// A tool that the file of a prompt agent or of knowledge requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTool {
    pub name: String,
    /// The problem if the task does not have it, at the line of the file.
    pub missing: ConfigProblem,
}

/// A conclave.toml that is valid in itself. [`crate::config::assemble::assemble`] checks that it
/// fits its plugins.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub entry: TaskName,
    pub models: BTreeMap<ModelName, ModelConfig>,
    pub secrets: BTreeMap<SecretName, SecretConfig>,
    pub plugins: BTreeMap<PluginName, PluginConfig>,
    pub tasks: BTreeMap<TaskName, TaskConfig>,
    /// The channels, the terminal included.
    pub channels: BTreeMap<ChannelId, Binding>,
    /// How the host reaches the people of the channels that it serves itself.
    pub endpoints: BTreeMap<ChannelId, ChannelEndpoint>,
    /// The gates, in the order in which they are asked.
    pub gates: Vec<GateRule>,
    /// The observers.
    pub observers: Vec<ObserverRule>,
    /// The policy rules, in the order in which they are tried.
    pub policy: Policy,
    /// The durability; `None` for the program's default.
    pub durability: Option<Durability>,
    /// The store of its runs: a folder, joined to that of the config, or the URL of a database.
    /// `None` for the program's default.
    pub store: Option<String>,
    pub limits: RunLimits,
    /// The keys that the operator trusts, and what they must sign.
    pub trust: Trust,
    /// The people who may use a server of it.
    pub server: ServerConfig,
    /// The file of model prices.
    pub prices: Option<ConfigPath>,
    /// Warnings about valid but probably unintended parts, such as an unused plugin.
    pub warnings: Problems,
    /// The folder that its paths are relative to; empty for the current one.
    pub folder: String,
    source: SourceText,
    spans: SourceSpans,
}

/// A position in the config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Config {
    /// Parses a config. `file_name` is shown in problems; paths are relative to `folder`, empty for
    /// the current one.
    ///
    /// # Errors
    /// All problems of the file, in the order of its lines. After a syntax error, missing keys are
    /// not reported.
    pub fn parse(file_name: &str, folder: &str, text: &str) -> Result<Self, Problems> {
        Self::parse_with(file_name, folder, text, &BTreeMap::new())
    }

    /// Parses a config with models that the caller adds to those of the file, or that replace them.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_with(
        file_name: &str,
        folder: &str,
        text: &str,
        models: &BTreeMap<ModelName, ModelConfig>,
    ) -> Result<Self, Problems> {
        let source = SourceText::new(file_name, text);
        // Before the parser: dropping a tree that is too deep would exhaust the stack.
        if let Some(span) = depth::too_deep(text) {
            let what = format!("keys and brackets can be nested {} deep at most", depth::DEPTH_MAX);
            return Err(Problems(vec![source.problem(ProblemCode::Syntax, &span, what)]));
        }
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut syntax = Vec::new();
        for error in errors.iter().take(SYNTAX_ERRORS) {
            let problem = source.problem(
                ProblemCode::Syntax,
                &error.span().unwrap_or(0..0),
                format!("not valid TOML: {}", error.message()),
            );
            syntax.push(problem);
        }
        let mut reader = ConfigReader::new(source);
        let spans = SourceSpans::of(root.get_ref());
        let draft = read(&mut reader, folder, root.get_ref(), spans, syntax.is_empty(), models);
        finish(reader, draft, syntax)
    }

    /// The position of a key: `plugins.search.grants.files[0].dir`. A key that is not written
    /// resolves to the nearest table above it, ultimately to the first line.
    #[must_use]
    pub fn locate(&self, path: &str) -> Position {
        let (line, column) = self.source.position(self.span(path).start);
        Position { line, column }
    }

    /// A problem at the position of a key, found after parsing, such as a plugin's file that is
    /// missing.
    #[must_use]
    pub fn problem(&self, code: ProblemCode, path: &str, what: impl Into<String>) -> ConfigProblem {
        self.source.problem(code, &self.span(path), what)
    }

    /// The label of each plugin's source, for [`crate::inspect::permission_summary::rights_table`].
    #[must_use]
    pub fn source_labels(&self) -> BTreeMap<PluginName, String> {
        self.plugins
            .iter()
            .map(|(name, plugin)| (name.clone(), plugin.source.label().to_owned()))
            .collect()
    }

    /// Whether the path is written in the file.
    pub(crate) fn is_written(&self, path: &str) -> bool {
        self.spans.has(path)
    }

    fn span(&self, path: &str) -> Span {
        self.spans.find(path).cloned().unwrap_or(0..0)
    }
}

/// Reads every part, also after a problem: no part depends on another before the references are
/// checked.
fn read(
    reader: &mut ConfigReader,
    folder: &str,
    root: &DeTable<'_>,
    spans: SourceSpans,
    is_whole: bool,
    added: &BTreeMap<ModelName, ModelConfig>,
) -> Config {
    let root = Table::root(reader, root);
    let mut references = References::default();
    let mut models = model::read_all(reader, folder, &root);
    models.extend(added.iter().map(|(name, model)| (name.clone(), model.clone())));
    let secrets = secret::read_all(reader, folder, &root);
    let trust = trust::read(reader, &root);
    let server = server::read(reader, folder, &root);
    let plugins = plugin::read_all(reader, &mut references, folder, &root, (&secrets, &trust));
    let tasks = task::read_all(reader, &mut references, &root, &plugins, folder);
    let (channels, endpoints) = channels::read_all(reader, &mut references, folder, &root);
    let policy = policy::read_all(reader, &mut references, &root);
    let gates = gates::read_all(reader, &mut references, &root);
    let observers = observers::read_all(reader, &mut references, &root);
    let durability = root.read(reader, "durability");
    let store = root.get("store").and_then(|item| store::read(reader, &item, folder));
    let limits = limits::read_run(reader, &root, RunLimits::DEFAULT);
    let prices = root.get("prices").and_then(|item| plugin::path(reader, &item, folder));
    let entry = read_entry(reader, &mut references, &root, &tasks);
    // After a syntax error tables may be missing, and every reference to them would be reported.
    if is_whole {
        references.check(reader, &root, added);
        references::check_cycles(reader, &spans, &tasks);
    }
    Config {
        entry,
        models,
        secrets,
        plugins,
        tasks,
        channels,
        endpoints,
        gates,
        observers,
        policy,
        durability,
        store,
        limits,
        trust,
        server,
        prices,
        warnings: Problems::default(),
        folder: folder.to_owned(),
        source: reader.source.clone(),
        spans,
    }
}

fn read_entry(
    reader: &mut ConfigReader,
    references: &mut References,
    root: &Table<'_>,
    tasks: &BTreeMap<TaskName, TaskConfig>,
) -> TaskName {
    if let Some(item) = root.get("entry") {
        let name = item.string(reader);
        name.into_iter().for_each(|name| references.add_task(&item, name));
        return TaskName::from(name.unwrap_or_default());
    }
    let help = match tasks.keys().next() {
        Some(task) if tasks.len() == 1 => format!("write `entry = {}`", string(task.as_str())),
        Some(_) => format!("write `entry = …` with {}", one_of(tasks.keys().map(TaskName::as_str))),
        None => format!("write {} and a task of that name", code(r#"entry = "desk""#)),
    };
    reader.absence(&(0..0), "`entry` is missing: no task gets the message", help);
    TaskName::from("")
}

/// Returns the config, or all problems.
fn finish(
    mut reader: ConfigReader,
    mut config: Config,
    syntax: Vec<ConfigProblem>,
) -> Result<Config, Problems> {
    if !syntax.is_empty() {
        // A line with a syntax error was parsed in part only, so further problems of that line
        // would be misleading.
        let broken: BTreeSet<usize> = syntax.iter().map(|problem| problem.line).collect();
        reader.problems.retain(|problem| !broken.contains(&problem.line));
        reader.problems.extend(syntax);
    } else {
        // Only a fully parsed file shows which keys are absent.
        reader.problems.append(&mut reader.absences);
    }
    let mut problems = Problems(std::mem::take(&mut reader.problems));
    if !problems.has_errors() {
        // A grant with a problem is not there, and would be reported as a missing one.
        usage::check_models(&config, &mut problems);
    }
    if problems.has_errors() {
        return Err(problems.in_order());
    }
    usage::check(&config, &mut problems);
    config.warnings = problems.in_order();
    Ok(config)
}
