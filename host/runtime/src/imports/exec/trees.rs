//! What the program of a server needs to start: its interpreter, and the package that it is in.
//! Found from the command alone, as a person would: by the file behind the name, the first line of a
//! script, and the places where Node.js, Python and their installers keep packages. Never the user's
//! home or the root, whatever the command says.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::{interpreters, is_of_system};

/// Links on the way to a program that are followed.
const LINKS: usize = 8;

/// A command, resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvedCommand {
    /// The program, without its links resolved: an environment of Python is found by its own name.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Files and folders that it reads, with links resolved, in order and without doubles.
    pub(crate) read: Vec<PathBuf>,
    /// Programs that it starts, itself included.
    pub(crate) starts: Vec<PathBuf>,
}

/// Where commands are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup<'a> {
    /// The `PATH` of the host.
    pub(crate) path: Option<&'a str>,
    /// The home of the user, in which `npx` and `uvx` keep packages.
    pub(crate) home: Option<&'a Path>,
    /// The folder in which the program starts.
    pub(crate) folder: &'a Path,
    /// The folders that plugins may write, with links resolved.
    pub(crate) writable: &'a [PathBuf],
}

impl Lookup<'_> {
    /// Resolves a command.
    ///
    /// # Errors
    /// Returns what is missing, with the remedy.
    pub(crate) fn resolve(&self, command: &[String]) -> Result<ResolvedCommand, String> {
        let (name, arguments) = command.split_first().ok_or("it names no program")?;
        let installed = match base_name(Path::new(name)) {
            "npx" => Some(self.npx(arguments)?),
            "uvx" => Some(self.uvx(arguments)?),
            _ => None,
        };
        let (program, arguments) = match installed {
            Some((program, rest)) => (program, rest.to_vec()),
            None => (self.program(name)?, arguments.to_vec()),
        };
        let mut found = ResolvedCommand { program, arguments, ..ResolvedCommand::default() };
        let program = found.program.clone();
        let interpreters = interpreters(&program, self.path);
        if let Some(interpreter) = interpreters.iter().find(|path| !path.is_file()) {
            return Err(format!("its interpreter {} is not there", interpreter.display()));
        }
        for started in [program.clone()].iter().chain(&interpreters) {
            self.add_start(&mut found, started);
            self.add_trees(&mut found, started);
        }
        self.add_script(&mut found, &program);
        let is_interpreted = !interpreters.is_empty();
        if let Some(script) = self.script(&found).filter(|_| !is_interpreted) {
            self.add_script(&mut found, &script);
        }
        Ok(found)
    }

    /// Returns the file of a name: of a path as it is, of a bare name on the `PATH`.
    fn program(&self, name: &str) -> Result<PathBuf, String> {
        let missing = || format!("there is no program {name}");
        if name.contains('/') {
            let path = std::path::absolute(name).map_err(|_| missing())?;
            return Some(path).filter(|path| path.is_file()).ok_or_else(missing);
        }
        let folders = self.path.unwrap_or("/usr/bin:/bin").split(':').map(Path::new);
        let found = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
        let found: Vec<PathBuf> = found.filter(|path| path.is_file()).collect();
        if let Some(program) = found.iter().find_map(|path| behind_shim(path)) {
            return Ok(program);
        }
        Err(found.first().map_or_else(
            || format!("{} on the PATH", missing()),
            |shim| {
                format!(
                    "{} only finds a program by rules of its own; write the path of the program behind it",
                    shim.display()
                )
            },
        ))
    }

    /// The program of a package that `npx` has installed, and the arguments behind its name. The
    /// sandbox has no registry, and the operator has seen what was installed.
    fn npx<'c>(&self, arguments: &'c [String]) -> Result<(PathBuf, &'c [String]), String> {
        let at = arguments.iter().position(|word| !word.starts_with('-'));
        let (package, rest) = at
            .and_then(|at| arguments[at..].split_first())
            .ok_or("npx names no package: write `npx -y PACKAGE`")?;
        let name = package_name(package);
        let cache = self.home.map(|home| home.join(".npm/_npx"));
        let folders = cache.iter().flat_map(|cache| std::fs::read_dir(cache).into_iter().flatten());
        let mut packages: Vec<PathBuf> = folders
            .flatten()
            .map(|entry| entry.path().join("node_modules").join(name))
            .filter(|package| package.join("package.json").is_file())
            .collect();
        // The newest, as `npx` would take.
        packages.sort_by_key(|package| package.metadata().and_then(|it| it.modified()).ok());
        let program = packages.last().and_then(|package| node_program(package));
        let program = program.ok_or_else(|| {
            format!(
                "npx has not installed {name}, and a confined server has no network to do it; install it with `npx -y --package {package} -- node -e 0`"
            )
        })?;
        Ok((program, rest))
    }

    /// The program of a tool that `uv tool install` has installed, and the arguments behind its
    /// name.
    fn uvx<'c>(&self, arguments: &'c [String]) -> Result<(PathBuf, &'c [String]), String> {
        let (tool, rest) = arguments
            .split_first()
            .filter(|(tool, _)| !tool.starts_with('-'))
            .ok_or("uvx is understood as `uvx TOOL ARGUMENTS`")?;
        let name = tool.split(['@', '=', '<', '>', '~', '[']).next().unwrap_or(tool);
        let tools = self.home.map(|home| home.join(".local/share/uv/tools").join(name));
        let program = tools.map(|tools| tools.join("bin").join(name)).filter(|it| it.is_file());
        let program = program.ok_or_else(|| {
            format!(
                "uv has not installed {name}, and a confined server has no network to do it; install it with `uv tool install {tool}`"
            )
        })?;
        Ok((program, rest))
    }

    /// The script that an interpreter runs: the first argument that is no option and is a file.
    fn script(&self, found: &ResolvedCommand) -> Option<PathBuf> {
        let program = base_name(&found.program);
        if !["node", "nodejs", "bun", "deno"].contains(&program) && !program.starts_with("python") {
            return None;
        }
        let words = found.arguments.iter().filter(|word| !word.starts_with('-'));
        let mut paths = words.map(|word| self.folder.join(word));
        paths.find(|path| path.exists() && !self.is_replaceable(path))
    }

    /// Adds a program that may be started, and the libraries beside it.
    fn add_start(&self, found: &mut ResolvedCommand, program: &Path) {
        let Some(resolved) = self.fixed(program) else { return };
        if !found.starts.contains(&resolved) {
            found.starts.push(resolved.clone());
        }
        // Where `$ORIGIN` and `$ORIGIN/../lib` lead, of which only the libraries are read.
        let folder = resolved.parent();
        let beside = folder.and_then(Path::parent).map(|above| above.join("lib"));
        for folder in [folder.map(Path::to_owned), beside].into_iter().flatten() {
            if is_of_system(&folder) {
                continue;
            }
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.ends_with(".so") || name.contains(".so.") {
                    self.add_read(found, &entry.path());
                }
            }
        }
    }

    /// Adds the folders of an interpreter: those of Python's libraries and environment.
    fn add_trees(&self, found: &mut ResolvedCommand, program: &Path) {
        for way in ways(program) {
            let Some(above) = way.parent().and_then(Path::parent) else { continue };
            if above.join("pyvenv.cfg").is_file() {
                self.add_read(found, above);
            }
            if !base_name(&way).starts_with("python") {
                continue;
            }
            for entry in std::fs::read_dir(above.join("lib")).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with("python") {
                    self.add_read(found, &entry.path());
                }
            }
        }
    }

    /// Adds a script, and the package that it is in.
    fn add_script(&self, found: &mut ResolvedCommand, script: &Path) {
        for way in ways(script) {
            self.add_read(found, &way);
            if let Some(package) = package_of(&way) {
                self.add_read(found, &package);
            }
        }
    }

    /// Adds a file or folder with its links resolved. A folder is not the home of the user, nor
    /// above it, and nothing that is in another one is added.
    fn add_read(&self, found: &mut ResolvedCommand, path: &Path) {
        let Some(path) = self.fixed(path) else { return };
        let home = self.home.and_then(|home| home.canonicalize().ok());
        // Nor a whole top folder, such as `/opt` and `/tmp`.
        let is_wide = (path.is_dir() && path.components().count() <= 2)
            || home.is_some_and(|home| home.starts_with(&path))
            || (path.is_dir() && self.folder.canonicalize().is_ok_and(|it| it.starts_with(&path)));
        if is_wide || is_of_system(&path) || found.read.iter().any(|it| path.starts_with(it)) {
            return;
        }
        found.read.retain(|known| !known.starts_with(&path));
        found.read.push(path);
    }

    /// The path with its links resolved; `None` if a plugin can replace a part of it.
    fn fixed(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok().filter(|_| !self.is_replaceable(path))
    }

    /// Whether a plugin can put something else in the place of a path: a name on the way to it, or
    /// on the way of a link, is in a folder that a plugin may write. A server that has run could
    /// have left a link there, which would lead the host to files that nobody granted.
    fn is_replaceable(&self, path: &Path) -> bool {
        enum Part {
            Root,
            Parent,
            Name(OsString),
        }
        fn put_parts(rest: &mut Vec<Part>, path: &Path) {
            rest.extend(path.components().rev().filter_map(|component| match component {
                Component::RootDir | Component::Prefix(_) => Some(Part::Root),
                Component::ParentDir => Some(Part::Parent),
                Component::Normal(name) => Some(Part::Name(name.to_owned())),
                Component::CurDir => None,
            }));
        }
        let (mut at, mut rest, mut links) = (PathBuf::from("/"), Vec::new(), 0);
        put_parts(&mut rest, &self.folder.join(path));
        while let Some(part) = rest.pop() {
            match part {
                Part::Root => at = PathBuf::from("/"),
                Part::Parent => drop(at.pop()),
                Part::Name(_) if self.writable.iter().any(|folder| at.starts_with(folder)) => {
                    return true;
                }
                Part::Name(name) => {
                    let next = at.join(name);
                    match std::fs::read_link(&next) {
                        // As the kernel, which follows no more.
                        Ok(_) if links == 40 => return true,
                        Ok(target) => {
                            links += 1;
                            put_parts(&mut rest, &target);
                        }
                        Err(_) => at = next,
                    }
                }
            }
        }
        false
    }
}

