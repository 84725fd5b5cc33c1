//! Builds components, which are the stock plugins, those of the examples and the guests of the
//! tests, and places them where the host, tests and configs look for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::arguments;
use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;
use crate::phase::{CargoBuild, Phases};
use crate::place::{Checkout, PLUGIN_TARGET, digest, digest_of, files_below};
use crate::python_plugin;
use crate::shared::SharedComponents;
use crate::toml;

const PLUGIN_PREFIX: &str = "conclave-plugin-";
/// The folder of the plugins that only examples and tests run. They are built beside the guests,
/// because no program contains them.
const EXAMPLE_PLUGINS: &str = "docs/examples/plugins";

/// The folders of what guests are made of. A test compares them with the dependencies.
const GUEST_SOURCES: [&str; 9] = [
    "tests/guests",
    EXAMPLE_PLUGINS,
    "tests/script",
    "plugins/prose",
    "sdk/rust",
    "sdk/rust-macros",
    "sdk/manifest",
    "host/trajectory",
    "wit",
];
/// The settings of their build.
const GUEST_SETTINGS: [&str; 4] =
    ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "host/xtask/guests.toml"];

/// How components are compiled.
#[derive(Clone, Copy)]
pub(crate) enum Optimised {
    /// As people run them, and as their speed is measured.
    Fully,
    /// In a quarter of the time, for tests.
    Little,
}

impl Optimised {
    fn settings(self) -> [&'static str; 2] {
        match self {
            Self::Fully => ["--profile", "plugin"],
            Self::Little => ["--config", "host/xtask/guests.toml"],
        }
    }

    /// Returns the folder of components below the target folder.
    fn folder(self, place: &Checkout) -> PathBuf {
        let profile = match self {
            Self::Fully => "plugin",
            Self::Little => "debug",
        };
        place.target.join(PLUGIN_TARGET).join(profile)
    }
}

/// Runs `cargo xtask build`.
pub(crate) fn run_build(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let known = ["--verbose", "--release"];
    let [verbose, release] = arguments::flags("build", known, arguments)?;
    needs::check(place)?;
    let mut phases = Phases::new(place, 2, verbose);
    build_stock(place, &mut phases, Optimised::Fully)?;
    build_conclave(place, &mut phases, release)?;
    let program = if release { place.program("release", "conclave") } else { place.conclave() };
    eprintln!("{}", place.relative(&program));
    Ok(ExitCode::SUCCESS)
}

/// Runs `cargo xtask guests`.
pub(crate) fn run_guests(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let [verbose] = arguments::flags("guests", ["--verbose"], arguments)?;
    needs::check(place)?;
    build_guests(place, &mut Phases::new(place, 1, verbose), Optimised::Little)?;
    eprintln!("{}", place.relative(&place.guests()));
    Ok(ExitCode::SUCCESS)
}

/// One phase: builds the stock plugins into `target/conclave/stock`. Those in Python have a line of
/// their own when they are built.
pub(crate) fn build_stock(
    place: &Checkout,
    phases: &mut Phases,
    optimised: Optimised,
) -> Result<(), XtaskFailure> {
    let plugins = stock_plugins(place)?;
    let mut command = component_build(place, optimised);
    for plugin in &plugins {
        command.args(["-p", &plugin.package]);
    }
    phases.run(&format!("building {} stock plugins", plugins.len()), "stock", command)?;
    let built = optimised.folder(place);
    let components =
        plugins.iter().map(|plugin| (built.join(&plugin.file), plugin.name().to_owned()));
    publish_all(components.chain(python_plugin::build(place)?), &place.stock())
}

/// One phase: builds the program with the stock plugins inside.
pub(crate) fn build_conclave(
    place: &Checkout,
    phases: &mut Phases,
    release: bool,
) -> Result<(), XtaskFailure> {
    let mut command = place.cargo(["build", "-p", "conclave-host"]);
    if release {
        command.arg("--release");
    }
    phases.run("building the program conclave", "conclave", command)
}

