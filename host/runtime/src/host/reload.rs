//! Hot reload for authors: polls the files of plugins, loads rebuilt ones and routes the next call
//! to them. The core decides whether a rebuilt plugin may replace the admitted one. A refused or
//! broken file changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use conclave_core::config::reload::may_replace;
use conclave_core::config::{Config, PluginSource};
use conclave_core::setup::PluginSetup;
use conclave_core::types::ids::PluginName;
use tokio::task::JoinHandle;

use crate::host::Pins;
use crate::host::trust::Candidate;
use crate::plugin::sandboxed::{Sandbox, Sandboxes};
use crate::plugin::{Loader, read_component};
use crate::support::digest::sha256;

/// The result of reloading a changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The next call goes to the new component.
    Replaced {
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The SHA-256 digest of the new component, in lower-case hexadecimal.
        sha256: String,
        /// The duration of loading the component.
        took: Duration,
    },
    /// The component before it stays.
    Refused {
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The reason for the refusal, such as a compile error or a changed manifest.
        reason: String,
    },
}

/// A plugin that comes from a file.
#[derive(Clone, Debug)]
pub(crate) struct PluginFile {
    pub(crate) path: PathBuf,
    /// The source as the config names it.
    pub(crate) source: PluginSource,
    pub(crate) setup: Arc<PluginSetup>,
}

/// The parts needed to load a config's plugins again.
#[derive(Clone, Debug)]
pub(crate) struct Rebuilt {
    pub(crate) loader: Loader,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) sources: BTreeMap<PluginName, PluginFile>,
    pub(crate) pins: Arc<Pins>,
    /// The signatures that components need.
    pub(crate) config: Arc<Config>,
}

/// Polls the files of a config's plugins.
#[derive(Debug)]
pub struct Reloader {
    loader: Loader,
    sandboxes: Sandboxes,
    files: BTreeMap<PluginName, WatchedFile>,
    pins: Arc<Pins>,
    config: Arc<Config>,
}

#[derive(Debug)]
struct WatchedFile {
    source: PluginFile,
    /// The version that is loaded, or was refused.
    known: Option<FileVersion>,
    /// The changed version seen at the last poll. It is loaded if the next poll sees it again,
    /// because a file is not written at once.
    changed: Option<FileVersion>,
}

/// The version of a file, determined without reading its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    modified: SystemTime,
    bytes: u64,
}

impl FileVersion {
    /// The version of a file; `None` if there is no such file.
    #[must_use]
    pub fn of(file: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(file).ok()?;
        Some(Self { modified: metadata.modified().ok()?, bytes: metadata.len() })
    }
}

/// A background poll that stops when it is dropped.
#[derive(Debug)]
pub struct FileWatch(JoinHandle<()>);

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reloader {
    pub(crate) fn new(Rebuilt { loader, sandboxes, sources, pins, config }: Rebuilt) -> Self {
        let watched = |(name, source): (PluginName, PluginFile)| {
            let known = FileVersion::of(&source.path);
            (name, WatchedFile { source, known, changed: None })
        };
        Self { loader, sandboxes, files: sources.into_iter().map(watched).collect(), pins, config }
    }

    /// Polls at this interval and reports each reloaded file.
    #[must_use]
    pub fn watch(
        mut self,
        every: Duration,
        report: impl Fn(Reloaded) + Send + Sync + 'static,
    ) -> FileWatch {
        FileWatch(tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                self.look().await.into_iter().for_each(&report);
            }
        }))
    }

    /// Polls every file once. A change counts once two polls in a row see the same version.
    pub async fn look(&mut self) -> Vec<Reloaded> {
        let mut settled = Vec::new();
        for (name, file) in &mut self.files {
            let seen = FileVersion::of(&file.source.path);
            if seen == file.known || seen.is_none() {
                file.changed = None;
            } else if seen == file.changed {
                file.known = seen;
                file.changed = None;
                settled.push((name.clone(), file.source.clone()));
            } else {
                file.changed = seen;
            }
        }
        let mut reloaded = Vec::with_capacity(settled.len());
        for (plugin, source) in settled {
            reloaded.push(match self.take_in(&plugin, &source).await {
                Ok((sha256, took)) => Reloaded::Replaced { plugin, sha256, took },
                Err(reason) => Reloaded::Refused { plugin, reason },
            });
        }
        reloaded
    }

    async fn take_in(
        &self,
        name: &PluginName,
        source: &PluginFile,
    ) -> Result<(String, Duration), String> {
        let bytes = read_component(&source.path)
            .map_err(|error| format!("{} could not be read: {error}", source.path.display()))?;
        let component = Candidate { config: &self.config, plugin: name, sha256: sha256(&bytes) };
        component.check_file(&source.path).map_err(|refusal| refusal.to_string())?;
        let plugin = self
            .loader
            .load(bytes, &source.setup.limits, &source.setup.config, || {})
            .await
            .map_err(|error| error.to_string())?;
        may_replace(&source.setup.facts, &self.config.described(name, plugin.facts()))
            .map_err(|what| format!("{what}; start anew to take it"))?;
        let admitted = self.pins.admit(name, &source.source, plugin.facts());
        admitted.map_err(|refusal| {
            format!("{refusal}; `{}` shows the difference", refusal.remedy(name))
        })?;
        let (sha256, took) = (plugin.facts().sha256.clone(), plugin.took());
        let sandbox = Sandbox::new(Arc::new(plugin), name.clone(), Arc::clone(&source.setup))
            .map_err(|error| error.to_string())?;
        let sandbox = match self.sandboxes.get(name) {
            Some(before) => {
                sandbox.with_services(before.services().clone()).with_secrets(before.vault())
            }
            None => sandbox,
        };
        self.sandboxes.replace(sandbox);
        Ok((sha256, took))
    }
}
