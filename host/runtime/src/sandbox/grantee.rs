//! A configured plugin as the imports see it: its rights, its settings, its folders, all prepared once. Not its code.

use std::sync::Arc;

use conclave_core::fault::FaultKind;
use conclave_core::grant::Rights;
use conclave_core::ids::PluginName;
use conclave_core::limits::PluginLimits;
use conclave_core::setup::PluginSetup;
use conclave_core::text::{show_duration as duration, show_size as size};

use crate::capability::folder::{Folder, FolderError};

/// Who asks.
#[derive(Debug)]
pub(crate) struct Grantee {
    pub(crate) name: PluginName,
    pub(crate) setup: Arc<PluginSetup>,
    /// Its settings as JSON text.
    pub(crate) config: String,
    pub(crate) folders: Vec<Folder>,
}

impl Grantee {
    /// Opens the granted folders; the only place where a host path turns into a handle.
    pub(crate) fn new(name: PluginName, setup: Arc<PluginSetup>) -> Result<Self, FolderError> {
        let config = setup.config.to_string();
        let folders = setup.grants.files.iter().map(|grant| Folder::open(&name, grant)).collect::<Result<_, _>>()?;
        Ok(Self { name, setup, config, folders })
    }

    pub(crate) fn limits(&self) -> &PluginLimits {
        &self.setup.limits
    }

    pub(crate) fn rights(&self) -> Rights<'_> {
        Rights { plugin: self.name.as_str(), manifest: &self.setup.facts.manifest, grants: &self.setup.grants }
    }

    /// A broken limit, in one sentence that names its value and its place in the config.
    pub(crate) fn limit_sentence(&self, kind: FaultKind) -> String {
        let limits = self.limits();
        let key = |key: &str| format!("plugins.{}.limits.{key}", self.name);
        match kind {
            FaultKind::Memory => format!("it used more than {} of memory ({})", size(limits.memory), key("memory")),
            FaultKind::Cpu => format!("it computed for more than {} ({})", duration(limits.cpu_ms), key("cpu")),
            FaultKind::Wall => format!("it took more than {} ({})", duration(limits.wall_ms), key("wall")),
            FaultKind::Output => {
                format!("it handed over more than {} at once ({})", size(limits.output), key("output"))
            }
            FaultKind::HostCalls => format!("it called the host more than {} times ({})", limits.host_calls, key("host_calls")),
            FaultKind::Handles => format!("it held more than {} resources of the host ({})", limits.handles, key("handles")),
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
