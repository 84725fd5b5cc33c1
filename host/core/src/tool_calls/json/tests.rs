use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Texts with their expected objects, as JSON: the results of the reference, except for those with
/// a comment.
const CASES: &[(&str, &str)] = &[
    // Positions of groups
    (r#"x {"a":1} y {'b': "it's }"} z"#, r#"[{"a":1},{"b":"it's }"}]"#),
    (r#"{"a": "}"} {"b": "{"}"#, r#"[{"a":"}"},{"b":"{"}]"#),
    (r#"{"a": 1}{"b": 2}"#, r#"[{"a":1},{"b":2}]"#),
    (r#"[{"a": 1}, {"b": 2}]"#, r#"[{"a":1},{"b":2}]"#),
    ("it's {'a': 'b'} isn't", r#"[{"a":"b"}]"#),
    (r#"I said {don't} and {"a": 1}"#, r#"["don't}",{"a":1}]"#),
    (r#"} { "a": 1 }"#, r#"[{"a":1}]"#),
    (r#"{ { "a": 1 }"#, r#"[{"a":1}]"#),
    (r#"{ "a": 1 "#, "[]"),
    (r#"{"a": {"b": 1}"#, r#"[{"b":1}]"#),
    ("nothing, [1, 2]", "[]"),
    ("```json\n{\"a\": 1}\n```", r#"[{"a":1}]"#),
    // Valid JSON stays unchanged
    (
        r#"{"a": 0.1, "b": 1E+2, "c": 12345678901234567890, "d": "é\ud83d\ude00"}"#,
        r#"[{"a":0.1,"b":100.0,"c":12345678901234567890,"d":"é😀"}]"#,
    ),
    ("{}", "[{}]"),
    // Quotes and line feeds
    ("{\"k\": \"v \n un \nn\"}", r#"[{"k":"v \n un \nn"}]"#),
    ("{'k': 'v', 'n': 42}", r#"[{"k":"v","n":42}]"#),
    (r#"{k: "v", n: 42}"#, r#"[{"k":"v","n":42}]"#),
    (r#"{“a”: “b”}"#, r#"[{"a":"b"}]"#),
    (r#"{"a": "he said "hi" ok", "b": 1}"#, r#"[{"a":"he said \"hi\" ok","b":1}]"#),
    (r#"{"a": "he said "hi", ok", "b": 1}"#, r#"[{"a":"he said \"hi\", ok","b":1}]"#),
    (r#"{"q": "What is "x"?"}"#, r#"[{"q":"What is \"x\"?"}]"#),
    ("{\"code\": \"print('hi')\nprint(\"x\")\"}", r#"[{"code":"print('hi')\nprint(\"x\")"}]"#),
    (
        "{\"code\": \"def f():\n  return {\"a\": 1}\n\"}",
        r#"[{"code":"def f():\n  return {\"a\": 1}"}]"#,
    ),
    (r#"{"a": "x, "b": 1}"#, r#"[{"a":"x","b":1}]"#),
    (r#"{"a": "hello}"#, r#"[{"a":"hello"}]"#),
    (r#"{"a": hello"}"#, r#"[{"a":"hello"}]"#),
    (r#"{a": 1, "b: 2}"#, r#"[{"a":1,"b":2}]"#),
    (r#"{"a": ""hello""}"#, r#"[{"a":"hello"}]"#),
    (r"{'a': 'it\'s \d\n\x41\u00e9'}", r#"[{"a":"it's \\d\nAé"}]"#),
    // Commas and colons
    (r#"{"a": [1,2,],}"#, r#"[{"a":[1,2]}]"#),
    (r#"{"a": "x" "b": 2}"#, r#"[{"a":"x","b":2}]"#),
    ("{\"a\" : \"x\"\n\"b\" : \"y\"}", r#"[{"a":"x","b":"y"}]"#),
    (r#"{"a": [1 2 3], "b": ["x" "y"]}"#, r#"[{"a":[1,2,3],"b":["x","y"]}]"#),
    (r#"{"a": , "b": 1,, "c": }"#, r#"[{"a":"","b":1,"c":""}]"#),
    (r#"{"a":: 1, "b"": 2}"#, r#"[{"a":1,"b":2}]"#),
    (r#"{"a" => 1; "b"= 2}"#, r#"[{"a":1,"b":2}]"#),
    (r#"{"a" "b"}"#, r#"[{"a":"b"}]"#),
    // The reference loses the value here
    (r#"{"a" 1}"#, r#"[{"a":1}]"#),
    // Values without quotes
    ("{\n  request: square,\n  number: 9\n}", r#"[{"number":9,"request":"square"}]"#),
    (r#"{"a": hello world, "b": 2}"#, r#"[{"a":"hello world","b":2}]"#),
    ("{url: http://x.y/z, k: 1}", r#"[{"k":1,"url":"http://x.y/z"}]"#),
    ("{a: {b: c}, d: [e, f g]}", r#"[{"a":{"b":"c"},"d":["e","f g"]}]"#),
    ("{some text: more}", r#"[{"text":"more"}]"#),
    // The reference reads None as a text
    (
        r#"{"a": True, "b": None, "c": FALSE, "d": null, "e": yes}"#,
        r#"[{"a":true,"b":null,"c":false,"d":null,"e":"yes"}]"#,
    ),
    (
        r#"{"a": .5, "b": 1., "c": 12abc, "d": 1_000, "e": 1/2, "f": +1}"#,
        r#"[{"a":0.5,"b":1.0,"c":"12abc","d":1000,"e":"1/2","f":1}]"#,
    ),
    (r#"{"a": (1, 2), "b": (1)}"#, r#"[{"a":[1,2],"b":1}]"#),
    (r#"{"a": [1, 2, ...]}"#, r#"[{"a":[1,2]}]"#),
    // Comments
    ("{\"a\": 1 // note\n, \"b\": 2, # c\n /* d */ \"e\": 3}", r#"[{"a":1,"b":2,"e":3}]"#),
    ("{// c\n\"a\": \"http://x\"}", r#"[{"a":"http://x"}]"#),
    // Braces
    (r#"{{"a": 1}}"#, r#"[{"a":1}]"#),
    (r#"{{"a":1}, "b": 2}"#, r#"[{"a":1,"b":2}]"#),
    (r#"{"a": [1, 2}"#, r#"[{"a":[1,2]}]"#),
    // Lists
    ("{1, 2}", "[1]"),
    (r#"{"a", "b"}"#, r#"["a"]"#),
    ("{word}", r#"["word}"]"#),
];

#[test]
fn objects_are_found_and_repaired() {
    for (text, expected) in CASES {
        assert_eq!(
            Value::Array(objects(text)),
            serde_json::from_str::<Value>(expected).unwrap(),
            "{text}"
        );
    }
}

#[test]
fn the_first_object_with_the_key_counts() {
    for (text, expected) in [
        (r#"{"b": 1} {"a": 2} {"a": 3}"#, Some(json!(2))),
        (r#"{'b': {'a': 1}, a: null}"#, Some(Value::Null)),
        (r#"{"b": {"a": 1}}"#, None),
        ("a {a} {", None),
    ] {
        assert_eq!(field(text, "a"), expected, "{text}");
    }
}

#[test]
fn what_is_nested_too_deep_is_left_out() {
    let nested = |depth: usize| format!("{}x{}", "{a:".repeat(depth), "}".repeat(depth));
    assert_eq!(objects(&nested(100)).len(), 1);
    assert_eq!(objects(&nested(200)), Vec::<Value>::new());
}

fn any_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from)
    ];
    let value = leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..4).prop_map(|map| json!(map))
        ]
    });
    prop::collection::btree_map(".*", value, 0..4).prop_map(|map| json!(map))
}

proptest! {
    #[test]
    fn any_text_is_looked_at(text in any::<String>(), marks in r#"[{}\[\]()"',:;/*# \\x1e.\-ntu“”`a\n]{0,60}"#) {
        for text in [text, marks] {
            let inside = format!("{{{text}}}");
            let _ = (objects(&text), objects(&inside), repair::repair(&inside), field(&text, "a"));
        }
    }

    #[test]
    fn valid_json_comes_out_exactly(object in any_object(), pretty in any::<bool>()) {
        let written = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) }.unwrap();
        prop_assert_eq!(objects(&format!("Call: {written} done")), vec![object]);
    }
}

/// Quadratic time would exceed the time limit of the test runner.
#[test]
fn hostile_texts_take_time_in_proportion() {
    let pieces = [
        "{", "}", "\"", "'", "{\"", "\"{", "\\\"", "{}", "{a:", "{\"a\":", "{'", "[", "a,",
        "\"a\" ", "\"a\",", " ", "#", "//", "/*", "{ \"{ ' ", "a\"b'", "\\x", "a:", "':", "“",
        "{[", "\n\"", ", ",
    ];
    for piece in pieces {
        let text = piece.repeat(100_000 / piece.len());
        for text in [
            format!("{{{text}"),
            format!("{{{text}}}"),
            format!("{{\"a\": \"{text}}}"),
            format!("{{a: [{text}]}}"),
            text,
        ] {
            let _ = (objects(&text), repair::repair(&text));
        }
    }
}
