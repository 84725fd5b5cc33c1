//! The check of a request's placeholders before values replace them: their call, their secret, the
//! host, the position.

use std::fmt;

use url::{Host, Url};

use super::encode::{self, BodyKind};
use super::placeholder::{LENGTH, Placeholders, find, replace};
use crate::permissions::grants::{Rights, SecretGrant, SecretPlace};
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::SecretName;

/// A request as the guest wrote it, or with values inserted; the latter is neither stored nor
/// shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestParts {
    pub method: String,
    pub url: Url,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

/// Hides the content, because it may hold values.
impl fmt::Debug for RequestParts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Parts")
            .field("method", &self.method)
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

/// A secret that a request uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub name: SecretName,
    pub placeholder: String,
}

/// The values to insert into a request that was allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretPlan {
    uses: Vec<Use>,
}

/// Finds the placeholders of a request and checks each. A refused request must not be sent.
///
/// # Errors
/// The record for the operator, for the first placeholder that is not allowed.
pub fn check(
    rights: &Rights<'_>,
    placeholders: &Placeholders,
    parts: &RequestParts,
) -> Result<SecretPlan, Box<DenialRecord>> {
    let mut plan = SecretPlan::default();
    let mut decide = |bytes: &[u8], place: SecretSpot| -> Result<(), Box<DenialRecord>> {
        for at in find(bytes) {
            let one = decide(rights, placeholders, &bytes[at..at + LENGTH], place, &parts.url)?;
            if !plan.uses.contains(&one) {
                plan.uses.push(one);
            }
        }
        Ok(())
    };
    decide(parts.method.as_bytes(), SecretSpot::Elsewhere("the method"))?;
    let address = &parts.url[..url::Position::AfterPath];
    decide(address.as_bytes(), SecretSpot::Elsewhere("the address before the query"))?;
    decide(
        // A server decodes the path, so an encoded placeholder counts too.
        &super::views::percent_decoded(address.as_bytes()),
        SecretSpot::Elsewhere("the address before the query"),
    )?;
    decide(
        parts.url.fragment().unwrap_or_default().as_bytes(),
        SecretSpot::Elsewhere("the fragment"),
    )?;
    decide(parts.url.query().unwrap_or_default().as_bytes(), SecretSpot::In(SecretPlace::Query))?;
    for (name, value) in &parts.headers {
        decide(name.as_bytes(), SecretSpot::Elsewhere("the name of a header"))?;
        // These headers route and frame the request, so intermediaries would read the value.
        let is_routing =
            ["host", "content-length", "transfer-encoding", "connection", "content-type"];
        let place = if is_routing.iter().any(|routing| name.eq_ignore_ascii_case(routing)) {
            SecretSpot::Elsewhere("a header that says how the request is sent")
        } else {
            SecretSpot::In(SecretPlace::Header)
        };
        decide(value.as_bytes(), place)?;
    }
    decide(parts.body.as_deref().unwrap_or_default(), SecretSpot::In(SecretPlace::Body))?;
    Ok(plan)
}

