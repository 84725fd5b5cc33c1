//! The sources of a config's components: the program itself, a file, a URL or a registry.

use std::path::Path;

use conclave_core::config::{Config, ConfigProblem, PluginSource, ProblemCode};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::oci::OciReference;
use conclave_core::types::tool::ToolSpec;
use conclave_core::types::wording::did_you_mean;

use super::Host;
#[cfg(feature = "registry")]
use crate::plugin::Artifact;
use crate::plugin::{LoadError, PluginComponent, read_component};

/// The tools of a component.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentTools {
    /// Their descriptions.
    pub tools: Vec<ToolSpec>,
    /// For a component that is not built for the contract: its functions that cannot be tools, each
    /// with the reason.
    pub unserved: Vec<String>,
}

/// A plugin's component, found at its source.
#[derive(Debug)]
pub(super) struct FoundComponent {
    pub(super) component: PluginComponent,
    /// The artifact of a registry that contains it.
    #[cfg(feature = "registry")]
    pub(super) artifact: Option<Artifact>,
}

impl FoundComponent {
    fn new(component: impl Into<PluginComponent>) -> Self {
        Self {
            component: component.into(),
            #[cfg(feature = "registry")]
            artifact: None,
        }
    }

    /// The reference of the artifact, with its digest.
    #[cfg(feature = "registry")]
    pub(super) fn reference(&self) -> Option<OciReference> {
        self.artifact.as_ref().map(|artifact| artifact.reference().clone())
    }

    #[cfg(not(feature = "registry"))]
    pub(super) fn reference(&self) -> Option<OciReference> {
        None
    }
}

/// Characters of an unknown name that an error repeats.
const NAME: usize = 64;

/// A stock plugin that this program does not contain.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this program has no stock plugin `{name}`")]
pub struct MissingStock {
    name: String,
    help: String,
}

impl MissingStock {
    /// The error for `name` in a program with the stock plugins `known`.
    pub fn new<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let help = if known.is_empty() {
            "it was built without any; build it with `cargo xtask build`".to_owned()
        } else {
            let near = did_you_mean(name, known.iter().copied());
            let near = near.map(|near| format!("; {near}")).unwrap_or_default();
            format!(
                "it has {}{near}; a build leaves out those whose language's tools it does not find",
                known.join(", ")
            )
        };
        Self { name: short(name), help }
    }

    /// The plugins that the program has, or how it gets them.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }
}

/// The beginning of a name in one line, as an unknown one may be anything.
fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME).collect()
}

impl Host {
    /// Returns a plugin's component, from a registry at most `limit` bytes. `downloading` is called
    /// before the network is used.
    pub(super) async fn component(
        &self,
        source: &PluginSource,
        limit: u64,
        downloading: impl FnOnce(),
    ) -> Result<FoundComponent, Missing> {
        let bytes = match source {
            PluginSource::Stock(name) => {
                let component = self.stock.get(name).cloned();
                return component.map(FoundComponent::new).ok_or_else(|| {
                    let missing = MissingStock::new(name, self.stock.keys().map(String::as_str));
                    Missing::new(missing.to_string(), missing.help)
                });
            }
            PluginSource::Native(name) => Err(self.no_native(name)),
            PluginSource::Mcp(_) => Err(no_servers()),
            PluginSource::Url { url, sha256 } => self.downloaded(url, sha256, downloading).await,
            PluginSource::Oci { reference, .. } => {
                return self.pulled(reference, limit, downloading).await;
            }
            PluginSource::File(path) => read_component(Path::new(&path.path)).map_err(|error| {
                let what = format!("{} could not be read: {error}", path.path);
                Missing::new(what, "build the component, or correct the path; it starts at the folder of the config")
            }),
        };
        bytes.map(FoundComponent::new)
    }

