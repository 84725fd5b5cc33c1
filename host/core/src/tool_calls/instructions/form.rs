//! The template of a call in XML for each tool (L-130).

use serde_json::{Map, Value};

use super::super::xml;
use super::shown_schema::cleaned;
use crate::tool_calls::toolbox::TaskTool;

/// The limits of elements and of their depth in one template: a schema may refer to itself.
const ELEMENTS_MAX: usize = 100;
const DEPTH_MAX: usize = 8;

/// The template of a call.
pub(super) fn form(tool: &TaskTool) -> String {
    let schema = cleaned(&tool.summary.input_schema);
    let mut blank = Blank { root: &schema, remaining: ELEMENTS_MAX };
    xml::render(&tool.summary.name, &blank.fields(&schema, 0), &schema)
}

/// Whether one of the tool's fields is verbatim.
pub(super) fn has_verbatim(tool: &TaskTool) -> bool {
    form(tool).contains("<![CDATA[")
}

struct Blank<'a> {
    root: &'a Value,
    remaining: usize,
}

impl<'a> Blank<'a> {
    fn fields(&mut self, schema: &'a Value, depth: usize) -> Value {
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        // The parser ignores names that begin with `_` (L-130).
        let fields = fields.filter(|(name, _)| !name.starts_with('_'));
        let mut blanks = Map::new();
        for (name, field) in fields {
            if self.remaining == 0 {
                break;
            }
            self.remaining -= 1;
            blanks.insert(name.clone(), self.value(field, depth + 1));
        }
        Value::Object(blanks)
    }

    fn value(&mut self, schema: &'a Value, depth: usize) -> Value {
        let schema = self.real(schema);
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            let some: Vec<String> = choices
                .iter()
                .take(8)
                .map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned))
                .collect();
            return some.join(" or ").into();
        }
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => kind,
            Some(Value::Array(kinds)) => kinds
                .iter()
                .filter_map(Value::as_str)
                .find(|kind| *kind != "null")
                .unwrap_or_default(),
            _ => "",
        };
        match kind {
            "object" if schema.get("properties").is_some() && depth < DEPTH_MAX => {
                self.fields(schema, depth)
            }
            "array" if depth < DEPTH_MAX => {
                self.remaining = self.remaining.saturating_sub(1);
                let item = schema
                    .get("items")
                    .map_or_else(|| "VALUE".into(), |items| self.value(items, depth + 1));
                Value::Array(vec![item])
            }
            "string" => "TEXT".into(),
            "integer" => "WHOLE NUMBER".into(),
            "number" => "NUMBER".into(),
            "boolean" => "TRUE OR FALSE".into(),
            _ => "VALUE".into(),
        }
    }

    /// The schema behind a reference or an optional type.
    fn real(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..DEPTH_MAX {
            let target = schema
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|reference| self.root.pointer(reference.strip_prefix('#')?));
            let is_null = |choice: &&Value| choice.get("type").is_some_and(|kind| kind == "null");
            let choice = || {
                schema
                    .get("anyOf")
                    .or(schema.get("oneOf"))?
                    .as_array()?
                    .iter()
                    .find(|choice| !is_null(choice))
            };
            let Some(next) = target.or_else(choice) else { break };
            schema = next;
        }
        schema
    }
}
