//! Never returns from `list-tools`: the computation of its argument's schema does not end.

use std::borrow::Cow;

use conclave_sdk::tool;
use schemars::{JsonSchema, Schema, SchemaGenerator};

#[derive(serde::Deserialize)]
struct Endless;

impl JsonSchema for Endless {
    fn schema_name() -> Cow<'static, str> {
        "Endless".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        loop {
            std::hint::black_box(0);
        }
    }
}

/// Is never listed.
#[tool]
fn run(_endless: Endless) {}

conclave_sdk::export!(tools: [run], asks: []);
