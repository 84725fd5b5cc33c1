//! Grants and the decisions about them: asked for in the manifest, granted in the config, narrowed
//! by the task. Pure functions, called in every import; nothing else grants.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::permissions::fetch::{HostPattern, UrlPattern};
use crate::permissions::manifest::Manifest;
use crate::permissions::task_scope::Narrowed;
use crate::types::capability::Capability;
use crate::types::denial::Denial;
use crate::types::denial::DenialRecord;
use crate::types::denial::Layer;
use crate::types::ids::{ChannelId, ModelName, SecretName, TaskName};

/// Which models, and how much of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelGrant {
    /// `default` is the model that is meant when none is named.
    pub names: Vec<ModelName>,
    /// Over the whole run.
    pub tokens: Option<u64>,
    pub cost_micro_usd: Option<u64>,
    pub calls: Option<u64>,
}

/// Which tools an agent may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolsGrant {
    pub names: Vec<ToolPattern>,
    /// Over the whole run.
    pub calls: Option<u64>,
}

/// Which tasks it may start in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelegateGrant {
    pub tasks: Vec<TaskName>,
    pub at_once: u32,
    pub total: u32,
    /// Channels that it may share with such a task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelId>,
}

/// Whom it may address, and how it may steer a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteGrant {
    /// Task names, `user`, or orchestration tools such as `done`.
    pub names: Vec<String>,
}

/// How a directory may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileMode {
    Read,
    ReadWrite,
}

/// One directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileGrant {
    /// On the host; as the config has it, made absolute from the config's folder.
    pub dir: String,
    /// As the operator wrote it, for people.
    pub shown: String,
    /// As the plugin sees it, with the leading slash: `/folder`.
    pub at: String,
    pub mode: FileMode,
    /// Bytes that all files below it may have together once the plugin has written; counted with
    /// what was there before.
    #[serde(default = "folder_bytes")]
    pub bytes: u64,
    /// Files and directories that may be below it once the plugin has written.
    #[serde(default = "folder_files")]
    pub files: u64,
}

/// Bytes in a folder for writing, when the config gives no number.
pub const FOLDER_BYTES: u64 = 16 << 20;
/// Files in a folder for writing, when the config gives no number.
pub const FOLDER_FILES: u64 = 1_000;

fn folder_bytes() -> u64 {
    FOLDER_BYTES
}

fn folder_files() -> u64 {
    FOLDER_FILES
}

/// Addresses of the web that a plugin may send requests to, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchRule {
    pub url: UrlPattern,
    /// In upper case.
    pub methods: Vec<String>,
}

/// HTTP requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchGrant {
    /// One of them must cover a request, and every hop that a redirect leads to.
    pub rules: Vec<FetchRule>,
    /// Headers that may go beside those that go with every request, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Networks that are refused otherwise (private, loopback, link-local …) and may be reached all
    /// the same.
    pub private: Vec<IpNet>,
    /// Requests in the whole run; redirects count.
    pub requests: u64,
    /// Bytes of a request: address, headers and body together.
    pub request_bytes: u64,
    /// Bytes of an answer, decompressed: headers and body together.
    pub response_bytes: u64,
    /// Milliseconds of one request, all hops and the whole answer.
    pub time_ms: u64,
    /// Requests under way at once.
    pub at_once: u32,
    /// Names that may be looked up in the whole run.
    pub names: u32,
    /// Redirects that one request follows; 0: none is followed, the guest reads it.
    pub redirects: u32,
}

impl FetchGrant {
    /// These rules, with the limits that hold when the config gives none.
    #[must_use]
    pub fn new(rules: Vec<FetchRule>) -> Self {
        Self {
            rules,
            headers: Vec::new(),
            private: Vec::new(),
            requests: 100,
            request_bytes: 256 << 10,
            response_bytes: 4 << 20,
            time_ms: 20_000,
            at_once: 4,
            names: 16,
            redirects: 5,
        }
    }
}

/// A store of the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvGrant {
    /// Of all keys and values together.
    pub bytes: u64,
    pub keys: u64,
}

impl Default for KvGrant {
    fn default() -> Self {
        Self { bytes: 1 << 20, keys: 1_000 }
    }
}

/// Where in a request a secret may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretPlace {
    Header,
    Query,
    Body,
}

impl SecretPlace {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Query => "query",
            Self::Body => "body",
        }
    }
}

