//! The config and the first message of `run` and `chat`. Both words are optional.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;

use super::CONFIG;
use crate::program::error::CliError;
use crate::program::shell::shell;

/// `[CONFIG] [TEXT]`.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The config [default: conclave.toml]. A first word that names no file and does not end in
    /// .toml is the message
    #[arg(value_name = "CONFIG")]
    first: Option<OsString>,
    /// The message to the entry task; for `run`, `-` reads stdin
    #[arg(value_name = "TEXT")]
    second: Option<String>,
}

impl TargetArgs {
    /// Returns the config and the text.
    ///
    /// # Errors
    /// If the first word looks like a config that does not exist.
    pub(crate) fn resolve(&self) -> Result<(PathBuf, Option<String>), CliError> {
        let Some(first) = &self.first else { return Ok((CONFIG.into(), None)) };
        if self.second.is_some() || is_config(first) {
            return Ok((first.into(), self.second.clone()));
        }
        match first.to_str() {
            Some(text) if !looks_like_a_path(text) => Ok((CONFIG.into(), Some(text.to_owned()))),
            _ => {
                let text = shell(&Path::new(first).display().to_string());
                let what = format!("the config {text} does not exist");
                let hint = format!(
                    "name an existing file; to send a text that looks like a path, name the config first: {CONFIG} {text}"
                );
                Err(CliError::usage(what).hint(hint))
            }
        }
    }
}

/// Whether the word is an existing file, or has a config's extension.
fn is_config(word: &OsStr) -> bool {
    let path = Path::new(word);
    let is_there = path.metadata().is_ok_and(|found| !found.is_dir());
    is_there || path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"))
}

/// Whether the text is one word with a separator, and so more likely a misspelt config than a
/// message.
fn looks_like_a_path(text: &str) -> bool {
    text.contains(std::path::is_separator) && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(words: &[&str]) -> Result<(PathBuf, Option<String>), CliError> {
        let second = words.get(1).map(|word| (*word).to_owned());
        TargetArgs { first: words.first().map(OsString::from), second }.resolve()
    }

    #[test]
    fn the_first_word_is_the_config_when_it_names_one_and_else_the_text() {
        let here = tempfile::NamedTempFile::new().unwrap();
        let here = here.path().to_str().unwrap().to_owned();
        let usual = || PathBuf::from(CONFIG);
        let cases: [(&[&str], PathBuf, Option<&str>); 8] = [
            (&[], usual(), None),
            (&["What is a grant?"], usual(), Some("What is a grant?")),
            (&["hello"], usual(), Some("hello")),
            (&["-"], usual(), Some("-")),
            (&["/invoices/good.csv 31"], usual(), Some("/invoices/good.csv 31")),
            (&["missing.toml"], "missing.toml".into(), None),
            (&[&here], here.clone().into(), None),
            (&["missing", "hello"], "missing".into(), Some("hello")),
        ];
        for (words, config, text) in cases {
            assert_eq!(resolved(words).unwrap(), (config, text.map(str::to_owned)), "{words:?}");
        }
    }

    #[test]
    fn a_misspelt_config_is_not_sent_as_a_message() {
        let error = resolved(&["configs/desk"]).unwrap_err();
        assert_eq!(error.code(), crate::program::exit::USAGE);
        assert!(
            error.to_string().contains("the config configs/desk does not exist")
                && error.to_string().contains("help:"),
            "{error}"
        );
    }
}
