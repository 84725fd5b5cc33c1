//! The secrets of a config: a check that each granted one exists. No secret is read here.

use std::collections::BTreeSet;
use std::sync::Arc;

use conclave_core::config::{Config, KeyRef, ProblemCode, Problems};
use conclave_core::types::ids::SecretName;

use super::Host;
use crate::imports::secrets::vault::Vault;

impl Host {
    /// Returns the vault of the granted secrets, and the number of problems that are missing
    /// secrets.
    pub(super) fn vault(&self, config: &Config, problems: &mut Problems) -> (Arc<Vault>, usize) {
        let granted: BTreeSet<&SecretName> = config
            .plugins
            .values()
            .flat_map(|plugin| &plugin.grants.secrets)
            .map(|grant| &grant.name)
            .collect();
        let mut missing = 0;
        for name in &granted {
            let Some(Err(what)) =
                config.secrets.get(*name).map(|secret| self.secrets.check(&secret.from))
            else {
                continue;
            };
            missing += 1;
            let help = match config.secrets.get(*name).map(|secret| &secret.from) {
                Some(KeyRef::Env(variable)) => {
                    format!(
                        "set the variable {variable} to the secret before you start, or write another `from`"
                    )
                }
                Some(KeyRef::File(path)) => format!(
                    "write the secret into the first line of {}, or write another `from`",
                    path.display_path
                ),
                _ => "correct the program in `from`".to_owned(),
            };
            problems.push(
                config
                    .problem(
                        ProblemCode::MissingSecret,
                        &format!("secrets.{name}.from"),
                        format!("the secret `{name}` cannot be read: {what}"),
                    )
                    .help(help),
            );
        }
        if config.secrets.is_empty() {
            return (Vault::empty(), missing);
        }
        let from = config
            .secrets
            .iter()
            .map(|(name, secret)| (name.clone(), secret.from.clone()))
            .collect();
        match Vault::new(Arc::clone(&self.secrets), from) {
            Ok(vault) => (Arc::new(vault), missing),
            Err(what) => {
                problems.push(config.problem(ProblemCode::InvalidValue, "secrets", what));
                (Vault::empty(), missing)
            }
        }
    }
}
