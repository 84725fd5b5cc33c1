//! The grants of a plugin: requested in the manifest, granted in the config, narrowed by the task.
//! Nothing else grants. The decision about one request is in `authorize`.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::permissions::exec::CommandPattern;
use crate::permissions::fetch::{HostPattern, UrlPattern};
use crate::permissions::manifest::Manifest;
use crate::permissions::task_scope::ScopedTask;
use crate::types::capability::Capability;
use crate::types::delegation::{OnClose, ResultForm};
use crate::types::denial::Denial;
use crate::types::denial::DenialRecord;
use crate::types::denial::Layer;
use crate::types::ids::{ChannelId, ModelName, PluginName, SecretName, TaskName};

/// The grant of models, with its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelGrant {
    /// The models; `default` is used if a request names none.
    pub names: Vec<ModelName>,
    /// The limit of tokens in the whole run.
    pub tokens: Option<u64>,
    pub cost_micro_usd: Option<u64>,
    pub calls: Option<u64>,
}

/// The grant of tools that an agent may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolsGrant {
    pub names: Vec<ToolPattern>,
    /// The limit of calls in the whole run.
    pub calls: Option<u64>,
}

/// The grant of tasks that a plugin may delegate to, and of its choices about such a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegateGrant {
    pub tasks: Vec<TaskName>,
    pub at_once: u32,
    pub total: u32,
    /// Channels that it may share with such a task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelId>,
    /// Delivery strategies that it may choose for a result, besides those that the tasks name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivery_strategies: Vec<PluginName>,
    /// Forms of delivery that it may choose.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub result_delivery: BTreeSet<ResultForm>,
    /// Fates of a task after its parent that it may choose.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub on_close: BTreeSet<OnClose>,
}

impl DelegateGrant {
    /// The default number of concurrent background tasks.
    pub const AT_ONCE: u32 = 1;
    /// The default number of background tasks in a run.
    pub const TOTAL: u32 = 8;
}

/// The grant of addresses and of host tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteGrant {
    /// Task names, `user`, or host tools such as `done`.
    pub names: Vec<String>,
}

/// The access to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileMode {
    Read,
    ReadWrite,
    /// Reads the directory. Changes go to an overlay of the run, copy-on-write, until a person
    /// applies or drops them.
    Overlay,
}

impl FileMode {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
            Self::Overlay => "overlay",
        }
    }

    /// The access in words, for display.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read and write",
            Self::Overlay => "read and write an overlay of",
        }
    }

    /// Whether the plugin may write, into the directory or into its overlay.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// The grant of one directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileGrant {
    /// The path on the host, absolute: the config resolves it from its own folder.
    pub dir: String,
    /// The path as the operator wrote it, for people.
    #[serde(rename = "shown")]
    pub display_path: String,
    /// The path as the plugin sees it, with the leading slash: `/folder`.
    pub at: String,
    pub mode: FileMode,
    /// The limit in bytes of all files below it after a write, earlier content included. For an
    /// overlay, of the changed files alone.
    #[serde(default = "folder_bytes")]
    pub bytes: u64,
    /// The limit of files and directories below it after a write. For an overlay, of changed and
    /// removed files.
    #[serde(default = "folder_files")]
    pub files: u64,
}

/// The default limit of a writable folder in bytes.
pub const FOLDER_BYTES: u64 = 16 << 20;
/// The default limit of files in a writable folder.
pub const FOLDER_FILES: u64 = 1_000;

fn folder_bytes() -> u64 {
    FOLDER_BYTES
}

fn folder_files() -> u64 {
    FOLDER_FILES
}

/// URLs and methods that a plugin may request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchRule {
    pub url: UrlPattern,
    /// The methods, in upper case.
    pub methods: Vec<String>,
}

/// The grant of HTTP requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchGrant {
    /// The rules; one of them must cover a request, and each of its redirects.
    pub rules: Vec<FetchRule>,
    /// Additional headers that may be sent, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Networks that are reachable although they are not public (private, loopback, link-local …).
    pub private: Vec<IpNet>,
    /// The limit of requests in the whole run; redirects count.
    pub requests: u64,
    /// The limit of a request in bytes: URL, headers and body together.
    pub request_bytes: u64,
    /// The limit of a decompressed response in bytes: headers and body together.
    pub response_bytes: u64,
    /// The limit of one request in milliseconds: all hops and the whole response.
    pub time_ms: u64,
    /// The limit of concurrent requests.
    pub at_once: u32,
    /// The limit of name look-ups in the whole run.
    pub names: u32,
    /// The limit of redirects for one request; with 0 none is followed, and the guest gets the
    /// redirect itself.
    pub redirects: u32,
}

