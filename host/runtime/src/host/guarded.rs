//! Paths closed to plugins: files that control plugins, programs that the host starts outside any
//! sandbox, and keys. Some are closed to reading too. The check against granted folders is in
//! `folders`.

use std::path::{Path, PathBuf};

use conclave_core::config::{Config, KeyRef, McpReach, ModelKind, PluginSource};
use conclave_core::types::ids::PluginName;

use super::folders::home;

/// The maximum number of links followed on the way to a path; longer chains count as circles.
pub(super) const LINKS: usize = 8;

/// A file or folder of the host that is closed to plugins, such as the config's file or the folder
/// of the journals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedPath {
    /// A description for problem messages, such as "the journals".
    pub what: String,
    /// The path; each link on the way to its target is closed too.
    pub path: PathBuf,
    /// Whether plugins may not read it either.
    pub secret: bool,
    /// Whether it is a folder that is closed with everything below it.
    pub is_folder: bool,
}

/// A path that plugins may not change.
pub(super) struct Guarded {
    pub(super) what: String,
    path: PathBuf,
    /// Whether plugins may not read it either.
    pub(super) secret: bool,
    /// Whether it is a folder that is closed with everything below it.
    pub(super) is_folder: bool,
    /// The confined server with this folder in its command. Most such folders are what it works on,
    /// and whatever it changes there, it reads again in the same sandbox.
    own_of: Option<PluginName>,
}

impl Guarded {
    /// Whether a folder may not be granted to a plugin because of this path.
    pub(super) fn closes(&self, dir: &Path, plugin: &PluginName, writes: bool) -> bool {
        // Not a folder above it, in which the server could put something else in its place.
        let is_own = self.own_of.as_ref() == Some(plugin) && dir.starts_with(&self.path);
        (writes || self.secret) && !is_own && self.is_in_reach_of(dir)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_in_reach_of(&self, dir: &Path) -> bool {
        self.path.starts_with(dir) || (self.is_folder && dir.starts_with(&self.path))
    }
}

/// The collected paths; a path through links is guarded at each link.
struct GuardedPaths {
    home: PathBuf,
    all: Vec<Guarded>,
}

impl GuardedPaths {
    fn add(&mut self, what: &str, path: &Path, secret: bool, is_folder: bool) {
        let ways = ways(path, LINKS);
        let guarded = ways.into_iter().enumerate().map(|(index, path)| {
            // Only the resolved path covers a folder's content: a link's own place contains
            // nothing.
            let is_folder = is_folder && index == 0;
            Guarded { what: what.to_owned(), path, secret, is_folder, own_of: None }
        });
        self.all.extend(guarded);
    }

    fn key(&mut self, what: &str, key: &KeyRef, folder: &Path) {
        match key {
            // A missing key file is reported as another problem.
            KeyRef::File(path) if Path::new(&path.path).exists() => {
                self.add(what, Path::new(&path.path), true, false)
            }
            KeyRef::Command(words) => {
                let program = words.first().map(|program| folder.join(program));
                self.command(
                    &format!("a program that gives {what}"),
                    words,
                    program.as_deref(),
                    folder,
                );
            }
            KeyRef::File(_) | KeyRef::Env(_) => {}
        }
    }

    /// Guards the words of a command that are paths: `program`, and the arguments relative to
    /// `cwd`. A bare program name is found through the environment; the caller that reads the
    /// environment guards those folders.
    fn command(&mut self, what: &str, words: &[String], program: Option<&Path>, cwd: &Path) {
        let Some((name, arguments)) = words.split_first() else { return };
        if let Some(program) = program.filter(|_| name.contains('/')) {
            self.word(what, program);
        }
        for word in arguments.iter().filter(|word| !word.is_empty()) {
            self.word(what, &cwd.join(word));
            if let Some((_, value)) = word.split_once('=').filter(|(_, value)| !value.is_empty()) {
                self.word(what, &cwd.join(value));
            }
        }
    }

