use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::types::ids::PluginName;
use crate::types::tool::ToolSpec;

fn field(kind: &str, value: &Value) -> Option<Value> {
    let schema = json!({"type": "object", "properties": {"x": {"type": kind}}});
    check(&schema, &json!({"x": value})).ok().map(|checked| checked["x"].clone())
}

/// Taken from pydantic 2.14, `TypeAdapter(T).validate_python` for int, float, bool, str; values
/// that JSON cannot hold are wrong here.
#[test]
fn plain_values_stand_for_others_as_in_the_reference() {
    let no = || None::<Value>;
    let is = |value: Value| Some(value);
    for (value, integer, number, boolean) in [
        (json!("5"), is(json!(5)), is(json!(5.0)), no()),
        (json!(" 5\n"), is(json!(5)), is(json!(5.0)), no()),
        (json!("+5"), is(json!(5)), is(json!(5.0)), no()),
        (json!("-05"), is(json!(-5)), is(json!(-5.0)), no()),
        (json!("5.00"), is(json!(5)), is(json!(5.0)), no()),
        (json!("5."), no(), is(json!(5.0)), no()),
        (json!(".5"), no(), is(json!(0.5)), no()),
        (json!("5.5"), no(), is(json!(5.5)), no()),
        (json!("5.0_0"), no(), is(json!(5.0)), no()),
        (json!("1_000.0"), is(json!(1000)), is(json!(1000.0)), no()),
        (json!("5__0"), no(), no(), no()),
        (json!("_5"), no(), no(), no()),
        (json!("5_"), no(), no(), no()),
        (json!("1e3"), no(), is(json!(1000.0)), no()),
        (json!("+ 5"), no(), no(), no()),
        (json!("++5"), no(), no(), no()),
        (json!("0x10"), no(), no(), no()),
        (json!("1,000"), no(), no(), no()),
        (json!(""), no(), no(), no()),
        (json!("٥"), no(), no(), no()),
        (json!("5\0"), no(), no(), no()),
        (json!("nan"), no(), no(), no()),
        (json!("-Infinity"), no(), no(), no()),
        (
            json!("18446744073709551615"),
            is(json!(u64::MAX)),
            is(json!(1.844_674_407_370_955_2e19)),
            no(),
        ),
        (json!("-9223372036854775808"), is(json!(i64::MIN)), is(json!(i64::MIN as f64)), no()),
        (json!("1"), is(json!(1)), is(json!(1.0)), is(json!(true))),
        (json!("0"), is(json!(0)), is(json!(0.0)), is(json!(false))),
        (json!("1.0"), is(json!(1)), is(json!(1.0)), no()),
        (json!("tRue"), no(), no(), is(json!(true))),
        (json!("Y"), no(), no(), is(json!(true))),
        (json!("yes"), no(), no(), is(json!(true))),
        (json!("ON"), no(), no(), is(json!(true))),
        (json!("t"), no(), no(), is(json!(true))),
        (json!("off"), no(), no(), is(json!(false))),
        (json!("No"), no(), no(), is(json!(false))),
        (json!("n"), no(), no(), is(json!(false))),
        (json!("f"), no(), no(), is(json!(false))),
        (json!(" true "), no(), no(), no()),
        (json!(5), is(json!(5)), is(json!(5)), no()),
        (json!(5.0), is(json!(5)), is(json!(5.0)), no()),
        (json!(5.5), no(), is(json!(5.5)), no()),
        (json!(1e20), no(), is(json!(1e20)), no()),
        (json!(1), is(json!(1)), is(json!(1)), is(json!(true))),
        (json!(-0.0), is(json!(0)), is(json!(-0.0)), is(json!(false))),
        (json!(0.5), no(), is(json!(0.5)), no()),
        (json!(true), is(json!(1)), is(json!(1.0)), is(json!(true))),
        (json!(null), no(), no(), no()),
        (json!([1]), no(), no(), no()),
        (json!({}), no(), no(), no()),
    ] {
        assert_eq!(field("integer", &value), integer, "{value} as integer");
        assert_eq!(field("number", &value), number, "{value} as number");
        assert_eq!(field("boolean", &value), boolean, "{value} as boolean");
        let text = value.is_string().then(|| value.clone());
        assert_eq!(field("string", &value), text, "{value} as text");
    }
}