impl FetchGrant {
    /// The default number of requests in a run.
    pub const REQUESTS: u64 = 100;
    /// The default size limit of a request, in bytes.
    pub const REQUEST_BYTES: u64 = 256 << 10;
    /// The default size limit of a response, in bytes.
    pub const RESPONSE_BYTES: u64 = 4 << 20;
    /// The default time limit of a request, in milliseconds.
    pub const TIME_MS: u64 = 20_000;
    /// The default number of concurrent requests.
    pub const AT_ONCE: u32 = 4;
    /// The default number of host names that are resolved in a run.
    pub const NAMES: u32 = 16;
    /// The default number of redirects that a request follows.
    pub const REDIRECTS: u32 = 5;

    /// Returns a grant of these rules with the default limits.
    #[must_use]
    pub fn new(rules: Vec<FetchRule>) -> Self {
        Self {
            rules,
            headers: Vec::new(),
            private: Vec::new(),
            requests: Self::REQUESTS,
            request_bytes: Self::REQUEST_BYTES,
            response_bytes: Self::RESPONSE_BYTES,
            time_ms: Self::TIME_MS,
            at_once: Self::AT_ONCE,
            names: Self::NAMES,
            redirects: Self::REDIRECTS,
        }
    }
}

/// The grant of a key-value store of the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvGrant {
    /// The limit in bytes of all keys and values together.
    pub bytes: u64,
    pub keys: u64,
}

impl KvGrant {
    /// The quota of a grant that sets none.
    pub const DEFAULT: Self = Self { bytes: 1 << 20, keys: 1_000 };
}

impl Default for KvGrant {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The part of a request that may hold a secret.
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

/// A secret that the host inserts for a plugin, as the config's `[secrets]` binds it. Holds neither
/// its value nor the source of the value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretGrant {
    pub name: SecretName,
    /// The hosts that may receive it.
    pub hosts: Vec<HostPattern>,
    #[serde(rename = "places")]
    pub request_parts: BTreeSet<SecretPlace>,
}

/// The grant of channels that a delivery strategy may send to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelsGrant {
    pub channels: Vec<ChannelId>,
    /// The limit of messages in the whole run.
    pub messages: Option<u64>,
}

/// The grant of the conversation around a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryGrant {
    /// The newest messages of the calling agent's history that a call may read.
    pub messages: u32,
}

impl HistoryGrant {
    /// The number of messages of a grant that sets none.
    pub const DEFAULT: Self = Self { messages: 50 };
}

impl Default for HistoryGrant {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a program must be confined by before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// All of it; without it no program starts.
    #[default]
    Required,
    /// As much as the kernel offers, which may be nothing.
    BestEffort,
}

/// The grant of programs of the machine, which run outside the sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecGrant {
    pub commands: Vec<CommandPattern>,
    /// The folders and files of the machine that programs may read besides the system's own, as the
    /// host resolves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// The programs that a granted program may start, and folders of such programs, besides itself
    /// and its interpreter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<String>,
    /// The whole environment besides `HOME` and `TMPDIR`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether programs may use the network.
    pub network: bool,
    pub confinement: Confinement,
    /// The limit of programs started in the whole run.
    pub runs: u64,
    /// The limit of one program in milliseconds.
    pub time_ms: u64,
    /// The limit of computing time in milliseconds, of the program and those that it starts.
    pub cpu_ms: u64,
    /// The limit of memory in bytes, of the program and those that it starts.
    pub memory: u64,
    /// The limit of processes and threads at once.
    pub processes: u32,
    /// The limit of standard output and standard error together, in bytes. The rest is dropped.
    pub output: u64,
    /// The size limit of a file that it writes, in bytes.
    pub file_size: u64,
}

impl ExecGrant {
    /// The default number of programs in a run.
    pub const RUNS: u64 = 100;
    /// The default time limit, in milliseconds.
    pub const TIME_MS: u64 = 20_000;
    /// The default limit of computing time, in milliseconds.
    pub const CPU_MS: u64 = 20_000;
    /// The default limit of memory, in bytes.
    pub const MEMORY: u64 = 512 << 20;
    /// The default number of processes and threads.
    pub const PROCESSES: u32 = 128;
    /// The default limit of output, in bytes.
    pub const OUTPUT: u64 = 256 << 10;
    /// The default size limit of a written file, in bytes.
    pub const FILE_SIZE: u64 = 64 << 20;

