//! Test support for running a config on real components: the host, a folder, scripted users, and
//! all published events. The tests' only access to the host's API.

mod program;
mod ran;
pub mod registry;
mod rig;
mod store;

use std::path::PathBuf;

pub use conclave_test_servers::{
    Direction, Ending, FaultProxy, PostgresFailure, TestDatabase, TestPostgres, postgres_or_skip,
};
pub use program::{bare, kill, program, until, until_so};
pub use ran::{Answer, Ran};
pub use rig::{Rig, block_on, host, refused};

/// Returns the component of a guest of `tests/guests`. `cargo xtask test` builds them, and checks
/// that each is used in a test.
#[must_use]
pub fn guest(name: &str) -> PathBuf {
    let path = guests().join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is not there: run `cargo xtask guests`", path.display());
    path
}

/// Returns the folder of the guests' components.
#[must_use]
pub fn guests() -> PathBuf {
    // `cargo xtask test` passes the folder. A test that is started manually uses its own target
    // folder.
    std::env::var_os("CONCLAVE_GUESTS").map_or_else(|| built().join("guests"), PathBuf::from)
}

/// Returns the compilation cache that all tests' hosts share. `cargo xtask test` passes a folder
/// that all clones of the repository share, so a component is compiled once on a machine.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("CONCLAVE_TEST_CACHE")
        .map_or_else(|| built().join("test-cache"), PathBuf::from)
}

/// Returns the folder of the stock plugins' components.
#[must_use]
pub fn stock() -> PathBuf {
    built().join("stock")
}

/// Returns the folder of `cargo xtask` for components, beside the test binary's profile folder.
fn built() -> PathBuf {
    let binary = std::env::current_exe().expect("a test runs from a file");
    // Cargo marks a target folder that it created. An older one is three levels up:
    // TARGET/PROFILE/deps/BINARY.
    let marked = binary.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    marked
        .or(binary.ancestors().nth(3))
        .expect("a test lies in cargo's target folder")
        .join("conclave")
}

/// Returns the config of an agent that makes a tool call and finishes with its result: the smallest
/// task that runs a guest's tool. Needs no approval, whatever the plugin is granted.
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

/// Returns the config of a task whose agent is this guest.
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

/// Returns a port of loopback that is free now.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.expect("a free port").port()
}

/// Converts a JSON value into an inline TOML value.
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
