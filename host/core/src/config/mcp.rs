//! `source = { mcp = { … } }`: an external tool server, started here or reached at a URL; in short
//! `source = "mcp:COMMAND"`. Does not speak its protocol.

use std::collections::BTreeMap;

use super::foreign_names::is_tool_name;
use super::keys::{MCP, MCP_KEY, SOURCE};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::{ConfigPath, KeyRef, address, model};
use crate::types::text::read_command;
use crate::types::wording::code;

/// The limit of variables in a server's environment.
const VARIABLES: usize = 64;
/// The limit of entries in `tools` and in `rename`.
const CHOSEN: usize = 1_000;

/// The caller's name in policy rules for tools called by a client of this protocol.
pub const MCP_CLIENT: &str = "(mcp)";
/// The caller's name for tools called by hand.
pub const YOU: &str = "(you)";

/// Whether this is the name of a caller without a task. The host itself makes its step, which is
/// the call and nothing else.
#[must_use]
pub fn is_direct_caller(name: &str) -> bool {
    [MCP_CLIENT, YOU].contains(&name)
}

/// A tool server in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpSource {
    pub reach: McpReach,
    pub tools: ServerTools,
    /// The label for people: `mcp` and the program or the host.
    pub label: String,
}

/// The operator's choice among the server's tools, and names for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTools {
    /// The served tools, by the server's name or the name here; `*` at the end stands for any rest.
    /// `None` for all of them.
    pub chosen: Option<Vec<String>>,
    /// Names here, by the server's names.
    pub rename: BTreeMap<String, String>,
}

impl ServerTools {
    /// Whether the tool with these names is chosen.
    #[must_use]
    pub fn covers(&self, theirs: &str, ours: &str) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| {
            chosen.iter().any(|entry| is_meant(entry, theirs) || is_meant(entry, ours))
        })
    }

    /// The entries of `tools` and the keys of `rename` that mean none of these tools, each given by
    /// the server's name and the name here.
    #[must_use]
    pub fn unmatched(&self, tools: &[(&str, &str)]) -> Vec<&str> {
        let is_any = |entry: &str| {
            tools.iter().any(|(theirs, ours)| is_meant(entry, theirs) || is_meant(entry, ours))
        };
        let chosen = self.chosen.iter().flatten().filter(|entry| !is_any(entry));
        let is_there = |name: &str| tools.iter().any(|(theirs, _)| *theirs == name);
        let renamed = self.rename.keys().filter(|name| !is_there(name));
        chosen.chain(renamed).map(String::as_str).collect()
    }
}

/// Whether an entry of `tools` means this name. A name may end with `*` itself.
fn is_meant(entry: &str, name: &str) -> bool {
    entry == name || entry.strip_suffix('*').is_some_and(|start| name.starts_with(start))
}

/// The way to reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpReach {
    /// A program that is started here.
    Program {
        /// The program and its arguments; never empty.
        command: Vec<String>,
        /// Environment variables besides `PATH`, `HOME` and those of its confinement.
        env: BTreeMap<String, String>,
        /// Environment variables whose values are read from a key source.
        keys: BTreeMap<String, KeyRef>,
        /// The working directory.
        cwd: ConfigPath,
        /// What the kernel holds it to, besides the plugin's grants; `None` for a program with the
        /// operator's permissions, in no sandbox.
        confined: Option<ServerLimits>,
    },
    /// A running server.
    Address {
        url: String,
        /// The bearer token of each request.
        key: Option<KeyRef>,
    },
}

/// The confinement of a server's program, besides `grants.files` and `grants.fetch`. Its limits are
/// of the program and all that it starts, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Files and folders that it may read, besides those of its interpreter and its package.
    pub read: Vec<String>,
    /// Programs that it may start, and folders of such, besides itself and its interpreter.
    pub starts: Vec<String>,
    /// The limit of memory in bytes.
    pub memory: u64,
    /// The limit of computing time in milliseconds.
    pub cpu_ms: u64,
    /// The limit of processes and threads at once.
    pub processes: u32,
    /// The size limit of a file that it writes, in bytes.
    pub file_size: u64,
}

impl ServerLimits {
    /// The default limit of memory, in bytes: interpreters map more than they use.
    pub(crate) const MEMORY: u64 = 1 << 30;
    /// The default limit of computing time, in milliseconds. A server lives for days.
    pub(crate) const CPU_MS: u64 = 3_600_000;
    pub(crate) const PROCESSES: u32 = 128;
    /// The default size limit of a written file, in bytes.
    pub(crate) const FILE_SIZE: u64 = 64 << 20;
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            starts: Vec::new(),
            memory: Self::MEMORY,
            cpu_ms: Self::CPU_MS,
            processes: Self::PROCESSES,
            file_size: Self::FILE_SIZE,
        }
    }
}

