//! `grants` of a plugin: the access that the operator allows. A grant is a list of names, or a
//! table with that list and its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;

use super::keys::{
    CHANNEL_GRANT, DELEGATE, EXEC, FETCH, FETCH_RULE, FILES, GRANTS, HISTORY, KV, MODEL, TOOLS,
};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{ORCHESTRATION_TOOLS, SecretConfig, mcp, names, plugin};
use crate::permissions::command::CommandPattern;
use crate::permissions::fetch::{UrlPattern, is_header_name, is_own_header, is_usual_header};
use crate::permissions::grants::{
    ChannelsGrant, DelegateGrant, ExecGrant, FOLDER_BYTES, FOLDER_FILES, FetchGrant, FetchRule,
    FileGrant, FileMode, Grants, HistoryGrant, KvGrant, ModelGrant, RouteGrant, SecretGrant,
    ToolPattern, ToolsGrant,
};
use crate::types::ids::{ChannelId, ModelName, PluginName, SecretName, TaskName};
use crate::types::wording::{array, code, string, suggest};

/// An entry of a list of names.
type Name<'a> = (SpannedValue<'a>, &'a str);

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
        files: table.get("files").map(|item| files(reader, folder, &item)).unwrap_or_default(),
        channels: table.get("channels").and_then(|item| channels(reader, references, &item)),
        fetch: table.get("fetch").and_then(|item| fetch(reader, &item)),
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
    names.iter().for_each(|(item, name)| references.add_model(item, name));
    Some(ModelGrant {
        names: names.into_iter().map(|(_, name)| ModelName::from(name)).collect(),
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
    names.iter().for_each(|(item, name)| references.add_task(item, name));
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
    Some(DelegateGrant {
        tasks: names.into_iter().map(|(_, name)| TaskName::from(name)).collect(),
        at_once,
        total,
        channels,
        delivery_strategies: strategies(reader, references, limits.as_ref()),
        result_delivery: choices(reader, limits.as_ref(), "result_delivery"),
        on_close: choices(reader, limits.as_ref(), "on_close"),
    })
}

/// The delivery strategies that the agent may choose.
fn strategies(
    reader: &mut ConfigReader,
    references: &mut References,
    table: Option<&Table<'_>>,
) -> Vec<PluginName> {
    let names = table
        .and_then(|table| table.get("delivery_strategies"))
        .and_then(|item| names_of(reader, &item, false))
        .unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_plugin(item, name));
    names.into_iter().map(|(_, name)| PluginName::from(name)).collect()
}

/// A list of words; empty if the key is not given.
fn choices<T: DeserializeOwned + Ord>(
    reader: &mut ConfigReader,
    table: Option<&Table<'_>>,
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
    names.iter().for_each(|(item, name)| references.add_address(item, name));
    Some(RouteGrant { names: names.into_iter().map(|(_, name)| name.to_owned()).collect() })
}

