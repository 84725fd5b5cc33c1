//! Checks the names of functions, fields and variables. A participle alone (`told`, `kept`, `left`)
//! says what happened to a thing and not what it is: a field or a variable is named by a noun, a
//! function by a verb, and a predicate (`is_…`, `has_…`) changes nothing.
//!
//! The names that are left are counted for each crate in `tests/counts/identifiers.txt`. A count may
//! only fall.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::failure::XtaskFailure;
use crate::figures::{self, Figures};
use crate::rust_text::Token;
use crate::sources::Sources;

const RECORDED: &str = "tests/counts/identifiers.txt";

/// The folders whose subfolders are crates.
const ROOTS: [&str; 2] = ["host", "sdk"];

/// Names that say nothing by themselves. As a part of a name, as in `stored_by`, they do.
const VAGUE: [&str; 34] = [
    "again",
    "alone",
    "aside",
    "asked",
    "begun",
    "claimed",
    "done",
    "elsewhere",
    "everything",
    "found",
    "fresh",
    "given",
    "gone",
    "grantee",
    "heard",
    "held",
    "kept",
    "left",
    "lost",
    "named",
    "nobody",
    "noted",
    "outside",
    "past",
    "places",
    "said",
    "shown",
    "somebody",
    "taken",
    "teller",
    "told",
    "wanted",
    "whole",
    "worded",
];

/// Vague names that a variable may have, as in `if let Some(found)`.
const PLAIN_VARIABLES: [&str; 1] = ["found"];

/// Functions that are named by a trait of another crate.
const FOREIGN: [&str; 1] = ["is_same_object"];

/// The kinds of names, as the rows of the recorded file spell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Field,
    Function,
    /// A function `is_…` or `has_…` with `&mut self`.
    MutatingPredicate,
    /// What `let` and `for` bind, and the parameters of functions and closures. The patterns of
    /// `match` are not looked at.
    Variable,
}

impl Kind {
    fn spelled(self) -> &'static str {
        match self {
            Self::Field => "fields",
            Self::Function => "functions",
            Self::MutatingPredicate => "mutating-predicates",
            Self::Variable => "variables",
        }
    }
}

/// A vague name in a file.
#[derive(Debug, PartialEq, Eq)]
struct VagueName<'a> {
    kind: Kind,
    name: &'a str,
    /// The line, from 1.
    line: usize,
}

/// Fails if a crate has another number of vague names than recorded.
pub(crate) fn names_say_what_things_are(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut counts = Figures::new();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources.below(&ROOTS) {
        let Some(package) = package_of(file.path) else { continue };
        for VagueName { kind, name, line } in vague_names(&file.tokens) {
            let row = format!("{package}/{}", kind.spelled());
            *counts.entry(row.clone()).or_default() += 1;
            lines.entry(row).or_default().push(format!("    {}:{line}: `{name}`", file.path));
        }
    }
    let recorded = figures::parsed(&sources.place.read(RECORDED)?);
    XtaskFailure::unless_empty(
        &differences(&counts, &recorded, &lines),
        format_args!(
            "Name a field or a variable by a noun, a function by a verb, and let no `is_…` or `has_…` take \
             `&mut self`. Where names became fewer, lower the counts of {RECORDED}."
        ),
    )
}

/// The folder of the crate that a file belongs to, such as `host/core`; `None` outside of any.
fn package_of(path: &str) -> Option<&str> {
    let (at, _) = path.match_indices('/').nth(1)?;
    Some(&path[..at])
}

fn differences(
    counts: &Figures,
    recorded: &Figures,
    lines: &BTreeMap<String, Vec<String>>,
) -> String {
    let mut text = String::new();
    for (row, count) in counts {
        let before = recorded.get(row).copied().unwrap_or_default();
        if *count > before {
            let list = lines.get(row).map(|lines| lines.join("\n")).unwrap_or_default();
            let _ = writeln!(text, "{list}\n    {row} are {count}, and {before} are recorded");
        }
    }
    for (row, before) in recorded {
        let count = counts.get(row).copied().unwrap_or_default();
        if count < *before {
            let _ = writeln!(text, "    {row} are only {count}, and {before} are recorded");
        }
    }
    text
}

