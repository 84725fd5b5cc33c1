//! A config file that is edited: read once, and written atomically unless it has changed since.
//! Other modules decide the edits.

use std::fs;
use std::io::{Error, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

use conclave_core::config::Problems;
use conclave_core::config::edit::{ConfigEditError, ConfigText, EditedConfig, LineChange};
use conclave_runtime::durable_file::{self, FileAccess};
use serde_json::{Value, json};

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::screen::columns;
use crate::ui::show::foreign::{self, MARK, MARK_COLUMNS};
use crate::ui::show::{BAD, GOOD, paint, show_path, unread, unwritten};
use crate::ui::{stderr, stdout};

/// Columns of a line in a pipe, so many that no line is broken.
const UNBROKEN: usize = 1 << 20;

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    /// The path as given.
    path: PathBuf,
    /// The path with links resolved.
    target: PathBuf,
    text: String,
}

impl ConfigFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file does not exist or is not text.
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let unread = |error: &Error| {
            let hint = match error.kind() {
                ErrorKind::NotFound => {
                    "write a config with `conclave init`, or name one with `--file FILE`"
                }
                _ => "name a config with `--file FILE`",
            };
            unread(path, error).hint(hint)
        };
        let target = fs::canonicalize(path).map_err(|error| unread(&error))?;
        let text = fs::read_to_string(&target).map_err(|error| unread(&error))?;
        Ok(Self { path: path.to_owned(), target, text })
    }

    /// The path as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder to which the config's paths are relative: that of the file as given, also for a
    /// run. For a link, it is the link's own folder.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Returns the text, to be edited.
    ///
    /// # Errors
    /// If the text is not TOML.
    pub(crate) fn edit(&self) -> Result<ConfigText, CliError> {
        ConfigText::open(&show_path(&self.path), &self.folder().to_string_lossy(), &self.text)
            .map_err(CliError::from)
    }

    /// Writes the text of an edit.
    ///
    /// # Errors
    /// If the file has changed since it was read, or cannot be written. The old file is left in
    /// place.
    pub(crate) fn write(&self, edited: &EditedConfig) -> Result<(), CliError> {
        if edited.changes.is_empty() {
            return Ok(());
        }
        let now = fs::read_to_string(&self.target).unwrap_or_default();
        if now != self.text {
            let what = format!(
                "{} has changed since it was read; nothing was written",
                show_path(&self.path)
            );
            return Err(CliError::usage(what).hint("run the command again"));
        }
        replace(&self.target, &edited.text).map_err(|error| unwritten(&self.path, &error))
    }
}

/// The command line's error for a rejected edit.
impl From<ConfigEditError> for CliError {
    fn from(error: ConfigEditError) -> Self {
        let invalid = |lead: &str, problems: &Problems| {
            let what = format!("{lead}\n\n{}", problems.to_string().trim_end());
            Self::usage(what).with_problems(problems)
        };
        match &error {
            ConfigEditError::Wrong(problems) => {
                invalid("this change would make the config invalid; nothing was written", problems)
            }
            ConfigEditError::Unreadable(problems) => invalid("the config is invalid", problems),
            error => Self::usage(error.to_string()),
        }
    }
}

/// Reports the changes: as text on stderr, or with `--json` as one object on stdout.
pub(crate) fn tell(
    file: &ConfigFile,
    edited: &EditedConfig,
    more: Value,
    output: OutputArgs,
) -> Result<(), CliError> {
    if output.json {
        let mut report = json!({
            "type": "config",
            "file": file.path().display().to_string(),
            "changed": !edited.changes.is_empty(),
            "changes": edited.changes,
            "warnings": edited.warnings,
        });
        if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
            report.extend(more);
        }
        return stdout::json(report);
    }
    if output.quiet {
        return Ok(());
    }
    if edited.changes.is_empty() {
        stderr::line(format_args!("{} is unchanged", show_path(file.path())));
        return Ok(());
    }
    stderr::line(show_path(file.path()));
    // A program that reads a pipe needs whole lines.
    let columns = if std::io::stderr().is_terminal() { columns() } else { UNBROKEN };
    for row in edited.changes.iter().flat_map(|change| rows(change, columns)) {
        stderr::line(row);
    }
    Ok(())
}

