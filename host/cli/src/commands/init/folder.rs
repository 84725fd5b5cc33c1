//! The one folder that a new config grants. Chosen so that nobody grants more than they think: a home folder never, and without a choice
//! only one whose name says that it holds documents.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::CliError;

const DOCS: &str = "docs";
const LIBRARY: &str = "library";
const PAGE: &str = "\
A grant is what the operator lets a plugin do. Nobody else can grant anything: no plugin, no model, no tool result.

The config grants the plugin search to read this folder, and nothing else. Put text files here, and ask about them.

An ask is a capability that a plugin's manifest asks for, with a reason; it is a ceiling, never a grant.
";

/// A folder that may be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Folder {
    /// From where the program runs.
    pub(super) path: PathBuf,
    /// As the config writes it.
    pub(super) written: String,
    pub(super) is_new: bool,
}

impl Folder {
    /// The folder that was named; else `docs` beside the config, else a new one.
    ///
    /// # Errors
    /// When the folder is not there, or would hold a home folder.
    pub(super) fn choose(beside: &Path, named: Option<&Path>) -> Result<Self, CliError> {
        match named {
            Some(named) => Self::named(beside, named),
            None if beside.join(DOCS).is_dir() => Ok(Self { path: beside.join(DOCS), written: DOCS.to_owned(), is_new: false }),
            None => {
                let path = beside.join(LIBRARY);
                Ok(Self { is_new: !path.is_dir(), path, written: LIBRARY.to_owned() })
            }
        }
    }

    fn named(beside: &Path, named: &Path) -> Result<Self, CliError> {
        let missing = |error| CliError::usage(format!("the folder {} cannot be read: {error}", named.display()));
        let whole = fs::canonicalize(named).map_err(missing)?;
        if !whole.is_dir() {
            return Err(CliError::usage(format!("{} is no folder", named.display())));
        }
        if let Some(why) = too_much(&whole) {
            let what = format!("{} is not granted: it {why}", named.display());
            return Err(CliError::usage(what).hint("name a folder that holds nothing but what may be read"));
        }
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        let written = match fs::canonicalize(beside).ok().and_then(|base| whole.strip_prefix(base).ok().map(Path::to_owned)) {
            Some(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Some(below) => below.display().to_string(),
            None => whole.display().to_string(),
        };
        Ok(Self { path: named.to_owned(), written, is_new: false })
    }

    /// Makes it, with a page in it, when it is new.
    pub(super) fn make(&self) -> std::io::Result<()> {
        if self.is_new {
            fs::create_dir(&self.path)?;
            fs::write(self.path.join("grants.txt"), PAGE)?;
        }
        Ok(())
    }

    /// What can be asked about it.
    pub(super) fn question(&self) -> &'static str {
        if self.is_new { "What is a grant?" } else { "What is this about?" }
    }

    /// Where the plugin sees it.
    pub(super) fn at(&self) -> String {
        let last = Path::new(&self.written).file_name().map(|name| name.to_string_lossy().into_owned());
        let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_ .".contains(c)) && name.len() <= 64;
        format!("/{}", last.filter(is_plain).unwrap_or_else(|| "folder".to_owned()))
    }
}

/// Why a folder holds more than anybody would mean to grant; none when it does not.
pub(crate) fn too_much(whole: &Path) -> Option<&'static str> {
    let home = std::env::var_os("HOME").and_then(|home| fs::canonicalize(home).ok());
    if whole.parent().is_none() {
        return Some("is the whole disk");
    }
    match home {
        Some(home) if whole == home => Some("is your home folder, with keys and passwords in it"),
        Some(home) if home.starts_with(whole) => Some("holds your home folder"),
        _ if [".ssh", ".gnupg", ".aws", ".kube"].iter().any(|keys| whole.join(keys).exists() || whole.ends_with(keys)) => {
            Some("holds keys")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_choice_only_a_folder_of_documents_is_granted() {
        let temp = tempfile::tempdir().unwrap();
        let chosen = Folder::choose(temp.path(), None).unwrap();
        assert_eq!((chosen.written.as_str(), chosen.is_new), ("library", true));
        chosen.make().unwrap();
        assert!(!Folder::choose(temp.path(), None).unwrap().is_new);
        fs::create_dir(temp.path().join("docs")).unwrap();
        assert_eq!(Folder::choose(temp.path(), None).unwrap().written, "docs");
    }

    #[test]
    fn a_folder_is_written_from_the_config_and_has_a_place() {
        let temp = tempfile::tempdir().unwrap();
        let (below, config) = (temp.path().join("config/My texts"), temp.path().join("config"));
        fs::create_dir_all(&below).unwrap();
        let folder = Folder::choose(&config, Some(&below)).unwrap();
        assert_eq!((folder.written.as_str(), folder.at().as_str()), ("My texts", "/My texts"));
        let folder = Folder::choose(&config, Some(&config)).unwrap();
        assert_eq!((folder.written.as_str(), folder.at().as_str()), (".", "/folder"));
        let folder = Folder::choose(&config, Some(temp.path())).unwrap();
        assert!(Path::new(&folder.written).is_absolute());
    }

    #[test]
    fn a_folder_with_keys_in_it_is_not_granted() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join(".ssh")).unwrap();
        assert!(Folder::choose(temp.path(), Some(temp.path())).unwrap_err().to_string().contains("keys"));
        assert!(Folder::choose(temp.path(), Some(Path::new("/"))).is_err());
        assert!(Folder::choose(temp.path(), Some(&temp.path().join("missing"))).is_err());
    }
}