/// One phase: builds the guests of the tests and the plugins of the examples into
/// `target/conclave/guests`.
pub(crate) fn build_guests(
    place: &Checkout,
    phases: &mut Phases,
    optimised: Optimised,
) -> Result<(), XtaskFailure> {
    let examples = example_plugins(place)?;
    let mut names = guests(place)?;
    names.extend(example_names(place)?);
    let label = format!("building {} guests of tests and examples", names.len());
    let shared = match optimised {
        Optimised::Little => SharedComponents::find(place, "guests", &guest_inputs(place)?),
        Optimised::Fully => None,
    };
    if let Some(known) = shared.as_ref().and_then(|shared| shared.get(&names)) {
        return phases.check(&label, || publish_all(known.into_iter(), &place.guests()));
    }
    let mut command = guest_build(place, optimised);
    command.arg("--examples");
    add_plugins(&mut command, &examples);
    phases.run(&label, "guests", command)?;
    let built: Vec<_> = names
        .into_iter()
        .map(|name| (built_guest(place, optimised, &examples, &name), name))
        .collect();
    publish_all(built.iter().cloned(), &place.guests())?;
    if let Some(shared) = shared {
        shared.put(&built);
    }
    Ok(())
}

/// Returns a digest of everything that guests are made of.
fn guest_inputs(place: &Checkout) -> Result<String, XtaskFailure> {
    let mut files: Vec<PathBuf> = GUEST_SETTINGS.iter().map(|file| place.root.join(file)).collect();
    for folder in GUEST_SOURCES {
        files.extend(files_below(&place.root.join(folder), ""));
    }
    Ok(format!("{}-{}", digest(place, files)?, digest_of(needs::compiler()?.as_bytes())))
}

fn guest_build(place: &Checkout, optimised: Optimised) -> Command {
    let mut command = component_build(place, optimised);
    command.args(["-p", "conclave-guests"]);
    command
}

/// Adds plugins to a build of guests, which names examples besides.
fn add_plugins(command: &mut Command, plugins: &[ComponentCrate]) {
    for plugin in plugins {
        command.args(["-p", &plugin.package]);
    }
    command.args((!plugins.is_empty()).then_some("--lib"));
}

fn component_build(place: &Checkout, optimised: Optimised) -> Command {
    let mut command = place.cargo(["build", "--target", PLUGIN_TARGET]);
    command.args(optimised.settings());
    if let Optimised::Little = optimised {
        // Cargo would take these in place of the flags of the settings.
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    command
}

/// The components that a config names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedComponents {
    /// Those behind `stock:`.
    stock: BTreeSet<String>,
    /// The guests of the tests, and the plugins of the examples.
    guests: BTreeSet<String>,
}

impl NamedComponents {
    /// Returns the components of a config of `docs/examples`.
    pub(crate) fn of(config: &str) -> Self {
        let mut components = Self::default();
        for line in config.lines().filter(|line| line.trim_start().starts_with("source")) {
            let source = line.split('"').nth(1).unwrap_or_default();
            if let Some(name) = source.strip_prefix("stock:") {
                components.stock.insert(name.to_owned());
            } else if let Some(name) = guest_named(source) {
                components.guests.insert(name.to_owned());
            }
        }
        components
    }
}

fn guest_named(source: &str) -> Option<&str> {
    source.split_once("conclave/guests/")?.1.strip_suffix(".wasm")
}

