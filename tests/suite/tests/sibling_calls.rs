//! Calls of one message beside each other, over a model server: a wrong one has its own error, and a
//! result that was cut can be read on.

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;
use serde_json::{Value, json};

use crate::cli::{conclave, text};

const LAMP: &str = "The lamp of Skerryvore is 48 metres high.\n";

/// Runs an agent with a search tool on these answers. Returns the results that each request after
/// the first ends with, and the tools that it offers.
fn run(tool: &str, replies: Vec<TestReply>) -> Vec<(Vec<Value>, Vec<String>)> {
    let server = Server::start(replies);
    let config = format!(
        "entry = \"chat\"\n[models.default]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\ngrants.tools = [\"search.*\"]\n\
         [plugins.search]\nsource = \"stock:search\"\n\
         grants.files = [{{ dir = \"docs\", at = \"/docs\", mode = \"read\" }}]\n\
         [tasks.chat]\nagent = \"chat\"\n{tool}\n",
        server.url(),
    );
    let rig = Rig::new().with_file("c.toml", config).with_file("docs/lamp.txt", LAMP);
    let output = conclave(&rig, &["run", "c.toml", "go"]);
    assert_eq!(text(&output.stdout), "all is told\n", "{}", text(&output.stderr));
    let requests = server.requests();
    let read = requests.iter().skip(1).map(|request| {
        let body = request.json();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let results = messages.into_iter().filter(|message| message["role"] == "tool").collect();
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
        (results, tools.iter().map(name).collect())
    });
    read.collect()
}

#[test]
fn a_wrong_native_call_has_its_own_error_and_its_sibling_runs() {
    let find = ("search__find", json!({ "query": "lamp" }));
    for wrong in [json!({ "path": 5 }), json!({}), json!("{\"path\": ")] {
        let calls = [find.clone(), ("search__read", wrong.clone())];
        let read = run("", vec![TestReply::calls(&calls), TestReply::says("all is told")]);
        let [(results, _)] = &read[..] else { panic!("two requests: {read:#?}") };
        let content = |index: usize| results[index]["content"].as_str().unwrap_or_default();
        assert_eq!(results.len(), 2, "{wrong}");
        assert!(content(0).contains("Skerryvore"), "{wrong}: {results:#?}");
        assert!(content(1).contains("search.read") && content(1).contains("do not fit"), "{wrong}");
        assert_ne!(results[0]["tool_call_id"], results[1]["tool_call_id"]);
    }
}

#[test]
fn a_cut_result_is_read_on_by_a_tool_that_is_offered_from_then_on() {
    let tool = "tools = [{ tool = \"search.read\", result_tokens = 4 }]";
    let call = |name: &str, arguments: Value| TestReply::calls(&[(name, arguments)]);
    let read = run(
        tool,
        vec![
            call("search__read", json!({ "path": "/docs/lamp.txt" })),
            call("read_result", json!({ "result": 1, "offset": 16 })),
            call("read_result", json!({ "result": 7 })),
            TestReply::says("all is told"),
        ],
    );
    let [(first, offered), (second, _), (third, _)] = &read[..] else {
        panic!("four requests: {read:#?}")
    };
    let last = |results: &[Value]| {
        results.last().and_then(|result| result["content"].as_str()).unwrap_or_default().to_owned()
    };
    let hint = "[read_result {\"result\": 1, \"offset\": 16} reads on.]";
    assert!(last(first).ends_with(hint), "{first:#?}");
    assert!(offered.iter().any(|tool| tool == "read_result"), "{offered:?}");
    let page = last(second);
    let (page, line) = page.rsplit_once('\n').expect("a line about the page");
    assert_eq!(page.len(), 16, "a page is as long as the limit: {page:?}");
    assert!(line.contains("\"offset\": 32"), "{line}");
    assert!(last(third).contains("there is no cut result 7"), "{third:#?}");
}
