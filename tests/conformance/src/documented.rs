//! Differences between a case and the host, matched with the rows of docs/migrate/differences.md.
//! Each pack selects the rows that apply to a case. This module decides for all packs which
//! differences a row explains.

use std::fmt;

use serde_json::Value;

use crate::End;

/// One difference between the expectation and the host's report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The dotted path with list indices: `.tree.subtasks[0].state`.
    pub(crate) path: String,
    /// `None` if the host reports more than is expected.
    pub(crate) expected: Option<Value>,
    /// `None` if the host reports nothing.
    pub(crate) got: Option<Value>,
}

impl Difference {
    pub(crate) fn new(path: &str, expected: Option<&Value>, got: Option<&Value>) -> Self {
        Self { path: path.to_owned(), expected: expected.cloned(), got: got.cloned() }
    }

    /// Returns the path as rows name it, without list indices.
    fn key(&self) -> String {
        let parts = self.path.trim_start_matches('.').split('[');
        parts.map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.expected, &self.got) {
            (Some(expected), Some(got)) => write!(out, "{path}: expected {expected}, got {got}"),
            (Some(expected), None) => write!(out, "{path}: expected {expected}, and there is none"),
            (None, _) => write!(out, "{path}: is there, and was not expected"),
        }
    }
}

/// The host's report at a key that may differ.
#[derive(Clone, Debug)]
pub(crate) enum Host {
    /// This whole value.
    Is(Value),
    /// A text without this sentence of the reference.
    Without(&'static str),
    /// A value that no rule computes.
    Any,
}

/// A row of docs/migrate/differences.md as it applies to one case.
#[derive(Clone, Debug)]
pub(crate) struct Documented {
    /// The rule and its text.
    pub(crate) row: &'static str,
    /// The keys that may differ. `tree**state` is each `state` below `tree`.
    pub(crate) keys: Vec<(&'static str, Host)>,
}

impl Documented {
    pub(crate) fn new(
        row: &'static str,
        keys: impl IntoIterator<Item = (&'static str, Host)>,
    ) -> Self {
        Self { row, keys: keys.into_iter().collect() }
    }

    /// Returns whether this row explains the difference: it names the key, and the report has the
    /// value of the row.
    fn explains(&self, difference: &Difference, got: &Value) -> bool {
        let path = difference.key();
        self.keys.iter().any(|(key, host)| {
            let (is_there, value) = match key.split_once("**") {
                Some((above, below)) => {
                    (path.starts_with(above) && path.ends_with(below), difference.got.as_ref())
                }
                None => (
                    path == *key
                        || path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')),
                    key.split('.').try_fold(got, |value, part| value.get(part)),
                ),
            };
            is_there
                && match host {
                    Host::Is(wanted) => value.unwrap_or(&Value::Null) == wanted,
                    Host::Without(sentence) => {
                        difference.expected.as_ref().is_some_and(|expected| expected == sentence)
                    }
                    Host::Any => true,
                }
        })
    }
}

/// Returns how a case ended. It differs as documented only if a row explains every difference; a
/// single unexplained difference is a failure.
pub(crate) fn end(
    expected: &Value,
    got: Value,
    differences: &[Difference],
    rows: &[Documented],
) -> End {
    if differences.is_empty() {
        return End::Passed;
    }
    let shown = |rows: Vec<&str>| {
        let rows = rows.into_iter().map(str::to_owned);
        rows.chain(differences.iter().map(ToString::to_string)).collect()
    };
    let row_of = |difference: &Difference| rows.iter().find(|row| row.explains(difference, &got));
    match differences.iter().map(row_of).collect::<Option<Vec<_>>>() {
        Some(found) => {
            let mut found: Vec<&str> = found.into_iter().map(|row| row.row).collect();
            found.dedup();
            End::Otherwise { differences: shown(found) }
        }
        None => End::Failed { expected: expected.clone(), differences: shown(Vec::new()), got },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> Documented {
        Documented::new(
            "O-000",
            [("a.b", Host::Is(json!(1))), ("tree**state", Host::Is(json!("open")))],
        )
    }

    fn ended(differences: &[Difference], got: Value, rows: &[Documented]) -> &'static str {
        match end(&json!({}), got, differences, rows) {
            End::Passed => "passed",
            End::Otherwise { .. } => "otherwise",
            _ => "failed",
        }
    }

    fn difference(path: &str, got: Value) -> Difference {
        Difference { path: path.to_owned(), expected: Some(json!("x")), got: Some(got) }
    }

    #[test]
    fn a_case_differs_as_documented_only_where_its_row_says_so() {
        let got = json!({ "a": { "b": 1 }, "c": 2 });
        let named = difference(".a.b", json!(1));
        assert_eq!(ended(std::slice::from_ref(&named), got.clone(), &[row()]), "otherwise");
        assert_eq!(ended(&[], got.clone(), &[row()]), "passed", "a case that agrees passes");
        assert_eq!(
            ended(std::slice::from_ref(&named), got.clone(), &[]),
            "failed",
            "no row applies"
        );
        let another = difference(".c", json!(2));
        assert_eq!(
            ended(&[named.clone(), another], got, &[row()]),
            "failed",
            "another key differs, too"
        );
        let wrong = json!({ "a": { "b": 3 } });
        assert_eq!(ended(&[named], wrong, &[row()]), "failed", "the host reports something else");
    }

    #[test]
    fn a_row_names_a_key_everything_below_it_or_one_name_in_a_tree() {
        let any = Documented::new("O-000", [("list", Host::Any)]);
        assert_eq!(
            ended(&[difference(".list[0].x[1]", json!(1))], json!({}), std::slice::from_ref(&any)),
            "otherwise"
        );
        assert_eq!(ended(&[difference(".lists", json!(1))], json!({}), &[any]), "failed");
        let state = |value: &str| difference(".tree.subtasks[0].state", json!(value));
        assert_eq!(ended(&[state("open")], json!({}), &[row()]), "otherwise");
        assert_eq!(ended(&[state("completed")], json!({}), &[row()]), "failed");
        assert_eq!(
            ended(&[difference(".tree.goal", json!("open"))], json!({}), &[row()]),
            "failed"
        );
    }

    #[test]
    fn a_sentence_that_the_host_has_not_is_one_sentence() {
        let rows = [Documented::new("R-000", [("text_contains", Host::Without("x"))])];
        assert_eq!(
            ended(&[difference(".text_contains[0]", json!("y"))], json!({}), &rows),
            "otherwise"
        );
        let other = Difference {
            expected: Some(json!("z")),
            ..difference(".text_contains[0]", json!("y"))
        };
        assert_eq!(ended(&[other], json!({}), &rows), "failed");
    }
}
