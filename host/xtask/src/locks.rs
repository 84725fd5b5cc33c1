//! Checks that no lock of the standard library is held over work that waits: files, processes,
//! databases, sleep. A lock that async code takes as well would stop its thread for as long. The
//! check reads text: it knows guards by the functions that return them, and work by the calls that
//! begin it, through functions of the host too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::failure::XtaskFailure;
use crate::place::{Checkout, files_below};

const CRATES: [&str; 4] = ["host/models/src", "host/runtime/src", "host/mcp/src", "host/cli/src"];
/// Calls that wait for the disk, another process or the time.
const WAITS: [&str; 29] = [
    "fs::read",
    "fs::write",
    "fs::remove",
    "fs::rename",
    "fs::create",
    "fs::metadata",
    "fs::canonicalize",
    "File::open",
    "File::create",
    "OpenOptions::new",
    ".sync_all(",
    ".sync_data(",
    ".read_dir(",
    ".entries()?",
    ".canonicalize(",
    ".remove_file(",
    ".open_with(",
    "open_ambient_dir(",
    ".write_all(",
    ".flush()",
    ".set_len(",
    ".execute(",
    ".query_row(",
    ".prepare_cached(",
    ".transaction(",
    "Connection::open",
    "Command::new",
    "thread::sleep(",
    ".await",
];
/// Names that types of the standard library have too, so that a call says nothing.
const COMMON: [&str; 15] = [
    "clone", "entries", "get", "insert", "len", "load", "next", "open", "pin", "read", "remove",
    "spawn", "take", "trim", "write",
];
/// The comment that allows it for one guard, with the reason behind it.
const ALLOWED: &str = "// Held while it waits: ";

/// A function of the host.
struct Function<'a> {
    name: &'a str,
    /// Everything before the body.
    signature: &'a str,
    body: &'a str,
    /// The number of its body's first line.
    line: usize,
}

/// Fails with the guards that are held over work that waits.
pub(crate) fn no_lock_is_held_over_io(place: &Checkout) -> Result<(), XtaskFailure> {
    let mut texts = Vec::new();
    for folder in CRATES {
        for file in files_below(&place.root.join(folder), ".rs") {
            if file.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests")) {
                continue;
            }
            let text = fs::read_to_string(&file)
                .map_err(|error| XtaskFailure::new(format!("{}: {error}", file.display())))?;
            texts.push((file, text));
        }
    }
    let line_of = |(file, line, call): (&Path, usize, String)| {
        format!("    {}:{line}: held over `{call}`", place.relative(file))
    };
    let wrong: Vec<String> = held_guards(&texts).into_iter().map(line_of).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\n{}\n\nThese guards of a lock are held over work that waits. Do the work before or after, or \
         keep what readers need under a lock of its own. If only threads that may wait take the lock, say \
         so above the guard: {ALLOWED}REASON",
        wrong.join("\n")
    )))
}

/// Returns file, line and call of each guard that is held over work that waits.
fn held_guards<P: AsRef<Path>>(texts: &[(P, String)]) -> Vec<(&Path, usize, String)> {
    let codes: Vec<(&Path, String)> =
        texts.iter().map(|(file, text)| (file.as_ref(), code_of(text))).collect();
    let functions: Vec<Vec<Function<'_>>> =
        codes.iter().map(|(_, code)| functions_of(code)).collect();
    let all: Vec<&Function<'_>> = functions.iter().flatten().collect();
    let waiting = waiting(&all);
    let mut returned: BTreeMap<&str, bool> = BTreeMap::new();
    for function in &all {
        *returned.entry(function.name).or_insert(true) &= returns_guard(function);
    }
    let known = returned.iter().filter(|(_, always)| **always).map(|(name, _)| *name);
    let known: BTreeSet<&str> = known.chain(["lock", "held"]).collect();
    let mut found = Vec::new();
    for ((file, _), functions) in codes.iter().zip(&functions) {
        for function in functions {
            // A method of this file may have the name of another elsewhere.
            let own = functions.iter().filter(|it| returns_guard(it)).map(|it| it.name);
            let guards: BTreeSet<&str> = own.chain(known.iter().copied()).collect();
            for (line, call) in held_in(function, &guards, &waiting) {
                found.push((*file, line, call));
            }
        }
    }
    found
}

fn returns_guard(function: &Function<'_>) -> bool {
    let returned = function.signature.rsplit("->").next().unwrap_or_default();
    function.signature.contains("->")
        && ["MutexGuard", "RwLockReadGuard", "RwLockWriteGuard"]
            .iter()
            .any(|guard| returned.trim_start().trim_start_matches("std::sync::").starts_with(guard))
}

/// Returns the code without tests, comments and texts; the comments that allow a guard stay. Lines
/// keep their numbers.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let mut stripped = String::new();
    for line in code.lines() {
        if line.trim_start().starts_with(ALLOWED) {
            stripped.push_str(line);
        } else {
            let (mut is_text, mut before) = (false, ' ');
            let line = line.replace("'\"'", "").replace("'{'", "").replace("'}'", "");
            for c in line.chars() {
                if !is_text && before == '/' && c == '/' {
                    stripped.pop();
                    break;
                }
                if c == '"' && before != '\\' {
                    is_text = !is_text;
                } else if !is_text {
                    stripped.push(c);
                }
                before = if before == '\\' && c == '\\' { ' ' } else { c };
            }
        }
        stripped.push('\n');
    }
    stripped
}