impl McpSource {
    /// Whether this host starts it as code outside any sandbox.
    #[must_use]
    pub fn is_unconfined(&self) -> bool {
        matches!(self.reach, McpReach::Program { confined: None, .. })
    }

    /// The limits of the program that this host starts and confines; `None` for any other server.
    #[must_use]
    pub fn confined(&self) -> Option<&ServerLimits> {
        match &self.reach {
            McpReach::Program { confined, .. } => confined.as_ref(),
            McpReach::Address { .. } => None,
        }
    }
}

pub(crate) fn source(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    folder: &str,
) -> Option<McpSource> {
    let table = item.table(reader, SOURCE)?.require(reader, "mcp")?.table(reader, MCP)?;
    let tools = ServerTools {
        chosen: table.get("tools").and_then(|item| chosen(reader, &item)),
        rename: table.get("rename").map(|item| renamed(reader, &item)).unwrap_or_default(),
    };
    let source = match (table.get("command"), table.get("url")) {
        (Some(command), None) => program(reader, &table, &command, folder),
        (None, Some(url)) => by_address(reader, &table, &url, folder),
        (command, url) => {
            let (cause, what) = if command.is_some() && url.is_some() {
                (ProblemCode::Conflict, "has both")
            } else {
                (ProblemCode::MissingKey, "needs one of")
            };
            let help = "write `command = [\"my-server\"]` for a program, or `url = \"http://127.0.0.1:3000/mcp\"` for a server that runs";
            reader.error(
                cause,
                &table.span,
                format!("{} {what} `command` and `url`", code(&item.name)),
                help.to_owned(),
            );
            None
        }
    };
    source.map(|source| McpSource { tools, ..source })
}

/// Reads `mcp:COMMAND`: a program that is confined, with the default limits.
pub(crate) fn short_source(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    command: &str,
    folder: &str,
) -> Option<McpSource> {
    let Some((program, arguments)) =
        read_command(command).filter(|(program, _)| !program.is_empty())
    else {
        let help = "write the program and its arguments, as `source = \"mcp:my-server --stdio\"`";
        item.wrong(reader, "names no program", help.to_owned());
        return None;
    };
    let words = [program].into_iter().chain(arguments).collect();
    let (env, keys) = (BTreeMap::new(), BTreeMap::new());
    let cwd = model::config_path(folder, ".");
    Some(started(words, folder, |command| McpReach::Program {
        command,
        env,
        keys,
        cwd,
        confined: Some(ServerLimits::default()),
    }))
}

/// Returns the source of a program, with its first word resolved.
fn started(
    mut words: Vec<String>,
    folder: &str,
    reach: impl FnOnce(Vec<String>) -> McpReach,
) -> McpSource {
    let first = &mut words[0];
    let label = format!("mcp {}", first.rsplit('/').next().unwrap_or(first));
    // A path is relative to the config's folder, as everywhere; a bare name is searched on the
    // PATH.
    if first.contains('/') {
        *first = model::config_path(folder, first).path;
    }
    McpSource { reach: reach(words), tools: ServerTools::default(), label }
}

