//! The decision whether a plugin may send a request: within the manifest's ceiling, and granted by
//! the operator. A refusal names the layer, and the smallest grant if one may be offered.

use std::net::IpAddr;

use serde_json::Value;
use url::{Host, Url};

use super::address::AddressKind;
use super::pattern::{UrlPattern, covers};
use super::request::is_usual_header;
use crate::permissions::grant::{FetchGrant, FetchRule, Rights};
use crate::permissions::manifest::CapabilityRequest;
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::text::{show_duration, show_size};

/// Methods that only proxies use.
const NEVER: [&str; 2] = ["CONNECT", "TRACE"];

impl Rights<'_> {
    /// Allows a request with this method and these headers to this address. `headers` are names in
    /// lower case. An allowed request allocates nothing.
    ///
    /// # Errors
    /// The record for the operator: the layer that refused, the reason, and the smallest grant.
    pub fn may_fetch<'h>(
        &self,
        method: &str,
        url: &Url,
        headers: impl IntoIterator<Item = &'h str, IntoIter: Clone>,
    ) -> Result<(), Box<DenialRecord>> {
        let special = headers.into_iter().filter(|name| !is_usual_header(name));
        let target = url.as_str();
        if NEVER.contains(&method) {
            return Err(self.refuse(
                Capability::Fetch,
                target,
                Layer::Host,
                &format!("no plugin may send {method}"),
                None,
            ));
        }
        // The manifest's ceiling is checked before the rules: a wider grant would not lift it.
        self.require(Capability::Fetch, target, || self.smallest_fetch(method, url))?;
        if let Some(ask) = self.manifest.ask(Capability::Fetch)
            && !ceiling_covers(ask, method, url)
        {
            let reason = format!(
                "the manifest of {} does not ask for {method} to this address",
                self.plugin
            );
            return Err(self.refuse(Capability::Fetch, target, Layer::Manifest, &reason, None));
        }
        if let Some(ask) = self.manifest.ask(Capability::Fetch)
            && let Some(name) = special.clone().find(|name| {
                !ceiling_has(ask, "headers", |header| header.eq_ignore_ascii_case(name))
            })
        {
            let reason =
                format!("the manifest of {} does not ask to send the header `{name}`", self.plugin);
            return Err(self.refuse_headers(target, &[name], Layer::Manifest, &reason, None));
        }
        let rules = self.grants.fetch.as_ref().map_or(&[][..], |grant| &grant.rules);
        if rules.iter().any(|rule| {
            rule.url.covers(url) && rule.methods.iter().any(|granted| granted == method)
        }) {
            self.may_send_headers(target, special)?;
            return self.leaves_address(url);
        }
        let reason = match rules.iter().find(|rule| rule.url.covers(url)) {
            Some(rule) => format!(
                "plugins.{}.grants.fetch gives {} {}, not {method}",
                self.plugin,
                rule.url,
                rule.methods.join(", ")
            ),
            None => format!("no rule of plugins.{}.grants.fetch covers this address", self.plugin),
        };
        Err(self.refuse(
            Capability::Fetch,
            target,
            Layer::Config,
            &reason,
            self.smallest_fetch(method, url),
        ))
    }

    /// Allows headers that need a grant of their own.
    fn may_send_headers<'h>(
        &self,
        target: &str,
        special: impl Iterator<Item = &'h str>,
    ) -> Result<(), Box<DenialRecord>> {
        let Some(grant) = &self.grants.fetch else { return Ok(()) };
        let mut missing: Vec<&str> =
            special.filter(|name| !grant.headers.iter().any(|granted| granted == name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        missing.dedup();
        let reason = format!(
            "plugins.{}.grants.fetch.headers does not name {}: a server may act on it instead of on the method and address that \
             were granted",
            self.plugin,
            in_words(&missing)
        );
        let mut wider = grant.clone();
        wider.headers.extend(missing.iter().map(|name| (*name).to_owned()));
        let smallest = format!("[plugins.{}] grants.fetch = {}", self.plugin, written(&wider));
        Err(self.refuse_headers(target, &missing, Layer::Config, &reason, Some(smallest)))
    }

    /// The record for refused headers. It may name them, because the plugin wrote them.
    fn refuse_headers(
        &self,
        target: &str,
        headers: &[&str],
        layer: Layer,
        reason: &str,
        suggestion: Option<String>,
    ) -> Box<DenialRecord> {
        let mut record = self.refuse(Capability::Fetch, target, layer, reason, suggestion);
        record.denial.detail = format!("{} with {}", record.denial.detail, in_words(headers));
        record
    }

    /// Allows a connection for this URL to this network address.
    ///
    /// # Errors
    /// The record for the operator, without a suggested grant: access to a private network needs
    /// deliberation.
    pub fn may_connect(&self, url: &Url, address: IpAddr) -> Result<(), Box<DenialRecord>> {
        let refused = match &self.grants.fetch {
            Some(grant) => grant.may_connect(address).err(),
            None => Some(AddressKind::Reserved),
        };
        let Some(kind) = refused else { return Ok(()) };
        let host = url.host_str().unwrap_or_default();
        let reason = format!(
            "{host} stands for a {kind} address, {address}, which no network in plugins.{}.grants.fetch.private covers",
            self.plugin
        );
        Err(self.refuse(Capability::Fetch, url.as_str(), Layer::Runtime, &reason, None))
    }

    /// The line of config that grants this request in addition to all existing grants.
    fn smallest_fetch(&self, method: &str, url: &Url) -> Option<String> {
        if is_inside(url) || url.path().contains('*') {
            return None;
        }
        let (scheme, host, path) = (url.scheme(), url.host_str()?, url.path());
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let rule = FetchRule {
            url: UrlPattern::parse(&format!("{scheme}://{host}{port}{path}")).ok()?,
            methods: vec![method.to_owned()],
        };
        let mut grant = self.grants.fetch.clone().unwrap_or_else(|| FetchGrant::new(Vec::new()));
        match grant.rules.iter_mut().find(|known| known.url == rule.url) {
            Some(known) => known.methods.push(method.to_owned()),
            None => grant.rules.push(rule),
        }
        Some(format!("[plugins.{}] grants.fetch = {}", self.plugin, written(&grant)))
    }
}

/// Whether the manifest's ceiling covers the request. A manifest without `urls`, `methods` or
/// `headers` has no ceiling there; a malformed entry covers nothing.
fn ceiling_covers(ask: &CapabilityRequest, method: &str, url: &Url) -> bool {
    // Most authors write the canonical form, which is matched without an allocation.
    let of_pattern = |text: &str| {
        covers(text, url) || UrlPattern::parse(text).is_ok_and(|pattern| pattern.covers(url))
    };
    ceiling_has(ask, "methods", |entry| entry == method) && ceiling_has(ask, "urls", of_pattern)
}

fn ceiling_has(ask: &CapabilityRequest, key: &str, covers: impl Fn(&str) -> bool) -> bool {
    match ask.detail.get(key) {
        None => true,
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).any(covers),
        Some(_) => false,
    }
}

