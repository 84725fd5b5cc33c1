//! `fetch`: HTTP requests, within the manifest's ceiling and granted by the operator. A refusal
//! names the layer, and the smallest grant if one may be offered.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Host, Url};

use super::texts::join;
use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Layer, Refused, Rights, TaskScope,
    has_any,
};
use crate::permissions::fetch::{
    AddressKind, UrlPattern, check_address, covers_canonical, is_inside, is_usual_header, target,
};
use crate::permissions::manifest::CapabilityRequest;
use crate::permissions::overlap::{common, overlap, smaller_of};
use crate::types::text::{show_duration, show_size};
use crate::types::wording::count;

/// The method of a tunnel. Only the proxy of a server's program makes one, by
/// [`Rights::may_tunnel`].
const TUNNEL: &str = "CONNECT";
/// Methods that no plugin sends itself.
const NEVER: [&str; 2] = [TUNNEL, "TRACE"];

/// URLs and methods that a plugin may request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchRule {
    pub url: UrlPattern,
    /// The methods, in upper case.
    pub methods: Vec<String>,
}

/// The grant of HTTP requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchGrant {
    /// The rules; one of them must cover a request, and each of its redirects.
    pub rules: Vec<FetchRule>,
    /// Additional headers that may be sent, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Networks that are reachable although they are not public (private, loopback, link-local …).
    pub private: Vec<IpNet>,
    /// The limit of requests in the whole run; redirects count.
    pub requests: u64,
    /// The limit of a request in bytes: URL, headers and body together.
    pub request_bytes: u64,
    /// The limit of a decompressed response in bytes: headers and body together.
    pub response_bytes: u64,
    /// The limit of one request in milliseconds: all hops and the whole response.
    pub time_ms: u64,
    /// The limit of concurrent requests.
    pub at_once: u32,
    /// The limit of name look-ups in the whole run.
    pub names: u32,
    /// The limit of redirects for one request; with 0 none is followed, and the guest gets the
    /// redirect itself.
    pub redirects: u32,
}

impl FetchGrant {
    /// The default number of requests in a run.
    pub const REQUESTS: u64 = 100;
    /// The default size limit of a request, in bytes.
    pub const REQUEST_BYTES: u64 = 256 << 10;
    /// The default size limit of a response, in bytes.
    pub const RESPONSE_BYTES: u64 = 4 << 20;
    /// The default time limit of a request, in milliseconds.
    pub const TIME_MS: u64 = 20_000;
    /// The default number of concurrent requests.
    pub const AT_ONCE: u32 = 4;
    /// The default number of host names that are resolved in a run.
    pub const NAMES: u32 = 16;
    /// The default number of redirects that a request follows.
    pub const REDIRECTS: u32 = 5;

    /// Returns a grant of these rules with the default limits.
    #[must_use]
    pub fn new(rules: Vec<FetchRule>) -> Self {
        Self {
            rules,
            headers: Vec::new(),
            private: Vec::new(),
            requests: Self::REQUESTS,
            request_bytes: Self::REQUEST_BYTES,
            response_bytes: Self::RESPONSE_BYTES,
            time_ms: Self::TIME_MS,
            at_once: Self::AT_ONCE,
            names: Self::NAMES,
            redirects: Self::REDIRECTS,
        }
    }
}

impl FetchGrant {
    /// Allows a connection to this address if it is public, or covered by `private`. A metadata
    /// address must be in `private` itself; a network around it is not enough. Allocates nothing.
    ///
    /// # Errors
    /// The kind of the address.
    pub fn may_connect(&self, address: IpAddr) -> Result<(), AddressKind> {
        check_address(address, &self.private)
    }
}

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
    ) -> Result<(), Refused> {
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
        self.may_request(method, url, special)
    }

    /// Allows a tunnel to the host of this address, `https://HOST/`, in which neither paths nor
    /// methods can be checked. A rule must give `CONNECT` for it.
    ///
    /// # Errors
    /// As [`may_fetch`](Self::may_fetch).
    pub fn may_tunnel(&self, url: &Url) -> Result<(), Refused> {
        self.may_request(TUNNEL, url, [].into_iter())
    }

    /// Allows a request whose method is for plugins, with these headers besides the usual ones.
    fn may_request<'h>(
        &self,
        method: &str,
        url: &Url,
        special: impl Iterator<Item = &'h str> + Clone,
    ) -> Result<(), Refused> {
        let target = url.as_str();
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
            return self.check_scope(Capability::Fetch, target, |scope| {
                let covers = |patterns: &Vec<UrlPattern>| patterns.iter().any(|it| it.covers(url));
                scope.fetch.as_ref().is_none_or(covers)
            });
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
    ) -> Result<(), Refused> {
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
        let smallest = self.line(Capability::Fetch, written(&wider));
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
    ) -> Refused {
        let mut record = self.refuse(Capability::Fetch, target, layer, reason, suggestion);
        record.denial.detail = format!("{} with {}", record.denial.detail, in_words(headers));
        record
    }

    /// Allows a connection for this URL to this network address.
    ///
    /// # Errors
    /// The record for the operator, without a suggested grant: access to a private network needs
    /// deliberation.
    pub fn may_connect(&self, url: &Url, address: IpAddr) -> Result<(), Refused> {
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
        Some(self.line(Capability::Fetch, written(&grant)))
    }
}