#[derive(Clone, Copy)]
enum SecretSpot {
    In(SecretPlace),
    /// A part that never holds a secret, in words.
    Elsewhere(&'static str),
}

fn decide(
    rights: &Rights<'_>,
    placeholders: &Placeholders,
    found: &[u8],
    place: SecretSpot,
    url: &Url,
) -> Result<Use, Box<DenialRecord>> {
    let placeholder = String::from_utf8_lossy(found).into_owned();
    let Some(grant) = placeholders.secret(found, &rights.grants.secrets) else {
        let reason = "the request holds a placeholder that is worth nothing in this call: it is of another call or plugin, or made up";
        return Err(rights.refuse(Capability::Secrets, &placeholder, Layer::Runtime, reason, None));
    };
    let target = grant.name.as_str();
    let refuse = |layer, reason: String, suggestion| {
        Err(rights.refuse(Capability::Secrets, target, layer, &reason, suggestion))
    };
    rights.require_asked(&grant.name, url.host_str())?;
    rights.leaves_secret(&grant.name)?;
    if !is_bound(grant, url) {
        let bound: Vec<&str> =
            grant.hosts.iter().map(crate::permissions::fetch::HostPattern::as_str).collect();
        let host = url.host_str().unwrap_or_default();
        // No grant is suggested: the host of a secret must not change by copying a line.
        return refuse(
            Layer::Runtime,
            format!(
                "the secret {target} is bound to {}, and the request goes to {host}",
                bound.join(", ")
            ),
            None,
        );
    }
    if !is_private_enough(url) {
        return refuse(
            Layer::Host,
            format!("the secret {target} would travel unencrypted: only `https` carries a secret"),
            None,
        );
    }
    match place {
        SecretSpot::In(place) if grant.request_parts.contains(&place) => {
            Ok(Use { name: grant.name.clone(), placeholder })
        }
        SecretSpot::In(place) => {
            let part_names: Vec<String> = grant
                .request_parts
                .iter()
                .chain([&place])
                .map(|place| format!("{:?}", place.as_str()))
                .collect();
            let reason =
                format!("the secret {target} may not stand in the {} of a request", place.as_str());
            refuse(
                Layer::Config,
                reason,
                Some(format!("[secrets.{target}] places = [{}]", part_names.join(", "))),
            )
        }
        SecretSpot::Elsewhere(place) => {
            refuse(Layer::Host, format!("no secret may stand in {place} of a request"), None)
        }
    }
}

/// Whether the host may receive the secret.
fn is_bound(grant: &SecretGrant, url: &Url) -> bool {
    url.host_str().is_some_and(|host| grant.hosts.iter().any(|pattern| pattern.covers(host)))
}

/// Whether the connection is private: encrypted, or within the machine.
fn is_private_enough(url: &Url) -> bool {
    let stays = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || stays
}

/// Whether scheme, host and port are equal: the origin of browsers.
#[must_use]
pub fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

impl SecretPlan {
    /// Whether there is nothing to insert.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// The secrets to insert, each once.
    pub fn uses(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter()
    }

    /// The names of the secrets, for the journal.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.uses.iter().map(|one| one.name.to_string()).collect()
    }

    /// The request for people and for the journal, with names in place of the secrets. It is the
    /// same in every call.
    #[must_use]
    pub fn redact(&self, parts: &RequestParts) -> RequestParts {
        self.written(parts, |one| Some(format!("{{secret:{}}}", one.name)))
            .unwrap_or_else(|_| parts.clone())
    }

    /// Returns the request with values inserted, as it is sent. `value` returns the values.
    ///
    /// # Errors
    /// The name of a secret that has no value, or one that a header cannot hold.
    pub fn put_in<'v>(
        &self,
        parts: &RequestParts,
        value: impl Fn(&SecretName) -> Option<&'v str>,
    ) -> Result<RequestParts, SecretName> {
        self.written(parts, |one| value(&one.name).map(str::to_owned))
    }

    fn written(
        &self,
        parts: &RequestParts,
        value: impl Fn(&Use) -> Option<String>,
    ) -> Result<RequestParts, SecretName> {
        let mut written = parts.clone();
        if self.uses.is_empty() {
            return Ok(written);
        }
        let mut missing = None;
        let mut put = |bytes: &[u8], write: &dyn Fn(&str) -> Option<Vec<u8>>| {
            replace(bytes, |found| {
                let one = self.uses.iter().find(|one| one.placeholder.as_bytes() == found)?;
                let found = value(one).and_then(|value| write(&value));
                if found.is_none() {
                    missing.get_or_insert_with(|| one.name.clone());
                }
                found
            })
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let in_header = |value: &str| encode::fits_header(value).then(|| value.as_bytes().to_vec());
        for (_, value) in &mut written.headers {
            if has_placeholder(value.as_bytes()) {
                *value = text(put(value.as_bytes(), &in_header));
            }
        }
        if let Some(query) = parts.url.query().filter(|query| has_placeholder(query.as_bytes())) {
            let query = text(put(query.as_bytes(), &|value| Some(encode::percent(value))));
            written.url.set_query(Some(&query));
        }
        if let Some(body) = written.body.as_mut().filter(|body| has_placeholder(body)) {
            let kind = BodyKind::of(&parts.headers);
            *body = put(body, &|value| Some(kind.write(value)));
        }
        missing.map_or(Ok(written), Err)
    }
}

impl RequestParts {
    /// Removes the headers that hold a placeholder of any call.
    pub fn drop_secret_headers(&mut self) {
        self.headers.retain(|(_, value)| !has_placeholder(value.as_bytes()));
    }
}

fn has_placeholder(bytes: &[u8]) -> bool {
    find(bytes).next().is_some()
}

#[cfg(test)]
mod tests;
