//! Tells the program how far it is optimised, which `conclave doctor` shows.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=CONCLAVE_OPT_LEVEL={level}");
}
