//! The archive of `cargo xtask dist`, packed around the program of the tests: unpacked in an empty
//! folder and started there with an empty home.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use conclave_soak::is_skipped;
use conclave_test_support::{Rig, cache, program};

use crate::cli::text;

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}\n{}", text(&output.stderr));
    output
}

/// Packs the tests' program, and returns the archive.
fn packed(xtask: &Path, rig: &Rig) -> PathBuf {
    let small = rig.root().join("small");
    std::fs::copy(program(), &small).expect("a program can be copied");
    // The names in the program are most of its size. Without `strip` it is only packed more slowly.
    let _ = Command::new("strip").arg(&small).output();
    // Cargo's and rustup's own folders are those of the machine, so the environment is too.
    let mut dist = Command::new(xtask);
    dist.args(["dist", "--program"]).arg(&small).arg("--out").arg(rig.root().join("dist"));
    PathBuf::from(text(&succeeded(&mut dist).stdout).trim())
}

#[test]
fn an_unpacked_program_runs_in_an_empty_folder() {
    let xtask = program().with_file_name(format!("conclave-xtask{}", std::env::consts::EXE_SUFFIX));
    let possible = xtask.is_file().then_some(());
    let possible = possible.ok_or("there is no xtask beside the program, as `cargo xtask` leaves");
    if is_skipped(possible.map_err(str::to_owned)) {
        return;
    }
    let rig = Rig::new();
    let archive = packed(&xtask, &rig);
    let file = archive.file_name().expect("it has a name").to_string_lossy().into_owned();
    let name = file.strip_suffix(".tar.gz").expect("it is compressed").to_owned();
    let version = env!("CARGO_PKG_VERSION");
    assert!(name.starts_with(&format!("conclave-{version}-")), "{name}");
    let sum = std::fs::read_to_string(archive.with_file_name(format!("{file}.sha256")));
    let sum = sum.expect("a checksum is beside it");
    assert!(sum.len() > 64 && sum.ends_with(&format!("  {file}\n")), "{sum}");

    succeeded(rig.bare("tar").arg("-xzf").arg(&archive));
    let unpacked = rig.folder().join(&name);
    for part in [
        "LICENSE",
        "README.md",
        "conclave.schema.json",
        "share/man/man1/conclave.1",
        "share/completions/conclave.bash",
    ] {
        let size = std::fs::metadata(unpacked.join(part)).map_or(0, |file| file.len());
        assert!(size > 100, "{part} has {size} bytes");
    }
    // The program of the tests compiles the stock plugins, so it shares the tests' cache.
    let conclave = |words: &[&str]| {
        let mut command = rig.bare(unpacked.join("bin/conclave"));
        succeeded(command.args(words).env("CONCLAVE_CACHE", cache()))
    };
    assert_eq!(text(&conclave(&["--version"]).stdout), format!("conclave {version}\n"));
    std::fs::create_dir(rig.folder().join("desk")).expect("a test can make a folder");
    let desk = |words: &[&str]| {
        let mut command = rig.bare(unpacked.join("bin/conclave"));
        command.args(words).env("CONCLAVE_CACHE", cache());
        succeeded(command.current_dir(rig.folder().join("desk")))
    };
    desk(&["init"]);
    assert!(!desk(&["run", "conclave.toml", "What is here?"]).stdout.is_empty());
}