    /// Returns the tools of a component without grants and config, for inspection before it is
    /// admitted, and the functions that cannot be tools. `compiling` is called before a
    /// compilation, which can take long; code from the cache needs none.
    ///
    /// # Errors
    /// Returns why the component is refused; requested capabilities that are not granted do not
    /// count.
    pub async fn tools_of(
        &self,
        component: impl Into<PluginComponent>,
        compiling: impl FnOnce() + Send + 'static,
    ) -> Result<ComponentTools, LoadError> {
        let plugin = self
            .loader
            .load(component, &PluginLimits::default(), &serde_json::json!({}), compiling)
            .await?;
        let tools = plugin.facts().tools.clone();
        Ok(ComponentTools { tools, unserved: plugin.unserved().to_vec() })
    }

    #[cfg(feature = "download")]
    async fn downloaded(
        &self,
        url: &str,
        sha256: &str,
        downloading: impl FnOnce(),
    ) -> Result<Vec<u8>, Missing> {
        use crate::plugin::DownloadError;

        self.downloads.component(url, sha256, downloading).await.map_err(|error| {
            let help = match &error {
                DownloadError::OtherDigest { .. } => {
                    "the component has changed since its digest was recorded; `conclave plugin inspect` shows what it asks for"
                }
                DownloadError::Status { .. } | DownloadError::TooLarge { .. } => {
                    "correct the address, or put the .wasm file beside the config and name it"
                }
                DownloadError::Unreachable { .. } | DownloadError::Setup(_) => {
                    "go online once: it is kept after that; or put the .wasm file beside the config and name it"
                }
            };
            let is_other = matches!(error, DownloadError::OtherDigest { .. });
            Missing { is_other, ..Missing::new(error.to_string(), help) }
        })
    }

    #[cfg(feature = "registry")]
    async fn pulled(
        &self,
        reference: &OciReference,
        limit: u64,
        downloading: impl FnOnce(),
    ) -> Result<FoundComponent, Missing> {
        use crate::plugin::RegistryError;

        let mut downloading = Some(downloading);
        let mut report = || downloading.take().into_iter().for_each(|downloading| downloading());
        let pulled = async {
            let artifact = self.registry.artifact(reference, &mut report).await?;
            let bytes = self.registry.component(&artifact, limit, &mut report).await?;
            Ok(FoundComponent { component: bytes.into(), artifact: Some(artifact) })
        };
        pulled.await.map_err(|error: RegistryError| {
            let help = error.help();
            let is_other = matches!(error, RegistryError::OtherDigest { .. });
            Missing { is_other, ..Missing::new(error.to_string(), help) }
        })
    }

    #[cfg(not(feature = "registry"))]
    async fn pulled(
        &self,
        reference: &OciReference,
        _: u64,
        _: impl FnOnce(),
    ) -> Result<FoundComponent, Missing> {
        let help = "pull it with `conclave plugin pull`, and write `source = \"./x.wasm\"`";
        Err(Missing::new(
            format!(
                "this program was built without the client for registries that {reference} needs"
            ),
            help,
        ))
    }

    #[cfg(not(feature = "download"))]
    async fn downloaded(&self, url: &str, _: &str, _: impl FnOnce()) -> Result<Vec<u8>, Missing> {
        let help = "download it, put it beside the config, and write `source = \"./x.wasm\"`";
        Err(Missing::new(
            format!("this program was built without what it takes to download {url}"),
            help,
        ))
    }
}

/// The problem for a tool server when the program has no client for them.
pub(super) fn no_servers() -> Missing {
    let help = "run this config with `conclave`, or give the host a client: `HostOptions::servers`";
    Missing::new("this program does not speak to MCP servers", help)
}

/// A component that is not at its source.
pub(super) struct Missing {
    what: String,
    help: String,
    /// Whether a component is there, but not the one that the config means.
    pub(super) is_other: bool,
}

impl Missing {
    pub(super) fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into(), is_other: false }
    }

    pub(super) fn problem(self, config: &Config, key: &str) -> ConfigProblem {
        let code =
            if self.is_other { ProblemCode::PluginRefused } else { ProblemCode::MissingPlugin };
        config.problem(code, key, self.what).help(self.help)
    }
}