/// The vague names that tokens define, in their order.
fn vague_names<'a>(tokens: &[Token<'a>]) -> Vec<VagueName<'a>> {
    let mut names = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        match token.text {
            "fn" => function(rest, &mut names),
            "struct" | "enum" => fields(token.text, rest, &mut names),
            "let" => pattern(rest, &["=", ";", ":"], &mut names),
            "for" => pattern(rest, &["in", "{", ">"], &mut names),
            "|" if at > 0 && begins_closure(&tokens[at - 1]) => {
                pattern(rest, &["|"], &mut names);
            }
            _ => {}
        }
    }
    names
}

/// Whether a `|` behind this token begins a closure's parameters, and is no operator.
fn begins_closure(before: &Token<'_>) -> bool {
    matches!(before.text, "(" | "," | "=" | "move" | "{" | ";" | "=>" | "return" | "&" | "else")
}

fn add<'a>(kind: Kind, token: &Token<'a>, names: &mut Vec<VagueName<'a>>) {
    let name = token.text.trim_start_matches('_');
    let is_plain = kind == Kind::Variable && PLAIN_VARIABLES.contains(&name);
    if VAGUE.contains(&name) && !is_plain {
        names.push(VagueName { kind, name: token.text, line: token.line });
    }
}

/// Adds a function's name, and the names of its parameters.
fn function<'a>(rest: &[Token<'a>], names: &mut Vec<VagueName<'a>>) {
    let Some(name) = rest.first().filter(|name| name.is_word()) else { return };
    add(Kind::Function, name, names);
    let parameters = parameters_of(&rest[1..]);
    if is_predicate(name.text) && takes_mut_self(parameters) {
        names.push(VagueName { kind: Kind::MutatingPredicate, name: name.text, line: name.line });
    }
    let mut depth = 0_usize;
    for (at, token) in parameters.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" if depth == 0 => break,
            ")" => depth -= 1,
            _ if depth == 0 && is_before(&parameters[at..], ":") => {
                add(Kind::Variable, token, names);
            }
            _ => {}
        }
    }
}

