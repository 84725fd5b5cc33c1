//! Tells the program how far it is optimised, which `conclave doctor` shows, and puts the sources of
//! the SDK into it, which `conclave plugin new` writes.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of the SDK, from the repository's root. They keep their places, because they refer to
/// each other by relative paths.
const CRATES: [&str; 4] = ["sdk/rust", "sdk/rust-macros", "sdk/manifest", "host/trajectory"];
const CONTRACT: &str = "wit";
/// The SDKs of languages that are not compiled, without their tests.
const SCRIPTED: [&str; 8] = [
    "sdk/python/conclave_sdk",
    "sdk/python/pyproject.toml",
    "sdk/js/bin",
    "sdk/js/build",
    "sdk/js/src",
    "sdk/js/toolchain",
    "sdk/js/types",
    "sdk/js/package.json",
];
/// The endings of files of the SDKs.
const ENDINGS: [&str; 9] = ["rs", "wit", "py", "typed", "txt", "toml", "js", "json", "ts"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=CONCLAVE_OPT_LEVEL={level}");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let mut files = Vec::new();
    let mut manifests = Vec::new();
    for folder in CRATES {
        let manifest = root.join(folder).join("Cargo.toml");
        manifests.push(fs::read_to_string(&manifest)?);
        files.push(manifest);
        collect(&root.join(folder).join("src"), &mut files)?;
    }
    collect(&root.join(CONTRACT), &mut files)?;
    for folder in SCRIPTED {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut table = String::from("pub(super) const FILES: &[(&str, &str)] = &[\n");
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&root)?.display().to_string().replace('\\', "/");
        writeln!(table, "    ({name:?}, include_str!({:?})),", file.display().to_string())?;
    }
    let workspace = root.join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", workspace.display());
    let workspace = workspace_of_sdk(&fs::read_to_string(workspace)?, &manifests)?;
    writeln!(table, "    (\"Cargo.toml\", {workspace:?}),\n];")?;
    // Newer versions than these were not tried with the SDK.
    let lock = root.join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    writeln!(
        table,
        "pub(super) const LOCK: &str = include_str!({:?});",
        lock.display().to_string()
    )?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("sdk.rs"), table)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    if folder.is_file() {
        files.push(folder.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_made = ["node_modules", "__pycache__"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_made {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|kind| ENDINGS.iter().any(|known| kind == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the manifest of a workspace with only the SDK's crates, from that of the repository.
/// Every dependency there is on a line of its own.
fn workspace_of_sdk(text: &str, manifests: &[String]) -> Result<String, Box<dyn Error>> {
    let section = |name: &str| -> Vec<&str> {
        let lines = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
        lines.take_while(|line| !line.starts_with('[')).collect()
    };
    let is_used = |name: &str| {
        manifests.iter().flat_map(|manifest| manifest.lines()).any(|line| {
            let Some((key, value)) = line.split_once('=') else { return false };
            let inherits = value.contains("workspace = true") || key.contains(".workspace");
            inherits && key.trim().trim_end_matches(".workspace") == name
        })
    };
    let mut made = format!(
        "# The SDK of Conclave {}, as `conclave plugin new` wrote it.\n[workspace]\nresolver = \"3\"\nmembers = {CRATES:?}\n",
        env::var("CARGO_PKG_VERSION")?
    );
    writeln!(
        made,
        "\n[workspace.package]\n{}",
        section("workspace.package").join("\n").trim_end()
    )?;
    writeln!(made, "\n[workspace.dependencies]")?;
    for line in section("workspace.dependencies") {
        if line.split_once('=').is_some_and(|(name, _)| is_used(name.trim())) {
            writeln!(made, "{line}")?;
        }
    }
    // The lints of the repository are for its authors.
    writeln!(made, "\n[workspace.lints.rust]")?;
    Ok(made)
}
