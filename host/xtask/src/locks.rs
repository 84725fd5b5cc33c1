//! Checks that no lock of the standard library is held over work that waits: files, processes,
//! databases, sleep. A lock that async code takes as well would stop its thread for as long. The
//! check reads tokens: it knows guards by the functions that return them, and work by the calls
//! that begin it, through functions of the host too.

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::XtaskFailure;
use crate::rust_text::{Token, item_length, tokens};
use crate::sources::{SourceFile, Sources};

const CRATES: [&str; 5] =
    ["host/models/src", "host/runtime/src", "host/mcp/src", "host/server/src", "host/cli/src"];
/// Calls that wait for the disk, another process or the time. A name at the end may be the
/// beginning of a longer one.
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
const COMMON: [&str; 16] = [
    "subscribe",
    "clone",
    "entries",
    "get",
    "insert",
    "len",
    "load",
    "next",
    "open",
    "pin",
    "read",
    "remove",
    "spawn",
    "take",
    "trim",
    "write",
];
/// The comment that allows it for one guard, with the reason behind it.
const ALLOWED: &str = "// Held while it waits: ";

/// A function of the host.
struct Function<'t, 'a> {
    name: &'a str,
    /// What stands before the body.
    signature: &'t [Token<'a>],
    body: &'t [Token<'a>],
}

/// A guard that is held over work that waits.
struct HeldGuard<'a> {
    path: &'a str,
    line: usize,
    call: String,
}

/// Fails with the guards that are held over work that waits.
pub(crate) fn no_lock_is_held_over_io(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let guards = held_guards(sources.product(&CRATES));
    let lines: Vec<String> = guards
        .into_iter()
        .map(|HeldGuard { path, line, call }| format!("    {path}:{line}: held over `{call}`"))
        .collect();
    XtaskFailure::unless_empty(
        &lines.join("\n"),
        format_args!(
            "These guards of a lock are held over work that waits. Do the work before or after, or \
             keep what readers need under a lock of its own. If only threads that may wait take the \
             lock, say so above the guard: {ALLOWED}REASON"
        ),
    )
}

fn held_guards<'a>(files: impl Iterator<Item = &'a SourceFile<'a>>) -> Vec<HeldGuard<'a>> {
    let files: Vec<(&SourceFile<'_>, Vec<Token<'_>>)> =
        files.map(|file| (file, file.product_tokens())).collect();
    let functions: Vec<Vec<Function<'_, '_>>> =
        files.iter().map(|(_, tokens)| functions_of(tokens)).collect();
    let all: Vec<&Function<'_, '_>> = functions.iter().flatten().collect();
    let waits = WAITS.map(tokens);
    let calls = WaitingCalls::find(&all, &waits);
    let mut returned: BTreeMap<&str, bool> = BTreeMap::new();
    for function in &all {
        *returned.entry(function.name).or_insert(true) &= returns_guard(function);
    }
    let known = returned.iter().filter(|(_, always)| **always).map(|(name, _)| *name);
    let known: BTreeSet<&str> = known.chain(["lock", "held"]).collect();
    let mut guards = Vec::new();
    for ((file, _), functions) in files.iter().zip(&functions) {
        // A method of this file may have the name of another elsewhere.
        let own = functions.iter().filter(|it| returns_guard(it)).map(|it| it.name);
        let names: BTreeSet<&str> = own.chain(known.iter().copied()).collect();
        for function in functions {
            for (line, call) in held_in(function, &names, &calls) {
                if !is_allowed(file.text, line) {
                    guards.push(HeldGuard { path: file.path, line, call });
                }
            }
        }
    }
    guards
}

fn returns_guard(function: &Function<'_, '_>) -> bool {
    let mut parts = function.signature.rsplit(|token| token.text == "->");
    let returned = parts.next().unwrap_or_default();
    let is_path = |token: &&Token<'_>| matches!(token.text, "std" | "sync" | "::");
    parts.next().is_some()
        && returned.iter().find(|token| !is_path(token)).is_some_and(|token| {
            matches!(token.text, "MutexGuard" | "RwLockReadGuard" | "RwLockWriteGuard")
        })
}

/// Whether the comment above a line, from 1, allows it.
fn is_allowed(text: &str, line: usize) -> bool {
    let above = line.checked_sub(2).and_then(|at| text.lines().nth(at));
    above.is_some_and(|above| above.trim_start().starts_with(ALLOWED))
}

/// The functions of a file that have a body.
fn functions_of<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<Function<'t, 'a>> {
    let begins = tokens.iter().enumerate().filter(|(_, token)| token.text == "fn");
    let functions = begins.filter_map(|(at, _)| {
        let (name, rest) = tokens[at + 1..].split_first().filter(|(name, _)| name.is_word())?;
        let mut depth = 0;
        let start = rest.iter().position(|token| {
            let is_end = depth == 0 && matches!(token.text, "{" | ";");
            depth += nesting(token);
            is_end
        })?;
        let (signature, rest) = rest.split_at(start);
        let body = &rest[..item_length(rest)];
        (rest[0].text == "{").then_some(Function { name: name.text, signature, body })
    });
    functions.collect()
}