/// A changed line, in rows of at most `columns` columns. A plugin may have written a comment or a
/// pattern in it, so each row has the mark in front.
fn rows(change: &LineChange, columns: usize) -> Vec<String> {
    let (style, sign, line, text) = match change {
        LineChange::Removed { line, text } => (BAD, '-', line, text),
        LineChange::Added { line, text } => (GOOD, '+', line, text),
    };
    let first = format!("  {sign} {line:>3} ");
    let further = " ".repeat(first.len());
    let rows = foreign::reading_rows(text, columns.saturating_sub(first.len() + MARK_COLUMNS));
    let margins = std::iter::once(first).chain(std::iter::repeat(further));
    let row = |(row, margin): (String, String)| {
        paint(style, format_args!("{margin}{MARK}{row}").to_string().trim_end())
    };
    rows.into_iter().zip(margins).map(row).collect()
}

/// Creates a file. An existing one is an error, unless `force`.
///
/// # Errors
/// `AlreadyExists`, or an error of the operating system.
pub(crate) fn create(path: &Path, text: &str, force: bool) -> std::io::Result<()> {
    if force && let Ok(target) = fs::canonicalize(path) {
        return replace(&target, text);
    }
    durable_file::create(path, text.as_bytes(), &FileAccess::Usual)
}

/// Writes a temporary file and renames it over the target, so that a crash leaves the old file or
/// the new one. The permissions stay.
pub(crate) fn replace(target: &Path, text: &str) -> std::io::Result<()> {
    let permissions = fs::metadata(target)?.permissions();
    durable_file::replace(target, text.as_bytes(), &FileAccess::Like(permissions))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use conclave_core::config::edit::Fragment;

    use super::*;

    const CONFIG: &str =
        "entry = \"t\"\n[plugins.p]\nsource = \"stock:chat\"\n[tasks.t]\nagent = \"p\"\n";

    fn edited(file: &ConfigFile) -> EditedConfig {
        let mut edit = file.edit().unwrap();
        edit.grant("p", &Fragment::parse("route = [\"user\"]").unwrap()).unwrap();
        edit.finish().unwrap()
    }

    #[test]
    fn a_link_stays_a_link_and_permissions_stay() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real.toml"), temp.path().join("link.toml"));
        fs::write(&real, CONFIG).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let file = ConfigFile::open(&link).unwrap();
        file.write(&edited(&file)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::read_to_string(&real).unwrap().contains("grants.route"));
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "nothing is left beside it");
    }

    #[test]
    fn paths_start_at_the_folder_of_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let (other_folder, link) = (temp.path().join("elsewhere"), temp.path().join("link.toml"));
        fs::create_dir(&other_folder).unwrap();
        fs::write(other_folder.join("real.toml"), CONFIG).unwrap();
        std::os::unix::fs::symlink(other_folder.join("real.toml"), &link).unwrap();
        let file = ConfigFile::open(&link).unwrap();
        assert_eq!(file.folder(), temp.path());
        file.write(&edited(&file)).unwrap();
        assert!(
            fs::read_to_string(other_folder.join("real.toml")).unwrap().contains("grants.route")
        );
    }

    #[test]
    fn a_config_changed_meanwhile_is_not_overwritten() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("conclave.toml");
        fs::write(&path, CONFIG).unwrap();
        let file = ConfigFile::open(&path).unwrap();
        let edit = edited(&file);
        fs::write(&path, format!("{CONFIG}# by hand\n")).unwrap();
        assert!(file.write(&edit).unwrap_err().to_string().contains("has changed since"));
        assert!(fs::read_to_string(&path).unwrap().ends_with("# by hand\n"));
    }

    #[test]
    fn an_existing_file_is_overwritten_only_with_force() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("conclave.toml");
        create(&path, "a", false).unwrap();
        assert_eq!(create(&path, "b", false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        create(&path, "c", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "c");
    }
}