/// One phase: builds only these components; the others stay unchanged.
pub(crate) fn build_named(
    place: &Checkout,
    phases: &mut Phases,
    names: &NamedComponents,
    optimised: Optimised,
) -> Result<(), XtaskFailure> {
    let mut plugins = stock_plugins(place)?;
    plugins.retain(|plugin| names.stock.contains(plugin.name()));
    let mut examples = example_plugins(place)?;
    examples.retain(|plugin| names.guests.contains(plugin.name()));
    let mut command = guest_build(place, optimised);
    add_guests(&mut command, &examples, names.guests.iter().map(String::as_str));
    let count = plugins.len() + names.guests.len();
    let built = optimised.folder(place);
    let mut components: Vec<(PathBuf, PathBuf)> = plugins
        .iter()
        .map(|plugin| (built.join(&plugin.file), place.stock().join(plugin.component())))
        .collect();
    components.extend(names.guests.iter().map(|name| {
        let file = place.guests().join(format!("{name}.wasm"));
        (built_guest(place, optimised, &examples, name), file)
    }));
    plugins.append(&mut examples);
    add_plugins(&mut command, &plugins);
    let build = CargoBuild { log: "plugins", command };
    phases.build(&format!("building {count} plugins"), vec![build])?;
    for folder in [place.stock(), place.guests()] {
        files::make_folder(&folder)?;
    }
    components.iter().try_for_each(|(built, file)| publish(built, file))
}

/// One phase: builds only these guests, as the stock plugins are built beside which they run: they
/// share the SDK.
pub(crate) fn build_some_guests(
    place: &Checkout,
    phases: &mut Phases,
    names: &[&str],
) -> Result<(), XtaskFailure> {
    let guests = names.iter().map(|name| (*name).to_owned()).collect();
    let names = NamedComponents { stock: BTreeSet::new(), guests };
    build_named(place, phases, &names, Optimised::Fully)
}

/// Adds the guests of the tests with these names to a build; the others are plugins of examples.
fn add_guests<'a>(
    command: &mut Command,
    examples: &[ComponentCrate],
    names: impl Iterator<Item = &'a str>,
) {
    for name in names.filter(|name| examples.iter().all(|plugin| plugin.name() != *name)) {
        command.args(["--example", name]);
    }
}

/// Returns the names of the guests from tests/guests/Cargo.toml.
pub(crate) fn guests(place: &Checkout) -> Result<Vec<String>, XtaskFailure> {
    Ok(toml::strings(&place.read("tests/guests/Cargo.toml")?, "[[example]]", "name"))
}

/// The names of the plugins of the examples.
pub(crate) fn example_names(place: &Checkout) -> Result<Vec<String>, XtaskFailure> {
    Ok(example_plugins(place)?.iter().map(|plugin| plugin.name().to_owned()).collect())
}

/// Returns the file that cargo builds of a guest, or of one of these plugins.
fn built_guest(
    place: &Checkout,
    optimised: Optimised,
    examples: &[ComponentCrate],
    name: &str,
) -> PathBuf {
    let folder = optimised.folder(place);
    match examples.iter().find(|plugin| plugin.name() == name) {
        Some(plugin) => folder.join(&plugin.file),
        None => folder.join("examples").join(format!("{}.wasm", name.replace('-', "_"))),
    }
}

struct ComponentCrate {
    package: String,
    /// The name of the file that cargo builds.
    file: String,
}

impl ComponentCrate {
    /// The name in configs: `stock:NAME`, or that of its file.
    fn name(&self) -> &str {
        self.package.strip_prefix(PLUGIN_PREFIX).unwrap_or(&self.package)
    }

    /// Returns the name of its component in the folder of stock plugins.
    fn component(&self) -> String {
        format!("{}.wasm", self.name())
    }
}

fn stock_plugins(place: &Checkout) -> Result<Vec<ComponentCrate>, XtaskFailure> {
    let kinds = folders(&place.root.join("plugins"));
    plugin_crates(place, "plugins", kinds.iter().flat_map(|kind| folders(kind)))
}

fn example_plugins(place: &Checkout) -> Result<Vec<ComponentCrate>, XtaskFailure> {
    plugin_crates(place, EXAMPLE_PLUGINS, folders(&place.root.join(EXAMPLE_PLUGINS)).into_iter())
}

