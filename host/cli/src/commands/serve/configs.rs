//! The configs of a server: what the command line says about each, and its rooms and its store. A
//! config has the store that it would have at a server of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use conclave_core::config::Config;
use conclave_core::types::channel::ChannelKind;
use conclave_core::types::ids::ChannelId;
use conclave_runtime::store::{RunFilter, RunRow, Store, StoreAddress, StoreReader};
use conclave_server::API_RUN;
use sha2::{Digest as _, Sha256};

use crate::args::{self, CONFIG, ConfigArgument, Keep, is_config_name};
use crate::program::error::CliError;
use crate::program::shell::shell;
use crate::session::ending::changes_line;
use crate::state::journals::{RunCommand, RunStorage};
use crate::state::setup::{self, Models};
use crate::state::store_address::with_named_store;
use crate::state::stores::room_folder;
use crate::ui::show::run_state::{SERVED, is_of_server};
use crate::ui::show::show_path;

/// Bytes of a config's digest in the default name of its first room.
const DIGEST: usize = 4;

/// A config that was read.
#[derive(Clone)]
pub(super) struct ServedConfig {
    /// Its name in the API and on the page.
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) config: Config,
    /// The channel of its conversations; without one it has runs only.
    pub(super) channel: Option<ChannelId>,
    /// The name of its first room.
    pub(super) room: String,
}

/// A config whose store is open.
pub(super) struct StoredConfig {
    pub(super) of: ServedConfig,
    pub(super) storage: RunStorage,
    pub(super) store: Store,
    pub(super) reader: StoreReader,
}

impl ServedConfig {
    /// Reads the configs of the command line.
    pub(super) fn read_all(args: &args::Serve, models: &Models) -> Result<Vec<Self>, CliError> {
        let names = names(&args.configs)?;
        if args.room.is_some() && names.len() > 1 {
            let what = "--room names the rooms of one config, and there are several";
            return Err(CliError::usage(what)
                .hint("leave it out: each config has rooms of a name of its own"));
        }
        let mut configs = Vec::new();
        for (ConfigArgument { file, .. }, name) in args.configs.iter().zip(names) {
            let config = setup::read_config(file, models)?;
            let room = args.room.clone().unwrap_or_else(|| default_room(file));
            configs.push(Self { name, file: file.clone(), config, channel: None, room });
        }
        let has_it = |config: &Self, name: &str| web_channels(&config.config).contains(&name);
        // Of several configs it is the channel of those that have one of this name.
        let is_shared =
            |name: &str| configs.len() > 1 && configs.iter().any(|config| has_it(config, name));
        let choice = args.channel.as_deref().map(|name| (name, is_shared(name)));
        for config in &mut configs {
            let choice = choice.filter(|(name, is_shared)| !is_shared || has_it(config, name));
            let choice = choice.map(|(name, _)| name);
            config.channel = channel(&config.config, choice, &config.file)?;
        }
        Ok(configs)
    }
}

impl StoredConfig {
    /// Opens the stores of configs. If one is a folder, no other process may use it.
    pub(super) fn open_all(
        args: &args::Serve,
        configs: Vec<ServedConfig>,
    ) -> Result<Vec<Self>, CliError> {
        let files: Vec<PathBuf> = configs.iter().map(|config| absolute(&config.file)).collect();
        let mut stored: Vec<Self> = Vec::new();
        for of in configs {
            let keep = keep(args, &of)?;
            let command = RunCommand::new(SERVED, &of.file, &of.config, args.locked.locked);
            let open =
                stored.iter().find(|other| Some(other.store.address()) == keep.store.as_ref());
            let storage = match open {
                Some(other) => other.storage.shared_with(&keep, command),
                None => RunStorage::open(&keep, command)?,
            };
            let Some(store) = storage.store().cloned() else {
                return Err(CliError::internal("conversations need a store, and none is there"));
            };
            // After the storage is open: from here on no other process changes the rooms that are
            // read.
            let reader = StoreReader::open(store.address())?;
            check_owner(&reader, &of, &files)?;
            stored.push(Self { of, storage, store, reader });
        }
        Ok(stored)
    }

