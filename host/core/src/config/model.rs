//! `[models.NAME]`: the server of a model, its prices and its limits. A model exists only by its
//! table, never by an environment variable that happens to be set; its key is only referred to.

use std::collections::BTreeMap;

use super::address::AddressError;
use super::keys::{KEY, MODELS};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::{
    ConfigPath, KeyRef, ModelConfig, ModelKind, ModelServerConfig, ThinkingMarks, address, json,
    names,
};
use crate::setup::ModelSetup;
use crate::tool_calls::truncate::{MIN_OUTPUT, RESERVE};
use crate::types::completion::ModelApi;
use crate::types::ids::ModelName;
use crate::types::wording::{code, one_of, string, thousands};

/// Keys that only one kind has.
const SERVER_ONLY: [&str; 12] = [
    "url",
    "model",
    "key",
    "headers",
    "options",
    "proxy",
    "retries",
    "timeout",
    "attempt_timeout",
    "idle_timeout",
    "reply_size",
    "thinking",
];
const SCRIPTED_ONLY: [&str; 1] = ["replies"];
const OF_A_KIND: [(&[&str], &[&str]); 2] =
    [(&["openai", "openai-responses", "anthropic"], &SERVER_ONLY), (&["scripted"], &SCRIPTED_ONLY)];
/// Options that the host writes itself.
const RESERVED_OPTIONS: [&str; 7] =
    ["model", "messages", "system", "tools", "tool_choice", "stream", "n"];
/// Further ones of the Responses API: the input, and where the server would have more of it. An
/// answer in the background would have to be fetched.
const RESERVED_IN_RESPONSES: [&str; 5] =
    ["input", "instructions", "previous_response_id", "conversation", "background"];
/// Headers that carry the key or frame the request.
const RESERVED_HEADERS: [&str; 6] =
    ["authorization", "content-length", "content-type", "host", "transfer-encoding", "connection"];

pub(crate) fn read_all(
    reader: &mut ConfigReader,
    folder: &str,
    root: &Table<'_>,
) -> BTreeMap<ModelName, ModelConfig> {
    let mut models = BTreeMap::new();
    for (name, span, table) in root.named_tables(reader, "models", MODELS) {
        super::plugin::check_name(reader, "models", name, &span);
        let table = table.checked(reader);
        models.insert(ModelName::from(name), read(reader, folder, &table));
    }
    models
}

fn read(reader: &mut ConfigReader, folder: &str, table: &Table<'_>) -> ModelConfig {
    let kind = table.require(reader, "kind").and_then(|item| item.choice(reader));
    for (others, keys) in
        OF_A_KIND.iter().filter(|(others, _)| kind.is_some_and(|kind| !others.contains(&kind)))
    {
        for item in keys.iter().filter_map(|name| table.get(name)) {
            let kinds = one_of(others.iter().map(|other| format!("kind = {}", string(other))));
            let help = format!("leave it out, or write {kinds}");
            reader.error(
                ProblemCode::Conflict,
                &item.key_span,
                format!("{} is not of this kind of model", code(&item.name)),
                help,
            );
        }
    }
    let api = ModelApi::ALL.into_iter().find(|api| kind == Some(api.kind()));
    let kind = match (api, kind) {
        (Some(api), _) => server(reader, folder, table, api),
        (None, Some("scripted")) => scripted(reader, folder, table),
        (None, _) => ModelKind::Native,
    };
    let mut prices = prices(reader, table);
    lengths(reader, table, &mut prices);
    if let ModelKind::Server(server) = &kind {
        prices.reached_at = reached_at(server);
        prices.api = server.api;
        if prices.context.is_some() {
            prices.max_output = prices.max_output.or_else(|| length_option(server));
        }
    }
    ModelConfig { kind, prices }
}

/// The smallest context in tokens that leaves room for a prompt beside the shortest answer.
#[must_use]
pub const fn least_context(min_output: Option<u64>) -> u64 {
    let shortest = match min_output {
        Some(tokens) => tokens,
        None => MIN_OUTPUT,
    };
    shortest.saturating_add(RESERVE).saturating_add(1)
}

/// Reads the context size and the lengths of answers (L-180).
fn lengths(reader: &mut ConfigReader, table: &Table<'_>, setup: &mut ModelSetup) {
    table.set(reader, "context", &mut setup.context);
    table.set(reader, "max_output", &mut setup.max_output);
    table.set(reader, "min_output", &mut setup.min_output);
    let least = least_context(setup.min_output);
    if let Some(item) =
        table.get("context").filter(|_| setup.context.is_some_and(|context| context < least))
    {
        let free = thousands(least.saturating_sub(1));
        let what = format!("leaves no room for a prompt: {free} tokens are kept free");
        item.reject(
            reader,
            ProblemCode::Conflict,
            &what,
            "write as many tokens as the model takes, and start a server that takes fewer with more"
                .to_owned(),
        );
    }
    if let Some(item) = table.get("min_output").filter(|_| table.get("context").is_none()) {
        reader.error(
            ProblemCode::MissingKey,
            &item.key_span,
            "`min_output` means nothing without `context`".to_owned(),
            "write `context` too".to_owned(),
        );
    }
}

