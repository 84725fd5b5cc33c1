//! Checks of granted folders before they are opened. Each must exist, and a plugin that can write
//! in one must not reach files that control plugins, such as the config.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conclave_core::config::{Config, ConfigProblem, PluginSource, ProblemCode, Problems};
use conclave_core::permissions::grants::{ExecGrant, FileMode, Grants};
use conclave_core::setup::Setup;
use conclave_core::types::ids::PluginName;

use crate::imports::exec::interpreters;

use super::guarded::{Guarded, GuardedPath, LINKS, guarded, ways};
use super::servers::ServerSurroundings;

/// The config's folder with links resolved as far as possible. Its path separates the stores of
/// different configs.
pub(super) fn home(config: &Config) -> PathBuf {
    let folder = if config.folder.is_empty() { Path::new(".") } else { Path::new(&config.folder) };
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// Resolves the places of the machine that a setup grants. A resumed run compares them with those of
/// its start: a relative path, or a link, may lead elsewhere by then.
pub(super) fn resolve(setup: &mut Setup) {
    for plugin in setup.plugins.values_mut() {
        resolve_grants(&mut Arc::make_mut(plugin).grants);
    }
}

fn resolve_grants(grants: &mut Grants) {
    let folders = grants.files.iter_mut().map(|grant| &mut grant.dir);
    let exec = grants.exec.iter_mut().flat_map(|exec| exec.read.iter_mut().chain(&mut exec.starts));
    for path in folders.chain(exec) {
        let resolved = Path::new(&*path).canonicalize().ok();
        // A path that is no text stays as it is written.
        if let Some(resolved) = resolved.as_deref().and_then(Path::to_str) {
            resolved.clone_into(path);
        }
    }
}

/// The places that code of a confined server may not come from.
pub(super) fn surroundings(
    config: &Config,
    cache: Option<&Path>,
    guards: &[GuardedPath],
) -> ServerSurroundings {
    let secret = guarded(config, cache, guards).into_iter().filter(|guarded| guarded.secret);
    let writable = config.plugins.iter().flat_map(|(name, plugin)| {
        let grants = plugin.grants.files.iter().filter(|grant| grant.mode == FileMode::ReadWrite);
        grants.filter_map(|grant| Some((name.clone(), Path::new(&grant.dir).canonicalize().ok()?)))
    });
    ServerSurroundings {
        secret: secret.map(|guarded| guarded.path().to_owned()).collect(),
        writable: writable.collect(),
    }
}

/// Appends the problems of the folders of a config. `cache` is the host's folder for compiled code,
/// `guards` are the program's own guarded paths, and `launcher` is the folder in which programs have
/// their private ones.
pub(super) fn check(
    config: &Config,
    cache: Option<&Path>,
    guards: &[GuardedPath],
    launcher: Option<&Path>,
    problems: &mut Problems,
) {
    let guarded = guarded(config, cache, guards);
    let mut granted: Vec<GrantedDir<'_>> = Vec::new();
    for (name, plugin) in &config.plugins {
        for (index, grant) in plugin.grants.files.iter().enumerate() {
            let key = format!("plugins.{name}.grants.files[{index}]");
            // Resolved, so that a link to a guarded folder is detected.
            let Some(dir) = Path::new(&grant.dir).canonicalize().ok().filter(|dir| dir.is_dir())
            else {
                let problem = config.problem(
                    ProblemCode::MissingFolder,
                    &key,
                    format!("there is no folder {}", grant.dir),
                );
                problems.push(
                    problem.help(
                        "make it, or correct the path; it starts at the folder of the config",
                    ),
                );
                continue;
            };
            let writes = grant.mode.writes();
            // Read access is closed only for secrets, write access for every guarded path.
            let holds = guarded.iter().find(|guarded| guarded.closes(&dir, name, writes));
            if let Some(Guarded { what, secret, is_folder, .. }) = holds {
                let (way, could) = if *secret { ("", "read") } else { (" for writing", "change") };
                let what = format!(
                    "{} cannot be granted{way}: {name} could {could} {what} with it",
                    grant.display_path
                );
                let help = match (secret, is_folder) {
                    (true, true) => "grant it a folder of its own, such as `./notes`",
                    (true, false) => "keep the key in another folder",
                    (false, _) => "let it write in a folder of its own, such as `./out`",
                };
                problems.push(config.problem(ProblemCode::ProtectedFolder, &key, what).help(help));
            }
            granted.push(GrantedDir { plugin: name, key, dir, mode: grant.mode });
        }
    }
    let programs = ProgramFolders { config, guarded: &guarded, granted: &granted, launcher };
    for (name, plugin) in &config.plugins {
        if let Some(exec) = &plugin.grants.exec {
            let what = "grants.exec";
            programs.check_reach(name, what, (&exec.read, &exec.starts), problems);
            programs.check_commands(name, exec, problems);
        }
        if let PluginSource::Mcp(source) = &plugin.source
            && let Some(limits) = source.confined()
        {
            let what = "source.mcp";
            programs.check_reach(name, what, (&limits.read, &limits.starts), problems);
        }
    }
    check_overlays(config, &granted, problems);
    check_commands(config, &granted, problems);
}

/// The folders of a config, for the checks of `grants.exec` and of confined servers. A program
/// resolves paths as the machine does, so a plugin that can write into a parent of a path can
/// replace the path.
struct ProgramFolders<'c> {
    config: &'c Config,
    guarded: &'c [Guarded],
    granted: &'c [GrantedDir<'c>],
    launcher: Option<&'c Path>,
}

