//! Every key of conclave.toml, declared once: its name, the form of its value, its default and
//! its documentation. Those of grants and scopes stand in `grants.rs`, those of channels in
//! `channels.rs` and those of servers in `server.rs`, beside their reading; `KEYS` has all. The
//! reader accepts exactly these keys and takes bounds and words from here; the JSON Schema and the
//! reference page are generated from the same list.

use std::sync::LazyLock;

use ValueShape::{
    Choice, Dollars, Duration, Either, Factor, Flag, Free, List, Named, Size, Spending, Table,
    Text, Texts, Whole,
};

use super::{ModelServerConfig, ServerLimits, channels, grants, server};
use crate::setup::{CondenseRules, GateRule, LoopRules, ObserverRule};
use crate::types::delegation::CONVERSATION_MAX;
use crate::types::limits::{self, PluginLimits, RunLimits};
use crate::types::observed::EVENT_KINDS;
use crate::types::stuck_rules::StuckRules;
use crate::types::text::{show_duration, show_size};
use crate::types::units::DURATION_MAX;
use crate::types::wording::array;

/// A key of a config.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigKey {
    /// The table of the key; `NAME` is any name, `[]` an entry of a list. Empty: the top level.
    pub table: &'static str,
    pub name: &'static str,
    /// The form of the value.
    pub shape: ValueShape,
    /// The value if the key is absent.
    pub default: KeyDefault,
    /// A valid line of config; empty for a table, and for keys of later versions.
    pub example: &'static str,
    /// The documentation, in sentences.
    pub doc: &'static str,
}

