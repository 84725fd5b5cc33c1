//! Plugins as a loader would have found them, for configs that name any.

use std::collections::BTreeMap;

use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use conclave_core::setup::{PluginFacts, Provenance};
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolSpec;
use serde_json::json;

/// Returns a plugin of every kind that optionally requests all capabilities, with two tools.
pub(super) fn versatile() -> PluginFacts {
    let ask = |capability: &Capability| {
        (
            capability.as_str().to_owned(),
            CapabilityRequest { optional: true, ..CapabilityRequest::default() },
        )
    };
    let manifest = Manifest {
        format: FORMAT,
        name: "fuzz".to_owned(),
        version: "0.1.0".to_owned(),
        contract: CONTRACT.to_owned(),
        asks: Capability::ALL.iter().map(ask).collect(),
        ..Manifest::default()
    };
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "query": { "type": "string" }, "count": { "type": "integer", "default": 3 }, "tags": { "type": "array", "items": { "type": "string" } },
                "code": { "type": "string", "verbatim": true }, "more": { "type": "object", "properties": { "deep": { "type": "number" } } },
            },
            "required": ["query"],
        }),
        ..ToolSpec::default()
    };
    PluginFacts {
        manifest,
        kinds: PluginKind::ALL.into(),
        tools: vec![tool("find"), tool("save")],
        sha256: "00".repeat(32),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    }
}

/// Returns the same plugin under each of these names.
pub(super) fn all<'a>(
    names: impl IntoIterator<Item = &'a PluginName>,
) -> BTreeMap<PluginName, PluginFacts> {
    names.into_iter().map(|name| (name.clone(), versatile())).collect()
}
