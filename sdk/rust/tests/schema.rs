//! What a model gets to read of a `#[tool]` function, and how its arguments come back. Everything
//! here is native.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use conclave_sdk::__private::{Tool, ToolSpec};
use conclave_sdk::{Call, Error, Json, Outcome, Result, tool};
use serde_json::{Value, json};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// Degrees north.
    latitude: f64,
}

/// Temperature now at a place.
///
/// Use it when the user asks about weather.
#[tool(idempotent)]
fn temperature(
    /// Where; the nearest
    /// station answers.
    place: Place,
    /// Celsius when absent.
    unit: Option<Unit>,
    #[schemars(range(max = 9))] digits: Option<u8>,
    call: &Call,
) -> Result<String> {
    let degrees = place.latitude * if matches!(unit, Some(Unit::Fahrenheit)) { 2.0 } else { 1.0 };
    Ok(format!("{degrees:.*} for {}", usize::from(digits.unwrap_or(0)), call.caller))
}

/// Nothing to
/// say.
///
/// - one
/// - two
///   lines
///
/// ```
/// a
/// b
/// ```
/// The end.
#[tool]
fn nothing() {}

/// Structured.
#[tool]
fn table(mut rows: Vec<u32>) -> Json<Vec<u32>> {
    rows.reverse();
    Json(rows)
}

/// Fails.
#[tool]
fn fail() -> Result<f64> {
    Err(Error::Unavailable { retry_after_ms: Some(5) })
}

fn run<T: Tool>(arguments: Value) -> Result<Outcome> {
    T::call(&arguments.to_string(), &|| Call { caller: "librarian".into(), ..Call::default() })
}

fn schema(spec: &ToolSpec) -> Value {
    serde_json::from_str(&spec.input_schema).unwrap()
}

#[test]
fn the_name_and_the_doc_comment_describe_the_tool() {
    let spec = temperature::spec();
    assert_eq!(spec.name, "temperature");
    assert_eq!(
        spec.description,
        "Temperature now at a place.\n\nUse it when the user asks about weather."
    );
    assert!(spec.idempotent);
    assert!(!nothing::spec().idempotent);
}

#[test]
fn paragraphs_are_joined_and_blocks_are_kept() {
    assert_eq!(
        nothing::spec().description,
        "Nothing to say.\n\n- one\n- two\n  lines\n\n```\na\nb\n```\nThe end."
    );
}

#[test]
fn the_parameters_make_a_closed_object_without_references() {
    let found = schema(&temperature::spec());
    let expected = json!({
        "type": "object",
        "properties": {
            "place": {
                "description": "Where; the nearest station answers.",
                "type": "object",
                "properties": { "latitude": { "description": "Degrees north.", "type": "number", "format": "double" } },
                "required": ["latitude"],
            },
            "unit": {
                "description": "Celsius when absent.",
                "type": ["string", "null"],
                "enum": ["celsius", "fahrenheit", null],
            },
            "digits": { "type": ["integer", "null"], "format": "uint8", "minimum": 0, "maximum": 9 },
        },
        "required": ["place"],
        "additionalProperties": false,
    });
    assert_eq!(found, expected);
}

#[test]
fn a_tool_without_parameters_accepts_nothing_else() {
    assert_eq!(
        schema(&nothing::spec()),
        json!({ "type": "object", "properties": {}, "additionalProperties": false })
    );
}

#[test]
fn the_schema_judges_as_the_parser_does() {
    let validator = jsonschema::validator_for(&schema(&temperature::spec())).unwrap();
    let cases = [
        (json!({ "place": { "latitude": 59.9 } }), true),
        (json!({ "place": { "latitude": 59.9 }, "unit": "celsius", "digits": 1 }), true),
        (json!({ "place": { "latitude": 59.9 }, "unit": null }), true),
        (json!({ "unit": "celsius" }), false),
        (json!({ "place": { "latitude": "north" } }), false),
        (json!({ "place": { "latitude": 59.9 }, "color": "red" }), false),
    ];
    for (arguments, fits) in cases {
        assert_eq!(validator.is_valid(&arguments), fits, "{arguments}");
        assert_eq!(run::<temperature>(arguments.clone()).is_ok(), fits, "{arguments}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let problem = |arguments| match run::<temperature>(arguments) {
        Err(Error::InvalidArguments(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(json!({})), "place: is missing");
    assert!(
        problem(json!({ "place": { "latitude": "north" } }))
            .starts_with("place: invalid type: string")
    );
    assert!(
        problem(json!({ "place": { "latitude": 1 }, "unit": "kelvin" }))
            .starts_with("unit: unknown variant")
    );
    assert_eq!(
        problem(json!({ "place": { "latitude": 1 }, "color": 1 })),
        "color: there is no such argument"
    );
    assert!(problem(json!([])).starts_with("the arguments are no JSON object"));
}

#[test]
fn the_call_is_passed_and_is_no_argument() {
    let outcome = run::<temperature>(json!({ "place": { "latitude": 2.5 }, "digits": 1 })).unwrap();
    assert_eq!(outcome.content.as_deref(), Some("2.5 for librarian"));
    assert_eq!(outcome.value, None);
}

#[test]
fn return_types_become_outcomes() {
    assert_eq!(run::<nothing>(json!({})).unwrap(), Outcome::nothing());
    let outcome = run::<table>(json!({ "rows": [1, 2] })).unwrap();
    assert_eq!(
        (outcome.content.as_deref(), outcome.value.as_deref()),
        (Some("[2,1]"), Some("[2,1]"))
    );
    assert_eq!(run::<fail>(json!({})), Err(Error::Unavailable { retry_after_ms: Some(5) }));
}

#[test]
fn a_tool_stays_an_ordinary_function() {
    assert_eq!(table(vec![1, 2]).0, [2, 1]);
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Tide {
    /// Minutes after midnight.
    at: u32,
}

/// High water at a place.
#[tool(
    idempotent,
    title = "High water",
    result_tokens = 2000,
    retained_tokens = 200,
    example = r#"{"place": "Oban"}"#,
    example("the user asks about tomorrow", r#"{"place": "Oban", "days": 1}"#)
)]
fn tides(place: String, days: Option<u32>) -> Result<Json<Vec<Tide>>> {
    let _ = (place, days);
    Ok(Json(vec![Tide { at: 372 }]))
}

#[test]
fn a_tool_says_everything_that_the_contract_has() {
    let ToolSpec { idempotent, output_schema, extra, .. } = tides::spec();
    let extra: Vec<(String, Value)> = extra
        .into_iter()
        .map(|extra| (extra.key, serde_json::from_str(&extra.value).unwrap()))
        .collect();
    let example =
        |thought: Value, arguments: Value| json!({ "thought": thought, "arguments": arguments });
    let expected = [
        ("title", json!("High water")),
        ("result-tokens", json!(2000)),
        ("retained-tokens", json!(200)),
        (
            "examples",
            json!([
                example(Value::Null, json!({ "place": "Oban" })),
                example(
                    json!("the user asks about tomorrow"),
                    json!({ "place": "Oban", "days": 1 })
                ),
            ]),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value));
    assert_eq!((idempotent, extra.as_slice()), (true, expected.as_slice()));
    let schema: Value = serde_json::from_str(&output_schema.unwrap()).unwrap();
    assert_eq!(schema["items"]["properties"]["at"]["description"], "Minutes after midnight.");
    assert_eq!(nothing::spec().output_schema, None);
}