/// What follows the `(` behind a function's name and its generic parameters.
fn parameters_of<'t, 'a>(rest: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0_usize;
    for (at, token) in rest.iter().enumerate() {
        match token.text {
            "(" if depth == 0 => return &rest[at + 1..],
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    &[]
}

fn is_predicate(name: &str) -> bool {
    (name.starts_with("is_") || name.starts_with("has_")) && !FOREIGN.contains(&name)
}

/// Whether parameters begin with `&mut self`, with or without a lifetime.
fn takes_mut_self(parameters: &[Token<'_>]) -> bool {
    let words: Vec<&str> = parameters.iter().take(4).map(|token| token.text).collect();
    match words[..] {
        ["&", "mut", "self", ..] => true,
        ["&", lifetime, "mut", "self", ..] => lifetime.starts_with('\''),
        _ => false,
    }
}

/// Whether a mark follows the first token.
fn is_before(tokens: &[Token<'_>], mark: &str) -> bool {
    tokens.get(1).is_some_and(|next| next.text == mark)
}

/// Adds the fields of a struct, or those of an enum's variants.
fn fields<'a>(item: &str, rest: &[Token<'a>], names: &mut Vec<VagueName<'a>>) {
    // A struct without named fields ends with `;`.
    let start = rest.iter().position(|token| matches!(token.text, "{" | ";" | "("));
    let Some(start) = start.filter(|start| rest[*start].text == "{") else { return };
    let fields_at = if item == "struct" { 1 } else { 2 };
    let mut depth = 0;
    for (at, token) in rest.iter().enumerate().skip(start) {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ if depth == fields_at && is_before(&rest[at..], ":") => {
                add(Kind::Field, token, names);
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

/// Adds the variables of a pattern, up to one of these marks outside of its brackets.
fn pattern<'a>(rest: &[Token<'a>], ends: &[&str], names: &mut Vec<VagueName<'a>>) {
    let mut depth = 0_usize;
    // A closure's parameter may have a type, which ends with the parameter.
    let mut is_type = false;
    for (at, token) in rest.iter().enumerate() {
        if depth == 0 && ends.contains(&token.text) {
            return;
        }
        match token.text {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" if depth == 0 => return,
            ")" | "}" | "]" => depth -= 1,
            ":" if depth == 0 => is_type = true,
            "," if depth == 0 => is_type = false,
            _ if is_type => {}
            // Inside of braces a name before `:` is a field's.
            _ if depth > 0 && is_before(&rest[at..], ":") => {}
            _ if is_before(&rest[at..], "(") || is_before(&rest[at..], "::") => {}
            _ => add(Kind::Variable, token, names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_text::tokens;

    fn names_in(text: &str) -> Vec<(Kind, &str, usize)> {
        let names = vague_names(&tokens(text));
        names.iter().map(|name| (name.kind, name.name, name.line)).collect()
    }

    #[test]
    fn functions_fields_and_variables_are_found() {
        let text = "pub(crate) fn told<F: Fn(u64)>(&self, kept: F, at: u64) {}\n\
                    struct Queue<'a> {\n    pub(crate) left: Option<&'a str>,\n    at: Wait::Kept,\n}\n\
                    enum End {\n    Done,\n    Failed { said: String, at: u64 },\n}\n\
                    fn run() {\n    let mut taken = 0;\n    let (shown, at) = pair;\n    \
                    for asked in list {}\n    map(|_, heard: &Lost| heard.len());\n}\n";
        assert_eq!(
            names_in(text),
            [
                (Kind::Function, "told", 1),
                (Kind::Variable, "kept", 1),
                (Kind::Field, "left", 3),
                (Kind::Field, "said", 8),
                (Kind::Variable, "taken", 11),
                (Kind::Variable, "shown", 12),
                (Kind::Variable, "asked", 13),
                (Kind::Variable, "heard", 14),
            ]
        );
    }

    #[test]
    fn uses_texts_comments_and_longer_names_are_not_found() {
        let text = "// fn told() {}\n/* let kept = 1; */\nfn run(is_kept: bool) {\n    \
                    let text = \"let told = \\\" let kept\"; let mark = '\"'; let told_once = told(kept);\n    \
                    let raw = r#\"let left = \"1\"\"#; let Frame { told: reported, .. } = frame;\n    \
                    let found = state.kept | left | told;\n    Frame { told: 1 };\n}\n\
                    impl<'told> From<Kept> for Left<'told> {}\nstruct Done(u64);\nstruct Kept;\n";
        assert_eq!(names_in(text), []);
    }

    #[test]
    fn a_text_of_several_lines_does_not_move_what_follows() {
        assert_eq!(names_in("let a = \"x\ny\";\nlet told = 1;"), [(Kind::Variable, "told", 3)]);
    }

    #[test]
    fn a_predicate_changes_nothing() {
        let text = "fn is_over(&mut self) {}\nfn has_room<F: Fn(u64)>(&'a mut self, at: F) {}\n\
                    fn is_open(&self, other: &mut Frame) {}\nfn is_same_object(&mut self) {}\n\
                    fn close(&mut self) {}\n";
        assert_eq!(
            names_in(text),
            [(Kind::MutatingPredicate, "is_over", 1), (Kind::MutatingPredicate, "has_room", 2)]
        );
    }

    #[test]
    fn a_count_may_neither_grow_nor_stay_above_what_is_there() {
        let counts = |pairs: &[(&str, u64)]| -> Figures {
            pairs.iter().map(|(row, count)| ((*row).to_owned(), *count)).collect()
        };
        let now = counts(&[("host/core/fields", 2), ("host/mcp/fields", 1)]);
        let lines = BTreeMap::from([("host/mcp/fields".to_owned(), vec!["    a.rs:1".to_owned()])]);
        assert_eq!(differences(&now, &now, &lines), "");
        let text = figures::parsed("# Why.\nhost/core/fields   3\n");
        assert_eq!(
            differences(&now, &text, &lines),
            "    a.rs:1\n    host/mcp/fields are 1, and 0 are recorded\n    host/core/fields are only 2, and 3 are recorded\n"
        );
    }

    #[test]
    fn files_belong_to_the_crate_of_their_folder() {
        assert_eq!(package_of("host/core/src/room/frame.rs"), Some("host/core"));
        assert_eq!(package_of("sdk/rust/tests/a.rs"), Some("sdk/rust"));
        assert_eq!(package_of("host/a.rs"), None);
    }
}
