//! A tool in JavaScript with the larger engine, which has globals that the default one lacks.

use conclave_test_support::Rig;

use super::{conclave, said};

const CODE: &str = r#"
import { s, tool } from "@conclave/sdk";

export const hostOf = tool({
  name: "host_of",
  description: "The host of a URL.",
  input: s.object({ url: s.string("The URL.") }),
  run: ({ url }) => new URL(url).hostname,
});
"#;

#[test]
#[ignore = "cargo xtask test runs it"]
fn a_tool_with_the_larger_engine_is_built_and_called() {
    let rig = Rig::new();
    said(conclave(&rig, ".", &["plugin", "new", "hosts", "--lang", "js"]));
    std::fs::write(rig.folder().join("hosts/app.js"), CODE).expect("it can be written");
    said(conclave(&rig, "hosts", &["plugin", "build", "--engine", "starlingmonkey"]));
    let call = |url: &str| {
        let arguments = format!(r#"{{"url": "{url}"}}"#);
        said(conclave(
            &rig,
            "hosts",
            &["plugin", "call", "build/hosts.wasm", "host_of", &arguments],
        ))
    };
    assert_eq!(call("https://example.org:8080/x?y=1"), "example.org\n");
    assert_eq!(call("https://user@docs.example.org"), "docs.example.org\n");
}
