//! Puts the stock plugins into the crate: writes `stock.rs`, a table of their names and bytes, into
//! OUT_DIR.
//!
//! It does not build them; `cargo xtask build` does, and puts them into `conclave/stock` of the
//! target folder. Where this crate is built in another workspace, those of this repository's own
//! target folder are taken. CONCLAVE_STOCK names another folder.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "CONCLAVE_STOCK";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folders = named.map_or_else(
        || [stock_of_target(&out), stock_of_repository()].into_iter().flatten().collect(),
        |named| vec![named],
    );
    let components = folders
        .iter()
        .map(|folder| components(folder))
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    if components.is_empty() {
        println!(
            "cargo::warning=the stock plugins are not built, so there will be none: run `cargo xtask build`"
        );
    }
    fs::write(out.join("stock.rs"), table(&components)?)?;
    Ok(())
}

/// `conclave/stock` in the target folder, which cargo marks with CACHEDIR.TAG.
fn stock_of_target(out: &Path) -> Option<PathBuf> {
    let target = out.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    let stock = target.join("conclave/stock");
    // Cargo would run this script, and build the crate, again at every build while a watched folder
    // is missing.
    fs::create_dir_all(&stock).ok()?;
    Some(stock)
}

/// The same in the target folder of this repository, for programs outside of it; none where that
/// was never built.
fn stock_of_repository() -> Option<PathBuf> {
    let stock = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../../target/conclave/stock");
    stock.is_dir().then_some(stock)
}

/// Name and file of each component, sorted by name so that the crate is the same wherever it is
/// built.
fn components(folder: &Path) -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let wasm = files.filter(|file| file.extension().is_some_and(|ending| ending == "wasm"));
    let mut components: Vec<_> = wasm
        .filter_map(|file| {
            Some((file.file_stem()?.to_str()?.to_owned(), file.canonicalize().ok()?))
        })
        .collect();
    components.sort();
    components
}

fn table(components: &[(String, PathBuf)]) -> Result<String, Box<dyn Error>> {
    let mut text = String::from(
        "/// Name and component of each stock plugin, by name.\nstatic STOCK: &[(&str, &[u8])] = &[\n",
    );
    for (name, file) in components {
        let path = file.to_str().ok_or("the path of the stock plugins is not UTF-8")?;
        println!("cargo::rerun-if-changed={path}");
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    text.push_str("];\n");
    Ok(text)
}