/// Returns the entries of `tools`.
fn chosen(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<String>> {
    let entries = item.list(reader)?;
    if entries.is_empty() || entries.len() > CHOSEN {
        item.reject(
            reader,
            ProblemCode::OutOfRange,
            &format!("must have 1 to {CHOSEN} entries"),
            "name the tools to serve, as `tools = [\"get\", \"list_*\"]`, or leave it out for all"
                .to_owned(),
        );
        return None;
    }
    let names: Vec<Option<String>> =
        entries.iter().map(|entry| entry.string(reader).map(str::to_owned)).collect();
    names.into_iter().collect()
}

/// Returns the entries of `rename`.
fn renamed(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> BTreeMap<String, String> {
    let mut rename: BTreeMap<String, String> = BTreeMap::new();
    for (theirs, value) in item.members(reader) {
        let Some(ours) = value.string(reader) else { continue };
        if !is_tool_name(ours) {
            let help = "a name is 1 to 64 lower-case ASCII letters, digits and `_`";
            value.reject(
                reader,
                ProblemCode::InvalidName,
                "cannot be the name of a tool",
                help.to_owned(),
            );
        } else if let Some((other, _)) = rename.iter().find(|(_, name)| name.as_str() == ours) {
            let what = format!("is the name of {} too", code(other));
            let help = "give one of them another name".to_owned();
            value.reject(reader, ProblemCode::Duplicate, &what, help);
        } else {
            rename.insert(theirs.to_owned(), ours.to_owned());
        }
    }
    if rename.len() > CHOSEN {
        item.reject(
            reader,
            ProblemCode::OutOfRange,
            &format!("has more than {CHOSEN} entries"),
            "leave some out".to_owned(),
        );
    }
    rename
}

fn program(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    command: &SpannedValue<'_>,
    folder: &str,
) -> Option<McpSource> {
    not_for(
        reader,
        table,
        &["key"],
        "a server that is reached at an address",
        "write `keys = { API_KEY = { env = \"API_KEY\" } }`",
    );
    let env = table.get("env").map(|item| texts(reader, &item)).unwrap_or_default();
    let keys = table.get("keys").map(|item| keys(reader, &item, folder)).unwrap_or_default();
    for name in keys.keys().filter(|name| env.contains_key(*name)) {
        reader.error(
            ProblemCode::Conflict,
            &table.span,
            format!("{} stands in `env` and in `keys`", code(name)),
            "leave one of them out".to_owned(),
        );
    }
    let here = || model::config_path(folder, ".");
    let cwd = table
        .get("cwd")
        .and_then(|item| super::plugin::path(reader, &item, folder))
        .unwrap_or_else(here);
    let confined = confined(reader, table, folder);
    let words = model::command(reader, command)?;
    if words.iter().any(|word| word.contains('\0')) {
        command.wrong(reader, "has a NUL character in it", None);
        return None;
    }
    Some(started(words, folder, |command| McpReach::Program { command, env, keys, cwd, confined }))
}

/// The keys of a confined program.
const CONFINED: &[&str] = &["read", "starts", "memory", "cpu", "processes", "file_size"];

/// Reads the confinement of a program; `None` with `unconfined = true`.
fn confined(reader: &mut ConfigReader, table: &Table<'_>, folder: &str) -> Option<ServerLimits> {
    if table.read(reader, "unconfined") == Some(true) {
        let whom = "a server that is confined";
        not_for(reader, table, CONFINED, whom, "leave it out, or `unconfined`");
        return None;
    }
    let mut limits = ServerLimits::default();
    for (key, field) in [("read", &mut limits.read), ("starts", &mut limits.starts)] {
        if let Some(item) = table.get(key) {
            *field = super::plugin::paths(reader, &item, folder);
        }
    }
    table.set(reader, "memory", &mut limits.memory);
    table.set(reader, "cpu", &mut limits.cpu_ms);
    table.set(reader, "processes", &mut limits.processes);
    table.set(reader, "file_size", &mut limits.file_size);
    Some(limits)
}

fn by_address(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    url: &SpannedValue<'_>,
    folder: &str,
) -> Option<McpSource> {
    not_for(
        reader,
        table,
        &[&["env", "keys", "cwd", "unconfined"], CONFINED].concat(),
        "a server that is started here",
        "leave it out",
    );
    let key = table.get("key").and_then(|item| model::key(reader, folder, &item, MCP_KEY));
    let url = model::http_url(reader, url)?;
    let label = format!("mcp {}", address::authority(&url).unwrap_or_default());
    Some(McpSource { reach: McpReach::Address { url, key }, tools: ServerTools::default(), label })
}

fn not_for(reader: &mut ConfigReader, table: &Table<'_>, names: &[&str], whom: &str, help: &str) {
    for item in names.iter().filter_map(|name| table.get(name)) {
        reader.error(
            ProblemCode::Conflict,
            &item.key_span,
            format!("{} is for {whom}", code(&item.name)),
            help.to_owned(),
        );
    }
}

pub(crate) fn texts(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (name, value) in variables(reader, item) {
        let Some(text) = value.string(reader) else { continue };
        if text.contains('\0') {
            value.wrong(reader, "has a NUL character in it", None);
        } else {
            texts.insert(name, text.to_owned());
        }
    }
    texts
}

fn keys(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    folder: &str,
) -> BTreeMap<String, KeyRef> {
    let variables = variables(reader, item);
    variables
        .into_iter()
        .filter_map(|(name, value)| Some((name, model::key(reader, folder, &value, MCP_KEY)?)))
        .collect()
}

/// Returns the entries of a table whose keys are names of variables.
fn variables<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
) -> Vec<(String, SpannedValue<'a>)> {
    let entries = item.members(reader);
    if entries.len() > VARIABLES {
        item.reject(
            reader,
            ProblemCode::OutOfRange,
            &format!("has more than {VARIABLES} variables"),
            "leave some out".to_owned(),
        );
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, value) in entries {
        let is_start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if is_start && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            found.push((name.to_owned(), value));
        } else {
            let help = "a name is letters, digits and `_`, and does not begin with a digit";
            reader.error(
                ProblemCode::InvalidName,
                &value.key_span,
                format!("{} cannot be the name of a variable", code(name)),
                help.to_owned(),
            );
        }
    }
    found
}
