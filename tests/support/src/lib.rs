//! How a test runs a config on real components: the host, a folder, people who answer from a list,
//! everything that was told. Tests touch the host's API here and nowhere else.

mod program;
mod ran;
mod rig;

use std::path::PathBuf;

pub use program::{bare, program, until, until_so};
pub use ran::{Answer, Ran};
pub use rig::{Rig, block_on, host, refused};

/// The component of a guest of `tests/guests`. `cargo xtask test` builds them, and checks that each
/// is named in a test.
#[must_use]
pub fn guest(name: &str) -> PathBuf {
    let path = guests().join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is not there: run `cargo xtask guests`", path.display());
    path
}

/// The folder of the guests' components.
#[must_use]
pub fn guests() -> PathBuf {
    // `cargo xtask test` says where they are; a test that is started by hand looks in its own
    // target folder.
    std::env::var_os("CONCLAVE_GUESTS").map_or_else(|| built().join("guests"), PathBuf::from)
}

/// What all tests' hosts keep of components that they compiled.
#[must_use]
pub fn cache() -> PathBuf {
    built().join("test-cache")
}

/// The folder of the stock plugins' components.
#[must_use]
pub fn stock() -> PathBuf {
    built().join("stock")
}

/// Where `cargo xtask` puts components: beside the test binary's profile folder.
fn built() -> PathBuf {
    let binary = std::env::current_exe().expect("a test runs from a file");
    // Cargo marks the target folder that it made; one that was there before is three levels up:
    // TARGET/PROFILE/deps/BINARY.
    let marked = binary.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    marked
        .or(binary.ancestors().nth(3))
        .expect("a test lies in cargo's target folder")
        .join("conclave")
}

/// A tool call through an agent that makes it and finishes with the result: the smallest task that
/// runs a guest's tool. Nobody is asked about it, whatever the plugin is granted.
#[must_use]
pub fn calling(
    guest_name: &str,
    tool: &str,
    arguments: &serde_json::Value,
    plugin_lines: &str,
) -> String {
    let settings = serde_json::json!({ "tool": format!("subject.{tool}"), "arguments": arguments });
    let policy = if plugin_lines.contains("grants") {
        "[[policy]]\ntool = \"subject.*\"\ndecide = \"allow\""
    } else {
        ""
    };
    format!(
        r#"
entry = "main"
[plugins.caller]
source = "{caller}"
grants.tools = ["subject.*"]
config = {settings}
[plugins.subject]
source = "{subject}"
{plugin_lines}
{policy}
[tasks.main]
agent = "caller"
"#,
        caller = guest("agent_caller").display(),
        subject = guest(guest_name).display(),
        settings = toml_inline(&settings),
    )
}

/// A task whose agent is this guest.
#[must_use]
pub fn stepping(guest_name: &str, plugin_lines: &str, task_lines: &str) -> String {
    format!(
        r#"
entry = "main"
[plugins.subject]
source = "{subject}"
{plugin_lines}
[tasks.main]
agent = "subject"
{task_lines}
"#,
        subject = guest(guest_name).display(),
    )
}

/// A JSON value as an inline TOML value.
#[must_use]
pub fn toml_inline(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| {
                    format!("{} = {}", serde_json::Value::from(key.as_str()), toml_inline(value))
                })
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        serde_json::Value::Array(items) => {
            format!("[{}]", items.iter().map(toml_inline).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