fn base_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The name of a package without its version: `@scope/name` of `@scope/name@1.2`.
fn package_name(package: &str) -> &str {
    let at = package.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    &package[..at.unwrap_or(package.len())]
}

/// The program of an installed package of Node.js: that of its name, or its only one.
fn node_program(package: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(package.join("package.json")).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    let script = match json.get("bin")? {
        serde_json::Value::String(script) => script.clone(),
        serde_json::Value::Object(all) => {
            let name = json.get("name")?.as_str()?.rsplit('/').next()?;
            all.get(name).or_else(|| all.values().next())?.as_str()?.to_owned()
        }
        _ => return None,
    };
    let program = package.join(script);
    // The package says where it is, and may not name what lies outside of it.
    let (inside, root) = (program.canonicalize().ok()?, package.canonicalize().ok()?);
    (inside.starts_with(root) && inside.is_file()).then_some(program)
}

/// The path of a program, and each place that its links lead to.
fn ways(path: &Path) -> Vec<PathBuf> {
    let mut ways = vec![path.to_owned()];
    while ways.len() <= LINKS
        && let Some(last) = ways.last()
        && let Ok(target) = std::fs::read_link(last)
    {
        let next = last.parent().map(|folder| folder.join(&target)).unwrap_or(target);
        ways.push(next);
    }
    // A link may be on the way to it, too.
    ways.extend(path.canonicalize().ok().filter(|resolved| !ways.contains(resolved)));
    ways
}

