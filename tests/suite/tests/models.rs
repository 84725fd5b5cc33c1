//! Models behind a server, through the program: their configuration, the requests to the server,
//! and the secrecy of its key.

use std::process::Output;

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;
use serde_json::{Value, json};

use crate::cli::text;

const KEY: &str = "sk-a-very-secret-key";
/// The smallest PNG.
const PIXEL: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

/// Returns a chat agent with the model of `lines`.
fn rig(lines: &str) -> Rig {
    let config = format!(
        "entry = \"desk\"\n{lines}\n[plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"chat\"\n"
    );
    Rig::new().with_file("c.toml", config)
}

fn server_lines(server: &Server, more: &str) -> String {
    format!(
        "[models.default]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"test-model\"\nretries = 0\n{more}",
        server.url()
    )
}

fn conclave(rig: &Rig, arguments: &[&str]) -> Output {
    rig.conclave(arguments).env("TEST_MODEL_KEY", KEY).output().expect("the program runs")
}

#[test]
fn a_model_of_the_command_line_takes_the_place_of_the_configs() {
    let server = Server::start(vec![TestReply::says("From the other one.")]);
    let model = format!("{}#test-model", server.url());
    for rig in [rig(""), rig("[models.default]\nkind = \"scripted\"\nreplies = \"none.json\"")] {
        let output = conclave(&rig, &["run", "c.toml", "Hello", "--model", &model]);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(0), "From the other one.\n"),
            "{}",
            text(&output.stderr)
        );
        let place = format!(
            "data can leave to: {} (model default)",
            server.url().trim_start_matches("http://").trim_end_matches("/v1")
        );
        assert!(text(&output.stderr).contains(&place), "{}", text(&output.stderr));
    }
}

#[test]
fn a_model_with_the_messages_api_answers_and_its_key_is_not_shown() {
    let reply = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model",
        "content": [{"type": "text", "text": format!("By the other API, {KEY}.")}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3}});
    let server = Server::start(vec![TestReply::json(200, &reply)]);
    let lines = server_lines(&server, "key = { env = \"TEST_MODEL_KEY\" }");
    let rig = rig(&lines.replace("\"openai\"", "\"anthropic\""));
    let output = conclave(&rig, &["run", "c.toml", "Hello"]);
    let (said, trace) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said, "By the other API, (key).\n", "{trace}");
    assert!(trace.contains("10 tokens") && !trace.contains(KEY), "{trace}");
    let request = server.requests().pop().expect("it was asked");
    assert_eq!(
        (request.path.as_str(), request.headers["x-api-key"].as_str()),
        ("/v1/messages", KEY)
    );
}

#[test]
fn check_names_the_kind_of_a_url_with_the_path_of_the_other_api() {
    let server = "[models.default]\nkind = \"openai\"\nurl = \"http://127.0.0.1:9/v1/messages\"\nmodel = \"m\"";
    let output = conclave(&rig(server), &["check", "c.toml"]);
    let trace = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{trace}");
    assert!(trace.contains("the Messages API has the kind \"anthropic\""), "{trace}");
}

#[test]
fn no_model_is_switched_on_by_a_variable() {
    let server = Server::start(vec![TestReply::says("I was asked.")]);
    let rig = rig("");
    let mut command = rig.conclave(&["run", "c.toml", "Hello"]);
    for name in [
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
    ] {
        command.env(name, server.url());
    }
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("names the model `default`"), "{}", text(&output.stderr));
    assert!(server.requests().is_empty());
}

