//! A tool's description and schemas in rows, for `plugin inspect`. All of it is a plugin's text, so
//! it stands behind marks; `--json` has it whole.

use anstyle::Style;
use conclave_core::tool_calls::arguments::limits;
use conclave_core::types::tool::{ToolSpec, ToolSummary};
use serde_json::{Map, Value};

use super::entry::EntryText;
use super::foreign::{MARK, MARK_COLUMNS};
use super::{FAINT, NAME, amounts, foreign, one_line, paint};

/// Tools that are shown; a component may have any number.
const TOOLS: usize = 40;
/// Arguments of a tool that are shown.
const ARGUMENTS: usize = 24;
/// Rows of an argument, at most.
const ARGUMENT_ROWS: usize = 4;
/// Columns of a name.
const WORD: usize = 64;
/// Columns in front of the mark.
const INDENT: usize = 4;
/// Schemas within schemas that are read for one argument's type.
const DEPTH: usize = 3;
/// Alternatives that are named; a longer list is cut.
const ALTERNATIVES: usize = 8;

/// The tools in rows of at most `columns` columns.
pub(crate) fn tools(tools: &[ToolSpec], columns: usize) -> Vec<String> {
    let mut rows: Vec<String> =
        tools.iter().take(TOOLS).flat_map(|tool| self::tool(tool, columns)).collect();
    if let Some(more) = tools.len().checked_sub(TOOLS).filter(|more| *more > 0) {
        rows.push(paint(FAINT, format_args!("  … {more} more; `--json` has them all")));
    }
    rows
}

fn tool(tool: &ToolSpec, columns: usize) -> Vec<String> {
    let mut facts = Vec::new();
    if tool.idempotent {
        facts.push("idempotent".to_owned());
    }
    if let Some(tokens) = tool.result_tokens {
        facts.push(format!("at most {} tokens", amounts::count(tokens)));
    }
    if let Some(tokens) = tool.retained_tokens {
        facts.push(format!("{} retained", amounts::count(tokens)));
    }
    let facts: String = facts.iter().map(|fact| format!(" · {fact}")).collect();
    let mut rows =
        vec![format!("  {}{}", paint(NAME, one_line(&tool.name, WORD)), paint(FAINT, facts))];
    let mut put = |entry: EntryText| {
        rows.extend(below_name(&entry, columns));
    };
    if let Some(title) = &tool.title {
        put(EntryText::new(FAINT, "title").cut(Style::new(), title));
    }
    put(EntryText::default().in_full(Style::new(), tool.description.trim()));
    let arguments = arguments(&tool.input_schema);
    for argument in arguments.iter().take(ARGUMENTS) {
        rows.extend(takes(argument, columns));
    }
    let mut put = |entry: EntryText| {
        rows.extend(below_name(&entry, columns));
    };
    if let Some(more) = arguments.len().checked_sub(ARGUMENTS).filter(|more| *more > 0) {
        put(EntryText::new(FAINT, format!("… {more} more; `--json` has them all")));
    }
    if let Some(schema) = &tool.output_schema {
        put(EntryText::new(FAINT, "returns").cut(Style::new(), &shape(schema, 0)));
    }
    for example in &tool.examples {
        let thought = example.thought.as_ref().map(|text| format!("{text}: ")).unwrap_or_default();
        let text = format!("{thought}{}", example.arguments);
        put(EntryText::new(FAINT, "example").cut(Style::new(), &text));
    }
    rows
}

/// A tool as a model reads it, without its schema's details: its name, the first line of its
/// description, and its arguments.
pub(crate) fn summary(tool: &ToolSummary, columns: usize) -> Vec<String> {
    let mut rows = vec![format!("  {}", paint(NAME, one_line(&tool.name, WORD)))];
    let described = tool.description.trim().lines().next().unwrap_or_default();
    if !described.is_empty() {
        rows.extend(below_name(&EntryText::default().cut(Style::new(), described), columns));
    }
    for argument in arguments(&tool.input_schema) {
        let entry = EntryText::new(FAINT, "takes").cut(Style::new(), &argument);
        rows.extend(below_name(&entry, columns));
    }
    rows
}