/// Returns the plugins among the crates in these folders, ordered by name. `below` is for the error
/// if there is none.
fn plugin_crates(
    place: &Checkout,
    below: &str,
    folders: impl Iterator<Item = PathBuf>,
) -> Result<Vec<ComponentCrate>, XtaskFailure> {
    let mut plugins = Vec::new();
    for folder in folders {
        let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let Some(package) =
            toml::string(&text, "[package]", "name").filter(|name| name.starts_with(PLUGIN_PREFIX))
        else {
            continue;
        };
        let library =
            toml::string(&text, "[lib]", "name").unwrap_or_else(|| package.replace('-', "_"));
        plugins.push(ComponentCrate { package, file: format!("{library}.wasm") });
    }
    if plugins.is_empty() {
        return Err(XtaskFailure::new(format!(
            "no package named {PLUGIN_PREFIX}… below {}",
            place.root.join(below).display()
        )));
    }
    plugins.sort_by(|a, b| a.package.cmp(&b.package));
    Ok(plugins)
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Makes `folder` hold exactly these components. Unchanged files are not touched, because their age
/// decides which crates are rebuilt.
fn publish_all(
    components: impl Iterator<Item = (PathBuf, String)>,
    folder: &Path,
) -> Result<(), XtaskFailure> {
    files::make_folder(folder)?;
    let mut current_files = BTreeSet::new();
    for (built, name) in components {
        let file = folder.join(format!("{name}.wasm"));
        publish(&built, &file)?;
        current_files.insert(file);
    }
    for stale in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if !current_files.contains(&stale) {
            files::remove(&stale)?;
        }
    }
    Ok(())
}

fn publish(built: &Path, file: &Path) -> Result<(), XtaskFailure> {
    let bytes =
        fs::read(built).map_err(|error| XtaskFailure::io("read the component", built, &error))?;
    // The fifth to eighth byte: version 13 of the binary format in layer 1 is a component, any
    // other a bare core module.
    if bytes.get(..8) != Some(b"\0asm\x0d\0\x01\0") {
        return Err(XtaskFailure::new(format!(
            "{} is no component: its [lib] or [[example]] needs crate-type = [\"cdylib\"]",
            built.display()
        )));
    }
    if fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    // Written in two steps, so that a concurrent reader never sees half a component.
    let draft = file.with_extension("wasm.new");
    files::write(&draft, bytes)?;
    files::rename(&draft, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers;

    #[test]
    fn a_config_names_its_components() {
        let config = "# source = \"stock:none\"\nsource = \"stock:search\"   # here\n  source = \"../../target/conclave/guests/finder.wasm\"\nsource = \"./other.wasm\"\n";
        let components = NamedComponents::of(config);
        assert_eq!(components.stock, BTreeSet::from(["search".to_owned()]));
        assert_eq!(components.guests, BTreeSet::from(["finder".to_owned()]));
    }

    /// Guests and plugins of examples lie in one folder, and configs of examples name both.
    #[test]
    fn no_plugin_of_an_example_has_the_name_of_a_guest_or_a_stock_plugin() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let all = guests(&place)
            .and_then(|guests| Ok((guests, stock_plugins(&place)?, example_names(&place)?)));
        let (guests, stock, examples) = all.unwrap_or_else(|failure| panic!("{}", failure.text));
        for name in &examples {
            assert!(!guests.contains(name) && stock.iter().all(|plugin| plugin.name() != name));
        }
    }

    #[test]
    fn a_guest_is_made_of_the_folders_of_its_dependencies() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let members = layers::members(&place).unwrap_or_else(|failure| panic!("{}", failure.text));
        let is_example = |package: &&layers::Package| package.folder.starts_with(EXAMPLE_PLUGINS);
        let mut names: BTreeSet<String> =
            members.iter().filter(is_example).map(|package| package.name.clone()).collect();
        names.insert("conclave-guests".to_owned());
        let mut folders = BTreeSet::from(["wit"]);
        while let Some(name) = names.pop_first() {
            let package = members.iter().find(|package| package.name == name);
            let package = package.unwrap_or_else(|| panic!("there is no package {name}"));
            folders.insert(if is_example(&package) { EXAMPLE_PLUGINS } else { &package.folder });
            names.extend(package.dependencies.iter().cloned());
        }
        assert_eq!(folders, BTreeSet::from(GUEST_SOURCES));
    }
}
