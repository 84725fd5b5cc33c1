//! The strict parser of a lock: an unknown key or an invalid value is an error at its position.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::{FORMAT, Lockfile, Pinned};
use crate::config::{PublicKey, check_name};
use crate::permissions::manifest::CapabilityRequest;
use crate::types::ids::PluginName;
use crate::types::oci::{OciReference, is_sha256};
use crate::types::plugin_kind::PluginKind;
use crate::types::tool::ToolSpec;

/// A lock that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {what}")]
pub struct LockError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockTable {
    #[serde(rename = "format")]
    _format: u32,
    #[serde(default)]
    plugins: BTreeMap<Spanned<String>, FilePlugin>,
}

/// Only the format, to detect a file of a later one.
#[derive(Deserialize)]
struct LockHeader {
    format: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePlugin {
    // Older locks have neither field: the plugin then differs from its entry, and `upgrade` shows
    // how.
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
    version: String,
    sha256: Spanned<String>,
    #[serde(default)]
    artifact: Option<Spanned<String>>,
    #[serde(default)]
    signed_by: Vec<Spanned<String>>,
    #[serde(default)]
    dev: bool,
    contract: String,
    #[serde(default)]
    kinds: BTreeSet<PluginKind>,
    #[serde(default)]
    asks: BTreeMap<String, FileAsk>,
    #[serde(default)]
    tools: BTreeMap<String, FileTool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAsk {
    why: String,
    #[serde(default)]
    optional: bool,
    detail: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTool {
    title: Option<String>,
    description: String,
    input_schema: Spanned<String>,
    output_schema: Option<Spanned<String>>,
    #[serde(default)]
    idempotent: bool,
    result_tokens: Option<Spanned<String>>,
    retained_tokens: Option<Spanned<String>>,
    examples: Option<Spanned<String>>,
}

impl Lockfile {
    /// Parses the text of a lock.
    ///
    /// # Errors
    /// The first mistake, with its position.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let reader = LockReader(text);
        let head: LockHeader = toml::from_str(text).map_err(|error| reader.toml(&error))?;
        if *head.format.get_ref() != FORMAT {
            let what = format!(
                "the lock has format {}; this host reads format {FORMAT}. Use the host that wrote it.",
                head.format.get_ref()
            );
            return Err(reader.error(&head.format.span(), what));
        }
        let file: LockTable = toml::from_str(text).map_err(|error| reader.toml(&error))?;
        let plugins = file
            .plugins
            .into_iter()
            .map(|(name, plugin)| Ok((reader.name(name)?, reader.plugin(plugin)?)));
        Ok(Self { plugins: plugins.collect::<Result<_, _>>()? })
    }
}

struct LockReader<'a>(&'a str);

impl LockReader<'_> {
    fn name(&self, name: Spanned<String>) -> Result<PluginName, LockError> {
        match check_name(name.get_ref()) {
            Ok(()) => Ok(PluginName::from(name.get_ref().as_str())),
            Err(error) => {
                Err(self.error(&name.span(), format!("this is no plugin's name: it {error}")))
            }
        }
    }

    fn plugin(&self, plugin: FilePlugin) -> Result<Pinned, LockError> {
        let FilePlugin {
            name,
            description,
            version,
            sha256,
            artifact,
            signed_by,
            dev,
            contract,
            kinds,
            asks,
            tools,
        } = plugin;
        if !sha256.get_ref().is_empty() && !is_sha256(sha256.get_ref()) {
            return Err(self.error(
                &sha256.span(),
                "this is no SHA-256: 64 lower-case hexadecimal digits, or none".to_owned(),
            ));
        }
        let asks = asks.into_iter().map(|(name, ask)| Ok((name, self.ask(ask)?)));
        let tools =
            tools.into_iter().map(|(name, tool)| Ok((name.clone(), self.tool(name, tool)?)));
        Ok(Pinned {
            name,
            description,
            version,
            sha256: sha256.into_inner(),
            artifact: artifact.map(|artifact| self.artifact(&artifact)).transpose()?,
            signers: signed_by.iter().map(|key| self.key(key)).collect::<Result<_, _>>()?,
            dev,
            contract,
            kinds,
            asks: asks.collect::<Result<_, _>>()?,
            tools: tools.collect::<Result<_, _>>()?,
        })
    }

    fn key(&self, text: &Spanned<String>) -> Result<PublicKey, LockError> {
        text.get_ref()
            .parse::<PublicKey>()
            .map_err(|problem| self.error(&text.span(), format!("this is no key: {problem}")))
    }

    fn artifact(&self, text: &Spanned<String>) -> Result<OciReference, LockError> {
        let problem = match text.get_ref().parse::<OciReference>() {
            Ok(reference) if reference.digest().is_some() => return Ok(reference),
            Ok(_) => "it has no digest".to_owned(),
            Err(problem) => problem.to_string(),
        };
        Err(self.error(&text.span(), format!("this is no artifact of a registry: {problem}")))
    }

    fn ask(&self, ask: FileAsk) -> Result<CapabilityRequest, LockError> {
        let detail = ask.detail.map(|detail| self.json(&detail)).transpose()?.unwrap_or_default();
        Ok(CapabilityRequest { why: ask.why, optional: ask.optional, detail })
    }

    fn tool(&self, name: String, tool: FileTool) -> Result<ToolSpec, LockError> {
        let FileTool {
            title,
            description,
            input_schema,
            output_schema,
            idempotent,
            result_tokens,
            retained_tokens,
            examples,
        } = tool;
        Ok(ToolSpec {
            name,
            description,
            input_schema: self.json(&input_schema)?,
            output_schema: output_schema.map(|schema| self.json(&schema)).transpose()?,
            idempotent,
            title,
            result_tokens: result_tokens.map(|tokens| self.json(&tokens)).transpose()?,
            retained_tokens: retained_tokens.map(|tokens| self.json(&tokens)).transpose()?,
            examples: examples
                .map(|examples| self.json(&examples))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    fn json<T: DeserializeOwned>(&self, text: &Spanned<String>) -> Result<T, LockError> {
        serde_json::from_str(text.get_ref()).map_err(|error| {
            self.error(&text.span(), format!("this is not JSON as expected: {error}"))
        })
    }

    fn toml(&self, error: &toml::de::Error) -> LockError {
        self.error(&error.span().unwrap_or_default(), error.message().to_owned())
    }

    fn error(&self, span: &Range<usize>, what: String) -> LockError {
        let before = self.0.get(..span.start).unwrap_or(self.0);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        LockError { line: before.matches('\n').count() + 1, column, what }
    }
}
