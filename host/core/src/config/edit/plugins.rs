//! Where the plugins of a config stand, and where one more would.

use toml_edit::{Item, Table};

use super::place::TomlTree;
use super::scan::{Splice, apply, line_end, line_start, newline};
use crate::types::wording::plain;
use crate::types::wording::quoted;

/// The names of all plugins.
pub(super) fn names(plugins: &Item) -> Vec<String> {
    plugins
        .as_table_like()
        .map(|table| table.iter().map(|(name, _)| name.to_owned()).collect())
        .unwrap_or_default()
}

/// The text with one more plugin: behind the last one, else before the first header, else at the
/// end.
pub(super) fn add(
    tree: &TomlTree<'_>,
    name: &str,
    source: &str,
    comment: &[String],
) -> Option<String> {
    let text = tree.text();
    let newline = newline(text);
    let at = place(tree);
    let mut block = String::new();
    if !text[..at].is_empty() && !text[..at].ends_with('\n') {
        block.push_str(newline);
    }
    if !text[..at].trim_end_matches(['\r', '\n']).is_empty() && !ends_with_blank_line(&text[..at]) {
        block.push_str(newline);
    }
    for line in comment {
        block.push_str(&format!("# {}{newline}", line.chars().map(plain).collect::<String>()));
    }
    block.push_str(&format!("[plugins.{name}]{newline}source = {}{newline}", quoted(source)));
    if !text[at..].is_empty() && !text[at..].starts_with(['\r', '\n']) {
        block.push_str(newline);
    }
    Some(apply(text, vec![Splice::insert(at, block)]))
}

fn place(tree: &TomlTree<'_>) -> usize {
    let text = tree.text();
    let mut headers = Vec::new();
    collect_headers(tree.root(), &mut headers);
    let first_header =
        headers.iter().min().map(|start| before_comments(text, line_start(text, *start)));
    let last_plugin = tree.find(&["plugins"]).and_then(TomlTree::last_byte);
    match (last_plugin, first_header) {
        // Plugins written with dots at the top: what follows them there must not fall under the new
        // header.
        (Some(last), Some(first)) if last < first => first,
        (Some(last), Some(_)) => after_comments(text, line_end(text, last)),
        (_, None) => text.len(),
        (None, Some(first)) => first,
    }
}

fn collect_headers(table: &Table, headers: &mut Vec<usize>) {
    for (_, item) in table {
        match item {
            Item::Table(table) => {
                headers.extend(
                    table
                        .span()
                        .filter(|_| !table.is_implicit() && !table.is_dotted())
                        .map(|span| span.start),
                );
                collect_headers(table, headers);
            }
            Item::ArrayOfTables(tables) => {
                headers.extend(tables.iter().filter_map(Table::span).map(|span| span.start))
            }
            _ => {}
        }
    }
}

/// Comments directly below a plugin's last line are its own.
fn after_comments(text: &str, mut at: usize) -> usize {
    while at < text.len() && text[at..].trim_start_matches([' ', '\t']).starts_with('#') {
        at = line_end(text, at);
    }
    at
}

/// Comments directly above a header belong to it.
pub(super) fn before_comments(text: &str, mut at: usize) -> usize {
    while at > 0 {
        let line = line_start(text, at - 1);
        if !text[line..at].trim_start_matches([' ', '\t']).starts_with('#') {
            break;
        }
        at = line;
    }
    at
}

fn ends_with_blank_line(text: &str) -> bool {
    text.lines().next_back().is_some_and(|line| line.trim().is_empty())
}
