//! Holds what was loaded to the operator's lock, and gives what a lock is made of. What counts as a
//! difference is decided in the core; the file is read and written by whoever runs the host.

use std::collections::BTreeMap;
use std::path::Path;

use conclave_core::config::lockfile::{
    Admission, LockRefusal, Lockfile, admit, is_harmless, is_pinned,
};
use conclave_core::config::{Config, ConfigProblem, PluginSource, Problems};
use conclave_core::setup::PluginFacts;
use conclave_core::types::ids::PluginName;

use super::{Follow, Host, PrepareError};

/// What plugins are held to. The default: nothing.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    /// None: nothing was ever pinned.
    pub lock: Option<Lockfile>,
    /// Nothing may differ from the lock or be missing in it, not even where it would do no harm.
    pub locked: bool,
}

impl Pins {
    /// Decides about one plugin.
    ///
    /// # Errors
    /// Why it may not be used as it is.
    pub fn admit(
        &self,
        plugin: &PluginName,
        source: &PluginSource,
        facts: &PluginFacts,
    ) -> Result<Admission, LockRefusal> {
        admit(self.lock.as_ref(), plugin, source, facts, self.locked)
    }

    /// Returns whether the lock says that the operator builds this plugin.
    #[must_use]
    pub fn is_dev(&self, plugin: &str) -> bool {
        self.lock
            .as_ref()
            .and_then(|lock| lock.plugins.get(plugin))
            .is_some_and(|pinned| pinned.dev)
    }

    /// Decides about all of them; gives whether one is refused.
    pub(super) fn hold<'a>(
        &self,
        config: &Config,
        plugins: impl Iterator<Item = (&'a PluginName, &'a PluginFacts)>,
        problems: &mut Problems,
    ) -> bool {
        let mut refused = false;
        for (name, facts) in plugins {
            let Some(plugin) = config.plugins.get(name).filter(|plugin| is_pinned(&plugin.source))
            else {
                continue;
            };
            let at = |what: String| config.problem(&format!("plugins.{name}.source"), what);
            match self.admit(name, &plugin.source, facts) {
                // What came with this program is as trusted as the program.
                Ok(Admission::NotPinned) if plugin.source.label() != "stock" => {
                    let problem = at(format!(
                        "the plugin `{name}` is not in the lock: what it says may change unseen"
                    ));
                    problems.push(helped(problem, &LockRefusal::NotPinned, name).as_warning());
                }
                Ok(Admission::Rebuilt) => {
                    let problem = at(format!(
                        "the plugin `{name}` was built anew since it was pinned; it asks for and says the same"
                    ));
                    problems.push(
                        helped(problem, &LockRefusal::Differs(Vec::new()), name).as_warning(),
                    );
                }
                Ok(Admission::Pinned | Admission::NotPinned | Admission::NoLock) => {}
                Err(refusal) => {
                    refused = true;
                    problems.push(helped(
                        at(format!("the plugin `{name}` is refused: {refusal}")),
                        &refusal,
                        name,
                    ));
                }
            }
        }
        refused
    }
}

/// With the command that mends it, for this config.
fn helped(problem: ConfigProblem, refusal: &LockRefusal, plugin: &PluginName) -> ConfigProblem {
    let file = problem.file.to_string();
    let is_usual = file == "conclave.toml";
    let safe = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    let file =
        if file.chars().all(safe) { file } else { format!("'{}'", file.replace('\'', r"'\''")) };
    let command = refusal.remedy(plugin);
    let (what, command) = match refusal {
        LockRefusal::Differs(changes) => {
            // An operator who builds it would be asked at every build.
            let is_build = !changes.is_empty() && is_harmless(changes);
            let what = if is_build {
                "shows the difference, and asks whether to accept it; with `--dev` each build of it is accepted, for what you build yourself"
            } else {
                "shows the difference, and asks whether to accept it"
            };
            (what, if is_usual { command } else { format!("{command} --file {file}") })
        }
        _ if is_usual => ("pins it as it is now", command),
        _ => ("pins it as it is now", format!("{command} {file}")),
    };
    problem.help(format!("`{command}` {what}"))
}

impl Host {
    /// What the plugins of a config are, with nothing granted: what a lock is made of. Whether they
    /// fit the config is not looked at.
    ///
    /// # Errors
    /// `Plugins` when one could not be loaded.
    pub async fn facts_of(
        &self,
        config: &Config,
        follow: &Follow,
    ) -> Result<BTreeMap<PluginName, PluginFacts>, PrepareError> {
        let mut problems = Problems::default();
        let (loaded, mut refused) = self.load_all(config, follow, &mut problems).await;
        let natives = self.load_natives(config, follow, &mut problems, &mut refused).await;
        if problems.has_errors() {
            return Err(PrepareError::Plugins(problems.in_order()));
        }
        let components = loaded.iter().map(|(name, plugin)| (name.clone(), plugin.facts().clone()));
        Ok(components
            .chain(natives.into_iter().map(|(name, native)| (name, native.facts)))
            .collect())
    }
}

/// Where the lock of a config is: beside it, under its name.
#[must_use]
pub fn lock_of(config: &Path) -> std::path::PathBuf {
    match config.extension() {
        // It would be the config itself.
        Some(ending) if ending == "lock" => config.with_extension("lock.lock"),
        _ => config.with_extension("lock"),
    }
}