/// Whether the manifest's ceiling covers the request. A manifest without `urls`, `methods` or
/// `headers` has no ceiling there; a malformed entry covers nothing.
fn ceiling_covers(ask: &CapabilityRequest, method: &str, url: &Url) -> bool {
    // Most authors write the canonical form, which is matched without an allocation.
    let of_pattern = |text: &str| {
        covers_canonical(text, url)
            || UrlPattern::parse(text).is_ok_and(|pattern| pattern.covers(url))
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

impl Rights<'_> {
    /// Allows a request to the text of an address. The network address behind its name is known
    /// only after a look-up.
    fn may_fetch_text(&self, request: &AccessRequest<'_>) -> Result<(), Refused> {
        let url = match target(request.target) {
            Ok(url) => url,
            Err(problem) => {
                self.require(Capability::Fetch, request.target, || None)?;
                let (layer, reason) = (Layer::Runtime, problem.to_string());
                return Err(self.refuse(Capability::Fetch, request.target, layer, &reason, None));
            }
        };
        match request.method {
            TUNNEL => self.may_tunnel(&url)?,
            method => self.may_fetch(method, &url, request.headers.iter().map(String::as_str))?,
        }
        match url.host() {
            Some(Host::Ipv4(address)) => self.may_connect(&url, address.into()),
            Some(Host::Ipv6(address)) => self.may_connect(&url, address.into()),
            _ => Ok(()),
        }
    }
}

impl Grant for FetchGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_fetch_text(request)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(has_any(&scope.fetch))
    }

    fn why_no_line(url: Option<&str>, layer: Layer) -> Option<String> {
        let why = if url.is_some_and(|url| target(url).is_err()) {
            "it is no address that a request could be sent to, so no grant covers it"
        } else if layer == Layer::Config {
            "no grant is suggested for this address: one inside your own network, or with a `*` in it, is for you to weigh"
        } else {
            "no grant is suggested: it was refused by where it leads or by a limit, and a wider grant is for you to weigh"
        };
        Some(why.to_owned())
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let both = smaller_of! {
            self, today: requests request_bytes response_bytes time_ms at_once names redirects;;
            rules: overlap(&self.rules, &today.rules, |initial, today| {
                let methods = common(&initial.methods, &today.methods);
                let url = UrlPattern::overlap(&initial.url, &today.url)?;
                (!methods.is_empty()).then_some(FetchRule { url, methods })
            }),
            headers: common(&self.headers, &today.headers),
            private: overlap(&self.private, &today.private, |initial, today| {
                let has = |outer: &IpNet, inner: &IpNet| outer.contains(inner).then_some(*inner);
                has(initial, today).or_else(|| has(today, initial))
            }),
        };
        Some(both).filter(|grant| !grant.rules.is_empty())
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        self.rules.iter().map(|rule| Destination::Url(&rule.url)).collect()
    }

    fn texts(&self, _request: &AccessRequest<'_>) -> GrantTexts {
        let rules = self.rules.iter();
        let written: Vec<String> = rules
            .clone()
            .map(|rule| format!("{} to {}", rule.methods.join(", "), rule.url))
            .collect();
        let rule_text = written.join("; ");
        let private: Vec<String> = self.private.iter().map(ToString::to_string).collect();
        let private = match private.is_empty() {
            true => String::new(),
            false => format!(", also at {}", private.join(", ")),
        };
        let headers = match &self.headers[..] {
            [] => String::new(),
            [name] => format!(" with the header {name}"),
            names => format!(" with the headers {}", names.join(", ")),
        };
        let requests = count(self.requests, "request");
        let each_header = self.headers.iter().map(|name| format!("with the header {name}"));
        GrantTexts {
            summary: vec![format!("send {rule_text}{private}{headers} ({requests})")],
            effect: format!("send to {}", join(rules.clone().map(|rule| rule.url.as_str()))),
            granted: written.into_iter().chain(each_header).collect::<Vec<_>>().join("; "),
            // Rules and headers are granted separately, so no single entry decides.
            entry: None,
            bounds: Some(format!(
                "as long as the name leads to no private address, and for {} requests of the run",
                self.requests
            )),
        }
    }
}

#[cfg(test)]
mod tests;
