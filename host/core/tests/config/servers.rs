//! MCP servers as sources: their forms, their confinement, and what people read of it.

use conclave_core::config::{McpReach, McpSource, PluginSource, ServerLimits};
use conclave_core::inspect::explain::{AccessQuestion, LayerVerdict, explain};
use conclave_core::inspect::permission_summary::{data_can_leave, rights_table};
use conclave_core::setup::{PluginFacts, ServerConfinement, Setup};
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;

use crate::support::{Parts, assembled, bad, by_name, good, plugin};

fn config(lines: &str) -> String {
    let end = format!("[plugins.it]\n{lines}");
    Parts { plugin: "grants.tools = [\"it.*\"]", end: &end, ..Parts::default() }.text()
}

fn source(lines: &str) -> McpSource {
    let config = good(&config(lines));
    match &config.plugins["it"].source {
        PluginSource::Mcp(source) => (**source).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_in_short_is_the_same_as_its_table() {
    let short = source("source = \"mcp:my-server --stdio 'a b'\"");
    let long = source("source = { mcp = { command = [\"my-server\", \"--stdio\", \"a b\"] } }");
    assert_eq!(short, long);
    assert_eq!(short.confined(), Some(&ServerLimits::default()));
    assert!(!short.is_unconfined());
}

#[test]
fn only_the_operators_word_leaves_a_server_unconfined() {
    let free = source("source = { mcp = { command = [\"x\"], unconfined = true } }");
    assert!(free.is_unconfined() && free.confined().is_none());
    let confined = source(
        "source = { mcp = { command = [\"x\"], unconfined = false, memory = \"2 GiB\", starts = [\"/usr/bin/git\"] } }",
    );
    let limits = confined.confined().unwrap();
    assert_eq!((limits.memory, &limits.starts[..]), (2 << 30, &["/usr/bin/git".to_owned()][..]));
    let McpReach::Program { command, .. } = &confined.reach else { panic!("{confined:?}") };
    assert_eq!(command[..], ["x"]);
}

#[test]
fn keys_of_another_kind_of_server_and_grants_that_it_cannot_have_are_reported() {
    for (lines, what) in [
        ("source = \"mcp:\"", "names no program"),
        (
            "source = { mcp = { command = [\"x\"], unconfined = true, read = [\"/opt\"] } }",
            "is for a server that is confined",
        ),
        (
            "source = { mcp = { url = \"http://127.0.0.1:1/\", unconfined = true } }",
            "is for a server that is started here",
        ),
        (
            "source = { mcp = { url = \"http://127.0.0.1:1/\", memory = \"1 GiB\" } }",
            "is for a server that is started here",
        ),
        (
            "source = \"mcp:x\"\ngrants.files = [{ dir = \"d\", at = \"/d\", mode = \"overlay\" }]",
            "gives a server an overlay",
        ),
        (
            "source = \"x.wasm\"\ngrants.fetch = [{ url = \"https://a.example/*\", methods = [\"CONNECT\"] }]",
            "gives `CONNECT`",
        ),
    ] {
        let reported = bad(&config(lines));
        assert!(reported.contains(what), "{lines}: {reported}");
    }
}

fn server(confinement: Option<ServerConfinement>) -> PluginFacts {
    let asks: &[&str] = if confinement.is_some() { &["files", "fetch"] } else { &[] };
    let facts = plugin(&[PluginKind::Tools], asks, &["go"]);
    PluginFacts { mcp: true, sha256: String::new(), confinement, ..facts }
}

#[test]
fn what_a_server_can_reach_is_shown_and_explained() {
    let lines = "source = \"mcp:node srv.js\"\ngrants.files = [\"docs\"]\ngrants.fetch = [{ url = \"https://a.example/*\", methods = [\"CONNECT\"] }]";
    let text = config(lines);
    let setup = |server| {
        let agent = plugin(&[PluginKind::Agent], &["tools"], &[]);
        assembled(&text, &by_name([("chat", agent), ("it", server)])).setup
    };
    let confinement = ServerConfinement {
        reads: vec!["/opt/pkg".to_owned()],
        starts: vec!["/opt/node".to_owned()],
    };
    let (confined, free) = (setup(server(Some(confinement))), setup(server(None)));
    let may = |setup: &Setup| {
        let rows = rights_table(setup, &good(&text).source_labels());
        rows.into_iter().find(|row| row.plugin.as_str() == "it").unwrap().may
    };
    assert_eq!(
        may(&confined),
        [
            "run its server, confined by the kernel (may start /opt/node, may read /opt/pkg)",
            "read docs/",
            "send CONNECT to https://a.example/* (100 requests)",
        ]
    );
    assert_eq!(
        may(&free)[0],
        "do whatever its server can: it runs UNCONFINED, outside the sandbox"
    );
    assert_eq!(data_can_leave(&confined), "https://a.example/* (it)");
    assert!(data_can_leave(&free).contains("wherever the MCP server it sends it"));
    let verdict = |setup: &Setup, target: &str| {
        let question =
            AccessQuestion::new(PluginName::from("it"), Capability::Files).of(target.to_owned());
        explain(setup, &question).unwrap().verdict
    };
    assert_ne!(verdict(&confined, "/docs/a.txt"), LayerVerdict::No);
    assert_eq!(verdict(&confined, "/etc/passwd"), LayerVerdict::No);
    assert_eq!(verdict(&free, "/etc/passwd"), LayerVerdict::Yes);
}
