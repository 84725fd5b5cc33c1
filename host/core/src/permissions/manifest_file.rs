//! `conclave-plugin.toml`: the manifest as an author writes it. The Rust SDK reads it at compile
//! time; for other toolchains the host adds it to the finished component. Both call one reader.

use crate::permissions::manifest::{Manifest, ManifestError};

/// The error for a file that is not a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestFileError {
    /// All problems of the file, one per line: `file:line:column: message`.
    #[error("{0}")]
    Problems(String),
    /// The host would refuse it at load.
    #[error("{file}: {error}")]
    Content {
        /// The file's name as the caller wrote it.
        file: String,
        /// The reason.
        error: ManifestError,
    },
}

impl Manifest {
    /// Parses a `conclave-plugin.toml`; `file` is its name for the problems.
    ///
    /// # Errors
    /// `Problems` if it is no TOML, or not of the manifest's form; `Content` if the host would refuse
    /// it at load.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, ManifestFileError> {
        let json = conclave_manifest::to_json(file, text).map_err(ManifestFileError::Problems)?;
        // Check here what the host checks at load, so that the author gets the error.
        Self::parse(json.as_bytes())
            .map_err(|error| ManifestFileError::Content { file: file.to_owned(), error })
    }
}

#[cfg(test)]
mod tests {
    use crate::permissions::manifest::Manifest;
    use crate::types::capability::Capability;

    const HEAD: &str = "[plugin]\nname = \"shout\"\nversion = \"0.1.0\"\n";

    #[test]
    fn a_file_becomes_a_manifest() {
        let text = format!("{HEAD}[asks.log]\nwhy = \"Says who called.\"\n");
        let manifest = Manifest::from_toml("x.toml", &text).expect("it is right");
        assert_eq!((manifest.name.as_str(), manifest.contract.as_str()), ("shout", "0.1"));
        assert_eq!(
            manifest.ask(Capability::Log).map(|ask| ask.why.as_str()),
            Some("Says who called.")
        );
    }

    #[test]
    fn all_mistakes_are_reported_with_their_places() {
        let wrong = |text: &str| {
            Manifest::from_toml("a/x.toml", text).expect_err("it is wrong").to_string()
        };
        let text = format!("{HEAD}colour = 1\n[asks.flying]\n[asks.secrets.token]\n");
        let found = wrong(&text);
        let positions: Vec<&str> = found
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(place, _)| place)
            .collect();
        let expected = ["a/x.toml:4:1", "a/x.toml:5:1", "a/x.toml:5:7", "a/x.toml:6:1"];
        assert_eq!(positions, expected, "{found}");
        let name = "x".repeat(65);
        assert!(
            wrong(&HEAD.replace("shout", &name)).starts_with("a/x.toml: the manifest's `name`")
        );
    }

    #[test]
    fn the_reader_knows_the_capabilities_of_the_host() {
        assert_eq!(conclave_manifest::CAPABILITIES, Capability::ALL.map(Capability::as_str));
    }
}
