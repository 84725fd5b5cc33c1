//! The shape of a call's elements by a JSON Schema: list, object or neither, and their parts. Does
//! not check values.

use serde_json::Value;

/// A part of a schema, with the whole that its references point into.
#[derive(Clone, Copy)]
pub(super) struct SchemaPart<'a> {
    root: Option<&'a Value>,
    part: Option<&'a Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum XmlKind {
    List,
    /// An object with any keys.
    Map,
    /// An object of known fields.
    Record,
    Other,
}

/// The limit of nested references and optional types; more is a cycle.
const HOPS: usize = 16;

impl<'a> SchemaPart<'a> {
    pub(super) fn of_root(schema: Option<&'a Value>) -> Self {
        Self { root: schema, part: schema }.resolved()
    }

    pub(super) fn kind(self) -> XmlKind {
        let is = |name: &str| match self.get("type") {
            Some(Value::String(kind)) => kind == name,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
            _ => false,
        };
        if is("array") {
            return XmlKind::List;
        }
        match self.get("properties").and_then(Value::as_object) {
            Some(fields) if !fields.is_empty() => XmlKind::Record,
            _ if is("object") => XmlKind::Map,
            _ => XmlKind::Other,
        }
    }

    /// The part for a list's items.
    pub(super) fn item(self) -> Self {
        self.part(self.get("items"))
    }

    /// The part for an object's field of this name.
    pub(super) fn child(self, name: &str) -> Self {
        let field = self.get("properties").and_then(|fields| fields.get(name));
        let any = if self.kind() == XmlKind::Map { self.get("additionalProperties") } else { None };
        self.part(field.or(any))
    }

    fn get(self, key: &str) -> Option<&'a Value> {
        self.part.and_then(|part| part.get(key))
    }

    fn part(self, part: Option<&'a Value>) -> Self {
        Self { part, ..self }.resolved()
    }

    /// Follows references, and optional types to the type itself.
    fn resolved(self) -> Self {
        let mut part = self.part;
        for _ in 0..HOPS {
            let Some(next) = self.step(part) else { break };
            // Keywords beside a reference still count.
            if next.get("verbatim").is_none()
                && part.and_then(|part| part.get("verbatim")).is_some()
            {
                break;
            }
            part = Some(next);
        }
        Self { part, ..self }
    }

    fn step(self, part: Option<&'a Value>) -> Option<&'a Value> {
        let part = part?;
        if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
            return self.root?.pointer(reference.strip_prefix('#')?);
        }
        let choices = part.get("anyOf").or_else(|| part.get("oneOf"))?.as_array()?;
        let mut real =
            choices.iter().filter(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        real.next().filter(|_| real.next().is_none())
    }
}

/// Whether the text of this top-level field is verbatim (L-130). A field named `code` is, unless
/// its schema says otherwise.
pub(super) fn is_verbatim(shape: SchemaPart<'_>, name: &str) -> bool {
    shape.get("verbatim").and_then(Value::as_bool).unwrap_or(name == "code" && shape.part.is_some())
}
