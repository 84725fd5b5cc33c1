//! The one folder that a new config grants, chosen so that it grants no more than the user expects.
//! A folder that holds too much needs an explicit `yes`. The default is a folder whose name says
//! that it holds documents.

use std::fs;
use std::path::{Path, PathBuf};

use conclave_runtime::durable_file::{self, FileAccess};

use crate::program::error::CliError;
use crate::state::folders::{self, ALL_THE_SAME, too_much};
use crate::ui::show::show_path;

const DOCS: &str = "docs";
const LIBRARY: &str = "library";
/// The page in a new folder.
pub(super) const PAGE_FILE: &str = "grants.txt";
const PAGE: &str = "\
A grant is what the operator lets a plugin do. Nobody else can grant anything: no plugin, no model, no tool result.

The config grants the plugin search to read this folder, and nothing else. Put text files here, and ask about them.

An ask is a capability that a plugin's manifest asks for, with a reason; it is a ceiling, never a grant.
";

/// A folder that the plugin may read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProjectFolder {
    /// The path relative to the program's current folder.
    pub(super) path: PathBuf,
    /// The path as the config writes it.
    pub(super) written: String,
    pub(super) is_new: bool,
}

impl ProjectFolder {
    /// Returns the named folder, or else `docs` beside the config, or else a new one.
    ///
    /// # Errors
    /// If the folder does not exist, or, unless `yes`, holds more than a user would want to grant.
    /// A default that is a link is rejected too: its name says nothing about its target.
    pub(super) fn choose(
        beside: &Path,
        folder: Option<&Path>,
        yes: bool,
    ) -> Result<Self, CliError> {
        match folder {
            Some(folder) => Self::from_path(beside, folder, yes),
            None if beside.join(DOCS).is_dir() => Self::unnamed(beside, DOCS, yes),
            None => Self::unnamed(beside, LIBRARY, yes),
        }
    }

    fn unnamed(beside: &Path, name: &str, yes: bool) -> Result<Self, CliError> {
        let path = beside.join(name);
        if path.is_symlink() {
            let to = fs::read_link(&path).unwrap_or_default();
            let what = format!(
                "{} is a link to {}, and a link is granted only if you name it",
                show_path(path),
                show_path(to)
            );
            return Err(CliError::usage(what).hint("name the folder to grant with `--folder DIR`"));
        }
        let is_new = !path.is_dir();
        // A new folder holds only the page that `make` writes.
        if !is_new {
            refuse_too_much(
                &path,
                &folders::canonicalize(&path),
                &folders::canonicalize(beside),
                yes,
            )?;
        }
        Ok(Self { path, written: name.to_owned(), is_new })
    }

    fn from_path(beside: &Path, folder: &Path, yes: bool) -> Result<Self, CliError> {
        let missing = |error| {
            CliError::usage(format!("the folder {} cannot be read: {error}", show_path(folder)))
        };
        let canonical_path = fs::canonicalize(folder).map_err(missing)?;
        if !canonical_path.is_dir() {
            return Err(CliError::usage(format!("{} is not a folder", show_path(folder))));
        }
        let own = folders::canonicalize(beside);
        refuse_too_much(folder, &canonical_path, &own, yes)?;
        let written = match canonical_path.strip_prefix(&own).ok() {
            Some(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Some(below) => below.display().to_string(),
            None => canonical_path.display().to_string(),
        };
        Ok(Self { path: folder.to_owned(), written, is_new: false })
    }

    /// If the folder is new, creates it with one page.
    pub(super) fn make(&self) -> std::io::Result<()> {
        if self.is_new {
            fs::create_dir(&self.path)?;
            durable_file::sync_folder(durable_file::folder_of(&self.path))?;
            durable_file::create(&self.path.join(PAGE_FILE), PAGE.as_bytes(), &FileAccess::Usual)?;
        }
        Ok(())
    }

    /// An example question about its contents.
    pub(super) fn question(&self) -> &'static str {
        if self.is_new { "What is a grant?" } else { "What is this about?" }
    }

