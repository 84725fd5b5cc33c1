//! Resolves a plugin's source and inspects it: its bytes, its manifest, and its name in a config.
//! Nothing of it is run or built.

use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use conclave_core::config::PluginSource;
use conclave_core::types::oci::OciReference;
use conclave_core::types::wording::quoted;
use conclave_runtime::MissingStock;
use conclave_runtime::plugin::{Inspection, PluginComponent, read_component};

use crate::args::Language;
use crate::program::error::CliError;
use crate::program::shell::shell;
use crate::state::folders;
use crate::state::project::{self, Project};
use crate::state::registry::{download, pull};
use crate::state::stock::stock;
use crate::ui::show::{show_path, unread};

/// The folder in a target folder that holds components.
pub(crate) const TARGET: &str = "wasm32-wasip2";
const PROFILES: [&str; 3] = ["release", "plugin", "debug"];

/// A component that was found.
pub(crate) struct LocatedComponent {
    pub(crate) place: ComponentPlace,
    /// Whether it is the build of a crate, which the operator builds.
    pub(crate) is_built_here: bool,
    pub(crate) inspection: Inspection,
    pub(crate) component: PluginComponent,
}

impl LocatedComponent {
    /// Returns the bytes for an artifact or a signature.
    ///
    /// # Errors
    /// If they are a file beside the program that is missing or changed.
    #[cfg(feature = "registry")]
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, CliError> {
        let bytes = self.component.bytes().map(std::borrow::Cow::into_owned);
        bytes.map_err(|error| {
            CliError::internal(error.to_string())
                .hint("`conclave doctor` checks the program's files")
        })
    }

    /// The name to propose for it: that of its manifest, or of the file if it has none.
    pub(crate) fn name(&self) -> String {
        let of_file = match &self.place {
            ComponentPlace::File(file) if !self.inspection.has_manifest => {
                file.file_stem().map(|stem| stem.to_string_lossy().into_owned())
            }
            _ => None,
        };
        of_file.unwrap_or_else(|| self.inspection.manifest.name.clone())
    }
}

/// The place of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ComponentPlace {
    /// Built into this program, under this name.
    Stock(String),
    File(PathBuf),
    /// The address and digest, in the config's syntax.
    #[cfg_attr(not(feature = "registry"), expect(dead_code, reason = "needs a download"))]
    Url(String),
    #[cfg_attr(not(feature = "registry"), expect(dead_code, reason = "needs a registry"))]
    Registry {
        /// The reference as named, in the config's syntax.
        reference: String,
        /// The artifact with its digest.
        artifact: OciReference,
    },
}

impl ComponentPlace {
    /// The source as a config in this folder names it.
    pub(crate) fn in_config(&self, folder: &Path) -> String {
        match self {
            Self::Stock(name) => format!("stock:{name}"),
            Self::Url(url) => url.clone(),
            Self::Registry { reference, .. } => reference.clone(),
            Self::File(file) if file.is_absolute() => file.display().to_string(),
            Self::File(file) => relative(file, folder).display().to_string(),
        }
    }

    /// Whether it did not come with this program.
    pub(crate) fn is_strange(&self) -> bool {
        !matches!(self, Self::Stock(_))
    }

    /// The source for messages.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Stock(name) => format!("stock:{name}"),
            Self::Url(url) => url.split('#').next().unwrap_or_default().to_owned(),
            Self::Registry { artifact, .. } => artifact.to_string(),
            Self::File(file) => file.display().to_string(),
        }
    }
}

/// Finds a component and inspects it. `command_for` returns the command to type with a better
/// source.
///
/// # Errors
/// If there is none, or it is not a plugin.
pub(crate) async fn find(
    source: &str,
    command_for: impl Fn(&str) -> String,
) -> Result<LocatedComponent, CliError> {
    let is_built_here = Path::new(source).is_dir() || is_build(Path::new(source));
    let (place, component) = match source.split_once(':') {
        Some(("stock", name)) => (ComponentPlace::Stock(name.to_owned()), stock_component(name)?),
        Some(("http" | "https", _)) => with_bytes(download(source, command_for).await?),
        Some(("oci", _)) => with_bytes(pull(source).await?),
        Some(("mcp", server)) => return Err(no_component(server)),
        _ => with_bytes(from_disk(Path::new(source))?),
    };
    let inspection = component
        .inspection()
        .map_err(|error| CliError::plugin(format!("{} is not a plugin: {error}", place.label())))?;
    let is_built_here = is_built_here && matches!(place, ComponentPlace::File(_));
    Ok(LocatedComponent { place, is_built_here, inspection, component })
}

