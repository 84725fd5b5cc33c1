//! Requests nothing and uses files anyway.

use conclave_sdk::{Json, files, tool};

/// Lists the folders and reads from one.
#[tool]
fn run() -> Json<[String; 2]> {
    let roots: Vec<_> = files::roots().into_iter().map(|root| root.path).collect();
    Json([format!("{roots:?}"), format!("{:?}", files::read("/folder/a.txt"))])
}

conclave_sdk::export!(tools: [run], asks: []);
