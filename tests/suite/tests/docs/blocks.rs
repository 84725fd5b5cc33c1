//! The code blocks of the documentation pages: their positions, fence labels and texts.

use std::path::PathBuf;

use super::{pages, read, root};

/// One fenced block of a page.
pub(crate) struct Block {
    /// The page's path within the repository, such as `docs/use/permissions.md`.
    pub(crate) page: String,
    /// The number of the line that opens the fence, from 1.
    pub(crate) line: usize,
    /// The words behind the opening fence, such as `toml Cargo.toml`.
    pub(crate) info: String,
    /// The lines between the fences.
    pub(crate) text: String,
}

impl Block {
    /// Returns `docs/use/permissions.md:7`, as editors understand it.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// Returns the words behind the language: `Cargo.toml` of `toml Cargo.toml`.
    pub(crate) fn label(&self) -> &str {
        self.info.split_once(' ').map_or("", |(_, label)| label.trim())
    }
}

/// Returns every block of this language in all pages, in the order of paths and lines.
pub(crate) fn blocks(language: &str) -> Vec<Block> {
    let mut all: Vec<PathBuf> = pages();
    all.sort();
    all.iter()
        .flat_map(|page| of_page(page))
        .filter(|block| block.info.split(' ').next() == Some(language))
        .collect()
}

fn of_page(path: &std::path::Path) -> Vec<Block> {
    let page =
        path.strip_prefix(root()).expect("pages lie in the repository").display().to_string();
    let text = read(path);
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (line, number) in text.lines().zip(1..) {
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(info) => {
                is_open = true;
                let info = info.trim().to_owned();
                found.push(Block { page: page.clone(), line: number, info, text: String::new() });
            }
            None if is_open => {
                let block = found.last_mut().expect("an open block was begun");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!is_open, "{page}: the last code block is not closed");
    found
}