/// The error for an MCP server, with the lines that add one to a config.
fn no_component(server: &str) -> CliError {
    let server = server.trim().trim_start_matches("//");
    let is_url = server.starts_with("http:") || server.starts_with("https:");
    let source = if is_url {
        format!("{{ mcp = {{ url = {} }} }}", quoted(server))
    } else {
        let words: Vec<String> = server.split_whitespace().map(quoted).collect();
        let words = if words.is_empty() { vec![quoted("PROGRAM")] } else { words };
        format!("{{ mcp = {{ command = [{}] }} }}", words.join(", "))
    };
    CliError::usage("an MCP server is no component, so there is nothing to inspect or to pin")
        .hint(format!("write it into the config:\n\n[plugins.server]\nsource = {source}"))
}

fn with_bytes((place, bytes): (ComponentPlace, Vec<u8>)) -> (ComponentPlace, PluginComponent) {
    (place, bytes.into())
}

/// Whether the path is where a build puts a component. Cargo puts that of a crate at
/// `CRATE/target/wasm32-…/PROFILE/x.wasm`.
pub(crate) fn is_build(file: &Path) -> bool {
    if project::is_build(file) {
        return true;
    }
    let folder = |steps: usize| file.ancestors().nth(steps);
    let has_name = |steps: usize, is: fn(&str) -> bool| {
        folder(steps).and_then(Path::file_name).and_then(|name| name.to_str()).is_some_and(is)
    };
    has_name(2, |name| name.starts_with("wasm32-"))
        && has_name(3, |name| name == "target")
        && folder(4).is_some_and(|root| root.join("Cargo.toml").is_file())
}

/// Inspects an installed plugin's source, if that needs no download.
pub(crate) fn look_up(source: &PluginSource) -> Option<Inspection> {
    let component: PluginComponent = match source {
        PluginSource::Stock(name) => stock_component(name).ok()?,
        PluginSource::File(path) => read_component(Path::new(&path.path)).ok()?.into(),
        PluginSource::Native(_)
        | PluginSource::Url { .. }
        | PluginSource::Oci { .. }
        | PluginSource::Mcp(_) => return None,
    };
    component.inspection().ok()
}

fn stock_component(name: &str) -> Result<PluginComponent, CliError> {
    let mut stock = stock();
    if let Some(component) = stock.remove(name) {
        return Ok(component);
    }
    let missing = MissingStock::new(name, stock.keys().map(String::as_str));
    Err(CliError::usage(missing.to_string()).hint(missing.help()))
}

fn from_disk(path: &Path) -> Result<(ComponentPlace, Vec<u8>), CliError> {
    let file = if path.is_dir() { built(path)? } else { path.to_owned() };
    let bytes = read_component(&file).map_err(|error| {
        let hint = "name stock:NAME, a .wasm file, the folder of a plugin's crate, https://…/x.wasm#sha256=…, or oci://REGISTRY/REPOSITORY:TAG";
        unread(&file, error).hint(hint)
    })?;
    if file.extension().is_none_or(|ending| ending != "wasm") {
        return Err(CliError::usage(format!("{} does not end in .wasm", show_path(&file)))
            .hint("the file name of a component ends in .wasm"));
    }
    Ok((ComponentPlace::File(file), bytes))
}

