//! Uses the key-value store without a grant.

use conclave_sdk::{Json, kv, tool};

/// Sets, gets, lists and deletes; each entry is what came of it.
#[tool]
fn run() -> Json<[String; 4]> {
    Json([
        format!("{:?}", kv::set("key", b"value")),
        format!("{:?}", kv::get("key")),
        format!("{:?}", kv::keys("", None, 10)),
        format!("{:?}", kv::delete("key")),
    ])
}

conclave_sdk::export!(tools: [run], asks: [kv?]);
