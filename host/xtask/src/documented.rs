//! Checks the documentation against xtask: every `cargo xtask …` on a page is a command.

use crate::USAGE;
use crate::place::files_below;
use std::path::Path;

/// Returns the commands that the usage text lists.
fn commands() -> Vec<&'static str> {
    let listed = USAGE.lines().filter_map(|line| line.strip_prefix("  "));
    listed
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_lowercase()))
        .filter_map(|line| line.split(' ').next())
        .collect()
}

#[test]
fn pages_show_commands_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = files_below(&root.join("docs"), ".md");
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
            .map(|page| root.join(page)),
    );
    let known = commands();
    let mut shown = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page is text");
        for rest in text.split("cargo xtask ").skip(1) {
            let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            if !word.is_empty() {
                shown += 1;
                assert!(
                    known.contains(&word.as_str()),
                    "{}: `cargo xtask {word}` is no command",
                    page.display()
                );
            }
        }
    }
    assert!(shown > 20 && known.len() > 8, "{shown}, {known:?}");
}
