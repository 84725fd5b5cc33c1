//! Every key of conclave.toml, with a line of documentation. The reader accepts exactly these, so
//! the list is complete by construction. The JSON schema and the operator's manual are generated
//! from it.

use crate::types::channel::ChannelAccess;
use crate::types::limits;

/// A key that this or a later version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigKey {
    /// The table of the key; `NAME` is any name, `[]` an entry of a list. Empty: the top level.
    pub table: &'static str,
    pub name: &'static str,
    /// The form of the value.
    pub shape: ValueShape,
    /// A valid line of config; empty for a table, and for keys of later versions.
    pub example: &'static str,
    /// One sentence of documentation.
    pub doc: &'static str,
    /// Whether this version reads it. The other keys are refused by name, never ignored.
    pub available: bool,
}

/// The form of a value, independent of other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Bytes with their unit: `64 MiB`.
    Size,
    /// Time with its unit: `2 s`.
    Duration,
    /// A number without a fraction.
    Whole {
        least: u64,
        most: u64,
    },
    /// US dollars.
    Dollars,
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
    /// Returns the allowed words of a text; empty if any text is allowed.
    pub(crate) fn words(&self) -> &'static [&'static str] {
        match self {
            Self::Choice(words) => words,
            Self::List(entry) => entry.words(),
            Self::Either(forms) => {
                forms.iter().map(Self::words).find(|words| !words.is_empty()).unwrap_or_default()
            }
            _ => &[],
        }
    }
}

const fn key(
    table: &'static str,
    name: &'static str,
    shape: ValueShape,
    example: &'static str,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { table, name, shape, example, doc, available: true }
}

const fn later(table: &'static str, name: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey { table, name, shape: ValueShape::Free, example: "", doc, available: false }
}