    fn word(&mut self, what: &str, path: &Path) {
        if path.symlink_metadata().is_err() {
            return;
        }
        // A folder that contains the config also holds unrelated files; the config itself is
        // guarded separately.
        let is_folder =
            path.canonicalize().is_ok_and(|path| path.is_dir() && !self.home.starts_with(path));
        self.add(what, path, false, is_folder);
    }
}

/// The resolved path and the place of each link on the way to it. Changing one of these links
/// changes the target.
pub(super) fn ways(path: &Path, links: usize) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut ways = vec![resolve_links(&path)];
    for link in path.ancestors().filter(|prefix| links > 0 && prefix.is_symlink()) {
        let (Some(folder), Some(name)) = (link.parent(), link.file_name()) else { continue };
        ways.push(resolve_links(folder).join(name));
        ways.extend(
            std::fs::read_link(link)
                .into_iter()
                .flat_map(|target| self::ways(&folder.join(target), links - 1)),
        );
    }
    ways
}

/// The path with the links of its existing part resolved; the missing part may be created later.
fn resolve_links(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|prefix| Some((prefix, prefix.canonicalize().ok()?)));
    match existing {
        Some((prefix, found)) => path.strip_prefix(prefix).map_or(found.clone(), |rest| match rest
            .as_os_str()
            .is_empty()
        {
            true => found.clone(),
            false => found.join(rest),
        }),
        None => path.to_owned(),
    }
}

pub(super) fn guarded(
    config: &Config,
    cache: Option<&Path>,
    guards: &[GuardedPath],
) -> Vec<Guarded> {
    let mut found = GuardedPaths { home: home(config), all: Vec::new() };
    let folder = found.home.clone();
    // The config is guarded under its usual name; its actual name may differ, but its folder is
    // this one.
    found.add("the config", &folder.join("conclave.toml"), false, false);
    for guard in guards {
        found.add(&guard.what, &guard.path, guard.secret, guard.is_folder);
    }
    for (name, secret) in &config.secrets {
        found.key(&format!("the secret {name}"), &secret.from, &folder);
    }
    for (name, model) in &config.models {
        if let ModelKind::Server(server) = &model.kind
            && let Some(key) = &server.key
        {
            found.key(&format!("the key of the model {name}"), key, &folder);
        }
    }
    if let Some(secret) = config.server.oidc.as_ref().and_then(|oidc| oidc.client_secret.as_ref()) {
        found.key("the secret of the server at its provider", secret, &folder);
    }
    for (name, plugin) in &config.plugins {
        match &plugin.source {
            PluginSource::File(path) => {
                found.add(&format!("the plugin {name}"), Path::new(&path.path), false, false)
            }
            PluginSource::Mcp(source) => found.server(name, &source.reach, &folder),
            PluginSource::Stock(_)
            | PluginSource::Native(_)
            | PluginSource::Url { .. }
            | PluginSource::Oci { .. } => {}
        }
    }
    if let Some(cache) = cache {
        found.add("what is kept of compiled plugins", cache, false, true);
    }
    found.all
}

impl GuardedPaths {
    fn server(&mut self, name: &PluginName, reach: &McpReach, folder: &Path) {
        let keys: Vec<&KeyRef> = match reach {
            McpReach::Program { command, keys, cwd, confined, .. } => {
                let cwd = if cwd.path.is_empty() { Path::new(".") } else { Path::new(&cwd.path) };
                let what = format!("what the server {name} is started from");
                // The first word is relative to the config's folder already.
                let first = self.all.len();
                self.command(&what, command, command.first().map(Path::new), cwd);
                if confined.is_some() {
                    let folders = self.all[first..].iter_mut().filter(|it| it.is_folder);
                    folders.for_each(|folder| folder.own_of = Some(name.clone()));
                }
                // Without its own folder the server starts in the config's folder, in which plugins
                // often have granted folders.
                if resolve_links(cwd) != self.home {
                    self.add(
                        &format!("the folder in which the server {name} starts"),
                        cwd,
                        false,
                        true,
                    );
                }
                keys.values().collect()
            }
            McpReach::Address { key, .. } => key.iter().collect(),
        };
        for key in keys {
            self.key(&format!("a key of the server {name}"), key, folder);
        }
    }
}
