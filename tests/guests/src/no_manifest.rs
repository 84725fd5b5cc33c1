//! Carries no manifest, so the host cannot identify it.

use conclave_sdk::Outcome;
use conclave_sdk::bindings::tool as contract;
use contract::exports::conclave::plugin::tools::{Guest, ToolError, ToolSpec};

struct Anonymous;

impl Guest for Anonymous {
    fn list_tools() -> Result<Vec<ToolSpec>, ToolError> {
        Ok(Vec::new())
    }

    fn call(_name: String, _arguments: String) -> Result<Outcome, ToolError> {
        Ok(Outcome::nothing())
    }
}

// `export!` would do both; natively the names cannot be linked, so there the type is only
// mentioned.
const _: std::marker::PhantomData<Anonymous> = std::marker::PhantomData;
#[cfg(target_family = "wasm")]
conclave_sdk::bindings::tool::export_tools!(Anonymous with_types_in conclave_sdk::bindings::tool);
