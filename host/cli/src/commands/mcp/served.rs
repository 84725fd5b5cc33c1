//! The plugins that `conclave mcp` serves: those of a config, or one component with the grants of
//! the command line.

use std::path::Path;

use conclave_core::config::edit::Fragment;
use conclave_core::config::{Config, ConfigProblem};
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::wording::quoted;
use conclave_runtime::{Host, Prepared};

use crate::args::{Mcp, OutputArgs};
use crate::commands::add::{check_asked, fragments};
use crate::commands::call::config::{PluginLines, config as config_of, name, placeholder};
use crate::commands::call::{no_tools, not_prepared, require_asked};
use crate::program::error::CliError;
use crate::state::journals::RunStorage;
use crate::state::setup::{self, EngineStart, Warnings};
use crate::state::source::{self, LocatedComponent};

/// The option that grants something to a component.
const ALLOW: &str = "--allow";
/// The beginnings of sources that are no files.
const SCHEMES: [&str; 4] = ["stock:", "oci:", "https:", "http:"];

/// The plugins that are served.
pub(super) struct ServedPlugins {
    pub(super) config: Config,
    /// The component; `None` if the config is a file.
    component: Option<LocatedComponent>,
}

impl ServedPlugins {
    /// Reads the config, or finds the component.
    ///
    /// # Errors
    /// If it cannot be read, or the grants do not fit.
    pub(super) async fn read(args: &Mcp) -> Result<Self, CliError> {
        let models = args.model.models()?;
        if !is_component(&args.file) {
            if args.allow.is_empty() && args.limits.is_empty() && args.settings.is_none() {
                return Ok(Self {
                    config: setup::read_config(&args.file, &models)?,
                    component: None,
                });
            }
            return Err(CliError::usage(
                "--allow, --limit and --settings are for a component without a config",
            )
            .hint("write them into the config, or name a .wasm file"));
        }
        let source = args.file.display().to_string();
        let found = source::find(&source, |source| format!("conclave mcp {source}")).await?;
        let manifest = &found.inspection.manifest;
        if !found.inspection.kinds.contains(&PluginKind::Tools) {
            return Err(no_tools(&found));
        }
        let grants = args.allow.iter().map(|text| grant(text)).collect::<Result<Vec<_>, _>>()?;
        let grants: Vec<Fragment> = fragments(&grants)?;
        grants.iter().try_for_each(|fragment| check_asked(&manifest.name, manifest, fragment))?;
        let name = name(&found);
        let lines = PluginLines { limits: &args.limits, settings: args.settings.as_deref() };
        let config = config_of(&found.place, &name, &grants, lines, Path::new(""))?;
        require_asked(&config, &name, manifest, ALLOW)?;
        Ok(Self { config, component: Some(found) })
    }

    /// Whether a component is served without a config.
    pub(super) fn is_component(&self) -> bool {
        self.component.is_some()
    }

    /// Opens the host that its plugins run in.
    pub(super) fn open_host(
        &self,
        file: &Path,
        storage: &RunStorage,
        engine: EngineStart,
    ) -> Result<Host, CliError> {
        match self.component {
            Some(_) => setup::open_host_keeping_with(vec![placeholder()], file, storage, engine),
            None => setup::open_host_keeping(file, storage, engine),
        }
    }

    /// Loads the plugins, and reports the warnings that `holds` accepts.
    pub(super) async fn prepare(
        &self,
        host: &Host,
        (file, locked): (&Path, bool),
        output: OutputArgs,
        holds: impl Fn(&Prepared, &ConfigProblem) -> bool,
    ) -> Result<Prepared, CliError> {
        if self.component.is_some() {
            let follow = setup::follow(output.result_only());
            let prepared = host.prepare(&self.config, &follow).await;
            return prepared.map_err(|error| not_prepared(&error));
        }
        let (config, reports) = ((file, &self.config), (Warnings::Counted, holds));
        Ok(setup::prepare_and_warn(host, config, locked, output, reports).await?.0)
    }
}

/// Whether a file is a component. Any other file is a config.
fn is_component(file: &Path) -> bool {
    let text = file.to_string_lossy();
    file.extension().is_some_and(|ending| ending == "wasm")
        || file.is_dir()
        || SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// The grant behind `KIND:VALUE`. Any other text is a grant as a config has it.
fn grant(text: &str) -> Result<String, CliError> {
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    let mode = match kind {
        "read" => "read",
        "write" => "read-write",
        "overlay" => "overlay",
        "fetch" | "exec" if !value.is_empty() => {
            return Ok(format!("{kind} = [{}]", quoted(value)));
        }
        _ => return Ok(text.to_owned()),
    };
    let place = value.rsplit_once('@').filter(|(dir, at)| !dir.is_empty() && at.starts_with('/'));
    let (dir, at) = place.ok_or_else(|| {
        CliError::usage(format!("{ALLOW} {text} names no folder and its place"))
            .hint(format!("write such as {ALLOW} {kind}:./docs@/docs"))
    })?;
    let (dir, at) = (quoted(dir), quoted(at));
    Ok(format!("files = [{{ dir = {dir}, at = {at}, mode = {} }}]", quoted(mode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_grant_is_one_of_a_config() {
        for (text, full) in [
            ("read:./docs@/docs", r#"files = [{ dir = "./docs", at = "/docs", mode = "read" }]"#),
            ("write:/a@b@/w", r#"files = [{ dir = "/a@b", at = "/w", mode = "read-write" }]"#),
            ("fetch:https://a.example/*", r#"fetch = ["https://a.example/*"]"#),
            ("exec:git log *", r#"exec = ["git log *"]"#),
            ("kv = true", "kv = true"),
        ] {
            assert_eq!(grant(text).ok().as_deref(), Some(full));
            assert!(Fragment::parse(full).is_ok(), "{full}");
        }
        for text in ["read:", "read:./docs", "write:@/a", "overlay:a@b"] {
            assert!(grant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_component_is_no_config() {
        for source in ["a.wasm", "./x/y.wasm", "stock:search", "oci://r/p:1"] {
            assert!(is_component(Path::new(source)), "{source}");
        }
        assert!(!is_component(Path::new("conclave.toml")));
    }
}
