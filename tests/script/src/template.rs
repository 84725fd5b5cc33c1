//! Templates: `{name}` and `{name op name-or-integer}` without blanks. Unknown names stay
//! unchanged, and so do the braces of JSON.

use serde_json::{Map, Number, Value};

use crate::text::{integer, integer_of, text_of};

/// The names that a template may use, each with its value.
#[derive(Clone, Debug, Default)]
pub struct Scope(Map<String, Value>);

impl Scope {
    /// Creates a scope with `content`, and with `n` if the content is an integer.
    #[must_use]
    pub fn of_content(content: &str) -> Self {
        let mut names = Map::new();
        names.insert("content".to_owned(), content.into());
        if let Some(number) = integer(content).and_then(number) {
            names.insert("n".to_owned(), number);
        }
        Self(names)
    }

    /// Creates a scope with the arguments of a tool.
    #[must_use]
    pub fn of_arguments(arguments: Map<String, Value>) -> Self {
        Self(arguments)
    }

    /// Returns the value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns a template's value: the placeholder's value if the template is a single placeholder,
    /// else text.
    #[must_use]
    pub fn fill(&self, template: &str) -> Value {
        if let Some((value, rest)) =
            template.strip_prefix('{').and_then(|inner| self.placeholder(inner))
            && rest.is_empty()
        {
            return value;
        }
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            let inner = &rest[open + 1..];
            match self.placeholder(inner) {
                Some((value, after)) => {
                    out.push_str(&text_of(&value));
                    rest = after;
                }
                None => {
                    out.push('{');
                    rest = inner;
                }
            }
        }
        out.push_str(rest);
        Value::String(out)
    }

    /// Returns a template's value as text.
    #[must_use]
    pub fn fill_text(&self, template: &str) -> String {
        text_of(&self.fill(template))
    }

    /// Fills every text inside a value. Keys stay unchanged.
    #[must_use]
    pub fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(template) => self.fill(template),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(fields) => Value::Object(self.fill_fields(fields)),
            other => other.clone(),
        }
    }

    /// Fills the fields of an object.
    #[must_use]
    pub fn fill_fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        fields.iter().map(|(name, value)| (name.clone(), self.fill_value(value))).collect()
    }

    /// Returns the value of the placeholder behind an opening brace, and the text behind the
    /// closing one. `None` if it is no placeholder.
    fn placeholder<'t>(&self, inner: &'t str) -> Option<(Value, &'t str)> {
        let (expression, rest) = inner.split_once('}')?;
        let name_end = expression.find(|c: char| !is_word(c)).unwrap_or(expression.len());
        let (name, operation) = expression.split_at(name_end);
        let value = self.get(name)?;
        let mut operation = operation.chars();
        let Some(operator) = operation.next() else { return Some((value.clone(), rest)) };
        let left = integer_of(value)?;
        let right = self.operand(operation.as_str())?;
        let result = match operator {
            '+' => left.checked_add(right),
            '-' => left.checked_sub(right),
            '*' => left.checked_mul(right),
            '/' => floor_div(left, right),
            '%' => floor_div(left, right)
                .and_then(|quotient| left.checked_sub(quotient.checked_mul(right)?)),
            _ => None,
        };
        Some((number(result?)?, rest))
    }

    fn operand(&self, text: &str) -> Option<i128> {
        match self.get(text) {
            Some(value) => integer_of(value),
            None if text.chars().all(|c| c.is_ascii_digit() || c == '-') => text.parse().ok(),
            None => None,
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn number(value: i128) -> Option<Value> {
    let number =
        i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from));
    number.ok().map(Value::Number)
}

/// Divides and rounds toward negative infinity, for any signs.
fn floor_div(left: i128, right: i128) -> Option<i128> {
    let quotient = left.checked_div(right)?;
    let is_inexact = left.checked_rem(right)? != 0;
    Some(if is_inexact && (left < 0) != (right < 0) { quotient - 1 } else { quotient })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_filled_and_everything_else_stays() {
        let scope = Scope::of_content("7");
        let cases = [
            ("{n}", json!(7)),
            ("{content}", json!("7")),
            ("{n+1}", json!(8)),
            ("{n-10}", json!(-3)),
            ("{n*n}", json!(49)),
            ("{n/2}", json!(3)),
            ("{n%4}", json!(3)),
            ("{n/-2}", json!(-4)),
            ("{n%-2}", json!(-1)),
            ("{n/0}", json!("{n/0}")),
            ("{n + 1}", json!("{n + 1}")),
            ("{m}", json!("{m}")),
            ("{n+m}", json!("{n+m}")),
            ("a{n}b", json!("a7b")),
            ("{n}{n}", json!("77")),
            ("{{n}}", json!("{7}")),
            (r#"{"x": {n}}"#, json!(r#"{"x": 7}"#)),
            ("{n", json!("{n")),
            ("{}", json!("{}")),
        ];
        for (template, expected) in cases {
            assert_eq!(scope.fill(template), expected, "{template}");
        }
        assert_eq!(Scope::of_content("x").fill("{n}"), json!("{n}"));
    }

    #[test]
    fn values_keep_their_types() {
        let arguments = json!({ "x": 4, "list": [1], "s": "5" });
        let scope = Scope::of_arguments(arguments.as_object().cloned().unwrap_or_default());
        assert_eq!(
            scope.fill_value(&json!({ "a": "{x}", "b": ["{x+1}", 2], "c": "{list}" })),
            json!({ "a": 4, "b": [5, 2], "c": [1] })
        );
        assert_eq!(scope.fill("{s+1}"), json!(6));
        assert_eq!(scope.fill("got {list}"), json!("got [1]"));
    }
}
