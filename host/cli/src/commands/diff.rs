//! `conclave diff RUN`: the changes that a run made in overlays of its folders, which a person
//! applies or drops. Paths and contents are a plugin's: exact for a pipe, in marked and escaped rows
//! for a terminal.

use std::io::{ErrorKind, IsTerminal};
use std::path::Path;

use anstyle::Style;
use conclave_core::overlay::attention::runs_later;
use conclave_core::types::ids::RoomId;
use conclave_runtime::overlay::diff::{TextChange, as_text, text_change};
use conclave_runtime::overlay::{
    Conflict, FileContents, FileDigest, FolderChanges, OverlayError, PendingChange, RunChanges,
};
use conclave_runtime::store::RunFilter;
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::stored_run::StoredRun;
use crate::state::stores::OpenStores;
use crate::ui::screen::{columns, size};
use crate::ui::show::amounts::thousands;
use crate::ui::show::columns::wrap_styled;
use crate::ui::show::hunks::hunk_rows;
use crate::ui::show::timeline::decided;
use crate::ui::show::{
    BAD, FAINT, GOOD, NAME, ODD, bytes, foreign, paint, plural, printable, show_path,
};
use crate::ui::{ask, stderr, stdout};

/// Characters of a digest that are shown.
const DIGEST: usize = 12;
/// The remark about a changed file whose content is missing.
const LOST: &str = "lost: its content is missing from the store";
/// Rows below a page: that of the answer, and one for the terminal's own line.
const BELOW_PAGE: usize = 2;
/// The remark about a changed file whose content is that of the folder.
const SAME: &str = "the same as in the folder";

pub(crate) fn diff(args: &args::Diff, output: OutputArgs) -> Result<u8, CliError> {
    let stores = OpenStores::of(args.store.as_ref())?;
    let found = match &args.run {
        Some(name) => stores.find(name)?,
        None => match newest(&stores, args.yes)? {
            Some((found, others)) => {
                if !others.is_empty() && !output.result_only() {
                    let what = not_named(&found.run(), &others);
                    stderr::note(what);
                }
                found
            }
            None => return nothing("no run has changes to apply or drop", output),
        },
    };
    let run = found.run();
    let changes = found.reader.address().changes(&run).map_err(|e| failed(&e, &run))?;
    let Some(mut changes) = changes else {
        return nothing(&format!("the changes of {run} cannot be read by this program"), output);
    };
    // Before the paths are applied: no change at all is no error, none at these paths is one.
    let all = count(&changes);
    changes.retain(|path| is_chosen(path, &args.paths));
    let pending = count(&changes);
    if pending == 0 {
        let what = match all {
            0 => {
                let decisions = found.reader.change_decisions(&run)?;
                let last = decisions.last().map(|last| format!(": {}", decided(last)));
                let last = last.unwrap_or_default();
                format!("{run} has no changes to apply or drop{last}")
            }
            _ => format!(
                "{run} has no change at these paths; `conclave diff {run} --stat` lists them"
            ),
        };
        if all > 0 {
            return Err(CliError::usage(what));
        }
        return nothing(&what, output);
    }
    if let Some(begin) = found.reader.change_decisions(&run)?.iter().find(|it| it.is_begin)
        && !output.result_only()
    {
        stderr::note(format!("{}; what follows is the rest", decided(begin)));
    }
    if !(args.apply || args.discard) {
        show(&changes, &run, args, output)?;
        return Ok(exit::OK);
    }
    let files = plural(pending as u64, "changed file", "changed files");
    // The whole path: a person may decide from another folder than the run's.
    let path = |it: &FolderChanges| show_path(it.dir.display().to_string());
    let folders: Vec<String> = changes.folders.iter().map(path).collect();
    let (verb, way) = if args.apply { ("apply", "to") } else { ("drop", "in the overlay of") };
    let folders = folders.join(", ");
    // Before the question, so that nobody reviews changes that cannot be applied.
    if args.apply {
        if let Some(missing) = changes.folders.iter().find(|folder| !folder.dir.is_dir()) {
            let what = format!("the folder {} is not there", show_path(&missing.dir));
            return Err(CliError::usage(what).hint(format!(
                "move it back to this place, or drop the changes: conclave diff {run} --drop"
            )));
        }
        changes.check().map_err(|error| failed(&error, &run))?;
    }
    if !args.yes {
        if !ask::is_user_there() {
            let what = format!("a person must {verb} the changes, and no terminal is there to ask");
            return Err(
                CliError::usage(what).hint(format!("read `conclave diff {run}`, then pass --yes"))
            );
        }
        let question = format!("{} {files} {way} {folders}?", capitalized(verb));
        if !review(&changes, &run, args, &question)? {
            stderr::line("nothing was changed");
            return Ok(exit::OK);
        }
    }
    let outcome = if args.apply { changes.apply() } else { changes.discard() };
    let count = outcome.map_err(|error| failed(&error, &run))?;
    let word = if args.apply { "applied" } else { "dropped" };
    let what = format!("{} {files} {way} {folders}", paint(GOOD, word));
    stdout::report(output, json!({ "type": word, "run": run, "files": count }), what)?;
    Ok(exit::OK)
}

