//! The input of a run besides its message.

use std::path::PathBuf;

use clap::Args;

/// The input of a run, instead of the config's own settings.
#[derive(Debug, Default, Args)]
pub(crate) struct RunInputArgs {
    /// Run this task, not the config's `entry`
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The most steps of the task, instead of the config's limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: Option<u32>,
    /// The task's inputs besides the message: a JSON object, or @FILE with one
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) inputs: Option<String>,
    /// The recipient of the message; the run ends with NOT_ADDRESSED if it is not the task's name
    #[arg(long, value_name = "NAME")]
    pub(crate) recipient: Option<String>,
    /// Replace a limit of [limits.run], such as `wall=30 s`; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) limit: Vec<(String, String)>,
    /// Name the room of the run. If a stored run has this name, its room is run once more, and tasks
    /// with `restart = false` remember
    #[arg(long, value_name = "NAME", value_parser = room_name, conflicts_with_all = ["journal", "no_journal"])]
    pub(crate) room: Option<String>,
    /// Answer the questions of tasks with the lines of this file, in their order
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
}

/// Parses `--limit KEY=VALUE`, of a run and of a call. The config's parser checks key and value.
/// Quotes around the value are for the shell.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    const FORM: &str = "write KEY=VALUE, with a value as in a config, such as `wall=30 s`, `memory=64 MiB` or `turns=20`";
    let (key, value) = text.split_once('=').ok_or(FORM)?;
    let (key, value) = (key.trim(), value.trim().trim_matches(['"', '\'']).trim());
    if key.is_empty() || value.is_empty() {
        return Err(FORM.to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Characters of a room's name.
const ROOM_NAME: usize = 64;

/// Parses the name of a room, which is also that of a folder.
pub(super) fn room_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && text.len() <= ROOM_NAME && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a room's name has at most {ROOM_NAME} letters, digits, `-`, `_` and `.`, and begins with a letter or digit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rooms_are_plain_and_limits_are_pairs() {
        for name in ["desk", "2026-11.a_b"] {
            assert_eq!(room_name(name).as_deref(), Ok(name));
        }
        for name in ["", "-desk", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(room_name(name).is_err(), "{name}");
        }
        assert_eq!(pair("wall = 30 s"), Ok(("wall".to_owned(), "30 s".to_owned())));
        assert_eq!(pair("memory=\"64 MiB\""), Ok(("memory".to_owned(), "64 MiB".to_owned())));
        for wrong in ["wall", "=3", "wall=", "wall=''"] {
            assert!(pair(wrong).unwrap_err().contains("`wall=30 s`"), "{wrong}");
        }
    }
}
