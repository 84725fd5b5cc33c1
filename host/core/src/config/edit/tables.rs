//! Whole tables that are added to a config: a plugin, rules of the policy.

use super::statements::{Statements, last_byte, line_end, line_start, newline, replaced, spans};
use crate::types::wording::{plain, quoted};

/// Adds a plugin: behind the last one, else before the first header, else at the end.
pub(super) fn add_plugin(
    config: &Statements<'_>,
    name: &str,
    source: &str,
    comment: &[String],
) -> String {
    let printable = |line: &String| line.chars().map(plain).collect::<String>();
    let mut lines: Vec<String> =
        comment.iter().map(|line| format!("# {}", printable(line))).collect();
    lines.extend([format!("[plugins.{name}]"), format!("source = {}", quoted(source))]);
    insert(config.text, plugin_place(config), &lines)
}

/// Adds rules, whole tables with their headers: before the rule of this index, else behind the
/// last, else at the end. `None` if there is no such rule.
pub(super) fn add_rules(
    config: &Statements<'_>,
    before: Option<usize>,
    rules: &[String],
) -> Option<String> {
    let text = config.text;
    let policy = config.find(&["policy"]);
    let at = match (before, policy) {
        (Some(index), _) => {
            let header = policy?.as_array_of_tables()?.get(index)?.span()?;
            before_comments(text, line_start(text, header.start))
        }
        // Behind a policy in brackets the result is no TOML, and the edit is refused for that.
        (None, Some(item)) => line_end(text, last_byte(item)?),
        (None, None) => text.len(),
    };
    let rules: Vec<&str> = rules.iter().map(|rule| rule.trim_end()).collect();
    let lines: Vec<String> = rules.join("\n\n").lines().map(str::to_owned).collect();
    Some(insert(text, at, &lines))
}

/// Inserts lines at the start of a line, or at the end, with blank lines around them.
fn insert(text: &str, at: usize, lines: &[String]) -> String {
    let (above, below, newline) = (&text[..at], &text[at..], newline(text));
    let end = if above.is_empty() || above.ends_with('\n') { "" } else { newline };
    let is_apart = above.lines().next_back().is_none_or(|line| line.trim().is_empty());
    let before = if is_apart { "" } else { newline };
    let after = if below.is_empty() || below.starts_with(['\r', '\n']) { "" } else { newline };
    let block = lines.join(newline);
    replaced(text, at..at, &format!("{end}{before}{block}{newline}{after}"))
}

fn plugin_place(config: &Statements<'_>) -> usize {
    let text = config.text;
    let starts = spans(config.root()).into_iter().map(|span| line_start(text, span.start));
    let first = starts.filter(|start| text[*start..].trim_start().starts_with('[')).min();
    let first = first.map(|start| before_comments(text, start));
    let last = config.find(&["plugins"]).and_then(last_byte);
    match (last, first) {
        // Plugins written with dots at the top: what follows them there must not come under the new
        // header.
        (Some(last), Some(first)) if last < first => first,
        (Some(last), Some(_)) => after_comments(text, line_end(text, last)),
        (None, Some(first)) => first,
        (_, None) => text.len(),
    }
}

/// The end of the comments directly below a plugin's last line, which are its own.
fn after_comments(text: &str, at: usize) -> usize {
    let comments = text[at..].split_inclusive('\n').take_while(|line| is_comment(line));
    at + comments.map(str::len).sum::<usize>()
}

/// The start of the comments directly above a header, which belong to it.
fn before_comments(text: &str, at: usize) -> usize {
    let comments = text[..at].split_inclusive('\n').rev().take_while(|line| is_comment(line));
    at - comments.map(str::len).sum::<usize>()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}