/// Whether the host writes this option of a request itself.
#[must_use]
pub fn is_reserved_option(api: ModelApi, name: &str) -> bool {
    RESERVED_OPTIONS.contains(&name)
        || (api == ModelApi::Responses && RESERVED_IN_RESPONSES.contains(&name))
}

/// The operator's limit of an answer, if it is among the options.
fn length_option(server: &ModelServerConfig) -> Option<u64> {
    ["max_completion_tokens", "max_tokens", "max_output_tokens"]
        .into_iter()
        .find_map(|name| server.options.get(name)?.as_u64())
}

/// The receivers of prompts: the server, and a proxy on the way.
fn reached_at(server: &ModelServerConfig) -> Option<String> {
    let place = address::authority(&server.url)?;
    let proxy = server
        .proxy
        .as_deref()
        .and_then(address::authority)
        .map(|proxy| format!(" through {proxy}"));
    Some(format!("{place}{}", proxy.unwrap_or_default()))
}

fn scripted(reader: &mut ConfigReader, folder: &str, table: &Table<'_>) -> ModelKind {
    let replies = table
        .require(reader, "replies")
        .and_then(|item| super::plugin::path(reader, &item, folder));
    ModelKind::Scripted { replies: replies.unwrap_or_else(|| config_path("", "")) }
}

fn server(reader: &mut ConfigReader, folder: &str, table: &Table<'_>, api: ModelApi) -> ModelKind {
    let url =
        table.require(reader, "url").and_then(|item| http_url(reader, &item)).unwrap_or_default();
    let model =
        table.require(reader, "model").and_then(|item| full(reader, &item)).unwrap_or_default();
    let mut config = ModelServerConfig::new(api, url, model);
    config.key = table.get("key").and_then(|item| key(reader, folder, &item, KEY));
    config.headers =
        table.get("headers").map(|item| headers(reader, &item, api)).unwrap_or_default();
    config.options =
        table.get("options").map(|item| options(reader, &item, api)).unwrap_or_default();
    config.proxy = table.get("proxy").and_then(|item| http_url(reader, &item));
    table.set(reader, "retries", &mut config.retries);
    table.set(reader, "timeout", &mut config.timeout_ms);
    table.set(reader, "attempt_timeout", &mut config.attempt_timeout_ms);
    table.set(reader, "idle_timeout", &mut config.idle_timeout_ms);
    table.set(reader, "reply_size", &mut config.reply_max);
    if let Some(item) = table.get("thinking") {
        config.thinking = thinking(reader, &item);
    }
    ModelKind::Server(Box::new(config))
}

