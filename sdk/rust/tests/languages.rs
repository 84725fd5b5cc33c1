//! Compares the SDKs of the three languages with the tables of `docs/write-plugins/languages.md`.
//! The functions come from the code of each SDK, so one that lacks a row, or a row that lacks a
//! language, fails here.

use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/write-plugins/languages.md");
const TYPES: &str = include_str!("../../js/types/index.d.ts");
const TESTING: &str = include_str!("../../js/types/testing.d.ts");

macro_rules! rust {
    ($path:literal) => {
        include_str!(concat!("../src/", $path))
    };
}
macro_rules! python {
    ($path:literal) => {
        include_str!(concat!("../../python/conclave_sdk/", $path))
    };
}

/// A part of the SDKs: its section of the page, and its functions in each language.
struct Part {
    section: &'static str,
    functions: [BTreeSet<String>; 3],
}

/// The code of each language in which the types, parameters and options of the page occur.
fn code() -> [String; 3] {
    let rust = [
        rust!("agent.rs"),
        rust!("background.rs"),
        rust!("config.rs"),
        rust!("files.rs"),
        rust!("model.rs"),
        rust!("outcome.rs"),
        rust!("turn.rs"),
        rust!("wire.rs"),
    ];
    let python = [
        python!("act.py"),
        python!("agents.py"),
        python!("background.py"),
        python!("delivery.py"),
        python!("fetch.py"),
        python!("history.py"),
        python!("log.py"),
        python!("model.py"),
        python!("programs.py"),
        python!("toolbox.py"),
        python!("tools.py"),
        python!("turn.py"),
    ];
    [rust.concat(), python.concat(), format!("{TYPES}{TESTING}")]
}

fn part(
    section: &'static str,
    rust: &[&str],
    python: &[(&str, &str)],
    js: (&str, &[&str]),
) -> Part {
    Part {
        section,
        functions: [
            rust.iter().flat_map(|code| rust_functions(code)).collect(),
            python.iter().flat_map(|(code, class)| python_functions(code, class)).collect(),
            js_functions(js.0, js.1),
        ],
    }
}

fn namespace(name: &str) -> &'static str {
    block(TYPES, &format!("export namespace {name} {{"), "\n}")
}

/// The parts of agents, tools and strategies.
fn kinds() -> Vec<Part> {
    vec![
        part(
            "Actions",
            &[rust!("act.rs")],
            &[(python!("act.py"), ""), (python!("act.py"), "Edit")],
            (namespace("act"), &["  function ", "    "]),
        ),
        part(
            "Turns",
            &[rust!("turn.rs"), rust!("wire.rs")],
            &[(python!("turn.py"), ""), (python!("turn.py"), "Turn"), (python!("codec.py"), "")],
            (block(TYPES, "--- agents", "\n// ---"), &["export function "]),
        ),
        part(
            "Outcomes",
            &[rust!("outcome.rs")],
            &[(python!("tools.py"), "Outcome")],
            (block(TYPES, "export class Outcome", "\n}"), &["  static "]),
        ),
        part(
            "Models",
            &[rust!("model.rs")],
            &[(python!("model.py"), "")],
            (namespace("model"), &["  function "]),
        ),
        part(
            "The view",
            &[rust!("agent.rs"), block(rust!("background.rs"), "\nimpl View", "\n}")],
            &[(python!("agents.py"), "View")],
            (block(TYPES, "export interface View", "\n}"), &["  readonly ", "  "]),
        ),
        part(
            "Delivery strategies",
            &[rust!("delivery.rs"), rust!("delivery/due.rs"), rust!("delivery/waited.rs")],
            &[(python!("delivery.py"), ""), (python!("delivery.py"), "Waited")],
            (namespace("delivery"), &["  function ", "    "]),
        ),
    ]
}

/// The parts of capabilities.
fn capabilities() -> Vec<Part> {
    vec![
        part(
            "Files",
            &[rust!("files.rs")],
            &[(python!("files.py"), "")],
            (namespace("files"), &["  function "]),
        ),
        part(
            "Requests",
            &[rust!("fetch.rs")],
            &[(python!("fetch.py"), ""), (python!("fetch.py"), "Response")],
            (
                block(TYPES, "export interface Response", "\nexport namespace kv"),
                &["export function ", "  readonly ", "  "],
            ),
        ),
        part(
            "Secrets",
            &[rust!("secrets.rs")],
            &[(python!("secrets.py"), "")],
            (namespace("secrets"), &["  function "]),
        ),
        part(
            "The key-value store",
            &[rust!("kv.rs")],
            &[(python!("kv.py"), "")],
            (namespace("kv"), &["  function "]),
        ),
        part(
            "Scratch",
            &[rust!("scratch.rs")],
            &[(python!("scratch.py"), "")],
            (namespace("scratch"), &["  function "]),
        ),
        part(
            "Blobs",
            &[rust!("blobs.rs")],
            &[(python!("blobs.py"), "")],
            (namespace("blobs"), &["  function "]),
        ),
        part(
            "Programs of the machine",
            &[rust!("exec.rs")],
            &[(python!("programs.py"), ""), (python!("programs.py"), "ProgramOutput")],
            (namespace("exec"), &["  function ", "    readonly "]),
        ),
        part(
            "Other tools",
            &[rust!("toolbox.rs")],
            &[(python!("toolbox.py"), "")],
            (namespace("toolbox"), &["  function "]),
        ),
        part(
            "Background tasks",
            &[rust!("background.rs")],
            &[(python!("background.py"), "")],
            (namespace("background"), &["  function "]),
        ),
        part(
            "The conversation",
            &[rust!("history.rs")],
            &[(python!("history.py"), "")],
            (namespace("history"), &["  function "]),
        ),
        part(
            "Settings, progress and log",
            &[rust!("config.rs"), rust!("progress.rs"), rust!("log.rs")],
            &[(python!("config.py"), ""), (python!("progress.py"), ""), (python!("log.py"), "")],
            (
                block(TYPES, "export namespace config {", "\nexport namespace call"),
                &["  function "],
            ),
        ),
    ]
}

