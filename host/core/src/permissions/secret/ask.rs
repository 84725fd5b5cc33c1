//! Secrets in a manifest: `[asks.secrets]` requests any, `[asks.secrets.NAME]` one by its name,
//! optionally for some hosts only. A ceiling on the config's grants.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::permissions::fetch::HostPattern;
use crate::permissions::grant::Rights;
use crate::permissions::manifest::CapabilityRequest;
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::SecretName;

/// A request for a secret by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedAsk {
    /// The reason, shown to the operator.
    #[serde(default)]
    pub why: String,
    /// Whether the plugin works without it.
    #[serde(default)]
    pub optional: bool,
    /// The hosts that it is for; empty for those in the config.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// A malformed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[asks.secrets.{name}] {problem}; it takes `why`, `hosts` and `optional`")]
pub struct AskError {
    pub name: String,
    pub problem: String,
}

/// The secrets that a plugin's request for `secrets` names; empty if it asks for any.
///
/// # Errors
/// The first entry that is malformed.
pub fn requested_secrets(ask: &CapabilityRequest) -> Result<BTreeMap<String, NamedAsk>, AskError> {
    let read = |(name, detail): (&String, &Value)| {
        let named_ask = NamedAsk::deserialize(detail).map_err(|error| error.to_string());
        let hosts_fit = |named_ask: NamedAsk| match named_ask
            .hosts
            .iter()
            .find_map(|host| HostPattern::parse(host).err())
        {
            Some(problem) => Err(format!("has an invalid host: {problem}")),
            None => Ok(named_ask),
        };
        let error = |problem| AskError { name: name.clone(), problem };
        Ok((
            name.clone(),
            named_ask
                .map_err(|what| format!("does not have the form: {what}"))
                .and_then(hosts_fit)
                .map_err(error)?,
        ))
    };
    ask.detail.iter().map(read).collect()
}

/// Completes a request for `secrets` from its named entries: its reason, and whether it is
/// optional.
///
/// # Errors
/// As `requested_secrets`.
pub(crate) fn complete(ask: &mut CapabilityRequest) -> Result<(), AskError> {
    let asks = requested_secrets(ask)?;
    if asks.is_empty() || !ask.why.is_empty() {
        return Ok(());
    }
    let one = |(name, named_ask): (&String, &NamedAsk)| {
        let hosts = if named_ask.hosts.is_empty() {
            String::new()
        } else {
            format!(" for {}", named_ask.hosts.join(", "))
        };
        let why =
            if named_ask.why.is_empty() { String::new() } else { format!(": {}", named_ask.why) };
        format!("{name}{hosts}{why}")
    };
    ask.why = asks.iter().map(one).collect::<Vec<_>>().join("; ");
    ask.optional = asks.values().all(|named_ask| named_ask.optional);
    Ok(())
}

/// Checks that the manifest requests this secret, and for this host.
pub(super) fn require(
    rights: &Rights<'_>,
    name: &SecretName,
    host: Option<&str>,
) -> Result<(), Box<DenialRecord>> {
    rights.require(Capability::Secrets, name.as_str(), || None)?;
    let refuse = |reason: &str| {
        Err(rights.refuse(Capability::Secrets, name.as_str(), Layer::Manifest, reason, None))
    };
    let Some(ask) = rights.manifest.ask(Capability::Secrets).filter(|ask| !ask.detail.is_empty())
    else {
        return Ok(());
    };
    // A malformed request covers nothing.
    let Ok(asks) = requested_secrets(ask) else {
        return refuse("its manifest asks for secrets in a form that this host does not know");
    };
    let Some(named_ask) = asks.get(name.as_str()) else {
        return refuse(&format!(
            "the manifest of {} asks for other secrets: {}",
            rights.plugin,
            join(asks.keys())
        ));
    };
    let is_wanted = |host: &str| {
        named_ask
            .hosts
            .iter()
            .filter_map(|host_text| HostPattern::parse(host_text).ok())
            .any(|pattern| pattern.covers(host))
    };
    if host.is_some_and(|host| !named_ask.hosts.is_empty() && !is_wanted(host)) {
        return refuse(&format!(
            "the manifest of {} asks for it for {} alone",
            rights.plugin,
            named_ask.hosts.join(", ")
        ));
    }
    Ok(())
}

impl Rights<'_> {
    /// Checks that this secret was requested and granted. `smallest` returns the line that would
    /// grant it.
    ///
    /// # Errors
    /// The record for the operator.
    pub fn require_secret(
        &self,
        name: &SecretName,
        smallest: impl Fn() -> Option<String>,
    ) -> Result<(), Box<DenialRecord>> {
        self.require(Capability::Secrets, name.as_str(), &smallest)?;
        require(self, name, None)?;
        if self.grants.secrets.iter().any(|grant| grant.name == *name) {
            return self.leaves_secret(name.as_str());
        }
        let reason = format!("the config grants other secrets to {}", self.plugin);
        Err(self.refuse(Capability::Secrets, name.as_str(), Layer::Config, &reason, smallest()))
    }
}

fn join<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::manifest::Manifest;

    const HEAD: &str = "[plugin]\nname = \"w\"\nversion = \"0.1.0\"\ncontract = \"0.1\"\n";

    fn ask(toml: &str) -> CapabilityRequest {
        let manifest =
            Manifest::from_toml("x.toml", &format!("{HEAD}{toml}")).expect("it is a manifest");
        manifest.ask(Capability::Secrets).cloned().expect("it asks")
    }

    #[test]
    fn a_manifest_asks_for_any_or_by_name() {
        assert_eq!(
            requested_secrets(&ask("[asks.secrets]\nwhy = \"Any.\"\n")),
            Ok(BTreeMap::new())
        );
        let by_name = ask(
            "[asks.secrets.met_token]\nwhy = \"Lifts the rate limit.\"\nhosts = [\"api.met.no\"]\noptional = true\n",
        );
        let asks = requested_secrets(&by_name).expect("it has the form");
        assert_eq!(asks["met_token"].hosts, ["api.met.no"]);
        assert_eq!(
            (by_name.why.as_str(), by_name.optional),
            ("met_token for api.met.no: Lifts the rate limit.", true)
        );
        let form = |detail: Value| {
            let detail = BTreeMap::from([("met_token".to_owned(), detail)]);
            requested_secrets(&CapabilityRequest { detail, ..CapabilityRequest::default() })
        };
        for wrong in [serde_json::json!({ "places": ["body"] }), serde_json::json!({ "hosts": 1 })]
        {
            let error = form(wrong.clone()).expect_err("it is no such request").to_string();
            assert!(error.starts_with("[asks.secrets.met_token]"), "{wrong}: {error}");
        }
    }
}
