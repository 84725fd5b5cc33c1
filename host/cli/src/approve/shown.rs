//! What an approver sees: who wants what, and every argument whole and escaped, with what it names on this machine and what is odd about it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use conclave_core::consult::Risk;
use conclave_core::grant::{FileGrant, FileMode};
use conclave_core::policy::{ApprovalRequest, is_odd};
use serde_json::Value;

use super::about::About;
use crate::show::{FAINT, NAME, ODD, bytes, one_line, paint, plural, printable};

/// Characters of one argument that are shown before somebody asks for all of it.
pub(super) const SHOWN: usize = 2_000;

/// Characters of an analyzer's reason that are shown.
const REASON: usize = 1_000;

/// What is asked, and whether an argument was cut.
pub(super) fn shown(request: &ApprovalRequest, about: &About, until: Option<Instant>, most: usize) -> (String, bool) {
    let ApprovalRequest { task: _, caller, asked_by, tool, arguments, source, rule, expires_ms: _, risk, risk_reason, problem: _ } =
        request;
    let source = if rule.is_some() { format!("policy: {}", one_line(source, 80)) } else { one_line(source, 120) };
    let left = until.map(|until| format!(" · {} left", left(until))).unwrap_or_default();
    let source = paint(FAINT, format_args!("{source}{left}"));
    let whose = asked_by.as_ref().map(|plugin| format!(", as a follow-up that {} asks for", paint(NAME, plugin))).unwrap_or_default();
    let mut text = format!(" {}    {} wants to run for {}{whose}   {source}", paint(ODD, "?"), one_line(tool, 80), paint(NAME, caller));
    let mut is_cut = false;
    let mut cut = |value: &str| {
        let kept: String = value.chars().take(most).collect();
        let left = value.chars().count().saturating_sub(most);
        is_cut |= left > 0;
        let more = if left > 0 { paint(FAINT, format_args!(" … and {left} characters more")) } else { String::new() };
        printable(&kept) + &more
    };
    let files = about.plugin(tool).map(|(_, plugin)| plugin.grants.files.clone()).unwrap_or_default();
    match arguments {
        Value::Object(fields) if fields.is_empty() => {}
        Value::Object(fields) => {
            let width = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(20);
            for (name, value) in fields {
                let name = cut(&told_apart(name));
                let _ = write!(text, "\n        {name:<width$}  {}{}", cut(&value.to_string()), remark(value, &files));
            }
        }
        other => {
            let _ = write!(text, "\n        {}", cut(&other.to_string()));
        }
    }
    if let Some(risk) = told_risk(*risk, risk_reason.as_deref()) {
        let _ = write!(text, "\n        {risk}");
    }
    (text, is_cut)
}

/// What the task's analyzer says of it; none when nobody was asked.
pub(crate) fn told_risk(risk: Option<Risk>, reason: Option<&str>) -> Option<String> {
    let reason = reason.map(|reason| one_line(reason, REASON)).filter(|reason| !reason.is_empty());
    let style = if risk == Some(Risk::Low) { FAINT } else { ODD };
    match (risk, reason) {
        (None, None) => None,
        (Some(risk), None) => Some(paint(style, format_args!("risk: {}", risk.as_str()))),
        (Some(risk), Some(reason)) => Some(format!("{} {reason}", paint(style, format_args!("risk: {},", risk.as_str())))),
        (None, Some(reason)) => Some(format!("{} {reason}", paint(ODD, "risk: not known,"))),
    }
}

/// `10 min`, `40 s`.
fn left(until: Instant) -> String {
    let seconds = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
    if seconds >= 90.0 { format!("{:.0} min", (seconds / 60.0).round()) } else { format!("{seconds:.0} s") }
}

/// A name as it is; one that could be taken for another, or for more than a name, as JSON has it.
fn told_apart(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

/// What to know of an argument besides its text; empty when there is nothing.
fn remark(value: &Value, files: &[FileGrant]) -> String {
    let mixed =
        if has_mixed_words(value) { "  ".to_owned() + &paint(ODD, "(letters of several alphabets in one word)") } else { String::new() };
    let Value::String(text) = value else { return mixed };
    let mut remarks: Vec<String> = Vec::new();
    let in_folder = files.iter().find_map(|grant| Some((grant, inside(grant, text)?)));
    match in_folder {
        Some(_) if is_odd(text) => remarks.push(paint(ODD, "(does not say plainly where it leads)")),
        Some((grant, rest)) => remarks.push(paint(FAINT, format_args!("({})", printable(&on_disk(grant, rest))))),
        None => {}
    }
    remarks.iter().fold(String::new(), |text, remark| text + "  " + remark) + &mixed
}

/// A word in it, at any depth, has letters of several alphabets.
fn has_mixed_words(value: &Value) -> bool {
    let is_mixed = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(mixes_alphabets);
    match value {
        Value::String(text) => is_mixed(text),
        Value::Array(items) => items.iter().any(has_mixed_words),
        Value::Object(fields) => fields.iter().any(|(name, value)| is_mixed(name) || has_mixed_words(value)),
        _ => false,
    }
}

/// The path below a granted folder.
fn inside<'a>(grant: &FileGrant, text: &'a str) -> Option<&'a str> {
    let rest = text.strip_prefix(grant.at.as_str())?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// What is there now: `a new file in notes/`, `notes/a.md, 2 KiB`.