#[test]
fn an_image_goes_along_with_the_message() {
    let server = Server::start(vec![TestReply::says("A pixel.")]);
    let rig = rig(&server_lines(&server, ""))
        .with_file("pixel.png", PIXEL)
        .with_file("note.txt", "Look closely.");
    let output = conclave(
        &rig,
        &["run", "c.toml", "What is this?", "--attach", "pixel.png", "--attach", "note.txt"],
    );
    assert_eq!(text(&output.stdout), "A pixel.\n", "{}", text(&output.stderr));
    let body = server.requests().pop().expect("it was asked").json();
    let parts = body["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .map(|last| last["content"].clone())
        .unwrap_or_default();
    let kinds: Vec<&str> =
        parts.as_array().into_iter().flatten().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!(kinds, ["text", "image_url", "text"], "{parts}");
    assert!(
        parts[1]["image_url"]["url"]
            .as_str()
            .is_some_and(|url| url.starts_with("data:image/png;base64,iVBORw0KGgo")),
        "{parts}"
    );
    assert!(
        parts[2]["text"]
            .as_str()
            .is_some_and(|text| text.contains("note.txt") && text.contains("Look closely.")),
        "{parts}"
    );
}

/// However the server uses the key, it must appear only in the request.
#[test]
fn a_key_goes_to_its_server_and_nowhere_else() {
    let echo = format!("Incorrect key {KEY}; encoded {}", KEY.replace('-', "%2D"));
    for source in [
        r#"key = { env = "TEST_MODEL_KEY" }"#,
        r#"key = { file = "key.txt" }"#,
        r#"key = { command = ["cat", "key.txt"] }"#,
    ] {
        let server = Server::answering({
            let echo = echo.clone();
            move |_| TestReply::error(401, &echo)
        });
        let rig = rig(&server_lines(&server, source)).with_file("key.txt", format!("{KEY}\n"));
        let output = conclave(&rig, &["run", "c.toml", "Hello", "--json", "--journal", "journal"]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let sent: Vec<String> = server
            .requests()
            .iter()
            .map(|request| request.headers["authorization"].clone())
            .collect();
        assert!(
            !sent.is_empty() && sent.iter().all(|sent| sent == &format!("Bearer {KEY}")),
            "{sent:?}"
        );
        let journal: String = std::fs::read_dir(rig.folder().join("journal"))
            .expect("there is a journal")
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text"))
            .collect();
        for told in [text(&output.stdout), text(&output.stderr), journal] {
            assert!(!told.contains(KEY) && !told.contains("%2D"), "{told}");
        }
    }
}

#[test]
fn a_key_that_is_not_there_is_a_problem_of_the_config() {
    let server = Server::start(vec![TestReply::says("Hello.")]);
    let rig = rig(&server_lines(&server, r#"key = { env = "CONCLAVE_NO_SUCH_KEY" }"#));
    for command in ["check", "run"] {
        let arguments =
            if command == "run" { vec!["run", "c.toml", "Hello"] } else { vec!["check", "c.toml"] };
        let output = conclave(&rig, &arguments);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains("c.toml:7")
                && text(&output.stderr).contains("CONCLAVE_NO_SUCH_KEY"),
            "{}",
            text(&output.stderr)
        );
    }
    assert!(server.requests().is_empty());
}

#[test]
fn streamed_text_is_followed_while_it_comes_and_journalled_once() {
    let server = Server::start(vec![TestReply::streams(&["Sker", "ryv", "ore"])]);
    let rig = rig(&server_lines(&server, ""));
    let output = conclave(&rig, &["run", "c.toml", "Hello", "--json"]);
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let pieces: Vec<&str> = lines
        .iter()
        .filter(|line| line["type"] == "streamed")
        .filter_map(|line| line["text"].as_str())
        .collect();
    assert_eq!(pieces, ["Sker", "ryv", "ore"]);
    let answered: Vec<&Value> = lines
        .iter()
        .filter(|line| line["record"]["event"] == "model-answered")
        .map(|line| &line["record"]["answer"]["Ok"]["content"])
        .collect();
    assert_eq!(answered, [&json!("Skerryvore")]);
}

#[test]
fn doctor_asks_the_servers_of_a_config() {
    let server = Server::start(vec![TestReply::says("Hello.")]);
    let found = conclave(&rig(&server_lines(&server, "")), &["doctor", "c.toml", "--json"]);
    let findings: Value = serde_json::from_str(&text(&found.stdout)).expect("one object");
    let model = findings["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|finding| finding["check"] == "model")
        .cloned()
        .unwrap_or_default();
    assert_eq!(model["state"], "ok", "{findings}");
    let other = server_lines(&server, "").replace("\"test-model\"", "\"another\"");
    let missing = conclave(&rig(&other), &["doctor", "c.toml"]);
    // A server of one model commonly answers to any name.
    assert_eq!(missing.status.code(), Some(0), "{}", text(&missing.stdout));
    assert!(text(&missing.stdout).contains("lists its one model as test-model"));
}

#[test]
fn doctor_says_that_a_server_is_loading_its_model() {
    let loading = json!({"error": {"code": 503, "message": "Loading model"}});
    for (reply, is_loading) in
        [(TestReply::json(503, &loading), true), (TestReply::error(503, "no slot is free"), false)]
    {
        let server = Server::answering(move |_| reply.clone());
        let output = conclave(&rig(&server_lines(&server, "")), &["doctor", "c.toml"]);
        let found = text(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{found}");
        assert_eq!(found.contains("is loading its model"), is_loading, "{found}");
        assert_eq!(found.contains("when it has loaded"), is_loading, "{found}");
        assert_eq!(found.contains("cannot be reached"), !is_loading, "{found}");
    }
}

#[test]
fn the_exit_code_tells_a_server_that_may_answer_later_from_one_that_refuses() {
    let error = json!({"error": {"type": "overloaded_error", "message": "Overloaded"}});
    let half = json!({"choices": [{"delta": {"content": "Half of a"}}]});
    for (reply, code) in [
        (TestReply::error(503, "no slot is free"), 4),
        (TestReply::error(429, "slow down"), 4),
        (TestReply::error(404, "The model `test-model` does not exist"), 4),
        (TestReply::error(404, "404 page not found"), 4),
        (TestReply::hang_up(), 4),
        (TestReply::events(&[&half, &error]), 4),
        (TestReply::events(&[&half]).then_cut(), 4),
        (TestReply::error(400, "bad schema"), 10),
        (TestReply::error(400, "gemma:2b does not support tools"), 10),
        (TestReply::json(200, &json!({"error": {"message": "bad schema"}})), 10),
        (TestReply::bytes(200, "text/html", "<title>Sign in</title>"), 10),
    ] {
        let server = Server::start(vec![reply.clone()]);
        let output = conclave(&rig(&server_lines(&server, "")), &["run", "c.toml", "Hello"]);
        assert_eq!(output.status.code(), Some(code), "{reply:?}: {}", text(&output.stderr));
    }
}

#[test]
fn what_a_run_has_not_shown_is_tried_again_and_a_wait_is_told() {
    let half = json!({"choices": [{"delta": {"content": "Half of a"}}]});
    let server = Server::start(vec![
        TestReply::error(503, "Loading model"),
        TestReply::events(&[&half]).then_cut(),
        TestReply::streams(&["The whole."]),
    ]);
    let rig = rig(&server_lines(&server, "").replace("retries = 0", "retries = 1"));
    let output = conclave(&rig, &["run", "c.toml", "Hello"]);
    let trace = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "The whole.\n"));
    assert!(trace.contains("Loading model. The next attempt is"), "{trace}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn an_answer_that_was_filtered_or_ends_for_an_unknown_reason_is_remarked() {
    for (reason, remark) in [
        ("content_filter", "the provider's filter cut or refused the answer"),
        ("paused", "the server ended the answer for an unusual reason"),
        ("length", "the server cut the answer at its limit"),
    ] {
        let choice = json!({"message": {"content": "Half of a"}, "finish_reason": reason});
        let server = Server::start(vec![TestReply::json(200, &json!({"choices": [choice]}))]);
        let output = conclave(&rig(&server_lines(&server, "")), &["run", "c.toml", "Hello"]);
        let trace = text(&output.stderr);
        assert!(output.status.success() && trace.contains(remark), "{reason}: {trace}");
    }
}

#[test]
fn a_call_in_the_model_s_thinking_does_not_run() {
    let json_call = r#"{"request": "search.list"}"#;
    let xml_call = "<tool><request>search.list</request></tool>";
    for (format, call) in [("json", json_call), ("xml", xml_call), ("native", json_call)] {
        for (open, marks) in [("<think>", ""), ("", ""), ("[T]", "thinking = [\"[T]\", \"[/T]\"]")]
        {
            let close = if open == "[T]" { "[/T]" } else { "</think>" };
            let said = format!("{open}Maybe {call}? No.{close}\n\n48 metres.");
            let server = Server::start(vec![TestReply::says(&said), TestReply::says("done")]);
            let rig = searching(&server_lines(&server, marks), format);
            let output = conclave(&rig, &["run", "c.toml", "Hello"]);
            let trace = text(&output.stderr);
            assert_eq!(text(&output.stdout), "48 metres.\n", "{format} {open}: {trace}");
            assert_eq!(server.requests().len(), 1, "{format} {open}: {trace}");
        }
        let said = format!("<think>Maybe.</think>{call}");
        let server = Server::start(vec![TestReply::says(&said), TestReply::says("done")]);
        let rig = searching(&server_lines(&server, "thinking = false"), format);
        let output = conclave(&rig, &["run", "c.toml", "Hello"]);
        let calls = if format == "native" { 1 } else { 2 };
        assert_eq!(server.requests().len(), calls, "{format}: {}", text(&output.stderr));
    }
}

/// Returns a chat agent that calls `search` in this form.
fn searching(lines: &str, format: &str) -> Rig {
    let config = format!(
        "entry = \"desk\"\n{lines}\n[plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\ngrants.tools = [\"search.*\"]\n\
         [plugins.search]\nsource = \"stock:search\"\ngrants.files = [\"docs\"]\n\
         [tasks.desk]\nagent = \"chat\"\ntool_format = \"{format}\"\n"
    );
    Rig::new().with_file("c.toml", config).with_file("docs/a.txt", "a")
}
