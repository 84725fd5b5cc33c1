//! The Python syntax in logs: values printed in derived lines, and editor calls stored as code
//! (O-044).

use serde_json::{Map, Value};

/// An object in the form of Python's `repr` of a dictionary.
pub(crate) fn repr_map(map: &Map<String, Value>) -> String {
    let items: Vec<String> =
        map.iter().map(|(key, value)| format!("{}: {}", repr_text(key), repr(value))).collect();
    format!("{{{}}}", items.join(", "))
}

fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => repr_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => repr_text(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(repr).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => repr_map(map),
    }
}

fn repr_float(float: f64) -> String {
    let text = format!("{float:?}");
    // Rust and Python switch to exponents at the same magnitudes, but Python writes the sign and
    // two digits.
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
    }
}

fn repr_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char == quote => out.extend(['\\', char]),
            char if char < ' ' || ('\u{7f}'..='\u{a0}').contains(&char) || char == '\u{ad}' => {
                out.push_str(&format!("\\x{:02x}", char as u32));
            }
            char => out.push(char),
        }
    }
    out.push(quote);
    out
}

/// Maximum nesting of a literal; the editor writes no deeper ones.
const DEPTH: usize = 32;

/// Parses a Python dictionary literal; `None` for anything else.
pub(crate) fn read_dictionary(source: &str) -> Option<Map<String, Value>> {
    let mut literal = Literal { rest: source };
    let value = literal.value(0)?;
    literal.skip_blanks();
    match value {
        Value::Object(map) if literal.rest.is_empty() => Some(map),
        _ => None,
    }
}

struct Literal<'a> {
    rest: &'a str,
}

impl Literal<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_blanks();
        if depth > DEPTH {
            return None;
        }
        match self.rest.chars().next()? {
            '{' => self.dictionary(depth),
            '[' => self.list("[", "]", depth),
            '(' => self.list("(", ")", depth),
            '\'' | '"' => self.strings().map(Value::String),
            _ => self.word(),
        }
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        self.eat("{");
        let mut map = Map::new();
        while !self.eat("}") {
            self.skip_blanks();
            let key = self.strings()?;
            self.eat(":").then_some(())?;
            map.insert(key, self.value(depth + 1)?);
            if !self.eat(",") {
                self.eat("}").then_some(())?;
                break;
            }
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, open: &str, close: &str, depth: usize) -> Option<Value> {
        self.eat(open);
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.value(depth + 1)?);
            if !self.eat(",") {
                self.eat(close).then_some(())?;
                break;
            }
        }
        Some(Value::Array(items))
    }

    fn word(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|char: char| !(char.is_ascii_alphanumeric() || "+-._".contains(char)))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "None" => Some(Value::Null),
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            _ => word.parse::<i64>().map(Value::from).ok().or_else(|| {
                word.parse::<f64>().ok().filter(|float| float.is_finite()).map(Value::from)
            }),
        }
    }

    /// Parses adjacent strings, which Python concatenates.
    fn strings(&mut self) -> Option<String> {
        let mut text = self.string()?;
        loop {
            self.skip_blanks();
            if !self.rest.starts_with(['\'', '"']) {
                return Some(text);
            }
            text.push_str(&self.string()?);
        }
    }

    fn string(&mut self) -> Option<String> {
        let quote =
            ["'''", "\"\"\"", "'", "\""].into_iter().find(|quote| self.rest.starts_with(quote))?;
        self.rest = &self.rest[quote.len()..];
        let mut text = String::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(quote) {
                self.rest = rest;
                return Some(text);
            }
            let char = self.next()?;
            match char {
                '\\' => self.escape(&mut text)?,
                '\n' if quote.len() == 1 => return None,
                char => text.push(char),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let char = chars.next()?;
        self.rest = chars.as_str();
        Some(char)
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let char = self.next()?;
        match char {
            '\n' => {}
            '\\' | '\'' | '"' => text.push(char),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'v' => text.push('\u{b}'),
            'x' => text.push(self.code(2, 16)?),
            'u' => text.push(self.code(4, 16)?),
            'U' => text.push(self.code(8, 16)?),
            '0'..='7' => {
                let more =
                    self.rest.chars().take(2).take_while(|char| ('0'..='7').contains(char)).count();
                let digits = format!("{char}{}", &self.rest[..more]);
                self.rest = &self.rest[more..];
                text.push(char::from_u32(u32::from_str_radix(&digits, 8).ok()?)?);
            }
            other => text.extend(['\\', other]),
        }
        Some(())
    }

    fn code(&mut self, digits: usize, radix: u32) -> Option<char> {
        let digits = self.rest.get(..digits)?;
        self.rest = &self.rest[digits.len()..];
        char::from_u32(u32::from_str_radix(digits, radix).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dictionary_is_printed_as_python_does() {
        let map =
            json!({"a": 1, "b": [true, null, 1.5, 1e20, 1e-7], "c": "it's", "d": "a\"b'\n\u{1}"});
        let printed = repr_map(map.as_object().expect("an object"));
        assert_eq!(
            printed,
            r#"{'a': 1, 'b': [True, None, 1.5, 1e+20, 1e-07], 'c': "it's", 'd': 'a"b\'\n\x01'}"#
        );
    }

    #[test]
    fn a_literal_is_read() {
        let read = read_dictionary(
            r#"{'a': 'x\n\'y\'', "b": [1, -2.5, (None,)], 'c': True, 'd': '''q'r''' 's', 'e': "\u00e9\x41\101",}"#,
        );
        let expected =
            json!({"a": "x\n'y'", "b": [1, -2.5, [null]], "c": true, "d": "q'rs", "e": "éAA"});
        assert_eq!(read.map(Value::Object), Some(expected));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for source in [
            "",
            "{",
            "{'a'}",
            "{'a': f()}",
            "[1]",
            "{'a': 1} + 1",
            "{'a': 'b",
            "{'a': '\\x4'}",
            &"{'a':[".repeat(500),
        ] {
            assert_eq!(read_dictionary(source), None, "{source}");
        }
    }
}
