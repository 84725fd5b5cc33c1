//! Persistent rooms with real components, as an embedding program uses them.

mod killed;
mod talking;

use std::collections::BTreeMap;

use conclave_core::config::Config;
use conclave_runtime::native::{self, Failure, Plugin, Step};
use conclave_runtime::{Host, HostOptions, Prepared};
use conclave_test_support::{cache, guest, stock};

/// Returns a host with a native `desk`, which repeats its input, and the strategy `immediate`.
fn host() -> Host {
    let desk =
        Plugin::agent(
            "desk",
            |step: Step| async move { Ok::<_, Failure>(native::finish(step.text())) },
        );
    let worker = Plugin::agent("worker", |step: Step| async move {
        Ok::<_, Failure>(native::finish(format!("done: {}", step.text())))
    });
    let immediate =
        std::fs::read(stock().join("immediate.wasm")).expect("`cargo xtask guests` was run");
    Host::new(HostOptions {
        cache: Some(cache()),
        stock: BTreeMap::from([("immediate".to_owned(), immediate.into())]),
        native: vec![desk, worker],
        ..HostOptions::default()
    })
    .expect("the engine starts")
}

/// Returns a config with background tasks: `quick` is native, `echo` and `stuck` are components.
/// The strategy delivers the results.
fn config(strategy: &str) -> String {
    let (echo, spin) = (guest("agent_echo"), guest("agent_spin"));
    format!(
        r#"
entry = "desk"
[plugins.desk]
source = "native:desk"
[plugins.worker]
source = "native:worker"
[plugins.echo]
source = "{echo}"
[plugins.spin]
source = "{spin}"
limits = {{ cpu = "10 min", wall = "10 min" }}
[plugins.strategy]
{strategy}
grants.channels = ["terminal"]
[tasks.desk]
agent = "desk"
[tasks.quick]
agent = "worker"
delivery_strategy = "strategy"
result_delivery = "text"
[tasks.echo]
agent = "echo"
delivery_strategy = "strategy"
result_delivery = "text"
[tasks.stuck]
agent = "spin"
"#,
        echo = echo.display(),
        spin = spin.display(),
    )
}

async fn prepared(host: &Host, strategy: &str) -> Prepared {
    let config = Config::parse("conclave.toml", "", &config(strategy))
        .unwrap_or_else(|problems| panic!("{problems}"));
    host.load(&config).await.unwrap_or_else(|error| panic!("{error}"))
}

const IMMEDIATE: &str = "source = \"stock:immediate\"";

/// Returns a guest in place of the strategy.
fn strategy(name: &str, limits: &str) -> String {
    format!("source = \"{}\"\n{limits}", guest(name).display())
}
