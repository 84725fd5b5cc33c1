//! The operator's commands that write a config, accept plugins and try them: files, streams, exit
//! codes. Few tests, because the core's tests cover the edits of a text.

use std::io::Write;
use std::process::{Output, Stdio};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Rig, guest};
use serde_json::{Value, json};

use crate::cli::text;

fn conclave(rig: &Rig, arguments: &[&str]) -> Output {
    conclave_with(rig, arguments, "")
}

/// Runs the program with a non-empty stdin. A prompt would consume it, and there must be no prompt.
fn conclave_with(rig: &Rig, arguments: &[&str], input: &str) -> Output {
    let mut command = rig.conclave(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    // A program that does not read its stdin may have exited already.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

/// Returns the stdout and stderr of a command that must succeed.
fn well(rig: &Rig, arguments: &[&str]) -> (String, String) {
    let output = conclave(rig, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// Returns the stderr of a command that must exit with this code.
fn ended(rig: &Rig, code: i32, arguments: &[&str]) -> String {
    let output = conclave(rig, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}", text(&output.stderr));
    text(&output.stderr)
}

fn file(rig: &Rig, path: &str) -> String {
    std::fs::read_to_string(rig.folder().join(path)).expect("it was written")
}

/// Returns a folder with a third-party component.
fn with_weather() -> Rig {
    Rig::new().with_file("weather.wasm", std::fs::read(guest("weather")).expect("it is built"))
}

const CALM: &str = "temperature";

#[test]
fn what_init_writes_runs_and_has_no_warning() {
    let rig = Rig::new();
    let (next, told) = well(&rig, &["init"]);
    assert!(told.contains("may read library/"), "{told}");
    assert!(next.contains("conclave run conclave.toml"), "{next}");
    let (_, warnings) = well(&rig, &["check", "conclave.toml"]);
    assert!(!warnings.contains("warning"), "{warnings}");
    let (answer, _) = well(&rig, &["run", "conclave.toml", "What is a grant?"]);
    assert!(answer.contains("what the operator lets a plugin do"), "{answer}");
    let schema: Value =
        serde_json::from_str(&file(&rig, "conclave.schema.json")).expect("it is JSON");
    assert_eq!(schema["title"], "conclave.toml");
    assert!(file(&rig, "conclave.toml").starts_with("#:schema ./conclave.schema.json\n"));
    assert_eq!(text(&conclave(&rig, &["schema"]).stdout), file(&rig, "conclave.schema.json"));
}

#[test]
fn init_with_a_model_writes_a_chat_that_checks_without_reaching_it() {
    let rig = Rig::new().with_file("papers/a.txt", "A page.");
    let (_, told) = well(
        &rig,
        &["init", "desk.toml", "--model", "http://127.0.0.1:9/v1#some", "--folder", "papers"],
    );
    assert!(told.contains("papers/") && told.contains("http://127.0.0.1:9/v1"), "{told}");
    let (shown, warnings) = well(&rig, &["check", "desk.toml"]);
    assert!(shown.contains("127.0.0.1:9") && shown.contains("read papers/"), "{shown}");
    assert!(!warnings.contains("warning"), "{warnings}");
}

#[test]
fn init_writes_over_nothing_and_grants_no_home_folder() {
    let rig = Rig::new().with_file("conclave.toml", "mine").with_file("home/.ssh/key", "secret");
    assert!(ended(&rig, 2, &["init"]).contains("--force"));
    assert_eq!(file(&rig, "conclave.toml"), "mine");
    assert!(ended(&rig, 2, &["init", "new.toml", "--folder", "home"]).contains("keys"));
    assert!(ended(&rig, 2, &["init", "new.toml", "--folder", "/"]).contains("whole disk"));
    assert!(
        !rig.folder().join("new.toml").exists()
            && !rig.folder().join("conclave.schema.json").exists()
    );
    well(&rig, &["init", "--force"]);
    assert!(file(&rig, "conclave.toml").contains("entry = \"chat\""));
    let rig = Rig::new().with_file("conclave.schema.json", "{}");
    assert!(ended(&rig, 2, &["init"]).contains("conclave.schema.json"));
}

#[test]
fn a_strangers_plugin_is_added_with_the_grants_that_were_given() {
    let rig = with_weather();
    well(&rig, &["init"]);
    let before = file(&rig, "conclave.toml");
    let (_, told) = well(&rig, &["add", "weather.wasm", "--grant", "files = [\"library\"]"]);
    for expected in [
        "UNSIGNED",
        "optional",
        "Keeps reports between calls.",
        "grant chat 'tools = [\"weather.*\"]'",
    ] {
        assert!(told.contains(expected), "{expected} is missing in\n{told}");
    }
    let after = file(&rig, "conclave.toml");
    assert!(
        after.contains(
            "[plugins.weather]\nsource = \"./weather.wasm\"\ngrants.files = [\"library\"]\n"
        ),
        "{after}"
    );
    assert!(after.contains("sha256 "), "{after}");
    assert!(
        before.lines().filter(|line| line.contains('#')).all(|line| after.contains(line)),
        "a comment is lost in\n{after}"
    );
    well(&rig, &["grant", "chat", "tools = [\"weather.*\"]"]);
    let (shown, _) = well(&rig, &["check", "conclave.toml"]);
    assert!(shown.contains("weather"), "{shown}");
    assert!(ended(&rig, 2, &["add", "weather.wasm"]).contains("--as NAME"));
}

#[test]
fn without_a_terminal_nothing_is_asked_and_nothing_is_granted() {
    let rig = with_weather();
    well(&rig, &["init"]);
    let output = conclave_with(&rig, &["add", "weather.wasm"], "library\ny\ny\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        !file(&rig, "conclave.toml")
            .split("[plugins.weather]")
            .nth(1)
            .expect("it was added")
            .contains("library")
    );
}

#[test]
fn without_questions_a_plugin_is_added_with_all_that_it_requires_or_not_at_all() {
    let rig = with_weather();
    well(&rig, &["init"]);
    let before = file(&rig, "conclave.toml");
    for more in [&["--no-questions"][..], &[]] {
        let add = [&["add", "stock:workspace", "--as", "desk-files"][..], more].concat();
        let told = ended(&rig, 2, &add);
        assert!(told.contains("desk-files requires `files`"), "{told}");
        assert!(
            told.contains("conclave add stock:workspace --as desk-files --grant 'files = ["),
            "{told}"
        );
        assert_eq!(file(&rig, "conclave.toml"), before);
    }
    let grant = "files = [\"library\"]";
    well(&rig, &["add", "stock:workspace", "--as", "desk-files", "--grant", grant]);
    well(&rig, &["check"]);
    // Nothing is missing without an optional grant.
    well(&rig, &["add", "weather.wasm", "--no-questions"]);
    well(&rig, &["check"]);
}

#[test]
fn grants_that_are_not_asked_for_are_refused() {
    let rig = with_weather();
    well(&rig, &["init"]);
    let before = file(&rig, "conclave.toml");
    assert!(
        ended(&rig, 2, &["add", "weather.wasm", "--grant", "model = [\"default\"]"])
            .contains("does not ask for `model`")
    );
    assert!(
        ended(&rig, 2, &["grant", "search", "tools = [\"search.find\"]"])
            .contains("does not ask for `tools`")
    );
    assert!(ended(&rig, 2, &["grant", "chat", "tools = [\"nothing\"]"]).contains("conclave.toml:"));
    assert_eq!(file(&rig, "conclave.toml"), before);
}

#[test]
fn the_line_of_a_denial_can_be_pasted() {
    let rig = Rig::new();
    well(&rig, &["init"]);
    let line = "[plugins.chat] grants.tools = [\"search.find\", \"search.list\"]";
    let (_, told) = well(&rig, &["grant", line]);
    assert!(told.contains("+ ") && told.contains("\"search.list\"]"), "{told}");
    assert!(ended(&rig, 2, &["grant", "search", line]).contains("chat"));
    let output = conclave(&rig, &["revoke", "--json", "chat", "tools = [\"search.list\"]"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (&told["type"], &told["changed"], &told["file"]),
        (&json!("config"), &json!(true), &json!("conclave.toml"))
    );
    assert_eq!(told["changes"][1]["change"], "added", "{told}");
    let told = ended(&rig, 2, &["revoke", "chat", "tools = [\"search.list\"]"]);
    assert!(told.contains("is not granted"), "{told}");
}

#[test]
fn what_is_granted_by_a_pattern_is_not_revoked_by_name() {
    let rig = Rig::new();
    well(&rig, &["init"]);
    well(&rig, &["grant", "chat", "tools = [\"search.*\"]"]);
    let told = ended(&rig, 2, &["revoke", "chat", "tools = [\"search.list\"]"]);
    assert!(told.contains("`search.*`"), "{told}");
    well(&rig, &["revoke", "chat", "tools"]);
    assert!(!file(&rig, "conclave.toml").contains("grants.tools"));
}

#[test]
fn a_plugin_from_an_address_is_held_to_its_digest() {
    let rig = Rig::new();
    well(&rig, &["init"]);
    let component = std::fs::read(guest("weather")).expect("it is built");
    let digest = conclave_runtime::plugin::inspect(&component).expect("it is a plugin").sha256;
    let server =
        Server::answering(move |_| TestReply::bytes(200, "application/wasm", component.clone()));
    let address = format!("{}/weather.wasm", server.url());
    well(&rig, &["init", "desk.toml"]);
    let told = ended(&rig, 2, &["add", &address, "--file", "desk.toml", "--as", "rain"]);
    assert!(told.contains(&format!("#sha256={digest}' --as rain --file desk.toml")), "{told}");
    let other = "0".repeat(64);
    assert!(ended(&rig, 5, &["add", &format!("{address}#sha256={other}")]).contains(&digest));
    well(&rig, &["add", &format!("{address}#sha256={digest}")]);
    assert!(
        file(&rig, "conclave.toml").contains(&format!("source = \"{address}#sha256={digest}\""))
    );
}

#[test]
fn a_crate_that_is_not_built_is_not_built_here() {
    let manifest = "[package]\nname = \"my-tool\"\nversion = \"0.1.0\"\n";
    let rig = Rig::new()
        .with_file("tool/Cargo.toml", manifest)
        .with_file("tool/build.rs", "fn main() { std::fs::write(\"ran\", \"\").unwrap() }");
    well(&rig, &["init"]);
    let told = ended(&rig, 2, &["add", "tool"]);
    assert!(told.contains("conclave plugin build"), "{told}");
    assert!(!rig.folder().join("tool/ran").exists() && !rig.folder().join("tool/target").exists());
    let built = rig.folder().join("tool/target/wasm32-wasip2/release/my_tool.wasm");
    std::fs::create_dir_all(built.parent().expect("it has one")).expect("a test can make a folder");
    std::fs::copy(guest("weather"), built).expect("a test can copy a file");
    well(&rig, &["add", "tool"]);
    assert!(
        file(&rig, "conclave.toml")
            .contains("source = \"./tool/target/wasm32-wasip2/release/my_tool.wasm\"")
    );
}

#[test]
fn a_tool_is_called_once_with_its_result_on_stdout() {
    let rig = with_weather();
    let (answer, told) =
        well(&rig, &["plugin", "call", "weather.wasm", CALM, "{\"place\": \"Oslo\"}"]);
    assert_eq!(serde_json::from_str::<Value>(&answer).expect("it is JSON")["place"], "Oslo");
    assert!(told.contains("MiB"), "time and memory: {told}");
    let output = conclave_with(
        &rig,
        &["plugin", "call", "-q", "weather.wasm", "weather.temperature", "-"],
        "{\"place\": \"Oslo\"}",
    );
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), ""),
        "{}",
        text(&output.stderr)
    );
    let rig = rig.with_file("arguments.json", "{\"place\": \"Oslo\"}");
    well(&rig, &["plugin", "call", "weather.wasm", CALM, "@arguments.json"]);
}

#[test]
fn what_a_tool_asks_for_next_is_shown_and_not_run() {
    let (rig, steering) = (Rig::new(), guest("steering").display().to_string());
    let (answer, told) = well(&rig, &["plugin", "call", &steering, "run"]);
    assert_eq!(answer, "steered\n");
    assert!(
        told.contains("follow-up call done, not run here │ {\"content\":\"the tool decided\"}"),
        "{told}"
    );
    let (answer, _) = well(&rig, &["plugin", "call", "--json", &steering, "run"]);
    let answer: Value = serde_json::from_str(&answer).expect("one object");
    assert_eq!(
        answer["follow_up_calls"],
        json!([{ "name": "done", "arguments": { "content": "the tool decided" } }])
    );
}

#[test]
fn a_call_ends_with_the_code_of_its_end() {
    let rig = with_weather();
    assert!(ended(&rig, 1, &["plugin", "call", "weather.wasm", CALM, "{}"]).contains("place"));
    assert!(ended(&rig, 2, &["plugin", "call", "weather.wasm", CALM, "{"]).contains("JSON"));
    let told = ended(&rig, 2, &["plugin", "call", "weather.wasm", "wind"]);
    assert!(told.contains("temperature '{\"place\": …}'"), "{told}");
    assert!(
        ended(&rig, 2, &["plugin", "call", "weather.wasm", CALM, "{}", "--limit", "memory=64"])
            .contains("limits.memory")
    );
    let told = ended(&rig, 5, &["plugin", "call", "weather.wasm", "spin", "--limit", "cpu=20 ms"]);
    assert!(told.contains("20 ms") && told.contains("--limit cpu="), "{told}");
    assert!(ended(&rig, 2, &["plugin", "call", "stock:chat", "find"]).contains("has no tools"));
    assert!(
        ended(&rig, 2, &["plugin", "call", "stock:search", "find"]).contains("--grant 'files = ")
    );
}

#[test]
fn a_refusal_proposes_the_argument_that_would_allow_it() {
    let rig = Rig::new()
        .with_file("docs/a.txt", "Skerryvore was lit in 1844.")
        .with_file("notes/b.txt", "A note.");
    let call = |grants: &[&str]| {
        let mut arguments = vec![
            "plugin",
            "call",
            "--json",
            "stock:search",
            "read",
            "{\"path\": \"/notes/b.txt\"}",
        ];
        grants.iter().for_each(|grant| arguments.extend(["--grant", grant]));
        let output = conclave(&rig, &arguments);
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    let refused = call(&["files = [\"docs\"]"]);
    assert_eq!(
        (&refused["exit_code"], &refused["denials"][0]["capability"]),
        (&json!(1), &json!("files")),
        "{refused}"
    );
    let allow = refused["denials"][0]["allow"].as_str().expect("a line is proposed");
    let grant = allow
        .strip_prefix("--grant '")
        .and_then(|rest| rest.strip_suffix('\''))
        .expect("it is an argument");
    let reason = refused["denials"][0]["reason"].as_str().expect("a text");
    assert!(reason.contains("choose the folder that the plugin shall see as /notes"), "{reason}");
    assert_eq!(
        grant.matches("dir = \"…\"").count(),
        1,
        "the folder is the operator's choice: {grant}"
    );
    let allowed = call(&[&grant.replace('…', "notes")]);
    assert_eq!(
        (&allowed["exit_code"], allowed["denials"].as_array().map(Vec::len)),
        (&json!(0), Some(0)),
        "{allowed}"
    );
    assert!(
        allowed["result"].as_str().is_some_and(|result| result.contains("A note.")),
        "{allowed}"
    );
    assert!(
        allowed["wall_us"].as_u64() > Some(0) && allowed["memory"].as_u64() > Some(0),
        "{allowed}"
    );
}

#[test]
fn a_key_file_is_refused_without_a_line_to_paste() {
    let rig = with_weather();
    let told = ended(
        &rig,
        1,
        &[
            "plugin",
            "call",
            "weather.wasm",
            "read_key",
            "--grant",
            "files = [{ dir = \".\", at = \"/data\" }]",
        ],
    );
    assert!(told.contains("DENIED") && !told.contains("to allow it"), "{told}");
}

#[test]
fn other_programs_can_read_the_command_line() {
    let rig = Rig::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (script, _) = well(&rig, &["completions", shell]);
        assert!(script.contains("conclave") && script.contains("revoke"), "{shell}");
    }
    well(&rig, &["man", "pages"]);
    for page in ["conclave.1", "conclave-add.1", "conclave-plugin-call.1"] {
        assert!(file(&rig, &format!("pages/{page}")).contains(".TH"), "{page}");
    }
}

#[test]
fn a_doctor_writes_no_colors_into_a_pipe() {
    let rig = Rig::new();
    well(&rig, &["init"]);
    let (told, _) = well(&rig, &["doctor", "conclave.toml"]);
    assert!(told.contains("no model server is configured"), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
}

#[test]
fn a_doctor_tells_a_key_from_a_server() {
    let rig = Rig::new().with_file("docs/a.txt", "A page.");
    well(&rig, &["init", "--model", "http://127.0.0.1:9/v1#some"]);
    assert!(ended(&rig, 4, &["doctor", "conclave.toml"]).is_empty());
    let keyed = file(&rig, "conclave.toml").replace(
        "# key = { env = \"MY_KEY\" }",
        "key = { env = \"CONCLAVE_KEY_THAT_IS_NOT_SET\" }",
    );
    let rig = rig.with_file("conclave.toml", keyed);
    assert!(ended(&rig, 3, &["doctor", "conclave.toml"]).is_empty());
}

#[test]
fn a_folder_that_is_not_there_is_not_granted() {
    let rig = with_weather();
    well(&rig, &["init"]);
    let before = file(&rig, "conclave.toml");
    let told = ended(&rig, 2, &["add", "weather.wasm", "--grant", "files = [\"nowhere\"]"]);
    assert!(told.contains("config/missing-folder") && told.contains("conclave.toml:"), "{told}");
    let told = ended(&rig, 2, &["grant", "search", "files = [\"nowhere\"]"]);
    assert!(told.contains("config/missing-folder") && told.contains("conclave.toml:"), "{told}");
    // The sign of a suggested grant is no folder either.
    let chosen = "files = [{ dir = \"…\", at = \"/tides\", mode = \"read\" }]";
    let told = ended(&rig, 2, &["grant", "search", chosen]);
    assert!(told.contains("`…` stands for the folder that you choose"), "{told}");
    assert_eq!(file(&rig, "conclave.toml"), before);
}

#[test]
fn a_folder_that_holds_too_much_is_granted_by_yes_only() {
    let rig = with_weather().with_file("keys/.ssh/id", "secret");
    well(&rig, &["init"]);
    for dir in ["/", "/etc", "keys", "keys/.ssh", ".."] {
        let grant = format!("files = [{{ dir = \"{dir}\", at = \"/data\", mode = \"read\" }}]");
        assert!(
            ended(&rig, 2, &["add", "weather.wasm", "--grant", &grant]).contains("--yes"),
            "{dir}"
        );
        assert!(ended(&rig, 2, &["grant", "search", &grant]).contains("--yes"), "{dir}");
        assert!(ended(&rig, 2, &["init", "new.toml", "--folder", dir]).contains("--yes"), "{dir}");
    }
    let grant = "files = [{ dir = \"..\", at = \"/data\", mode = \"read\" }]";
    well(&rig, &["add", "weather.wasm", "--yes", "--grant", grant]);
    well(&rig, &["grant", "search", grant, "--yes"]);
    // A capability that is already granted is not asked for again.
    well(&rig, &["grant", "search", "files = [\"library\"]"]);
    well(&rig, &["init", "new.toml", "--folder", "..", "--yes"]);
}

#[test]
fn what_is_left_to_check_is_said_after_an_edit() {
    let rig = Rig::new();
    well(&rig, &["init"]);
    let narrowed = file(&rig, "conclave.toml")
        .replace("agent = \"chat\"\n", "agent = \"chat\"\ntools = [\"search.find\"]\n");
    let rig = rig.with_file("conclave.toml", narrowed);
    let (_, told) = well(&rig, &["grant", "chat", "tools = [\"search.nothing\"]"]);
    assert!(told.contains("conclave check conclave.toml"), "{told}");
    assert!(told.contains("warning[config/no-effect]: `search.nothing`"), "{told}");
    let (_, told) = well(&rig, &["revoke", "search", "files"]);
    assert!(told.contains("warning:") && told.contains("search requires `files`"), "{told}");
    let told = ended(&rig, 2, &["revoke", "chat", "tools = { calls = 2 }"]);
    assert!(told.contains("revoke does not remove limits"), "{told}");
}

#[test]
fn the_tools_of_a_plugin_are_listed_before_anything_is_granted() {
    let rig = Rig::new();
    for arguments in
        [&["plugin", "call", "stock:search"][..], &["plugin", "call", "stock:search", "nothing"]]
    {
        let told = ended(&rig, 2, arguments);
        assert!(told.contains("find '{\"query\": …}'"), "{told}");
    }
    let (told, _) = well(&rig, &["plugin", "inspect", "stock:search"]);
    assert!(told.starts_with("stock:search ") && told.contains("files"), "{told}");
}

#[test]
fn arguments_that_are_too_large_are_named() {
    let large = serde_json::json!({ "text": "x".repeat(2 << 20) }).to_string();
    let rig = Rig::new().with_file("large.json", large);
    let echo = guest("echo").display().to_string();
    let told = ended(&rig, 2, &["plugin", "call", &echo, "run", "@large.json"]);
    assert!(
        told.contains("more than the limit of 1.0 MiB") && told.contains("--limit arguments="),
        "{told}"
    );
}

#[test]
fn a_config_that_is_not_there_is_written_by_init() {
    let rig = Rig::new();
    assert!(ended(&rig, 2, &["check"]).contains("conclave init"));
    assert!(ended(&rig, 2, &["init", "sub/x.toml"]).contains("the folder sub does not exist"));
    well(&rig, &["init"]);
    well(&rig, &["check"]);
}

#[test]
fn what_the_host_would_refuse_is_not_written() {
    let rig = with_weather();
    well(&rig, &["init"]);
    let before = file(&rig, "conclave.toml");
    let all = "files = [{ dir = \".\", at = \"/all\", mode = \"read-write\" }]";
    let told = ended(&rig, 2, &["grant", "search", all]);
    assert!(
        told.contains("cannot be granted for writing") && told.contains("nothing was written"),
        "{told}"
    );
    assert!(
        ended(&rig, 2, &["add", "weather.wasm", "--grant", all])
            .contains("cannot be granted for writing")
    );
    assert_eq!(file(&rig, "conclave.toml"), before);
    let (_, told) = well(&rig, &["add", "weather.wasm"]);
    assert!(
        told.contains("other plugins are not pinned: `conclave plugin lock` pins them"),
        "{told}"
    );
}

/// A pipe gives its text once: a command that read its config twice would run another one, or none.
#[test]
fn a_config_is_read_once_so_it_can_be_a_pipe() {
    let rig = Rig::new().with_file("inputs.jsonl", "{\"input\": \"hello\"}\n");
    let config = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\n[plugins.actor]\nsource = \"{}\"\n\
         config = {{ script = [{{ action = \"finish\", args = {{ outputs = {{ content = \"it ran\" }} }} }}] }}\n",
        guest("acting_agent").display()
    );
    let piped = "/dev/stdin";
    for (arguments, code) in [
        (&["run", piped, "hello"][..], 0),
        (&["batch", "inputs.jsonl", "--config", piped], 0),
        (&["check", piped], 0),
        (&["can", "actor", "files", "--file", piped], 1),
    ] {
        let output = conclave_with(&rig, arguments, &config);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stdout}{stderr}");
    }
}