/// Returns the rows of an argument. A whole sentence about it fits a few rows of a narrow terminal.
fn takes(argument: &str, columns: usize) -> Vec<String> {
    let (label, mark) = ("takes ", paint(FAINT, MARK.trim_end()));
    let room = columns.saturating_sub(INDENT + label.len() + MARK_COLUMNS);
    let one_line = argument.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rows = foreign::rows(&one_line, room);
    if rows.len() > ARGUMENT_ROWS {
        let rest = rows.split_off(ARGUMENT_ROWS - 1).concat();
        rows.push(foreign::one_row(&rest, room).0);
    }
    let row = |(index, row): (usize, &String)| {
        let label = if index == 0 { label } else { "" };
        format!(
            "{:INDENT$}{}{mark} {}",
            "",
            paint(FAINT, format_args!("{label:6}")),
            row.trim_end()
        )
    };
    rows.iter().enumerate().map(row).collect()
}

/// Returns the rows of an entry below the name of its tool.
fn below_name(entry: &EntryText, columns: usize) -> impl Iterator<Item = String> {
    let rows = entry.rows(columns.saturating_sub(INDENT));
    rows.into_iter().map(|row| format!("{:INDENT$}{row}", ""))
}

/// A line for each argument: `query: string · The text to find.` A `?` marks an argument that
/// may be left out.
fn arguments(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(|(name, argument)| {
            let mark = if is_required(schema, name) { "" } else { "?" };
            let text = argument["description"].as_str().unwrap_or_default();
            let text = if text.is_empty() { String::new() } else { format!(" · {text}") };
            format!("{name}{mark}: {}{text}", shape(argument, 0))
        })
        .collect()
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name))
}

/// The shape of a schema's values: `integer 1…10`, `[string]`, `"a" | "b"`, `{place: text}`.
fn shape(schema: &Value, depth: usize) -> String {
    let Some(schema) = schema.as_object().filter(|_| depth <= DEPTH) else {
        return "…".to_owned();
    };
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    let alternatives = ["enum", "anyOf", "oneOf"].iter().find_map(|key| {
        let values = schema.get(*key)?.as_array()?;
        Some(values.iter().map(|value| match *key {
            "enum" => value.to_string(),
            _ => shape(value, depth + 1),
        }))
    });
    if let Some(alternatives) = alternatives {
        let all = alternatives.len();
        let mut parts: Vec<String> = alternatives.take(ALTERNATIVES).collect();
        if all > ALTERNATIVES {
            parts.push("…".to_owned());
        }
        return parts.join(" | ");
    }
    match schema.get("type") {
        Some(Value::String(kind)) => typed(schema, kind, depth),
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().filter_map(Value::as_str).take(ALTERNATIVES);
            kinds.map(|kind| typed(schema, kind, depth)).collect::<Vec<_>>().join(" | ")
        }
        _ if schema.contains_key("properties") => typed(schema, "object", depth),
        _ => "any".to_owned(),
    }
}

fn typed(schema: &Map<String, Value>, kind: &str, depth: usize) -> String {
    let shape = unlimited(schema, kind, depth);
    match limits(schema, kind) {
        Some(limits) => format!("{shape} {limits}"),
        None => shape,
    }
}

