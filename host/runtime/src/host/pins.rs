//! Checks loaded plugins against the operator's lock, and returns the facts for a new lock. The
//! core decides which differences count; the caller reads and writes the file.

use std::collections::BTreeMap;
use std::path::Path;

use conclave_core::config::lockfile::{
    Admission, LockRefusal, Lockfile, admit, is_harmless, is_pinned,
};
use conclave_core::config::{Config, ConfigProblem, PluginSource, ProblemCode, Problems};
use conclave_core::setup::PluginFacts;
use conclave_core::types::ids::PluginName;

use super::{Follow, Host, OpenTags, PrepareError};

/// The lock that plugins must match. The default requires nothing.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    /// The lock; `None` if nothing was ever pinned.
    pub lock: Option<Lockfile>,
    /// Whether every difference and every missing entry is refused, even a harmless one.
    pub locked: bool,
}

impl Pins {
    /// Decides about one plugin.
    ///
    /// # Errors
    /// Returns why the plugin may not be used as it is.
    pub fn admit(
        &self,
        plugin: &PluginName,
        source: &PluginSource,
        facts: &PluginFacts,
    ) -> Result<Admission, LockRefusal> {
        admit(self.lock.as_ref(), plugin, source, facts, self.locked)
    }

    /// Whether the lock marks this plugin as built by the operator.
    #[must_use]
    pub fn is_dev(&self, plugin: &str) -> bool {
        self.lock
            .as_ref()
            .and_then(|lock| lock.plugins.get(plugin))
            .is_some_and(|pinned| pinned.dev)
    }

    /// The config with the pinned digests in place of its tags; `None` if it names none.
    pub(super) fn resolve_tags(&self, config: &Config) -> Option<Config> {
        let lock = self.lock.as_ref()?;
        let has_tags = config.plugins.values().any(|plugin| plugin.source.is_open_tag());
        has_tags.then(|| {
            let mut resolved = config.clone();
            lock.resolve_tags(&mut resolved);
            resolved
        })
    }

    /// The problem of a plugin whose tag is not pinned.
    pub(super) fn open_tag(
        &self,
        config: &Config,
        plugin: &PluginName,
        source: &PluginSource,
    ) -> ConfigProblem {
        let is_pinned = self.lock.as_ref().is_some_and(|lock| lock.plugins.contains_key(plugin));
        // A pin under another name is for `upgrade` to change.
        let refusal =
            if is_pinned { LockRefusal::Differs(Vec::new()) } else { LockRefusal::NotPinned };
        let key = format!("plugins.{plugin}.source");
        let mut problem = config.problem(ProblemCode::NotLocked, &key, String::new());
        // A copy of a config looks for a lock of its own name.
        let lock = lock_of(Path::new(&*problem.file));
        let lock = lock.display();
        problem.what = match &self.lock {
            Some(_) => format!(
                "the plugin `{plugin}` is refused: {lock} does not pin the digest of {}",
                source.label()
            ),
            None => format!(
                "the plugin `{plugin}` is refused: {} has no pinned digest, because {lock} does not exist",
                source.label()
            ),
        };
        helped(problem, &refusal, plugin)
    }

    /// Decides about all plugins and returns whether one is refused.
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
            let at =
                |code, what: String| config.problem(code, &format!("plugins.{name}.source"), what);
            match self.admit(name, &plugin.source, facts) {
                // A plugin built into this program is as trusted as the program.
                Ok(Admission::NotPinned) if plugin.source.label() != "stock" => {
                    let problem = at(
                        ProblemCode::NotLocked,
                        format!(
                            "the plugin `{name}` is not in the lock: what it says may change unseen"
                        ),
                    );
                    problems.push(helped(problem, &LockRefusal::NotPinned, name).as_warning());
                }
                Ok(Admission::Rebuilt) => {
                    let problem = at(
                        ProblemCode::LockMismatch,
                        format!(
                            "the plugin `{name}` was built anew since it was pinned; it asks for and says the same"
                        ),
                    );
                    problems.push(
                        helped(problem, &LockRefusal::Differs(Vec::new()), name).as_warning(),
                    );
                }
                Ok(
                    Admission::Pinned | Admission::Dev | Admission::NotPinned | Admission::NoLock,
                ) => {}
                Err(refusal) => {
                    refused = true;
                    let code = match refusal {
                        LockRefusal::Differs(_) => ProblemCode::LockMismatch,
                        _ => ProblemCode::NotLocked,
                    };
                    let problem = at(code, format!("the plugin `{name}` is refused: {refusal}"));
                    problems.push(helped(problem, &refusal, name));
                }
            }
        }
        refused
    }
}

/// Adds the command that solves the problem, for this config.
fn helped(problem: ConfigProblem, refusal: &LockRefusal, plugin: &PluginName) -> ConfigProblem {
    let file = problem.file.to_string();
    let is_usual = file == "conclave.toml";
    let safe = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    let file =
        if file.chars().all(safe) { file } else { format!("'{}'", file.replace('\'', r"'\''")) };
    let command = refusal.remedy(plugin);
    let (what, command) = match refusal {
        LockRefusal::Differs(changes) => {
            // An operator who builds the plugin would be asked again at every build.
            let is_build = !changes.is_empty() && is_harmless(changes);
            let what = if is_build {
                "shows the difference, and asks whether to accept it; with `--dev` each build of it is accepted, for what you build yourself"
            } else {
                "shows the difference, and asks whether to accept it"
            };
            (what, if is_usual { command } else { format!("{command} --file {file}") })
        }
        LockRefusal::Dev => {
            let what = "pins this build of it, and no longer accepts others";
            (what, if is_usual { command } else { format!("{command} --file {file}") })
        }
        _ if is_usual => ("pins it as it is now", command),
        _ => ("pins it as it is now", format!("{command} {file}")),
    };
    problem.help(format!("`{command}` {what}"))
}

impl Host {
    /// Returns the facts of a config's plugins without grants, from which a lock is made. Tags are
    /// resolved at their registries. It does not check whether they fit the config.
    ///
    /// # Errors
    /// `Plugins` if one could not be loaded.
    pub async fn facts_of(
        &self,
        config: &Config,
        follow: &Follow,
    ) -> Result<BTreeMap<PluginName, PluginFacts>, PrepareError> {
        let mut problems = Problems::default();
        let (loaded, mut refused) =
            self.load_all(config, OpenTags::Resolve, follow, &mut problems).await;
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

/// The path of a config's lock: beside the config, under its name.
#[must_use]
pub fn lock_of(config: &Path) -> std::path::PathBuf {
    match config.extension() {
        // The usual name would be the config itself.
        Some(ending) if ending == "lock" => config.with_extension("lock.lock"),
        _ => config.with_extension("lock"),
    }
}
