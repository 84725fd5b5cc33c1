//! Checks the documentation against xtask: every `cargo xtask …` on a page is a command.

mod schema_page;

use std::path::Path;

use crate::USAGE;
use crate::place::{Checkout, files_below};
use crate::times::Recorded;

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
    let mut mentions = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page is text");
        for rest in text.split("cargo xtask ").skip(1) {
            let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            if !word.is_empty() {
                mentions += 1;
                assert!(
                    known.contains(&word.as_str()),
                    "{}: `cargo xtask {word}` is no command",
                    page.display()
                );
            }
        }
    }
    assert!(mentions > 20 && known.len() > 8, "{mentions}, {known:?}");
}

/// Returns the number in `about N minutes` behind a command.
fn minutes_of(readme: &str, command: &str) -> Option<u64> {
    let line = readme.lines().find(|line| line.starts_with(&format!("$ {command} ")))?;
    let (_, rest) = line.split_once("about ")?;
    rest.split_once(" minutes")?.0.parse().ok()
}

#[test]
fn the_readme_tells_the_times_that_were_measured() {
    let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
    let readme = place.read("README.md").unwrap_or_else(|failure| panic!("{}", failure.text));
    let recorded = Recorded::read(&place);
    let measured = |command: &str| {
        let estimate = recorded.estimate(command)?;
        Some(estimate.wall.as_secs().div_ceil(60))
    };
    for command in ["demo", "install"] {
        let documented_minutes = minutes_of(&readme, &format!("cargo xtask {command}"));
        // What was not measured yet has no figure to compare with.
        if let Some(minutes) = measured(command) {
            assert_eq!(documented_minutes, Some(minutes), "README.md, cargo xtask {command}");
        }
    }
    assert_eq!(
        minutes_of(
            "$ cargo xtask demo   # first time about 4 minutes on two\n",
            "cargo xtask demo"
        ),
        Some(4)
    );
}
