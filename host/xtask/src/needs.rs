//! The requirements of a build, checked before a compiler fails with a less clear message.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::failure::XtaskFailure;
use crate::nextest;
use crate::phase;
use crate::place::{Checkout, PLUGIN_TARGET};
use crate::toml;

const RUSTUP: &str = "rustup";

/// Checks the requirements of every command: a compiler that is new enough, and the plugins'
/// target.
pub(crate) fn check(place: &Checkout) -> Result<(), XtaskFailure> {
    let compiler = TargetCompiler::find()?;
    let required = toml::string(&place.read("Cargo.toml")?, "[workspace.package]", "rust-version")
        .unwrap_or_default();
    if numbers(&compiler.release) < numbers(&required) {
        return Err(too_old(&compiler.release, &required));
    }
    if compiler.has_target(PLUGIN_TARGET) {
        return Ok(());
    }
    add_target(place, &compiler, PLUGIN_TARGET, "Plugins are built")
}

/// Checks what a build of the program for this target needs: the standard library, and for musl a C
/// compiler for SQLite.
pub(crate) fn check_target(place: &Checkout, target: &str) -> Result<(), XtaskFailure> {
    let compiler = TargetCompiler::find()?;
    if !compiler.has_target(target) {
        add_target(place, &compiler, target, "The static program is built")?;
    }
    let variable = format!("CC_{}", target.replace('-', "_"));
    let known = ["x86_64-linux-musl-gcc", "musl-gcc"];
    if !target.ends_with("-musl")
        || compiler.host == target
        || env::var_os(&variable).is_some()
        || known.iter().any(|name| answers(Command::new(name).arg("--version")))
    {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "There is no C compiler for {target}, and SQLite is written in C. Debian, Ubuntu: \
         `apt install musl-tools`. Fedora: `dnf install musl-gcc`.\n\
         One of another name: set {variable}. Without it: `cargo xtask dist --target {}`.",
        compiler.host
    )))
}

/// Checks the further requirements of `test`: rustfmt and clippy.
pub(crate) fn check_companions(place: &Checkout) -> Result<(), XtaskFailure> {
    for (word, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if answers(&mut place.cargo([word, "--version"])) {
            continue;
        }
        let by_hand =
            format!("`cargo {word}` is missing. Type:\n\n    rustup component add {component}\n");
        if !has_rustup() {
            return Err(XtaskFailure::new(format!(
                "{by_hand}\nThere is no rustup here: install {component} the way Rust was installed."
            )));
        }
        let mut command = Command::new("rustup");
        command.args(["component", "add", component]);
        phase::beforehand(
            place,
            &format!("installing {component}"),
            &format!("rustup-{component}"),
            command,
        )
        .map_err(|failure| XtaskFailure::new(format!("{}\n\n{by_hand}", failure.text)))?;
    }
    Ok(())
}

/// Checks that nextest is installed, which runs the tests, and new enough for its config.
pub(crate) fn check_nextest(place: &Checkout) -> Result<(), XtaskFailure> {
    let mut version = place.cargo(["nextest", "show-config", "version", "--config-file"]);
    if answers(version.arg(place.root.join(nextest::CONFIG))) {
        return Ok(());
    }
    let fault = if answers(&mut place.cargo(["nextest", "--version"])) {
        format!("is too old for {}, or cannot read it", nextest::CONFIG)
    } else {
        "is missing".to_owned()
    };
    Err(XtaskFailure::new(format!(
        "The tests are run by nextest, and `cargo nextest` {fault}. Type:\n\n    \
         cargo install --locked cargo-nextest\n\n\
         It is compiled in some minutes; https://nexte.st has it ready-made."
    )))
}

/// Returns the host's target triple, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host_triple() -> Result<String, XtaskFailure> {
    TargetCompiler::find().map(|compiler| compiler.host)
}

/// Returns clippy's compiler, beside that of the toolchain; `None` if it is not installed.
pub(crate) fn clippy_driver() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let program = format!("bin/clippy-driver{}", env::consts::EXE_SUFFIX);
        let driver = TargetCompiler::find().ok()?.sysroot.join(program);
        driver.is_file().then_some(driver)
    };
    FOUND.get_or_init(find).clone()
}

