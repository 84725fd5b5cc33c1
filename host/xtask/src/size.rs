//! Checks that the product grows only where somebody says for what: the tokens of Rust of each
//! crate, without comments and tests, beside the figures of `tests/counts/tokens.txt`.
//!
//! A row is a crate's figure. Below it stand the raises, each with its reason, as in
//! `host/core +1_200 a gate at the results of tools`. A figure that fell is lowered, and the raises
//! that it repaid go with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::failure::XtaskFailure;
use crate::sources::Sources;

const RECORDED: &str = "tests/counts/tokens.txt";

/// The folders whose subfolders are crates, and those that count as one.
const ROOTS: [&str; 2] = ["host", "sdk"];
const WHOLE: [&str; 2] = ["docs/examples/plugins", "plugins"];

/// How far a crate may be from its figure in either direction. A correction of a line needs no
/// reason; because the figure stands still, many corrections do.
const SLACK: usize = 300;

/// The shortest reason for a raise, in words.
const REASON_WORDS: usize = 3;

/// The tokens of each crate.
type Sizes = BTreeMap<String, usize>;

/// Fails if a crate is larger or smaller than recorded, or a raise has no reason.
pub(crate) fn growth_has_a_reason(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut sizes = Sizes::new();
    for root in ROOTS.into_iter().chain(WHOLE) {
        for file in sources.product(&[root]) {
            *sizes.entry(crate_of(root, file.path)).or_default() += file.product_tokens().len();
        }
    }
    let (recorded, mut problems) = recorded(&sources.place.read(RECORDED)?);
    problems += &differences(&sizes, &recorded);
    XtaskFailure::unless_empty(
        &problems,
        format_args!(
            "These are tokens of Rust without comments and tests. Look first for what the change makes \
             superfluous. A crate that grew gets a line `CRATE +TOKENS what for` in {RECORDED}, at least \
             {REASON_WORDS} words; one that shrank gets its figure lowered."
        ),
    )
}

/// The row that a file of a folder counts for, such as `host/core`.
fn crate_of(root: &str, path: &str) -> String {
    let end = path[root.len() + 1..].find('/').map(|at| root.len() + 1 + at);
    match end {
        Some(end) if !WHOLE.contains(&root) => path[..end].to_owned(),
        _ => root.to_owned(),
    }
}

/// The figures with their raises, and what is wrong with the rows.
fn recorded(text: &str) -> (Sizes, String) {
    let mut figures = Sizes::new();
    let mut problems = String::new();
    for row in text.lines().filter(|row| !row.starts_with('#') && !row.trim().is_empty()) {
        let mut words = row.split_whitespace();
        let (name, figure) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let digits = figure.trim_start_matches('+').replace('_', "");
        let Ok(tokens) = digits.parse::<usize>() else {
            let _ = writeln!(problems, "    `{row}` has no number");
            continue;
        };
        let is_known = figures.contains_key(name);
        *figures.entry(name.to_owned()).or_default() += tokens;
        if figure.starts_with('+') {
            if !is_known {
                let _ = writeln!(problems, "    `{row}` raises nothing: no figure stands above it");
            }
            if words.count() < REASON_WORDS {
                let _ = writeln!(problems, "    `{row}` does not say what for");
            }
        } else if is_known {
            let _ = writeln!(problems, "    `{row}` is a second figure of {name}");
        }
    }
    (figures, problems)
}

fn differences(sizes: &Sizes, recorded: &Sizes) -> String {
    let mut text = String::new();
    for (name, size) in sizes {
        let figure = recorded.get(name).copied();
        if figure.is_none_or(|figure| *size > figure + SLACK) {
            let figure = figure.unwrap_or_default();
            let more = size - figure;
            let _ = writeln!(text, "    {name} has {size}, which is {more} more than its {figure}");
        }
    }
    for (name, figure) in recorded {
        let size = sizes.get(name).copied().unwrap_or_default();
        if size + SLACK < *figure || size == 0 {
            let _ = writeln!(text, "    {name} has only {size}, and {figure} stand there");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(sizes: &[(&str, usize)], text: &str) -> String {
        let sizes = sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        let (figures, problems) = recorded(text);
        problems + &differences(&sizes, &figures)
    }

    #[test]
    fn a_crate_grows_only_with_a_reason() {
        let text = "# Tokens.\nhost/core 10_000\n";
        assert_eq!(problems(&[("host/core", 10_000 + SLACK)], text), "");
        assert!(
            problems(&[("host/core", 10_001 + SLACK)], text).contains("301 more than its 10000")
        );
        let raised = format!("{text}host/core +1_000 a gate at results\n");
        assert_eq!(problems(&[("host/core", 11_000 + SLACK)], &raised), "");
        let bare = format!("{text}host/core +1_000 a gate\n");
        assert!(problems(&[("host/core", 11_000)], &bare).contains("does not say what for"));
    }

    #[test]
    fn a_crate_that_shrank_has_its_figure_lowered() {
        let text = "host/core 10_000\n";
        assert_eq!(problems(&[("host/core", 10_000 - SLACK)], text), "");
        assert!(problems(&[("host/core", 9_999 - SLACK)], text).contains("has only 9699"));
        assert!(problems(&[], text).contains("has only 0"));
    }

    #[test]
    fn each_crate_has_one_figure() {
        assert!(problems(&[("host/new", 400)], "").contains("host/new has 400"));
        let twice = "host/core 1_000\nhost/core 1_000\n";
        assert!(problems(&[("host/core", 2_000)], twice).contains("second figure"));
        let raise = "host/core +1_000 a gate at results\n";
        assert!(problems(&[("host/core", 1_000)], raise).contains("raises nothing"));
        assert!(problems(&[], "host/core many\n").contains("has no number"));
    }

    #[test]
    fn plugins_count_together() {
        assert_eq!(crate_of("host", "host/core/src/room.rs"), "host/core");
        assert_eq!(crate_of("plugins", "plugins/tools/search/src/lib.rs"), "plugins");
    }
}