/// Returns the newest run with pending changes, and the names of the others with some. `is_only`
/// refuses if there are others: without a confirmation, the newest might be the wrong one.
fn newest(
    stores: &OpenStores,
    is_only: bool,
) -> Result<Option<(StoredRun, Vec<RoomId>)>, CliError> {
    let mut changed = Vec::new();
    for reader in stores.readers()? {
        for run in reader.runs(&RunFilter::default())? {
            if reader.pending_changes(&run.run)? > 0 {
                changed.push(run);
            }
        }
    }
    changed.sort_by_key(|run| std::cmp::Reverse(run.started));
    let mut runs = changed.into_iter().map(|run| run.run);
    let Some(run) = runs.next() else { return Ok(None) };
    let others: Vec<RoomId> = runs.collect();
    if is_only && !others.is_empty() {
        let what = format!(
            "{} runs have changes, so --yes needs the RUN: {run}, {}",
            others.len() + 1,
            names(&others)
        );
        return Err(CliError::usage(what).hint("`conclave diff RUN` shows the changes of one"));
    }
    Ok(Some((stores.find(run.as_str())?, others)))
}

/// Returns which run's changes follow, if no run was named and several have some.
fn not_named(run: &RoomId, others: &[RoomId]) -> String {
    let have = if others.len() == 1 { "has" } else { "have" };
    format!("{run} is the newest run with changes; {} {have} some too", names(others))
}

fn names(runs: &[RoomId]) -> String {
    runs.iter().map(RoomId::as_str).collect::<Vec<_>>().join(", ")
}

/// Says that there is nothing to do. As JSON that is no line.
fn nothing(what: &str, output: OutputArgs) -> Result<u8, CliError> {
    if !output.result_only() {
        stderr::note(what);
    }
    Ok(exit::OK)
}

fn count(changes: &RunChanges) -> usize {
    changes.folders.iter().map(|folder| folder.files.len()).sum()
}