impl ProgramFolders<'_> {
    /// Checks what programs may read and start, and the folders of the plugin. `what` is the key of
    /// the programs.
    fn check_reach(
        &self,
        name: &PluginName,
        what: &str,
        (read, starts): (&[String], &[String]),
        problems: &mut Problems,
    ) {
        let programs = format!("plugins.{name}.{what}");
        let key = |list: &str, index: usize| format!("{programs}.{list}[{index}]");
        let mut add = |code, key: &str, what: String, help| {
            problems.push(self.problem(code, key, what, help));
        };
        const APART: &str = "keep it outside of folders that a plugin may write";
        for (index, path) in read.iter().enumerate() {
            let key = key("read", index);
            let Ok(dir) = Path::new(path).canonicalize() else {
                let what = format!("there is no file or folder {path}");
                add(ProblemCode::MissingFolder, &key, what, None);
                continue;
            };
            let holds = |guarded: &&Guarded| guarded.secret && guarded.is_in_reach_of(&dir);
            if let Some(Guarded { what, .. }) = self.guarded.iter().find(holds) {
                let what = format!("{path} cannot be granted: programs could read {what} with it");
                add(ProblemCode::ProtectedFolder, &key, what, None);
            } else if let Some(writer) = self.writer_above(&ways(Path::new(path), LINKS), true) {
                let what = format!("{path} cannot be granted: it is below {writer}");
                add(ProblemCode::ProtectedFolder, &key, what, Some(APART));
            }
        }
        for (index, path) in starts.iter().enumerate() {
            let key = key("starts", index);
            if Path::new(path).canonicalize().is_err() {
                let what = format!("there is no program or folder {path}");
                add(ProblemCode::MissingFolder, &key, what, None);
            }
        }
        for own in self.granted.iter().filter(|granted| granted.plugin == name) {
            if let Some(writer) = self.writer_above(std::slice::from_ref(&own.dir), true) {
                let what = format!(
                    "with `{what}`, {} cannot be granted: it is below {writer}",
                    own.dir.display()
                );
                add(ProblemCode::ProtectedFolder, &own.key, what, Some(APART));
            }
        }
        if let Some(launcher) = self.launcher.and_then(|folder| folder.canonicalize().ok())
            && let Some(writer) = self.writer_above(std::slice::from_ref(&launcher), false)
        {
            let what = format!(
                "programs cannot be granted: {}, where they have their private folders, is in {writer}",
                launcher.display()
            );
            add(ProblemCode::ProtectedFolder, &programs, what, None);
        }
    }

    /// Checks that no plugin can replace a granted program.
    fn check_commands(&self, name: &PluginName, exec: &ExecGrant, problems: &mut Problems) {
        let mut add = |code, key: &str, what: String, help| {
            problems.push(self.problem(code, key, what, help));
        };
        for (index, pattern) in exec.commands.iter().enumerate() {
            let key = format!("plugins.{name}.grants.exec.commands[{index}]");
            let path = Path::new(pattern.program());
            if !path.is_file() {
                let what = format!("there is no program {}", pattern.program());
                add(ProblemCode::MissingFolder, &key, what, None);
                continue;
            }
            let mut links = ways(path, LINKS);
            let interpreters = interpreters(path, exec.env.get("PATH").map(String::as_str));
            links.extend(interpreters.iter().flat_map(|path| ways(path, LINKS)));
            if let Some(writer) = self.writer_above(&links, false) {
                let what = format!("{} cannot be granted: it is in {writer}", pattern.program());
                let help = "grant a program that no plugin can replace";
                add(ProblemCode::ProtectedFolder, &key, what, Some(help));
            }
        }
    }

    fn problem(
        &self,
        code: ProblemCode,
        key: &str,
        what: String,
        help: Option<&str>,
    ) -> ConfigProblem {
        let problem = self.config.problem(code, key, what);
        match help {
            Some(help) => problem.help(help),
            None => problem,
        }
    }

    /// The folder, with words about it, in which a plugin can replace one of these places.
    /// `strictly` leaves out the places that are granted folders themselves, which cannot be moved.
    fn writer_above(&self, paths: &[PathBuf], strictly: bool) -> Option<String> {
        let can_replace = |granted: &&GrantedDir<'_>| {
            let is_in = |place: &PathBuf| {
                place.starts_with(&granted.dir) && !(strictly && *place == granted.dir)
            };
            // An overlay changes nothing on the disk.
            granted.mode == FileMode::ReadWrite && paths.iter().any(is_in)
        };
        let found = self.granted.iter().find(can_replace)?;
        Some(format!("{}, which a plugin of this config may write", found.dir.display()))
    }
}

