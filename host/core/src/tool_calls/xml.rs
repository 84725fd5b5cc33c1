//! Tool calls in XML: their positions in a text, their fields, and their rendering. Supports the
//! subset of XML that calls need: elements, attributes (ignored), CDATA, the five entities; no DTD,
//! no comments. Does not check that a tool exists.

use serde_json::{Map, Value};

use super::routing::is_word;

mod element;
mod shape;

use element::{Element, is_name};
use shape::{SchemaPart, XmlKind, is_verbatim};

const OPENING: &str = "<tool>";
const CLOSING: &str = "</tool>";
const REQUEST: &str = "<request>";
const REQUEST_END: &str = "</request>";
const FENCE: &str = "```";

/// The calls in a text, in order, each from `<tool>` to `</tool>` (L-131).
///
/// A call without its opening tag begins at the first tag since the last call, and gets an opening
/// tag. The last call may lack its closing tag, which is then appended. The content need not be
/// well-formed.
#[must_use]
pub fn candidates(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, from_opening)) = at(rest, OPENING) {
        let Some((call, after)) = through(from_opening, CLOSING) else {
            // No call after this one is closed either: only the last is taken.
            let last = rest.rfind(OPENING).and_then(|last| rest.get(last..)).unwrap_or_default();
            found.push(format!("{last}{CLOSING}"));
            return found;
        };
        found.push(call.to_owned());
        rest = after;
    }
    while let Some((call, after)) = through(rest, CLOSING) {
        if let Some(start) = first_tag(call.strip_suffix(CLOSING).unwrap_or(call)) {
            found.push(format!("{OPENING}{}", call.get(start..).unwrap_or_default()));
        }
        rest = after;
    }
    found
}

/// The position of the last call if the text ends within it: after its opening tag, or, if it has
/// none, after the tag of its tool; or within the opening tag itself.
#[must_use]
pub fn unfinished(text: &str) -> Option<usize> {
    let from = text.rfind(CLOSING).map_or(0, |closing| closing + CLOSING.len());
    let rest = text.get(from..)?;
    let in_tag = (2..OPENING.len())
        .filter_map(|length| OPENING.get(..length))
        .find(|beginning| rest.ends_with(beginning))
        .map(|beginning| rest.len() - beginning.len());
    let start = rest.find(OPENING).or_else(|| rest.find(REQUEST)).or(in_tag)?;
    Some(from + start)
}

/// The tool that an unfinished call names, if its name is complete.
#[must_use]
pub fn tool_of(unfinished: &str) -> Option<&str> {
    let (_, name) = unfinished.split_once(REQUEST)?;
    Some(name.split_once(REQUEST_END)?.0.trim())
}

fn at<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    text.find(mark).and_then(|start| text.split_at_checked(start))
}

fn through<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    text.find(mark).and_then(|start| text.split_at_checked(start + mark.len()))
}

/// The position of the first tag of word characters without attributes.
fn first_tag(text: &str) -> Option<usize> {
    text.match_indices('<').map(|(start, _)| start).find(|start| {
        let name = text.get(start + 1..).unwrap_or_default();
        let after = name.trim_start_matches(is_word);
        after.len() < name.len() && after.starts_with('>')
    })
}

/// Returns the fields of a call as an object; `request` is one of them (L-130).
///
/// Without a schema every leaf is its trimmed text. An element whose children all have the same tag
/// is a list, any other an object. The schema of the tool's arguments decides better which element
/// is a list or an object, also if it is empty. It also decides which top-level fields are verbatim
/// (`"verbatim": true`, or named `code`): these keep their text, less one pair of triple backticks
/// around it. Fields whose names begin with `_` are ignored.
///
/// # Errors
/// Not well-formed, a comment, an instruction or a DTD, elements deeper than 256, elements in a
/// verbatim field; with line and column.
pub fn fields(candidate: &str, schema: Option<&Value>) -> Result<Value, String> {
    let root = element::parse(candidate)?;
    let shape = SchemaPart::of_root(schema);
    let mut fields = Map::new();
    for field in root.children.into_iter().filter(|field| !field.name.starts_with('_')) {
        let inner = shape.child(&field.name);
        let value =
            if is_verbatim(inner, &field.name) { verbatim(&field)? } else { value(&field, inner) };
        fields.insert(field.name, value);
    }
    Ok(Value::Object(fields))
}

