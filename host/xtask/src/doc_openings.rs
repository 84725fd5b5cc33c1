//! Checks that documentation begins with the thing that it describes: few doc comments of a crate
//! begin with `Returns`, which hides the noun of a getter behind a verb that all functions share.

use crate::failure::XtaskFailure;
use crate::sources::Sources;

/// The folders that are checked, each by itself.
const FOLDERS: [&str; 10] = [
    "host/core",
    "host/runtime",
    "host/cli",
    "host/models",
    "host/mcp",
    "host/server",
    "host/trajectory",
    "sdk/rust",
    "plugins",
    "docs/examples/plugins",
];

/// The largest share of doc comments that begin with `Returns`. It is not zero: beside an effect,
/// as in "Returns the text, and removes it", the verb is needed.
const MAX_PERCENT: usize = 12;

/// The doc comments of some files, and those among them that begin with `Returns`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Openings {
    comments: usize,
    returns: usize,
}

impl Openings {
    fn count(&mut self, text: &str) {
        let mut is_inside = false;
        for line in text.lines() {
            let doc = line.trim_start().strip_prefix("///");
            if let Some(words) = doc.filter(|_| !is_inside) {
                self.comments += 1;
                self.returns += usize::from(words.trim_start().starts_with("Returns "));
            }
            is_inside = doc.is_some();
        }
    }

    fn is_too_many(&self) -> bool {
        self.returns * 100 > self.comments * MAX_PERCENT
    }
}

/// Fails with the folders in which too many doc comments begin with `Returns`.
pub(crate) fn docs_begin_with_the_thing(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut wrong = String::new();
    for folder in FOLDERS {
        let mut openings = Openings::default();
        sources.product(&[folder]).for_each(|file| openings.count(file.text));
        if openings.is_too_many() {
            let Openings { comments, returns } = openings;
            wrong += &format!("    {folder}: {returns} of {comments}\n");
        }
    }
    XtaskFailure::unless_empty(
        &wrong,
        format_args!(
            "So many doc comments begin with `Returns`; at most {MAX_PERCENT} % of a crate's may. \
             Name the thing instead: \"The number of …\", \"Whether …\", \"`None` if …\"."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Openings {
        let mut openings = Openings::default();
        openings.count(text);
        openings
    }

    #[test]
    fn only_the_first_line_of_a_comment_counts() {
        let text = "/// Returns the name.\nfn name() {}\n\n    /// The size.\n    ///\n    \
                    /// Returns 0 for a folder.\n    fn size() {}\n// Returns nothing.\n";
        assert_eq!(counted(text), Openings { comments: 2, returns: 1 });
    }

    #[test]
    fn a_share_above_the_limit_is_too_many() {
        assert!(!Openings { comments: 100, returns: MAX_PERCENT }.is_too_many());
        assert!(Openings { comments: 100, returns: MAX_PERCENT + 1 }.is_too_many());
        assert!(!Openings::default().is_too_many());
    }
}
