//! `conclave plugin upgrade`: shows the differences between a plugin and its pinned version, texts
//! line by line, and pins what the user accepts. No other command changes a pin.

mod show;

use std::collections::BTreeSet;

use conclave_core::config::lockfile::{LockChange, Pinned, diff, signer_change};
use conclave_core::config::{Config, PluginSource, PublicKey, lost_signers};
use conclave_core::setup::PluginFacts;
use conclave_core::types::ids::PluginName;
use serde_json::json;

use crate::args::{OutputArgs, Upgrade};
use crate::commands::lock::facts_of;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::lock_file::LockFile;
use crate::state::registry;
use crate::state::setup::{self, Models};
use crate::ui::ask;
use crate::ui::show::{GOOD, NAME, ODD, one_line, paint, show_path};
use crate::ui::{stderr, stdout};

pub(crate) async fn upgrade(args: &Upgrade, output: OutputArgs) -> Result<u8, CliError> {
    let config = setup::read_config(&args.file, &Models::new())?;
    let file = LockFile::open(&args.file)?;
    let mut lock = file.lock.clone().unwrap_or_default();
    check_names(args, &config)?;
    let facts = facts_of(&args.file, &config, output).await?;
    let mut report = UpgradeReport::default();
    for (name, facts) in facts.iter().filter(|(name, _)| {
        args.plugins.is_empty() || args.plugins.iter().any(|plugin| plugin == name.as_str())
    }) {
        // A plugin that was never pinned is shown whole.
        let pinned = lock.plugins.get(name);
        let signed_before = pinned.map(|pinned| pinned.signers.clone()).unwrap_or_default();
        let signers = signers(&config, facts, &signed_before).await?;
        let loses_signer = !lost_signers(&signed_before, &signers).is_empty();
        let mut changes: Vec<LockChange> =
            signer_change(&signed_before, &signers, &config.trust).into_iter().collect();
        changes.extend(diff(pinned.unwrap_or(&Pinned::default()), facts));
        let was_dev = pinned.is_some_and(|pinned| pinned.dev);
        let dev = !args.pin && (was_dev || args.dev && is_file(&config, name));
        if changes.is_empty() {
            if let Some(pinned) = lock.plugins.get_mut(name).filter(|pinned| pinned.dev != dev) {
                report.marked = Some(dev);
                pinned.dev = dev;
            }
            continue;
        }
        // `--yes` accepts changes by the same author. A lost signature may mean another author.
        let yes = args.yes && !loses_signer;
        if !(output.json || output.quiet && yes) {
            show::plugin(name, pinned.is_none(), &changes);
        }
        if report.accepts(name, &changes, loses_signer, yes) {
            lock.plugins.insert(name.clone(), Pinned { dev, ..Pinned::signed_by(signers, facts) });
        }
    }
    // Written once, after all questions: a review that breaks off pins nothing.
    if report.marked.is_some() || !report.accepted.is_empty() {
        file.write(&lock)?;
    }
    report.tell(&file, output)?;
    Ok(report.code())
}

/// Returns the keys that signed a plugin. A registry is asked for its signatures only if those at
/// hand lack one that was there before.
async fn signers(
    config: &Config,
    facts: &PluginFacts,
    before: &BTreeSet<PublicKey>,
) -> Result<BTreeSet<PublicKey>, CliError> {
    let at_hand = config.trust.signers(&facts.provenance);
    let Some(artifact) = &facts.provenance.artifact else { return Ok(at_hand) };
    if lost_signers(before, &at_hand).is_empty() {
        return Ok(at_hand);
    }
    let mut signers = registry::signers_of_artifact(artifact).await?;
    signers.retain(|key| !config.trust.revoked_keys.contains(key));
    Ok(signers)
}

/// Whether the source is a file, the only kind that can be rebuilt in place.
fn is_file(config: &Config, name: &PluginName) -> bool {
    matches!(config.plugins.get(name).map(|plugin| &plugin.source), Some(PluginSource::File(_)))
}

fn check_names(args: &Upgrade, config: &Config) -> Result<(), CliError> {
    let Some(unknown) =
        args.plugins.iter().find(|name| !config.plugins.contains_key(name.as_str()))
    else {
        return Ok(());
    };
    let what = format!("{} has no plugin {}", show_path(&args.file), one_line(unknown, 64));
    let known = config.plugins.keys().map(PluginName::as_str);
    Err(CliError::usage(what).known(unknown, "its plugins are", known))
}

/// The decisions about the plugins that differ.
#[derive(Default)]
struct UpgradeReport {
    accepted: Vec<(PluginName, Vec<LockChange>)>,
    refused: Vec<(PluginName, Vec<LockChange>)>,
    /// Whether a question could not be asked for lack of a user.
    lacks_user: bool,
    /// The plugins that are not signed any more by a key that had signed them.
    losing_signers: BTreeSet<PluginName>,
    /// Whether an unchanged plugin was marked as the operator's own build, or no longer is.
    marked: Option<bool>,
}

impl UpgradeReport {
    fn accepts(
        &mut self,
        name: &PluginName,
        changes: &[LockChange],
        loses_signer: bool,
        yes: bool,
    ) -> bool {
        self.lacks_user |= !yes && !ask::is_user_there();
        let question = if loses_signer {
            self.losing_signers.insert(name.clone());
            format!("{name} lost a signature. Accept it as it is now?")
        } else {
            format!("Accept {name} as it is now?")
        };
        let accepts = yes || ask::confirm(&question);
        let list = if accepts { &mut self.accepted } else { &mut self.refused };
        list.push((name.clone(), changes.to_vec()));
        accepts
    }

    fn code(&self) -> u8 {
        match (self.refused.is_empty(), self.lacks_user) {
            (true, _) => exit::OK,
            (false, true) => exit::POLICY,
            (false, false) => exit::FAILED,
        }
    }

    fn tell(&self, file: &LockFile, output: OutputArgs) -> Result<(), CliError> {
        if output.json {
            let list = |list: &[(PluginName, Vec<LockChange>)]| -> serde_json::Value {
                list.iter()
                    .map(|(name, changes)| json!({ "plugin": name, "changes": changes }))
                    .collect()
            };
            let path = file.path().display().to_string();
            return stdout::json(
                json!({ "type": "upgrade", "file": path, "accepted": list(&self.accepted), "refused": list(&self.refused) }),
            );
        }
        if output.quiet {
            return Ok(());
        }
        if self.accepted.is_empty() && self.refused.is_empty() {
            let what = match self.marked {
                Some(true) => "unchanged, and marked as built by you",
                Some(false) => "unchanged, and pinned in this build",
                None => "all plugins are as pinned",
            };
            stderr::note(what);
        }
        for (name, _) in &self.accepted {
            stderr::line(format_args!(
                "{} {} is now pinned in {}",
                paint(GOOD, "+"),
                paint(NAME, name),
                show_path(file.path())
            ));
        }
        for (name, _) in &self.refused {
            let why = if self.lacks_user && self.losing_signers.contains(name) {
                "not accepted: it lost a signature, which --yes does not accept; review it at a terminal, without --yes"
            } else if self.lacks_user {
                "not accepted, because no user is at the terminal; review it, then run the command with --yes"
            } else {
                "not accepted; the pin is unchanged"
            };
            stderr::line(format_args!("{} {}: {why}", paint(ODD, "!"), paint(NAME, name)));
        }
        Ok(())
    }
}
