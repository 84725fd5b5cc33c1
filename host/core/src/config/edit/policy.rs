//! Where rules of the policy stand, and where more of them would: before a rule, behind the last,
//! or at the end.

use toml_edit::{ArrayOfTables, Item, Table};

use super::place::TomlTree;
use super::plugins::before_comments;
use super::scan::{Splice, apply, line_end, line_start, newline};

/// The text with more rules, whole tables with their headers; none where the policy is written in
/// brackets, or has no such rule.
pub(super) fn add(tree: &TomlTree<'_>, before: Option<usize>, rules: &[String]) -> Option<String> {
    let text = tree.text();
    let newline = newline(text);
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| rule.trim_end().lines().collect::<Vec<_>>().join(newline))
        .collect();
    let rules = rules.join(&format!("{newline}{newline}"));
    let tables = match tree.find(&["policy"]) {
        None => None,
        Some(Item::ArrayOfTables(tables)) => Some(tables),
        Some(_) => return None,
    };
    if let Some(index) = before {
        let start = tables?.get(index).and_then(Table::span)?.start;
        let at = before_comments(text, line_start(text, start));
        return Some(apply(text, vec![Splice::insert(at, format!("{rules}{newline}{newline}"))]));
    }
    let at = tables.and_then(end_of).map_or(text.len(), |last| line_end(text, last));
    let lead = match (text[..at].is_empty(), text[..at].ends_with('\n')) {
        (true, _) => String::new(),
        (false, true) => newline.to_owned(),
        (false, false) => newline.repeat(2),
    };
    Some(apply(text, vec![Splice::insert(at, format!("{lead}{rules}{newline}"))]))
}

fn end_of(tables: &ArrayOfTables) -> Option<usize> {
    TomlTree::last_byte(&Item::ArrayOfTables(tables.clone()))
}

#[cfg(test)]
mod tests {
    use crate::config::edit::{ConfigEditError, ConfigText};

    const TOP: &str =
        "entry = \"t\"\n[plugins.p]\nsource = \"stock:chat\"\n[tasks.t]\nagent = \"p\"\n";
    const RULE: &str = "[[policy]]\ntool = \"p.b\"\ndecide = \"allow\"\n";

    fn added(text: &str, before: Option<usize>) -> String {
        let mut edit = ConfigText::open("conclave.toml", "", text).expect("it is TOML");
        edit.add_rules(before, &[RULE.to_owned()]).expect("there is a place");
        let edited = edit.finish().expect("it is right");
        let config = edited.config.expect("it is whole");
        let at = before.unwrap_or(config.policy.len() - 1);
        assert_eq!(config.policy[at].tool.0, "p.b", "{}", edited.text);
        edited.text
    }

    #[test]
    fn a_rule_is_written_behind_the_others_or_at_the_end() {
        assert_eq!(added(TOP, None), format!("{TOP}\n{RULE}"));
        assert_eq!(added(TOP.trim_end(), None), format!("{TOP}\n{RULE}"));
        let one = "\n[[policy]] # mine\ntool = \"p.*\"\ndecide = \"ask\"  # of course\n";
        let limits = "\n# all\n[limits.run]\nturns = 3\n";
        assert_eq!(
            added(&format!("{TOP}{one}{limits}"), None),
            format!("{TOP}{one}\n{RULE}{limits}")
        );
    }

    #[test]
    fn a_rule_is_written_before_another_and_its_comment() {
        let one = "[[policy]]\ntool = \"p.a\"\ndecide = \"deny\"\n";
        let two = "# what p does\n[[policy]]\ntool = \"p.*\"\ndecide = \"ask\"\n";
        assert_eq!(
            added(&format!("{TOP}{one}\n{two}"), Some(1)),
            format!("{TOP}{one}\n{RULE}\n{two}")
        );
        let (top, crlf) = (TOP.replace('\n', "\r\n"), two.replace('\n', "\r\n"));
        let expected = format!("{top}{}\r\n{crlf}", RULE.replace('\n', "\r\n"));
        assert_eq!(added(&format!("{top}{crlf}"), Some(0)), expected);
    }

    #[test]
    fn a_policy_in_brackets_is_edited_by_hand() {
        let text = format!("policy = [{{ tool = \"p.*\", decide = \"ask\" }}]\n{TOP}");
        let mut edit = ConfigText::open("conclave.toml", "", &text).expect("it is TOML");
        assert!(matches!(
            edit.add_rules(Some(0), &[RULE.to_owned()]),
            Err(ConfigEditError::Form(_))
        ));
        assert!(matches!(edit.add_rules(None, &[RULE.to_owned()]), Err(ConfigEditError::Form(_))));
    }
}
