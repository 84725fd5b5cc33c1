//! `conclave add SOURCE`: inspects a component and shows the capabilities it asks for, with its
//! reasons. Adds it to the config with the grants that the user confirmed, and pins it. Runs
//! nothing of the component but its list of tools, with nothing granted.

pub(crate) mod hints;
mod questions;
mod server;

use std::collections::BTreeSet;

use conclave_core::config::edit::{Fragment, capability_of, proposed_name};
use conclave_core::config::lockfile::is_pinned;
use conclave_core::config::{Config, PublicKey, SignedComponent, check_name};
use conclave_core::permissions::manifest::Manifest;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::PluginName;
use serde_json::json;

use crate::args::{Add, OutputArgs};
use crate::commands::{lock, trust};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::{file_option, shell};
use crate::state::config_file::{ConfigFile, tell};
use crate::state::folders::{FolderGuard, check_by_host};
use crate::state::lock_file::LockFile;
use crate::state::registry;
use crate::state::source::{self, ComponentPlace, LocatedComponent};
use crate::ui::ask;
use crate::ui::screen::total_columns;
use crate::ui::show::{FAINT, GOOD, ODD, bytes, component, one_line, paint, show_path};
use crate::ui::stderr;
use hints::MissingGrant;

/// Columns of a component's text: longer text could wrap into rows that look like the program's.
const TEXT: usize = 200;
/// Columns of a component's text in a comment of the config.
const COMMENT: usize = 100;

pub(crate) async fn add(args: &Add, output: OutputArgs) -> Result<u8, CliError> {
    if let Some(command) = server_command(&args.source) {
        return server::add(args, command, output).await;
    }
    let file = ConfigFile::open(&args.file)?;
    let mut edit = file.edit()?;
    let fragments = fragments(&args.grants)?;
    let found = source::find(&args.source, |source| command_for(args, source)).await?;
    let manifest = &found.inspection.manifest;
    let name = name(args.name.as_deref(), &found)?;
    require_new(args, &edit.plugins(), &name)?;
    fragments.iter().try_for_each(|fragment| check_asked(&name, manifest, fragment))?;
    let quiet = output.result_only();
    let is_dev =
        (args.dev || found.is_built_here) && matches!(found.place, ComponentPlace::File(_));
    let before = Config::parse(&show_path(&args.file), "", edit.text()).ok();
    let signers = registry::signers_of(&found).await?;
    if !quiet {
        let trust = before.as_ref().map(|config| config.trust.clone()).unwrap_or_default();
        show(&found, is_dev, (&trust.names(&signers), &trust.unknown(&signers)));
        trust.unknown(&signers).iter().for_each(|key| trust::propose(key, &args.file));
    }
    let asks = fragments.is_empty() && !args.no_questions && !quiet && ask::is_user_there();
    let chosen = if asks {
        questions::ask_all(&found.inspection, before.as_ref(), file.folder())
    } else {
        fragments
    };
    edit.add_plugin(&name, &found.place.in_config(file.folder()), &comment(&found))?;
    chosen.iter().try_for_each(|fragment| edit.grant(&name, fragment))?;
    let edited = edit.finish()?;
    // A user who answered the questions has confirmed the folders already.
    FolderGuard::new(file.folder(), args.yes || asks).check(
        &name,
        &chosen,
        before.as_ref(),
        &edited,
    )?;
    check_by_host(&args.file, &name, before.as_ref(), &edited)?;
    if let Some(config) = &edited.config {
        check_trust(config, &name, &found, &signers)?;
    }
    // A user who was asked has decided on each grant; a script gets no config that cannot run.
    if let Some(config) = edited.config.as_ref().filter(|_| !asks) {
        refuse_missing(args, &name, &found, config)?;
    }
    // Opened early, so that an unreadable lock is reported before anything is written.
    let lock = LockFile::open(&args.file)?;
    file.write(&edited)?;
    // Pinning compiles it, which takes a config that says whether it is trusted.
    let pinned = match &edited.config {
        Some(config) => {
            let counted =
                signers.iter().filter(|key| !config.trust.revoked_keys.contains(*key)).cloned();
            lock::pin(&lock, &name, (&found, counted.collect()), is_dev, output).await?
        }
        None => None,
    };
    let hints = edited
        .config
        .as_ref()
        .map(|config| hints::hints(&name, &found.inspection, config, &args.file))
        .unwrap_or_default();
    tell(
        &file,
        &edited,
        json!({ "plugin": name, "inspection": found.inspection, "pinned": pinned.is_some(), "dev": is_dev, "hints": hints }),
        output,
    )?;
    if let Some(pinned) = pinned.filter(|_| !quiet) {
        stderr::line(pinned);
        // `check --locked` wants all of them.
        let others = || {
            edited
                .config
                .iter()
                .flat_map(|config| &config.plugins)
                .filter(|(other, plugin)| other.as_str() != name && is_pinned(&plugin.source))
        };
        if others().any(|(other, _)| !lock.lock.iter().any(|lock| lock.plugins.contains_key(other)))
        {
            stderr::line(format_args!(
                "  {}",
                paint(FAINT, "other plugins are not pinned: `conclave plugin lock` pins them")
            ));
        }
    }
    if !quiet {
        hints::show(&hints, &args.file);
    }
    Ok(exit::OK)
}

