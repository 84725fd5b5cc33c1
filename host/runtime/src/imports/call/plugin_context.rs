//! A configured plugin as its imports see it: rights, settings and folders, prepared once. The code
//! is not in here.

use std::sync::Arc;

use conclave_core::permissions::grants::Rights;
use conclave_core::permissions::secret::Scrubber;
use conclave_core::permissions::task_scope::ScopedTask;
use conclave_core::setup::{PluginSetup, TaskSetup};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::fault::FaultKind;
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::text::{show_duration as duration, show_size as size};

use crate::imports::exec::ProgramLauncher;
use crate::imports::folder::{FolderError, GrantedFolder};
use crate::imports::kv::{KvOwner, KvStore, MemoryKv};
use crate::imports::secrets::vault::Vault;
use crate::support::blobs::{Blobs, MemoryBlobs};

/// The task of an agent; `None` for tools and strategies.
pub(crate) type WorksOn = Option<(TaskName, Arc<TaskSetup>)>;

/// The plugin that calls the imports.
#[derive(Debug)]
pub(crate) struct PluginContext {
    pub(crate) name: PluginName,
    pub(crate) setup: Arc<PluginSetup>,
    /// The settings as JSON text.
    pub(crate) config: String,
    pub(crate) folders: Vec<Arc<GrantedFolder>>,
    pub(crate) services: HostServices,
    /// The secrets of the config; the grants limit their use.
    pub(crate) vault: Arc<Vault>,
    #[cfg(feature = "fetch")]
    pub(crate) outgoing: crate::imports::outgoing::FetchClient,
}

/// What the host offers to all plugins of a config: stores for their data, and the launcher of
/// programs.
#[derive(Clone)]
pub(crate) struct HostServices {
    pub(crate) kv: Arc<dyn KvStore>,
    pub(crate) blobs: Arc<dyn Blobs>,
    /// `None` starts no programs.
    pub(crate) launcher: Option<Arc<ProgramLauncher>>,
    /// The folder of the config, with links resolved; it separates the stores of configs.
    pub(crate) home: Arc<str>,
}

/// In memory, as long as the plugin is loaded.
impl Default for HostServices {
    fn default() -> Self {
        Self {
            kv: Arc::new(MemoryKv::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            launcher: None,
            home: Arc::from(""),
        }
    }
}

impl std::fmt::Debug for HostServices {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("HostServices").field("home", &self.home).finish_non_exhaustive()
    }
}

impl PluginContext {
    /// Opens the granted folders. Only here do host paths become handles.
    pub(crate) fn new(name: PluginName, setup: Arc<PluginSetup>) -> Result<Self, FolderError> {
        let folders = GrantedFolder::open_all(&name, &setup.grants.files)?;
        let folders = folders.into_iter().map(Arc::new).collect();
        Ok(Self { folders, ..Self::without_folders(name, setup) })
    }

    /// The context of native code, which needs no granted folders: it can open any file.
    pub(crate) fn without_folders(name: PluginName, setup: Arc<PluginSetup>) -> Self {
        let config = setup.config.to_string();
        #[cfg(feature = "fetch")]
        let outgoing = crate::imports::outgoing::FetchClient::new(&setup.grants);
        Self {
            name,
            setup,
            config,
            folders: Vec::new(),
            services: HostServices::default(),
            vault: Vault::empty(),
            #[cfg(feature = "fetch")]
            outgoing,
        }
    }

    /// Checks that a granted folder is still the one that was opened, before it is used for `path`.
    ///
    /// # Errors
    /// The record for the operator.
    pub(crate) fn check_place(
        &self,
        folder: &GrantedFolder,
        (path, writes): (&str, bool),
        task: &WorksOn,
    ) -> Result<(), Box<DenialRecord>> {
        folder.check_place().map_err(|reason| {
            let rights = self.rights_in(task);
            let record = rights.refuse(Capability::Files, path, Layer::Runtime, &reason, None);
            Box::new(DenialRecord { writes, ..*record })
        })
    }

    pub(crate) fn has_secrets(&self) -> bool {
        !self.setup.grants.secrets.is_empty()
    }

    /// The scrubber for this plugin's output; `None` if there is nothing to scrub.
    pub(crate) fn scrubber(&self) -> Option<Arc<Scrubber>> {
        let scrubber = if self.has_secrets() { Some(self.vault.scrubber()) } else { None };
        scrubber.filter(|scrubber| !scrubber.is_empty())
    }

    /// The owner of this plugin's keys.
    pub(crate) fn kv_owner(&self) -> KvOwner {
        let (plugin, manifest) = (self.name.to_string(), self.setup.facts.manifest.name.clone());
        KvOwner { home: self.services.home.to_string(), plugin, manifest }
    }

    pub(crate) fn limits(&self) -> &PluginLimits {
        &self.setup.limits
    }

    pub(crate) fn rights(&self) -> Rights<'_> {
        Rights {
            plugin: self.name.as_str(),
            manifest: &self.setup.facts.manifest,
            grants: &self.setup.grants,
            narrowed: None,
        }
    }

    /// The rights, narrowed by the task.
    pub(crate) fn rights_in<'a>(&'a self, task: &'a WorksOn) -> Rights<'a> {
        let narrowed = task.as_ref().map(|(task, setup)| ScopedTask { task, scope: &setup.scope });
        Rights { narrowed, ..self.rights() }
    }

    /// A sentence for an exceeded limit, with its value and its place in the config.
    pub(crate) fn limit_sentence(&self, kind: FaultKind) -> String {
        let limits = self.limits();
        let key = |key: &str| format!("plugins.{}.limits.{key}", self.name);
        match kind {
            FaultKind::Memory => {
                format!("it used more than {} of memory ({})", size(limits.memory), key("memory"))
            }
            FaultKind::Cpu => {
                format!("it computed for more than {} ({})", duration(limits.cpu_ms), key("cpu"))
            }
            FaultKind::Wall => {
                format!("it took more than {} ({})", duration(limits.wall_ms), key("wall"))
            }
            FaultKind::Output => {
                format!(
                    "it handed over more than {} at once, as the host holds the values in memory ({})",
                    size(limits.output),
                    key("output")
                )
            }
            FaultKind::HostCalls => format!(
                "it called the host more than {} times ({})",
                limits.host_calls,
                key("host_calls")
            ),
            FaultKind::Handles => format!(
                "it held more than {} resources of the host ({})",
                limits.handles,
                key("handles")
            ),
            FaultKind::Tables => {
                format!(
                    "its tables had more than {} elements together ({})",
                    limits.table_elements,
                    key("table_elements")
                )
            }
            FaultKind::Instances => format!(
                "it consists of more than {} core instances ({})",
                limits.instances,
                key("instances")
            ),
            FaultKind::List => format!(
                "it handed over a list of more than {} elements ({})",
                limits.list,
                key("list")
            ),
            other => format!("it broke a limit of the host ({})", other.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(1_000_001), "1000001 B");
        assert_eq!(duration(1_000), "1 s");
        assert_eq!(duration(2_500), "2500 ms");
    }
}
