//! `conclave plugin build` in Python and JavaScript: unchanged sources are not built again, and
//! errors name the package or the line.

use std::path::Path;
use std::process::Command;

use conclave_test_support::Rig;

use super::{conclave, output, python, said};
use crate::cli::text;

#[test]
#[ignore = "cargo xtask test runs it"]
fn unchanged_sources_are_built_once() {
    let rig = Rig::new();
    said(conclave(&rig, ".", &["plugin", "new", "words", "--lang", "js"]));
    let folder = rig.folder().join("words");
    let build = || {
        said(conclave(&rig, "words", &["plugin", "build"]));
        std::fs::read(folder.join("build/words.wasm")).expect("a component")
    };
    let first = build();
    assert!(first == build(), "the engine has other random seeds in each build");
    // The manifest is not part of what the compiler gets.
    rewrite(&folder.join("conclave-plugin.toml"), "version = \"0.1.0\"", "version = \"0.1.1\"");
    let inspected = said(conclave(&rig, "words", &["plugin", "build"]));
    assert!(inspected.contains("0.1.1"), "{inspected}");
    rewrite(&folder.join("app.js"), "Counts", "Tells");
    let told = said(conclave(&rig, "words", &["plugin", "build"]));
    assert!(told.contains("Tells"), "{told}");
    let made = folder.join("build/words.made/sources/plugin.wasm");
    std::fs::remove_file(&made).expect("the build made it");
    assert!(build() != first && made.is_file());
}

fn rewrite(file: &Path, old: &str, new: &str) {
    let before = std::fs::read_to_string(file).expect("it was written");
    assert!(before.contains(old), "{before}");
    std::fs::write(file, before.replace(old, new)).expect("it can be written");
}

/// Writes a wheel for this machine's Python alone, and one of pure Python that depends on it.
const WHEELS: &str = r#"
import sys, sysconfig, zipfile

def wheel(name, tag, more=""):
    version = f"{name}-1.0"
    with zipfile.ZipFile(f"{version}-{tag}.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        info = f"{version}.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{more}")
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{info}/RECORD", "")

platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
python = f"cp{sys.version_info.major}{sys.version_info.minor}"
wheel("squares", f"{python}-{python}-{platform}")
wheel("shapes", "py3-none-any", "Requires-Dist: squares\n")
"#;

#[test]
#[ignore = "cargo xtask test runs it"]
fn a_package_with_compiled_code_is_named() {
    let rig = Rig::new();
    let wheels = rig.folder().join("wheels");
    std::fs::create_dir(&wheels).expect("a test can make a folder");
    let mut writing = Command::new(python());
    writing.current_dir(&wheels).args(["-c", WHEELS]);
    said(writing);
    said(conclave(&rig, ".", &["plugin", "new", "words", "--lang", "python"]));
    // The build tools come from a network, the first time, and the packages from the folder.
    said(conclave(&rig, "words", &["plugin", "build", "--quiet"]));
    rewrite(
        &rig.folder().join("words/pyproject.toml"),
        "dependencies = []",
        "dependencies = [\"shapes\"]",
    );
    let mut build = conclave(&rig, "words", &["plugin", "build"]);
    build.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", &wheels);
    let ended = output(build);
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(5), "{told}");
    assert!(told.contains("the compiled code of squares\n"), "{told}");
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn a_mistake_in_javascript_has_the_line_of_the_plugin() {
    let rig = Rig::new();
    said(conclave(&rig, ".", &["plugin", "new", "words", "--lang", "js"]));
    let code =
        "import { tool } from \"@conclave/sdk\";\nexport const a = tool({ run: () => 1 });\n";
    std::fs::write(rig.folder().join("words/app.js"), code).expect("it can be written");
    let ended = output(conclave(&rig, "words", &["plugin", "build"]));
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(5), "{told}");
    assert!(told.contains(": app.js:2: ") && told.contains("the name is missing"), "{told}");
}