/// The folder of the package that a script is in: the tree of `node_modules`, or the nearest folder
/// with the file that declares a package. A folder as a script is its own package.
fn package_of(script: &Path) -> Option<PathBuf> {
    const MARKS: &[&str] = &["package.json", "pyproject.toml", "setup.py", "setup.cfg"];
    if script.is_dir() {
        return Some(script.to_owned());
    }
    let modules = script.ancestors().filter(|folder| base_name(folder) == "node_modules").last();
    let declared = || {
        let has_mark = |folder: &&Path| MARKS.iter().any(|mark| folder.join(mark).is_file());
        script.ancestors().skip(1).find(has_mark)
    };
    modules.or_else(declared).map(Path::to_owned)
}

/// Returns the program behind a file of the `PATH`. In a folder `shims`, version managers keep
/// scripts that look for one; of those of pyenv and its like, the version that is set for the user
/// is found as they find it. The sandbox has none of their files.
fn behind_shim(path: &Path) -> Option<PathBuf> {
    let Some(folder) = path.parent().filter(|folder| folder.ends_with("shims")) else {
        return Some(path.to_owned());
    };
    let manager = folder.parent()?;
    let version = std::fs::read_to_string(manager.join("version")).ok()?;
    let version = version.split_whitespace().next()?;
    let is_plain = version.starts_with(|first: char| first.is_ascii_alphanumeric());
    let versions = manager.join("versions").join(version).join("bin");
    Some(versions.join(path.file_name()?)).filter(|program| is_plain && program.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = machine.path(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn resolve(&self, command: &[&str]) -> Result<ResolvedCommand, String> {
            let path = self.path("home/bin").display().to_string();
            let (home, folder) = (self.path("home"), self.path("home/conf"));
            let writable = [self.path("home/data")];
            let lookup = Lookup {
                path: Some(&path),
                home: Some(&home),
                folder: &folder,
                writable: &writable,
            };
            let words = command.iter().map(|word| word.replace('~', &home.display().to_string()));
            lookup.resolve(&words.collect::<Vec<_>>())
        }

        fn read(&self, command: &[&str]) -> Vec<String> {
            let found = self.resolve(command).unwrap_or_else(|why| panic!("{why}"));
            let top = self.path("");
            let name = |path: &PathBuf| path.strip_prefix(&top).unwrap().display().to_string();
            found.read.iter().map(name).collect()
        }
    }

    #[test]
    fn a_plain_program_brings_its_libraries_and_nothing_of_the_home() {
        let machine = Machine::new(&[
            ("home/bin/server", "\u{7f}ELF"),
            ("home/bin/notes.txt", ""),
            ("home/lib/liba.so.1", ""),
            ("home/lib/diary", ""),
        ]);
        assert_eq!(machine.read(&["server", "--stdio"]), ["home/lib/liba.so.1", "home/bin/server"]);
        assert!(machine.resolve(&["nowhere"]).unwrap_err().contains("no program nowhere"));
    }

    #[test]
    fn a_link_in_a_folder_that_a_plugin_may_write_leads_nowhere() {
        let machine = Machine::new(&[
            ("home/bin/python3", "\u{7f}ELF"),
            ("home/.ssh/id", "TOP-SECRET"),
            ("home/data/x", ""),
            ("home/srv/main.py", ""),
            ("home/conf/c.toml", ""),
        ]);
        symlink("../.ssh", machine.path("home/data/out.db")).unwrap();
        symlink("data/out.db", machine.path("home/link")).unwrap();
        for word in ["../data/out.db", "../data/out.db/id", "../link", "../srv/../data/out.db"] {
            assert_eq!(
                machine.read(&["python3", "-m", "srv", word]),
                ["home/bin/python3"],
                "{word}"
            );
        }
        assert!(machine.read(&["python3", "../srv"]).contains(&"home/srv".to_owned()));
    }

    #[test]
    fn no_folder_above_that_of_the_config_is_a_package() {
        let machine = Machine::new(&[
            ("home/bin/node", "\u{7f}ELF"),
            ("home/app/package.json", "{}"),
            ("home/app/conf/servers/x.js", ""),
        ]);
        let path = machine.path("home/bin").display().to_string();
        let folder = machine.path("home/app/conf");
        let lookup = Lookup { path: Some(&path), home: None, folder: &folder, writable: &[] };
        let found = lookup.resolve(&["node".to_owned(), "servers/x.js".to_owned()]).unwrap();
        assert!(found.read.contains(&folder.join("servers/x.js")));
        assert!(!found.read.iter().any(|read| folder.starts_with(read)), "{:?}", found.read);
    }

    #[test]
    fn the_program_behind_a_shim_is_run() {
        let machine = Machine::new(&[
            ("home/bin/shims/python3", "#!/usr/bin/env bash\n"),
            ("home/bin/shims/other", "#!/usr/bin/env bash\n"),
            ("home/bin/version", "3.12.1\n"),
            ("home/bin/versions/3.12.1/bin/python3", "\u{7f}ELF"),
        ]);
        let shims = machine.path("home/bin/shims");
        let program = behind_shim(&shims.join("python3"));
        assert_eq!(program, Some(machine.path("home/bin/versions/3.12.1/bin/python3")));
        assert_eq!(behind_shim(&shims.join("other")), None);
        let plain = machine.path("home/bin/python3");
        assert_eq!(behind_shim(&plain), Some(plain.clone()));
    }

    #[test]
    fn an_environment_of_python_is_read_with_the_libraries_behind_it() {
        let machine = Machine::new(&[
            ("base/bin/python3.12", "\u{7f}ELF"),
            ("base/lib/python3.12/os.py", ""),
            ("base/share/other", ""),
            ("home/venv/pyvenv.cfg", ""),
            ("home/venv/bin/x", ""),
            ("home/conf/srv.py", ""),
        ]);
        symlink("../../../base/bin/python3.12", machine.path("home/venv/bin/python")).unwrap();
        let script = format!("#!{}\n", machine.path("home/venv/bin/python").display());
        std::fs::write(machine.path("home/venv/bin/tool"), script).unwrap();
        let expected = ["home/venv", "base/lib/python3.12"];
        assert_eq!(machine.read(&["~/venv/bin/tool"]), expected);
        // A script beside the config is read, and not the folder that it is in.
        let expected =
            ["home/venv", "base/lib/python3.12", "base/bin/python3.12", "home/conf/srv.py"];
        assert_eq!(machine.read(&["~/venv/bin/python", "srv.py", "-x"]), expected);
        let program = machine.resolve(&["~/venv/bin/python"]).unwrap().program;
        assert_eq!(program, machine.path("home/venv/bin/python"));
    }

    #[test]
    fn a_package_that_npx_installed_is_run_without_npx() {
        let package = "home/.npm/_npx/0a/node_modules/@x/files";
        let machine = Machine::new(&[
            ("home/bin/node", "\u{7f}ELF"),
            ("home/bin/npx", "#!/usr/bin/env node\n"),
            (
                &format!("{package}/package.json"),
                r#"{"name":"@x/files","bin":{"files":"dist/index.js"}}"#,
            ),
            (&format!("{package}/dist/index.js"), "#!/usr/bin/env node\n"),
            ("home/.npm/_npx/0a/node_modules/zod/index.js", ""),
        ]);
        let found = machine.resolve(&["npx", "-y", "@x/files@1.2", "/data"]).unwrap();
        assert_eq!(found.program, machine.path(&format!("{package}/dist/index.js")));
        assert_eq!(found.arguments, ["/data"]);
        assert_eq!(found.read, [machine.path("home/.npm/_npx/0a/node_modules")]);
        assert!(found.starts.contains(&machine.path("home/bin/node")), "{found:?}");
        let missing = machine.resolve(&["npx", "-y", "other"]).unwrap_err();
        assert!(missing.contains("npx has not installed other"), "{missing}");
    }

    #[test]
    fn neither_the_home_nor_a_folder_above_it_is_a_package() {
        let machine = Machine::new(&[
            ("home/package.json", ""),
            ("home/bin/node", "\u{7f}ELF"),
            ("home/conf/srv.js", ""),
            ("home/app/package.json", ""),
            ("home/app/src/srv.js", ""),
        ]);
        assert_eq!(machine.read(&["node", "srv.js"]), ["home/bin/node", "home/conf/srv.js"]);
        assert_eq!(machine.read(&["node", "~/app/src/srv.js"]), ["home/bin/node", "home/app"]);
    }
}