/// ``the header `x-own` ``, or several.
fn in_words(headers: &[&str]) -> String {
    // A header's name has no deceptive characters, but it may be long.
    let names: Vec<String> = headers
        .iter()
        .map(|name| format!("`{}`", name.chars().take(64).collect::<String>()))
        .collect();
    format!("the {} {}", if names.len() == 1 { "header" } else { "headers" }, names.join(", "))
}

/// Whether an address literally names a machine or its own network, so that its grant must not be a
/// line to copy. Names are not resolved.
#[must_use]
pub fn is_inside(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let last = name.rsplit('.').next().unwrap_or_default();
            !name.contains('.')
                || ["localhost", "local", "internal", "lan", "home", "corp", "intranet", "private"]
                    .contains(&last)
        }
        Some(Host::Ipv4(address)) => AddressKind::of(address.into()).is_some(),
        Some(Host::Ipv6(address)) => AddressKind::of(address.into()).is_some(),
        None => true,
    }
}

/// A grant as the config writes it, in one line.
fn written(grant: &FetchGrant) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let quoted = |text: &str| format!("{text:?}");
    let rule =
        |rule: &FetchRule| match rule.methods.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["GET", "HEAD"] => quoted(rule.url.as_str()),
            _ => format!(
                "{{ url = {:?}, methods = {} }}",
                rule.url.as_str(),
                list(rule.methods.iter().map(|method| quoted(method)).collect())
            ),
        };
    let urls = list(grant.rules.iter().map(rule).collect());
    let usual = FetchGrant::new(Vec::new());
    let mut more: Vec<String> = Vec::new();
    if !grant.headers.is_empty() {
        more.push(format!(
            "headers = {}",
            list(grant.headers.iter().map(|name| quoted(name)).collect())
        ));
    }
    if !grant.private.is_empty() {
        more.push(format!(
            "private = {}",
            list(grant.private.iter().map(|network| quoted(&network.to_string())).collect())
        ));
    }
    let mut add = |name: &str, is_usual: bool, value: String| {
        if !is_usual {
            more.push(format!("{name} = {value}"));
        }
    };
    add("requests", grant.requests == usual.requests, grant.requests.to_string());
    add(
        "request_size",
        grant.request_bytes == usual.request_bytes,
        quoted(&show_size(grant.request_bytes)),
    );
    add(
        "response_size",
        grant.response_bytes == usual.response_bytes,
        quoted(&show_size(grant.response_bytes)),
    );
    add("timeout", grant.time_ms == usual.time_ms, quoted(&show_duration(grant.time_ms)));
    add("at_once", grant.at_once == usual.at_once, grant.at_once.to_string());
    add("host_names", grant.names == usual.names, grant.names.to_string());
    add("redirects", grant.redirects == usual.redirects, grant.redirects.to_string());
    if more.is_empty() { urls } else { format!("{{ urls = {urls}, {} }}", more.join(", ")) }
}

#[cfg(test)]
mod tests;
