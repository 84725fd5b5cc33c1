//! Calls every import that needs a grant, without any grant, to expose a path around the check.

use conclave_sdk::bindings::imports::conclave::plugin::{fetch, files, kv, model, secrets};
use conclave_sdk::bindings::tool::conclave::plugin::{exec, history, toolbox};
use conclave_sdk::{Json, tool};

/// Each import by its interface and name, with what came of it.
#[tool]
fn run() -> Json<Vec<(&'static str, String)>> {
    let path = "/folder/a.txt";
    let request = || fetch::Request {
        method: "GET".to_owned(),
        url: "https://api.example.org/".to_owned(),
        headers: Vec::new(),
        body: None,
        timeout_ms: None,
        extra: Vec::new(),
    };
    let asked = || model::Request {
        model: None,
        prompt: Vec::new(),
        tools: None,
        tool_format: None,
        tool_choice: model::ToolChoice::Auto,
        output_schema: None,
        stream: false,
        options: Vec::new(),
    };
    let called = || toolbox::Request { name: "echo.echo".to_owned(), arguments: "{}".to_owned() };
    let command = || exec::Command {
        program: "/bin/true".to_owned(),
        arguments: Vec::new(),
        directory: None,
        input: Vec::new(),
        timeout_ms: None,
        extra: Vec::new(),
    };
    Json(vec![
        ("model.complete", format!("{:?}", model::complete(&asked()).map(|_| "DONE"))),
        (
            "model.start",
            format!(
                "{:?}",
                model::start(&asked()).and_then(|stream| stream.wait()).map(|_| "DONE")
            ),
        ),
        (
            "files.list-entries",
            format!("{:?}", files::list_entries("/folder", None, 10).map(|_| "DONE")),
        ),
        ("files.read", format!("{:?}", files::read(path, 0, 10).map(|_| "DONE"))),
        ("files.write", format!("{:?}", files::write(path, 0, b"x", true).map(|_| "DONE"))),
        ("files.remove", format!("{:?}", files::remove(path).map(|()| "DONE"))),
        ("files.roots", format!("{:?}", files::roots().iter().map(|_| "DONE").collect::<Vec<_>>())),
        ("kv.get", format!("{:?}", kv::get("key").map(|_| "DONE"))),
        ("kv.set", format!("{:?}", kv::set("key", b"value").map(|()| "DONE"))),
        ("kv.delete", format!("{:?}", kv::delete("key").map(|()| "DONE"))),
        ("kv.keys", format!("{:?}", kv::keys("", None, 10).map(|_| "DONE"))),
        ("secrets.placeholder", format!("{:?}", secrets::placeholder("token").map(|_| "DONE"))),
        ("history.calling-message", format!("{:?}", history::calling_message().map(|_| "DONE"))),
        ("history.inputs", format!("{:?}", history::inputs().map(|_| "DONE"))),
        ("history.length", format!("{:?}", history::length().map(|_| "DONE"))),
        ("history.messages", format!("{:?}", history::messages(0, 10).map(|_| "DONE"))),
        (
            "toolbox.call-all",
            format!("{:?}", toolbox::call_all(&[called()])[0].clone().map(|_| "DONE")),
        ),
        ("exec.run", format!("{:?}", exec::run(&command()).map(|_| "DONE"))),
        ("fetch.send", format!("{:?}", fetch::send(&request()).map(|_| "DONE"))),
    ])
}

conclave_sdk::export!(tools: [run], asks: [model?, files?, kv?, secrets?, fetch?, history?, tools?, exec?]);