pub(crate) const MODELS: &str = "models.NAME";
/// The source of a key.
pub(crate) const KEY: &str = "models.NAME.key";
/// A rule.
pub(crate) const POLICY: &str = "policy[]";
/// A channel.
pub(crate) const CHANNELS: &str = "channels.NAME";
/// A gate.
pub(crate) const GATES: &str = "gates[]";
const PLUGIN: &str = "plugins.NAME";
/// A source in the form of a table.
pub(crate) const SOURCE: &str = "plugins.NAME.source";
/// A server of tools.
pub(crate) const MCP: &str = "plugins.NAME.source.mcp";
/// The key of a server of tools.
pub(crate) const MCP_KEY: &str = "plugins.NAME.source.mcp.key";
/// The grants of a plugin.
pub(crate) const GRANTS: &str = "plugins.NAME.grants";
const TOOLS: &str = "plugins.NAME.grants.tools";
const MODEL: &str = "plugins.NAME.grants.model";
const DELEGATE: &str = "plugins.NAME.grants.delegate";
const FILES: &str = "plugins.NAME.grants.files[]";
const ROOMS: &str = "plugins.NAME.grants.rooms";
const LIMITS: &str = "plugins.NAME.limits";
const FETCH: &str = "plugins.NAME.grants.fetch";
const FETCH_RULE: &str = "plugins.NAME.grants.fetch.urls[]";
const KV: &str = "plugins.NAME.grants.kv";
/// Secrets.
pub(crate) const SECRETS: &str = "secrets.NAME";
/// The source of a secret.
pub(crate) const SECRET_FROM: &str = "secrets.NAME.from";
const METHODS: &ValueShape =
    &ValueShape::Choice(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
/// A task.
pub(crate) const TASK: &str = "tasks.NAME";
/// The restriction of an agent's grants by its task.
pub(crate) const NARROW: &str = "tasks.NAME.narrow";
/// A tool in a task's list.
pub(crate) const TASK_TOOL: &str = "tasks.NAME.tools[]";
/// The type of a run's result.
pub(crate) const RETURNS: &str = "tasks.NAME.returns";
/// The rules of loop detection.
pub(crate) const LOOPS: &str = "tasks.NAME.loops";
/// The meaning of words in text.
pub(crate) const WORDS: &str = "tasks.NAME.text";
/// The treatment of a message without a call.
pub(crate) const NO_TOOL: &str = "tasks.NAME.handle_llm_no_tool";
/// The actions that need consent.
pub(crate) const CONFIRM: &str = "tasks.NAME.confirm";
/// The rules by which a task delegates.
pub(crate) const BACKGROUND: &str = "tasks.NAME.background";
/// The budget of a task in the background.
pub(crate) const BUDGET: &str = "tasks.NAME.budget";
/// The rules for condensing a history.
pub(crate) const CONDENSE: &str = "tasks.NAME.condense";
/// The rules of stuck detection.
pub(crate) const STUCK: &str = "tasks.NAME.stuck";
const POLICIES: ValueShape = ValueShape::Choice(&["never", "always", "risky"]);
const REPEATS: ValueShape = ValueShape::Whole { least: 2, most: 100 };
const LIMITS_TABLE: &str = "limits";
const RUN: &str = "limits.run";

const TEXT: ValueShape = ValueShape::Text;
const TEXTS: ValueShape = ValueShape::List(&ValueShape::Text);
const SEATS: ValueShape = ValueShape::List(&ValueShape::Choice(&["llm", "agent", "user"]));
/// The largest integer of TOML.
const COUNT: ValueShape = ValueShape::Whole { least: 1, most: i64::MAX as u64 };
const COUNT_32: ValueShape = ValueShape::Whole { least: 1, most: u32::MAX as u64 };
const COMPAT: ValueShape = ValueShape::Choice(&["langroid"]);
const RETURN_TYPES: ValueShape = ValueShape::Choice(&["text", "int", "float", "bool", "any_tool"]);

/// All keys, in the order of a manual. A table: one key per line.
#[rustfmt::skip]
pub const KEYS: &[ConfigKey] = &[
    key("", "entry", TEXT, r#"entry = "desk""#, "The task that gets the message."),
    key("", "models", ValueShape::Named(MODELS), "", "Models, each under a name of its own; `default` is meant when none is named."),
    key("", "plugins", ValueShape::Named(PLUGIN), "", "Plugins, each under a name of its own; what is not listed is not loaded."),
    key("", "secrets", ValueShape::Named(SECRETS), "", "Secrets that the host puts into requests of plugins, each under a name of its own and bound to hosts."),
    key("", "tasks", ValueShape::Named(TASK), "", "Tasks, each under a name of its own: who works, with what, who comes next."),
    key("", "limits", ValueShape::Table(LIMITS_TABLE), "", "Hard stops."),
    key("", "prices", TEXT, r#"prices = "prices.toml""#, "A file of what models cost, from the config's folder; what a model's own table says holds before it."),
    key("", "compat", COMPAT, r#"compat = "langroid""#, "The defaults of every task are Langroid's: words in text do what they do there, the host's tools have its names, a message without a call ends nothing; `interactive` stays false, where Langroid's default is true."),
    key("", "durability", ValueShape::Choice(&["sync", "group", "exit"]), r#"durability = "sync""#, "When what a run's journal holds is safe from a power cut: each event before anything comes of it, with others of the same milliseconds (`group`, unless given), or when the run ends. A program that is killed loses nothing in any of them."),
    key("", "channels", ValueShape::Named(CHANNELS), "", "Channels through which rooms are reached, each under a name of its own; `terminal` is there without being written."),
    key("", "gates", ValueShape::List(&ValueShape::Table(GATES)), "", "Plugins that are asked before something counts, one after the other; the first that blocks stops it."),
    key("", "policy", ValueShape::List(&ValueShape::Table(POLICY)), "", "Which tool calls run, are refused, or need an approval first; the first rule that matches wins."),
    key(MODELS, "kind", ValueShape::Choice(&["openai", "scripted", "native"]), r#"kind = "openai""#, "How the model is reached: `openai` is any Chat Completions server, `scripted` a file of replies, `native` the embedding program."),
    key(MODELS, "url", TEXT, r#"url = "http://127.0.0.1:11434/v1""#, "Where its server listens, with the path before `/chat/completions`."),
    key(MODELS, "model", TEXT, r#"model = "qwen3:8b""#, "The model's name at its server."),
    key(MODELS, "key", ValueShape::Table(KEY), r#"key = { env = "MY_KEY" }"#, "Where the host finds the server's key; a plugin never sees it."),
    key(MODELS, "headers", ValueShape::Texts, r#"headers = { "X-Title" = "desk" }"#, "Headers that go with every request; no secrets."),
    key(MODELS, "options", ValueShape::Free, "options = { temperature = 0.2 }", "Sent with every request, such as `temperature` and `seed`; plugins may set some anew."),
    key(MODELS, "proxy", TEXT, r#"proxy = "http://proxy.example:3128""#, "The proxy to its server; none is taken from the environment."),
    key(MODELS, "retries", ValueShape::Whole { least: 0, most: 20 }, "retries = 3", "Attempts after the first that failed; 3 by default, 0 for none."),
    key(MODELS, "timeout", ValueShape::Duration, r#"timeout = "10 min""#, "One completion, all attempts and pauses together."),
    key(MODELS, "attempt_timeout", ValueShape::Duration, r#"attempt_timeout = "5 min""#, "One attempt, from the request to the end of the reply."),
    key(MODELS, "idle_timeout", ValueShape::Duration, r#"idle_timeout = "60 s""#, "Silence within a streamed reply."),
    key(MODELS, "reply", ValueShape::Size, r#"reply = "8 MiB""#, "Bytes of one reply."),
    key(MODELS, "replies", TEXT, r#"replies = "replies.json""#, "The file of a scripted model's replies, from the config's folder."),
    key(MODELS, "input_price", ValueShape::Dollars, "input_price = 0.25", "US dollars for a million tokens of input."),
    key(MODELS, "output_price", ValueShape::Dollars, "output_price = 2.00", "US dollars for a million tokens of output."),
    key(MODELS, "cached_input_price", ValueShape::Dollars, "cached_input_price = 0.03", "US dollars for a million tokens of input that the provider had kept; as `input_price` by default."),
    key(MODELS, "context", COUNT, "context = 128_000", "Tokens of a prompt and its answer together; longer histories are cut. When it is not given none is."),
    key(MODELS, "max_output", COUNT, "max_output = 4_096", "Tokens of an answer at most; by default 4096 are kept free for it, where `context` is given."),
    key(MODELS, "min_output", COUNT, "min_output = 50", "Tokens that are kept free for an answer when `context` is short; 50 by default."),
    key(KEY, "env", TEXT, r#"env = "MY_KEY""#, "A variable of the environment."),
    key(KEY, "file", TEXT, r#"file = "key.txt""#, "A file, from the config's folder; its first line is the key."),
    key(KEY, "command", TEXTS, r#"command = ["pass", "show", "model"]"#, "A program and its arguments; the first line that it prints is the key."),
    key(SECRETS, "from", ValueShape::Table(SECRET_FROM), r#"from = { env = "MET_TOKEN" }"#, "Where the host finds the value; it is never written here."),
    key(SECRETS, "hosts", TEXTS, r#"hosts = ["api.example.org"]"#, "The hosts that may receive it: names, or `*.` and a name for all below it."),
    key(SECRETS, "places", ValueShape::List(&ValueShape::Choice(&["header", "query", "body"])), r#"places = ["header"]"#, "Where in a request it may stand; only in headers by default."),
    key(SECRET_FROM, "env", TEXT, r#"env = "MET_TOKEN""#, "A variable of the environment."),
    key(SECRET_FROM, "file", TEXT, r#"file = "token.txt""#, "A file, from the config's folder; its first line is the secret."),
    key(SECRET_FROM, "command", TEXTS, r#"command = ["pass", "show", "met"]"#, "A program and its arguments; the first line that it prints is the secret."),
    key(PLUGIN, "source", ValueShape::Either(&[TEXT, ValueShape::Table(SOURCE)]), r#"source = "./x.wasm""#, "`stock:` and a name, the path of a .wasm file from the config's folder, or `https://…#sha256=…`; a table for a server of tools."),
    key(SOURCE, "mcp", ValueShape::Table(MCP), r#"mcp = { command = ["my-server"] }"#, "A server of tools that speaks the Model Context Protocol: a program, or an address. It runs outside the sandbox, and no grant holds it back."),
    key(MCP, "command", TEXTS, r#"command = ["my-server", "--stdio"]"#, "The program and its arguments; it is started as you, in no sandbox, and speaks on stdin and stdout."),
    key(MCP, "env", ValueShape::Texts, r#"env = { LANG = "C.UTF-8" }"#, "Its environment, besides `PATH` and `HOME`; no secrets."),
    key(MCP, "keys", ValueShape::Free, r#"keys = { API_KEY = { env = "API_KEY" } }"#, "Variables of its environment whose values are found as keys of models are: `env`, `file` or `command`."),
    key(MCP, "cwd", TEXT, r#"cwd = "servers""#, "The folder that it starts in, from the config's folder, which it is without this."),
    key(MCP, "url", TEXT, r#"url = "http://127.0.0.1:3000/mcp""#, "Where it listens, when it is not started here."),
    key(MCP, "key", ValueShape::Table(MCP_KEY), r#"key = { env = "MY_KEY" }"#, "The key that its address wants, sent as a bearer token."),
    key(MCP_KEY, "env", TEXT, r#"env = "MY_KEY""#, "A variable of the host's environment."),
    key(MCP_KEY, "file", TEXT, r#"file = "key.txt""#, "A file, from the config's folder; its first line."),
    key(MCP_KEY, "command", TEXTS, r#"command = ["pass", "show", "key"]"#, "A program and its arguments; the first line that it prints."),
    key(PLUGIN, "grants", ValueShape::Table(GRANTS), r#"grants.tools = ["search.*"]"#, "What the plugin may touch; what is not listed is not allowed."),
    key(PLUGIN, "limits", ValueShape::Table(LIMITS), r#"limits = { memory = "64 MiB" }"#, "What one call of the plugin may use up."),
    key(PLUGIN, "config", ValueShape::Free, r#"config = { units = "celsius" }"#, "The plugin's own settings."),
    key(GRANTS, "tools", ValueShape::Either(&[TEXTS, ValueShape::Table(TOOLS)]), r#"grants.tools = ["search.*"]"#, "The tools that an agent may call."),
    key(GRANTS, "model", ValueShape::Either(&[TEXTS, ValueShape::Table(MODEL)]), r#"grants.model = ["default"]"#, "The models that it may ask."),
    key(GRANTS, "delegate", ValueShape::Either(&[TEXTS, ValueShape::Table(DELEGATE)]), r#"grants.delegate = ["digest"]"#, "The tasks that it may start in the background."),
    key(GRANTS, "route", TEXTS, r#"grants.route = ["answer"]"#, "Whom it may address: tasks, `user`, orchestration tools."),
    key(GRANTS, "files", ValueShape::List(&ValueShape::Either(&[ValueShape::Text, ValueShape::Table(FILES)])), r#"grants.files = [{ dir = "docs", at = "/docs", mode = "read" }]"#, "The directories that it may read or write."),
    key(GRANTS, "rooms", ValueShape::Either(&[TEXTS, ValueShape::Table(ROOMS)]), r#"grants.rooms = ["terminal"]"#, "The channels that a delivery strategy may speak on."),
    key(GRANTS, "fetch", ValueShape::Either(&[ValueShape::List(&ValueShape::Either(&[ValueShape::Text, ValueShape::Table(FETCH_RULE)])), ValueShape::Table(FETCH)]), r#"grants.fetch = ["https://api.example.org/v1/*"]"#, "The addresses of the web that it may send requests to; only GET and HEAD unless more is said."),
    key(GRANTS, "kv", ValueShape::Either(&[ValueShape::Flag, ValueShape::Table(KV)]), "grants.kv = true", "A store of its own, kept from run to run."),
    key(GRANTS, "secrets", TEXTS, r#"grants.secrets = ["met_token"]"#, "Secrets that the host puts into its requests; it never sees their values."),
    later(GRANTS, "exec", "Programs that it may run."),
    key(FETCH, "urls", ValueShape::List(&ValueShape::Either(&[ValueShape::Text, ValueShape::Table(FETCH_RULE)])), r#"urls = ["https://api.example.org/v1/*"]"#, "Scheme, host (`*.` for all below a name), port and path; a `*` at the end covers all that follows."),
    key(FETCH, "methods", ValueShape::List(METHODS), r#"methods = ["GET"]"#, "Methods for all of `urls`; GET and HEAD by default."),
    key(FETCH, "headers", TEXTS, r#"headers = ["x-api-version"]"#, "Headers that may go beside the usual ones (`accept`, `content-type`, `authorization` and the like); none by default."),
    key(FETCH, "private", TEXTS, r#"private = ["127.0.0.1"]"#, "Private addresses and networks that may be reached; none by default."),
    key(FETCH, "requests", COUNT, "requests = 100", "Requests in the whole run; 100 by default."),
    key(FETCH, "request_size", ValueShape::Size, r#"request_size = "256 KiB""#, "One request: address, headers and body together; 256 KiB by default, 256 MiB at most."),
    key(FETCH, "response_size", ValueShape::Size, r#"response_size = "4 MiB""#, "One answer, decompressed; 4 MiB by default, 256 MiB at most."),
    key(FETCH, "time", ValueShape::Duration, r#"time = "20 s""#, "One request, redirects and the whole answer; 20 s by default, 10 min at most."),
    key(FETCH, "at_once", ValueShape::Whole { least: 1, most: 64 }, "at_once = 4", "Requests under way at once; 4 by default."),
    key(FETCH, "names", ValueShape::Whole { least: 0, most: 10_000 }, "names = 16", "Names that may be looked up in the whole run; 16 by default."),
    key(FETCH, "redirects", ValueShape::Whole { least: 0, most: 20 }, "redirects = 5", "Redirects that one request follows; 5 by default, 0 for none."),
    key(FETCH_RULE, "url", TEXT, r#"url = "https://api.example.org/v1/items""#, "As in `urls`."),
    key(FETCH_RULE, "methods", ValueShape::List(METHODS), r#"methods = ["GET", "POST"]"#, "Methods for this address; GET and HEAD by default."),
    key(KV, "bytes", ValueShape::Size, r#"bytes = "1 MiB""#, "Keys and values together; 1 MiB by default."),
    key(KV, "keys", COUNT, "keys = 1_000", "Keys; 1000 by default."),
    key(TOOLS, "names", TEXTS, r#"names = ["search.*"]"#, "`plugin.tool`, `plugin.*` or `*`."),
    key(TOOLS, "calls", COUNT, "calls = 20", "Calls in the whole run."),
    key(MODEL, "names", TEXTS, r#"names = ["default"]"#, "Names of models."),
    key(MODEL, "tokens", COUNT, "tokens = 50_000", "Tokens in the whole run, input and output."),
    key(MODEL, "cost_usd", ValueShape::Dollars, "cost_usd = 0.20", "US dollars in the whole run."),
    key(MODEL, "calls", COUNT, "calls = 20", "Completions in the whole run."),
    key(DELEGATE, "tasks", TEXTS, r#"tasks = ["digest"]"#, "Names of tasks."),
    key(DELEGATE, "at_once", COUNT_32, "at_once = 1", "How many may run at the same time; 1 by default."),
    key(DELEGATE, "total", COUNT_32, "total = 8", "How many in the whole run; 8 by default."),
    key(DELEGATE, "channels", TEXTS, r#"channels = ["terminal"]"#, "Channels that it may share with such a task; none by default."),
    key(FILES, "dir", TEXT, r#"dir = "docs""#, "The directory, from the config's folder."),
    key(FILES, "at", TEXT, r#"at = "/docs""#, "Where the plugin sees it: `/` and one name."),
    key(FILES, "mode", ValueShape::Choice(&["read", "read-write"]), r#"mode = "read""#, "How it may be used."),
    key(FILES, "bytes", ValueShape::Size, r#"bytes = "16 MiB""#, "What all files below it may have together once the plugin writes; 16 MiB by default."),
    key(FILES, "files", COUNT, "files = 1_000", "Files and directories below it once the plugin writes; 1000 by default."),
    key(ROOMS, "channels", TEXTS, r#"channels = ["terminal"]"#, "Names of channels."),
    key(ROOMS, "messages", COUNT, "messages = 5", "Messages in the whole run."),
    key(LIMITS, "memory", ValueShape::Size, r#"memory = "64 MiB""#, "All memories together, from 64 KiB to 1 GiB."),
    key(LIMITS, "cpu", ValueShape::Duration, r#"cpu = "500 ms""#, "Computing in one call; counted in ticks of 10 ms."),
    key(LIMITS, "wall", ValueShape::Duration, r#"wall = "2 s""#, "One call, waiting included; by default 30 s, and the time that its models may take."),
    key(LIMITS, "output", ValueShape::Size, r#"output = "256 KiB""#, "What crosses to the host in one host call or answer."),
    key(LIMITS, "log", ValueShape::Size, r#"log = "64 KiB""#, "Log lines and progress in one call."),
    key(LIMITS, "host_calls", ValueShape::Whole { least: 1, most: limits::HOST_CALLS_MAX }, "host_calls = 100_000", "Calls of host functions in one call."),
    key(LIMITS, "handles", ValueShape::Whole { least: 1, most: limits::HANDLES_MAX as u64 }, "handles = 256", "Resources of the host held at once."),
    key(LIMITS, "read", ValueShape::Size, r#"read = "64 MiB""#, "What one call may read from files."),
    key(LIMITS, "scratch", ValueShape::Size, r#"scratch = "64 KiB""#, "What it may remember from call to call."),
    key(LIMITS, "blobs", ValueShape::Size, r#"blobs = "16 MiB""#, "Attachments that one call may keep, all together."),
    key(LIMITS, "at_once", ValueShape::Whole { least: 1, most: limits::AT_ONCE_MAX as u64 }, "at_once = 32", "Calls into the plugin under way at once."),
    key(LIMITS, "table_elements", ValueShape::Whole { least: 1, most: limits::TABLE_ELEMENTS_MAX as u64 }, "table_elements = 20_000", "Elements of all tables together."),
    key(LIMITS, "instances", ValueShape::Whole { least: 1, most: limits::INSTANCES_MAX as u64 }, "instances = 60", "Core instances that the component is made of."),
    key(LIMITS, "arguments", ValueShape::Size, r#"arguments = "1 MiB""#, "Arguments of one tool call, as JSON text; 64 MiB at most."),
    key(LIMITS, "list", ValueShape::Whole { least: 1, most: limits::LIST_MAX as u64 }, "list = 10_000", "Elements of one list that crosses to the host."),
    key(LIMITS, "component", ValueShape::Size, r#"component = "64 MiB""#, "The component itself; 64 MiB by default, which is also the most."),
    key(LIMITS, "compile_time", ValueShape::Duration, r#"compile_time = "5 min""#, "Compiling the component; 5 min by default, 1 h at most."),
    key(LIMITS, "compile_memory", ValueShape::Size, r#"compile_memory = "2 GiB""#, "What compiling may take up, in a process of its own; 64 GiB at most."),
    key(TASK, "agent", TEXT, r#"agent = "librarian""#, "The plugin that does the work."),
    key(TASK, "description", TEXT, r#"description = "Answers from the library.""#, "For people, and for agents that may hand work to it."),
    key(TASK, "system", TEXT, r#"system = "You are a librarian.""#, "The system message of its agent."),
    key(TASK, "subtasks", TEXTS, r#"subtasks = ["answer"]"#, "Tasks that are tried in this order."),
    key(TASK, "tools", ValueShape::List(&ValueShape::Either(&[ValueShape::Text, ValueShape::Table(TASK_TOOL)])), r#"tools = ["search.find", "done"]"#, "The tools that its agent is offered: of those that it was granted, all when this is not given or with `*`, and of the host's `done`, `pass`, `forward`, `send`, `rewind` and so on; a table says more of one."),
    key(TASK, "narrow", ValueShape::Table(NARROW), "narrow = { read_only = true }", "What the task leaves of its agent's grants; it can only take away. Tools are narrowed by `tools`."),
    key(TASK, "hand_back", ValueShape::Choice(&["relay", "post"]), r#"hand_back = "post""#, "What telling of its result means when it ran in the background: `relay`, the agent of the task that is told takes a turn about it, or `post`, people are told it as it is. Without it: `relay` where that task is interactive or the room is held, else `post`."),
    key(TASK, "deliver", TEXT, r#"deliver = "immediate""#, "The plugin that delivers its result when it ran in the background."),
    key(TASK, "background", ValueShape::Table(BACKGROUND), "background = { wait = true }", "How its agent has others work in the background."),
    key(TASK, "deadline", ValueShape::Duration, r#"deadline = "2 min""#, "How long it may take in the background; what is left of the run's time by default."),
    key(TASK, "handoff", TEXTS, r#"handoff = ["billing", "user"]"#, "Whom its agent may hand the conversation to with `handoff_conversation`, among those that it may address; all of them by default."),
    key(TASK, "on_close", ValueShape::Choice(&["cascade", "detach", "finish-silently"]), r#"on_close = "detach""#, "What becomes of it in the background when its parent is stopped or closed; `cascade`, which stops it, by default."),
    key(TASK, "structured", ValueShape::Whole { least: 0, most: 100 }, "structured = 3", "In the background it must hand its result in with `submit_result`; how often it is asked again."),
    key(TASK, "budget", ValueShape::Table(BUDGET), "budget = { turns = 4 }", "What it may use in the background; of what is not given here, half of what is left of the run's."),
    key(BUDGET, "turns", COUNT, "turns = 4", "Steps of agents."),
    key(BUDGET, "tokens", COUNT, "tokens = 10_000", "Tokens of all models, input and output."),
    key(BUDGET, "cost_usd", ValueShape::Dollars, "cost_usd = 0.05", "US dollars of all models whose price is known."),
    key(BUDGET, "model_calls", COUNT, "model_calls = 8", "Requests to models."),
    key(BUDGET, "tool_calls", COUNT, "tool_calls = 20", "Calls of plugins' tools."),
    key(BUDGET, "cpu", ValueShape::Duration, r#"cpu = "10 s""#, "Computing of all plugins together, in whole ticks of 10 ms of each call."),
    key(BUDGET, "tasks", ValueShape::Whole { least: 0, most: i64::MAX as u64 }, "tasks = 0", "Background tasks that it may start itself."),
    key(BACKGROUND, "share", TEXTS, r#"share = ["terminal"]"#, "Channels that a background task gets where its call names none."),
    key(BACKGROUND, "wait", ValueShape::Flag, "wait = true", "Each call waits for the result, which is its answer; false by default."),
    key(BACKGROUND, "cache", ValueShape::Duration, r#"cache = "5 min""#, "How long a completed result answers the same call again; not at all by default."),
    key(BACKGROUND, "conversation", ValueShape::Whole { least: 0, most: 100 }, "conversation = 12", "The newest messages of the conversation, which every background task gets to read; none by default."),
    key(TASK, "interactive", ValueShape::Flag, "interactive = true", "The user is asked after each step of somebody else."),
    key(TASK, "compat", COMPAT, r#"compat = "langroid""#, "The defaults of this task are Langroid's; what is written holds all the same."),
    key(TASK, "user_message", TEXT, r#"user_message = "What is new?""#, "What its agent's history begins with, as the user's word."),
    key(TASK, "seats", SEATS, r#"seats = ["llm", "agent"]"#, "The seats that are taken: llm, agent, user; all by default."),
    key(TASK, "only_user_quits_root", ValueShape::Flag, "only_user_quits_root = false", "At the root only the user ends an interactive task; true by default."),
    key(TASK, "default_human_response", TEXT, r#"default_human_response = "Go on.""#, "What the user is taken to have said; nobody is asked."),
    key(TASK, "turns", COUNT_32, "turns = 10", "Steps of one activation."),
    key(TASK, "single_round", ValueShape::Flag, "single_round = true", "One step; two with `llm_delegate`."),
    key(TASK, "llm_delegate", ValueShape::Flag, "llm_delegate = true", "With `single_round`: the model asks, and somebody answers it."),
    key(TASK, "restart", ValueShape::Flag, "restart = false", "Each run begins with empty histories, those of the sub-tasks too; true by default."),
    key(TASK, "restart_as_subtask", ValueShape::Flag, "restart_as_subtask = true", "Each call by another task begins with an empty history."),
    key(TASK, "erase_substeps", ValueShape::Flag, "erase_substeps = true", "Histories forget what led to the result."),
    key(TASK, "max_stalled_steps", ValueShape::Whole { least: 1, most: 1_000 }, "max_stalled_steps = 5", "Steps without a valid answer before it ends; 5 by default."),
    key(TASK, "done_if_response", SEATS, r#"done_if_response = ["llm"]"#, "An answer of one of these seats ends it: llm, agent, user."),
    key(TASK, "done_if_no_response", SEATS, r#"done_if_no_response = ["user"]"#, "No answer of one of these seats ends it: llm, agent, user."),
    key(TASK, "done_if_tool", ValueShape::Flag, "done_if_tool = true", "A message with a call ends it."),
    key(TASK, "done_sequences", TEXTS, r#"done_sequences = ["T[search.find], A"]"#, "Each ends it when the newest messages match: T a call, T[tool] one of this tool, A, L and U an answer of agent, model and user, C[pattern] content."),
    key(TASK, "returns", ValueShape::Either(&[RETURN_TYPES, ValueShape::Table(RETURNS)]), r#"returns = "int""#, "What its result must be: text, int, float, bool, any_tool, or the call of a tool."),
    key(TASK, "tool_format", ValueShape::Choice(&["native", "json", "xml", "off"]), r#"tool_format = "native""#, "How its agent writes calls: through the model's own interface, as JSON or XML in its text, or not at all."),
    key(TASK, "force", TEXT, r#"force = "search.find""#, "The tool that its model must call, by the name that the agent sees."),
    key(TASK, "allow_multiple_tools", ValueShape::Flag, "allow_multiple_tools = false", "A message may hold several calls; true by default."),
    key(TASK, "respond_tools_only", ValueShape::Flag, "respond_tools_only = true", "As a sub-task it is called only for calls that it carries out."),
    key(TASK, "allow_subtask_multi_tools", ValueShape::Flag, "allow_subtask_multi_tools = false", "A message with several native calls may go to a sub-task; true by default."),
    key(TASK, "overflow", ValueShape::Choice(&["truncate", "drop-turns"]), r#"overflow = "truncate""#, "When its history does not fit the model, older messages are cut, or whole turns left out."),
    key(TASK, "bytes_per_token", ValueShape::Whole { least: 1, most: 64 }, "bytes_per_token = 4", "Bytes that are taken for a token where texts are measured; 4 by default."),
    key(TASK, "loops", ValueShape::Table(LOOPS), "loops = { cycle_len = 10 }", "When a row of the same messages is a loop, and ends it."),
    key(TASK, "text", ValueShape::Table(WORDS), "text = { signals = true }", "What words in text may do; nothing by default, for text is data."),
    key(TASK, "handle_llm_no_tool", ValueShape::Either(&[ValueShape::Choice(&["nothing", "done", "user"]), ValueShape::Table(NO_TOOL)]), r#"handle_llm_no_tool = "done""#, "What becomes of an agent's message without a tool call."),
    key(TASK, "agent_seat", ValueShape::Choice(&["host", "host-then-component", "component"]), r#"agent_seat = "host-then-component""#, "Who answers on the agent seat."),
    key(TASK, "allow_null_result", ValueShape::Flag, "allow_null_result = true", "Without a valid answer the other side says that it does not know."),
    key(TASK, "executors", TEXTS, r#"executors = ["workspace", "browser"]"#, "Plugins whose tools carry out its agent's actions: a tool `read` those that read, and so on; the first one that has it."),
    key(TASK, "action_timeout", ValueShape::Duration, r#"action_timeout = "2 min""#, "How long an action or a tool call may be pending; then its agent reads that it timed out."),
    key(TASK, "memory", TEXT, r#"memory = "notes""#, "The plugin that its agent's `recall` asks; the agent's own memory, where it has one, by default."),
    key(TASK, "confirm", ValueShape::Either(&[POLICIES, ValueShape::Table(CONFIRM)]), r#"confirm = "always""#, "Which of its agent's actions and tool calls wait for an approver, by how risky they are; none by default."),
    key(TASK, "condense", ValueShape::Table(CONDENSE), r#"condense = { plugin = "recent", over = 100 }"#, "When its agent's history is condensed, and by which plugin."),
    key(TASK, "stuck", ValueShape::Either(&[ValueShape::Flag, ValueShape::Table(STUCK)]), "stuck = false", "Whether an agent that does the same again and again is stopped; true by default."),
    key(TASK, "micro", TEXT, r#"micro = "agents/coder.md""#, "The file of a micro-agent: its description, inputs, outputs and prompt."),
    key(TASK, "knowledge", TEXTS, r#"knowledge = ["agents/git.md"]"#, "Files that its agent reads once a user says one of their `triggers`; each once in a history."),
    key(CONFIRM, "policy", POLICIES, r#"policy = "risky""#, "`never`, `always`, or `risky`: from `threshold` on."),
    key(CONFIRM, "threshold", ValueShape::Choice(&["low", "medium", "high"]), r#"threshold = "medium""#, "How risky an action must be to wait; high by default."),
    key(CONFIRM, "unknown", ValueShape::Flag, "unknown = false", "Actions wait of which nobody says how risky they are; true by default."),
    key(CONFIRM, "analyzer", TEXT, r#"analyzer = "patterns""#, "The plugin that says how risky an action is; when it fails, the action waits."),
    key(CONDENSE, "plugin", TEXT, r#"plugin = "recent""#, "The condenser."),
    key(CONDENSE, "over", ValueShape::Whole { least: 4, most: 1_000_000 }, "over = 100", "Entries that the history may have; 100 by default."),
    key(STUCK, "repeats", REPEATS, "repeats = 4", "How often the same action may give the same result; 4 by default."),
    key(STUCK, "errors", REPEATS, "errors = 4", "How often the same action may fail; 4 by default."),
    key(STUCK, "alternations", REPEATS, "alternations = 6", "How many actions two may take in turns; 6 by default."),
    key(STUCK, "messages", REPEATS, "messages = 3", "How often it may say the same with nothing between; 3 by default."),
    key(STUCK, "recovery", ValueShape::Choice(&["ask", "restart", "stop"]), r#"recovery = "restart""#, "`ask` the user where there is one, `restart` where the loop began, or `stop`; `ask` by default."),
    key(TASK_TOOL, "tool", TEXT, r#"tool = "search.find""#, "`plugin.tool`, or a tool of the host by its own name or Langroid's."),
    key(TASK_TOOL, "as", TEXT, r#"as = "find""#, "The name that the agent sees and writes: letters, digits, `_`, `.` and `-`."),
    key(TASK_TOOL, "agent", TEXT, r#"agent = "researcher""#, "Of `delegate_task`: the one worker that the tool is for, so that the model need not choose."),
    key(TASK_TOOL, "wait", ValueShape::Flag, "wait = true", "Of `delegate_task`: its calls wait for the result, which is the answer; false by default."),
    key(TASK_TOOL, "use", ValueShape::Flag, "use = false", "It is shown to the agent, which may call it; true by default."),
    key(TASK_TOOL, "handle", ValueShape::Flag, "handle = false", "This task carries it out, else a sub-task may; true by default."),
    key(TASK_TOOL, "final", ValueShape::Flag, "final = true", "A call of it is the result of the task and of all its callers."),
    key(NARROW, "model", TEXTS, r#"model = ["default"]"#, "The models that are left; all that were granted by default."),
    key(NARROW, "delegate", TEXTS, r#"delegate = ["digest"]"#, "The tasks that it may still start in the background."),
    key(NARROW, "route", TEXTS, r#"route = ["answer"]"#, "Whom it may still address."),
    key(NARROW, "files", TEXTS, r#"files = ["/docs"]"#, "The folders that are left, by their places."),
    key(NARROW, "read_only", ValueShape::Flag, "read_only = true", "Folders can be read and not written."),
    key(NARROW, "fetch", TEXTS, r#"fetch = ["https://api.example.org/v1/*"]"#, "The addresses that are left."),
    key(NARROW, "secrets", TEXTS, "secrets = []", "The secrets that are left."),
    key(NARROW, "kv", ValueShape::Flag, "kv = false", "False: its store is out of reach."),
    key(TASK_TOOL, "title", TEXT, r#"title = "Find""#, "A second name, which `done_sequences` know too."),
    key(TASK_TOOL, "result_tokens", COUNT, "result_tokens = 2_000", "Tokens of a result at most; the plugin's own number holds where it is smaller."),
    key(TASK_TOOL, "retained_tokens", COUNT, "retained_tokens = 100", "Tokens of a result that stay in the history once it was answered; the plugin's own number holds where it is smaller."),
    key(TASK_TOOL, "recipients", TEXTS, r#"recipients = ["answer", "user"]"#, "Whom `recipient_message` may name; any by default."),
    key(TASK_TOOL, "default_recipient", TEXT, r#"default_recipient = "user""#, "Whom a `recipient_message` is for that names nobody."),
    key(RETURNS, "tool", TEXT, r#"tool = "search.find""#, "A call of this tool, by the name that the agent sees."),
    key(LOOPS, "cycle_len", ValueShape::Whole { least: 0, most: 1_000 }, "cycle_len = 10", "Messages in a cycle at most; 10 by default, and with 0 no cycle is looked for."),
    key(LOOPS, "dominance", ValueShape::Factor, "dominance = 1.5", "How many times as often those of a cycle must have come as any other; 1.5 by default."),
    key(LOOPS, "wait", ValueShape::Whole { least: 1, most: 1_000 }, "wait = 5", "How often a cycle must have come round; 5 by default."),
    key(LOOPS, "alternation", ValueShape::Flag, "alternation = false", "Turns that end with DO-NOT-KNOW, one after the other, are a loop too; true by default."),
    key(WORDS, "signals", ValueShape::Flag, "signals = true", "`DONE`, `__PASS__`, `__PASS__:name` and `__SEND__:name` mean what they say."),
    key(WORDS, "recipients", ValueShape::Flag, "recipients = true", "An agent's text may name its recipient: `TO[name]:`, or a JSON object with `recipient`."),
    key(WORDS, "prefix", TEXT, r#"prefix = "|@|""#, "With this before a name, text addresses somebody; without it none does."),
    key(WORDS, "calls", ValueShape::Flag, "calls = true", "Calls are looked for in text, whatever `tool_format` is."),
    key(WORDS, "system_word", ValueShape::Flag, "system_word = true", "A user's text that begins with `SYSTEM` is the host's word."),
    key(NO_TOOL, "nudge", TEXT, r#"nudge = "Call a tool.""#, "This text goes back to the agent."),
    key(NO_TOOL, "tool", TEXT, r#"tool = "search.find""#, "This tool is called instead, by the name that the agent sees."),
    key(NO_TOOL, "arguments", ValueShape::Free, r#"arguments = { query = "news" }"#, "With these arguments; none by default."),
    key(CHANNELS, "kind", ValueShape::Choice(&["text", "web", "voice", "agent"]), r#"kind = "voice""#, "What it is: a terminal or other text, a web page, a voice, or an agent elsewhere, which is told nothing and whose words lead to an agent here only where it is addressed."),
    key(CHANNELS, "access", ValueShape::Choice(&ChannelAccess::WORDS), r#"access = "read-only""#, "Whether it is told what is said, and whether something may come in from it: read-write by default, read-only, write-only or none."),
    key(CHANNELS, "visibility", ValueShape::Either(&[ValueShape::Choice(&["all", "none", "transport", "intelligence"]), TEXTS]), r#"visibility = ["desk"]"#, "Who sees what comes in from it: all by default, none, transport (channels that lead to people), intelligence (agents), or a list of channels and tasks."),
    key(CHANNELS, "muted", ValueShape::Flag, "muted = true", "It is told nothing; what comes in from it counts all the same."),
    key(CHANNELS, "rate", ValueShape::Whole { least: 1, most: 1_000_000 }, "rate = 5", "Messages a second that may come in from it; any number by default."),
    key(CHANNELS, "simulate", ValueShape::Duration, r#"simulate = "40 ms""#, "For a voice without a program that speaks: how long a word takes, from 1 ms to 1 min; the channel is busy for so long."),
    key(GATES, "on", ValueShape::Choice(&["inbound", "delegate", "deliver"]), r#"on = "delegate""#, "Before what it is asked: `inbound`, a message that came in on a channel; `delegate`, a background task; `deliver`, a result that is told."),
    key(GATES, "plugin", TEXT, r#"plugin = "guard""#, "The gate: it lets pass, changes or blocks; when it fails or takes too long, it blocks."),
    key(GATES, "deadline", ValueShape::Duration, r#"deadline = "200 ms""#, "How long it may take, from 1 ms to 60 s; 1 s by default."),
    key(GATES, "on_failure", ValueShape::Choice(&["block", "pass"]), r#"on_failure = "pass""#, "What becomes of what it was asked about when it fails or takes too long; `block` by default. `pass` is for gates that only improve a text, and never for one that guards."),
    key(POLICY, "tool", TEXT, r#"tool = "notes.save""#, "`plugin.tool`, `plugin.*` or `*`."),
    key(POLICY, "caller", TEXT, r#"caller = "librarian""#, "The plugin that calls, or `(mcp)` for a client at `conclave mcp`; whoever calls by default."),
    key(POLICY, "only", ValueShape::Flag, "only = true", "The rule holds only for calls without any argument that `arguments` does not name; false by default."),
    key(POLICY, "arguments", ValueShape::Free, r#"arguments = { path = "/notes/public/*" }"#, "What the arguments must be: a property or a JSON pointer, and a pattern, a value or a list of such; `*` is any text, `\\*` a star."),
    key(POLICY, "decide", ValueShape::Choice(&["allow", "ask", "deny"]), r#"decide = "ask""#, "`allow`, `ask` or `deny`."),
    key(POLICY, "expires", ValueShape::Duration, r#"expires = "10 min""#, "How long an approver may take; then the call is refused."),
    key(LIMITS_TABLE, "run", ValueShape::Table(RUN), r#"run = { wall = "5 min" }"#, "Hard stops of the whole tree of tasks."),
    key(RUN, "wall", ValueShape::Duration, r#"wall = "5 min""#, "Time from the first message; in a conversation, of each turn."),
    key(RUN, "turns", COUNT, "turns = 40", "Steps of agents."),
    key(RUN, "task_turns", COUNT_32, "task_turns = 20", "Steps of any one activation of a task, all seats counted."),
    key(RUN, "tokens", COUNT, "tokens = 100_000", "Tokens of all models, input and output."),
    key(RUN, "cost_usd", ValueShape::Dollars, "cost_usd = 0.50", "US dollars of all models whose price is known."),
    key(RUN, "model_calls", COUNT, "model_calls = 200", "Requests to models."),
    key(RUN, "tool_calls", COUNT, "tool_calls = 500", "Calls of plugins' tools; 1000 by default."),
    key(RUN, "history", ValueShape::Size, r#"history = "64 MiB""#, "What a room holds in memory of messages, calls and their results; 64 MiB by default."),
    key(RUN, "cpu", ValueShape::Duration, r#"cpu = "1 min""#, "Computing of all plugins together, in whole ticks of 10 ms of each call."),
    key(RUN, "depth", ValueShape::Whole { least: 0, most: u32::MAX as u64 }, "depth = 3", "Background tasks within background tasks."),
    key(RUN, "tasks", COUNT, "tasks = 50", "Background tasks that are started, those of background tasks included."),
    key(RUN, "tasks_at_once", COUNT_32, "tasks_at_once = 8", "Background tasks under way at once, those of background tasks included."),
    key(RUN, "when_used_up", ValueShape::Choice(&["end", "ask"]), r#"when_used_up = "ask""#, "What becomes of a run that has used up one of these: `end`, or `ask` an approver for more; `end` by default."),
];

/// Returns the keys of one table.
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
            let parsed = toml::de::DeTable::parse(key.example).map(|table| table.get_ref().len());
            assert!(parsed == Ok(usize::from(!key.example.is_empty())), "{key:?}");
        }
    }
}
