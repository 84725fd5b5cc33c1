//! `conclave grant` and `conclave revoke`: what a plugin may touch, more or less of it. Shows what changed before anybody has to trust it.

use std::io::Write;

use conclave_core::config_edit::{ConfigText, EditError, Fragment, FragmentError};
use serde_json::json;

use crate::args::{Edit, Output};
use crate::commands::add::check_asked;
use crate::config_file::{ConfigFile, refused, tell};
use crate::error::CliError;
use crate::exit;
use crate::source;

/// Adds to what a plugin may touch.
pub(crate) fn grant(args: &Edit, output: Output) -> Result<u8, CliError> {
    let (plugin, fragments) = read(args, Fragment::parse)?;
    edit(args, output, &plugin, |text, config| {
        let manifest = config.and_then(|config| source::look_up(&config.plugins.get(plugin.as_str())?.source));
        if let Some(found) = manifest {
            fragments.iter().try_for_each(|fragment| check_asked(&plugin, &found.manifest, fragment))?;
        }
        fragments.iter().try_for_each(|fragment| text.grant(&plugin, fragment)).map_err(|error| refused(&error))
    })
}

/// Takes back from what a plugin may touch.
pub(crate) fn revoke(args: &Edit, output: Output) -> Result<u8, CliError> {
    let (plugin, fragments) = read(args, Fragment::parse_revoked)?;
    edit(args, output, &plugin, |text, _| {
        let mut revoke = |fragment| text.revoke(&plugin, fragment);
        fragments.iter().try_for_each(&mut revoke).map_err(|error| match error {
            EditError::Wider { ref entry, ref wider } => {
                let hint = format!("conclave revoke {plugin} 'tools = [{wider:?}]', then grant what may stay");
                CliError::usage(format!("`{entry}` is granted to {plugin} as part of `{wider}`, not by name; nothing was written"))
                    .hint(hint)
            }
            error => refused(&error),
        })
    })
}

type Config<'a> = Option<&'a conclave_core::config::Config>;

fn edit(
    args: &Edit,
    output: Output,
    plugin: &str,
    change: impl FnOnce(&mut ConfigText, Config<'_>) -> Result<(), CliError>,
) -> Result<u8, CliError> {
    let file = ConfigFile::open(&args.file)?;
    let mut text = file.edit()?;
    let folder = args.file.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    let config = conclave_core::config::Config::parse(&args.file.display().to_string(), &folder, text.text()).ok();
    change(&mut text, config.as_ref())?;
    let edited = text.finish().map_err(|error| refused(&error))?;
    file.write(&edited)?;
    tell(&file, &edited, json!({ "plugin": plugin }), output)?;
    if !output.json && !output.quiet {
        let _ = write!(anstream::stderr(), "{}", edited.warnings);
    }
    Ok(exit::OK)
}

/// The plugin and the grants. The line that a denial proposes names the plugin itself, so it may stand alone.
fn read(args: &Edit, parse: fn(&str) -> Result<Fragment, FragmentError>) -> Result<(String, Vec<Fragment>), CliError> {
    let is_line = args.plugin.contains(['[', '=', ' ']);
    let texts = if is_line { [std::slice::from_ref(&args.plugin), &args.grants].concat() } else { args.grants.clone() };
    if texts.is_empty() {
        let hint = "such as 'tools = [\"search.find\"]', in quotes for the shell";
        return Err(CliError::usage(format!("it is not said what of {}", args.plugin)).hint(hint));
    }
    let fragments = texts.iter().map(|text| parse(text).map_err(|error| CliError::usage(error.to_string())));
    let fragments = fragments.collect::<Result<Vec<_>, _>>()?;
    let named = || fragments.iter().find_map(|fragment| fragment.plugin.clone());
    let plugin = if is_line { named() } else { Some(args.plugin.clone()) };
    let plugin = plugin.ok_or_else(|| CliError::usage("it is not said for which plugin").hint("conclave grant PLUGIN GRANT"))?;
    if let Some(other) = fragments.iter().filter_map(|fragment| fragment.plugin.as_ref()).find(|other| **other != plugin) {
        return Err(CliError::usage(format!("the grant is for the plugin {other}, not for {plugin}")));
    }
    Ok((plugin, fragments))
}
