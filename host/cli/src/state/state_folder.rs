//! The folder for data that outlives a run: stores of runs and of plugins. It is private to its
//! owner; other modules define its contents.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use conclave_runtime::durable_file::make_folders;

/// `$CONCLAVE_STATE`, or else `conclave` in the user's state folder. `None` if neither is known,
/// and nothing is stored then.
pub(crate) fn state_folder() -> Option<PathBuf> {
    state_folder_of(|name| std::env::var_os(name))
}

fn state_folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let env_path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG specification requires relative paths to be ignored.
    let users = || env_path("XDG_STATE_HOME").filter(|folder| folder.is_absolute());
    let home = || env_path("HOME").map(|home| home.join(".local").join("state"));
    env_path("CONCLAVE_STATE")
        .or_else(|| users().or_else(home).map(|folder| folder.join("conclave")))
}

/// Creates a folder and its missing ancestors, private to their owner. An existing folder is made
/// private too, and is otherwise unchanged.
///
/// # Errors
/// The operating system's error.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    make_folders(folder, 0o700)?;
    #[cfg(unix)]
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_select_the_state_folder() {
        let of = |variables: &[(&str, &str)]| {
            state_folder_of(|name| {
                variables
                    .iter()
                    .find(|(other, _)| *other == name)
                    .map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.local/state/conclave".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")]), Some("/x/conclave".into()));
        assert_eq!(
            of(&[("HOME", "/h"), ("XDG_STATE_HOME", "x")]),
            Some("/h/.local/state/conclave".into())
        );
        assert_eq!(of(&[("HOME", "/h"), ("CONCLAVE_STATE", "/s")]), Some("/s".into()));
        assert_eq!(of(&[("HOME", ""), ("CONCLAVE_STATE", "")]), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt;

        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("a/b");
        make_private(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        make_private(&folder).unwrap();
        for folder in [temp.path().join("a"), folder] {
            assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
