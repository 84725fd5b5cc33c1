//! `grants` of a plugin: the access that the operator allows. A grant is a list of names, or a
//! table with that list and its limits.

pub(super) mod fetch;
mod files;
mod lists;

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::keys::ValueShape::{
    Choice, Duration, Either, Flag, List, Size, Spending, Table, Texts, Whole,
};
use super::keys::{
    BODY, COUNT, COUNT_32, COUNT_MAX, ConfigKey, GRANTS, ON_CLOSE, RESULT_DELIVERY, SCOPE, TEXT,
    TEXTS, ValueShape, key,
};
use super::problem_code::ProblemCode;
use super::reader::{self, ConfigReader, SpannedValue};
use super::references::References;
use super::{ORCHESTRATION_TOOLS, SecretConfig, mcp, names, plugin};
use crate::permissions::command::CommandPattern;
use crate::permissions::grants::{
    ChannelsGrant, DelegateGrant, ExecGrant, FetchGrant, Grants, HistoryGrant, KvGrant, ModelGrant,
    RouteGrant, SecretGrant, ToolPattern, ToolsGrant,
};
use crate::permissions::task_scope::TaskScope;
use crate::types::ids::SecretName;
use crate::types::wording::{array, code, string, suggest};

use lists::{Name, limit, list_or_table, referenced};
pub(crate) use lists::{names_in_order, names_of};

const TOOLS: &str = "plugins.NAME.grants.tools";
const MODEL: &str = "plugins.NAME.grants.model";
const DELEGATE: &str = "plugins.NAME.grants.delegate";
const FILES: &str = "plugins.NAME.grants.files[]";
const CHANNEL_GRANT: &str = "plugins.NAME.grants.channels";
const FETCH: &str = "plugins.NAME.grants.fetch";
const FETCH_RULE: &str = "plugins.NAME.grants.fetch.urls[]";
const HISTORY: &str = "plugins.NAME.grants.history";
const EXEC: &str = "plugins.NAME.grants.exec";
const KV: &str = "plugins.NAME.grants.kv";

