//! The tools that the official conformance suite of the Model Context Protocol calls, under the
//! suite's names without `test_`.

use conclave_sdk::log::{Level, log};
use conclave_sdk::{Call, Error, Outcome, Result, ToolSpec, Toolset, blobs, progress};
use serde_json::{Value, json};

/// One red pixel.
const PICTURE: &[u8] =
    b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\
    \x02\x00\x00\x00\x90wS\xde\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\
    \x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82";
/// A sound without a sample.
const SOUND: &[u8] =
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x44\xac\0\0\x88\x58\x01\0\x02\0\x10\0\
    data\0\0\0\0";

struct Suite;

/// The tools, each with the properties of its arguments, all of which are required.
fn tools() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let object = |name: &str, field: Value| {
        let fields = json!({ name: field });
        json!({ "type": "object", "properties": fields, "required": [name] })
    };
    let confirm = || json!({ "confirm": object("ok", json!({ "type": "boolean" })) });
    vec![
        ("simple_text", json!({})),
        ("image_content", json!({})),
        ("audio_content", json!({})),
        ("embedded_resource", json!({})),
        ("multiple_content_types", json!({})),
        ("tool_with_logging", json!({})),
        ("logging_tool", json!({})),
        ("tool_with_progress", json!({})),
        ("error_handling", json!({})),
        ("elicitation", json!({ "message": text(), "username": text(), "email": text() })),
        ("streaming_elicitation", json!({ "username": text() })),
        ("elicitation_sep1034_defaults", defaults()),
        ("elicitation_sep1330_enums", enums()),
        ("input_required_result_elicitation", json!({ "user_name": object("name", text()) })),
        ("input_required_result_request_state", confirm()),
        ("input_required_result_tampered_state", confirm()),
        (
            "input_required_result_multi_round",
            json!({ "step1": object("name", text()), "step2": object("color", text()) }),
        ),
    ]
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn enums() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = |titles: [&str; 3]| -> Vec<Value> {
        let each = titles.iter().zip(1..);
        each.map(|(title, n)| json!({ "const": format!("value{n}"), "title": title })).collect()
    };
    let choices = titled(["First Choice", "Second Choice", "Third Choice"]);
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": {
            "type": "string",
            "oneOf": titled(["First Option", "Second Option", "Third Option"]),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": choices } },
    })
}

impl Toolset for Suite {
    fn list() -> Result<Vec<ToolSpec>> {
        let spec = |(name, properties): (&str, Value)| {
            let names: Vec<String> = properties
                .as_object()
                .into_iter()
                .flat_map(|properties| properties.keys().cloned())
                .collect();
            let schema = json!({ "type": "object", "properties": properties, "required": names });
            ToolSpec::new(name, "A tool of the conformance suite.", schema.to_string())
        };
        Ok(tools().into_iter().map(spec).collect())
    }

    fn call(name: &str, arguments: Value, _: &Call) -> Result<Outcome> {
        let picture = || blobs::put(PICTURE, "image/png", Some("pixel.png"));
        let text = || blobs::put(b"An embedded text.", "text/plain", Some("embedded.txt"));
        Ok(match name {
            "simple_text" => Outcome::text("This is a simple text response for testing."),
            "image_content" => Outcome::text("a picture").with_attachment(picture()?),
            "audio_content" => Outcome::text("a sound").with_attachment(blobs::put(
                SOUND,
                "audio/wav",
                Some("silence.wav"),
            )?),
            "embedded_resource" => Outcome::text("a text").with_attachment(text()?),
            "multiple_content_types" => Outcome::text("Multiple content types test:")
                .with_attachment(picture()?)
                .with_attachment(text()?),
            "tool_with_logging" | "logging_tool" => {
                for line in ["started", "processing data", "completed"] {
                    log(Level::Info, line);
                }
                Outcome::text("logged")
            }
            "tool_with_progress" => {
                for done in [0, 50, 100] {
                    progress::report(done, 100, "working");
                }
                Outcome::text("done")
            }
            "error_handling" => {
                return Err(Error::other("This tool intentionally returns an error for testing"));
            }
            _ => Outcome::text(format!("state-ok {arguments}")),
        })
    }
}

conclave_sdk::export!(toolset: Suite, asks: [progress, blobs]);
