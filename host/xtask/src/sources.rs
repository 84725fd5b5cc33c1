//! The Rust and WIT files of the repository, read once for all checks on their text.

use crate::failure::XtaskFailure;
use crate::place::{Checkout, files_below};
use crate::rust_text::{Token, product_of, tokens};

/// The folders with sources, each with the ending of its files.
const FOLDERS: [(&str, &str); 6] = [
    ("docs/examples/plugins", ".rs"),
    ("host", ".rs"),
    ("plugins", ".rs"),
    ("sdk", ".rs"),
    ("tests", ".rs"),
    ("wit", ".wit"),
];

/// The paths of all sources from the root of the repository, with their texts.
pub(crate) fn read(place: &Checkout) -> Result<Vec<(String, String)>, XtaskFailure> {
    let mut texts = Vec::new();
    for (folder, ending) in FOLDERS {
        for file in files_below(&place.root.join(folder), ending) {
            let path = place.relative(&file);
            let text = place.read(&path)?;
            texts.push((path, text));
        }
    }
    Ok(texts)
}

/// The sources of the repository.
pub(crate) struct Sources<'a> {
    pub(crate) place: &'a Checkout,
    files: Vec<SourceFile<'a>>,
}

/// A file with its text.
pub(crate) struct SourceFile<'a> {
    /// The path from the root of the repository, such as `host/core/src/room.rs`.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    pub(crate) tokens: Vec<Token<'a>>,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(place: &'a Checkout, texts: &'a [(String, String)]) -> Self {
        let files = texts.iter().map(|(path, text)| SourceFile::new(path, text)).collect();
        Self { place, files }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &SourceFile<'a>> {
        self.files.iter()
    }

    /// The files below these folders.
    pub(crate) fn below(&self, folders: &[&str]) -> impl Iterator<Item = &SourceFile<'a>> {
        self.files.iter().filter(move |file| folders.iter().any(|folder| file.is_below(folder)))
    }

    /// The files below these folders that a crate builds when it is not tested.
    pub(crate) fn product(&self, folders: &[&str]) -> impl Iterator<Item = &SourceFile<'a>> {
        self.below(folders).filter(|file| !file.is_for_tests())
    }
}

impl<'a> SourceFile<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        Self { path, text, tokens: tokens(text) }
    }

    pub(crate) fn is_below(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }

    fn is_for_tests(&self) -> bool {
        let is_folder = |part| ["tests", "benches", "target"].contains(&part);
        self.path.split('/').any(is_folder) || self.path.ends_with("tests.rs")
    }

    /// The tokens without those that are compiled for tests only.
    pub(crate) fn product_tokens(&self) -> Vec<Token<'a>> {
        product_of(&self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_product() {
        let is_for_tests = |path: &str| SourceFile::new(path, "").is_for_tests();
        assert!(!is_for_tests("host/core/src/room/frame.rs"));
        assert!(is_for_tests("host/core/src/room/frame/tests.rs"));
        assert!(is_for_tests("host/core/src/room/frame_tests.rs"));
        assert!(is_for_tests("host/core/tests/room/pausing.rs"));
    }
}