/// Whether the path, or a folder above it, is named. No names mean all.
fn is_chosen(path: &str, paths: &[String]) -> bool {
    let is_at = |name: &String| {
        let name = name.trim_end_matches('/');
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    paths.is_empty() || paths.iter().any(is_at)
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// The program's error, with what to do about it.
fn failed(error: &OverlayError, run: &RoomId) -> CliError {
    match error {
        OverlayError::Conflicts { files, .. } => {
            let rows = |file: &Conflict| {
                let line = format!("{}: {}", show_path(&file.path), printable(&file.reason));
                foreign::line_with_mark(&line, columns().saturating_sub(2))
            };
            let reasons: Vec<String> =
                files.iter().flat_map(rows).map(|row| format!("\n  {row}")).collect();
            let path = files.first().map(|file| show_path(&file.path)).unwrap_or_default();
            let what = format!(
                "nothing was applied, because the folder changed since the run:{}",
                reasons.concat()
            );
            CliError::internal(what).hint(format!(
                "apply the other files by naming their paths; for {path}, restore the file, or take what you need from `conclave diff {run} {path}` and drop it with `conclave diff {run} {path} --drop`"
            ))
        }
        OverlayError::ChangedAgain { .. } => CliError::internal(printable(&error.to_string()))
            .hint(format!("read the changes again: conclave diff {run}")),
        OverlayError::InUse { .. } => CliError::internal(error.to_string()).hint(format!(
            "wait for the end of the run, or end it: `conclave stop {run}`; `conclave serve` and `conclave chat` keep a conversation when you end them with Ctrl-C, and continue it with its changes"
        )),
        OverlayError::Store { cause, .. } if cause.kind() == ErrorKind::NotConnected => {
            CliError::unreachable(printable(&error.to_string())).hint(
                "start its database, or correct the address; what was applied is noted, and the \
                 same command goes on with the rest",
            )
        }
        error => CliError::internal(printable(&error.to_string())),
    }
}

/// What the two contents of a changed file are.
enum FileDiff {
    Text(TextChange),
    Binary,
    /// The content of the changed file is missing.
    Lost,
}

impl FileDiff {
    fn of(folder: &FolderChanges, file: &PendingChange) -> Result<Self, OverlayError> {
        if file.is_lost {
            return Ok(Self::Lost);
        }
        let FileContents { old, new } = folder.contents(file)?;
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        Ok(match (as_text(&old), as_text(&new)) {
            (Some(old), Some(new)) => Self::Text(text_change(old, new)),
            _ => Self::Binary,
        })
    }
}

fn show(
    changes: &RunChanges,
    run: &RoomId,
    args: &args::Diff,
    output: OutputArgs,
) -> Result<(), CliError> {
    let is_terminal = std::io::stdout().is_terminal();
    for folder in &changes.folders {
        // A pipe gets nothing but the patch, unless it holds patches of several folders.
        if !output.json && (is_terminal || args.stat || changes.folders.len() > 1) {
            let files = plural(folder.files.len() as u64, "changed file", "changed files");
            stdout::styled(format!("{}: {files}", paint(NAME, show_path(&folder.display_path))))?;
        }
        for file in &folder.files {
            let diff = FileDiff::of(folder, file).map_err(|error| failed(&error, run))?;
            if output.json {
                stdout::json(as_json(run, folder, file, &diff))?;
                continue;
            }
            if let Some(row) = conflict(file, columns()) {
                stderr::line(row);
            }
            if args.stat {
                stdout::styled(stat(folder, file, &diff))?;
            } else if is_terminal {
                stdout::unbroken(rows(file, &diff, columns()).join("\n"))?;
            } else if let Some(reason) = not_in_patch(&diff, file) {
                let what = format!("not in the patch: {}: {reason}", show_path(&file.path));
                let rows = foreign::line_with_mark(&what, columns());
                stderr::line(paint_rows(ODD, &rows));
            } else {
                stdout::write(&patch(file, &diff))?;
            }
        }
    }
    Ok(())
}

/// The conflict of a file in marked rows; `None` if it has none.
fn conflict(file: &PendingChange, columns: usize) -> Option<String> {
    let reason = file.conflict.as_ref()?;
    let what = format!("conflict: {}: {}", show_path(&file.path), printable(reason));
    Some(paint_rows(ODD, &foreign::line_with_mark(&what, columns)))
}

fn paint_rows(style: Style, rows: &[String]) -> String {
    let rows: Vec<String> = rows.iter().map(|row| paint(style, row)).collect();
    rows.join("\n")
}

/// Shows all changes on the terminal, a page at a time, with the list of the files directly above
/// the question. Returns whether the answer is yes. The question follows only rows that were shown
/// page by page, in the terminal's present size.
fn review(
    changes: &RunChanges,
    run: &RoomId,
    args: &args::Diff,
    question: &str,
) -> Result<bool, CliError> {
    loop {
        let size = size();
        let (rows, list) = review_rows(changes, run, args.stat, size.0)?;
        let below = wrap_styled(question, size.0).len() + BELOW_PAGE;
        let pages = pages(rows, list, size.1.saturating_sub(below));
        let count = pages.len();
        for (index, page) in pages.into_iter().enumerate() {
            stderr::line(page.join("\n"));
            let number = index + 1;
            if number < count {
                let next =
                    format!("page {number} of {count}: [Enter] next page, [q] change nothing");
                if ask::line(&paint(FAINT, next)).is_some_and(|answer| answer.starts_with('q')) {
                    return Ok(false);
                }
            }
        }
        let is_agreed = ask::confirm(question);
        // A no holds in any size; a yes only for what was shown.
        if !is_agreed || size == self::size() {
            return Ok(is_agreed);
        }
        let what = "the terminal's size has changed; read the changes again";
        stderr::styled(ODD, what);
    }
}

/// Returns the rows of all changes, and those of the list of the files.
fn review_rows(
    changes: &RunChanges,
    run: &RoomId,
    is_list_only: bool,
    columns: usize,
) -> Result<(Vec<String>, Vec<String>), CliError> {
    let (mut all, mut list) = (Vec::new(), Vec::new());
    for folder in &changes.folders {
        let files = plural(folder.files.len() as u64, "changed file", "changed files");
        list.push(format!("{}: {files}", paint(NAME, show_path(&folder.display_path))));
        for file in &folder.files {
            let diff = FileDiff::of(folder, file).map_err(|error| failed(&error, run))?;
            if !is_list_only {
                all.extend(rows(file, &diff, columns));
            }
            let conflict = conflict(file, columns);
            list.extend(conflict.iter().flat_map(|rows| rows.split('\n')).map(str::to_owned));
            list.extend(wrap_styled(&stat(folder, file, &diff), columns));
        }
    }
    Ok((all, list))
}

/// Returns pages of at most `height` rows. The list is on the last one, behind the rows if it fits
/// there as a whole.
fn pages(rows: Vec<String>, list: Vec<String>, height: usize) -> Vec<Vec<String>> {
    let height = height.max(1);
    if rows.len() + list.len() <= height {
        return vec![rows.into_iter().chain(list).collect()];
    }
    let parts = [rows, list];
    parts.iter().flat_map(|part| part.chunks(height)).map(<[String]>::to_vec).collect()
}

/// Returns what the run did to the file. In the folder the file may be out of reach by now, such as
/// behind a link.
fn kind(file: &PendingChange) -> &'static str {
    match (&file.base, &file.old, &file.new) {
        (.., None) if !file.is_lost => "removed",
        (None, None, _) => "added",
        _ => "modified",
    }
}

/// Returns why a patch for `git apply` and `patch` does not have a file; `None` if it has it.
fn not_in_patch(diff: &FileDiff, file: &PendingChange) -> Option<String> {
    match diff {
        FileDiff::Binary => Some(format!("a binary file, {}", sizes(file))),
        FileDiff::Lost => Some(LOST.to_owned()),
        FileDiff::Text(_) if file.old == file.new => Some(SAME.to_owned()),
        FileDiff::Text(_) => None,
    }
}

/// `3 B -> 10 B`.
fn sizes(file: &PendingChange) -> String {
    let size = |digest: &Option<FileDigest>| {
        digest.as_ref().map_or_else(|| "none".to_owned(), |digest| bytes(digest.length))
    };
    format!("{} -> {}", size(&file.old), size(&file.new))
}

/// ` src/a.py | +2 -1`, with a remark if the file can run without anybody starting it.
fn stat(folder: &FolderChanges, file: &PendingChange, diff: &FileDiff) -> String {
    let path = foreign::escaped(&show_path(&file.path));
    if file.new.is_some() && file.old == file.new {
        return format!("  {path} | {SAME}");
    }
    let mut remarks = Vec::new();
    if file.new.is_some() {
        remarks.extend(runs_later(&file.path).map(|by| format!("{by} runs it")));
        if is_executable(&folder.dir.join(&file.path)) {
            remarks.push("executable".to_owned());
        }
    }
    let remarks: String = remarks.iter().map(|it| format!(", {}", paint(ODD, it))).collect();
    let kind = match kind(file) {
        "added" => " (new)",
        "removed" => " (removed)",
        _ => "",
    };
    let amounts = match diff {
        FileDiff::Text(change) => {
            format!(
                "{} {}",
                paint(GOOD, format_args!("+{}", thousands(change.added))),
                paint(BAD, format_args!("-{}", thousands(change.removed)))
            )
        }
        FileDiff::Binary => format!("binary, {}", sizes(file)),
        FileDiff::Lost => paint(BAD, LOST),
    };
    format!("  {path} | {amounts}{kind}{remarks}")
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    false
}

/// The lines before the hunks, as git writes them.
fn head(file: &PendingChange, diff: &FileDiff) -> Vec<String> {
    let (old, new) = (quoted('a', &file.path), quoted('b', &file.path));
    let mut lines = vec![format!("diff --git {old} {new}")];
    match (&file.old, &file.new) {
        _ if file.is_lost => lines.push(LOST.to_owned()),
        (None, _) => lines.push("new file mode 100644".to_owned()),
        (_, None) => lines.push("deleted file mode 100644".to_owned()),
        _ => {}
    }
    // git marks the end of a name with blanks by a tab.
    let end = if file.path.contains(' ') { "\t" } else { "" };
    let side = |digest: &Option<FileDigest>, name: String| {
        digest.as_ref().map_or_else(|| "/dev/null".to_owned(), |_| format!("{name}{end}"))
    };
    match diff {
        FileDiff::Lost => {}
        FileDiff::Text(change) if change.hunks.is_empty() => {}
        FileDiff::Text(_) => {
            lines.push(format!("--- {}", side(&file.old, old)));
            lines.push(format!("+++ {}", side(&file.new, new)));
        }
        FileDiff::Binary => {
            let label = |digest: &Option<FileDigest>, name: &str| match digest {
                None => "/dev/null".to_owned(),
                Some(digest) => {
                    let (size, hash) = (bytes(digest.length), &digest.sha256);
                    format!("{name} ({size}, sha256 {})", hash.get(..DIGEST).unwrap_or(hash))
                }
            };
            let (old, new) = (label(&file.old, &old), label(&file.new, &new));
            lines.push(format!("Binary files {old} and {new} differ"));
        }
    }
    lines
}

/// `a/src/main.py`, quoted like git if it holds a quotation mark.
fn quoted(side: char, path: &str) -> String {
    if path.contains('"') {
        return format!("\"{side}/{}\"", path.replace('"', "\\\""));
    }
    format!("{side}/{path}")
}

/// The patch of a file with its exact contents, for `git apply` and `patch`.
fn patch(file: &PendingChange, diff: &FileDiff) -> String {
    let mut text = head(file, diff).join("\n") + "\n";
    let FileDiff::Text(change) = diff else { return text };
    for hunk in &change.hunks {
        text.push_str(&hunk.header);
        text.push('\n');
        for line in &hunk.lines {
            text.push(line.sign.as_char());
            text.push_str(&line.text);
            text.push('\n');
            if line.unterminated {
                text.push_str("\\ No newline at end of file\n");
            }
        }
    }
    text
}

/// The rows of a file for a terminal of this width. Each row of a line begins with its sign,
/// so that no row can be taken for the program's own.
fn rows(file: &PendingChange, diff: &FileDiff, width: usize) -> Vec<String> {
    let bold = Style::new().bold();
    let head = head(file, diff);
    let head = head.iter().flat_map(|line| foreign::line_with_mark(&show_path(line), width));
    let mut rows: Vec<String> = head.map(|row| paint(bold, row)).collect();
    if let FileDiff::Text(change) = diff {
        rows.extend(hunk_rows(change, width));
    }
    rows
}

fn as_json(
    run: &RoomId,
    folder: &FolderChanges,
    file: &PendingChange,
    diff: &FileDiff,
) -> serde_json::Value {
    let (added, removed, text) = match diff {
        FileDiff::Text(change) => {
            (Some(change.added), Some(change.removed), Some(patch(file, diff)))
        }
        FileDiff::Binary | FileDiff::Lost => (None, None, None),
    };
    json!({
        "type": "change", "run": run, "folder": folder.dir, "path": file.path, "change": kind(file),
        "old": file.old, "new": file.new, "added": added, "removed": removed, "diff": text,
        "conflict": file.conflict, "lost": file.is_lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_run_the_one_that_is_shown_and_the_others_are_named() {
        let [first, second, third] = ["a1", "b2", "c3"].map(RoomId::from);
        let one = not_named(&first, std::slice::from_ref(&second));
        assert_eq!(one, "a1 is the newest run with changes; b2 has some too");
        let two = not_named(&first, &[second, third]);
        assert_eq!(two, "a1 is the newest run with changes; b2, c3 have some too");
    }

    fn digest(length: u64) -> Option<FileDigest> {
        Some(FileDigest { sha256: "0123456789abcdef".to_owned(), length })
    }

    fn file(path: &str, old: Option<FileDigest>, new: Option<FileDigest>) -> PendingChange {
        let (path, base) = (path.to_owned(), old.clone());
        PendingChange { path, base, old, new, is_lost: false, conflict: None }
    }

    #[test]
    fn a_terminal_gets_no_control_characters_and_no_row_without_a_sign() {
        let text = format!("\u{1b}[2Jrm -rf\u{202e}\r{}\n", "conclave: applied ".repeat(9));
        let diff = FileDiff::Text(text_change("", &text));
        let rows = rows(&file("a b", None, digest(1)), &diff, 40);
        let plain = |row: &String| anstream::adapter::strip_str(row).to_string();
        let rows: Vec<String> = rows.iter().map(plain).collect();
        assert_eq!(
            rows[..5],
            [
                "diff --git a/a b b/a b",
                "new file mode 100644",
                "--- /dev/null",
                "+++ b/a b\\u{9}",
                "@@ -0,0 +1 @@",
            ]
        );
        assert!(
            rows.len() > 8 && rows[5].starts_with("+\\u{1b}[2Jrm -rf\\u{202e}\\u{d}"),
            "{rows:?}"
        );
        assert!(rows[5..].iter().all(|row| row.starts_with('+') && row.len() <= 40), "{rows:?}");
    }

    /// The name of a file must not write a row of the program's own (H7).
    #[test]
    fn no_row_of_a_head_or_a_conflict_begins_with_the_name_of_a_file() {
        let forged = "nothing else was changed. Apply 1 changed file to project? [y/N] y";
        for padding in [" ".repeat(29), "x".repeat(29), "x".repeat(30), " ".repeat(70)] {
            let path = format!("z{padding}{forged}");
            let mut file = file(&path, digest(1), digest(2));
            file.conflict = Some(format!("it is a link {forged}"));
            let diff = FileDiff::Text(text_change("a\n", "b\n"));
            let conflict = conflict(&file, 40).expect("it has one");
            let rows =
                rows(&file, &diff, 40).into_iter().chain(conflict.split('\n').map(str::to_owned));
            for row in rows {
                let row = anstream::adapter::strip_str(&row).to_string();
                let begins =
                    ["diff --git a/", "--- a/", "+++ b/", "@@", "-a", "+b", "conflict: z", "│ "];
                assert!(begins.iter().any(|begin| row.starts_with(begin)), "{row:?}");
                assert!(row.chars().count() <= 40, "{row:?}");
            }
        }
    }

    /// What is decided about has not scrolled away (H8).
    #[test]
    fn a_long_review_has_pages_and_ends_with_the_list_of_the_files() {
        let numbered = |word: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{word} {number}")).collect()
        };
        let short = pages(numbered("row", 3), numbered("file", 2), 10);
        assert_eq!(short.len(), 1);
        let long = pages(numbered("row", 25), numbered("file", 2), 10);
        assert_eq!(long.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5, 2]);
        assert_eq!(long.last(), Some(&numbered("file", 2)));
        assert_eq!(long.concat(), [numbered("row", 25), numbered("file", 2)].concat());
        let many = pages(numbered("row", 1), numbered("file", 12), 10);
        assert!(many.iter().all(|page| page.len() <= 10), "{many:?}");
        assert_eq!(pages(numbered("row", 2), Vec::new(), 0).len(), 2, "any terminal has a row");
    }

    #[test]
    fn a_patch_has_the_exact_contents() {
        let diff = FileDiff::Text(text_change("a\n", "a\u{1b}"));
        let text = patch(&file("we\"ird", digest(2), digest(2)), &diff);
        assert_eq!(
            text,
            "diff --git \"a/we\\\"ird\" \"b/we\\\"ird\"\n--- \"a/we\\\"ird\"\n+++ \"b/we\\\"ird\"\n@@ -1 +1 @@\n-a\n+a\u{1b}\n\\ No newline at end of file\n"
        );
        let binary = patch(&file("x", None, digest(2048)), &FileDiff::Binary);
        assert!(
            binary
                .ends_with("Binary files /dev/null and b/x (2 KiB, sha256 0123456789ab) differ\n"),
            "{binary}"
        );
        let empty = FileDiff::Text(TextChange::default());
        assert_eq!(
            patch(&file("e", None, digest(0)), &empty),
            "diff --git a/e b/e\nnew file mode 100644\n"
        );
    }

    #[test]
    fn a_change_is_named_by_what_the_run_did_even_where_the_folder_cannot_be_read() {
        let change = |base, old, new| kind(&PendingChange { base, ..file("x", old, new) });
        assert_eq!(change(digest(1), None, None), "removed");
        assert_eq!(change(digest(1), None, digest(2)), "modified");
        assert_eq!(change(None, digest(1), digest(2)), "modified");
        assert_eq!(change(None, None, digest(2)), "added");
    }

    #[test]
    fn a_carriage_return_at_the_end_of_a_line_is_visible() {
        let diff = FileDiff::Text(text_change("a\n", "a\r\n"));
        let rows = rows(&file("t", digest(2), digest(3)), &diff, 40);
        let plain = |row: &String| anstream::adapter::strip_str(row).to_string();
        let rows: Vec<String> = rows.iter().map(plain).collect();
        assert_eq!(rows[4..], ["-a", "+a\\u{d}"]);
    }

    #[test]
    fn a_path_names_a_file_or_all_below_a_folder() {
        let paths = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(is_chosen("src/a", &[]) && is_chosen("src/a", &paths(&["src/"])));
        assert!(is_chosen("src/a", &paths(&["b", "src/a"])));
        assert!(!is_chosen("src/ab", &paths(&["src/a"])) && !is_chosen("src2", &paths(&["src"])));
    }
}