/// Returns the compiler's version and commit.
pub(crate) fn compiler() -> Result<String, XtaskFailure> {
    TargetCompiler::find().map(|compiler| compiler.version)
}

struct TargetCompiler {
    /// All that it says about its version.
    version: String,
    release: String,
    host: String,
    sysroot: PathBuf,
}

impl TargetCompiler {
    fn find() -> Result<Self, XtaskFailure> {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let ask = |words: &[&str]| {
            Command::new(&rustc).args(words).output().ok().filter(|answer| answer.status.success())
        };
        let missing = || {
            XtaskFailure::new(format!(
                "There is no working Rust compiler: `{} --version` did not answer.\nInstall it with {RUSTUP}, open a new terminal and try again.",
                rustc.to_string_lossy()
            ))
        };
        let version = ask(&["--version", "--verbose"]).ok_or_else(missing)?;
        let sysroot = ask(&["--print", "sysroot"]).ok_or_else(missing)?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let line = |name: &str| {
            version.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        Ok(Self {
            release: line("release: "),
            host: line("host: "),
            version: version.clone(),
            sysroot: PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim()),
        })
    }

    fn has_target(&self, target: &str) -> bool {
        self.sysroot.join("lib/rustlib").join(target).join("lib").is_dir()
    }
}

fn too_old(found: &str, required: &str) -> XtaskFailure {
    let remedy = if has_rustup() {
        "Type:\n\n    rustup update stable\n\nand, if another toolchain is chosen here, `rustup override unset`.".to_owned()
    } else {
        format!("Install a newer one with {RUSTUP}, open a new terminal and try again.")
    };
    XtaskFailure::new(format!("This is Rust {found}; Conclave needs {required} or newer. {remedy}"))
}

/// Adds a target's standard library. `purpose` begins the sentence that names the target.
fn add_target(
    place: &Checkout,
    compiler: &TargetCompiler,
    target: &str,
    purpose: &str,
) -> Result<(), XtaskFailure> {
    if !has_rustup() {
        return Err(XtaskFailure::new(format!(
            "{purpose} for {target}, and this Rust has no standard library for it ({}).\n\
             There is no rustup here that could add it. Either install Rust with {RUSTUP}, open a new terminal and try again,\n\
             or install the package of your distribution that holds the standard library for {target}.",
            compiler.sysroot.display()
        )));
    }
    let mut command = Command::new("rustup");
    command.args(["target", "add", target]);
    let by_hand = format!(
        "{purpose} for {target}, and its standard library could not be added. It is downloaded once, by\n\
         rustup (behind a proxy: set https_proxy). Type:\n\n    rustup target add {target}\n"
    );
    phase::beforehand(place, &format!("installing the target {target}"), "rustup-target", command)
        .map_err(|failure| XtaskFailure::new(format!("{}\n\n{by_hand}", failure.text)))?;
    if compiler.has_target(target) {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "rustup added {target} to another toolchain than the one in use ({}).\n\
         Either a Rust outside rustup comes first in PATH, or RUSTC or RUSTUP_TOOLCHAIN point elsewhere; `rustup which rustc` tells.",
        compiler.sysroot.display()
    )))
}

fn has_rustup() -> bool {
    answers(Command::new("rustup").arg("--version"))
}

fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|answer| answer.status.success())
}

/// Returns `1.95.0-nightly` as `[1, 95, 0]`; a missing last number counts as 0.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = [0; 3];
    let plain = version.split(['-', ' ']).next().unwrap_or_default();
    for (place, part) in numbers.iter_mut().zip(plain.split('.')) {
        *place = part.parse().unwrap_or(0);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.100.0") > numbers("1.95"));
        assert!(numbers("1.95.0") >= numbers("1.95"));
        assert!(numbers("1.94.1") < numbers("1.95"));
        assert!(numbers("1.95.0-nightly (abc 2026-01-01)") >= numbers("1.95"));
    }
}