#[test]
fn a_whole_number_arrives_exactly_or_is_refused() {
    let of = |kind: &str| {
        let part = json!({"type": "object", "properties": {"n": {"type": kind}}});
        json!({"type": "object", "properties": {
            "n": {"type": kind},
            "list": {"type": "array", "items": {"type": kind}},
            "within": part, "either": {"anyOf": [{"type": kind}, {"type": "null"}]},
        }})
    };
    for (written, expected) in [
        ("9007199254740991", Some("9007199254740991")),
        ("9007199254740993", Some("9007199254740993")),
        ("-9223372036854775808", Some("-9223372036854775808")),
        ("18446744073709551615", Some("18446744073709551615")),
        ("9007199254740991.0", Some("9007199254740991")),
        ("-9.007199254740991e15", Some("-9007199254740991")),
        ("1e3", Some("1000")),
        ("12.50e1", Some("125")),
        ("\"9007199254740993\"", Some("9007199254740993")),
        ("\"18446744073709551616\"", None),
        // Each has the float of another whole number.
        ("9007199254740992.0", None),
        ("9007199254740993.0", None),
        ("-9007199254740993.0", None),
        ("12345678901234567e0", None),
        ("1e16", None),
        ("-9223372036854775809", None),
        ("-9223372036854776001", None),
        ("18446744073709551616", None),
        ("1e300", None),
        ("0.5", None),
    ] {
        for around in
            ["{\"n\": N}", "{\"list\": [1, N]}", "{\"within\": {\"n\": N}}", "{\"either\": N}"]
        {
            let value: Value = serde_json::from_str(&around.replace('N', written)).unwrap();
            let checked = check(&of("integer"), &value);
            let expected_value =
                expected.map(|number| serde_json::from_str(&around.replace('N', number)));
            assert_eq!(
                checked.clone().ok(),
                expected_value.map(Result::unwrap),
                "{written} in {around}"
            );
            let is_large = written.len() > 3 && !written.starts_with('"');
            if let Some(wrong) = checked.err().filter(|_| is_large && !around.contains("either")) {
                assert!(wrong[0].reason.starts_with("must be written in digits"), "{wrong:?}");
            }
        }
    }
    // A number may have a fraction, so it is what its float is.
    let physics: Value = serde_json::from_str("{\"n\": 6.02214076e23}").unwrap();
    assert_eq!(check(&of("number"), &physics), Ok(physics));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one entry for each schema")]
fn a_schema_is_followed_into_the_value() {
    let pair = json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 7}}, "required": ["x"]});
    let of = |part: Value| json!({"type": "object", "properties": {"a": part}, "$defs": {"Pair": pair, "Loop": {"$ref": "#/$defs/Loop"}}});
    let wrong = |path: &str, reason: &str| Err(vec![(path.to_owned(), reason.to_owned())]);
    let reference = json!({"$ref": "#/$defs/Pair"});
    let optional = json!({"anyOf": [reference, {"type": "null"}], "default": null});
    let list = json!({"type": "array", "items": reference, "maxItems": 2});
    for (part, value, expected) in [
        (
            reference.clone(),
            json!({"a": {"x": "1", "z": 3}, "b": 4}),
            Ok(json!({"a": {"x": 1, "y": 7, "z": 3}, "b": 4})),
        ),
        (reference.clone(), json!({"a": {"y": 1}}), wrong("a.x", "is missing")),
        (reference.clone(), json!({"a": null}), wrong("a", "must be an object, not null")),
        (
            reference.clone(),
            json!({"a": "{\"x\": 1"}),
            wrong(
                "a",
                "must be an object, but its JSON ends too early, at line 1, column 7: the answer was cut, as one is at its limit of tokens",
            ),
        ),
        (
            reference.clone(),
            json!({"a": "{\"x\": 1,\n \"y\" 2}"}),
            wrong(
                "a",
                "must be an object, but its JSON is broken at line 2, column 6: expected `:`",
            ),
        ),
        (
            reference.clone(),
            json!({"a": "1 + 1"}),
            wrong("a", "must be an object, not the text \"1 + 1\""),
        ),
        (reference, json!({}), Ok(json!({}))),
        (optional.clone(), json!({}), Ok(json!({"a": null}))),
        (optional.clone(), json!({"a": null}), Ok(json!({"a": null}))),
        (
            optional,
            json!({"a": {"x": "one"}}),
            wrong("a.x", "must be a whole number, not the text \"one\""),
        ),
        (
            list.clone(),
            json!({"a": [{"x": 1, "y": 2}, {"x": true}]}),
            Ok(json!({"a": [{"x": 1, "y": 2}, {"x": 1, "y": 7}]})),
        ),
        (
            list.clone(),
            json!({"a": [{"x": 1}, {"x": []}]}),
            wrong("a.1.x", "must be a whole number, not a list"),
        ),
        (
            list,
            json!({"a": [{"x": 1}, {"x": 2}, {"x": 3}]}),
            wrong("a", "must have at most 2 items"),
        ),
        // The value's own type wins over one to which it can be converted
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({"a": "5"}),
            Ok(json!({"a": "5"})),
        ),
        (json!({"type": ["integer", "string"]}), json!({"a": "5"}), Ok(json!({"a": "5"}))),
        (
            json!({"oneOf": [{"type": "boolean"}, {"type": "integer"}]}),
            json!({"a": "5"}),
            Ok(json!({"a": 5})),
        ),
        (
            json!({"type": ["null", "integer"]}),
            json!({"a": "x"}),
            wrong("a", "must be a whole number, not the text \"x\""),
        ),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "array"}]}),
            json!({"a": {}}),
            wrong("a", "must be of one of the allowed types, not an object"),
        ),
        (
            json!({"allOf": [{"type": "integer"}, {"maximum": 3}]}),
            json!({"a": "2"}),
            Ok(json!({"a": 2})),
        ),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            json!({"a": {"k": "1"}}),
            Ok(json!({"a": {"k": 1}})),
        ),
        (
            json!({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}),
            json!({"a": ["1", "1"]}),
            Ok(json!({"a": [1, true]})),
        ),
        (json!({"enum": ["r", "w"]}), json!({"a": "x"}), wrong("a", "must be one of \"r\", \"w\"")),
        (json!({"type": "integer", "enum": [1, 2]}), json!({"a": "2"}), Ok(json!({"a": 2}))),
        (json!({"const": 1}), json!({"a": 1.0}), Ok(json!({"a": 1.0}))),
        (json!({"const": 1}), json!({"a": "1"}), wrong("a", "must be 1")),
        (
            json!({"type": "integer", "minimum": 1}),
            json!({"a": "0"}),
            wrong("a", "must be at least 1"),
        ),
        (json!({"exclusiveMaximum": 2.5}), json!({"a": 2.5}), wrong("a", "must be less than 2.5")),
        (json!({"minLength": 2}), json!({"a": "é"}), wrong("a", "must have at least 2 characters")),
        // Only a default of its own type
        (json!({"type": "string", "default": null}), json!({}), Ok(json!({}))),
        (
            json!({"type": "string", "default": "d"}),
            json!({"a": null}),
            wrong("a", "must be a text, not null"),
        ),
        (json!(false), json!({"a": 1}), wrong("a", "is not allowed here")),
        // Unknown references, and those without a target
        (json!({"$ref": "#/$defs/Loop"}), json!({"a": 1}), Ok(json!({"a": 1}))),
        (
            json!({"$ref": "other.json#/x", "type": "whatever", "if": false, "minimum": "x"}),
            json!({"a": 1}),
            Ok(json!({"a": 1})),
        ),
        (json!("not a schema"), json!({"a": 1}), Ok(json!({"a": 1}))),
    ] {
        let schema = of(part);
        let checked = check(&schema, &value).map_err(|wrong| {
            wrong.into_iter().map(|Wrong { path, reason }| (path, reason)).collect::<Vec<_>>()
        });
        assert_eq!(checked, expected, "{value} against {schema}");
    }
}

