//! `when`: conditions on the text, or on one argument.

use serde::Deserialize;
use serde_json::Value;

use crate::template::Scope;
use crate::text::{integer_of, text_of};

/// A condition. All given parts must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The argument to check. `None` for `content`.
    arg: Option<String>,
    /// Compared as text.
    eq: Option<Value>,
    /// Ignores case.
    contains: Option<String>,
    /// Whether it is an integer.
    int: Option<bool>,
    /// The divisor and the remainder.
    #[serde(rename = "mod")]
    modulo: Option<(i64, i64)>,
    gt: Option<i64>,
}

impl Condition {
    /// Returns whether the condition holds.
    #[must_use]
    pub fn holds(&self, scope: &Scope) -> bool {
        let value = scope.get(self.arg.as_deref().unwrap_or("content")).unwrap_or(&Value::Null);
        let number = integer_of(value);
        self.eq.as_ref().is_none_or(|eq| text_of(eq) == text_of(value))
            && self
                .contains
                .as_ref()
                .is_none_or(|part| text_of(value).to_lowercase().contains(&part.to_lowercase()))
            && self.int.is_none_or(|int| int == number.is_some())
            && self.modulo.is_none_or(|(divisor, rest)| {
                number.is_some_and(|number| floor_mod(number, divisor.into()) == Some(rest.into()))
            })
            && self.gt.is_none_or(|least| number.is_some_and(|number| number > i128::from(least)))
    }
}

/// Returns the remainder with the sign of the divisor.
fn floor_mod(number: i128, divisor: i128) -> Option<i128> {
    let rest = number.checked_rem(divisor)?;
    Some(if rest != 0 && (rest < 0) != (divisor < 0) { rest + divisor } else { rest })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_is_given_must_hold() {
        let cases = [
            (json!({}), "x", true),
            (json!({ "eq": "3" }), "3", true),
            (json!({ "eq": 3 }), "3", true),
            (json!({ "eq": "3" }), " 3", false),
            (json!({ "contains": "HEL" }), "ahelo", true),
            (json!({ "int": true }), "x", false),
            (json!({ "int": true }), " -4 ", true),
            (json!({ "mod": [10, 0], "gt": 0 }), "20", true),
            (json!({ "mod": [10, 0], "gt": 20 }), "20", false),
            (json!({ "mod": [3, 2] }), "-1", true),
            (json!({ "mod": [0, 0] }), "1", false),
            (json!({ "arg": "y", "eq": 1 }), "1", false),
        ];
        for (condition, content, expected) in cases {
            let read: Condition =
                serde_json::from_value(condition.clone()).expect("it is a condition");
            assert_eq!(
                read.holds(&Scope::of_content(content)),
                expected,
                "{condition} {content:?}"
            );
        }
    }
}