fn channels(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<ChannelsGrant> {
    let (names, limits) = list_or_table(reader, item, CHANNEL_GRANT, "names")?;
    names.iter().for_each(|(item, name)| references.add_channel(item, name));
    Some(ChannelsGrant {
        channels: names.into_iter().map(|(_, name)| ChannelId::from(name)).collect(),
        messages: limit(reader, &limits, "messages"),
    })
}

/// `["https://api.example.org/*"]`, or a table with `urls` and limits.
fn fetch(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<FetchGrant> {
    let table = if item.value.is_table() { Some(item.table(reader, FETCH)?) } else { None };
    let urls = match &table {
        Some(table) => table.require(reader, "urls"),
        None if item.value.is_array() => Some(item.clone()),
        None => {
            item.expected(reader, "a list or a table");
            return None;
        }
    };
    let methods = table
        .as_ref()
        .and_then(|table| table.get("methods"))
        .and_then(|item| methods(reader, &item));
    let mut grant = FetchGrant::new(
        urls.map(|item| fetch_rules(reader, &item, methods.as_deref())).unwrap_or_default(),
    );
    let Some(table) = table else { return Some(grant) };
    if let Some(item) = table.get("headers") {
        grant.headers = headers(reader, &item);
    }
    if let Some(item) = table.get("private") {
        grant.private = networks(reader, &item);
    }
    table.set(reader, "requests", &mut grant.requests);
    table.set(reader, "request_size", &mut grant.request_bytes);
    table.set(reader, "response_size", &mut grant.response_bytes);
    table.set(reader, "timeout", &mut grant.time_ms);
    table.set(reader, "at_once", &mut grant.at_once);
    table.set(reader, "host_names", &mut grant.names);
    table.set(reader, "redirects", &mut grant.redirects);
    Some(grant)
}

fn fetch_rules(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    methods_of_all: Option<&[String]>,
) -> Vec<FetchRule> {
    let entries = item.list(reader).unwrap_or_default();
    if entries.is_empty() && item.value.is_array() {
        grants_nothing(reader, item);
    }
    let usual = || vec!["GET".to_owned(), "HEAD".to_owned()];
    let mut rules: Vec<FetchRule> = Vec::new();
    for entry in &entries {
        let (url, of_this) = if entry.value.is_table() {
            let Some(table) = entry.table(reader, FETCH_RULE) else {
                continue;
            };
            let of_this = table.get("methods").and_then(|item| methods(reader, &item));
            (table.require(reader, "url").and_then(|item| url_pattern(reader, &item)), of_this)
        } else {
            (url_pattern(reader, entry), None)
        };
        let Some(url) = url else { continue };
        let rule = FetchRule {
            url,
            methods: of_this
                .or_else(|| methods_of_all.map(<[String]>::to_vec))
                .unwrap_or_else(usual),
        };
        if rules.contains(&rule) {
            entry.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("names {} a second time", code(rule.url.as_str())),
                "leave it out".to_owned(),
            );
        } else {
            rules.push(rule);
        }
    }
    rules
}

fn url_pattern(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<UrlPattern> {
    let text = item.string(reader)?;
    match UrlPattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(problem) => {
            let help = format!("write it as {}", string("https://api.example.org/v1/*"));
            item.wrong(reader, &format!("cannot be {}: {problem}", code(text)), help);
            None
        }
    }
}

fn methods(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<String>> {
    if item.is_empty_list() {
        grants_nothing(reader, item);
    }
    item.read(reader)
}

/// Returns the names in lower case.
fn headers(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Vec<String> {
    let mut headers: Vec<String> = Vec::new();
    for (item, name) in names_of(reader, item, true).unwrap_or_default() {
        let lower = name.to_ascii_lowercase();
        if !is_header_name(&lower) {
            item.wrong(reader, &format!("must be the name of a header, not {}", code(name)), None);
        } else if is_own_header(&lower) {
            item.wrong(
                reader,
                &format!("names {}, which the host sets itself", code(name)),
                "leave it out".to_owned(),
            );
        } else if is_usual_header(&lower) || headers.contains(&lower) {
            item.wrong(
                reader,
                &format!("names {}, which is allowed already", code(name)),
                "leave it out".to_owned(),
            );
        } else {
            headers.push(lower);
        }
    }
    headers
}

/// Reads `"10.0.0.0/8"`, or one address.
fn networks(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (item, name) in names_of(reader, item, true).unwrap_or_default() {
        match name.parse::<IpNet>().or_else(|_| name.parse::<IpAddr>().map(IpNet::from)) {
            Ok(network) => networks.push(network),
            Err(_) => {
                item.wrong(
                    reader,
                    &format!(
                        "must be an address or a network such as `10.0.0.0/8`, not {}",
                        code(name)
                    ),
                    None,
                );
            }
        }
    }
    networks
}

/// `true`, or a table with a quota.
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
            let paths = item.list(reader).unwrap_or_default();
            let paths = paths.iter().filter_map(|item| plugin::path(reader, item, folder));
            *field = paths.map(|place| place.path).collect();
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

fn files(reader: &mut ConfigReader, folder: &str, item: &SpannedValue<'_>) -> Vec<FileGrant> {
    let entries = item.list(reader).unwrap_or_default();
    if entries.is_empty() && item.value.is_array() {
        grants_nothing(reader, item);
    }
    let mut grants: Vec<FileGrant> = Vec::new();
    for entry in &entries {
        let grant = if entry.value.is_str() {
            short_file(reader, folder, entry)
        } else {
            long_file(reader, folder, entry)
        };
        let Some(grant) = grant else { continue };
        if grants.iter().any(|other| other.at == grant.at) {
            let help = "give each directory a place of its own: `at = \"/other\"`".to_owned();
            entry.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("puts a second directory at {}", code(&grant.at)),
                help,
            );
        }
        grants.push(grant);
    }
    grants
}

/// Reads `"docs"`: the directory under its own name, read-only.
fn short_file(
    reader: &mut ConfigReader,
    folder: &str,
    item: &SpannedValue<'_>,
) -> Option<FileGrant> {
    let dir = plugin::path(reader, item, folder)?;
    let Some(at) = names::default_place(&dir.display_path) else {
        let line =
            format!("{{ dir = {}, at = \"/folder\", mode = \"read\" }}", string(&dir.display_path));
        item.wrong(
            reader,
            &format!("does not say at which path the plugin sees {}", code(&dir.display_path)),
            format!("write {}", code(&line)),
        );
        return None;
    };
    Some(FileGrant {
        dir: dir.path,
        display_path: dir.display_path,
        at,
        mode: FileMode::Read,
        bytes: FOLDER_BYTES,
        files: FOLDER_FILES,
    })
}

fn long_file(
    reader: &mut ConfigReader,
    folder: &str,
    item: &SpannedValue<'_>,
) -> Option<FileGrant> {
    if !item.value.is_table() {
        item.expected(reader, "a directory's name or a table");
        return None;
    }
    let table = item.table(reader, FILES)?;
    let mode = table.read(reader, "mode").unwrap_or(FileMode::Read);
    let quotas = ["bytes", "files"].into_iter().filter_map(|name| table.get(name));
    for item in quotas.filter(|_| mode == FileMode::Read) {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "is for a folder that may be written",
            "write `mode = \"read-write\"` or `\"overlay\"`, or leave it out".to_owned(),
        );
    }
    let bytes = table.read(reader, "bytes").unwrap_or(FOLDER_BYTES);
    let files = table.read(reader, "files").unwrap_or(FOLDER_FILES);
    let dir = table.require(reader, "dir").and_then(|item| plugin::path(reader, &item, folder));
    let at = table.require(reader, "at").and_then(|item| place(reader, &item));
    let (dir, at) = (dir?, at?);
    Some(FileGrant { dir: dir.path, display_path: dir.display_path, at, mode, bytes, files })
}

fn place(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let at = item.string(reader)?;
    match names::check_place(at) {
        Ok(()) => Some(at.to_owned()),
        Err(error) => {
            let proposed = names::default_place(at).unwrap_or_else(|| "/folder".to_owned());
            item.wrong(
                reader,
                &format!("must be `/` and one name: {} {error}", code(at)),
                format!("write `at = {}`", string(&proposed)),
            );
            None
        }
    }
}

/// Reads a grant in its short form, a list, or in its long form, a table.
fn list_or_table<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
    kind: &'static str,
    list: &str,
) -> Option<(Vec<Name<'a>>, Option<Table<'a>>)> {
    if item.value.is_table() {
        let table = item.table(reader, kind)?;
        let names = table
            .require(reader, list)
            .and_then(|item| names_of(reader, &item, true))
            .unwrap_or_default();
        return Some((names, Some(table)));
    }
    if !item.value.is_array() {
        item.expected(reader, "a list or a table");
        return None;
    }
    Some((names_of(reader, item, true)?, None))
}

