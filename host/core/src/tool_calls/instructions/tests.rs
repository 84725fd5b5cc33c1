use serde_json::json;

use super::*;
use crate::types::ids::PluginName;
use crate::types::tool::ToolSpec;

fn toolbox() -> Toolbox {
    let find = ToolSpec {
        name: "find".to_owned(),
        description: "Finds pages.\n".to_owned(),
        // As pydantic writes it, titles and all.
        input_schema: json!({
            "title": "Find",
            "type": "object",
            "properties": {
                "request": {"title": "Request", "type": "string", "default": "find"},
                "purpose": {"title": "Purpose", "type": "string", "default": "Finds pages"},
                "id": {"title": "Id", "type": "string", "default": ""},
                "title": {"title": "Title", "type": "string", "description": "Words of the title."},
                "within": {"anyOf": [{"$ref": "#/$defs/Range"}, {"type": "null"}], "default": null},
                "kinds": {"type": "array", "items": {"enum": ["page", "note"]}},
                "_hidden": {"type": "integer", "default": 1},
            },
            "required": ["title"],
            "$defs": {"Range": {"title": "Range", "type": "object", "properties": {"from": {"type": "integer"}, "to": {"type": "integer"}}}},
        }),
        examples: vec![
            ToolExample { thought: None, arguments: json!({"title": "a <b>", "kinds": ["page"]}) },
            ToolExample {
                thought: Some("I look for all of them.".to_owned()),
                arguments: json!({"title": "", "request": "other"}),
            },
        ],
        ..ToolSpec::default()
    };
    let run = ToolSpec {
        name: "run".to_owned(),
        input_schema: json!({"type": "object", "properties": {"code": {"type": "string"}, "id": {"type": "integer"}}, "required": ["code", "id"]}),
        examples: vec![ToolExample {
            thought: None,
            arguments: json!({"code": "if a < b:\n    c()", "id": 1}),
        }],
        ..ToolSpec::default()
    };
    let plugin = PluginName::from("lab");
    let secret = TaskTool {
        offered: false,
        ..TaskTool::of_plugin(
            &plugin,
            &ToolSpec { name: "secret".to_owned(), ..ToolSpec::default() },
        )
    };
    vec![TaskTool::of_plugin(&plugin, &find), secret, TaskTool::of_plugin(&plugin, &run)].into()
}

fn text(
    toolbox: &Toolbox,
    format: ToolFormat,
    output_schema: Option<&Value>,
    recipients: &[&str],
) -> String {
    let recipients: Vec<String> = recipients.iter().map(|name| (*name).to_owned()).collect();
    Instructions { system: " Be brief.\n", toolbox, format, output_schema, recipients: &recipients }
        .to_text()
}

#[test]
fn tools_in_json() {
    let schema =
        json!({"title": "Answer", "type": "object", "properties": {"pages": {"type": "integer"}}});
    insta::assert_snapshot!(text(&toolbox(), ToolFormat::Json, Some(&schema), &["Critic", "User"]));
}

#[test]
fn tools_in_xml() {
    insta::assert_snapshot!(text(&toolbox(), ToolFormat::Xml, None, &[]));
}

#[test]
fn nothing_is_said_of_tools_that_are_called_otherwise_or_not_at_all() {
    for format in [ToolFormat::Native, ToolFormat::Off] {
        assert_eq!(text(&toolbox(), format, None, &[]), "Be brief.");
    }
    assert_eq!(text(&Toolbox::default(), ToolFormat::Json, None, &[]), "Be brief.");
    let schema = json!({"type": "array"});
    let answer = |format| text(&toolbox(), format, Some(&schema), &[]);
    let end =
        "must be JSON, with nothing around it, that fits this JSON Schema:\n{\"type\":\"array\"}";
    assert_eq!(answer(ToolFormat::Off), format!("Be brief.\n\nYour answer {end}"));
    assert_eq!(
        answer(ToolFormat::Native),
        format!("Be brief.\n\nAn answer that calls no tool {end}")
    );
}

#[test]
fn what_a_model_copies_from_an_example_can_be_read() {
    let toolbox = toolbox();
    let json = super::super::json::objects(&text(&toolbox, ToolFormat::Json, None, &[]));
    let calls = json
        .iter()
        .filter(|call| call["request"].as_str().is_some_and(|name| name.starts_with("lab.")))
        .cloned()
        .collect::<Vec<_>>();
    let example = json!({"request": "lab.run", "code": "if a < b:\n    c()", "id": 1});
    assert_eq!(calls.len(), 3);
    assert!(
        calls.contains(&example) && calls.contains(&json!({"request": "lab.find", "title": ""})),
        "{calls:?}"
    );
    let run = toolbox.get("lab.run").unwrap();
    let xml = xml::candidates(&text(&toolbox, ToolFormat::Xml, None, &[]));
    let read = xml::fields(xml.last().unwrap(), Some(&run.summary.input_schema)).unwrap();
    assert_eq!(crate::tool_calls::arguments::check(&run.summary.input_schema, &read), Ok(example));
}

#[test]
fn odd_schemas_are_shown_all_the_same() {
    let pinned = |schema| shown_schema::with_request("t", &schema).to_string();
    let bare = r#"{"properties":{"request":{"const":"t"}},"required":["request"],"type":"object"}"#;
    for odd in [
        json!(true),
        json!(null),
        json!({}),
        json!({"properties": 1, "required": "x", "type": ["object"]}),
    ] {
        assert_eq!(pinned(odd), bare);
    }
    let asks_for_id = json!({"properties": {"id": {"default": "x"}}, "required": ["id"]});
    assert!(pinned(asks_for_id).contains(r#""id":{"default":"x"}"#));
    let tree = json!({"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"type": "array", "items": {"$ref": "#"}}}});
    let tree = TaskTool::of_plugin(
        &PluginName::from("p"),
        &ToolSpec { name: "t".to_owned(), input_schema: tree, ..ToolSpec::default() },
    );
    assert!(form::form(&tree).lines().count() < 300);
    let mut deep = json!({"title": "x"});
    for _ in 0..500 {
        deep = json!({ "items": deep });
    }
    assert!(shown_schema::cleaned(&deep).to_string().len() < 1000);
}