/// A folder that a plugin was granted, by its canonical path.
struct GrantedDir<'c> {
    plugin: &'c PluginName,
    key: String,
    dir: PathBuf,
    mode: FileMode,
}

/// Adds a warning for each plugin that uses a folder itself while another one has an overlay of it:
/// it does not see the changes of the run.
fn check_overlays(config: &Config, granted: &[GrantedDir<'_>], problems: &mut Problems) {
    let is_overlay = |grant: &&GrantedDir<'_>| grant.mode == FileMode::Overlay;
    for own in granted.iter().filter(|grant| !is_overlay(grant)) {
        let is_same = |other: &&GrantedDir<'_>| other.dir == own.dir && other.plugin != own.plugin;
        let Some(other) = granted.iter().filter(is_overlay).find(is_same) else { continue };
        let what = format!(
            "`{}` uses this folder itself, and does not see what `{}` changes in its overlay of it",
            own.plugin, other.plugin
        );
        let problem = config.problem(ProblemCode::Conflict, &own.key, what);
        problems.push(problem.help("write `mode = \"overlay\"` for both").as_warning());
    }
}

/// Adds a warning for each plugin whose commands work in a folder that another plugin may write:
/// many programs take their orders from files beside their input, such as `.git/config` or a
/// `Makefile`.
fn check_commands(config: &Config, granted: &[GrantedDir<'_>], problems: &mut Problems) {
    let has_commands =
        |name: &PluginName| config.plugins.get(name).is_some_and(|it| it.grants.exec.is_some());
    let works =
        |grant: &&GrantedDir<'_>| grant.mode != FileMode::Overlay && has_commands(grant.plugin);
    for own in granted.iter().filter(works) {
        let writes = |other: &&GrantedDir<'_>| {
            other.mode == FileMode::ReadWrite
                && other.plugin != own.plugin
                && (other.dir.starts_with(&own.dir) || own.dir.starts_with(&other.dir))
        };
        let Some(other) = granted.iter().find(writes) else { continue };
        let what = format!(
            "`{}` may write where the commands of `{}` work: files such as `.git/config`, `Makefile` or `.npmrc` decide what a command does",
            other.plugin, own.plugin
        );
        let help = format!(
            "give `{}` `mode = \"overlay\"`, or only grant commands that obey no file of this folder; for git there is a recipe in docs/use/programs.md",
            other.plugin
        );
        let problem = config.problem(ProblemCode::Conflict, &own.key, what);
        problems.push(problem.help(help).as_warning());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[&str], dir: &str, mode: &str) -> Vec<ProblemCode> {
        let temp = tempfile::tempdir().unwrap();
        for file in files {
            let path = temp.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let text = format!(
            "entry = \"t\"\n[secrets.s]\nfrom = {{ file = \"keys/s\" }}\nhosts = [\"a.example\"]\n[plugins.p]\nsource = \"./lib/p.wasm\"\ngrants.files = [{{ dir = {dir:?}, at = \"/f\", mode = {mode:?} }}]\n[tasks.t]\nagent = \"p\"\n"
        );
        let config = Config::parse("conclave.toml", temp.path().to_str().unwrap(), &text).unwrap();
        let mut problems = Problems::default();
        check(&config, Some(&temp.path().join("cache")), &[], None, &mut problems);
        problems.codes()
    }

    #[test]
    fn a_plugin_can_be_granted_no_folder_from_which_it_could_grant_itself_more() {
        let files = ["conclave.toml", "lib/p.wasm", "out/x", "cache/code/x", "lib/data/x"];
        for dir in ["out", "./out/", "lib/data"] {
            assert_eq!(problems(&files, dir, "read-write"), [], "{dir}");
        }
        for dir in [".", "out/..", "lib", "cache", "cache/code"] {
            let found = problems(&files, dir, "read-write");
            assert_eq!(found, [ProblemCode::ProtectedFolder], "{dir}");
        }
        for dir in [".", "lib", "cache"] {
            assert_eq!(problems(&files, dir, "read"), [], "{dir}");
        }
        for (dir, mode) in [("keys", "read"), ("keys", "read-write"), (".", "read")] {
            let found = problems(&["keys/s", "out/x"], dir, mode);
            assert_eq!(found, [ProblemCode::ProtectedFolder], "{dir}");
        }
        assert_eq!(problems(&files, "nowhere", "read"), [ProblemCode::MissingFolder]);
        assert_eq!(problems(&files, "out/x", "read-write"), [ProblemCode::MissingFolder]);
    }

    #[test]
    #[cfg(unix)]
    fn a_link_that_leads_elsewhere_today_grants_nothing_to_a_resumed_run() {
        let temp = folders(&["conf/a.toml", "one/x", "other/x"]);
        let link = temp.path().join("link");
        let granted = |to: &str| {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(to, &link).unwrap();
            let text = format!(
                "entry = \"t\"\n[plugins.p]\nsource = \"stock:p\"\ngrants.files = [{{ dir = {link:?}, at = \"/f\", mode = \"read\" }}]\n\
                 [plugins.p.grants.exec]\ncommands = [\"/bin/true\"]\nread = [{link:?}]\nstarts = [{link:?}]\n[tasks.t]\nagent = \"p\"\n"
            );
            let folder = temp.path().join("conf");
            let config = Config::parse("a.toml", folder.to_str().unwrap(), &text).unwrap();
            let mut grants = config.plugins[&PluginName::from("p")].grants.clone();
            resolve_grants(&mut grants);
            grants
        };
        let original = granted("one");
        for (to, count) in [("one", 1), ("./one/../one", 1), ("other", 0)] {
            let effective = original.narrowed_by(&granted(to));
            let exec = effective.exec.unwrap();
            let effective_count = (effective.files.len(), exec.read.len(), exec.starts.len());
            assert_eq!(effective_count, (count, count, count), "{to}");
        }
    }

    #[test]
    fn a_plugin_that_does_not_see_the_changes_of_a_run_is_named() {
        let temp = folders(&["conf/a.toml", "data/x", "beside/x"]);
        let warned = |dir: &str, mode: &str| {
            let other = format!(
                "[plugins.o]\nsource = \"stock:o\"\ngrants.files = [{{ dir = {dir:?}, at = \"/o\", mode = {mode:?} }}]"
            );
            let text = format!(
                "entry = \"t\"\n{other}\n[plugins.p]\nsource = \"stock:p\"\ngrants.files = [{{ dir = \"../data\", at = \"/f\", mode = \"overlay\" }}]\n[tasks.t]\nagent = \"p\"\n"
            );
            let folder = temp.path().join("conf");
            let config = Config::parse("a.toml", folder.to_str().unwrap(), &text).unwrap();
            let mut problems = Problems::default();
            check(&config, None, &[], None, &mut problems);
            problems.0.iter().map(ToString::to_string).collect::<Vec<_>>().concat()
        };
        for mode in ["read", "read-write"] {
            let text = warned("../data", mode);
            assert!(text.contains("`o` uses this folder itself"), "{mode}: {text}");
            assert_eq!(warned("../beside", mode), "", "{mode}");
        }
        assert_eq!(warned("../data", "overlay"), "");
    }

    #[test]
    fn a_plugin_that_writes_where_the_commands_of_another_work_is_named() {
        let temp = folders(&["conf/a.toml", "data/sub/x", "beside/x"]);
        let warned = |dir: &str, mode: &str, exec: &str| {
            let text = format!(
                "entry = \"t\"\n[plugins.o]\nsource = \"stock:o\"\ngrants.files = [{{ dir = {dir:?}, at = \"/o\", mode = {mode:?} }}]\n\
                 [plugins.p]\nsource = \"stock:p\"\n{exec}grants.files = [{{ dir = \"../data\", at = \"/f\", mode = \"read\" }}]\n[tasks.t]\nagent = \"p\"\n"
            );
            let folder = temp.path().join("conf");
            let config = Config::parse("a.toml", folder.to_str().unwrap(), &text).unwrap();
            let mut problems = Problems::default();
            check(&config, None, &[], None, &mut problems);
            problems.0.iter().map(ToString::to_string).collect::<Vec<_>>().concat()
        };
        let exec = "grants.exec = [\"/bin/true\"]\n";
        let expected = "`o` may write where the commands of `p` work";
        for dir in ["../data", "../data/sub"] {
            assert!(warned(dir, "read-write", exec).contains(expected), "{dir}");
            assert!(!warned(dir, "read", exec).contains(expected), "{dir}");
            assert_eq!(warned(dir, "read-write", ""), "", "{dir}");
        }
        assert_eq!(warned("../beside", "read-write", exec), "");
    }

    /// The problems of granting a folder below `conf/..` for writing and for reading; the config
    /// lies in `conf`.
    fn both(temp: &Path, dir: &str, rest: &str, guards: &[GuardedPath]) -> [String; 2] {
        ["read-write", "read"].map(|mode| {
            let text = format!(
                "entry = \"t\"\n{rest}\n[plugins.p]\nsource = \"stock:p\"\ngrants.files = [{{ dir = {dir:?}, at = \"/f\", mode = {mode:?} }}]\n[tasks.t]\nagent = \"p\"\n"
            );
            let folder = temp.join("conf");
            let config = Config::parse("a.toml", folder.to_str().unwrap(), &text).unwrap_or_else(|problems| panic!("{problems}"));
            let mut problems = Problems::default();
            check(&config, None, guards, None, &mut problems);
            problems.0.iter().map(ToString::to_string).collect()
        })
    }

    fn folders(files: &[&str]) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for file in files {
            let path = temp.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        temp
    }

    #[test]
    fn no_plugin_changes_what_the_host_starts_outside_the_sandbox() {
        let temp =
            folders(&["conf/a.toml", "conf/out/x", "data/srv.py", "data/pkg/x", "data/sub/x"]);
        let mcp = |inner: &str| format!("[plugins.s]\nsource = {{ mcp = {{ {inner} }} }}");
        let secret = |command: &str| {
            format!("[secrets.s]\nfrom = {{ command = {command} }}\nhosts = [\"a.example\"]")
        };
        let model = "[models.m]\nkind = \"openai\"\nurl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\nkey = { command = [\"../data/srv.py\"] }";
        let starts = [
            mcp("command = [\"../data/srv.py\"]"),
            mcp("command = [\"python3\", \"../data/srv.py\"]"),
            mcp("command = [\"python3\", \"--script=../data/srv.py\"]"),
            mcp("command = [\"python3\", \"srv.py\"], cwd = \"../data\""),
            mcp("command = [\"python3\", \"../data/pkg\"]"),
            mcp("command = [\"x\"], keys = { K = { command = [\"sh\", \"../data/srv.py\"] } }"),
            secret("[\"python3\", \"../data/srv.py\"]"),
            secret("[\"../data/srv.py\"]"),
            model.to_owned(),
        ];
        for rest in starts {
            let [writes, reads] = both(temp.path(), "../data", &rest, &[]);
            assert!(writes.contains("cannot be granted for writing"), "{rest}: {writes:?}");
            assert_eq!(reads, "", "{rest}");
            assert_eq!(both(temp.path(), "out", &rest, &[]), ["", ""], "{rest}");
        }
        // Everything below a server's folder, or in a package that it runs.
        let cwd = mcp("command = [\"python3\", \"-m\", \"srv\"], cwd = \"../data\"");
        assert!(
            both(temp.path(), "../data/sub", &cwd, &[])[0]
                .contains("the folder in which the server s starts")
        );
        assert!(
            both(temp.path(), "../data/pkg", &mcp("command = [\"python3\", \"../data/pkg\"]"), &[])
                [0]
            .contains("for writing")
        );
        assert_eq!(
            both(temp.path(), "../data/sub", &mcp("command = [\"python3\", \"../data/pkg\"]"), &[]),
            ["", ""]
        );
    }

    #[test]
    fn a_confined_server_writes_in_the_folder_that_its_command_names() {
        let temp = folders(&["conf/a.toml", "conf/out/x", "data/pkg/x", "data/srv.py"]);
        for (command, mode, is_granted) in [
            ("[\"files\", \"../data\"]", "unconfined = false", true),
            ("[\"python3\", \"../data/srv.py\"]", "unconfined = false", false),
            ("[\"files\", \"../data\"]", "unconfined = true", false),
        ] {
            let server = format!(
                "[plugins.s]\nsource = {{ mcp = {{ command = {command}, {mode} }} }}\n\
                 grants.files = [{{ dir = \"../data\", at = \"/data\", mode = \"read-write\" }}]"
            );
            let [writes, _] = both(temp.path(), "out", &server, &[]);
            assert_eq!(!writes.contains("for writing"), is_granted, "{command} {mode}: {writes}");
        }
        let server = "[plugins.s]\nsource = { mcp = { command = [\"files\", \"../data\"] } }";
        let [writes, _] = both(temp.path(), "../data", server, &[]);
        assert!(writes.contains("cannot be granted for writing"), "another plugin: {writes}");
    }

    #[test]
    fn no_plugin_decides_what_a_folder_of_a_server_is() {
        let temp = folders(&["conf/a.toml", "data/sub/x", "beside/x"]);
        let server = |dir: &str, keys: &str| {
            format!(
                "[plugins.s]\nsource = {{ mcp = {{ command = [\"x\"]{keys} }} }}\ngrants.files = [{{ dir = {dir:?}, at = \"/s\", mode = \"read\" }}]"
            )
        };
        // A link in its place would lead the server elsewhere.
        let [writes, reads] = both(temp.path(), "../data", &server("../data/sub", ""), &[]);
        assert!(writes.contains("with `source.mcp`") && reads.is_empty(), "{writes} {reads}");
        assert_eq!(both(temp.path(), "../data", &server("../beside", ""), &[]), ["", ""]);
        let missing = server("../beside", ", read = [\"../nowhere\"]");
        assert!(both(temp.path(), "../data", &missing, &[])[1].contains("no file or folder"));
    }

    #[test]
    fn no_plugin_reads_a_key_of_a_server() {
        let temp = folders(&["conf/a.toml", "data/key"]);
        for inner in [
            "command = [\"x\"], keys = { F = { file = \"../data/key\" } }",
            "url = \"http://127.0.0.1:9/\", key = { file = \"../data/key\" }",
        ] {
            for problem in both(
                temp.path(),
                "../data",
                &format!("[plugins.s]\nsource = {{ mcp = {{ {inner} }} }}"),
                &[],
            ) {
                assert!(
                    problem.contains("p could read a key of the server s"),
                    "{inner}: {problem:?}"
                );
            }
        }
    }

    #[test]
    fn what_the_program_guards_is_out_of_reach_even_before_it_is_there() {
        let temp = folders(&["conf/x", "data/real.toml", "up/x"]);
        let guard = |path: &str, secret, is_folder| GuardedPath {
            what: "the thing".to_owned(),
            path: temp.path().join(path),
            secret,
            is_folder,
        };
        let state = [guard("up/state", true, true)];
        assert!(
            both(temp.path(), "../up", "", &state)
                .iter()
                .all(|problem| problem.contains("p could read the thing"))
        );
        std::fs::create_dir_all(temp.path().join("up/state/journals")).unwrap();
        assert!(
            both(temp.path(), "../up/state/journals", "", &state)
                .iter()
                .all(|problem| problem.contains("p could read the thing"))
        );
        let journals = [guard("up", false, true)];
        assert!(
            both(temp.path(), "../up/state", "", &journals)[0].contains("p could change the thing")
        );
        assert_eq!(both(temp.path(), "../up/state", "", &journals)[1], "");
        assert_eq!(both(temp.path(), "../data", "", &journals), ["", ""]);
    }

    #[test]
    #[cfg(unix)]
    fn a_link_is_guarded_where_it_lies_and_where_it_leads() {
        let temp = folders(&["conf/x", "data/real.toml", "link/x", "free/x"]);
        std::os::unix::fs::symlink("../data/real.toml", temp.path().join("link/b.toml")).unwrap();
        std::os::unix::fs::symlink("../link/b.toml", temp.path().join("conf/a.toml")).unwrap();
        let guards = [GuardedPath {
            what: "the config".to_owned(),
            path: temp.path().join("conf/a.toml"),
            secret: false,
            is_folder: false,
        }];
        for dir in ["../data", "../link", "."] {
            assert!(
                both(temp.path(), dir, "", &guards)[0].contains("p could change the config"),
                "{dir}"
            );
        }
        assert_eq!(both(temp.path(), "../free", "", &guards), ["", ""]);
        // A circle of links ends the search.
        std::os::unix::fs::symlink("loop", temp.path().join("conf/loop")).unwrap();
        let circle = [GuardedPath { path: temp.path().join("conf/loop"), ..guards[0].clone() }];
        assert_eq!(both(temp.path(), "../free", "", &circle), ["", ""]);
    }
}