/// Returns the functions of a file.
fn functions_of(code: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if !code[..at].ends_with([' ', '\n', '(']) && at > 0 {
            continue;
        }
        let rest = &code[at + 3..];
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let name = name.unwrap_or_default();
        let end = rest.find(['{', ';']).unwrap_or(rest.len());
        if name.is_empty() || !rest[end..].starts_with('{') {
            continue;
        }
        let length = block(&rest[end..]);
        let line = code[..at + 3 + end].matches('\n').count() + 1;
        let (signature, body) = (&rest[..end], &rest[end..end + length]);
        found.push(Function { name, signature, body, line });
    }
    found
}

/// Returns the length of the block at the beginning of a text.
fn block(text: &str) -> usize {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// Returns the names of functions that wait, directly or through others. Only names that are
/// there once are followed: a call tells no more than a name.
fn waiting<'a>(functions: &[&Function<'a>]) -> BTreeSet<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    functions.iter().for_each(|it| *counts.entry(it.name).or_default() += 1);
    let mut waiting = BTreeSet::new();
    loop {
        let before = waiting.len();
        let is_followed = |it: &&&Function<'a>| counts[it.name] == 1 && !COMMON.contains(&it.name);
        for function in functions.iter().filter(is_followed) {
            // An async function is called without waiting; its await is what waits.
            if call_in(function.body, &waiting).is_some() {
                waiting.insert(function.name);
            }
        }
        if waiting.len() == before {
            return waiting;
        }
    }
}

/// Returns the first call in a text that waits.
fn call_in(text: &str, waiting: &BTreeSet<&str>) -> Option<String> {
    if let Some(call) = WAITS.iter().find(|call| text.contains(*call)) {
        return Some((*call).to_owned());
    }
    let called = |name: &&&str| {
        text.match_indices(&format!("{name}(")).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    waiting.iter().find(called).map(|name| format!("{name}()"))
}

/// Returns the lines of a function that bind a guard, with what waits in the rest of its block.
fn held_in(
    function: &Function<'_>,
    guards: &BTreeSet<&str>,
    waiting: &BTreeSet<&str>,
) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut above = "";
    let mut at = 0;
    for (number, line) in function.body.lines().enumerate() {
        let next = at + line.len() + 1;
        if let Some(name) = bound_guard(line, guards) {
            let rest = function.body.get(next..).unwrap_or_default();
            let scope = rest_of_block(rest);
            let scope = scope.split(&format!("drop({name})")).next().unwrap_or(scope);
            if !above.trim_start().starts_with(ALLOWED)
                && let Some(call) = call_in(scope, waiting)
            {
                found.push((function.line + number, call));
            }
        }
        above = line;
        at = next;
    }
    found
}

/// Returns the name of the guard that a line binds; `None` if it binds none.
fn bound_guard<'a>(line: &'a str, guards: &BTreeSet<&str>) -> Option<&'a str> {
    let rest = line.trim().strip_prefix("let ")?;
    let rest = rest.strip_prefix("mut ").unwrap_or(rest);
    let (name, value) = rest.split_once(" = ")?;
    // A tokio lock is awaited, and `?` leaves a value of its own.
    let value = value.strip_suffix(';')?;
    let value = value.strip_suffix(".unwrap_or_else(PoisonError::into_inner)").unwrap_or(value);
    let call = value.strip_suffix(')')?;
    let open = call.rfind('(')?;
    let function = call[..open].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && name != "_";
    (is_name && guards.contains(function)).then_some(name)
}

/// Returns the text up to the end of the block that it begins in.
fn rest_of_block(text: &str) -> &str {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return &text[..at],
            '}' => depth -= 1,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guards_in(text: &str) -> Vec<(usize, String)> {
        let texts = [("a.rs", text.to_owned())];
        held_guards(&texts).into_iter().map(|(_, line, call)| (line, call)).collect()
    }

    #[test]
    fn a_guard_over_work_that_waits_is_found_through_functions() {
        let text = r#"
impl Overlay {
    fn write(&self) -> io::Result<()> {
        let mut state = held(&self.state);
        if state.is_whole {
            state.digest = digest(&self.file)?;
        }
        Ok(())
    }
}
fn digest(file: &File) -> io::Result<Digest> { let all = every_piece(file)?; Ok(all) }
fn every_piece(file: &File) -> io::Result<Digest> { fs::read("{") }
"#;
        assert_eq!(guards_in(text), [(4, "digest()".to_owned())]);
    }

    #[test]
    fn guards_of_all_kinds_are_known() {
        for (guard, is_found) in [
            ("let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);", true),
            ("let state = self.state();", true),
            ("let _turn = self.state();", true),
            ("let _ = self.state();", false),
            ("let state = self.state().clone();", false),
            ("let state = self.other();", false),
            ("self.state().push(1);", false),
        ] {
            let text = format!(
                "fn state(&self) -> MutexGuard<'_, State> {{ self.0 }}\n\
                 fn f(&self) {{\n    {guard}\n    fs::read(self.path);\n}}\n"
            );
            assert_eq!(guards_in(&text).len(), usize::from(is_found), "{guard}");
        }
    }

    #[test]
    fn what_is_over_before_or_allowed_is_not_found() {
        for body in [
            "fs::read(path);\n    let state = held(&self.state);",
            "{\n        let state = held(&self.state);\n    }\n    fs::read(path);",
            "let state = held(&self.state);\n    drop(state);\n    fs::read(path);",
            "let state = held(&self.state);\n    // fs::read(path);",
            "let state = held(&self.state);\n    let text = \"fs::read(path)\";",
            "// Held while it waits: only blocking threads take it.\n    let state = held(&self.state);\n    fs::read(path);",
        ] {
            let text = format!("fn f(&self) {{\n    {body}\n}}\n");
            assert_eq!(guards_in(&text), [], "{body}");
        }
        let awaited =
            "async fn f(&self) {\n    let state = held(&self.state);\n    g().await;\n}\n";
        assert_eq!(guards_in(awaited), [(2, ".await".to_owned())]);
    }
}
