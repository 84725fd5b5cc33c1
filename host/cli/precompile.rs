//! `conclave-precompile COMPONENTS CODE this|any`: compiles every component of a folder for this
//! machine, or for any machine of its kind, into another folder. A step of `cargo xtask install`
//! and `dist`, before the program is built.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conclave_runtime::plugin::{CodeTarget, CompiledComponent, precompile};

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

/// Makes `code` hold exactly the code of these components. Unchanged files are not touched, because
/// their age decides whether the program is built again.
fn compile(components: &str, code: &str, target: CodeTarget) -> Result<(), Box<dyn Error>> {
    let code = Path::new(code);
    fs::create_dir_all(code)?;
    let mut made = BTreeSet::new();
    for component in files(Path::new(components), "wasm")? {
        let shown = component.display();
        let bytes = fs::read(&component).map_err(|error| format!("{shown}: {error}"))?;
        let CompiledComponent { sha256, code: compiled } =
            precompile(&bytes, target).map_err(|error| format!("{shown}: {error}"))?;
        println!("{shown}: {} becomes {} bytes", bytes.len(), compiled.len());
        let file = code.join(format!("{sha256}.cwasm"));
        if fs::read(&file).ok().as_ref() != Some(&compiled) {
            fs::write(&file, compiled).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        made.insert(file);
    }
    for stale in files(code, "cwasm")?.into_iter().filter(|file| !made.contains(file)) {
        fs::remove_file(stale)?;
    }
    Ok(())
}

fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
