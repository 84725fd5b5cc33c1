use serde_json::json;

use super::*;
use crate::types::tool::ToolSpec;

fn toolbox() -> Toolbox {
    let tool = |name: &str| {
        let input_schema = json!({ "type": "object" });
        let spec = ToolSpec { name: name.to_owned(), input_schema, ..ToolSpec::default() };
        TaskTool::of_plugin(&"box".into(), &spec)
    };
    vec![tool("add"), tool("add_all")].into()
}

fn read(text: &str, is_cut: bool) -> ParsedCalls {
    let toolbox = toolbox();
    let parser = CallParser {
        toolbox: &toolbox,
        text: true,
        name: None,
        for_handlers: false,
        after_model: false,
        wrong_call_stops_others: false,
    };
    let content = Some(text.to_owned());
    parser.read(&Message { content, is_cut, ..Message::new(0, Role::Llm, "desk") })
}

/// The tools named by the calls that were cut.
fn cut_tools(text: &str) -> Vec<String> {
    read(text, true).wrong.into_iter().map(|wrong| wrong.call.name).collect()
}

const TEXTS: &[&str] = &[
    r#"First {"request": "box.add", "x": {"y": "}"}}, then {"request": "box.add_all", "of": [{"request": "box.add"}, {"request": "box.add"}]} and words."#,
    r#"```json
{"properties": {"request": "box.add", "text": "a \"quoted\" {brace"}}
```"#,
    r#"{"calls": [{"request": "box.add"}, {"request": "box.add_all"}]}"#,
    "<tool><request>box.add</request><x><![CDATA[</b>]]></x></tool> and <tool>\n<request>box.add_all</request><of><item>1</item></of></tool> done {\"request\": \"box.add\"}",
    "<request>box.add</request><x>1</x></tool>",
];

#[test]
fn a_text_cut_anywhere_makes_no_call_that_the_whole_does_not() {
    for text in TEXTS {
        let full = read(text, false);
        for (end, _) in text.char_indices() {
            let part = read(&text[..end], true);
            assert!(part.all.len() <= full.all.len(), "{:?}", &text[..end]);
            for (one, other) in part.all.iter().zip(&full.all) {
                assert_eq!(one, other, "{:?}", &text[..end]);
            }
        }
        assert_eq!(read(text, true), full, "{text}");
    }
}

#[test]
fn a_cut_call_is_named_if_its_name_is_whole() {
    let names = |name: &str| vec![name.to_owned()];
    assert_eq!(cut_tools(r#"{"request": "box.add", "x": "lon"#), names("box.add"));
    assert_eq!(cut_tools(r#"{"x": 1, "request": "box.add_all", "y": ["#), names("box.add_all"));
    assert_eq!(cut_tools(r#"{"properties": {"request": "box.add", "#), names("box.add"));
    assert_eq!(cut_tools("<tool><request>box.add</request><x>1"), names("box.add"));
    assert_eq!(cut_tools("<request>box.add</request><x>1"), names("box.add"));
    // The rest of the name, or of the key, may be missing.
    for text in [r#"{"request": "box.add"#, r#"Now: {"requ"#, "{", "<tool><request>box.ad", "<to"] {
        assert_eq!(cut_tools(text), names(""), "{text}");
    }
    let wrong = read(r#"{"request": "box.add", "x": "lon"#, true).wrong;
    let [WrongCall { call, text, after: 0 }] = &wrong[..] else { panic!("{wrong:?}") };
    assert_eq!(*call.arguments, json!(r#"{"request": "box.add", "x": "lon"#));
    assert!(text.contains("within a call of `box.add`"), "{text}");
}

#[test]
fn words_that_are_cut_are_no_call() {
    for text in ["The set {1, 2", r#"{"name": "Bob", "age": "#, "a < b and <b>bold", ""] {
        assert_eq!(read(text, true), ParsedCalls::default(), "{text}");
    }
}

#[test]
fn an_open_brace_in_whole_words_hides_no_call() {
    let text = r#"Open { and {"request": "box.add"}"#;
    assert_eq!(read(text, false).own.len(), 1);
    assert_eq!(cut_tools(text), vec![String::new()], "it may be a part of another call");
}
