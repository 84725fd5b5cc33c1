//! Parses and checks `conclave-plugin.toml`, and converts it to the JSON that a component carries.
//! All problems of the file are reported at once, with line, column and remedy. The capabilities'
//! own keys are left to the host.
//!
//! The one reader for all languages: the macros of the Rust SDK call it at compile time, and the
//! host for components that other toolchains made.

#![warn(missing_docs)]

mod problems;

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use problems::Problems;

/// The version of the JSON format; the host reads no other.
pub const FORMAT: u32 = 1;
/// The version of the contract.
pub const CONTRACT: &str = "0.1";
/// The names of the capabilities that a manifest may ask for.
pub const CAPABILITIES: [&str; 16] = [
    "model", "tools", "delegate", "route", "files", "fetch", "kv", "secrets", "channels",
    "history", "exec", "config", "scratch", "blobs", "log", "progress",
];
const CONFIG_TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

type Table<'i> = DeTable<'i>;
type Entry<'i> = Spanned<DeValue<'i>>;

/// Returns the JSON of a manifest file.
///
/// # Errors
/// All problems of the file, one per line: `file:line:column: message`.
pub fn to_json(file: &str, text: &str) -> Result<String, String> {
    let mut problems = Problems::new(file, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        problems.add_syntax(error.span(), error.message());
    }
    // A partly parsed file would produce spurious problems.
    problems.finish()?;
    let manifest = manifest(&mut problems, table.get_ref());
    problems.finish()?;
    Ok(manifest.to_string())
}

/// Returns a manifest of capabilities alone, each with whether it is optional. What its author did
/// not write is empty: the host shows that there is no reason.
///
/// # Errors
/// The first name that is no capability.
pub fn inline(name: &str, version: &str, asks: &[(String, bool)]) -> Result<String, String> {
    if let Some((unknown, _)) = asks.iter().find(|(name, _)| !CAPABILITIES.contains(&name.as_str()))
    {
        return Err(format!(
            "unknown capability `{unknown}`; there are {}",
            CAPABILITIES.join(", ")
        ));
    }
    let ask = |(name, optional): &(String, bool)| {
        (name.clone(), json!({ "why": "", "optional": optional }))
    };
    let asks: Map<_, _> = asks.iter().map(ask).collect();
    let manifest = json!({
        "format": FORMAT, "name": name.replace('_', "-"), "version": version, "contract": CONTRACT,
        "description": "", "license": "", "asks": asks, "config": {},
    });
    Ok(manifest.to_string())
}

fn manifest(problems: &mut Problems, table: &Table) -> Value {
    problems.check_keys("the file", table, &["plugin", "asks", "config"]);
    let Some(plugin) = table.get("plugin") else {
        problems.add(
            None,
            "the table [plugin] is missing: add it, with `name` and `version`".to_owned(),
        );
        return Value::Null;
    };
    let Some(plugin_table) = problems.table("plugin", plugin) else { return Value::Null };
    problems.check_keys(
        "[plugin]",
        plugin_table,
        &["name", "version", "contract", "description", "license"],
    );
    let name = required(problems, plugin, plugin_table, "name", "weather", is_name);
    let version = required(problems, plugin, plugin_table, "version", "0.1.0", is_version);
    let contract =
        optional_text(problems, plugin_table, "contract").unwrap_or_else(|| CONTRACT.to_owned());
    if contract != CONTRACT {
        let span = plugin_table.get("contract").map(Spanned::span);
        problems.add(
            span,
            format!("`contract` is \"{contract}\"; this version builds for \"{CONTRACT}\""),
        );
    }
    json!({
        "format": FORMAT,
        "name": name,
        "version": version,
        "contract": contract,
        "description": optional_text(problems, plugin_table, "description").unwrap_or_default(),
        "license": optional_text(problems, plugin_table, "license").unwrap_or_default(),
        "asks": each(problems, table, "asks", ask_or_secrets),
        "config": each(problems, table, "config", setting),
    })
}

/// Reads every entry of a table of tables.
fn each(
    problems: &mut Problems,
    table: &Table,
    key: &str,
    read: fn(&mut Problems, &Spanned<toml::de::DeString>, &Entry) -> Value,
) -> Value {
    let Some(entries) = table.get(key).and_then(|value| problems.table(key, value)) else {
        return json!({});
    };
    entries
        .iter()
        .map(|(name, value)| (name.get_ref().to_string(), read(problems, name, value)))
        .collect::<Map<_, _>>()
        .into()
}