/// The command of a server that is to be started; `None` for any other source.
fn server_command(source: &str) -> Option<&str> {
    let command = source.strip_prefix("mcp:")?.trim();
    let is_address = ["//", "http:", "https:"].iter().any(|start| command.starts_with(start));
    (!command.is_empty() && !is_address).then_some(command)
}

/// Refuses the name of a plugin that the config has.
fn require_new(args: &Add, plugins: &[String], name: &str) -> Result<(), CliError> {
    if !plugins.iter().any(|plugin| plugin == name) {
        return Ok(());
    }
    let what = format!("{} already has a plugin {name}", show_path(&args.file));
    Err(CliError::usage(what).hint(format!(
        "choose another name: conclave add {} --as NAME{}",
        shell(&args.source),
        file_option(&args.file)
    )))
}

/// Checks that a config trusts the component, before anything of it is compiled for its lock.
fn check_trust(
    config: &Config,
    name: &str,
    found: &LocatedComponent,
    signers: &BTreeSet<PublicKey>,
) -> Result<(), CliError> {
    let artifact_sha256 = match &found.place {
        ComponentPlace::Registry { artifact, .. } => artifact.digest(),
        _ => None,
    };
    let component = SignedComponent { sha256: &found.inspection.sha256, artifact_sha256, signers };
    let checked = config.check_trust(&PluginName::from(name), component);
    checked.map(drop).map_err(|refusal| {
        CliError::plugin(format!("{} is refused: {refusal}", found.place.label()))
            .hint(refusal.help())
    })
}

/// Refuses a plugin that was not given all that it requires, before anything is written.
fn refuse_missing(
    args: &Add,
    name: &str,
    found: &LocatedComponent,
    config: &Config,
) -> Result<(), CliError> {
    let missing: Vec<MissingGrant> = hints::missing(name, &found.inspection, config).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = missing.iter().map(|missing| missing.what.clone()).collect();
    lines.extend(missing.iter().filter_map(|missing| missing.first).map(str::to_owned));
    let grants: Option<Vec<String>> = missing.into_iter().map(|missing| missing.grant).collect();
    // No grant helps against a capability that this host does not know.
    lines.extend(grants.map(|grants| {
        let grants: String = grants.iter().map(|it| format!(" --grant {}", shell(it))).collect();
        format!("give it what it requires: {}{grants}", command_for(args, &args.source))
    }));
    let what = format!(
        "{name} was not given what it requires; nothing was written into {}",
        show_path(&args.file)
    );
    Err(CliError::usage(what).hint(lines.join("\n      ")))
}

/// Returns the same command with another source.
fn command_for(args: &Add, source: &str) -> String {
    let name = args.name.as_ref().map(|name| format!(" --as {}", shell(name))).unwrap_or_default();
    let dev = if args.dev { " --dev" } else { "" };
    let grants: String =
        args.grants.iter().map(|grant| format!(" --grant {}", shell(grant))).collect();
    format!("conclave add {}{name}{dev}{}{grants}", shell(source), file_option(&args.file))
}