/// The form of a value, independent of other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Bytes with their unit, such as `64 MiB`; the bounds in bytes.
    Size {
        least: u64,
        most: u64,
    },
    /// Time with its unit, such as `2 s`; the bounds in milliseconds.
    Duration {
        least: u64,
        most: u64,
    },
    /// A number without a fraction.
    Whole {
        least: u64,
        most: u64,
    },
    /// US dollars, also none: a price.
    Dollars,
    /// US dollars, at least a millionth of one: a limit.
    Spending,
    /// A factor from 1 to 1000, with or without a fraction.
    Factor,
    Flag,
    List(&'static ValueShape),
    /// Any of these forms.
    Either(&'static [ValueShape]),
    /// A table with these keys.
    Table(&'static str),
    /// Such tables, under names that the operator chooses.
    Named(&'static str),
    /// Texts, under names that the operator chooses.
    Texts,
    /// Any table.
    Free,
}

impl ValueShape {
    /// The allowed words of a text; empty if any text is allowed.
    pub(crate) fn words(&self) -> &'static [&'static str] {
        match self {
            Choice(words) => words,
            List(entry) => entry.words(),
            Either(forms) => {
                forms.iter().map(Self::words).find(|words| !words.is_empty()).unwrap_or_default()
            }
            _ => &[],
        }
    }
}

/// The value of an absent key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDefault {
    /// The key is required.
    Required,
    /// Nothing: an empty text or list, or no limit.
    Nothing,
    Flag(bool),
    Whole(u64),
    /// In bytes.
    Size(u64),
    /// In milliseconds.
    Duration(u64),
    Factor(f64),
    Word(&'static str),
    Words(&'static [&'static str]),
    /// The default depends on something else, as these words say.
    Depends(&'static str),
}

impl KeyDefault {
    /// The default as it could be written; `None` if no one value says the same.
    #[must_use]
    pub fn written(&self) -> Option<String> {
        match self {
            Self::Required | Self::Nothing | Self::Depends(_) => None,
            Self::Flag(flag) => Some(flag.to_string()),
            Self::Whole(number) => Some(number.to_string()),
            Self::Size(bytes) => Some(format!("{:?}", show_size(*bytes))),
            Self::Duration(ms) => Some(format!("{:?}", show_duration(*ms))),
            Self::Factor(factor) => Some(factor.to_string()),
            Self::Word(word) => Some(format!("{word:?}")),
            Self::Words(words) => Some(array(*words)),
        }
    }
}

impl ConfigKey {
    pub(super) const fn with(self, default: KeyDefault) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn required(self) -> Self {
        self.with(KeyDefault::Required)
    }

    pub(super) const fn flag(self, flag: bool) -> Self {
        self.with(KeyDefault::Flag(flag))
    }

    pub(super) const fn count(self, number: u64) -> Self {
        self.with(KeyDefault::Whole(number))
    }

    pub(super) const fn size(self, bytes: u64) -> Self {
        self.with(KeyDefault::Size(bytes))
    }

    pub(super) const fn time(self, ms: u64) -> Self {
        self.with(KeyDefault::Duration(ms))
    }

    pub(super) const fn factor(self, factor: f64) -> Self {
        self.with(KeyDefault::Factor(factor))
    }

    pub(super) const fn word(self, word: &'static str) -> Self {
        self.with(KeyDefault::Word(word))
    }

    pub(super) const fn words(self, words: &'static [&'static str]) -> Self {
        self.with(KeyDefault::Words(words))
    }

    pub(super) const fn otherwise(self, words: &'static str) -> Self {
        self.with(KeyDefault::Depends(words))
    }
}

pub(super) const fn key(
    table: &'static str,
    name: &'static str,
    shape: ValueShape,
    example: &'static str,
    doc: &'static str,
) -> ConfigKey {
    let default = KeyDefault::Nothing;
    ConfigKey { table, name, shape, default, example, doc }
}

/// The default of a limit that has one.
const fn some(limit: Option<u64>) -> u64 {
    limit.expect("a limit with a default")
}

pub(crate) const MODELS: &str = "models.NAME";
/// The source of a key.
pub(crate) const KEY: &str = "models.NAME.key";
/// A rule.
pub(crate) const POLICY: &str = "policy[]";
/// A channel.
pub(crate) const CHANNELS: &str = "channels.NAME";
/// The source of a channel's secret.
pub(crate) const CHANNEL_SECRET: &str = "channels.NAME.secret";
/// A gate.
pub(crate) const GATES: &str = "gates[]";
/// An observer.
pub(crate) const OBSERVERS: &str = "observers[]";
pub(crate) const PLUGIN: &str = "plugins.NAME";
/// A source in the form of a table.
pub(crate) const SOURCE: &str = "plugins.NAME.source";
/// A server of tools.
pub(crate) const MCP: &str = "plugins.NAME.source.mcp";
/// The key of a server of tools.
pub(crate) const MCP_KEY: &str = "plugins.NAME.source.mcp.key";
/// The grants of a plugin.
pub(crate) const GRANTS: &str = "plugins.NAME.grants";
pub(crate) const LIMITS: &str = "plugins.NAME.limits";
/// Secrets.
pub(crate) const SECRETS: &str = "secrets.NAME";
/// The source of a secret.
pub(crate) const SECRET_FROM: &str = "secrets.NAME.from";
/// A task.
pub(crate) const TASK: &str = "tasks.NAME";
/// The restriction of an agent's grants by its task.
pub(crate) const SCOPE: &str = "tasks.NAME.scope";
/// A tool in a task's list.
pub(crate) const TASK_TOOL: &str = "tasks.NAME.tools[]";
/// The type of a run's result.
pub(crate) const RETURNS: &str = "tasks.NAME.returns";
/// The rules of loop detection.
pub(crate) const LOOPS: &str = "tasks.NAME.loop_detection";
/// The meaning of words in text.
pub(crate) const WORDS: &str = "tasks.NAME.text_rules";
/// The treatment of a message without a call.
pub(crate) const NO_TOOL: &str = "tasks.NAME.on_no_tool_call";
/// The actions that need consent.
pub(crate) const CONFIRM: &str = "tasks.NAME.confirm";
/// The rules by which a task delegates.
pub(crate) const BACKGROUND: &str = "tasks.NAME.background";
/// The budget of a task in the background.
pub(crate) const BUDGET: &str = "tasks.NAME.budget";
/// The rules for condensing a history.
pub(crate) const CONDENSE: &str = "tasks.NAME.condense";
/// The rules of stuck detection.
pub(crate) const STUCK: &str = "tasks.NAME.stuck_detection";
/// The trusted keys.
pub(crate) const TRUST: &str = "trust";
/// The signatures that a component needs.
pub(crate) const SIGNATURES: &str = "trust.require_signed";
pub(crate) const LIMITS_TABLE: &str = "limits";
pub(crate) const RUN: &str = "limits.run";

/// The agent and the tools in examples.
pub(crate) const EXAMPLE_AGENT: &str = "librarian";
pub(crate) const EXAMPLE_TOOLS: &str = "search.*";

/// The largest integer of TOML.
pub(super) const COUNT_MAX: u64 = i64::MAX as u64;
pub(super) const TEXT: ValueShape = Text;
pub(super) const TEXTS: ValueShape = List(&Text);
pub(super) const COUNT: ValueShape = Whole { least: 1, most: COUNT_MAX };
pub(super) const COUNT_32: ValueShape = Whole { least: 1, most: u32::MAX as u64 };
/// More repetitions of the same would add no information.
const REPEATS: ValueShape = Whole { least: 2, most: 100 };
const TIME: ValueShape = Duration { least: 1, most: DURATION_MAX };
const CPU: ValueShape = Duration { least: limits::TICK_MS, most: DURATION_MAX };
/// What a plugin returns or stores was in its memory before.
const MEMORY: ValueShape = Size { least: 1, most: limits::MEMORY_MAX };
/// A request or response is held in memory as a whole.
pub(super) const BODY: ValueShape = Size { least: 1, most: 256 << 20 };
const RESULT_FORM: ValueShape = Choice(&["agent-turn", "text"]);
pub(super) const RESULT_DELIVERY: &ValueShape = &RESULT_FORM;
const CLOSE: ValueShape = Choice(&["cascade", "detach", "finish-silently"]);
pub(super) const ON_CLOSE: &ValueShape = &CLOSE;
const RESPONDERS: ValueShape = List(&Choice(&["llm", "agent", "user"]));
const COMPAT: ValueShape = Choice(&["langroid"]);
const RETURN_TYPES: ValueShape = Choice(&["text", "int", "float", "bool", "any_tool"]);
const POLICIES: ValueShape = Choice(&["never", "always", "risky"]);
/// The default of a background task's budget.
const HALF: &str = "half of the rest of the run's";
/// The default of what words in text may do.
const UNLESS_LANGROID: &str = "`false`; with `compat = \"langroid\"`, `true`";

/// All keys, in the order of a manual.
pub static KEYS: LazyLock<Vec<ConfigKey>> = LazyLock::new(|| {
    [
        SETUP,
        server::KEYS,
        MODEL_KEYS,
        grants::KEYS,
        CALL_LIMITS,
        grants::EXEC_KEYS,
        TASKS,
        grants::SCOPE_KEYS,
        TASK_PARTS,
        channels::KEYS,
        OTHERS,
        // Behind the limits of a run, which a key without its table most likely means.
        server::BUDGET_KEYS,
    ]
    .concat()
});

/// A table: one key per line.
#[rustfmt::skip]
const SETUP: &[ConfigKey] = &[
    key("", "entry", TEXT, r#"entry = "desk""#, "The task that gets the message.").required(),
    key("", "models", Named(MODELS), "", "The models, each under a name of its own. A plugin that names no model gets `default`."),
    key("", "plugins", Named(PLUGIN), "", "The plugins, each under a name of its own. No other plugin is loaded."),
    key("", "secrets", Named(SECRETS), "", "The secrets that the host inserts into requests of plugins, each under a name of its own and bound to hosts."),
    key("", "tasks", Named(TASK), "", "The tasks, each under a name of its own: an agent, its tools and its sub-tasks."),
    key("", "limits", Table(LIMITS_TABLE), "", "The limits of a run."),
    key("", "prices", TEXT, r#"prices = "prices.toml""#, "The file of model prices, from the config's folder. A price in a model's own table takes precedence."),
    key("", "compat", COMPAT, r#"compat = "langroid""#, "Gives every task Langroid's defaults: certain words in text are signals, the host's tools have Langroid's names, and a message without a tool call does not end the task. `interactive` stays false, although Langroid's default is true."),
    key("", "durability", Choice(&["sync", "group", "exit"]), r#"durability = "sync""#, "When records are synced to the disk: before each event takes effect (`sync`), in groups of a few milliseconds and before any effect leaves the host (`group`), or when the run ends (`exit`). With `exit` a power cut loses unsynced records, and a kill those of about the last 2 ms.").word("group"),
    key("", "store", TEXT, r#"store = "runs""#, "Where runs are stored: a folder, from the config's folder, or the URL of a PostgreSQL database that many machines share, such as `postgres://ada@db.example/conclave`, without a password; with `?blobs=FOLDER` behind it, blobs above 1 MiB are files in that shared folder. `--store` takes precedence.").otherwise("your state folder"),
    key("", "channels", Named(CHANNELS), "", "The channels of rooms, each under a name of its own. `terminal` always exists."),
    key("", "gates", List(&Table(GATES)), "", "The plugins that check a text before it takes effect, in this order. The first one that blocks ends the checks."),
    key("", "observers", List(&Table(OBSERVERS)), "", "The plugins that receive the events of a run after they are durable. They decide nothing, and delay nothing until their queue is full."),
    key("", "policy", List(&Table(POLICY)), "", "The rules by which tool calls are allowed, denied or wait for an approval. The first rule that matches applies."),
    key("", "trust", Table(TRUST), "", "The keys that you trust, and the signatures that components need."),
    key("", "server", Table(server::SERVER), "", "The server of this config, `conclave serve`."),
];

#[rustfmt::skip]
const MODEL_KEYS: &[ConfigKey] = &[
    key(MODELS, "kind", Choice(&["openai", "openai-responses", "anthropic", "scripted", "native"]), r#"kind = "openai""#, "How the host reaches the model: `openai`, a server with the Chat Completions API; `openai-responses`, a server with the Responses API; `anthropic`, a server with the Messages API; `scripted`, a file of replies; `native`, a client of the embedding program.").required(),
    key(MODELS, "url", TEXT, r#"url = "http://127.0.0.1:11434/v1""#, "The URL of the server, with the path before `/chat/completions`, `/responses` or `/messages`.").otherwise("required for a server"),
    key(MODELS, "model", TEXT, r#"model = "qwen3:8b""#, "The model's name on its server.").otherwise("required for a server"),
    key(MODELS, "key", Table(KEY), r#"key = { env = "MY_KEY" }"#, "The source of the server's key. Plugins never see it."),
    key(MODELS, "headers", Texts, r#"headers = { "X-Title" = "desk" }"#, "Headers of every request. Not for secrets."),
    key(MODELS, "options", Free, "options = { temperature = 0.2 }", "Options of every request, such as `temperature` and `seed`. Plugins may override some of them."),
    key(MODELS, "proxy", TEXT, r#"proxy = "http://proxy.example:3128""#, "The proxy for requests to the server. The proxy variables of the environment are not used."),
    key(MODELS, "retries", Whole { least: 0, most: 20 }, "retries = 3", "The maximum number of retries after the first attempt.").count(ModelServerConfig::RETRIES as u64),
    key(MODELS, "timeout", TIME, r#"timeout = "10 min""#, "The time limit of one completion, including all attempts and the pauses between them.").time(ModelServerConfig::TIMEOUT_MS),
    key(MODELS, "attempt_timeout", TIME, r#"attempt_timeout = "5 min""#, "The time limit of one attempt, from the request to the end of the reply.").time(ModelServerConfig::ATTEMPT_TIMEOUT_MS),
    key(MODELS, "idle_timeout", TIME, r#"idle_timeout = "60 s""#, "The maximum time between two pieces of a streamed reply.").time(ModelServerConfig::IDLE_TIMEOUT_MS),
    key(MODELS, "reply_size", Size { least: 1, most: limits::MEMORY_MAX }, r#"reply_size = "8 MiB""#, "The size limit of one reply.").size(ModelServerConfig::REPLY_MAX),
    key(MODELS, "thinking", Either(&[TEXTS, Flag]), r#"thinking = ["<think>", "</think>"]"#, "The marks around thinking that the server leaves in the text. What is between them is no part of the answer. An empty first mark is for models that begin with their thinking; `false` leaves all in the text.").otherwise("`<think>` and `</think>`"),
    key(MODELS, "replies", TEXT, r#"replies = "replies.json""#, "The file of a scripted model's replies, from the config's folder.").otherwise("required for `scripted`"),
    key(MODELS, "input_price", Dollars, "input_price = 0.25", "US dollars for a million tokens of input."),
    key(MODELS, "output_price", Dollars, "output_price = 2.00", "US dollars for a million tokens of output."),
    key(MODELS, "cached_input_price", Dollars, "cached_input_price = 0.03", "US dollars for a million tokens of input from the provider's cache.").otherwise("`input_price`"),
    key(MODELS, "context", COUNT, "context = 128_000", "The size of the model's context in tokens, for prompt and answer together. Longer histories are truncated. Without this key the host truncates nothing."),
    key(MODELS, "max_output", COUNT, "max_output = 4_096", "The token limit of an answer.").otherwise("4096 for `anthropic`; with `context`, 4096 are reserved"),
    key(MODELS, "min_output", COUNT, "min_output = 50", "The number of tokens that stay reserved for an answer if `context` is small.").otherwise("with `context`, 50"),
    key(KEY, "env", TEXT, r#"env = "MY_KEY""#, "An environment variable."),
    key(KEY, "file", TEXT, r#"file = "key.txt""#, "A file, from the config's folder; its first line is the key."),
    key(KEY, "command", TEXTS, r#"command = ["pass", "show", "model"]"#, "A program and its arguments; the first line of its output is the key."),
    key(SECRETS, "from", Table(SECRET_FROM), r#"from = { env = "MET_TOKEN" }"#, "The source of the value. The config itself never contains the value.").required(),
    key(SECRETS, "hosts", TEXTS, r#"hosts = ["api.example.org"]"#, "The hosts that may receive it: a name, or `*.NAME` for all subdomains.").required(),
    key(SECRETS, "places", List(&Choice(&["header", "query", "body"])), r#"places = ["header"]"#, "The parts of a request that may contain it.").words(&["header"]),
    key(SECRET_FROM, "env", TEXT, r#"env = "MET_TOKEN""#, "An environment variable."),
    key(SECRET_FROM, "file", TEXT, r#"file = "token.txt""#, "A file, from the config's folder; its first line is the secret."),
    key(SECRET_FROM, "command", TEXTS, r#"command = ["pass", "show", "met"]"#, "A program and its arguments; the first line of its output is the secret."),
    key(PLUGIN, "source", Either(&[TEXT, Table(SOURCE)]), r#"source = "./x.wasm""#, "`stock:NAME`, the path of a .wasm file from the config's folder, `https://…#sha256=…`, `oci://…` by tag or digest, `mcp:COMMAND`, or a table for an MCP server. The lock pins the digest of a tag.").required(),
    key(PLUGIN, "require_signed", Table(SIGNATURES), r#"require_signed = { threshold = 2, keys = ["alice", "bob"] }"#, "The signatures that this component needs, in place of those that `[trust]` requires.").otherwise("as in `[trust]`"),
    key(PLUGIN, "grants", Table(GRANTS), r#"grants.tools = ["search.*"]"#, "The capabilities of the plugin. What is not listed is denied."),
    key(PLUGIN, "limits", Table(LIMITS), r#"limits = { memory = "64 MiB" }"#, "The limits of one call of the plugin."),
    key(PLUGIN, "config", Free, r#"config = { units = "celsius" }"#, "The plugin's own settings."),
    key(PLUGIN, "describe", Texts, r#"describe = { "get_issue" = "An issue of our tracker, with its comments.", "get_issue.number" = "The number behind the #." }"#, "Descriptions of its tools in place of its own, by `TOOL`, and of their arguments, by `\"TOOL.ARGUMENT\"`; the names are those here. For a tool of a server or a component that says too little to a model. The lock pins the plugin's own texts."),
    key(SOURCE, "mcp", Table(MCP), r#"mcp = { command = ["my-server"] }"#, "A server that speaks the Model Context Protocol: a program, which `grants.files` and `grants.fetch` restrict, or a URL. In short `source = \"mcp:my-server --stdio\"`.").required(),
    key(MCP, "command", TEXTS, r#"command = ["my-server", "--stdio"]"#, "The program and its arguments. The kernel confines it to the grants of the plugin; it communicates over stdin and stdout.").otherwise("required without `url`"),
    key(MCP, "env", Texts, r#"env = { LANG = "C.UTF-8" }"#, "Its environment variables besides `PATH`, `HOME` and `TMPDIR`. Not for secrets."),
    key(MCP, "keys", Free, r#"keys = { API_KEY = { env = "API_KEY" } }"#, "Its environment variables that hold keys, each with a source: `env`, `file` or `command`."),
    key(MCP, "cwd", TEXT, r#"cwd = "servers""#, "Its working directory, from the config's folder.").otherwise("the config's folder"),
    key(MCP, "unconfined", Flag, "unconfined = false", "Whether it runs with your permissions, your files and your network, so that no grant holds it back.").flag(false),
    key(MCP, "read", TEXTS, r#"read = ["/opt/node"]"#, "Files and folders of this machine that it may read, besides `grants.files`, those of the system, and those of its interpreter and package; from the config's folder."),
    key(MCP, "starts", TEXTS, r#"starts = ["/usr/bin/git"]"#, "The programs that it may start, or folders of programs, besides itself and its interpreter; from the config's folder."),
    key(MCP, "memory", Size { least: 1 << 20, most: COUNT_MAX }, r#"memory = "1 GiB""#, "The limit of memory of the program and all that it starts.").size(ServerLimits::MEMORY),
    key(MCP, "cpu", Duration { least: 1_000, most: 604_800_000 }, r#"cpu = "1 h""#, "The limit of computing time from its start, with all that it starts. It is started anew at the next call.").time(ServerLimits::CPU_MS),
    key(MCP, "processes", Whole { least: 1, most: 4_096 }, "processes = 128", "The maximum number of processes and threads at once, of the program and all that it starts.").count(ServerLimits::PROCESSES as u64),
    key(MCP, "file_size", Size { least: 4 << 10, most: COUNT_MAX }, r#"file_size = "64 MiB""#, "The size limit of a file that it writes.").size(ServerLimits::FILE_SIZE),
    key(MCP, "url", TEXT, r#"url = "http://127.0.0.1:3000/mcp""#, "The URL of a running server.").otherwise("required without `command`"),
    key(MCP, "key", Table(MCP_KEY), r#"key = { env = "MY_KEY" }"#, "The source of the key for `url`, which is sent as a bearer token."),
    key(MCP, "tools", TEXTS, r#"tools = ["get_issue", "list_*"]"#, "The tools to serve, by the server's names or the names here; `*` at the end stands for any rest. Of more than 256 the first 256 that the server lists are served.").otherwise("all"),
    key(MCP, "rename", Texts, r#"rename = { "getIssue" = "issue" }"#, "Names here, by the server's names: lower-case letters, digits and `_`.").otherwise("the server's name in these letters, with a hash where they are no name of its own"),
    key(MCP_KEY, "env", TEXT, r#"env = "MY_KEY""#, "An environment variable of the host."),
    key(MCP_KEY, "file", TEXT, r#"file = "key.txt""#, "A file, from the config's folder; its first line is the key."),
    key(MCP_KEY, "command", TEXTS, r#"command = ["pass", "show", "key"]"#, "A program and its arguments; the first line of its output is the key."),
];

#[rustfmt::skip]
const CALL_LIMITS: &[ConfigKey] = &[
    key(LIMITS, "memory", Size { least: limits::MEMORY_MIN, most: limits::MEMORY_MAX }, r#"memory = "64 MiB""#, "The size limit of all linear memories together.").size(PluginLimits::DEFAULT.memory),
    key(LIMITS, "cpu", CPU, r#"cpu = "500 ms""#, "The CPU time limit of one call, counted in ticks of 10 ms.").time(PluginLimits::DEFAULT.cpu_ms),
    key(LIMITS, "wall", TIME, r#"wall = "2 s""#, "The time limit of one call, including waits.").otherwise("`\"30 s\"`, and the time limits of its models"),
    key(LIMITS, "output", MEMORY, r#"output = "256 KiB""#, "The size limit of the data that the plugin passes to the host in one host call or in its answer.").size(PluginLimits::DEFAULT.output),
    key(LIMITS, "log", MEMORY, r#"log = "64 KiB""#, "The size limit of all log lines and progress reports of one call.").size(PluginLimits::DEFAULT.log),
    key(LIMITS, "host_calls", Whole { least: 1, most: limits::HOST_CALLS_MAX }, "host_calls = 100_000", "The maximum number of calls of host functions in one call.").count(PluginLimits::DEFAULT.host_calls),
    key(LIMITS, "handles", Whole { least: 1, most: limits::HANDLES_MAX as u64 }, "handles = 256", "The maximum number of host resources held at once.").count(PluginLimits::DEFAULT.handles as u64),
    key(LIMITS, "read", Size { least: 1, most: limits::READ_MAX }, r#"read = "64 MiB""#, "The maximum number of bytes that one call reads from files.").size(PluginLimits::DEFAULT.read),
    key(LIMITS, "scratch", MEMORY, r#"scratch = "64 KiB""#, "The size limit of the state that it keeps between calls (`scratch`).").size(PluginLimits::DEFAULT.scratch),
    key(LIMITS, "blobs", MEMORY, r#"blobs = "16 MiB""#, "The size limit of all attachments that one call stores.").size(PluginLimits::DEFAULT.blobs),
    key(LIMITS, "at_once", Whole { least: 1, most: limits::AT_ONCE_MAX as u64 }, "at_once = 32", "The maximum number of concurrent calls into the plugin.").count(PluginLimits::DEFAULT.at_once as u64),
    key(LIMITS, "table_elements", Whole { least: 1, most: limits::TABLE_ELEMENTS_MAX as u64 }, "table_elements = 20_000", "The maximum number of elements of all tables together.").count(PluginLimits::DEFAULT.table_elements as u64),
    key(LIMITS, "instances", Whole { least: 1, most: limits::INSTANCES_MAX as u64 }, "instances = 60", "The maximum number of core instances in the component.").count(PluginLimits::DEFAULT.instances as u64),
    key(LIMITS, "arguments", Size { least: 1, most: limits::ARGUMENTS_MAX }, r#"arguments = "1 MiB""#, "The size limit of the arguments of one tool call, as JSON text.").size(PluginLimits::DEFAULT.arguments),
    key(LIMITS, "list", Whole { least: 1, most: limits::LIST_MAX as u64 }, "list = 10_000", "The maximum number of elements in one list that the plugin passes to the host.").count(PluginLimits::DEFAULT.list as u64),
    key(LIMITS, "component", Size { least: 1, most: limits::COMPONENT_BYTES }, r#"component = "64 MiB""#, "The size limit of the component itself.").size(PluginLimits::DEFAULT.component),
    key(LIMITS, "compile_time", Duration { least: 1, most: limits::COMPILE_MS_MAX }, r#"compile_time = "5 min""#, "The time limit for compiling the component.").time(PluginLimits::DEFAULT.compile_ms),
    key(LIMITS, "compile_memory", Size { least: 1, most: limits::COMPILE_MEMORY_MAX }, r#"compile_memory = "2 GiB""#, "The memory limit for compiling the component, in a separate process.").size(PluginLimits::DEFAULT.compile_memory),
];

#[rustfmt::skip]
const TASKS: &[ConfigKey] = &[
    key(TASK, "agent", TEXT, r#"agent = "librarian""#, "The agent plugin of the task.").required(),
    key(TASK, "description", TEXT, r#"description = "Answers from the library.""#, "The description, for display and for agents that may delegate to the task."),
    key(TASK, "system", TEXT, r#"system = "You are a librarian.""#, "The system message of the agent."),
    key(TASK, "subtasks", TEXTS, r#"subtasks = ["answer"]"#, "The sub-tasks, in the order in which they are tried."),
    key(TASK, "tools", List(&Either(&[TEXT, Table(TASK_TOOL)])), r#"tools = ["search.find", "done"]"#, "The tools that the agent is offered: granted tools of plugins (`*` for all of them), and tools of the host such as `done`, `pass`, `forward`, `send` and `rewind`. A table sets the options of one tool.").otherwise("all granted tools"),
    key(TASK, "scope", Table(SCOPE), "scope = { read_only = true }", "Restrictions of the agent's grants for this task. Tools are restricted by `tools`."),
    key(TASK, "result_delivery", RESULT_FORM, r#"result_delivery = "text""#, "How the result of a background task is delivered: `agent-turn`, the notified task's agent reads it in a turn of its own; `text`, the text is sent unchanged.").otherwise("`agent-turn` if the notified task is interactive or the room persistent, else `text`"),
    key(TASK, "delivery_strategy", TEXT, r#"delivery_strategy = "immediate""#, "The delivery strategy for the result of a background task."),
    key(TASK, "background", Table(BACKGROUND), "background = { wait = true }", "Defaults for the background tasks that the agent starts."),
    key(TASK, "deadline", Duration { least: 10, most: DURATION_MAX }, r#"deadline = "2 min""#, "The time limit of the task in the background.").otherwise("the rest of the run's time"),
    key(TASK, "handoff", TEXTS, r#"handoff = ["billing", "user"]"#, "The tasks to which the agent may transfer the conversation with `handoff_conversation`; `user` returns it to the user.").otherwise("all that it may address"),
    key(TASK, "on_close", CLOSE, r#"on_close = "detach""#, "What happens to the background task when its parent is stopped or closed: `cascade`, it is stopped too; `detach`, it continues on its own; `finish-silently`, the parent waits for its end but does not deliver the result.").word("cascade"),
    key(TASK, "structured_retries", Whole { least: 0, most: 100 }, "structured_retries = 3", "Requires a background task to return its result with `submit_result`, and sets how often the agent is prompted again for it."),
    key(TASK, "budget", Table(BUDGET), "budget = { turns = 4 }", "The limits of the task in the background.").otherwise("of each limit, half of the rest of the run's"),
    key(TASK, "interactive", Flag, "interactive = true", "Whether the user is asked after each step of another responder.").flag(false),
    key(TASK, "compat", COMPAT, r#"compat = "langroid""#, "Gives the task Langroid's defaults. Keys that are written take precedence.").otherwise("that of the file"),
    key(TASK, "user_message", TEXT, r#"user_message = "What is new?""#, "The user message at the start of the agent's history."),
    key(TASK, "responders", RESPONDERS, r#"responders = ["llm", "agent"]"#, "The responders of the task: `llm`, the agent plugin; `agent`, which executes tool calls and actions; `user`.").words(&["llm", "agent", "user"]),
    key(TASK, "only_user_quits_root", Flag, "only_user_quits_root = false", "Whether an interactive entry task ends only when the user ends it.").flag(true),
    key(TASK, "default_human_response", TEXT, r#"default_human_response = "Go on.""#, "A fixed answer in place of the user's. The user is then never asked."),
    key(TASK, "turns", COUNT_32, "turns = 10", "The maximum number of steps in one activation of the task."),
    key(TASK, "single_round", Flag, "single_round = true", "Limits the task to one step, or to two with `llm_delegate`.").flag(false),
    key(TASK, "llm_delegate", Flag, "llm_delegate = true", "With `single_round`: the model asks, and another responder answers.").flag(false),
    key(TASK, "restart", Flag, "restart = false", "Whether each run begins with empty histories, including those of sub-tasks.").flag(true),
    key(TASK, "restart_as_subtask", Flag, "restart_as_subtask = true", "Whether each call by another task begins with empty histories.").flag(false),
    key(TASK, "erase_substeps", Flag, "erase_substeps = true", "Whether histories drop the messages that led to the result.").flag(false),
    key(TASK, "max_stalled_steps", Whole { least: 1, most: 1_000 }, "max_stalled_steps = 5", "The number of steps without a valid answer before the task ends as stalled.").count(5),
    key(TASK, "done_if_response", TEXTS, r#"done_if_response = ["llm"]"#, "The responders whose answer ends the task: `llm`, `agent`, `user` or sub-tasks."),
    key(TASK, "done_if_no_response", TEXTS, r#"done_if_no_response = ["user"]"#, "The responders that end the task when they do not answer: `llm`, `agent`, `user` or sub-tasks."),
    key(TASK, "done_if_tool", Flag, "done_if_tool = true", "Whether a message with a tool call ends the task.").flag(false),
    key(TASK, "done_sequences", TEXTS, r#"done_sequences = ["T[search.find], A"]"#, "Sequences that end the task when its newest messages match one. `T` is a tool call, `T[tool]` a call of this tool, `A`, `L` and `U` an answer of agent, model and user, `C[pattern]` a content."),
    key(TASK, "returns", Either(&[RETURN_TYPES, Table(RETURNS)]), r#"returns = "int""#, "The type of the result: `text`, `int`, `float`, `bool`, `any_tool`, or a table for a call of one tool.").otherwise("the message as it is"),
    key(TASK, "tool_format", Choice(&["native", "json", "xml", "off"]), r#"tool_format = "native""#, "How the model writes tool calls: through its API (`native`), as JSON or XML in its text, or not at all (`off`).").word("native"),
    key(TASK, "model", Either(&[TEXT, TEXTS]), r#"model = ["fast", "strong"]"#, "The model that the agent asks when it names none, or several: the next one is asked if the one before cannot be reached, is overloaded, or does not take so long a prompt. Each must be granted to the agent.").otherwise("`default` of the agent's grant, or its first model"),
    key(TASK, "force_tool", TEXT, r#"force_tool = "search.find""#, "The tool that the model must call, under the agent's name for it."),
    key(TASK, "allow_multiple_tools", Flag, "allow_multiple_tools = false", "Whether a message may contain several tool calls.").flag(true),
    key(TASK, "respond_tools_only", Flag, "respond_tools_only = true", "Whether the task, as a sub-task, is tried only for tool calls that it handles.").flag(false),
    key(TASK, "allow_subtask_multi_tools", Flag, "allow_subtask_multi_tools = false", "Whether a message with several native calls may go to a sub-task.").flag(true),
    key(TASK, "overflow", Choice(&["truncate", "drop-turns"]), r#"overflow = "truncate""#, "What happens to a history that does not fit the model's context: `truncate` shortens older messages, `drop-turns` drops whole turns.").word("truncate"),
    key(TASK, "bytes_per_token", Whole { least: 1, most: 64 }, "bytes_per_token = 4", "The number of bytes that count as one token in estimates.").count(4),
    key(TASK, "loop_detection", Table(LOOPS), "loop_detection = { cycle_len = 10 }", "The thresholds at which repeated messages count as a loop, which ends the task."),
    key(TASK, "text_rules", Table(WORDS), "text_rules = { signals = true }", "Which words in text are signals. By default text is data."),
    key(TASK, "on_no_tool_call", Either(&[Choice(&["nothing", "done", "user"]), Table(NO_TOOL)]), r#"on_no_tool_call = "done""#, "What happens after an agent's message without a tool call: `nothing`; `done`, the message is the result; `user`, the message goes to the user. A table sets a reply to the agent, or a tool call.").otherwise("`\"done\"` without sub-tasks and user, else `\"nothing\"`"),
    key(TASK, "agent_responder", Choice(&["host", "host-then-component", "component"]), r#"agent_responder = "host-then-component""#, "What answers in the role `agent`: `host`, which executes tool calls and actions; `component`, the plugin's `respond`; `host-then-component`, the plugin if the host has nothing to execute.").word("host-then-component"),
    key(TASK, "allow_null_result", Flag, "allow_null_result = true", "Whether the task continues with the message DO-NOT-KNOW when no responder answers.").flag(false),
    key(TASK, "action_plugins", TEXTS, r#"action_plugins = ["workspace", "browser"]"#, "The plugins whose tools execute the agent's actions, in order of preference. A tool `read` executes the action `read`, and so on."),
    key(TASK, "action_timeout", Duration { least: 10, most: DURATION_MAX }, r#"action_timeout = "2 min""#, "The time limit of an action or a tool call. When it expires, the agent gets an error.").otherwise("the plugin's own limits"),
    key(TASK, "memory", TEXT, r#"memory = "notes""#, "The plugin that the agent's `recall` queries.").otherwise("the agent's own component, if it exports `memory`"),
    key(TASK, "confirm", Either(&[POLICIES, Table(CONFIRM)]), r#"confirm = "always""#, "Which actions and tool calls of the agent wait for an approver, by their risk.").word("never"),
    key(TASK, "judge", TEXT, r#"judge = "grader""#, "The plugin that overrules the rules for the task's answers: which are valid, which end the task, and what its result says."),
    key(TASK, "simulated_user", TEXT, r#"simulated_user = "customer""#, "The plugin that answers the task's questions in the place of the user, such as in an evaluation."),
    key(TASK, "condense", Table(CONDENSE), r#"condense = { plugin = "recent", max_entries = 100 }"#, "When the agent's history is condensed, and by which plugin."),
    key(TASK, "stuck_detection", Either(&[Flag, Table(STUCK)]), "stuck_detection = false", "Whether an agent that repeats itself is stopped.").otherwise("`true`; with `compat = \"langroid\"`, `false`"),
    key(TASK, "prompt_agent", TEXT, r#"prompt_agent = "agents/coder.md""#, "The file of a prompt agent: its description, inputs, outputs and prompt."),
    key(TASK, "knowledge", TEXTS, r#"knowledge = ["agents/git.md"]"#, "Files that are added to the agent's history when a user's message contains one of their `triggers`, each at most once."),
    key(TASK_TOOL, "tool", TEXT, r#"tool = "search.find""#, "`plugin.tool`, or a tool of the host, by Conclave's or Langroid's name.").required(),
    key(TASK_TOOL, "as", TEXT, r#"as = "find""#, "The agent's name for the tool: letters, digits, `_`, `.` and `-`."),
    key(TASK_TOOL, "task", TEXT, r#"task = "researcher""#, "For `delegate_task`: the only task that the tool starts, so that the model does not choose one."),
    key(TASK_TOOL, "wait", Flag, "wait = true", "For `delegate_task`: whether a call waits for the result and returns it.").flag(false),
    key(TASK_TOOL, "use", Flag, "use = false", "Whether the agent is offered the tool.").flag(true),
    key(TASK_TOOL, "handle", Flag, "handle = false", "Whether this task executes the tool's calls. If not, a sub-task may.").flag(true),
    key(TASK_TOOL, "final", Flag, "final = true", "Whether a call of the tool ends the task and all its callers with the call as the result.").flag(false),
    key(TASK_TOOL, "title", TEXT, r#"title = "Find""#, "A second name, for use in `done_sequences`."),
    key(TASK_TOOL, "result_tokens", COUNT, "result_tokens = 2_000", "The token limit of a result. The plugin's limit applies if it is smaller."),
    key(TASK_TOOL, "retained_tokens", COUNT, "retained_tokens = 100", "The token limit of a result in the history after the agent has answered it. The plugin's limit applies if it is smaller."),
    key(TASK_TOOL, "recipients", TEXTS, r#"recipients = ["answer", "user"]"#, "For `recipient_message`: the allowed recipients.").otherwise("any"),
    key(TASK_TOOL, "default_recipient", TEXT, r#"default_recipient = "user""#, "For `recipient_message`: the recipient if a call names none."),
];

#[rustfmt::skip]
const TASK_PARTS: &[ConfigKey] = &[
    key(BACKGROUND, "channels", TEXTS, r#"channels = ["terminal"]"#, "The channels that a background task may use if its call names none."),
    key(BACKGROUND, "wait", Flag, "wait = true", "Whether each call waits for the result and returns it.").flag(false),
    key(BACKGROUND, "cache", TIME, r#"cache = "5 min""#, "How long an equal call returns the result of an earlier one that completed."),
    key(BACKGROUND, "notify", TEXT, r#"notify = "desk""#, "The task to notify of results. Another one by an agent's own choice needs `grants.route`.").otherwise("this task"),
    key(BACKGROUND, "delivery_strategy", TEXT, r#"delivery_strategy = "digest""#, "The delivery strategy for results, in place of the worker's own.").otherwise("the worker's `delivery_strategy`"),
    key(BACKGROUND, "conversation", Whole { least: 0, most: CONVERSATION_MAX as u64 }, "conversation = 12", "The number of the conversation's newest messages that every background task gets.").count(0),
    key(BUDGET, "turns", COUNT, "turns = 4", "The maximum number of steps of agents.").otherwise(HALF),
    key(BUDGET, "tokens", COUNT, "tokens = 10_000", "The maximum number of input and output tokens of all models.").otherwise(HALF),
    key(BUDGET, "cost_usd", Spending, "cost_usd = 0.05", "The maximum cost in US dollars of all models with a known price.").otherwise(HALF),
    key(BUDGET, "model_calls", COUNT, "model_calls = 8", "The maximum number of requests to models.").otherwise(HALF),
    key(BUDGET, "tool_calls", COUNT, "tool_calls = 20", "The maximum number of calls of plugins' tools.").otherwise(HALF),
    key(BUDGET, "cpu", CPU, r#"cpu = "10 s""#, "The CPU time limit of all plugins together, counted in ticks of 10 ms for each call.").otherwise(HALF),
    key(BUDGET, "tasks", Whole { least: 0, most: COUNT_MAX }, "tasks = 0", "The maximum number of background tasks that it may start itself.").otherwise(HALF),
    key(CONFIRM, "policy", POLICIES, r#"policy = "risky""#, "`never`, `always`, or `risky` for actions of at least the risk `threshold`.").required(),
    key(CONFIRM, "threshold", Choice(&["low", "medium", "high"]), r#"threshold = "medium""#, "For `risky`: the lowest risk that needs an approval.").word("high"),
    key(CONFIRM, "unknown", Flag, "unknown = false", "For `risky`: whether actions of unknown risk need an approval.").flag(true),
    key(CONFIRM, "analyzer", TEXT, r#"analyzer = "patterns""#, "The plugin that rates the risk of an action. If it fails, the action needs an approval."),
    key(CONDENSE, "plugin", TEXT, r#"plugin = "recent""#, "The condenser plugin.").required(),
    key(CONDENSE, "max_entries", Whole { least: 4, most: 1_000_000 }, "max_entries = 100", "The number of history entries above which the condenser is called.").count(CondenseRules::OVER),
    key(STUCK, "repeats", REPEATS, "repeats = 4", "The number of equal actions with equal results that counts as stuck.").count(StuckRules::DEFAULT.repeats as u64),
    key(STUCK, "errors", REPEATS, "errors = 4", "The number of equal actions with errors that counts as stuck.").count(StuckRules::DEFAULT.errors as u64),
    key(STUCK, "alternations", REPEATS, "alternations = 6", "The number of alternations between two actions that counts as stuck.").count(StuckRules::DEFAULT.alternations as u64),
    key(STUCK, "messages", REPEATS, "messages = 3", "The number of consecutive equal messages that counts as stuck.").count(StuckRules::DEFAULT.messages as u64),
    key(STUCK, "recovery", Choice(&["ask", "restart", "stop"]), r#"recovery = "restart""#, "`ask` the user if one is present, `restart` from the history before the loop, or `stop` the task.").word("ask"),
    key(RETURNS, "tool", TEXT, r#"tool = "search.find""#, "A call of this tool, under the agent's name for it.").required(),
    key(LOOPS, "cycle_len", Whole { least: 0, most: 1_000 }, "cycle_len = 10", "The maximum length of a cycle in messages. 0 disables the search for cycles.").count(LoopRules::DEFAULT.cycle_len as u64),
    key(LOOPS, "dominance", Factor, "dominance = 1.5", "The factor by which messages of a cycle must outnumber any other.").factor(LoopRules::DEFAULT.dominance),
    key(LOOPS, "repeats", Whole { least: 1, most: 1_000 }, "repeats = 5", "The number of repetitions of a cycle that counts as a loop.").count(LoopRules::DEFAULT.wait as u64),
    key(LOOPS, "alternation", Flag, "alternation = false", "Whether consecutive turns that end with DO-NOT-KNOW also count as a loop.").flag(LoopRules::DEFAULT.alternation),
    key(WORDS, "signals", Flag, "signals = true", "Whether `DONE`, `__PASS__`, `__PASS__:name` and `__SEND__:name` are signals.").otherwise(UNLESS_LANGROID),
    key(WORDS, "recipients", Flag, "recipients = true", "Whether an agent's text may name its recipient: `TO[name]:`, or a JSON object with `recipient`.").otherwise(UNLESS_LANGROID),
    key(WORDS, "address_prefix", TEXT, r#"address_prefix = "|@|""#, "The prefix that addresses a recipient by name. Without it, text addresses no recipient."),
    key(WORDS, "calls", Flag, "calls = true", "Whether tool calls are parsed from text for every `tool_format`.").otherwise(UNLESS_LANGROID),
    key(WORDS, "system_prefix", Flag, "system_prefix = true", "Whether a user's text that begins with `SYSTEM` is treated as the host's.").otherwise(UNLESS_LANGROID),
    key(NO_TOOL, "nudge", TEXT, r#"nudge = "Call a tool.""#, "A text that is returned to the agent.").otherwise("required without `tool`"),
    key(NO_TOOL, "tool", TEXT, r#"tool = "search.find""#, "A tool that is called, under the agent's name for it.").otherwise("required without `nudge`"),
    key(NO_TOOL, "arguments", Free, r#"arguments = { query = "news" }"#, "The arguments of that call."),
];

#[rustfmt::skip]
const OTHERS: &[ConfigKey] = &[
    key(GATES, "on", Choice(&["inbound", "delegate", "deliver", "subtask", "outbound", "tool-call", "tool-result"]), r#"on = "delegate""#, "What it checks: `inbound`, messages from channels; `delegate`, background tasks; `deliver`, results and announcements; `subtask`, messages to sub-tasks and delegates and their results; `outbound`, questions, talk and answers for people; `tool-call`, the arguments of calls of tools; `tool-result`, their results.").required(),
    key(GATES, "plugin", TEXT, r#"plugin = "guard""#, "The gate plugin. It allows, changes or blocks a text.").required(),
    key(GATES, "tools", TEXTS, r#"tools = ["mail.*"]"#, "For `tool-call` and `tool-result`: the tools whose calls or results it checks. `*` matches any text.").otherwise("all tools"),
    key(GATES, "deadline", Duration { least: 1, most: 60_000 }, r#"deadline = "200 ms""#, "The time limit of one check.").time(GateRule::DEADLINE_MS),
    key(GATES, "on_failure", Choice(&["block", "pass"]), r#"on_failure = "pass""#, "What happens to the text if the gate fails or times out. Use `pass` only for gates that improve a text, never for a guard.").word("block"),
    key(OBSERVERS, "plugin", TEXT, r#"plugin = "hook""#, "The observer plugin. Only this entry lets it read events.").required(),
    key(OBSERVERS, "events", List(&Choice(&EVENT_KINDS)), r#"events = ["task-ended", "denied"]"#, "The kinds of events that it receives.").otherwise("all"),
    key(OBSERVERS, "queue", Whole { least: 1, most: 1_000_000 }, "queue = 200", "The number of events that may wait for it. When they are more, the run waits until half of them are taken.").count(ObserverRule::QUEUE),
    key(OBSERVERS, "deadline", Duration { least: 1, most: 600_000 }, r#"deadline = "2 s""#, "The time limit of one call.").time(ObserverRule::DEADLINE_MS),
    key(OBSERVERS, "attempts", Whole { least: 1, most: 100 }, "attempts = 3", "The number of failed calls for the same events after which it is stopped. The pauses between them grow from half a second to a minute.").count(ObserverRule::ATTEMPTS as u64),
    key(POLICY, "tool", TEXT, r#"tool = "notes.save""#, "`plugin.tool`. A `*` stands for any text: `files.list_*`, `files.*`, `*.delete*`, `*`.").required(),
    key(POLICY, "caller", TEXT, r#"caller = "librarian""#, "The calling plugin, or `(mcp)` for a client of `conclave mcp`.").otherwise("any"),
    key(POLICY, "exact_arguments", Flag, "exact_arguments = true", "Whether the rule matches only calls without arguments beyond those in `arguments`.").flag(false),
    key(POLICY, "arguments", Free, r#"arguments = { path = "/notes/public/*" }"#, "The required arguments. Each key is a property or a JSON pointer; each value is a pattern, a value or a list of these. In a pattern `*` matches any text and `\\*` a star.").otherwise("any"),
    key(POLICY, "decide", Choice(&["allow", "ask", "deny"]), r#"decide = "ask""#, "`allow` the call, `ask` an approver, or `deny` the call.").required(),
    key(POLICY, "expires", TIME, r#"expires = "10 min""#, "For `ask`: the time limit of the approval. When it expires, the call is denied."),
    key(TRUST, "keys", Texts, r#"keys = { alice = "ed25519:0000000000000000000000000000000000000000000000000000000000000001" }"#, "The public keys, each under a name of your choice, as `conclave plugin keygen` prints them."),
    key(TRUST, "require_signed", Table(SIGNATURES), "require_signed = { threshold = 1 }", "The signatures that every component from a file, a URL or a registry needs. They are verified before it is compiled."),
    key(TRUST, "revoked", TEXTS, r#"revoked = ["sha256:0000000000000000000000000000000000000000000000000000000000000000"]"#, "Keys (`ed25519:…`) whose signatures no longer count, and digests (`sha256:…`) of components and manifests that are never loaded."),
    key(SIGNATURES, "threshold", Whole { least: 0, most: 100 }, "threshold = 2", "The number of different keys that must have signed it. 0 requires none.").count(1),
    key(SIGNATURES, "keys", TEXTS, r#"keys = ["alice", "bob"]"#, "The names of the keys that count.").otherwise("all of `[trust]`"),
    key(LIMITS_TABLE, "run", Table(RUN), r#"run = { wall = "5 min" }"#, "The limits of one run, including its sub-tasks and background tasks."),
    key(RUN, "wall", TIME, r#"wall = "5 min""#, "The time limit from the first message; in a conversation, from the first message of each turn.").time(some(RunLimits::DEFAULT.wall_ms)),
    key(RUN, "turns", COUNT, "turns = 40", "The maximum number of steps of agents.").count(some(RunLimits::DEFAULT.turns)),
    key(RUN, "task_turns", COUNT_32, "task_turns = 20", "The maximum number of steps in one activation of a task, counting all responders."),
    key(RUN, "tokens", COUNT, "tokens = 100_000", "The maximum number of input and output tokens of all models."),
    key(RUN, "cost_usd", Spending, "cost_usd = 0.50", "The maximum cost in US dollars of all models with a known price."),
    key(RUN, "model_calls", COUNT, "model_calls = 200", "The maximum number of requests to models."),
    key(RUN, "tool_calls", COUNT, "tool_calls = 500", "The maximum number of calls of plugins' tools.").count(some(RunLimits::DEFAULT.tool_calls)),
    key(RUN, "history", Size { least: 1, most: COUNT_MAX }, r#"history = "64 MiB""#, "The size limit of messages, calls and results that a room holds in memory.").size(some(RunLimits::DEFAULT.history)),
    key(RUN, "cpu", CPU, r#"cpu = "1 min""#, "The CPU time limit of all plugins together, counted in ticks of 10 ms for each call."),
    key(RUN, "depth", Whole { least: 0, most: u32::MAX as u64 }, "depth = 3", "The maximum nesting depth of background tasks.").count(RunLimits::DEFAULT.depth as u64),
    key(RUN, "tasks", COUNT, "tasks = 50", "The maximum number of background tasks, including nested ones."),
    key(RUN, "tasks_at_once", COUNT_32, "tasks_at_once = 8", "The maximum number of concurrent background tasks, including nested ones."),
    key(RUN, "when_used_up", Choice(&["end", "ask"]), r#"when_used_up = "ask""#, "What happens when one of these limits is used up: `end` the run, or `ask` an approver for more.").word("end"),
];

/// The keys of one table.
pub(crate) fn of_table(table: &str) -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(move |key| key.table == table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once_with_an_example_that_is_toml() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(
                !KEYS[..index]
                    .iter()
                    .any(|other| (other.table, other.name) == (key.table, key.name)),
                "{key:?}"
            );
            assert!(key.doc.ends_with('.'), "{key:?}");
            let is_word = |word: &str| key.shape.words().contains(&word);
            match key.default {
                KeyDefault::Word(word) => assert!(is_word(word), "{key:?}"),
                KeyDefault::Words(words) => assert!(words.iter().all(|word| is_word(word))),
                _ => {}
            }
            let parsed = toml::de::DeTable::parse(key.example).map(|table| table.get_ref().len());
            assert!(parsed == Ok(usize::from(!key.example.is_empty())), "{key:?}");
        }
    }
}