/// The shape without the limits of its values.
fn unlimited(schema: &Map<String, Value>, kind: &str, depth: usize) -> String {
    match (kind, schema.get("items"), schema.get("properties").and_then(Value::as_object)) {
        ("array", Some(items), _) => format!("[{}]", shape(items, depth + 1)),
        ("object", _, Some(fields)) if !fields.is_empty() => {
            let object = Value::Object(schema.clone());
            let mut parts: Vec<String> = fields
                .iter()
                .take(ALTERNATIVES)
                .map(|(name, field)| {
                    let mark = if is_required(&object, name) { "" } else { "?" };
                    format!("{name}{mark}: {}", shape(field, depth + 1))
                })
                .collect();
            if fields.len() > ALTERNATIVES {
                parts.push("…".to_owned());
            }
            format!("{{{}}}", parts.join(", "))
        }
        _ => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::tool::ToolExample;
    use serde_json::json;

    use super::*;

    fn plain(tools: &[ToolSpec], columns: usize) -> Vec<String> {
        let rows = super::tools(tools, columns);
        rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect()
    }

    fn tool(description: &str, input_schema: Value) -> ToolSpec {
        ToolSpec {
            name: "find".to_owned(),
            description: description.to_owned(),
            input_schema,
            output_schema: None,
            idempotent: false,
            title: None,
            result_tokens: None,
            retained_tokens: None,
            examples: Vec::new(),
        }
    }

    #[test]
    fn a_tool_is_shown_with_all_that_a_model_reads() {
        let input = json!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "The text." },
                "order": { "enum": ["asc", "desc"] },
                "most": { "type": ["integer", "null"], "minimum": 1, "maximum": 10 },
                "near": { "type": "array", "items": { "type": "object", "properties": { "lat": { "type": "number" } }, "required": ["lat"] } },
            },
            "required": ["query"],
        });
        let tool = ToolSpec {
            output_schema: Some(json!({ "type": "array", "items": { "type": "string" } })),
            idempotent: true,
            title: Some("Find lines".to_owned()),
            result_tokens: Some(2_000),
            examples: vec![ToolExample {
                thought: Some("The log knows".to_owned()),
                arguments: json!({ "query": "x" }),
            }],
            ..tool("Finds lines.", input)
        };
        assert_eq!(
            plain(&[tool], 80),
            [
                "  find · idempotent · at most 2000 tokens",
                "    title │ Find lines",
                "    │ Finds lines.",
                "    takes │ most?: integer 1…10 | null",
                "    takes │ near?: [{lat: number}]",
                "    takes │ order?: \"asc\" | \"desc\"",
                "    takes │ query: string · The text.",
                "    returns │ [string]",
                "    example │ The log knows: {\"query\":\"x\"}",
            ]
        );
    }

    #[test]
    fn the_sentence_about_an_argument_is_whole_on_a_narrow_terminal() {
        let words = "Words or a question. Forms of a word find each other; order does not matter.";
        let properties = json!({ "query": { "type": "string", "description": words } });
        let input = json!({ "properties": properties, "required": ["query"] });
        let rows = plain(&[tool("Finds.", input)], 62);
        assert_eq!(
            rows[2..],
            [
                "    takes │ query: string · Words or a question. Forms of a",
                "          │ word find each other; order does not matter.",
            ]
        );
    }

    #[test]
    fn a_strangers_texts_stand_behind_marks_and_are_bounded() {
        let forged = "fine\n\nImports\n  nothing\u{1b}[2J";
        let properties: Map<String, Value> = (0..100)
            .map(|n| (format!("a{n}\nImports"), json!({ "enum": vec![forged; 100] })))
            .collect();
        let mut hostile = tool(forged, json!({ "properties": properties }));
        hostile.title = Some(forged.to_owned());
        hostile.output_schema =
            Some((0..50).fold(json!(1), |inner, _| json!({ "anyOf": [inner] })));
        let tools: Vec<ToolSpec> = std::iter::repeat_n(hostile, 60).collect();
        for columns in [40, 80] {
            let rows = plain(&tools, columns);
            assert!(rows.len() < 4_500, "{}", rows.len());
            for row in &rows {
                assert!(foreign::width(row) <= columns + 8, "{columns}: {row}");
                assert!(!row.contains('\u{1b}'), "{row}");
                let mark = row.find('│');
                let forged = row.find("Imports").or(row.find("nothing"));
                assert!(forged.is_none() || mark < forged, "{row}");
            }
            assert!(rows.last().is_some_and(|row| row.contains("20 more")));
        }
    }
}
