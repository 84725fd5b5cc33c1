//! Forms for the person at the client: the required arguments that a request was sent without. A
//! form asks for names and types that the host admitted, and its answer is checked like any other
//! arguments.

use std::borrow::Cow;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Map, Value, json};

use super::approval::escaped;
use crate::text::display;

/// The key of the form for all arguments that are no objects.
const PLAIN: &str = "arguments";
/// Maximum characters of a description in the question.
const DESCRIPTION: usize = 300;

/// One question: fields that a person can fill in.
pub(super) struct ArgumentForm {
    /// Its key where requests for input have keys: the argument's name if that is an object.
    pub(super) key: String,
    pub(super) question: ElicitRequestParams,
    /// Whether the answer is one argument, and not several.
    is_object: bool,
    fields: Vec<String>,
    required: Vec<String>,
}

impl ArgumentForm {
    /// Returns the next form for what `name` lacks. Objects have forms of their own, so that their
    /// fields cannot be confused; `None` if nothing is missing, or a form cannot ask for it.
    pub(super) fn next(
        name: &str,
        schema: &Map<String, Value>,
        arguments: &Map<String, Value>,
    ) -> Option<Self> {
        let properties = schema.get("properties")?.as_object()?;
        let missing: Vec<(&String, &Value)> = strings(schema.get("required"))
            .filter(|required| !arguments.contains_key(*required))
            .filter_map(|required| properties.get_key_value(required))
            .collect();
        let is_object = |schema: &Value| schema.get("properties").is_some_and(Value::is_object);
        let plain: Map<String, Value> = missing
            .iter()
            .filter(|(_, schema)| !is_object(schema))
            .map(|(name, schema)| ((*name).clone(), (*schema).clone()))
            .collect();
        if plain.is_empty() {
            let (argument, schema) = missing.first()?;
            let fields = schema.get("properties")?.as_object()?;
            let required = strings(schema.get("required")).map(str::to_owned).collect();
            return Self::new(name, (argument, true), fields, required);
        }
        let required = plain.keys().cloned().collect();
        Self::new(name, (PLAIN, false), &plain, required)
    }

    fn new(
        name: &str,
        (key, is_object): (&str, bool),
        fields: &Map<String, Value>,
        required: Vec<String>,
    ) -> Option<Self> {
        let names: Vec<String> = fields.keys().cloned().collect();
        let lines: Vec<String> = fields.iter().map(|(name, schema)| line(name, schema)).collect();
        let of = if is_object { format!(" `{}`", display(key, 80)) } else { String::new() };
        let message = escaped(&format!("{name} needs{of}:\n{}", lines.join("\n")));
        let schema = json!({ "type": "object", "properties": fields, "required": required });
        let requested_schema = serde_json::from_value(schema).ok()?;
        let question =
            ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        Some(Self { key: key.to_owned(), question, is_object, fields: names, required })
    }

    /// Adds an answer to the arguments. Fields that the form does not have are left out.
    pub(super) fn add(
        &self,
        answer: &ElicitResult,
        arguments: &mut Map<String, Value>,
    ) -> Result<(), Unfilled> {
        if answer.action != ElicitationAction::Accept {
            return Err(Unfilled::Refused);
        }
        let Some(Value::Object(content)) = &answer.content else {
            return Err(Unfilled::Incomplete);
        };
        let mut fields = content.clone();
        fields.retain(|name, _| self.fields.contains(name));
        if self.required.iter().any(|name| !fields.contains_key(name)) {
            return Err(Unfilled::Incomplete);
        }
        if self.is_object {
            arguments.insert(self.key.clone(), Value::Object(fields));
        } else {
            arguments.extend(fields);
        }
        Ok(())
    }
}

/// Why an answer fills no form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfilled {
    /// The person declined.
    Refused,
    /// It is no answer to this form.
    Incomplete,
}

fn line(name: &str, schema: &Value) -> String {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    match display(description, DESCRIPTION) {
        description if description.is_empty() => format!("- {}", display(name, 80)),
        description => format!("- {}: {description}", display(name, 80)),
    }
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The schema of arguments that are texts, all of them required.
pub(super) fn texts<'a>(
    inputs: impl Iterator<Item = (&'a String, &'a String)>,
) -> Map<String, Value> {
    let mut required = Vec::new();
    let mut properties = Map::new();
    for (name, description) in inputs {
        required.push(Value::from(name.as_str()));
        let field = json!({ "type": "string", "description": description });
        properties.insert(name.clone(), field);
    }
    let mut schema = Map::new();
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("required".to_owned(), Value::Array(required));
    schema
}

/// The refusal if the person does not fill a form in.
pub(super) fn refusal(name: &str) -> Cow<'static, str> {
    format!("the person at the client did not say what {name} needs").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: &Value, arguments: &Value) -> Option<ArgumentForm> {
        ArgumentForm::next("t.run", schema.as_object().unwrap(), arguments.as_object().unwrap())
    }

    fn answer(action: &str, content: Value) -> ElicitResult {
        serde_json::from_value(json!({ "action": action, "content": content })).unwrap()
    }

    #[test]
    fn plain_arguments_come_in_one_form_and_objects_in_their_own() {
        let schema = json!({
            "properties": {
                "who": { "type": "string" },
                "n": { "type": "integer" },
                "other": { "type": "string" },
                "at": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] },
            },
            "required": ["who", "n", "at"],
        });
        let mut arguments = json!({ "n": 1 }).as_object().unwrap().clone();
        let first = form(&schema, &Value::Object(arguments.clone())).unwrap();
        assert_eq!((first.key.as_str(), first.fields.as_slice()), (PLAIN, &["who".to_owned()][..]));
        first.add(&answer("accept", json!({ "who": "a", "n": 7 })), &mut arguments).unwrap();
        let second = form(&schema, &Value::Object(arguments.clone())).unwrap();
        assert_eq!((second.key.as_str(), second.is_object), ("at", true));
        second.add(&answer("accept", json!({ "x": 2, "y": 3 })), &mut arguments).unwrap();
        let filled = json!({ "n": 1, "who": "a", "at": { "x": 2 } });
        assert_eq!(Value::Object(arguments), filled, "no field of another form");
        assert!(form(&schema, &filled).is_none());
    }

    #[test]
    fn only_an_answer_to_the_form_fills_it() {
        let schema = json!({ "properties": { "who": { "type": "string" } }, "required": ["who"] });
        let form = form(&schema, &json!({})).unwrap();
        for (result, why) in [
            (answer("decline", json!({ "who": "a" })), Unfilled::Refused),
            (answer("cancel", json!({ "who": "a" })), Unfilled::Refused),
            (answer("accept", json!({ "whom": "a" })), Unfilled::Incomplete),
            (answer("accept", json!(7)), Unfilled::Incomplete),
        ] {
            assert_eq!(form.add(&result, &mut Map::new()), Err(why), "{result:?}");
        }
    }

    #[test]
    fn a_form_cannot_ask_for_lists_of_anything() {
        let schema = json!({
            "properties": { "rows": { "type": "array", "items": { "type": "object" } } },
            "required": ["rows"],
        });
        assert!(form(&schema, &json!({})).is_none());
    }
}