/// Returns the newest component that was built of a crate. It is not built here: a build script is
/// a foreign program, and would run without a sandbox.
fn built(folder: &Path) -> Result<PathBuf, CliError> {
    let project = Project::open(folder)?;
    if project.language != Language::Rust {
        let component = project.component()?;
        return if component.is_file() {
            Ok(component)
        } else {
            Err(not_built(folder, &component))
        };
    }
    let file = component_file(folder)?;
    let targets = target_folders(folder);
    let candidates = targets
        .iter()
        .flat_map(|target| PROFILES.map(|profile| target.join(TARGET).join(profile).join(&file)));
    let modified = |path: &PathBuf| {
        path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    candidates
        .filter(|path| path.is_file())
        .max_by_key(modified)
        .ok_or_else(|| not_built(folder, Path::new(&format!("{file} for {TARGET}"))))
}

fn not_built(folder: &Path, component: &Path) -> CliError {
    let what =
        format!("{} is not built: {} does not exist", show_path(folder), show_path(component));
    let command = format!("conclave plugin build {}", shell(&folder.display().to_string()));
    CliError::usage(what).hint(format!(
        "build it with `{command}`; building runs its author's code without a sandbox"
    ))
}

/// Returns the name of the file that cargo makes of a crate.
pub(crate) fn component_file(folder: &Path) -> Result<String, CliError> {
    let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else {
        let what = format!("the folder {} has no Cargo.toml", show_path(folder));
        return Err(
            CliError::usage(what).hint("name the folder of a plugin's crate, or a .wasm file")
        );
    };
    let name = crate_name(&manifest).ok_or_else(|| {
        CliError::usage(format!("the Cargo.toml in {} defines no package", show_path(folder)))
            .hint("name the folder of the plugin's crate")
    })?;
    Ok(format!("{}.wasm", name.replace('-', "_")))
}

/// The name of the library, or else that of the package, by a minimal parse of the TOML.
fn crate_name(manifest: &str) -> Option<String> {
    let name_in = |section: &str| {
        let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
        let line = lines
            .by_ref()
            .take_while(|line| !line.starts_with('['))
            .find(|line| line.split_once('=').is_some_and(|(key, _)| key.trim() == "name"))?;
        let value = line.split_once('=')?.1.trim();
        Some(value.trim_start_matches(['"', '\'']).split(['"', '\'']).next()?.to_owned())
    };
    name_in("[lib]").or_else(|| name_in("[package]"))
}

/// The folders into which cargo may have built: `target` in the folder, where `conclave plugin
/// build` puts it, and `CARGO_TARGET_DIR`, or else `target` in an enclosing workspace.
fn target_folders(folder: &Path) -> Vec<PathBuf> {
    if let Some(target) = std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
        return vec![folder.join("target"), PathBuf::from(target)];
    }
    let mut folders = vec![folder.join("target")];
    let canonical_path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folders.extend(
        canonical_path
            .ancestors()
            .skip(1)
            .filter(|above| above.join("Cargo.toml").is_file())
            .map(|above| above.join("target")),
    );
    folders
}

/// The path from a folder to a file, or the file's full path if there is none.
fn relative(file: &Path, folder: &Path) -> PathBuf {
    let Ok(file) = file.canonicalize() else { return file.to_owned() };
    let folder = folders::canonicalize(folder);
    let (mut to, mut from) = (file.components().peekable(), folder.components().peekable());
    let mut shared = 0;
    while to.peek().is_some() && to.peek() == from.peek() {
        to.next();
        from.next();
        shared += 1;
    }
    // They share only the root: a relative path would be longer, and less clear.
    if shared <= 1 {
        return file;
    }
    let ups = from.count();
    let start = if ups == 0 {
        PathBuf::from(".")
    } else {
        std::iter::repeat_n(Component::ParentDir, ups).collect()
    };
    start.join(to.collect::<PathBuf>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_written_relative_to_the_config() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("config/plugins")).unwrap();
        std::fs::write(root.join("config/plugins/x.wasm"), "").unwrap();
        std::fs::write(root.join("y.wasm"), "").unwrap();
        let cases = [
            ("config/plugins/x.wasm", "config", "./plugins/x.wasm"),
            ("y.wasm", "config/plugins", "../../y.wasm"),
        ];
        for (file, folder, expected) in cases {
            assert_eq!(relative(&root.join(file), &root.join(folder)), Path::new(expected));
        }
    }

    #[test]
    fn a_component_in_a_crates_target_folder_is_a_build() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("notes/target/wasm32-wasip2/release/notes.wasm");
        assert!(!is_build(&file), "there is no crate");
        std::fs::create_dir_all(temp.path().join("notes")).unwrap();
        std::fs::write(temp.path().join("notes/Cargo.toml"), "").unwrap();
        assert!(is_build(&file));
        assert!(
            !is_build(&temp.path().join("notes/vendor/stranger.wasm")),
            "a stranger's file inside a crate is no build of it"
        );
    }

    #[test]
    fn the_lines_for_an_mcp_server_are_a_config() {
        for server in ["npx foo", "http://localhost:1/mcp", "a \\ \"b\"", ""] {
            let error = no_component(server).to_string();
            let (_, lines) = error.split_once("[plugins.server]").unwrap();
            let text =
                format!("entry = \"t\"\n[plugins.server]{lines}\n[tasks.t]\nagent = \"server\"\n");
            let config = conclave_core::config::Config::parse("c.toml", "", &text);
            let config = config.unwrap_or_else(|problems| panic!("{text}: {problems}"));
            let source = config.plugins.values().next().map(|plugin| &plugin.source);
            assert!(matches!(source, Some(PluginSource::Mcp(_))), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_crate_is_parsed() {
        assert_eq!(
            crate_name("[package]\nname = \"my-tool\" # x\n[lib]\ncrate-type = []").as_deref(),
            Some("my-tool")
        );
        let manifest = "[package]\nname = \"my-tool\"\n[lib]\nname = \"other\"\n";
        assert_eq!(crate_name(manifest).as_deref(), Some("other"));
        assert_eq!(crate_name("[workspace]\n"), None);
    }
}