fn verbatim(field: &Element) -> Result<Value, String> {
    if let Some(inner) = field.children.first() {
        return Err(format!(
            "`{}` is taken as it stands, but holds the element `{}`: put it into CDATA",
            field.name, inner.name
        ));
    }
    let trimmed = field.text.trim();
    let fenced = trimmed.starts_with(FENCE) && trimmed.ends_with(FENCE);
    if !fenced {
        return Ok(Value::String(field.text.clone()));
    }
    let inside = trimmed.strip_prefix(FENCE).unwrap_or(trimmed);
    Ok(Value::String(inside.strip_suffix(FENCE).unwrap_or(inside).trim().to_owned()))
}

/// Converts an element. The recursion is bounded, because the parser bounds the depth of elements.
fn value(element: &Element, shape: SchemaPart<'_>) -> Value {
    if element.name.starts_with('_') {
        return Value::Object(Map::new());
    }
    let kind = shape.kind();
    let Some(first) = element.children.first() else {
        return match kind {
            XmlKind::List => Value::Array(Vec::new()),
            XmlKind::Map => Value::Object(Map::new()),
            XmlKind::Record | XmlKind::Other => Value::String(element.text.trim().to_owned()),
        };
    };
    let alike = element.children.iter().all(|child| child.name == first.name);
    if alike && matches!(kind, XmlKind::List | XmlKind::Other) {
        return element.children.iter().map(|child| value(child, shape.item())).collect();
    }
    let field = |child: &Element| {
        (
            child.name.clone(),
            value(
                child,
                if kind == XmlKind::List { shape.item() } else { shape.child(&child.name) },
            ),
        )
    };
    Value::Object(element.children.iter().map(field).collect())
}

/// Renders a call as a model should write it, for examples in instructions. With the same schema,
/// [`fields`] reads the same fields from it, all leaves as texts.
///
/// Nulls are left out, and so are keys that cannot be tags; characters that XML lacks become
/// `\u{fffd}`.
#[must_use]
pub fn render(request: &str, arguments: &Value, schema: &Value) -> String {
    let shape = SchemaPart::of_root(Some(schema));
    let mut out = format!("{OPENING}\n");
    write_element(&mut out, "request", &Value::String(request.to_owned()), 1, false);
    for (name, value) in
        arguments.as_object().into_iter().flatten().filter(|(name, _)| *name != "request")
    {
        write_element(&mut out, name, value, 1, is_verbatim(shape.child(name), name));
    }
    out.push_str(CLOSING);
    out
}

/// The limit of levels that are rendered, the same as for reading; deeper ones are left out.
const DEEPEST: usize = 255;

fn write_element(out: &mut String, name: &str, value: &Value, depth: usize, verbatim: bool) {
    if value.is_null() || !is_name(name) || depth > DEEPEST {
        return;
    }
    let indent = "  ".repeat(depth);
    out.push_str(&format!("{indent}<{name}>"));
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            items.iter().for_each(|item| write_element(out, "item", item, depth + 1, false));
            out.push_str(&indent);
        }
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            members
                .iter()
                .for_each(|(name, member)| write_element(out, name, member, depth + 1, false));
            out.push_str(&indent);
        }
        Value::Array(_) | Value::Object(_) => {}
        Value::String(text) if verbatim => write_cdata(out, text),
        Value::String(text) => write_text(out, text),
        leaf => write_text(out, &leaf.to_string()),
    }
    out.push_str(&format!("</{name}>\n"));
}

fn write_text(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            c => out.push(if element::is_char(c) { c } else { '\u{fffd}' }),
        }
    }
}

fn write_cdata(out: &mut String, text: &str) {
    let valid_text: String =
        text.chars().map(|c| if element::is_char(c) { c } else { '\u{fffd}' }).collect();
    // The end mark is split between two sections; a carriage return would become a line feed.
    let inside = valid_text.replace("]]>", "]]]]><![CDATA[>").replace('\r', "]]>&#13;<![CDATA[");
    out.push_str(&format!("<![CDATA[{inside}]]>"));
}

#[cfg(test)]
mod tests;
