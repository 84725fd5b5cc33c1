//! Lists a tool whose schema has hundreds of patterns: checking arguments against it would keep the
//! host busy outside the sandbox.

use std::borrow::Cow;

use conclave_sdk::tool;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

#[derive(serde::Deserialize)]
struct Bomb;

impl JsonSchema for Bomb {
    fn schema_name() -> Cow<'static, str> {
        "Bomb".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let patterns: Vec<Value> = (0..300)
            .map(|index| json!({ "pattern": format!("^[01]*1[01]{{{}}}$", 400 + index) }))
            .collect();
        json!({ "allOf": patterns }).try_into().unwrap_or_default()
    }
}

/// Is never called: the plugin is refused at load.
#[tool]
fn run(_bomb: Bomb) {}

conclave_sdk::export!(tools: [run], asks: []);