    /// A line for each of its runs with changes in overlays. They can be applied now, since no run
    /// has them open.
    pub(super) fn lines_of_changes(&self) -> Vec<String> {
        let runs = self.reader.runs(&RunFilter::default()).unwrap_or_default();
        let of_run = |row: RunRow| {
            changes_line(&row.run, self.reader.pending_changes(&row.run).unwrap_or(0))
        };
        let file = absolute(&self.of.file);
        let is_here = |row: &RunRow| {
            (row.command == API_RUN && row.config.as_ref() == Some(&file))
                || is_served(row.run.as_str(), &self.of.room)
        };
        runs.into_iter().filter(is_here).filter_map(of_run).collect()
    }
}

/// The names of configs, each another one.
fn names(configs: &[ConfigArgument]) -> Result<Vec<String>, CliError> {
    let mut files = BTreeSet::new();
    let mut names: BTreeMap<String, &Path> = BTreeMap::new();
    let mut all = Vec::new();
    for ConfigArgument { name, file } in configs {
        if !files.insert(absolute(file)) {
            return Err(CliError::usage(format!("{} is named twice", show_path(file))));
        }
        let name = name.clone().unwrap_or_else(|| default_name(file));
        if configs.len() > 1 && !is_config_name(&name) {
            let what =
                format!("{} has no name of letters, digits, `-`, `_` and `.`", show_path(file));
            let example = shell(&format!("NAME={}", file.display()));
            return Err(CliError::usage(what).hint(format!("give it one: {example}")));
        }
        if let Some(other) = names.insert(name.clone(), file) {
            let (one, two) = (show_path(other), show_path(file));
            let example = shell(&format!("{name}2={}", file.display()));
            return Err(CliError::usage(format!("{one} and {two} both have the name {name}"))
                .hint(format!("give one of them another: {example}")));
        }
        all.push(name);
    }
    Ok(all)
}

