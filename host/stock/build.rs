//! Puts the stock plugins into the crate: writes `stock.rs`, a table of their names and bytes, into
//! OUT_DIR.
//!
//! It does not build them; `cargo xtask build` does, and puts them into `conclave/stock` of the
//! target folder. Where this crate is built in another workspace, those of this repository's own
//! target folder are taken. CONCLAVE_STOCK names another folder.
//!
//! CONCLAVE_STOCK_CODE names the folder of their machine code, whose files are named by the digests
//! of the components. Without it there is none, and the program compiles them when it runs. Only
//! `cargo xtask install` and `dist` set it, because making the code takes a compiler for it, which
//! is most of the program.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "CONCLAVE_STOCK";
const CODE_VARIABLE: &str = "CONCLAVE_STOCK_CODE";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-env-changed={CODE_VARIABLE}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let named =
        |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folders = named(VARIABLE).map_or_else(
        || [stock_of_target(&out), stock_of_repository()].into_iter().flatten().collect(),
        |named| vec![named],
    );
    let components = folders
        .iter()
        .map(|folder| files(folder, "wasm"))
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    if components.is_empty() {
        println!(
            "cargo::warning=the stock plugins are not built, so there will be none: run `cargo xtask build`"
        );
    }
    let code = named(CODE_VARIABLE).map(|folder| files(&folder, "cwasm")).unwrap_or_default();
    let tables = [
        table("STOCK", "Name and component of each stock plugin, by name.", &components)?,
        table("CODE", "Digest of a component, and its machine code.", &code)?,
    ];
    fs::write(out.join("stock.rs"), tables.concat())?;
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

/// Name and path of each file with this ending, sorted by name so that the crate is the same
/// wherever it is built.
fn files(folder: &Path, ending: &str) -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = files.filter(|file| file.extension().is_some_and(|found| found == ending));
    let mut files: Vec<_> = named
        .filter_map(|file| {
            Some((file.file_stem()?.to_str()?.to_owned(), file.canonicalize().ok()?))
        })
        .collect();
    files.sort();
    files
}

fn table(name: &str, about: &str, files: &[(String, PathBuf)]) -> Result<String, Box<dyn Error>> {
    let mut text = format!("/// {about}\nstatic {name}: &[(&str, &[u8])] = &[\n");
    for (name, file) in files {
        let path = file.to_str().ok_or("the path of the stock plugins is not UTF-8")?;
        println!("cargo::rerun-if-changed={path}");
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    text.push_str("];\n");
    Ok(text)
}