#[test]
fn all_wrong_fields_are_told_at_once() {
    let schema = json!({
        "type": "object",
        "properties": {"b": {"type": "integer"}, "a": {"properties": {"x": {"type": "string"}}}, "c": {"type": "integer", "default": "no number"}},
        "required": ["c", "d"],
    });
    let paths = |value| {
        check(&schema, &value).unwrap_err().into_iter().map(|wrong| wrong.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(json!({"a": {"x": 1}, "b": "x"})), ["a.x", "b", "c", "d"]);
    assert_eq!(paths(json!([1])), [""]);
    let many: Value = (0..1000).map(|n| (n.to_string(), json!("x"))).collect::<Map<_, _>>().into();
    assert_eq!(
        check(&json!({"additionalProperties": {"type": "integer"}}), &many).unwrap_err().len(),
        64
    );
}

fn tool(name: &str, schema: Value) -> TaskTool {
    let spec = ToolSpec { name: name.to_owned(), input_schema: schema, ..ToolSpec::default() };
    TaskTool::of_plugin(&PluginName::from("p"), &spec)
}

#[test]
fn a_call_without_a_name_is_that_of_the_one_tool_that_takes_it() {
    let ints = |names: &[&str]| {
        let fields: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect();
        json!({"type": "object", "properties": fields, "required": names})
    };
    let own_id = json!({"type": "object", "properties": {"id": {"type": "integer"}, "deep": {}}});
    let tools = [
        tool("gauss", ints(&["x", "y"])),
        tool("flip", ints(&[])),
        tool("boil", ints(&["f"])),
        tool("fry", ints(&["f"])),
        tool("get", own_id),
    ];
    for (arguments, expected) in [
        (json!({"x": 1, "y": "3"}), Some("p.gauss")),
        (json!({"x": 1, "y": 3, "purpose": "to add", "id": "7"}), Some("p.gauss")),
        (json!({"x": 1, "y": 3, "id": 7}), None),
        (json!({"x": 1, "y": 3, "z": 4}), None),
        (json!({"x": 1, "y": 3, "request": null}), None),
        (json!({"x": 1}), None),
        (json!({"x": 1, "y": "three"}), None),
        // Fits two tools
        (json!({"f": 1}), None),
        (json!({}), None),
        (json!({"purpose": "x"}), None),
        // Keys of every tool identify none
        (json!({"id": 7}), None),
        (json!({"id": 7, "deep": 1}), Some("p.get")),
    ] {
        let found = infer(tools.iter(), arguments.as_object().unwrap());
        assert_eq!(found.map(|tool| tool.summary.name.as_str()), expected, "{arguments}");
    }
    assert!(
        infer(tools[..3].iter(), json!({"f": 1}).as_object().unwrap()).is_some(),
        "one tool less"
    );
}

#[test]
fn the_explanation_names_tool_fields_and_reasons() {
    let schema = json!({"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]});
    let text = explain("search.find", &check(&schema, &json!({"n": "many\nlines"})).unwrap_err());
    let expected = [
        "The call of \"search.find\" was not carried out: its arguments do not fit.",
        r#"- "n" must be a whole number, not the text "many\nlines""#,
        "- \"q\" is missing",
        "Correct this and send the whole call again.",
    ];
    assert_eq!(text, expected.join("\n"));
    assert_eq!(explanation_fields("The call of \"x\" is fine."), None);
    assert_eq!(
        explanation_fields("The call of x was not carried out: its arguments do not fit.\n"),
        None
    );
}

/// Without bounds, each of these would take hours, or exhaust the memory.
#[test]
fn hostile_schemas_and_values_cost_no_more_than_they_weigh() {
    let twice = |name: &str| json!({"anyOf": [{"$ref": format!("#/$defs/{name}")}, {"$ref": format!("#/$defs/{name}")}]});
    let node = json!({"properties": {"l": twice("T"), "r": twice("T")}, "anyOf": [twice("T"), twice("T")]});
    let tree = json!({"$ref": "#/$defs/T", "$defs": {"T": node}});
    let mut deep = json!(1);
    for _ in 0..12 {
        deep = json!({"l": deep.clone(), "x": [deep]});
    }
    assert_eq!(check(&tree, &deep), Ok(deep));

    let filled = json!({"properties": {"a": {"items": {"properties": {"d": {"default": "x".repeat(1 << 20)}}}}}});
    let empty = json!({"a": vec![json!({}); 1 << 18]});
    assert!(check(&filled, &empty).unwrap().to_string().len() < empty.to_string().len() * 64);

    let required =
        json!({"properties": {"d": {"default": "x".repeat(1 << 20)}}, "required": ["d"]});
    assert_eq!(check(&required, &json!({})), Ok(json!({})), "what is not reached is let through");

    let texts = |text: &str| json!({"k".repeat(1 << 19): vec![text; 1 << 18]});
    let list_schema = |key: &str, value: Value| json!({"additionalProperties": {"items": {"type": "integer", key: value}}});
    assert_eq!(check(&list_schema("minimum", json!(0)), &texts("x")).unwrap_err().len(), 64);
    let checked = check(&list_schema("minimum", json!(0)), &texts("7")).unwrap();
    assert!(
        checked.as_object().unwrap().values().all(|list| list
            .as_array()
            .unwrap()
            .iter()
            .all(|item| *item == 7))
    );
    assert!(check(&list_schema("enum", (0..20_000).collect()), &texts("19999")).is_ok());
}

#[test]
fn all_that_is_wrong_is_reported_at_once_patterns_and_unknown_fields_included() {
    let schema = json!({
        "type": "object",
        "properties": {
            "counter": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 1 },
            "by": { "type": "integer", "minimum": 1, "maximum": 10 },
            "even": { "type": "integer", "multipleOf": 2 },
            "tags": { "type": "array", "minItems": 3, "uniqueItems": true, "items": { "type": "string" } },
        },
        "additionalProperties": false,
    });
    let wrong = |arguments: Value| -> Vec<String> {
        let wrong = check(&schema, &arguments).expect_err("they do not fit");
        let mut words: Vec<String> =
            wrong.into_iter().map(|wrong| format!("{} {}", wrong.path, wrong.reason)).collect();
        words.sort();
        words
    };
    let all = json!({ "counter": "No", "by": 11, "x": 1, "even": 3, "tags": ["a", "a"] });
    assert_eq!(
        wrong(all),
        [
            "by must be at most 10",
            "counter must have at most 1 characters",
            "counter must match the pattern ^[a-z]+$",
            "even must be a multiple of 2",
            "tags must have at least 3 items",
            "tags must have no item twice",
            "x is not allowed here",
        ]
    );
    // A list that is too short is no reason to leave its items out.
    assert_eq!(
        wrong(json!({ "tags": [1] })),
        ["tags must have at least 3 items", "tags.0 must be a text, not 1"]
    );
    // The tool itself refuses what a model's call may have here (L-114).
    assert_eq!(
        check(&schema, &json!({ "counter": "N", "x": 1 })),
        Ok(json!({ "counter": "N", "x": 1 }))
    );
}

fn plain() -> impl Strategy<Value = Value> {
    let texts = prop::sample::select(vec!["", "5", "5.0", "x", "true", "null"]);
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2..3i64).prop_map(Value::from),
        Just(json!(1.5)),
        texts.prop_map(Value::from)
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    plain().prop_recursive(3, 24, 3, |inner| {
        let names = prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "integer", "number", "boolean", "string", "null", "array", "object",
    ]);
    let leaf = prop_oneof![
        4 => kind.prop_map(|kind| json!({"type": kind})),
        1 => prop::collection::vec(plain(), 1..4).prop_map(|list| json!({"enum": list})),
        1 => Just(json!({"$ref": "#"})),
        1 => Just(json!({"type": "integer", "minimum": 1})),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let names = prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
        let with_default = (inner.clone(), prop::option::of(plain())).prop_map(|(mut schema, default)| {
            schema.as_object_mut().unwrap().extend(default.map(|default| ("default".to_owned(), default)));
            schema
        });
        let fields = prop::collection::btree_map(names.clone(), with_default, 0..3);
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            prop::collection::vec(inner, 1..3).prop_map(|choices| json!({"anyOf": choices})),
            (fields, prop::collection::vec(names, 0..2))
                .prop_map(|(fields, required)| json!({"type": "object", "properties": fields, "required": required})),
        ]
    })
}