/// `CONNECT` is for tunnels of confined servers. `TRACE` is for proxies.
const METHODS: &ValueShape =
    &Choice(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"]);
/// The default of what narrows a grant.
const AS_GRANTED: &str = "as granted";

/// The keys of grants. A table: one key per line.
#[rustfmt::skip]
pub(super) const KEYS: &[ConfigKey] = &[
    key(GRANTS, "tools", Either(&[TEXTS, Table(TOOLS)]), r#"grants.tools = ["search.*"]"#, "The tools of other plugins that the plugin may call: an agent in its steps, a tool while it runs, for the agent that called it."),
    key(GRANTS, "model", Either(&[TEXTS, Table(MODEL)]), r#"grants.model = ["default"]"#, "The models that it may prompt."),
    key(GRANTS, "delegate", Either(&[TEXTS, Table(DELEGATE)]), r#"grants.delegate = ["digest"]"#, "The tasks that it may delegate to."),
    key(GRANTS, "route", TEXTS, r#"grants.route = ["answer"]"#, "The recipients that it may address: tasks, `user`, host tools such as `done`."),
    key(GRANTS, "files", List(&Either(&[TEXT, Table(FILES)])), r#"grants.files = [{ dir = "docs", at = "/docs", mode = "read" }]"#, "The folders that it may read or write."),
    key(GRANTS, "channels", Either(&[TEXTS, Table(CHANNEL_GRANT)]), r#"grants.channels = ["terminal"]"#, "The channels that a delivery strategy may send to."),
    key(GRANTS, "fetch", Either(&[List(&Either(&[TEXT, Table(FETCH_RULE)])), Table(FETCH)]), r#"grants.fetch = ["https://api.example.org/v1/*"]"#, "The URLs that it may send requests to, with GET and HEAD unless `methods` says otherwise."),
    key(GRANTS, "kv", Either(&[Flag, Table(KV)]), "grants.kv = true", "A key-value store of its own, durable across runs."),
    key(GRANTS, "secrets", TEXTS, r#"grants.secrets = ["met_token"]"#, "The secrets that the host inserts into its requests. The plugin never sees their values."),
    key(GRANTS, "history", Either(&[Flag, Table(HISTORY)]), "grants.history = true", "The conversation of the tasks that call its tools: the message with the call, the task's inputs, the newest messages."),
    key(GRANTS, "exec", Either(&[TEXTS, Table(EXEC)]), r#"grants.exec = ["/usr/bin/git status"]"#, "The commands of this machine that its tools may run, outside the sandbox: the path of a program and a word for each argument. `*` stands for any characters, but for no option, and a last word `**` for any further arguments."),
    key(FETCH, "urls", List(&Either(&[TEXT, Table(FETCH_RULE)])), r#"urls = ["https://api.example.org/v1/*"]"#, "Scheme, host (`*.NAME` for all subdomains), port and path. A `*` at the end matches any rest.").required(),
    key(FETCH, "methods", List(METHODS), r#"methods = ["GET"]"#, "The methods for all of `urls`. `CONNECT` is for MCP servers: a tunnel to the host, in which nothing is checked.").words(&["GET", "HEAD"]),
    key(FETCH, "headers", TEXTS, r#"headers = ["x-api-version"]"#, "The request headers that are allowed besides the usual ones (`accept`, `content-type`, `authorization` and similar)."),
    key(FETCH, "private", TEXTS, r#"private = ["127.0.0.1"]"#, "The private addresses and networks that are allowed."),
    key(FETCH, "requests", COUNT, "requests = 100", "The maximum number of requests in the whole run.").count(FetchGrant::REQUESTS),
    key(FETCH, "request_size", BODY, r#"request_size = "256 KiB""#, "The size limit of one request: URL, headers and body together.").size(FetchGrant::REQUEST_BYTES),
    key(FETCH, "response_size", BODY, r#"response_size = "4 MiB""#, "The size limit of one response, decompressed.").size(FetchGrant::RESPONSE_BYTES),
    key(FETCH, "timeout", Duration { least: 1, most: 600_000 }, r#"timeout = "20 s""#, "The time limit of one request, including redirects and the whole response.").time(FetchGrant::TIME_MS),
    key(FETCH, "at_once", Whole { least: 1, most: 64 }, "at_once = 4", "The maximum number of concurrent requests.").count(FetchGrant::AT_ONCE as u64),
    key(FETCH, "host_names", Whole { least: 0, most: 10_000 }, "host_names = 16", "The maximum number of host names that may be resolved in the whole run.").count(FetchGrant::NAMES as u64),
    key(FETCH, "redirects", Whole { least: 0, most: 20 }, "redirects = 5", "The maximum number of redirects that one request follows.").count(FetchGrant::REDIRECTS as u64),
    key(FETCH_RULE, "url", TEXT, r#"url = "https://api.example.org/v1/items""#, "A URL pattern, as in `urls`.").required(),
    key(FETCH_RULE, "methods", List(METHODS), r#"methods = ["GET", "POST"]"#, "The methods for this URL.").otherwise("those beside `urls`, else `GET` and `HEAD`"),
    key(KV, "bytes", Size { least: 1, most: COUNT_MAX }, r#"bytes = "1 MiB""#, "The size limit of all keys and values together.").size(KvGrant::DEFAULT.bytes),
    key(KV, "keys", COUNT, "keys = 1_000", "The maximum number of keys.").count(KvGrant::DEFAULT.keys),
    key(TOOLS, "names", TEXTS, r#"names = ["search.*"]"#, "`plugin.tool`, `plugin.*` or `*`.").required(),
    key(TOOLS, "calls", COUNT, "calls = 20", "The maximum number of calls in the whole run."),
    key(MODEL, "names", TEXTS, r#"names = ["default"]"#, "The names of models.").required(),
    key(MODEL, "tokens", COUNT, "tokens = 50_000", "The maximum number of input and output tokens in the whole run."),
    key(MODEL, "cost_usd", Spending, "cost_usd = 0.20", "The maximum cost in US dollars in the whole run."),
    key(MODEL, "calls", COUNT, "calls = 20", "The maximum number of completions in the whole run."),
    key(HISTORY, "messages", Whole { least: 1, most: 10_000 }, "messages = 20", "The newest messages that a call may read.").count(HistoryGrant::DEFAULT.messages as u64),
    key(DELEGATE, "tasks", TEXTS, r#"tasks = ["digest"]"#, "The names of tasks.").required(),
    key(DELEGATE, "at_once", COUNT_32, "at_once = 1", "The maximum number of concurrent background tasks.").count(DelegateGrant::AT_ONCE as u64),
    key(DELEGATE, "total", COUNT_32, "total = 8", "The maximum number of background tasks in the whole run.").otherwise("`8`, at least `at_once`"),
    key(DELEGATE, "channels", TEXTS, r#"channels = ["terminal"]"#, "The channels that it may share with background tasks."),
    key(DELEGATE, "delivery_strategies", TEXTS, r#"delivery_strategies = ["digest"]"#, "The delivery strategies that it may choose for a result, besides the one that the tasks name."),
    key(DELEGATE, "result_delivery", List(RESULT_DELIVERY), r#"result_delivery = ["text"]"#, "The forms of delivery that it may choose for a result, besides the worker's own `result_delivery`."),
    key(DELEGATE, "on_close", List(ON_CLOSE), r#"on_close = ["detach"]"#, "What it may choose to happen to a background task when its own task is stopped, besides `cascade` and the worker's own `on_close`."),
    key(FILES, "dir", TEXT, r#"dir = "docs""#, "The folder, relative to the config's folder.").required(),
    key(FILES, "at", TEXT, r#"at = "/docs""#, "The path at which the plugin sees it: `/` and one name.").required(),
    key(FILES, "mode", Choice(&["read", "read-write", "overlay"]), r#"mode = "read""#, "Whether the plugin may write: `read-write` into the folder, `overlay` into a copy-on-write overlay of the run, whose changes a person applies with `conclave diff`.").word("read"),
    key(FILES, "bytes", Size { least: 1, most: COUNT_MAX }, r#"bytes = "16 MiB""#, "For `read-write`: the size limit of all files below it. For `overlay`: of all changed files.").otherwise("`\"16 MiB\"`"),
    key(FILES, "files", COUNT, "files = 1_000", "For `read-write`: the maximum number of files and folders below it. For `overlay`: of changed and removed files.").otherwise("`1_000`"),
    key(CHANNEL_GRANT, "names", TEXTS, r#"names = ["terminal"]"#, "The names of channels.").required(),
    key(CHANNEL_GRANT, "messages", COUNT, "messages = 5", "The maximum number of messages in the whole run."),
];

/// The keys of `grants.exec`; in a manual they come behind the limits of calls.
#[rustfmt::skip]
pub(super) const EXEC_KEYS: &[ConfigKey] = &[
    key(EXEC, "commands", TEXTS, r#"commands = ["/usr/bin/git status", "/usr/bin/git log *"]"#, "The commands.").required(),
    key(EXEC, "read", TEXTS, r#"read = ["/opt/toolchain"]"#, "Files and folders of this machine that programs may read, besides those of the system (`/usr`, `/lib`) and the folders of `grants.files`; from the config's folder."),
    key(EXEC, "starts", TEXTS, r#"starts = ["/usr/lib/git-core", "/bin/sh"]"#, "The programs that a granted program may start, or folders of programs, besides itself and its interpreter; from the config's folder."),
    key(EXEC, "env", Texts, r#"env = { LANG = "C.UTF-8" }"#, "The environment variables besides `HOME` and `TMPDIR`, which are a folder that is removed with the program. Not for secrets."),
    key(EXEC, "network", Flag, "network = false", "Whether programs may use the network. No rule of `fetch` applies to them.").flag(false),
    key(EXEC, "confinement", Choice(&["required", "best-effort"]), r#"confinement = "required""#, "Whether a program may start if the kernel cannot confine it fully.").word("required"),
    key(EXEC, "runs", COUNT, "runs = 100", "The maximum number of programs in the whole run.").count(ExecGrant::RUNS),
    key(EXEC, "timeout", Duration { least: 1, most: 3_600_000 }, r#"timeout = "20 s""#, "The time limit of one program. The call of the tool needs more: `limits.wall`.").time(ExecGrant::TIME_MS),
    key(EXEC, "cpu", Duration { least: 1_000, most: 3_600_000 }, r#"cpu = "20 s""#, "The limit of computing time of a program and all that it starts.").time(ExecGrant::CPU_MS),
    key(EXEC, "memory", Size { least: 1 << 20, most: COUNT_MAX }, r#"memory = "512 MiB""#, "The limit of memory of a program and all that it starts.").size(ExecGrant::MEMORY),
    key(EXEC, "processes", Whole { least: 1, most: 4_096 }, "processes = 128", "The maximum number of processes and threads at once, of a program and all that it starts.").count(ExecGrant::PROCESSES as u64),
    key(EXEC, "output", Size { least: 1, most: 16 << 20 }, r#"output = "256 KiB""#, "The limit of standard output and standard error together; the rest is dropped.").size(ExecGrant::OUTPUT),
    key(EXEC, "file_size", Size { least: 4 << 10, most: COUNT_MAX }, r#"file_size = "64 MiB""#, "The size limit of a file that it writes.").size(ExecGrant::FILE_SIZE),
];

/// The keys of `tasks.NAME.scope`.
#[rustfmt::skip]
pub(super) const SCOPE_KEYS: &[ConfigKey] = &[
    key(SCOPE, "model", TEXTS, r#"model = ["default"]"#, "The models that remain allowed.").otherwise(AS_GRANTED),
    key(SCOPE, "delegate", TEXTS, r#"delegate = ["digest"]"#, "The tasks that it may still delegate to.").otherwise(AS_GRANTED),
    key(SCOPE, "route", TEXTS, r#"route = ["answer"]"#, "The recipients that it may still address.").otherwise(AS_GRANTED),
    key(SCOPE, "files", TEXTS, r#"files = ["/docs"]"#, "The folders that remain allowed, by their paths in the plugin.").otherwise(AS_GRANTED),
    key(SCOPE, "read_only", Flag, "read_only = true", "Whether all folders are read-only.").flag(false),
    key(SCOPE, "fetch", TEXTS, r#"fetch = ["https://api.example.org/v1/*"]"#, "The URLs that remain allowed.").otherwise(AS_GRANTED),
    key(SCOPE, "secrets", TEXTS, "secrets = []", "The secrets that remain allowed.").otherwise(AS_GRANTED),
    key(SCOPE, "kv", Flag, "kv = false", "Whether its key-value store remains allowed.").otherwise(AS_GRANTED),
];

/// Reads all grants of a plugin.
pub(crate) fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    folder: &str,
    item: &SpannedValue<'_>,
    known: &BTreeMap<SecretName, SecretConfig>,
) -> Grants {
    let Some(table) = item.table(reader, GRANTS) else { return Grants::default() };
    Grants {
        model: table.get("model").and_then(|item| model(reader, references, &item)),
        tools: table.get("tools").and_then(|item| tools(reader, references, &item)),
        delegate: table.get("delegate").and_then(|item| delegate(reader, references, &item)),
        route: table.get("route").and_then(|item| route(reader, references, &item)),
        files: table
            .get("files")
            .map(|item| files::read(reader, folder, &item))
            .unwrap_or_default(),
        channels: table.get("channels").and_then(|item| channels(reader, references, &item)),
        fetch: table.get("fetch").and_then(|item| fetch::read(reader, &item)),
        kv: table.get("kv").and_then(|item| kv(reader, &item)),
        secrets: table.get("secrets").map(|item| secrets(reader, &item, known)).unwrap_or_default(),
        history: table.get("history").and_then(|item| history(reader, &item)),
        exec: table.get("exec").and_then(|item| exec(reader, folder, &item)),
    }
}

fn model(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<ModelGrant> {
    let (names, limits) = list_or_table(reader, item, MODEL, "names")?;
    Some(ModelGrant {
        names: referenced(references, names, References::add_model),
        tokens: limit(reader, &limits, "tokens"),
        cost_micro_usd: limit(reader, &limits, "cost_usd"),
        calls: limit(reader, &limits, "calls"),
    })
}

fn tools(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<ToolsGrant> {
    let (names, limits) = list_or_table(reader, item, TOOLS, "names")?;
    let names = patterns(reader, references, names);
    Some(ToolsGrant { names, calls: limit(reader, &limits, "calls") })
}

/// Returns the well-formed patterns of tools.
fn patterns(
    reader: &mut ConfigReader,
    references: &mut References,
    names: Vec<Name<'_>>,
) -> Vec<ToolPattern> {
    let mut patterns = Vec::new();
    for (item, name) in names {
        if ToolPattern::is_well_formed(name) {
            references.add_pattern(&item, name);
            patterns.push(ToolPattern(name.to_owned()));
        } else if ORCHESTRATION_TOOLS.contains(&name) {
            item.wrong(
                reader,
                &format!("names {}, a tool of the host", code(name)),
                format!("write `grants.route = {}`", array([name])),
            );
        } else {
            let help = names::check_name(name).ok().map(|()| {
                format!("for all tools of a plugin write {}", string(&format!("{name}.*")))
            });
            item.wrong(
                reader,
                &format!("must be `plugin.tool`, `plugin.*` or `*`, not {}", code(name)),
                help,
            );
        }
    }
    patterns
}

fn delegate(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<DelegateGrant> {
    let (names, limits) = list_or_table(reader, item, DELEGATE, "tasks")?;
    let at_once = limit(reader, &limits, "at_once").unwrap_or(DelegateGrant::AT_ONCE);
    let total = limit(reader, &limits, "total").unwrap_or(DelegateGrant::TOTAL.max(at_once));
    if let Some(item) =
        limits.as_ref().and_then(|table| table.get("at_once")).filter(|_| at_once > total)
    {
        item.reject(
            reader,
            ProblemCode::Conflict,
            &format!("is more than `total`, which is {total}"),
            None,
        );
    }
    let channels = super::background::channels(reader, references, limits.as_ref(), "channels");
    let strategies = limits
        .as_ref()
        .and_then(|table| table.get("delivery_strategies"))
        .and_then(|item| names_of(reader, &item, false))
        .unwrap_or_default();
    Some(DelegateGrant {
        tasks: referenced(references, names, References::add_task),
        at_once,
        total,
        channels,
        delivery_strategies: referenced(references, strategies, References::add_plugin),
        result_delivery: choices(reader, limits.as_ref(), "result_delivery"),
        on_close: choices(reader, limits.as_ref(), "on_close"),
    })
}

/// A list of words; empty if the key is not given.
fn choices<T: DeserializeOwned + Ord>(
    reader: &mut ConfigReader,
    table: Option<&reader::Table<'_>>,
    key: &str,
) -> BTreeSet<T> {
    let words: Option<Vec<T>> = table.and_then(|table| table.read(reader, key));
    words.unwrap_or_default().into_iter().collect()
}

fn route(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<RouteGrant> {
    let names = names_of(reader, item, true)?;
    Some(RouteGrant { names: referenced(references, names, References::add_address) })
}

fn channels(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<ChannelsGrant> {
    let (names, limits) = list_or_table(reader, item, CHANNEL_GRANT, "names")?;
    Some(ChannelsGrant {
        channels: referenced(references, names, References::add_channel),
        messages: limit(reader, &limits, "messages"),
    })
}

/// Reads a grant that is `true` for its defaults; `None` for a table, or if it was reported.
fn plain<T: Default>(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<T> {
    if item.boolean(reader)? {
        return Some(T::default());
    }
    item.wrong(reader, "is false, which grants nothing", "leave it out".to_owned());
    None
}

fn history(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<HistoryGrant> {
    if !item.value.is_table() {
        return plain(reader, item);
    }
    let table = item.table(reader, HISTORY)?;
    let mut grant = HistoryGrant::DEFAULT;
    table.set(reader, "messages", &mut grant.messages);
    Some(grant)
}

fn kv(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<KvGrant> {
    if !item.value.is_table() {
        return plain(reader, item);
    }
    let table = item.table(reader, KV)?;
    let mut grant = KvGrant::DEFAULT;
    table.set(reader, "bytes", &mut grant.bytes);
    table.set(reader, "keys", &mut grant.keys);
    Some(grant)
}

/// `["/usr/bin/git status"]`, or a table with `commands` and limits.
fn exec(reader: &mut ConfigReader, folder: &str, item: &SpannedValue<'_>) -> Option<ExecGrant> {
    let (names, table) = list_or_table(reader, item, EXEC, "commands")?;
    let mut commands = Vec::new();
    for (item, text) in names {
        match CommandPattern::parse(text) {
            Ok(pattern) => commands.push(pattern),
            Err(problem) => {
                let help = format!("write it as {}", string("/usr/bin/git log *"));
                item.wrong(reader, &format!("cannot be {}: {problem}", code(text)), help);
            }
        }
    }
    let mut grant = ExecGrant::new(commands);
    let Some(table) = table else { return Some(grant) };
    for (key, field) in [("read", &mut grant.read), ("starts", &mut grant.starts)] {
        if let Some(item) = table.get(key) {
            *field = plugin::paths(reader, &item, folder);
        }
    }
    if let Some(item) = table.get("env") {
        grant.env = mcp::texts(reader, &item);
    }
    table.set(reader, "network", &mut grant.network);
    table.set(reader, "confinement", &mut grant.confinement);
    table.set(reader, "runs", &mut grant.runs);
    table.set(reader, "timeout", &mut grant.time_ms);
    table.set(reader, "cpu", &mut grant.cpu_ms);
    table.set(reader, "memory", &mut grant.memory);
    table.set(reader, "processes", &mut grant.processes);
    table.set(reader, "output", &mut grant.output);
    table.set(reader, "file_size", &mut grant.file_size);
    Some(grant)
}

fn secrets(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    known: &BTreeMap<SecretName, SecretConfig>,
) -> Vec<SecretGrant> {
    let mut secrets = Vec::new();
    for (item, name) in names_of(reader, item, true).unwrap_or_default() {
        match known.get(name) {
            Some(secret) => secrets.push(SecretGrant {
                name: SecretName::from(name),
                hosts: secret.hosts.clone(),
                request_parts: secret.request_parts.clone(),
            }),
            None => {
                let names: Vec<&str> = known.keys().map(SecretName::as_str).collect();
                let help = suggest(name, &names, "secrets")
                    .or_else(|| Some(format!("write `[secrets.{name}]` with `from` and `hosts`")));
                item.reject(
                    reader,
                    ProblemCode::UnknownSecret,
                    &format!("names the secret {}, which is not in this config", code(name)),
                    help,
                );
            }
        }
    }
    secrets
}

/// Reads `tasks.NAME.scope`: the restriction of an agent's grants, capability by capability. Names
/// only; an empty list leaves nothing.
pub(crate) fn scope(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> TaskScope {
    let Some(table) = item.table(reader, SCOPE) else { return TaskScope::default() };
    let mut list = |key: &str| table.get(key).and_then(|item| names_of(reader, &item, false));
    let (model, delegate, route) = (list("model"), list("delegate"), list("route"));
    let (files, fetch, secrets) = (list("files"), list("fetch"), list("secrets"));
    TaskScope {
        model: model.map(|names| referenced(references, names, References::add_model)),
        delegate: delegate.map(|names| referenced(references, names, References::add_task)),
        route: route.map(|names| referenced(references, names, References::add_address)),
        files: files
            .map(|names| names.iter().filter_map(|it| files::in_scope(reader, it)).collect()),
        fetch: fetch.map(|names| {
            names.iter().filter_map(|(item, _)| fetch::url_pattern(reader, item)).collect()
        }),
        secrets: secrets
            .map(|names| names.into_iter().map(|(_, name)| SecretName::from(name)).collect()),
        read_only: table.read(reader, "read_only").unwrap_or_default(),
        kv: table.read(reader, "kv"),
    }
}