/// The calls that wait.
struct WaitingCalls<'a> {
    waits: &'a [Vec<Token<'a>>],
    /// The functions that wait, directly or through others.
    functions: BTreeSet<&'a str>,
}

impl<'a> WaitingCalls<'a> {
    /// Only names that are there once are followed: a call has no more than a name.
    fn find(functions: &[&Function<'_, 'a>], waits: &'a [Vec<Token<'a>>]) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        functions.iter().for_each(|it| *counts.entry(it.name).or_default() += 1);
        let mut calls = Self { waits, functions: BTreeSet::new() };
        loop {
            let before = calls.functions.len();
            for function in functions {
                let is_followed = counts[function.name] == 1 && !COMMON.contains(&function.name);
                // An async function is called without waiting; its await is what waits.
                if is_followed && calls.first_in(function.body).is_some() {
                    calls.functions.insert(function.name);
                }
            }
            if calls.functions.len() == before {
                return calls;
            }
        }
    }

    /// The first of these calls in a part of a function.
    fn first_in(&self, part: &[Token<'_>]) -> Option<String> {
        (0..part.len()).find_map(|at| {
            let rest = &part[at..];
            if let Some(call) = self.waits.iter().find(|call| begins_with(rest, call)) {
                return Some(call.iter().map(|token| token.text).collect());
            }
            let is_call = rest.get(1).is_some_and(|next| next.text == "(");
            (is_call && self.functions.contains(rest[0].text))
                .then(|| format!("{}()", rest[0].text))
        })
    }
}

fn begins_with(rest: &[Token<'_>], call: &[Token<'_>]) -> bool {
    let Some((last, words)) = call.split_last() else { return false };
    rest.len() >= call.len()
        && words.iter().zip(rest).all(|(word, token)| word.text == token.text)
        && rest[words.len()].text.starts_with(last.text)
}

/// The lines of a function that bind a guard, with what waits in the rest of its block.
fn held_in(
    function: &Function<'_, '_>,
    guards: &BTreeSet<&str>,
    calls: &WaitingCalls<'_>,
) -> Vec<(usize, String)> {
    let lets = function.body.iter().enumerate().filter(|(_, token)| token.text == "let");
    let found = lets.filter_map(|(at, token)| {
        let (statement, rest) = statement(&function.body[at + 1..])?;
        let name = bound_guard(statement, guards)?;
        Some((token.line, calls.first_in(scope(rest, name))?))
    });
    found.collect()
}

/// The tokens up to the `;` of a statement, and those behind it.
fn statement<'t, 'a>(rest: &'t [Token<'a>]) -> Option<(&'t [Token<'a>], &'t [Token<'a>])> {
    let mut depth = 0_i32;
    let end = rest.iter().position(|token| {
        depth += nesting(token);
        // A condition, as in `if let`, has no end of its own.
        depth < 0 || depth == 0 && matches!(token.text, ";" | "}")
    })?;
    (rest[end].text == ";").then(|| (&rest[..end], &rest[end + 1..]))
}

fn nesting(token: &Token<'_>) -> i32 {
    match token.text {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// The name of the guard that a statement binds; `None` if it binds none.
fn bound_guard<'a>(statement: &[Token<'a>], guards: &BTreeSet<&str>) -> Option<&'a str> {
    let texts: Vec<&'a str> = statement.iter().map(|token| token.text).collect();
    let (name, value) = match texts[..] {
        ["mut", name, "=", ..] => (name, &texts[3..]),
        [name, "=", ..] => (name, &texts[2..]),
        _ => return None,
    };
    const POISON: [&str; 7] = [".", "unwrap_or_else", "(", "PoisonError", "::", "into_inner", ")"];
    // A tokio lock is awaited, and `?` leaves a value of its own.
    let value = value.strip_suffix(&POISON).unwrap_or(value);
    let call = value.strip_suffix(&[")"])?;
    let mut depth = 0_i32;
    let open = call.iter().rposition(|text| {
        match *text {
            ")" => depth += 1,
            "(" => depth -= 1,
            _ => {}
        }
        depth < 0
    })?;
    let function = call.get(open.checked_sub(1)?)?;
    (name != "_" && guards.contains(function)).then_some(name)
}

/// The rest of a block, or of it up to where the guard is dropped.
fn scope<'t, 'a>(rest: &'t [Token<'a>], guard: &str) -> &'t [Token<'a>] {
    let mut depth = 0_i32;
    let end = rest.iter().enumerate().position(|(at, token)| {
        depth += nesting(token);
        let next: Vec<&str> = rest[at..].iter().take(4).map(|token| token.text).collect();
        depth < 0 || next == ["drop", "(", guard, ")"]
    });
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guards_in(text: &str) -> Vec<(usize, String)> {
        let file = SourceFile::new("a.rs", text);
        held_guards([&file].into_iter())
            .into_iter()
            .map(|HeldGuard { line, call, .. }| (line, call))
            .collect()
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
