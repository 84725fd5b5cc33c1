//! Calls in texts that a model wrote.

use std::sync::LazyLock;

use conclave_core::tool_calls::arguments::{check as fits, explain, explanation_fields};
use conclave_core::tool_calls::parse::CallParser;
use conclave_core::tool_calls::sequence::Sequence;
use conclave_core::tool_calls::toolbox::{TaskTool, Toolbox};
use conclave_core::tool_calls::{json, routing, xml};
use conclave_core::types::host_tool::HostTool;
use conclave_core::types::ids::PluginName;
use conclave_core::types::message::{Message, Role};
use serde_json::{Map, Value};

use super::facts;

/// The maximum number of calls in one text, as in the parser.
const CALLS_MAX: usize = 129;

static TOOLBOX: LazyLock<Toolbox> = LazyLock::new(|| {
    let notes = PluginName::from("notes");
    let of_plugin = facts::versatile()
        .tools
        .iter()
        .map(|spec| TaskTool::of_plugin(&notes, spec))
        .collect::<Vec<_>>();
    let of_host = HostTool::ALL.into_iter().map(|tool| TaskTool {
        offered: true,
        handled: true,
        ..TaskTool::of_host(tool)
    });
    of_plugin.into_iter().chain(of_host).collect::<Vec<_>>().into()
});

pub(super) fn check_json(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let objects = json::objects(&text);
    assert!(objects.len() <= text.matches('{').count(), "more objects than braces");
    assert_eq!(
        json::first_objects(&text, 3),
        objects[..objects.len().min(3)],
        "the first are the first"
    );
    if let Ok(Value::Object(object)) = serde_json::from_str::<Value>(&text) {
        assert_eq!(objects, [Value::Object(object)], "valid JSON comes out as it is");
    }
    if let Some(key) =
        objects.iter().find_map(Value::as_object).and_then(|object| object.keys().next())
    {
        assert!(json::field(&text, key).is_some(), "a field of an object is found");
    }
    if let [schema, arguments, ..] = objects.as_slice() {
        arguments_fit(schema, arguments);
    }
    reads(&text);
    routes(&text);
}

pub(super) fn check_xml(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let candidates = xml::candidates(&text);
    let found: usize = candidates.iter().map(String::len).sum();
    assert!(
        found <= text.len() + (candidates.len() + 1) * "<tool></tool>".len(),
        "candidates are {found} bytes of {}",
        text.len()
    );
    let schema = &facts::versatile().tools[0].input_schema;
    for candidate in candidates.iter().map(String::as_str).chain([&*text]) {
        for schema in [None, Some(schema)] {
            let Ok(fields) = xml::fields(candidate, schema) else { continue };
            assert!(fields.is_object(), "fields are an object");
            let request = fields.get("request").and_then(Value::as_str).unwrap_or("notes.find");
            rendered(request, &fields, schema.unwrap_or(&Value::Null));
        }
    }
    reads(&text);
}

/// Checks that a parsed call is written so that it parses to the same call.
fn rendered(request: &str, fields: &Value, schema: &Value) {
    let written = xml::render(request, fields, schema);
    let read = xml::fields(&written, Some(schema))
        .unwrap_or_else(|error| panic!("a written call is read: {error}\n{written}"));
    let again = xml::render(request, &read, schema);
    let read_again = xml::fields(&again, Some(schema))
        .unwrap_or_else(|error| panic!("a written call is read: {error}\n{again}"));
    assert_eq!(read, read_again, "a written call is read as it was");
}

fn reads(text: &str) {
    for sender in [Role::Llm, Role::User] {
        let message = Message { content: Some(text.to_owned()), ..Message::new(0, sender, "desk") };
        for name in [None, Some("desk")] {
            let reader = CallParser {
                toolbox: &TOOLBOX,
                text: true,
                name,
                for_handlers: name.is_none(),
                after_model: sender == Role::Llm,
                wrong_call_stops_others: name.is_none(),
            };
            let reading = reader.read(&message);
            assert!(reading.all.len() <= CALLS_MAX && reading.unknown.len() <= CALLS_MAX);
            assert!(
                reading.own.iter().all(|call| reading.all.contains(call)),
                "it carries out what it does not know"
            );
            assert!(
                reading.own.iter().all(|call| TOOLBOX.get(&call.name).is_some()),
                "a call of a tool that there is not"
            );
        }
    }
}

fn arguments_fit(schema: &Value, arguments: &Value) {
    match fits(schema, arguments) {
        Ok(fitted) => {
            if let Err(wrong) = fits(schema, &fitted) {
                panic!("what was made to fit does not fit: {wrong:?}: {fitted}");
            }
        }
        Err(wrong) => {
            assert!((1..=64).contains(&wrong.len()));
            let told = explain("notes.find", &wrong);
            assert!(explanation_fields(&told).is_some(), "an explanation can be read back: {told}");
        }
    }
    let empty = Map::new();
    let _ = conclave_core::tool_calls::arguments::infer(
        TOOLBOX.iter(),
        arguments.as_object().unwrap_or(&empty),
    );
}

fn routes(text: &str) {
    for prefix in ["@", "", "@@"] {
        if let Some((name, after)) = routing::addressed(text, prefix) {
            assert!(!name.is_empty() && text.contains(&name) && text.contains(&after));
        }
        let _ = routing::route(text, prefix, false);
        let _ = routing::route(text, prefix, true);
    }
    if let Some((name, after)) = routing::directed(text) {
        assert!(name.is_ascii() && text.ends_with(&after));
    }
    if !routing::says_done(text) {
        assert_eq!(routing::without_done(text), text, "nothing was said, nothing is left out");
    }
    for line in text.lines().take(4) {
        if let Ok(sequence) = Sequence::parse(line) {
            assert!(!sequence.events().is_empty() && sequence.as_str() == line);
            let json = serde_json::to_string(&sequence).expect("a sequence can be journalled");
            assert_eq!(
                serde_json::from_str::<Sequence>(&json).ok().as_ref(),
                Some(&sequence),
                "a sequence is read back"
            );
        }
    }
}
