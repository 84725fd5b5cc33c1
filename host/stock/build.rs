//! Puts the stock plugins into the crate: writes `stock.rs`, a table of their names and bytes, into
//! OUT_DIR.
//!
//! It does not build them; `cargo xtask build` does, and puts them into `conclave/stock` of the
//! target folder. Where this crate is built in another workspace, those of this repository's own
//! target folder are taken. CONCLAVE_STOCK names another folder.
//!
//! CONCLAVE_STOCK_CODE names the folder in which `conclave-precompile` has described what it made of
//! them, in a file `index`: on each line the name of a plugin, the digest of its machine code and,
//! if the component is a file beside the program too, its digest; the facts are in `NAME.json`. The
//! program then holds these digests and facts in place of large components. Without an index it
//! holds all components, and compiles them when it runs. Only `cargo xtask install` and `dist` set
//! the variable, because making the code takes a compiler for it, which is most of the program.

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
    let folder_of =
        |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folders = folder_of(VARIABLE).map_or_else(
        || [stock_of_target(&out), stock_of_repository()].into_iter().flatten().collect(),
        |folder| vec![folder],
    );
    let components = folders
        .iter()
        .map(|folder| components_in(folder))
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    if components.is_empty() {
        println!(
            "cargo::warning=the stock plugins are not built, so there will be none: run `cargo xtask build`"
        );
    }
    let prebuilt = folder_of(CODE_VARIABLE).map(|folder| Index::read(&folder)).transpose()?;
    let prebuilt = prebuilt.unwrap_or_default();
    let is_beside =
        |name: &str| prebuilt.0.iter().any(|line| line.name == name && line.component.is_some());
    let components: Vec<_> = components.into_iter().filter(|(name, _)| !is_beside(name)).collect();
    fs::write(out.join("stock.rs"), [stock_table(&components)?, prebuilt.table()?].concat())?;
    Ok(())
}

/// What `conclave-precompile` made.
#[derive(Default)]
struct Index(Vec<IndexLine>);

struct IndexLine {
    name: String,
    code: String,
    component: Option<String>,
    facts: PathBuf,
}

impl Index {
    /// Reads `index`; without that file nothing was made yet.
    fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        println!("cargo::rerun-if-changed={}", folder.display());
        let index = folder.join("index");
        let Ok(text) = fs::read_to_string(&index) else { return Ok(Self::default()) };
        println!("cargo::rerun-if-changed={}", index.display());
        let mut lines = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            let (Some(name), Some(code), component) = (words.next(), words.next(), words.next())
            else {
                return Err(format!("{} has a line that is cut: {line:?}", index.display()).into());
            };
            let facts = folder.join(format!("{name}.json"));
            lines.push(IndexLine { name, code, component, facts });
        }
        Ok(Self(lines))
    }

    fn table(&self) -> Result<String, Box<dyn Error>> {
        let mut text = "static PREBUILT: &[Prebuilt] = &[\n".to_owned();
        for IndexLine { name, code, component, facts } in &self.0 {
            let facts = watched(facts)?;
            writeln!(
                text,
                "    Prebuilt {{ name: {name:?}, facts: include_str!({facts:?}), code: {code:?}, \
                 component: {component:?} }},"
            )?;
        }
        text.push_str("];\n");
        Ok(text)
    }
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

/// Name and path of each component, sorted by name so that the crate is the same wherever it is
/// built.
fn components_in(folder: &Path) -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let wasm_files = files.filter(|file| file.extension().is_some_and(|found| found == "wasm"));
    let mut files: Vec<_> = wasm_files
        .filter_map(|file| {
            Some((file.file_stem()?.to_str()?.to_owned(), file.canonicalize().ok()?))
        })
        .collect();
    files.sort();
    files
}

/// Returns the table of the components in this crate.
fn stock_table(files: &[(String, PathBuf)]) -> Result<String, Box<dyn Error>> {
    let mut text = "static STOCK: &[(&str, &[u8])] = &[\n".to_owned();
    for (name, file) in files {
        writeln!(text, "    ({name:?}, include_bytes!({:?})),", watched(file)?)?;
    }
    text.push_str("];\n");
    Ok(text)
}

/// Returns the path of a file for an include, whose changes build this crate again.
fn watched(file: &Path) -> Result<&str, Box<dyn Error>> {
    let path = file.to_str().ok_or("the path of the stock plugins is not UTF-8")?;
    println!("cargo::rerun-if-changed={path}");
    Ok(path)
}
