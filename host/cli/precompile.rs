//! `conclave-precompile COMPONENTS CODE this|any`: inspects every component of a folder, and
//! compiles it for this machine, or for any machine of its kind, into another folder. A step of
//! `cargo xtask install` and `dist`, before the program is built.
//!
//! `CODE/lib` then holds the files that accompany the program, named by their digests; `index` and
//! `NAME.json` are for `host/stock/build.rs`, which describes them.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conclave_runtime::plugin::{CodeTarget, CompiledComponent, ProgramFile, precompile};

/// The size in bytes from which a component is a file of its own. A program with code for it rarely
/// reads it, and need not carry it.
const LARGE: usize = 4 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let compiled = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [components, code, "this"] => compile(components, code, CodeTarget::ThisMachine),
        [components, code, "any"] => compile(components, code, CodeTarget::AnyMachine),
        _ => Err("usage: conclave-precompile COMPONENTS CODE this|any".into()),
    };
    match compiled {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes `code` hold exactly what belongs to these components.
fn compile(components: &str, code: &str, target: CodeTarget) -> Result<(), Box<dyn Error>> {
    let code = Path::new(code);
    let beside = code.join("lib");
    fs::create_dir_all(&beside)?;
    let (mut index, mut current) = (String::new(), BTreeSet::new());
    for component in components_in(Path::new(components))? {
        let path = component.display();
        let name = component
            .file_stem()
            .and_then(|stem| stem.to_str())
            .ok_or_else(|| format!("{path} has a name that is not UTF-8"))?;
        let bytes = fs::read(&component).map_err(|error| format!("{path}: {error}"))?;
        let CompiledComponent { inspection, code: compiled } =
            precompile(&bytes, target).map_err(|error| format!("{path}: {error}"))?;
        println!("{path}: {} becomes {} bytes", bytes.len(), compiled.len());
        let mut add = |bytes: &[u8], ending: &str| {
            let digest = ProgramFile::digest_of(bytes);
            let file = beside.join(format!("{digest}.{ending}"));
            write_changed(&file, bytes)?;
            current.insert(file);
            Ok::<_, Box<dyn Error>>(digest)
        };
        write!(index, "{name} {}", add(&compiled, "cwasm")?)?;
        if bytes.len() >= LARGE {
            write!(index, " {}", add(&bytes, "wasm")?)?;
        }
        index.push('\n');
        let facts = code.join(format!("{name}.json"));
        write_changed(&facts, serde_json::to_string(&inspection)?.as_bytes())?;
        current.insert(facts);
    }
    write_changed(&code.join("index"), index.as_bytes())?;
    current.insert(code.join("index"));
    for file in files(code)?.into_iter().chain(files(&beside)?) {
        if !current.contains(&file) {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// Writes a file. An unchanged one is not touched, because its age decides whether the program is
/// built again.
fn write_changed(file: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(file, bytes).map_err(|error| format!("{}: {error}", file.display()))
}

fn components_in(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = files(folder)?;
    found.retain(|path| path.extension().is_some_and(|ending| ending == "wasm"));
    found.sort();
    Ok(found)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}