    /// Returns a grant of these commands with the default limits.
    #[must_use]
    pub fn new(commands: Vec<CommandPattern>) -> Self {
        Self {
            commands,
            read: Vec::new(),
            starts: Vec::new(),
            env: BTreeMap::new(),
            network: false,
            confinement: Confinement::Required,
            runs: Self::RUNS,
            time_ms: Self::TIME_MS,
            cpu_ms: Self::CPU_MS,
            memory: Self::MEMORY,
            processes: Self::PROCESSES,
            output: Self::OUTPUT,
            file_size: Self::FILE_SIZE,
        }
    }
}

/// All grants of one plugin.
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
    pub channels: Option<ChannelsGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvGrant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecGrant>,
}

impl Grants {
    /// Whether any of this capability was granted.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Model => self.model.is_some(),
            Capability::Tools => self.tools.is_some(),
            Capability::Delegate => self.delegate.is_some(),
            Capability::Route => self.route.is_some(),
            Capability::Files => !self.files.is_empty(),
            Capability::Channels => self.channels.is_some(),
            Capability::Fetch => self.fetch.is_some(),
            Capability::Kv => self.kv.is_some(),
            Capability::Secrets => !self.secrets.is_empty(),
            Capability::History => self.history.is_some(),
            Capability::Exec => self.exec.is_some(),
            own => own.is_own(),
        }
    }
}

/// A pattern of tools: `plugin.tool`, `plugin.*` or `*`. Those of rules, in which a `*` may stand
/// anywhere, are matched by [`Rule::covers`](crate::permissions::policy_rules::Rule::covers).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolPattern(pub String);

impl ToolPattern {
    /// Whether the pattern covers this `plugin.tool`.
    #[must_use]
    pub fn covers(&self, tool: &str) -> bool {
        match self.covered() {
            CoveredTools::One(name) => name == tool,
            CoveredTools::WithPrefix(prefix) => tool.starts_with(prefix),
            CoveredTools::None => false,
        }
    }

    /// The tools that the pattern covers.
    pub(crate) fn covered(&self) -> CoveredTools<'_> {
        match self.0.strip_suffix('*') {
            Some(prefix) if prefix.is_empty() || prefix.ends_with('.') => {
                CoveredTools::WithPrefix(prefix)
            }
            Some(_) => CoveredTools::None,
            None => CoveredTools::One(&self.0),
        }
    }

    /// Whether the text has the form of a pattern.
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

/// The tools that a pattern covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CoveredTools<'a> {
    One(&'a str),
    /// All tools whose names begin with this; the prefix of `*` is empty.
    WithPrefix(&'a str),
    /// None, because the pattern is malformed.
    None,
}

/// The rights of a plugin: its manifest, its grants, and the task's restriction.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    /// The plugin's name in the config.
    pub plugin: &'a str,
    pub manifest: &'a Manifest,
    pub grants: &'a Grants,
    /// The restriction by the current task; `None` for a plugin without a task of its own, such as
    /// a tool.
    pub narrowed: Option<ScopedTask<'a>>,
}

impl Rights<'_> {
    /// Checks that the capability was requested and granted. Allocates nothing if it was.
    ///
    /// # Errors
    /// The record for the operator: the layer that refused, and the smallest grant.
    pub fn require(
        &self,
        capability: Capability,
        target: &str,
        smallest: impl FnOnce() -> Option<String>,
    ) -> Result<(), Box<DenialRecord>> {
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

    /// The record of a refusal. `reason` is for the operator.
    #[must_use]
    pub fn refuse(
        &self,
        capability: Capability,
        target: &str,
        layer: Layer,
        reason: &str,
        suggestion: Option<String>,
    ) -> Box<DenialRecord> {
        let short_target: String = target.chars().take(256).collect();
        Box::new(DenialRecord {
            denial: Denial {
                capability: capability.as_str().to_owned(),
                detail: match capability {
                    Capability::Tools => format!("{} may not call {short_target:?}", self.plugin),
                    _ => format!("{capability} was refused for {short_target:?}"),
                },
                target: short_target,
            },
            layer,
            reason: reason.to_owned(),
            suggestion,
            writes: false,
        })
    }
}

/// A list for the config with the existing names and one more, so that it takes nothing away.
pub(crate) fn list_with<'a>(granted: impl IntoIterator<Item = &'a str>, name: &'a str) -> String {
    list(granted.into_iter().chain([name]))
}

/// A list of names for the config.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", names.join(", "))
}

/// `docs/`, nearly as the operator wrote it.
pub(crate) fn folder(grant: &FileGrant) -> String {
    let short = match grant.display_path.strip_prefix("./") {
        Some(rest) if !rest.trim_matches('/').is_empty() => rest.trim_end_matches('/'),
        _ => grant.display_path.trim_end_matches('/'),
    };
    format!("{short}/")
}