fn on_disk(grant: &FileGrant, rest: &str) -> String {
    let folder = grant.shown.strip_prefix("./").unwrap_or(&grant.shown).trim_end_matches('/');
    let here = if rest.is_empty() { format!("{folder}/") } else { format!("{folder}/{rest}") };
    // Not followed: where a link leads is not for an approval to open.
    match std::fs::symlink_metadata(Path::new(&grant.dir).join(rest)) {
        Ok(found) if found.is_symlink() => format!("{here}, a link"),
        Ok(found) if found.is_dir() => format!("the folder {}/", here.trim_end_matches('/')),
        Ok(found) => format!("{here}, {} now", bytes(found.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && grant.mode == FileMode::ReadWrite => {
            let depth = rest.matches('/').count() as u64;
            let below = if depth > 0 { format!(", {} down", plural(depth, "folder", "folders")) } else { String::new() };
            format!("a new file in {folder}/{below}")
        }
        Err(_) => format!("{here}, which is not there"),
    }
}

/// Latin letters and others that look like them stand in one word.
fn mixes_alphabets(word: &str) -> bool {
    let is_lookalike = |c: char| {
        matches!(c, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{530}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}'
            | '\u{1d400}'..='\u{1d7ff}' | '\u{ff21}'..='\u{ff5a}')
    };
    word.chars().any(is_lookalike) && word.chars().any(|c| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::about::testing::{about, request};
    use super::*;

    fn plain(request: &ApprovalRequest, most: usize) -> (String, bool) {
        let about = about(Path::new("/nowhere/notes"), Path::new("/nowhere/conclave.toml"));
        let (text, is_cut) = shown(request, &about, None, most);
        (anstream::adapter::strip_str(&text).to_string(), is_cut)
    }

    #[test]
    fn a_request_shows_what_runs_for_whom_and_with_what() {
        let (text, is_cut) = plain(&request(json!({ "path": "/notes/a.md", "text": "lit in 1844" })), 300);
        assert_eq!(
            text,
            " ?    notes.save wants to run for librarian   policy: conclave.toml:49\n        \
             path  \"/notes/a.md\"  (a new file in notes/)\n        text  \"lit in 1844\""
        );
        assert!(!is_cut);
    }

    #[test]
    fn without_a_rule_it_says_what_the_plugin_may_do_and_how_long_there_is() {
        let derived = ApprovalRequest { rule: None, source: "notes may write notes/".into(), ..request(json!({})) };
        let about = about(Path::new("/nowhere"), Path::new("/nowhere/conclave.toml"));
        let (text, _) = shown(&derived, &about, Some(Instant::now() + Duration::from_secs(600)), 300);
        let text = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(text, " ?    notes.save wants to run for librarian   notes may write notes/ · 10 min left");
    }

    #[test]
    fn a_path_says_what_is_there() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a.md"), "abc").unwrap();
        std::fs::create_dir(temp.path().join("sub")).unwrap();
        let about = about(temp.path(), Path::new("/nowhere/conclave.toml"));
        let of = |path: &str| {
            let text = shown(&request(json!({ "path": path })), &about, None, 300).0;
            anstream::adapter::strip_str(&text).to_string()
        };
        assert!(of("/notes/a.md").contains("(notes/a.md, 3 B now)"), "{}", of("/notes/a.md"));
        assert!(of("/notes/sub").contains("(the folder notes/sub/)"));
        assert!(of("/notes/sub/b.md").contains("(a new file in notes/, 1 folder down)"));
        assert!(of("/notes/sub/../../x").contains("(does not say plainly where it leads)"));
        assert!(!of("/notesy/a.md").contains('('));
    }

    #[test]
    fn arguments_cannot_deceive_whoever_approves_them() {
        let (text, is_cut) = plain(&request(json!({ "text": "a\u{1b}[2Kb\u{202e}\u{200b}", "na\nme": "x".repeat(400) })), 300);
        let bad = ['\u{1b}', '\u{202e}', '\u{200b}'];
        assert!(!text.contains(bad) && text.lines().count() == 3, "{text}");
        assert!(is_cut && text.contains("102 characters more"), "{text}");
        let (text, _) = plain(&request(json!({ "to": "p\u{430}ypal" })), 300);
        assert!(text.contains("several alphabets"), "{text}");
        let (text, _) = plain(&request(json!({ "to": [{ "name": "p\u{430}ypal" }] })), 300);
        assert!(text.contains("several alphabets"), "{text}");
    }

    #[test]
    fn a_follow_up_says_who_wants_it() {
        let (text, _) = plain(&ApprovalRequest { asked_by: Some("sneaky".into()), ..request(json!({})) }, 300);
        assert!(text.contains("notes.save wants to run for librarian, as a follow-up that sneaky asks for   policy"), "{text}");
    }

    #[test]
    fn names_of_arguments_are_told_apart() {
        let long = "k".repeat(400);
        let arguments = json!({ format!("{long}a"): 1, format!("{long}b"): 2, "two words": 3, "two  words": 4 });
        let (text, is_cut) = plain(&request(arguments.clone()), 300);
        assert!(is_cut && text.contains("101 characters more") && text.contains("\"two  words\""), "{text}");
        let (text, is_cut) = plain(&request(arguments), usize::MAX);
        assert!(!is_cut && text.contains(&format!("{long}a")) && text.contains(&format!("{long}b")), "{text}");
    }
}
