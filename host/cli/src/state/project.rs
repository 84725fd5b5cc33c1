//! The folder of a plugin's sources: its language, its files, and the component that is built of
//! them.

use std::path::{Path, PathBuf};

use conclave_core::permissions::manifest::Manifest;

use crate::args::Language;
use crate::program::error::CliError;
use crate::state::source::{self, TARGET};
use crate::ui::show::{show_path, unread};

/// The manifest of a plugin.
pub(crate) const MANIFEST: &str = "conclave-plugin.toml";
/// The folder of a component that is not built by cargo.
const BUILD: &str = "build";

/// The folder of a plugin's sources.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) language: Language,
    pub(crate) folder: PathBuf,
}

impl Project {
    /// Finds the language of a folder by its files.
    ///
    /// # Errors
    /// If it holds no plugin's sources.
    pub(crate) fn open(folder: &Path) -> Result<Self, CliError> {
        let language = Language::ALL.into_iter().find(|language| {
            folder.join(language.project_file()).is_file()
                // Other projects have such files too.
                && (*language == Language::Rust || folder.join(MANIFEST).is_file())
        });
        match language {
            Some(language) => Ok(Self { language, folder: folder.to_owned() }),
            None => Err(CliError::usage(format!(
                "the folder {} holds no plugin: neither a Cargo.toml, nor a {MANIFEST} beside a pyproject.toml or package.json",
                show_path(folder)
            ))
            .hint("name the folder of a plugin's sources, or a .wasm file; `conclave plugin new NAME` writes one")),
        }
    }

    /// Returns the path of the component that `conclave plugin build` makes. It need not be there.
    ///
    /// # Errors
    /// If the plugin has no name.
    pub(crate) fn component(&self) -> Result<PathBuf, CliError> {
        if self.language == Language::Rust {
            let file = source::component_file(&self.folder)?;
            return Ok(self.folder.join("target").join(TARGET).join("release").join(file));
        }
        Ok(self.folder.join(BUILD).join(format!("{}.wasm", self.manifest()?.name)))
    }

    /// Returns the main file of a plugin that is not in Rust.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn app(&self) -> Result<PathBuf, CliError> {
        let names = match self.language {
            Language::Python => &["app.py"][..],
            Language::Js => &["app.js", "app.ts"],
            Language::Rust => &["src/lib.rs"],
        };
        let found = names.iter().map(|name| self.folder.join(name)).find(|file| file.is_file());
        found.ok_or_else(|| {
            let what = format!("{} has no {}", show_path(&self.folder), names.join(" or "));
            CliError::usage(what).hint("it is the file that says what the plugin exports")
        })
    }

    /// Reads the plugin's manifest.
    ///
    /// # Errors
    /// If it is missing, or no manifest.
    pub(crate) fn manifest(&self) -> Result<Manifest, CliError> {
        let file = self.folder.join(MANIFEST);
        let text = std::fs::read_to_string(&file).map_err(|error| unread(&file, error))?;
        Manifest::from_toml(&show_path(&file), &text)
            .map_err(|error| CliError::usage(error.to_string()))
    }
}

/// Whether the path is where `conclave plugin build` puts a component that cargo does not build:
/// `FOLDER/build/x.wasm`.
pub(crate) fn is_build(file: &Path) -> bool {
    let parent = file.parent().filter(|parent| parent.ends_with(BUILD));
    parent
        .and_then(Path::parent)
        .is_some_and(|root| Project::open(root).is_ok_and(|it| it.language != Language::Rust))
}
