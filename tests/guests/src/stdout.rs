//! Prints on standard output and standard error.

use conclave_sdk::tool;

/// Prints.
#[tool]
fn run() -> &'static str {
    println!("a line on stdout");
    eprintln!("a line on stderr");
    "printed"
}

conclave_sdk::export!(tools: [run], asks: []);
