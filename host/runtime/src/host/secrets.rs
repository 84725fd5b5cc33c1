//! The secrets of a config: a check that each granted one exists. No secret is read here.

use std::collections::BTreeSet;
use std::sync::Arc;

use conclave_core::config::{Config, KeyRef, ProblemCode, Problems};
use conclave_core::types::ids::SecretName;

use super::Host;
use crate::driver::outgoing::ChannelEndpoints;
use crate::imports::secrets::vault::Vault;

impl Host {
    /// The endpoints of the channels that the host serves itself.
    pub(super) fn endpoints(&self, config: &Config) -> Arc<ChannelEndpoints> {
        let secrets = Arc::clone(&self.secrets);
        Arc::new(ChannelEndpoints::new(config.endpoints.clone(), secrets))
    }

    /// Adds a problem for each secret of a channel that is missing, and returns their number.
    fn check_endpoints(&self, config: &Config, problems: &mut Problems) -> usize {
        let mut missing = 0;
        for (channel, endpoint) in &config.endpoints {
            let Some(Err(what)) = endpoint.secret.as_ref().map(|key| self.secrets.check(key))
            else {
                continue;
            };
            missing += 1;
            let what = format!("the secret of the channel `{channel}` cannot be read: {what}");
            let key = format!("channels.{channel}.secret");
            problems.push(config.problem(ProblemCode::MissingSecret, &key, what));
        }
        missing
    }

    /// Returns the vault of the granted secrets, and the number of problems that are missing
    /// secrets.
    pub(super) fn vault(&self, config: &Config, problems: &mut Problems) -> (Arc<Vault>, usize) {
        let granted: BTreeSet<&SecretName> = config
            .plugins
            .values()
            .flat_map(|plugin| &plugin.grants.secrets)
            .map(|grant| &grant.name)
            .collect();
        let mut missing = self.check_endpoints(config, problems);
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
