//! `conclave plugin lock`: pins the plugins of a config that are not pinned yet. Pinned plugins
//! that differ are left unchanged; accepting those takes `upgrade`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use conclave_core::config::lockfile::{Lockfile as PinnedPlugins, Pinned, diff, is_pinned};
use conclave_core::config::{Config, PluginSource, PublicKey};
use conclave_core::setup::{PluginFacts, Provenance};
use conclave_core::types::ids::PluginName;
use conclave_runtime::plugin::Inspection;
use serde_json::json;

use crate::args::{LockArgs, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::lock_file::LockFile;
use crate::state::setup::{self, Models};
use crate::state::source::{ComponentPlace, LocatedComponent, is_build};
use crate::ui::show::{FAINT, GOOD, NAME, ODD, one_line, paint, plural, show_path};
use crate::ui::{stderr, stdout};

pub(crate) async fn lock(args: &LockArgs, output: OutputArgs) -> Result<u8, CliError> {
    let mut config = setup::read_config(&args.file, &Models::new())?;
    let file = LockFile::open(&args.file)?;
    // A tag that is pinned keeps its digest; `upgrade` asks the registry again.
    file.lock.iter().for_each(|lock| lock.resolve_tags(&mut config));
    let facts = facts_of(&args.file, &config, output).await?;
    let mut lock = file.lock.clone().unwrap_or_default();
    let removed = lock.keep_only(&facts.keys().cloned().collect::<BTreeSet<_>>());
    let (mut added, mut differ) = (Vec::new(), Vec::new());
    for (name, facts) in &facts {
        match lock.plugins.get(name) {
            None => {
                let dev = is_built_here(&config, name);
                let signers = config.trust.signers(&facts.provenance);
                lock.plugins
                    .insert(name.clone(), Pinned { dev, ..Pinned::signed_by(signers, facts) });
                added.push(name.clone());
            }
            Some(pinned) if !diff(pinned, facts).is_empty() => differ.push(name.clone()),
            Some(_) => {}
        }
    }
    // Also if some differ: their pins are unchanged, and the new ones need no review.
    file.write(&lock)?;
    tell(&file, (&facts, &lock), (&added, &removed, &differ), output)?;
    Ok(if differ.is_empty() { exit::OK } else { exit::PLUGIN })
}

/// Whether the config names the build of a local crate.
fn is_built_here(config: &Config, name: &PluginName) -> bool {
    let source = config.plugins.get(name).map(|plugin| &plugin.source);
    matches!(source, Some(PluginSource::File(path)) if is_build(Path::new(&path.path)))
}

/// Returns the current facts of a config's plugins, without those that are built into a program.
pub(crate) async fn facts_of(
    file: &Path,
    config: &Config,
    output: OutputArgs,
) -> Result<BTreeMap<PluginName, PluginFacts>, CliError> {
    let host = setup::open_host_in(file)?;
    let follow = setup::follow(output.result_only());
    let mut facts = host.facts_of(config, &follow).await.map_err(setup::unprepared)?;
    facts
        .retain(|name, _| config.plugins.get(name).is_some_and(|plugin| is_pinned(&plugin.source)));
    Ok(facts)
}

/// Pins a component that was added just now, to the bytes that were shown. Returns the lines to
/// print. `None` if the component cannot list its tools; the next `check` reports the reason.
pub(crate) async fn pin(
    file: &LockFile,
    name: &str,
    (found, signers): (&LocatedComponent, BTreeSet<PublicKey>),
    dev: bool,
    output: OutputArgs,
) -> Result<Option<String>, CliError> {
    let Inspection { manifest, kinds, sha256, .. } = found.inspection.clone();
    // The bytes that were inspected, not the file's present ones, which may have changed since.
    let follow = setup::follow(output.result_only());
    let Ok(listed) = setup::tools_of(&setup::open_host()?, found, &follow).await else {
        return Ok(None);
    };
    let tools = listed.tools;
    let artifact = match &found.place {
        ComponentPlace::Registry { artifact, .. } => Some(artifact.clone()),
        _ => None,
    };
    let provenance = Provenance { artifact, ..Provenance::default() };
    let (name, facts) = (
        PluginName::from(name),
        PluginFacts {
            manifest,
            kinds,
            tools,
            sha256,
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance,
        },
    );
    let mut lock = file.lock.clone().unwrap_or_default();
    lock.plugins.insert(name.clone(), Pinned { dev, ..Pinned::signed_by(signers, &facts) });
    file.write(&lock)?;
    Ok(Some(format!(
        "{}\n  {} {}",
        show_path(file.path()),
        paint(GOOD, "+"),
        pinned_line(&name, &facts, dev)
    )))
}

/// The line for a plugin that was pinned.
fn pinned_line(name: &PluginName, facts: &PluginFacts, dev: bool) -> String {
    let digest = match facts.sha256.get(..12) {
        Some(start) => format!("sha256 {start}…"),
        None => "no component: only its texts are pinned".to_owned(),
    };
    let asks: Vec<String> = facts.manifest.asks.keys().map(|ask| one_line(ask, 20)).collect();
    let asks = if asks.is_empty() {
        "asks for nothing".to_owned()
    } else {
        format!("asks for {}", asks.join(", "))
    };
    let tools = match facts.tools.len() as u64 {
        0 => String::new(),
        count => format!(" · {}", plural(count, "tool", "tools")),
    };
    // The host treats it as native, but an MCP server runs it.
    let version = if facts.mcp { "mcp".to_owned() } else { one_line(&facts.manifest.version, 20) };
    let dev = if dev { " · DEV" } else { "" };
    format!("{} {version} · {digest} · {asks}{tools}{dev}", paint(NAME, format_args!("{name:<13}")))
}

type Names<'a> = &'a [PluginName];

fn tell(
    file: &LockFile,
    (facts, lock): (&BTreeMap<PluginName, PluginFacts>, &PinnedPlugins),
    (added, removed, differ): (Names<'_>, Names<'_>, Names<'_>),
    output: OutputArgs,
) -> Result<(), CliError> {
    if output.json {
        let file = file.path().display().to_string();
        return stdout::json(
            json!({ "type": "lock", "file": file, "pinned": added, "removed": removed, "changed": differ }),
        );
    }
    if output.quiet {
        return Ok(());
    }
    stderr::line(show_path(file.path()));
    let is_dev = |name: &PluginName| lock.plugins.get(name).is_some_and(|pinned| pinned.dev);
    let line = |name: &PluginName| {
        facts.get(name).map(|facts| pinned_line(name, facts, is_dev(name))).unwrap_or_default()
    };
    for name in added {
        stderr::line(format_args!("  {} {}", paint(GOOD, "+"), line(name)));
    }
    for name in removed {
        stderr::line(format_args!(
            "  {} {} {}",
            paint(ODD, "-"),
            paint(NAME, name),
            paint(FAINT, "removed: no longer in the config")
        ));
    }
    for name in differ {
        let what = "differs from its pin, which was left as it was; to review it:";
        stderr::line(format_args!(
            "  {} {} {what} conclave plugin upgrade {name}{}",
            paint(ODD, "!"),
            paint(NAME, name),
            file.option()
        ));
    }
    if added.is_empty() && removed.is_empty() && differ.is_empty() {
        stderr::line(format_args!(
            "  {}",
            paint(
                FAINT,
                format_args!(
                    "unchanged: {} pinned",
                    plural(facts.len() as u64, "plugin", "plugins")
                )
            )
        ));
    }
    Ok(())
}
