//! `[plugins.NAME]`: the source, grants, limits and own settings of a plugin.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::keys::PLUGIN;
use super::problem::Span;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{
    ConfigPath, PluginConfig, PluginSource, SecretConfig, Trust, address, describe, grants, json,
    limits, names, trust,
};
use crate::permissions::grants::{FetchRule, FileMode, Grants};
use crate::types::ids::{PluginName, SecretName};
use crate::types::oci::OciReference;
use crate::types::wording::{code, string};

pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    folder: &str,
    root: &Table<'_>,
    context: (&BTreeMap<SecretName, SecretConfig>, &Trust),
) -> BTreeMap<PluginName, PluginConfig> {
    let mut plugins = BTreeMap::new();
    for (name, span, table) in root.named_tables(reader, "plugins", PLUGIN) {
        check_name(reader, "plugins", name, &span);
        let table = table.checked(reader);
        plugins.insert(PluginName::from(name), read(reader, references, folder, &table, context));
    }
    plugins
}

fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    folder: &str,
    table: &Table<'_>,
    (secrets, trust): (&BTreeMap<SecretName, SecretConfig>, &Trust),
) -> PluginConfig {
    let source = table.require(reader, "source").and_then(|item| source(reader, &item, folder));
    let source = source.unwrap_or(PluginSource::Stock(String::new()));
    let grants = table
        .get("grants")
        .map(|item| {
            let grants = grants::read(reader, references, folder, &item, secrets);
            check_server_grants(reader, &item, &source, &grants);
            grants
        })
        .unwrap_or_default();
    PluginConfig {
        source,
        require_signed: table
            .get("require_signed")
            .and_then(|item| trust::read_rule(reader, &item, trust)),
        grants,
        limits: table
            .get("limits")
            .map(|item| limits::read_plugin(reader, &item))
            .unwrap_or_default(),
        config: table
            .get("config")
            .map_or_else(|| Value::Object(Map::new()), |item| json::settings(reader, &item)),
        describe: table
            .get("describe")
            .map(|item| describe::read(reader, &item))
            .unwrap_or_default(),
    }
}

/// Reports grants that only one kind of plugin can have: overlays, which a program of the machine
/// cannot see, and tunnels, which only the proxy of a server's program makes.
fn check_server_grants(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    source: &PluginSource,
    grants: &Grants,
) {
    let is_server = matches!(source, PluginSource::Mcp(_));
    if is_server && grants.files.iter().any(|grant| grant.mode == FileMode::Overlay) {
        let what = "gives a server an overlay, which a program of the machine cannot see";
        let help = "write `mode = \"read\"` or `mode = \"read-write\"`".to_owned();
        item.reject(reader, ProblemCode::Conflict, what, help);
    }
    let tunnels = |rule: &FetchRule| rule.methods.iter().any(|method| method == "CONNECT");
    if !is_server && grants.fetch.iter().flat_map(|grant| &grant.rules).any(tunnels) {
        let what = "gives `CONNECT`, which is for MCP servers that this host starts";
        item.reject(reader, ProblemCode::Conflict, what, "leave `CONNECT` out".to_owned());
    }
}

/// Reads a source: `stock:NAME`, the path of a .wasm file, a URL, a reference, `mcp:COMMAND`, or a
/// table.
fn source(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    folder: &str,
) -> Option<PluginSource> {
    if item.value.is_table() {
        return super::mcp::source(reader, item, folder)
            .map(|source| PluginSource::Mcp(Box::new(source)));
    }
    let text = item.string(reader)?;
    let scheme = text.split_once(':').filter(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    match scheme {
        Some(("stock", name)) => match names::check_name(name) {
            Ok(()) => return Some(PluginSource::Stock(name.to_owned())),
            Err(error) => item.wrong(
                reader,
                &format!("has no name of a stock plugin: {} {error}", code(name)),
                None,
            ),
        },
        Some(("mcp", command)) => {
            return super::mcp::short_source(reader, item, command, folder)
                .map(|source| PluginSource::Mcp(Box::new(source)));
        }
        Some(("native", name)) => match names::check_name(name) {
            Ok(()) => return Some(PluginSource::Native(name.to_owned())),
            Err(error) => item.wrong(
                reader,
                &format!("has no name of a native plugin: {} {error}", code(name)),
                None,
            ),
        },
        Some(("https" | "http", _)) => match address::check_pinned_url(text) {
            Ok((url, sha256)) => {
                return Some(PluginSource::Url { url: url.to_owned(), sha256: sha256.to_owned() });
            }
            Err(problem) => {
                let help = "write the component's SHA-256 behind the address: `source = \"https://…/x.wasm#sha256=…\"`";
                item.wrong(
                    reader,
                    &format!("cannot be {}: {problem}", code(text)),
                    help.to_owned(),
                );
            }
        },
        Some(("oci", _)) => match text.parse::<OciReference>() {
            Ok(reference) => {
                return Some(PluginSource::Oci { reference, display_text: text.to_owned() });
            }
            Err(problem) => {
                let help = "write registry, repository, and tag or digest: `source = \"oci://registry.example/team/x:1.2.0\"`";
                item.wrong(
                    reader,
                    &format!("cannot be {}: {problem}", code(text)),
                    help.to_owned(),
                );
            }
        },
        Some((scheme, _)) => {
            item.wrong(reader, &format!("cannot begin with {}", code(&format!("{scheme}:"))), None)
        }
        None if text.ends_with(".wasm") => {
            return path(reader, item, folder).map(PluginSource::File);
        }
        None => {
            let help = if names::check_name(text).is_ok() {
                format!("for a plugin that comes with the host write `source = \"stock:{text}\"`")
            } else if text.contains('/') {
                "name the component itself, `source = \"./weather.wasm\"`; a plugin's folder is for commands, such as `conclave add`".to_owned()
            } else {
                "write `stock:NAME`, the path of a .wasm file, an address, or `mcp:COMMAND`"
                    .to_owned()
            };
            item.wrong(
                reader,
                "is no source of a plugin: `stock:` and a name, the path of a .wasm file, an address \
                 `https://…#sha256=…` or `oci://…`, `mcp:` and a command, or a table `mcp`",
                help,
            );
        }
    }
    None
}

/// Reads a path relative to the config's folder.
pub(crate) fn path(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    folder: &str,
) -> Option<ConfigPath> {
    let text = item.string(reader)?;
    let problem = match text {
        "" => "is empty",
        _ if text.contains('\0') => "has a NUL character in it",
        "~" => "begins with `~`, which is not replaced by your home folder",
        _ if text.starts_with("~/") => "begins with `~`, which is not replaced by your home folder",
        _ => return Some(super::model::config_path(folder, text)),
    };
    item.wrong(reader, problem, "write the path from the config's folder, or in full".to_owned());
    None
}

/// Reads a list of paths relative to the config's folder.
pub(crate) fn paths(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    folder: &str,
) -> Vec<String> {
    let paths = item.list(reader).unwrap_or_default();
    let paths = paths.iter().filter_map(|item| path(reader, item, folder));
    paths.map(|path| path.path).collect()
}

/// Checks the name of a plugin, task or model.
pub(crate) fn check_name(reader: &mut ConfigReader, section: &str, name: &str, span: &Span) {
    let Err(error) = names::check_name(name) else { return };
    let noun = &section[..section.len() - 1];
    let help = names::proposed_name(name).map(|name| format!("write `[{section}.{name}]`"));
    reader.error(
        ProblemCode::InvalidName,
        span,
        format!("{} cannot be the name of a {noun}: it {error}", string(name)),
        help,
    );
}
