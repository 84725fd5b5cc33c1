//! The folders of the repository, of cargo's builds and of xtask's own files, and cargo commands
//! that use them.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;

/// The target triple of plugins.
pub(crate) const PLUGIN_TARGET: &str = "wasm32-wasip2";

/// The folders that every command works in. All paths are absolute.
#[derive(Debug, Clone)]
pub(crate) struct Checkout {
    /// The folder of the workspace's Cargo.toml.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, as set by the environment or the config.
    pub(crate) target: PathBuf,
    /// The folder of programs of the dev profile.
    programs: PathBuf,
}

impl Checkout {
    pub(crate) fn find() -> Result<Self, XtaskFailure> {
        // The run-time variable first: with a target folder shared by two checkouts the program may
        // have been compiled in the other one.
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
        let root =
            Path::new(&manifest).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default();
        if !root.join("Cargo.toml").is_file() {
            return Err(XtaskFailure::new(format!(
                "{} is not Conclave's folder: start this with `cargo xtask` inside it",
                root.display()
            )));
        }
        let program = env::current_exe().map_err(|error| {
            XtaskFailure::new(format!("cannot find out where xtask itself lies: {error}"))
        })?;
        let programs = program.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { target: target_of(&programs), root, programs })
    }

    /// Returns whether the target folder is `target` in the repository, possibly through a link.
    pub(crate) fn builds_at_home(&self) -> bool {
        fs::canonicalize(self.root.join("target"))
            .is_ok_and(|home| fs::canonicalize(&self.target).is_ok_and(|target| target == home))
    }

    /// Returns the folder of the stock plugins' components, `NAME.wasm`.
    pub(crate) fn stock(&self) -> PathBuf {
        self.target.join("conclave/stock")
    }

    /// Returns the folder of the components that the tests run, `NAME.wasm`.
    pub(crate) fn guests(&self) -> PathBuf {
        self.target.join("conclave/guests")
    }

    /// Returns the folder of the tools that the bench compares, `LANGUAGE.wasm`.
    pub(crate) fn languages(&self) -> PathBuf {
        self.target.join("conclave/languages")
    }

    /// Returns the compilation cache of hosts that run here. All clones of this user share it, so a
    /// component is compiled once on a machine. The host authenticates what it reads there, and
    /// limits the size.
    pub(crate) fn compiled(&self) -> PathBuf {
        self.shared().unwrap_or_else(|| self.target.join("conclave/test-cache")).join("compiled")
    }

    /// Returns the folder that all clones of this user share; `None` if the environment names none.
    pub(crate) fn shared(&self) -> Option<PathBuf> {
        let folder_in =
            |name: &str| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let caches =
            folder_in("XDG_CACHE_HOME").or_else(|| Some(folder_in("HOME")?.join(".cache")))?;
        Some(caches.join("conclave-tests"))
    }

    pub(crate) fn bench_json(&self) -> PathBuf {
        self.target.join("conclave/bench.json")
    }

    /// Returns the folder for xtask's own logs and generated configs.
    pub(crate) fn own(&self) -> PathBuf {
        self.target.join("xtask")
    }

    /// Returns the path of the program `conclave` of the dev profile.
    pub(crate) fn conclave(&self) -> PathBuf {
        self.programs.join(executable("conclave"))
    }

    /// Returns the path of a program of another profile.
    pub(crate) fn program(&self, profile: &str, name: &str) -> PathBuf {
        self.programs.with_file_name(profile).join(executable(name))
    }

    /// Returns the path of a program that was built for a named target.
    pub(crate) fn program_for(&self, target: &str, profile: &str, name: &str) -> PathBuf {
        self.target.join(target).join(profile).join(executable(name))
    }

    /// Returns the folder of the stock plugins' machine code, of one kind.
    pub(crate) fn stock_code(&self, kind: &str) -> PathBuf {
        self.target.join("conclave/code").join(kind)
    }

    /// Returns `cargo WORDS`, in the repository and with the same target folder as this process.
    pub(crate) fn cargo<const N: usize>(&self, words: [&str; N]) -> Command {
        let mut command =
            Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        command.args(words).current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        self.report_where(&mut command);
        // `cargo run` describes xtask's own package to this process. Build scripts that watch one
        // of these variables would run again whenever `cargo build` and `cargo xtask build` take
        // turns. Everything behind them would be rebuilt.
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|name| {
                name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
            }) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Does the same; the repository's own crates are compiled by clippy, which lints what it
    /// compiles. `cargo clippy` would analyse them, and everything that they depend on, a second time.
    /// Without clippy they are compiled by rustc.
    ///
    /// What clippy compiles runs slower than what rustc compiles if it is optimised, so this is for
    /// tests only.
    pub(crate) fn linted_cargo<const N: usize>(&self, words: [&str; N]) -> Command {
        let mut command = self.cargo(words);
        if let Some(driver) = needs::clippy_driver() {
            command.env("RUSTC_WORKSPACE_WRAPPER", driver);
        }
        command
    }

    /// Sets the variables for tests and build scripts that cannot find the components by
    /// themselves.
    fn report_where(&self, command: &mut Command) {
        command.env("CONCLAVE_GUESTS", self.guests()).env("CONCLAVE_BIN", self.conclave());
        command.env("CONCLAVE_TEST_CACHE", self.compiled());
        // host/stock/build.rs finds the folder through cargo's CACHEDIR.TAG. Setting the variable
        // anyway would rebuild the program whenever `cargo build` and `cargo xtask build` take
        // turns.
        if !self.target.join("CACHEDIR.TAG").is_file()
            || env::var_os("CARGO_BUILD_BUILD_DIR").is_some()
        {
            command.env("CONCLAVE_STOCK", self.stock());
        }
    }

    /// Returns a path relative to the repository, as it would be typed there.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, XtaskFailure> {
        let path = self.root.join(path);
        files::read(&path)
    }
}

/// The name of a program's file.
pub(crate) fn executable(name: &str) -> String {
    format!("{name}{}", env::consts::EXE_SUFFIX)
}

/// Returns the target folder above the folder of programs: the one that cargo marked, else the
/// parent. Cargo marks only folders that it created.
fn target_of(programs: &Path) -> PathBuf {
    let marked =
        programs.ancestors().skip(1).take(3).find(|folder| folder.join("CACHEDIR.TAG").is_file());
    marked.or(programs.parent()).unwrap_or(programs).to_path_buf()
}

/// Returns a digest of the paths and contents of files.
pub(crate) fn digest(
    place: &Checkout,
    files: impl IntoIterator<Item = PathBuf>,
) -> Result<String, XtaskFailure> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let content = fs::read(&file).map_err(|error| XtaskFailure::io("read", &file, &error))?;
        hasher.write(place.relative(&file).as_bytes());
        hasher.write_usize(content.len());
        hasher.write(&content);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Returns a digest of bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// Returns the files below `folder` whose names end in `ending`, sorted; empty if there is no such
/// folder.
pub(crate) fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().is_some_and(|name| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