/// Reads the two marks around a model's thinking; an empty list or `false` is `None`.
fn thinking(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<ThinkingMarks> {
    if let Some(is_on) = item.value.as_bool() {
        return is_on.then(ThinkingMarks::default);
    }
    let words: Vec<String> = item
        .list(reader)?
        .iter()
        .filter_map(|word| word.string(reader))
        .map(str::to_owned)
        .collect();
    match &words[..] {
        [] => None,
        [open, close] if !close.trim().is_empty() && open != close => {
            Some(ThinkingMarks { open: open.clone(), close: close.clone() })
        }
        _ => {
            let help =
                "write `thinking = [\"<think>\", \"</think>\"]`; the first may be empty".to_owned();
            item.wrong(reader, "needs two different marks, a beginning and an end", help);
            None
        }
    }
}

pub(super) fn full(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let text = item.string(reader)?;
    if text.trim().is_empty() {
        item.wrong(reader, "is empty", None);
        return None;
    }
    Some(text.to_owned())
}

/// Reads a URL without user and password, because a config must not hold secrets.
pub(crate) fn http_url(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let text = item.string(reader)?;
    match address::check_http_url(text) {
        Ok(()) => Some(text.to_owned()),
        Err(problem @ AddressError::Login) => {
            let help = "write `key = { env = \"MY_KEY\" }`, and the address without it".to_owned();
            reader.secret_error(
                &item.span,
                format!("{} is not allowed: {problem}", code(&item.name)),
                help,
            );
            None
        }
        Err(problem) => {
            item.wrong(reader, &format!("cannot be {}: {problem}", code(text)), None);
            None
        }
    }
}

/// Reads `{ env = … }`, `{ file = … }` or `{ command = … }`; `kind` is the table of those keys.
pub(crate) fn key(
    reader: &mut ConfigReader,
    folder: &str,
    item: &SpannedValue<'_>,
    kind: &'static str,
) -> Option<KeyRef> {
    if item.value.is_str() {
        let help = format!(
            "write `{} = {{ env = \"MY_KEY\" }}`, and put the key into that variable",
            item.name
        );
        let what = format!(
            "{} is a key in plain text, and configs are copied and shared",
            code(&item.name)
        );
        reader.secret_error(&item.span, what, help);
        return None;
    }
    let table = item.table(reader, kind)?;
    let env = table.get("env").and_then(|item| full(reader, &item)).map(KeyRef::Env);
    let file = table
        .get("file")
        .and_then(|item| super::plugin::path(reader, &item, folder))
        .map(KeyRef::File);
    let command = table.get("command").and_then(|item| command(reader, &item)).map(KeyRef::Command);
    let written =
        ["env", "file", "command"].iter().filter(|name| table.get(name).is_some()).count();
    if written != 1 {
        let cause = if written == 0 { ProblemCode::MissingKey } else { ProblemCode::Conflict };
        item.reject(reader, cause, "needs one of `env`, `file` and `command`", None);
        return None;
    }
    env.or(file).or(command)
}

pub(crate) fn command(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<String>> {
    let words: Vec<String> = item
        .list(reader)?
        .iter()
        .filter_map(|word| word.string(reader))
        .map(str::to_owned)
        .collect();
    if words.first().is_none_or(String::is_empty) {
        item.wrong(reader, "names no program", None);
        return None;
    }
    Some(words)
}

fn headers(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    api: ModelApi,
) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let Some(entries) = item.entries(reader, "a table of texts") else { return headers };
    for (name, value) in entries {
        let (name, span) = (name.get_ref().to_string(), name.span());
        let lower = name.to_ascii_lowercase();
        let is_token = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$&'*+^`|~%".contains(&byte));
        // The Messages API has the key in a header of its own.
        let is_key = api == ModelApi::Messages && lower == "x-api-key";
        if is_key || RESERVED_HEADERS.contains(&lower.as_str()) {
            let help = if is_key || lower == "authorization" {
                "write `key = { env = \"MY_KEY\" }`"
            } else {
                "leave it out"
            };
            reader.error(
                ProblemCode::InvalidValue,
                &span,
                format!("the header {} is written by the host", code(&name)),
                help.to_owned(),
            );
        } else if !is_token {
            reader.error(
                ProblemCode::InvalidValue,
                &span,
                format!("{} cannot be the name of a header", code(&name)),
                None,
            );
        } else if let Some(text) = value
            .get_ref()
            .as_str()
            .filter(|text| text.bytes().all(|byte| (32..127).contains(&byte)))
        {
            headers.insert(name, text.to_owned());
        } else {
            reader.error(
                ProblemCode::InvalidValue,
                &value.span(),
                format!("the header {} must be a text of plain characters", code(&name)),
                None,
            );
        }
    }
    headers
}

fn options(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    api: ModelApi,
) -> serde_json::Map<String, serde_json::Value> {
    let serde_json::Value::Object(options) = json::settings(reader, item) else {
        return serde_json::Map::new();
    };
    for name in options.keys().filter(|name| is_reserved_option(api, name)) {
        item.wrong(
            reader,
            &format!("sets {}, which the host writes itself", code(name)),
            "leave it out".to_owned(),
        );
    }
    options
}

fn prices(reader: &mut ConfigReader, table: &Table<'_>) -> ModelSetup {
    let (input, output) = (table.get("input_price"), table.get("output_price"));
    if let (Some(item), None) | (None, Some(item)) = (&input, &output) {
        let other = if input.is_some() { "output_price" } else { "input_price" };
        reader.absence(
            &item.key_span,
            format!("a price needs both halves: `{other}` is missing"),
            format!("write `{other} = 0.00`"),
        );
    }
    if let Some(item) = table.get("cached_input_price").filter(|_| input.is_none()) {
        reader.absence(
            &item.key_span,
            "`cached_input_price` means nothing without `input_price`".to_owned(),
            "write `input_price = 0.00`".to_owned(),
        );
    }
    ModelSetup {
        cached_input_price: table.read(reader, "cached_input_price"),
        input_price: input.and_then(|item| item.read(reader)),
        output_price: output.and_then(|item| item.read(reader)),
        ..ModelSetup::default()
    }
}

impl ModelConfig {
    /// Returns a server with Chat Completions, named on the command line or by an embedding
    /// program, as the file would describe it.
    ///
    /// # Errors
    /// The mistake in the URL or the name, in words that follow "it".
    pub fn of_server(url: &str, model: &str, key: Option<KeyRef>) -> Result<Self, String> {
        address::check_http_url(url)
            .map_err(|problem| format!("cannot reach a model at this address: {problem}"))?;
        if model.trim().is_empty() {
            return Err("names no model".to_owned());
        }
        let prices = ModelSetup {
            reached_at: address::authority(url).map(str::to_owned),
            ..ModelSetup::default()
        };
        let server = ModelServerConfig {
            key,
            ..ModelServerConfig::new(ModelApi::ChatCompletions, url.to_owned(), model.to_owned())
        };
        Ok(Self { kind: ModelKind::Server(Box::new(server)), prices })
    }
}

/// A path of the config, joined to its folder.
pub(crate) fn config_path(folder: &str, path: &str) -> ConfigPath {
    ConfigPath { display_path: path.to_owned(), path: names::join(folder, path) }
}
