//! `conclave grant` and `conclave revoke`: change a plugin's grants in the config. Both show the
//! change before it takes effect.

use std::path::Path;

use conclave_core::config::edit::{
    ConfigEditError, ConfigText, EditedConfig, Fragment, FragmentError,
};
use serde_json::json;

use crate::args::{EditArgs, Grant, OutputArgs};
use crate::commands::add::check_asked;
use crate::commands::add::hints::{Hint, missing_grants};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::config_file::{ConfigFile, tell};
use crate::state::folders::{FolderGuard, check_by_host};
use crate::state::source;
use crate::ui::show::{FAINT, paint, show_path};
use crate::ui::stderr;

/// Adds grants to a plugin.
pub(crate) fn grant(args: &Grant, output: OutputArgs) -> Result<u8, CliError> {
    let (plugin, fragments) = read(&args.edit, parse_granted)?;
    edit(&args.edit, output, &plugin, (&fragments, args.yes), |text, config| {
        let manifest =
            config.and_then(|config| source::look_up(&config.plugins.get(plugin.as_str())?.source));
        if let Some(found) = manifest {
            fragments
                .iter()
                .try_for_each(|fragment| check_asked(&plugin, &found.manifest, fragment))?;
        }
        fragments
            .iter()
            .try_for_each(|fragment| text.grant(&plugin, fragment))
            .map_err(CliError::from)
    })
}

/// Removes grants from a plugin.
pub(crate) fn revoke(args: &EditArgs, output: OutputArgs) -> Result<u8, CliError> {
    let (plugin, fragments) = read(args, parse_revoked)?;
    edit(args, output, &plugin, (&[], false), |text, _| {
        let mut revoke = |fragment| text.revoke(&plugin, fragment);
        fragments.iter().try_for_each(&mut revoke).map_err(|error| match error {
            ConfigEditError::Wider { ref entry, ref wider } => {
                let hint = format!("conclave revoke {plugin} 'tools = [{wider:?}]', then grant the others again");
                CliError::usage(format!("`{entry}` is granted to {plugin} as part of `{wider}`, not by name; nothing was written"))
                    .hint(hint)
            }
            error => error.into(),
        })
    })
}

type Config<'a> = Option<&'a conclave_core::config::Config>;

fn edit(
    args: &EditArgs,
    output: OutputArgs,
    plugin: &str,
    (granted, yes): (&[Fragment], bool),
    change: impl FnOnce(&mut ConfigText, Config<'_>) -> Result<(), CliError>,
) -> Result<u8, CliError> {
    let file = ConfigFile::open(&args.file)?;
    let mut text = file.edit()?;
    let folder =
        args.file.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    // A config with errors can be edited too, as it may be on the way to its correction; the checks
    // below then know less.
    let config =
        conclave_core::config::Config::parse(&show_path(&args.file), &folder, text.text()).ok();
    change(&mut text, config.as_ref())?;
    let edited = text.finish()?;
    FolderGuard::new(file.folder(), yes).check(plugin, granted, config.as_ref(), &edited)?;
    if !granted.is_empty() {
        check_by_host(&args.file, plugin, config.as_ref(), &edited)?;
    }
    file.write(&edited)?;
    let missing = missing(plugin, &edited, &args.file);
    tell(&file, &edited, json!({ "plugin": plugin, "hints": missing }), output)?;
    if !output.result_only() {
        show(&edited, &missing, &args.file);
    }
    Ok(exit::OK)
}

/// The required capabilities that the plugin has not been granted, if it can be inspected.
fn missing(plugin: &str, edited: &EditedConfig, file: &Path) -> Vec<Hint> {
    let Some(config) = &edited.config else { return Vec::new() };
    let found = config.plugins.get(plugin).and_then(|plugin| source::look_up(&plugin.source));
    found.map(|found| missing_grants(plugin, &found, config, file)).unwrap_or_default()
}

fn show(edited: &EditedConfig, missing: &[Hint], file: &Path) {
    stderr::text(&edited.warnings);
    for hint in missing {
        stderr::warning(format_args!("{}\n  {}", hint.what, hint.how));
    }
    // Only the file was edited. Whether the config still fits its plugins is left to `check`.
    if !edited.changes.is_empty() {
        stderr::line(format_args!(
            "{}\n  conclave check {}",
            paint(FAINT, "then"),
            shell(&file.display().to_string())
        ));
    }
}

fn parse_granted(text: &str) -> Result<Fragment, CliError> {
    Fragment::parse(text).map_err(|error| CliError::usage(error.to_string()))
}

/// Parses a grant to revoke. Limits are rejected with an explanation, because `revoke` does not
/// lift them.
fn parse_revoked(text: &str) -> Result<Fragment, CliError> {
    let is_table =
        text.split_once('=').is_some_and(|(_, value)| value.trim_start().starts_with('{'));
    Fragment::parse_revoked(text).map_err(|error| match error {
        FragmentError::Form { .. } | FragmentError::NoList { .. } if is_table => CliError::usage(
            format!(
                "`{text}` does not list the grants to revoke, and revoke does not remove limits"
            ),
        )
        .hint(
            "list them, or name the whole capability; edit the config to change or remove a limit",
        ),
        error => CliError::usage(error.to_string()),
    })
}

/// Returns the plugin and the grants.
fn read(
    args: &EditArgs,
    parse: fn(&str) -> Result<Fragment, CliError>,
) -> Result<(String, Vec<Fragment>), CliError> {
    // The line that a denial proposes names the plugin itself, so it may stand alone.
    let is_line = args.plugin.contains(['[', '=', ' ']);
    let texts = if is_line {
        [std::slice::from_ref(&args.plugin), &args.grants].concat()
    } else {
        args.grants.clone()
    };
    if texts.is_empty() {
        let hint = "write a grant such as 'tools = [\"search.find\"]', in quotes for the shell";
        return Err(CliError::usage(format!("no grant is named for {}", args.plugin)).hint(hint));
    }
    let fragments = texts.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    let plugin_of_line = || fragments.iter().find_map(|fragment| fragment.plugin.clone());
    let plugin = if is_line { plugin_of_line() } else { Some(args.plugin.clone()) };
    let plugin = plugin.ok_or_else(|| {
        CliError::usage("no plugin is named")
            .hint("write the plugin first: conclave grant PLUGIN GRANT")
    })?;
    if let Some(other) = fragments
        .iter()
        .filter_map(|fragment| fragment.plugin.as_ref())
        .find(|other| **other != plugin)
    {
        return Err(CliError::usage(format!(
            "the grant is for the plugin {other}, not for {plugin}"
        )));
    }
    Ok((plugin, fragments))
}