/// Parses grants as typed.
pub(crate) fn fragments(texts: &[String]) -> Result<Vec<Fragment>, CliError> {
    texts
        .iter()
        .map(|text| Fragment::parse(text).map_err(|error| CliError::usage(error.to_string())))
        .collect()
}

/// Checks that the manifest asks for each grant; any other grant would have no effect.
///
/// # Errors
/// Names the grant, and the capabilities that the manifest asks for.
pub(crate) fn check_asked(
    plugin: &str,
    manifest: &Manifest,
    fragment: &Fragment,
) -> Result<(), CliError> {
    let is_asked = |capability: Capability| manifest.ask(capability).is_some();
    let Some(capability) =
        fragment.grants.iter().filter_map(capability_of).find(|capability| !is_asked(*capability))
    else {
        return Ok(());
    };
    let requests: Vec<String> =
        manifest.asks.keys().map(|ask| format!("`{}`", one_line(ask, 20))).collect();
    let hint = if requests.is_empty() {
        "it asks for nothing".to_owned()
    } else {
        format!("it asks for {}", requests.join(", "))
    };
    Err(CliError::usage(format!(
        "{plugin} does not ask for `{capability}`, so granting it would have no effect"
    ))
    .hint(hint))
}

/// Returns the plugin's name in the config.
fn name(alias: Option<&str>, found: &LocatedComponent) -> Result<String, CliError> {
    let Some(name) = alias.map(str::to_owned).or_else(|| proposed_name(&found.name())) else {
        let what = format!("the manifest's name {} cannot be the name of a plugin", found.name());
        return Err(CliError::usage(what).hint("name the plugin with --as NAME"));
    };
    match check_name(&name) {
        Ok(()) => Ok(name),
        Err(error) => Err(CliError::usage(format!(
            "{} cannot be the name of a plugin: it {error}",
            one_line(&name, 64)
        ))),
    }
}

/// The comment above the plugin in the config, which records what was added.
fn comment(found: &LocatedComponent) -> Vec<String> {
    let manifest = &found.inspection.manifest;
    let description = one_line(&manifest.description, COMMENT);
    let what = if description.is_empty() { String::new() } else { format!(": {description}") };
    let mut lines = vec![format!("{} {}{what}", manifest.name, manifest.version)];
    // A stock plugin's digest is that of the program, and an address already contains its own.
    if matches!(found.place, ComponentPlace::File(_)) {
        lines.push(format!("as added: sha256 {}", found.inspection.sha256));
    }
    lines
}

/// Shows the component, its capabilities and its reasons, before any question.
fn show(
    found: &LocatedComponent,
    is_dev: bool,
    (signed_by, unknown): (&BTreeSet<String>, &BTreeSet<PublicKey>),
) {
    let (inspection, manifest) = (&found.inspection, &found.inspection.manifest);
    let columns = total_columns();
    for row in component::head(manifest, &inspection.kinds, columns) {
        stderr::line(row);
    }
    let place = one_line(&found.place.label(), TEXT);
    stderr::note(format_args!(
        "{place} · {} · sha256 {}",
        bytes(inspection.size),
        inspection.sha256
    ));
    if is_dev {
        stderr::styled(
            ODD,
            "DEV: built by you, so its bytes are not pinned; any build is accepted while its \
                 requests and texts stay the same, and none under --locked",
        );
    } else if !signed_by.is_empty() {
        let names: Vec<&str> = signed_by.iter().map(String::as_str).collect();
        stderr::styled(GOOD, format_args!("SIGNED by {}", one_line(&names.join(", "), TEXT)));
    } else if let Some(key) = unknown.first() {
        let what = format!("SIGNED by {key}, a key that [trust] does not name");
        stderr::styled(ODD, what);
    } else if found.place.is_strange() {
        stderr::styled(
            ODD,
            "UNSIGNED: its author is not verified; it can access only what you grant",
        );
    }
    stderr::line(format_args!(
        "\n{}",
        if manifest.asks.is_empty() { "It asks for nothing." } else { "It asks for" }
    ));
    for row in component::asks(manifest, columns) {
        stderr::line(row);
    }
    stderr::line("");
}