/// Returns the strings of a list without duplicates; a grant's list must not be empty.
pub(crate) fn names_of<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
    is_grant: bool,
) -> Option<Vec<Name<'a>>> {
    let entries = item.list(reader)?;
    if entries.is_empty() && is_grant {
        grants_nothing(reader, item);
    }
    let mut names: Vec<Name<'a>> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in entries {
        let Some(name) = entry.string(reader) else { continue };
        if !seen.insert(name) {
            entry.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("names {} a second time", code(name)),
                "leave it out".to_owned(),
            );
        } else {
            names.push((entry, name));
        }
    }
    Some(names)
}

/// Returns the strings of a list, duplicates included.
pub(crate) fn names_in_order<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
) -> Option<Vec<Name<'a>>> {
    let entries = item.list(reader)?;
    Some(
        entries
            .into_iter()
            .filter_map(|entry| entry.string(reader).map(|name| (entry, name)))
            .collect(),
    )
}

fn grants_nothing(reader: &mut ConfigReader, item: &SpannedValue<'_>) {
    item.wrong(reader, "is an empty list, which grants nothing", "leave it out".to_owned());
}

/// Reads a limit beside the list of a grant; the short form of a grant has none.
fn limit<T: DeserializeOwned>(
    reader: &mut ConfigReader,
    limits: &Option<Table<'_>>,
    name: &str,
) -> Option<T> {
    limits.as_ref()?.read(reader, name)
}
