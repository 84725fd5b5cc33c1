//! The check of folders before a command grants them: whether they exist, and whether one holds
//! more than a user would want to grant. `init`, `add` and `grant` share it; configs written by
//! hand are not checked.

use std::fs;
use std::path::{Component, Path, PathBuf};

use conclave_core::config::edit::{EditedConfig, Fragment};
use conclave_core::config::{Config, ProblemCode, Problems};
use conclave_core::permissions::grants::CHOSEN_FOLDER;
use conclave_core::permissions::grants::FileGrant;

use crate::program::error::CliError;
use crate::ui::show::show_path;

/// Folders of keys, in any place.
const KEYS: [&str; 4] = [".ssh", ".gnupg", ".aws", ".kube"];
/// System folders with passwords, keys and devices.
const SYSTEM: [&str; 4] = ["/etc", "/proc", "/sys", "/dev"];
/// The option that grants such a folder nevertheless.
pub(crate) const ALL_THE_SAME: &str =
    "name a folder with only the files to grant, or grant this one anyway with --yes";

/// Returns why a folder holds more than a user would want to grant, or `None` if it does not. Both
/// paths are canonical; `own` is the config's folder.
pub(crate) fn too_much(canonical_path: &Path, own: &Path) -> Option<&'static str> {
    if canonical_path.parent().is_none() {
        return Some("is the whole disk");
    }
    let home = std::env::var_os("HOME").and_then(|home| fs::canonicalize(home).ok());
    match home {
        Some(home) if canonical_path == home => {
            Some("is your home folder, which contains keys and passwords")
        }
        Some(home) if home.starts_with(canonical_path) => Some("contains your home folder"),
        _ if holds_keys(canonical_path) => Some("contains keys"),
        _ if SYSTEM.iter().any(|system| canonical_path.starts_with(system)) => {
            Some("is a system folder")
        }
        _ if canonical_path != own && own.starts_with(canonical_path) => {
            Some("contains the config's folder and everything beside it")
        }
        _ => None,
    }
}

fn holds_keys(canonical_path: &Path) -> bool {
    let is_key = |part: Component<'_>| KEYS.iter().any(|keys| part.as_os_str() == *keys);
    canonical_path.components().any(is_key)
        || KEYS.iter().any(|keys| canonical_path.join(keys).exists())
}

/// The canonical path. An empty path is the current folder.
pub(crate) fn canonicalize(folder: &Path) -> PathBuf {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

/// Rejects folders of a plugin that the host would reject when it prepares the config.
///
/// # Errors
/// The new problems, in the host's words.
pub(crate) fn check_by_host(
    file: &Path,
    plugin: &str,
    before: Option<&Config>,
    edited: &EditedConfig,
) -> Result<(), CliError> {
    let Some(config) = &edited.config else { return Ok(()) };
    let files = |config: &Config| {
        config.plugins.get(plugin).map(|plugin| plugin.grants.files.clone()).unwrap_or_default()
    };
    if files(config).is_empty() || before.is_some_and(|before| files(before) == files(config)) {
        return Ok(());
    }
    let host = crate::state::setup::open_host_in(file)?;
    // Whatever others were granted before is not the question.
    let problems_of = |config: &Config| {
        let mut config = config.clone();
        config
            .plugins
            .iter_mut()
            .filter(|(name, _)| name.as_str() != plugin)
            .for_each(|(_, other)| other.grants.files.clear());
        host.folder_problems(&config)
    };
    let old = before.map(problems_of).unwrap_or_default();
    let mut problems = problems_of(config);
    problems.0.retain(|problem| !old.0.iter().any(|old| old.what == problem.what));
    if problems.is_empty() {
        return Ok(());
    }
    let what = format!(
        "a folder cannot be granted; nothing was written\n\n{}",
        problems.to_string().trim_end()
    );
    Err(CliError::usage(what).with_problems(&problems))
}

/// Checks folders before they are granted.
#[derive(Clone, Debug)]
pub(crate) struct FolderGuard {
    /// The config's own folder, as a canonical path.
    own: PathBuf,
    yes: bool,
}

impl FolderGuard {
    /// Creates a guard for a config in this folder. `yes` allows folders that hold too much.
    pub(crate) fn new(folder: &Path, yes: bool) -> Self {
        Self { own: canonicalize(folder), yes }
    }

    /// Checks the folders that an edit newly grants to a plugin.
    ///
    /// # Errors
    /// If folders do not exist or, without `--yes`, hold too much; lists each with its config line.
    /// Also if the config was invalid before the edit, since new grants cannot be identified then.
    pub(crate) fn check(
        &self,
        plugin: &str,
        chosen: &[Fragment],
        before: Option<&Config>,
        edited: &EditedConfig,
    ) -> Result<(), CliError> {
        let Some(config) = &edited.config else { return unless_folders(chosen) };
        let of = |config: &Config| {
            config.plugins.get(plugin).map(|plugin| plugin.grants.files.clone()).unwrap_or_default()
        };
        let old = before.map(of).unwrap_or_default();
        let mut problems = Problems::default();
        for (index, grant) in
            of(config).iter().enumerate().filter(|(_, grant)| !old.contains(grant))
        {
            if let Some((code, what, help)) = self.problem(grant) {
                let key = format!("plugins.{plugin}.grants.files[{index}]");
                problems.push(config.problem(code, &key, what).help(help));
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        let what = format!(
            "a folder cannot be granted; nothing was written\n\n{}",
            problems.to_string().trim_end()
        );
        Err(CliError::usage(what).with_problems(&problems))
    }

    /// The problem with a folder, and its remedy.
    fn problem(&self, grant: &FileGrant) -> Option<(ProblemCode, String, &'static str)> {
        let canonical_path = fs::canonicalize(&grant.dir).ok().filter(|path| path.is_dir());
        if canonical_path.is_none() && grant.display_path == CHOSEN_FOLDER {
            return Some((
                ProblemCode::MissingFolder,
                format!("`{CHOSEN_FOLDER}` stands for the folder that you choose"),
                "write the path of a folder in its place; it starts at the config's folder",
            ));
        }
        let Some(canonical_path) = canonical_path else {
            return Some((
                ProblemCode::MissingFolder,
                format!("the folder {} does not exist", grant.dir),
                "create it, or correct the path, which starts at the config's folder",
            ));
        };
        let why = too_much(&canonical_path, &self.own).filter(|_| !self.yes)?;
        let what = format!("{} {why}", show_path(canonical_path));
        Some((ProblemCode::ProtectedFolder, what, ALL_THE_SAME))
    }
}

fn unless_folders(chosen: &[Fragment]) -> Result<(), CliError> {
    if chosen.iter().all(|fragment| fragment.grants.iter().all(|grant| grant.key != "files")) {
        return Ok(());
    }
    let what =
        "the config has problems, so the folder to grant cannot be checked; nothing was written";
    Err(CliError::usage(what).hint("correct them first; `conclave check` lists them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broad_folders_are_recognised() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let own = root.join("desk");
        fs::create_dir_all(own.join("docs")).unwrap();
        fs::create_dir_all(root.join("other/.ssh/old")).unwrap();
        for fine in [own.clone(), own.join("docs"), root.join("beside")] {
            assert_eq!(too_much(&fine, &own), None, "{}", fine.display());
        }
        let risky = [
            root.clone(),
            root.join("other"),
            root.join("other/.ssh/old"),
            "/".into(),
            "/etc".into(),
            "/etc/ssl".into(),
        ];
        for folder in risky {
            assert!(too_much(&folder, &own).is_some(), "{}", folder.display());
        }
    }
}