/// Schemas with keywords that only the runtime's validator knows, or of which no error keeps a
/// call from running (L-114).
fn any_validated_schema() -> impl Strategy<Value = Value> {
    let keywords = [
        ("pattern", json!("^5")),
        ("maxLength", json!(2)),
        ("exclusiveMinimum", json!(0)),
        ("maximum", json!(1)),
        ("multipleOf", json!(2)),
        ("const", json!("5")),
        ("minItems", json!(1)),
        ("prefixItems", json!([{ "type": "integer" }])),
        ("contains", json!({ "const": 1 })),
        ("uniqueItems", json!(true)),
        ("minProperties", json!(1)),
        ("additionalProperties", json!(false)),
        ("patternProperties", json!({ "^b": { "type": "integer" } })),
        ("not", json!({ "type": "null" })),
        ("if", json!({ "type": "string" })),
        ("then", json!(false)),
        ("allOf", json!([{ "type": ["string", "object"] }])),
        ("oneOf", json!([{ "type": "integer" }, { "type": "number" }, { "minimum": 1 }])),
    ];
    let some = prop::sample::subsequence(keywords.to_vec(), 0..4);
    (any_schema(), some).prop_map(|(mut schema, some)| {
        let some = some.into_iter().map(|(keyword, value)| (keyword.to_owned(), value));
        schema.as_object_mut().unwrap().extend(some);
        schema
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn what_is_refused_here_the_validator_refuses(
        top in any_validated_schema(), part in any_validated_schema(), value in any_value(),
    ) {
        // A reference to the whole of a schema that is one hangs a validator.
        prop_assume!(top.get("$ref").is_none());
        let schema = json!({ "allOf": [top], "properties": { "a": part } });
        let Ok(validator) = jsonschema::draft202012::new(&schema) else { return Ok(()) };
        for value in [value.clone(), json!({ "a": value })] {
            if let (true, Err(wrong)) = (value.is_object(), check(&schema, &value)) {
                prop_assert!(!validator.is_valid(&value), "{:?}", wrong);
            }
        }
    }

    #[test]
    fn what_passes_is_valid_and_what_is_valid_passes(schema in any_schema(), value in any_value()) {
        let Ok(validator) = jsonschema::validator_for(&schema) else { return Ok(()) };
        // A reference to the whole of a schema that is one hangs a validator.
        prop_assume!(schema.get("$ref").is_none());
        if !value.is_object() {
            return Ok(());
        }
        match check(&schema, &value) {
            Ok(checked) => {
                prop_assert!(validator.is_valid(&checked), "{} became {}", value, checked);
                prop_assert_eq!(check(&schema, &checked), Ok(checked.clone()));
            }
            Err(wrong) => {
                prop_assert!(!wrong.is_empty());
                prop_assert!(!validator.is_valid(&value), "{:?}", wrong);
            }
        }
    }

    #[test]
    fn an_explanation_can_be_read_back(tool in ".{0,12}", wrong in prop::collection::vec(("[a-c,.\"\\\\\n\r\u{2028}é -]{0,8}", ".{0,9}"), 0..5)) {
        let wrong: Vec<Wrong> = wrong.into_iter().map(|(path, reason)| Wrong { path, reason: format!("{reason}\n- \"x\" y") }).collect();
        let mut paths: Vec<String> = wrong.iter().map(|wrong| wrong.path.clone()).collect();
        paths.sort();
        prop_assert_eq!(explanation_fields(&explain(&tool, &wrong)), Some((tool, paths)));
    }
}
