//! Conversations with a third-party model server: LiteLLM from pip, in front of
//! `tests/data/servers/litellm/desk.py`. It validates requests and encodes answers in its own way.
//! `cargo xtask test` installs it, and runs these tests on supported systems.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use conclave_test_support::{Rig, bare, free_port, until};

use crate::cli::text;

const KEY: &str = "sk-conclave-test";
/// LiteLLM on its own port, stopped when the test ends.
struct LiteLlm {
    child: Child,
    port: u16,
    _home: tempfile::TempDir,
}

impl LiteLlm {
    fn start() -> Self {
        let program =
            std::env::var_os("CONCLAVE_LITELLM").expect("`cargo xtask test` says where LiteLLM is");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/servers/litellm");
        let port = free_port();
        let home = tempfile::tempdir().expect("a test can make a folder");
        let mut command = bare(&program);
        command.env("HOME", home.path()).env("TMPDIR", home.path());
        // Its Python interpreter is beside its program. It finds the handler in the folder of the
        // config.
        command
            .current_dir(&folder)
            .env("PYTHONPATH", &folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_PROXY", "*");
        // Disables the download of prices and lets the handler check keys.
        command
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
        command.args([
            "--config",
            "config.yaml",
            "--host",
            "127.0.0.1",
            "--telemetry",
            "False",
            "--port",
            &port.to_string(),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", PathBuf::from(&program).display()));
        let mut server = Self { child, port, _home: home };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        until("LiteLLM", || {
            assert!(
                self.child.try_wait().expect("it can be asked").is_none(),
                "LiteLLM ended before it was ready"
            );
            self.is_ready().then_some(())
        });
    }

    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let request = format!(
            "GET /health/liveliness HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\r\n",
            self.port
        );
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains(" 200 ")
    }

    fn rig(&self, model: &str) -> Rig {
        let config = format!(
            r#"
entry = "desk"

[models.default]
kind = "openai"
url = "http://127.0.0.1:{}/v1"
model = "{model}"
key = {{ env = "TEST_MODEL_KEY" }}
retries = 1

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["search.find"]

[plugins.search]
source = "stock:search"
grants.files = ["notes"]
limits = {{ cpu = "5 s" }}

[tasks.desk]
agent = "chat"
system = "You answer from the notes."
"#,
            self.port
        );
        Rig::new()
            .with_file("c.toml", config)
            .with_file("notes/lights.txt", "Skerryvore was first lit in 1844.\n")
    }
}

impl Drop for LiteLlm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn conclave(rig: &Rig, arguments: &[&str], key: &str, typed: &str) -> Output {
    let mut command = rig.conclave(arguments);
    command
        .env("TEST_MODEL_KEY", key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(typed.as_bytes())
        .expect("it can be typed to");
    child.wait_with_output().expect("the program ends")
}

#[test]
#[ignore = "needs LiteLLM from pip: `cargo xtask test` installs it"]
fn a_server_that_others_wrote_is_understood() {
    let server = LiteLlm::start();

    // A question leads to a call of a sandboxed tool, and its result goes back to the model.
    let output =
        conclave(&server.rig("desk"), &["run", "c.toml", "When was Skerryvore lit?"], KEY, "");
    let (answer, trace) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{trace}");
    assert!(
        answer.starts_with("The tool says:") && trace.contains("search.find"),
        "{answer}{trace}"
    );
    assert!(trace.contains("36 tokens"), "usage of both streamed replies is counted: {trace}");
    assert!(!trace.contains(KEY), "{trace}");

    // Turns of one conversation: the model reads the earlier messages, including the tool's call
    // and result.
    let typed = "Hello there\nWhen was Skerryvore lit?\nThank you\n";
    let output = conclave(&server.rig("desk"), &["chat", "c.toml", "--no-history"], KEY, typed);
    let (said, trace) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{trace}");
    assert!(said.contains("I have read 2 messages; the last one is: Hello there"), "{said}{trace}");
    assert!(said.contains("The tool says:"), "{said}{trace}");
    assert!(said.contains("I have read 8 messages; the last one is: Thank you"), "{said}{trace}");

    // The server rejects the key and repeats it in its message. The host must not print it.
    let output = conclave(&server.rig("desk"), &["run", "c.toml", "Hello"], "sk-wrong-key", "");
    let trace = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{trace}");
    assert!(trace.contains("401") && !trace.contains("sk-wrong-key"), "{trace}");

    // The server's refusal appears in plain words.
    let output = conclave(&server.rig("limited"), &["run", "c.toml", "Hello"], KEY, "");
    assert!(
        !output.status.success() && text(&output.stderr).contains("429"),
        "{}",
        text(&output.stderr)
    );
    let output = conclave(&server.rig("missing"), &["run", "c.toml", "Hello"], KEY, "");
    assert!(
        !output.status.success() && text(&output.stderr).contains("missing"),
        "{}",
        text(&output.stderr)
    );

    // `doctor` finds the server and its models.
    let output = conclave(&server.rig("desk"), &["doctor", "c.toml"], KEY, "");
    assert!(text(&output.stdout).contains("desk at http://127.0.0.1"), "{}", text(&output.stdout));

    // The server has stopped.
    let rig = server.rig("desk");
    drop(server);
    let output = conclave(&rig, &["run", "c.toml", "Hello"], KEY, "");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}
