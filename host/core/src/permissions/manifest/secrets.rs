//! Secrets in a manifest: `[asks.secrets]` requests any, `[asks.secrets.NAME]` one by its name,
//! optionally for some hosts only. A ceiling on the config's grants.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::CapabilityRequest;
use crate::permissions::fetch::HostPattern;

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
pub(super) fn complete(ask: &mut CapabilityRequest) -> Result<(), AskError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::manifest::Manifest;
    use crate::types::capability::Capability;

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