/// Returns the text from `start` to the next `end`.
fn block<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("there is no {start:?}"));
    rest.split_once(end).map_or(rest, |(block, _)| block)
}

fn name_after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(word)?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then_some(&rest[..end])
}

/// Returns the public functions of a module: its own, those of the contract that it passes on, and
/// macros under their public names.
fn rust_functions(code: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or(code);
    let own = code.lines().filter_map(|line| name_after(line.trim_start(), "pub fn "));
    let passed_on = code.lines().filter_map(|line| line.strip_prefix("pub use host::"));
    let passed_on = passed_on.flat_map(|names| names.split(['{', '}', ',', ';', ' ']));
    let macros = code.split("__").skip(1).filter_map(|rest| rest.split_once(" as "));
    let macros = macros.filter_map(|(name, rest)| name_after(rest, "").filter(|it| it == &name));
    let names = own.chain(passed_on.filter(|name| !name.is_empty())).chain(macros);
    names.map(str::to_owned).collect()
}

/// Returns the public functions of a module, or the methods of one of its classes.
fn python_functions(code: &str, class: &str) -> BTreeSet<String> {
    let (code, indent) = match class {
        "" => (code, "def "),
        class => (block(code, &format!("\nclass {class}"), "\n\n\n"), "    def "),
    };
    let names = code.lines().filter_map(|line| name_after(line, indent));
    names.filter(|name| !name.starts_with('_')).map(str::to_owned).collect()
}

/// Returns the functions and properties that a block of types declares, on lines with one of these
/// beginnings.
fn js_functions(code: &str, beginnings: &[&str]) -> BTreeSet<String> {
    let declared = |line: &str| -> Option<String> {
        let (beginning, name) = beginnings
            .iter()
            .find_map(|beginning| Some((*beginning, name_after(line, beginning)?)))?;
        let is_function = line[beginning.len() + name.len()..].starts_with(['(', '<']);
        (is_function || beginning.ends_with("readonly ")).then(|| name.to_owned())
    };
    code.lines().filter_map(declared).filter(|name| name != "constructor").collect()
}

/// The rows of a section: the subject, and the cell of each language.
fn rows(section: &str) -> Vec<(String, [String; 3])> {
    let text = block(PAGE, &format!("\n## {section}\n"), "\n## ");
    let row = |line: &str| -> (String, [String; 3]) {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let [_, subject, rust, python, js, _]: [String; 6] =
            cells.try_into().unwrap_or_else(|cells| {
                panic!("{section}: a row has no cell for each language: {cells:?}")
            });
        (subject, [rust, python, js])
    };
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    lines.map(row).collect()
}

/// The functions of a cell, and the names that stand in parentheses or braces.
fn names_in(cell: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut functions, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut is_other = false;
    for word in cell.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
        let name = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
        if !name.is_empty() {
            if is_other { &mut others } else { &mut functions }.insert(name.to_owned());
        }
        match word.chars().last() {
            Some('(' | '{') => is_other = true,
            Some(')' | '}') => is_other = false,
            _ => {}
        }
    }
    (functions, others)
}

#[test]
fn each_language_has_each_row_and_each_function_has_one() {
    let code = code();
    for Part { section, functions } in kinds().into_iter().chain(capabilities()) {
        let rows = rows(section);
        assert!(!rows.is_empty(), "the page has no table {section}");
        let languages = ["Rust", "Python", "JavaScript"];
        for (at, (declared, code)) in functions.into_iter().zip(&code).enumerate() {
            let language = languages[at];
            assert!(!declared.is_empty(), "{language} has no functions in {section}");
            let mut documented = BTreeSet::new();
            for (subject, cells) in &rows {
                let (names, others) = names_in(&cells[at]);
                assert!(
                    !names.is_empty() || !others.is_empty(),
                    "{section}: {language} lacks the row “{subject}”"
                );
                for other in others {
                    let is_there = code
                        .split(|c: char| !c.is_alphanumeric() && c != '_')
                        .any(|word| word == other);
                    assert!(is_there, "{section}: {language} has no {other} for “{subject}”");
                }
                documented.extend(names);
            }
            let without_row: Vec<_> = declared.difference(&documented).collect();
            let without_code: Vec<_> = documented.difference(&declared).collect();
            assert!(without_row.is_empty(), "{section}: no row for {language}'s {without_row:?}");
            assert!(without_code.is_empty(), "{section}: {language} has no {without_code:?}");
        }
    }
}