/// Reads the entries of a capability: for `secrets` one for each name, or one for any; for all
/// others one.
fn ask_or_secrets(
    problems: &mut Problems,
    name: &Spanned<toml::de::DeString>,
    value: &Entry,
) -> Value {
    let capability = name.get_ref().as_ref();
    if !CAPABILITIES.contains(&capability) {
        problems.add(
            Some(name.span()),
            format!("unknown capability `{capability}`; there are {}", CAPABILITIES.join(", ")),
        );
    }
    let path = format!("asks.{capability}");
    let Some(table) = problems.table(&path, value) else { return Value::Null };
    let is_any = table.iter().any(|(_, value)| !matches!(value.get_ref(), DeValue::Table(_)));
    if capability != "secrets" || is_any {
        return ask(problems, &path, value, table);
    }
    let secrets = table.iter().map(|(secret, value)| {
        let path = format!("{path}.{}", secret.get_ref());
        let read = problems.table(&path, value).map(|table| {
            problems.check_keys(&format!("[{path}]"), table, &["why", "hosts", "optional"]);
            ask(problems, &path, value, table)
        });
        (secret.get_ref().to_string(), read.unwrap_or_default())
    });
    secrets.collect::<Map<_, _>>().into()
}

fn ask(problems: &mut Problems, path: &str, value: &Entry, table: &Table) -> Value {
    match table.get("why").map(|why| (why, why.get_ref().as_str())) {
        Some((_, Some(text))) if !text.trim().is_empty() => {}
        Some((why, _)) => problems.add(
            Some(why.span()),
            format!("[{path}] `why` must be a sentence: the operator reads it before granting"),
        ),
        None => problems.add(
            Some(value.span()),
            format!("[{path}] has no `why`: add a sentence that tells the operator what it is for"),
        ),
    }
    let mut json = object(table);
    match table.get("optional").map(|optional| (optional.span(), optional.get_ref().as_bool())) {
        Some((span, None)) => {
            problems.add(Some(span), format!("[{path}] `optional` must be true or false"))
        }
        Some(_) => {}
        None => drop(json.insert("optional".into(), json!(false))),
    }
    json.into()
}

fn setting(problems: &mut Problems, name: &Spanned<toml::de::DeString>, value: &Entry) -> Value {
    let path = format!("config.{}", name.get_ref());
    let Some(table) = problems.table(&path, value) else { return Value::Null };
    problems.check_keys(&format!("[{path}]"), table, &["type", "default", "description"]);
    let known = CONFIG_TYPES.join(", ");
    let Some(kind) = table.get("type") else {
        problems.add(Some(value.span()), format!("[{path}] has no `type`: add one of {known}"));
        return Value::Null;
    };
    let kind_name = kind.get_ref().as_str().unwrap_or_default();
    if !CONFIG_TYPES.contains(&kind_name) {
        problems.add(Some(kind.span()), format!("[{path}] `type` must be one of {known}"));
    } else if let Some(default) =
        table.get("default").filter(|default| !has_type(default.get_ref(), kind_name))
    {
        problems.add(Some(default.span()), format!("[{path}] `default` is no {kind_name}"));
    }
    object(table).into()
}

fn has_type(value: &DeValue, kind: &str) -> bool {
    match value {
        DeValue::String(_) | DeValue::Datetime(_) => kind == "string",
        DeValue::Integer(_) => kind == "integer" || kind == "number",
        DeValue::Float(_) => kind == "number",
        DeValue::Boolean(_) => kind == "boolean",
        DeValue::Array(_) => kind == "array",
        DeValue::Table(_) => kind == "object",
    }
}

fn required(
    problems: &mut Problems,
    plugin: &Entry,
    table: &Table,
    key: &str,
    example: &str,
    is_valid: fn(&str) -> bool,
) -> String {
    if !table.contains_key(key) {
        problems.add(
            Some(plugin.span()),
            format!("[plugin] has no `{key}`: add one, such as \"{example}\""),
        );
        return String::new();
    }
    let text = optional_text(problems, table, key);
    if let Some(text) = text.as_ref().filter(|text| !is_valid(text)) {
        problems.add(
            table.get(key).map(Spanned::span),
            format!("`{key}` is \"{text}\"; it must look like \"{example}\""),
        );
    }
    text.unwrap_or_default()
}

fn optional_text(problems: &mut Problems, table: &Table, key: &str) -> Option<String> {
    let value = table.get(key)?;
    let text = value.get_ref().as_str().map(str::to_owned);
    if text.is_none() {
        problems.add(Some(value.span()), format!("`{key}` must be a text in quotes"));
    }
    text
}

fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_'
    });
    plain && name.starts_with(|first: char| first.is_ascii_lowercase())
}

fn is_version(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<_> = core.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u64>().is_ok())
}

fn object(table: &Table) -> Map<String, Value> {
    table
        .iter()
        .map(|(key, value)| (key.get_ref().to_string(), to_value(value.get_ref())))
        .collect()
}

fn to_value(value: &DeValue) -> Value {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| json!(number.as_str()), Value::from),
        DeValue::Float(number) => {
            number.as_str().parse::<f64>().map_or_else(|_| json!(number.as_str()), Value::from)
        }
        DeValue::Boolean(truth) => json!(truth),
        DeValue::Datetime(time) => json!(time.to_string()),
        DeValue::Array(values) => values.iter().map(|value| to_value(value.get_ref())).collect(),
        DeValue::Table(table) => object(table).into(),
    }
}

#[cfg(test)]
mod tests;