    /// The path under which the plugin sees it.
    pub(super) fn at(&self) -> String {
        let last =
            Path::new(&self.written).file_name().map(|name| name.to_string_lossy().into_owned());
        let is_plain = |name: &String| {
            name.chars().all(|c| c.is_ascii_alphanumeric() || "-_ .".contains(c))
                && name.len() <= 64
        };
        format!("/{}", last.filter(is_plain).unwrap_or_else(|| "folder".to_owned()))
    }
}

fn refuse_too_much(
    folder: &Path,
    canonical_path: &Path,
    own: &Path,
    yes: bool,
) -> Result<(), CliError> {
    match too_much(canonical_path, own).filter(|_| !yes) {
        Some(why) => {
            Err(CliError::usage(format!("{} cannot be granted: it {why}", show_path(folder)))
                .hint(ALL_THE_SAME))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_choice_only_a_folder_of_documents_is_granted() {
        let temp = tempfile::tempdir().unwrap();
        let chosen = ProjectFolder::choose(temp.path(), None, false).unwrap();
        assert_eq!((chosen.written.as_str(), chosen.is_new), ("library", true));
        chosen.make().unwrap();
        assert!(!ProjectFolder::choose(temp.path(), None, false).unwrap().is_new);
        fs::create_dir(temp.path().join("docs")).unwrap();
        assert_eq!(ProjectFolder::choose(temp.path(), None, false).unwrap().written, "docs");
    }

    #[test]
    fn a_folder_is_written_from_the_config_and_has_a_place() {
        let temp = tempfile::tempdir().unwrap();
        let (below, config) = (temp.path().join("config/My texts"), temp.path().join("config"));
        fs::create_dir_all(&below).unwrap();
        let folder = ProjectFolder::choose(&config, Some(&below), false).unwrap();
        assert_eq!((folder.written.as_str(), folder.at().as_str()), ("My texts", "/My texts"));
        let folder = ProjectFolder::choose(&config, Some(&config), false).unwrap();
        assert_eq!((folder.written.as_str(), folder.at().as_str()), (".", "/folder"));
        assert!(
            ProjectFolder::choose(&config, Some(temp.path()), false).is_err(),
            "it lies above the config"
        );
        let folder = ProjectFolder::choose(&config, Some(temp.path()), true).unwrap();
        assert!(Path::new(&folder.written).is_absolute());
    }

    #[test]
    fn a_default_folder_is_checked_too() {
        for name in ["docs", "library"] {
            let temp = tempfile::tempdir().unwrap();
            fs::create_dir_all(temp.path().join(name).join(".ssh")).unwrap();
            assert!(
                ProjectFolder::choose(temp.path(), None, false)
                    .unwrap_err()
                    .to_string()
                    .contains("keys")
            );
            assert_eq!(ProjectFolder::choose(temp.path(), None, true).unwrap().written, name);
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_link_is_not_granted_without_being_named() {
        for (name, to) in [("docs", "/"), ("docs", "."), ("library", "/"), ("library", "missing")] {
            let temp = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(to, temp.path().join(name)).unwrap();
            for yes in [false, true] {
                assert!(
                    ProjectFolder::choose(temp.path(), None, yes)
                        .unwrap_err()
                        .to_string()
                        .contains("link"),
                    "{name} to {to}"
                );
            }
        }
    }

    #[test]
    fn a_folder_with_keys_in_it_is_not_granted() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join(".ssh")).unwrap();
        assert!(
            ProjectFolder::choose(temp.path(), Some(temp.path()), false)
                .unwrap_err()
                .to_string()
                .contains("keys")
        );
        assert!(ProjectFolder::choose(temp.path(), Some(Path::new("/")), false).is_err());
        assert!(
            ProjectFolder::choose(temp.path(), Some(&temp.path().join("missing")), true).is_err()
        );
    }
}