/// The name of a config: that of its file, or of its folder if the file has the usual name.
fn default_name(file: &Path) -> String {
    let file = absolute(file);
    let is_usual = file.file_name().is_some_and(|name| name == CONFIG);
    let part = if is_usual { file.parent().and_then(Path::file_name) } else { file.file_stem() };
    part.unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of a config's first room: the same for each start, and another for each config.
fn default_room(file: &Path) -> String {
    let digest = Sha256::digest(absolute(file).as_os_str().as_encoded_bytes());
    let digest: String = digest.iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect();
    format!("{SERVED}-{digest}")
}

pub(super) fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// The channels of kind `web`.
pub(super) fn web_channels(config: &Config) -> Vec<&str> {
    let web = config.channels.iter().filter(|(_, binding)| binding.kind == ChannelKind::Web);
    web.map(|(name, _)| name.as_str()).collect()
}

/// Returns the channel to serve; `None` if the config has none and none was named.
fn channel(
    config: &Config,
    choice: Option<&str>,
    file: &Path,
) -> Result<Option<ChannelId>, CliError> {
    let names = web_channels(config);
    match (choice, names.as_slice()) {
        (Some(choice), names) if names.contains(&choice) => Ok(Some(ChannelId::from(choice))),
        (None, [only]) => Ok(Some(ChannelId::from(*only))),
        (None, []) => Ok(None),
        (Some(name), []) => {
            let what = format!("{} has no channel of kind `web`", show_path(file));
            Err(CliError::usage(what)
                .hint(format!("add these lines to it:\n\n[channels.{name}]\nkind = \"web\"")))
        }
        (Some(choice), names) => {
            let what =
                format!("{} has no channel {} of kind `web`", show_path(file), shell(choice));
            Err(CliError::usage(what).known(
                choice,
                "its channels of that kind are",
                names.iter().copied(),
            ))
        }
        (None, [first, ..]) => {
            let what = format!("{} has several channels of kind `web`", show_path(file));
            Err(CliError::usage(what)
                .hint(format!("name one of {}: --channel {first}", names.join(", "))))
        }
    }
}

/// The storage options of a config: the named store, or that of its rooms.
fn keep(args: &args::Serve, of: &ServedConfig) -> Result<Keep, CliError> {
    let keep = with_named_store(&args.keep(), &of.config)?;
    let of_room = || room_folder(&of.room).map(StoreAddress::from);
    let store = keep.store.clone().or_else(of_room).ok_or_else(|| {
        CliError::internal("conversations need a store, and no state folder is known")
            .hint("set HOME or CONCLAVE_STATE, or name a store with --store")
    })?;
    Ok(Keep { store: Some(store), ..keep })
}

/// Checks that the rooms of the store are conversations of these configs, and runs that people
/// started at their server; in a database, which others share, those conversations that have the
/// name of this config's.
fn check_owner(reader: &StoreReader, of: &ServedConfig, files: &[PathBuf]) -> Result<(), CliError> {
    let rows = reader.runs(&RunFilter::default())?;
    let own = absolute(&of.file);
    let is_shared = reader.folder().is_none();
    let is_other = |row: &&RunRow| {
        // A conversation named after this config's room belongs to this config alone.
        let is_of = |config: &PathBuf| match is_served(row.run.as_str(), &of.room) {
            true => *config == own,
            false => files.contains(config),
        };
        !is_of_server(&row.command) || !row.config.as_ref().is_some_and(is_of)
    };
    let mut rows = rows.iter().filter(|row| !is_shared || is_served(row.run.as_str(), &of.room));
    let Some(row) = rows.find(is_other) else { return Ok(()) };
    let owner = row.config.as_deref().map_or_else(|| "no config".to_owned(), show_path);
    let what = format!(
        "the store holds {}, which belongs to `conclave {}` of {owner}",
        row.run, row.command
    );
    Err(CliError::usage(what)
        .hint("choose another name, or another store: --room NAME, --store STORE"))
}

/// Whether a run is a conversation of the config whose first room has this name.
fn is_served(run: &str, room: &str) -> bool {
    run.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served_channel(text: &str, channel: Option<&str>) -> Result<Option<String>, String> {
        let config = format!(
            "entry = 'a'\n[plugins.a]\nsource = 'stock:chat'\n[tasks.a]\nagent = 'a'\n{text}"
        );
        let config = Config::parse("c.toml", "", &config).expect("it is a config");
        super::channel(&config, channel, Path::new("c.toml"))
            .map(|channel| channel.map(|channel| channel.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_web_channel_is_served_and_of_several_the_named_one() {
        let (web, pager) = ("[channels.web]\nkind = 'web'\n", "[channels.pager]\nkind = 'text'\n");
        let both = format!("{web}{pager}[channels.shop]\nkind = 'web'\n");
        assert_eq!(served_channel(web, None).unwrap().as_deref(), Some("web"));
        assert_eq!(served_channel(&both, Some("shop")).unwrap().as_deref(), Some("shop"));
        assert_eq!(served_channel(pager, None).unwrap(), None, "it has runs only");
        for (text, channel, says) in [
            ("", Some("web"), "[channels.web]\nkind = \"web\""),
            (pager, Some("desk"), "[channels.desk]\nkind = \"web\""),
            (both.as_str(), None, "name one of shop, web: --channel shop"),
            (both.as_str(), Some("pager"), "its channels of that kind are: shop, web"),
        ] {
            let error = served_channel(text, channel).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn each_config_has_a_room_of_its_own() {
        let (one, other) =
            (default_room(Path::new("/a/c.toml")), default_room(Path::new("/b/c.toml")));
        assert_eq!(one, default_room(Path::new("/a/c.toml")));
        assert!(one.starts_with("serve-") && one != other, "{one} {other}");
        assert!(is_served("serve-1", "serve-1") && is_served("serve-1.2", "serve-1"));
        assert!(!is_served("serve-12", "serve-1"));
    }

    #[test]
    fn each_config_has_a_name_of_its_own() {
        let argument = |name: Option<&str>, file: &str| ConfigArgument {
            name: name.map(str::to_owned),
            file: file.into(),
        };
        let of = |configs: &[ConfigArgument]| names(configs).map_err(|error| error.to_string());
        let (desk, shop) =
            (argument(None, "/a/desk.toml"), argument(None, "/b/shop/conclave.toml"));
        assert_eq!(of(&[desk.clone(), shop.clone()]).unwrap(), ["desk", "shop"]);
        assert_eq!(of(&[argument(Some("d"), "/a/desk.toml"), shop]).unwrap(), ["d", "shop"]);
        let twice = of(&[desk.clone(), argument(None, "/c/desk.toml")]).unwrap_err();
        assert!(twice.contains("both have the name desk"), "{twice}");
        let same = of(&[desk.clone(), argument(Some("other"), "/a/desk.toml")]).unwrap_err();
        assert!(same.contains("is named twice"), "{same}");
        let odd = argument(None, "/a/my desk.toml");
        assert_eq!(of(std::slice::from_ref(&odd)).unwrap(), ["my desk"], "the only one needs none");
        assert!(of(&[desk, odd]).unwrap_err().contains("NAME="));
    }
}
