//! `secrets`: values that the host inserts into requests. `permissions/secret` checks the request
//! itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::texts::join;
use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Layer, Refused, Rights, TaskScope,
    has_any,
};
use crate::permissions::fetch::HostPattern;
use crate::permissions::manifest::requested_secrets;
use crate::permissions::overlap::overlap;
use crate::types::ids::SecretName;

/// The part of a request that may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretPlace {
    Header,
    Query,
    Body,
}

impl SecretPlace {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Query => "query",
            Self::Body => "body",
        }
    }
}

/// A secret that the host inserts for a plugin, as the config's `[secrets]` binds it. Holds neither
/// its value nor the source of the value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretGrant {
    pub name: SecretName,
    /// The hosts that may receive it.
    pub hosts: Vec<HostPattern>,
    #[serde(rename = "places")]
    pub request_parts: BTreeSet<SecretPlace>,
}

impl Rights<'_> {
    /// Checks that the manifest requests this secret, and for this host.
    pub(crate) fn require_asked(
        &self,
        name: &SecretName,
        host: Option<&str>,
    ) -> Result<(), Refused> {
        self.require(Capability::Secrets, name.as_str(), || None)?;
        let refuse = |reason: &str| {
            Err(self.refuse(Capability::Secrets, name.as_str(), Layer::Manifest, reason, None))
        };
        let Some(ask) = self.manifest.ask(Capability::Secrets).filter(|ask| !ask.detail.is_empty())
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
                self.plugin,
                join(asks.keys().map(String::as_str))
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
                self.plugin,
                named_ask.hosts.join(", ")
            ));
        }
        Ok(())
    }

    /// Checks that this secret was requested and granted. `smallest` returns the line that would
    /// grant it.
    ///
    /// # Errors
    /// The record for the operator.
    pub fn require_secret(
        &self,
        name: &SecretName,
        smallest: impl Fn() -> Option<String>,
    ) -> Result<(), Refused> {
        self.require(Capability::Secrets, name.as_str(), &smallest)?;
        self.require_asked(name, None)?;
        if self.grants.secrets.iter().any(|grant| grant.name == *name) {
            return self.leaves_secret(name);
        }
        let reason = format!("the config grants other secrets to {}", self.plugin);
        Err(self.refuse(Capability::Secrets, name.as_str(), Layer::Config, &reason, smallest()))
    }

    /// Checks that the task leaves a secret.
    pub(crate) fn leaves_secret(&self, name: &SecretName) -> Result<(), Refused> {
        self.check_scope(Capability::Secrets, name.as_str(), |scope| {
            scope.secrets.as_ref().is_none_or(|names| names.contains(name))
        })
    }

    /// Allows a secret, and its host if one is named. The proposed line names the secret only; its
    /// source and its permitted hosts belong to `[secrets]`.
    fn may_use_secret(&self, name: &str, host: Option<&str>) -> Result<(), Refused> {
        let granted: Vec<&str> =
            self.grants.secrets.iter().map(|grant| grant.name.as_str()).collect();
        self.require_secret(&SecretName::from(name), || {
            Some(self.line_with(Capability::Secrets, &granted, name))
        })?;
        let Some(host) = host else { return Ok(()) };
        let refuse =
            |reason: &str| Err(self.refuse(Capability::Secrets, name, Layer::Config, reason, None));
        let bound = || {
            let grants = self.grants.secrets.iter().filter(|grant| grant.name.as_str() == name);
            grants.flat_map(|grant| &grant.hosts)
        };
        if !bound().any(|pattern| pattern.covers(host)) {
            let hosts = join(bound().map(HostPattern::as_str));
            return refuse(&format!("[secrets.{name}] binds it to {hosts}, not {host}"));
        }
        // A secret is sent only in a request, which needs a grant of its own.
        let mut rules = self.grants.fetch.iter().flat_map(|grant| &grant.rules);
        if !rules.any(|rule| rule.url.names_host(host)) {
            return refuse(&format!(
                "no rule of plugins.{}.grants.fetch covers {host}, so it cannot be sent there",
                self.plugin
            ));
        }
        Ok(())
    }
}

impl SecretGrant {
    fn overlap(&self, today: &Self) -> Option<Self> {
        let hosts = overlap(&self.hosts, &today.hosts, HostPattern::overlap);
        let request_parts = &self.request_parts & &today.request_parts;
        (self.name == today.name && !hosts.is_empty() && !request_parts.is_empty()).then(|| Self {
            name: self.name.clone(),
            hosts,
            request_parts,
        })
    }
}

impl Grant for Vec<SecretGrant> {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_use_secret(request.target, request.host)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(has_any(&scope.secrets))
    }

    fn why_no_line(_target: Option<&str>, layer: Layer) -> Option<String> {
        let why = "no grant is suggested: where a secret may go is for you to weigh";
        (layer == Layer::Config).then(|| why.to_owned())
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        Some(overlap(self, today, SecretGrant::overlap))
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn acts(&self) -> bool {
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        // A secret leaves only in a request, which `fetch` grants.
        Vec::new()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let names: Vec<&str> = self.iter().map(|grant| grant.name.as_str()).collect();
        let hosts = |grant: &SecretGrant| join(grant.hosts.iter().map(HostPattern::as_str));
        let bound = self.iter().map(|grant| format!("{} (for {})", grant.name, hosts(grant)));
        let bound = bound.collect::<Vec<_>>().join(", ");
        let is_meant =
            |it: &&SecretGrant| request.target.is_empty() || it.name.as_str() == request.target;
        let bounds = self.iter().filter(is_meant).map(|grant| {
            format!(
                "{} only towards {}, and only in {}",
                grant.name,
                hosts(grant),
                join(grant.request_parts.iter().map(|part| part.as_str()))
            )
        });
        GrantTexts {
            summary: vec![format!("have put in {bound}")],
            effect: format!("use the secret {bound}"),
            bounds: Some(bounds.collect::<Vec<_>>().join("; ")),
            ..GrantTexts::of_names(&names, |name| name == request.target)
        }
    }
}