/// A secret that the host puts in for a plugin, as the config's `[secrets]` binds it. Never its
/// value, nor where that is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretGrant {
    pub name: SecretName,
    /// The hosts that may receive it.
    pub hosts: Vec<HostPattern>,
    pub places: BTreeSet<SecretPlace>,
}

/// The channels that a delivery strategy may speak on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomsGrant {
    pub channels: Vec<ChannelId>,
    /// Over the whole run.
    pub messages: Option<u64>,
}

/// Everything that the operator granted to one plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grants {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolsGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<DelegateGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteGrant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rooms: Option<RoomsGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvGrant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretGrant>,
}

impl Grants {
    /// Something of this capability was granted.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Model => self.model.is_some(),
            Capability::Tools => self.tools.is_some(),
            Capability::Delegate => self.delegate.is_some(),
            Capability::Route => self.route.is_some(),
            Capability::Files => !self.files.is_empty(),
            Capability::Rooms => self.rooms.is_some(),
            Capability::Fetch => self.fetch.is_some(),
            Capability::Kv => self.kv.is_some(),
            Capability::Secrets => !self.secrets.is_empty(),
            own => own.is_own(),
        }
    }
}

/// `plugin.tool`, `plugin.*` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolPattern(pub String);

impl ToolPattern {
    /// The pattern covers this `plugin.tool`.
    #[must_use]
    pub fn covers(&self, tool: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some("") => true,
            Some(prefix) => prefix.ends_with('.') && tool.starts_with(prefix),
            None => self.0 == tool,
        }
    }

    /// It has the form of a pattern.
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        let word = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        text == "*"
            || text
                .split_once('.')
                .is_some_and(|(plugin, tool)| word(plugin) && (tool == "*" || word(tool)))
    }
}

/// Who asks: what its manifest asks for and what it was granted.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    /// The plugin's name in the config.
    pub plugin: &'a str,
    pub manifest: &'a Manifest,
    pub grants: &'a Grants,
    /// What the task that the plugin works on leaves of them; none for who works on no task of its
    /// own, such as a tool.
    pub narrowed: Option<Narrowed<'a>>,
}

impl Rights<'_> {
    /// The capability was asked for and granted; no allocation when it was.
    ///
    /// # Errors
    /// The record for the operator: which layer refused, and the smallest grant.
    pub fn require(
        &self,
        capability: Capability,
        target: &str,
        smallest: impl FnOnce() -> Option<String>,
    ) -> Result<(), Box<DenialRecord>> {
        if !capability.is_offered() {
            return Err(self.refuse(
                capability,
                target,
                Layer::Host,
                "this version of the host does not offer it",
                None,
            ));
        }
        if !capability.is_own() && self.manifest.ask(capability).is_none() {
            let reason = format!("the manifest of {} does not ask for `{capability}`", self.plugin);
            return Err(self.refuse(capability, target, Layer::Manifest, &reason, None));
        }
        if !self.grants.has(capability) {
            let reason = format!("the config grants no `{capability}` to {}", self.plugin);
            return Err(self.refuse(capability, target, Layer::Config, &reason, smallest()));
        }
        Ok(())
    }

    /// Makes the record of a refusal. `reason` is for the operator.
    #[must_use]
    pub fn refuse(
        &self,
        capability: Capability,
        target: &str,
        layer: Layer,
        reason: &str,
        suggestion: Option<String>,
    ) -> Box<DenialRecord> {
        let shown: String = target.chars().take(256).collect();
        Box::new(DenialRecord {
            denial: Denial {
                capability: capability.as_str().to_owned(),
                detail: format!("{capability} was refused for {shown:?}"),
                target: shown,
            },
            layer,
            reason: reason.to_owned(),
            suggestion,
            writes: false,
        })
    }
}

/// A list for the config that holds what was granted already and one name more, so that writing it
/// takes nothing away.
pub(crate) fn list_with<'a>(granted: impl IntoIterator<Item = &'a str>, name: &'a str) -> String {
    let names: Vec<String> =
        granted.into_iter().chain([name]).map(|name| format!("{name:?}")).collect();
    format!("[{}]", names.join(", "))
}

/// `docs/`: nearly as the operator wrote it.
pub(crate) fn folder(grant: &FileGrant) -> String {
    let short = match grant.shown.strip_prefix("./") {
        Some(rest) if !rest.trim_matches('/').is_empty() => rest.trim_end_matches('/'),
        _ => grant.shown.trim_end_matches('/'),
    };
    format!("{short}/")
}
