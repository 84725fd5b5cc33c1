//! Granted folders, before they are opened: that they are there, and that a plugin which may write in one cannot change what decides about
//! plugins with it, such as the config itself.

use std::path::{Path, PathBuf};

use conclave_core::config::{Config, KeyRef, ModelKind, PluginSource, Problems};
use conclave_core::grant::FileMode;

/// The config's folder without links, as far as it can be found; names whose stores are whose.
pub(super) fn home(config: &Config) -> PathBuf {
    let folder = if config.folder.is_empty() { Path::new(".") } else { Path::new(&config.folder) };
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// Says what is wrong with the folders of a config. `cache` is where this host keeps compiled code.
pub(super) fn check(config: &Config, cache: Option<&Path>, problems: &mut Problems) {
    let guarded = guarded(config, cache);
    for (name, plugin) in &config.plugins {
        for (index, grant) in plugin.grants.files.iter().enumerate() {
            let key = format!("plugins.{name}.grants.files[{index}]");
            let Some(dir) = Path::new(&grant.dir).canonicalize().ok().filter(|dir| dir.is_dir()) else {
                let problem = config.problem(&key, format!("there is no folder {}", grant.dir));
                problems.push(problem.help("make it, or correct the path; it starts at the folder of the config"));
                continue;
            };
            let writes = grant.mode == FileMode::ReadWrite;
            let holds = guarded.iter().find(|guarded| (writes || guarded.secret) && guarded.is_in_reach_of(&dir));
            if let Some(Guarded { what, secret, .. }) = holds {
                let (way, could) = if *secret { ("", "read") } else { (" for writing", "change") };
                let what = format!("{} cannot be granted{way}: {name} could {could} {what} with it", grant.shown);
                let help = if *secret { "keep the key in another folder" } else { "let it write in a folder of its own, such as `./out`" };
                problems.push(config.problem(&key, what).help(help));
            }
        }
    }
}

/// Something that no plugin may change.
struct Guarded {
    what: String,
    path: PathBuf,
    /// No plugin may read it either.
    secret: bool,
    /// It is a folder, and all that is below it.
    whole: bool,
}

impl Guarded {
    fn is_in_reach_of(&self, dir: &Path) -> bool {
        self.path.starts_with(dir) || (self.whole && dir.starts_with(&self.path))
    }
}

fn guarded(config: &Config, cache: Option<&Path>) -> Vec<Guarded> {
    let found = |what: String, path: &Path, whole| path.canonicalize().ok().map(|path| Guarded { what, path, whole, secret: false });
    // Whatever the config's file is called, it lies there.
    let file = Guarded { what: "the config".to_owned(), path: home(config).join("conclave.toml"), secret: false, whole: false };
    let plugins = config.plugins.iter().filter_map(|(name, plugin)| match &plugin.source {
        PluginSource::File(path) => found(format!("the plugin {name}"), Path::new(&path.path), false),
        _ => None,
    });
    let cache = cache.and_then(|cache| found("what is kept of compiled plugins".to_owned(), cache, true));
    let secrets = config.secrets.iter().map(|(name, secret)| (format!("the secret {name}"), Some(&secret.from)));
    let keys = config.models.iter().map(|(name, model)| match &model.kind {
        ModelKind::OpenAi(server) => (format!("the key of the model {name}"), server.key.as_ref()),
        ModelKind::Scripted { .. } | ModelKind::Native => (String::new(), None),
    });
    let secret = secrets.chain(keys).filter_map(|(what, key)| match key {
        Some(KeyRef::File(path)) => found(what, Path::new(&path.path), false).map(|guarded| Guarded { secret: true, ..guarded }),
        _ => None,
    });
    std::iter::once(file).chain(secret).chain(plugins).chain(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[&str], dir: &str, mode: &str) -> String {
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
        check(&config, Some(&temp.path().join("cache")), &mut problems);
        problems.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plugin_can_be_granted_no_folder_from_which_it_could_grant_itself_more() {
        let files = ["conclave.toml", "lib/p.wasm", "out/x", "cache/code/x", "lib/data/x"];
        for dir in ["out", "./out/", "lib/data"] {
            assert_eq!(problems(&files, dir, "read-write"), "", "{dir}");
        }
        assert!(problems(&files, ".", "read-write").contains("could change the config"));
        assert!(problems(&files, "out/..", "read-write").contains("could change the config"));
        assert!(problems(&files, "lib", "read-write").contains("could change the plugin p"));
        assert!(problems(&files, "cache", "read-write").contains("what is kept of compiled plugins"));
        assert!(problems(&files, "cache/code", "read-write").contains("what is kept of compiled plugins"));
        for dir in [".", "lib", "cache"] {
            assert_eq!(problems(&files, dir, "read"), "", "{dir}");
        }
        for (dir, mode) in [("keys", "read"), ("keys", "read-write"), (".", "read")] {
            let problems = problems(&["keys/s", "out/x"], dir, mode);
            assert!(problems.contains("cannot be granted: p could read the secret s"), "{dir}: {problems}");
        }
        assert!(problems(&files, "nowhere", "read").contains("there is no folder"));
        assert!(problems(&files, "out/x", "read-write").contains("there is no folder"));
    }
}
