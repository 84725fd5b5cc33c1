//! The people that a trusted proxy names in a header. The header counts from the addresses of the
//! proxy alone, and reaches no handler.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};
use conclave_core::config::{ServerConfig, TrustedProxy};
use conclave_core::policy::roles::Role;
use conclave_core::types::ids::{CHANNEL_PREFIX, OIDC_PREFIX, OPERATOR, Principal, WEBHOOK_PREFIX};

use crate::people::LoginRefusal;
use crate::sessions::{Credential, Identity};

/// Bytes of a person's name.
const NAME: usize = 128;

/// The people whom a proxy names.
pub(crate) struct ProxiedPeople {
    header: HeaderName,
    proxy: TrustedProxy,
    /// The roles of those who are among the users of the config.
    roles: BTreeMap<String, Role>,
}

impl ProxiedPeople {
    /// The people of a config; `None` if it has no proxy.
    pub(crate) fn of(server: &ServerConfig) -> Option<Self> {
        let proxy = server.proxy.clone()?;
        let header = HeaderName::from_bytes(proxy.header.as_bytes()).ok()?;
        let roles = server.users.iter().map(|(name, user)| (name.clone(), user.role)).collect();
        Some(Self { header, proxy, roles })
    }

    /// Removes the header from a request. Returns whom it names; `None` if it does not count.
    pub(crate) fn take(
        &self,
        peer: Option<IpAddr>,
        headers: &mut HeaderMap,
    ) -> Result<Option<Identity>, LoginRefusal> {
        let values: Vec<_> = headers.get_all(&self.header).iter().cloned().collect();
        headers.remove(&self.header);
        // An address of version 4 on a socket of version 6 is that address.
        let is_trusted = peer
            .map(|peer| peer.to_canonical())
            .is_some_and(|peer| self.proxy.from.iter().any(|network| network.contains(&peer)));
        let name = match &values[..] {
            _ if !is_trusted => return Ok(None),
            [] => return Ok(None),
            // A proxy sets the header of each request, also if it knows nobody.
            [name] if name.is_empty() => return Ok(None),
            [name] => name.to_str().ok().filter(|name| is_name(name)),
            // One of them may be that of the client, which the proxy has passed on.
            _ => None,
        };
        let name = name.ok_or(LoginRefusal::WrongProxyHeader)?;
        let role = self.roles.get(name).copied().or(self.proxy.role);
        let role = role.ok_or(LoginRefusal::NoRole)?;
        let principal = Principal(name.into());
        Ok(Some(Identity { principal, role, credential: Credential::Proxy }))
    }
}

/// Whether a text can be the name of one person.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b';' | b'"');
    // Whoever had the name of the terminal's owner, of a person of a provider or of a channel would
    // have their runs.
    let is_others = text == OPERATOR
        || [OIDC_PREFIX, WEBHOOK_PREFIX, CHANNEL_PREFIX]
            .iter()
            .any(|prefix| text.starts_with(prefix));
    !is_others && text.len() <= NAME && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use conclave_core::config::ServerUser;

    use super::*;

    fn people(role: Option<Role>) -> ProxiedPeople {
        let ada = ServerUser { role: Role::Admin, token_hash: None };
        let from = ["127.0.0.1/32", "10.0.0.0/8"].map(|network| network.parse().unwrap()).into();
        let proxy = Some(TrustedProxy { header: "x-forwarded-user".to_owned(), from, role });
        let users = [("ada@example.org".to_owned(), ada)].into();
        ProxiedPeople::of(&ServerConfig { users, proxy, ..ServerConfig::default() }).unwrap()
    }

    fn identity_of(
        people: &ProxiedPeople,
        peer: &str,
        values: &[&[u8]],
    ) -> Result<Option<(String, Role)>, LoginRefusal> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("X-Forwarded-User", HeaderValue::from_bytes(value).unwrap());
        }
        let identity = people.take(peer.parse().ok(), &mut headers);
        assert!(headers.is_empty(), "it reaches no handler");
        Ok(identity?.map(|identity| (identity.principal.0.to_string(), identity.role)))
    }

    #[test]
    fn a_header_counts_from_the_proxy_alone_and_only_if_it_names_one_person() {
        let ada: &[u8] = b"ada@example.org";
        let found = Ok(Some(("ada@example.org".to_owned(), Role::Admin)));
        let people_with_role = people(Some(Role::User));
        for peer in ["127.0.0.1", "10.1.2.3", "::ffff:127.0.0.1"] {
            assert_eq!(identity_of(&people_with_role, peer, &[ada]), found, "{peer}");
            assert_eq!(identity_of(&people_with_role, peer, &[]), Ok(None));
            assert_eq!(identity_of(&people_with_role, peer, &[b""]), Ok(None));
        }
        for peer in ["127.0.0.2", "192.0.2.1", "::1", "::ffff:192.0.2.1", "no address"] {
            assert_eq!(identity_of(&people_with_role, peer, &[ada]), Ok(None), "{peer}");
            assert_eq!(identity_of(&people_with_role, peer, &[ada, b"bob"]), Ok(None), "{peer}");
        }
        let long = "a".repeat(NAME + 1);
        let hostile: [&[&[u8]]; 10] = [
            &[ada, b"bob"],
            &[ada, ada],
            &[b"operator"],
            &[b"oidc:ada"],
            &[b"ada,bob"],
            &[b"ada bob"],
            &[b"ad\ta"],
            &[b"ad\xc3\xa4"],
            &[b"\xff\xfe"],
            &[long.as_bytes()],
        ];
        for values in hostile {
            let refused = identity_of(&people_with_role, "127.0.0.1", values);
            assert_eq!(refused, Err(LoginRefusal::WrongProxyHeader), "{values:?}");
        }
        let other = identity_of(&people_with_role, "127.0.0.1", &[b"bob"]);
        assert_eq!(other, Ok(Some(("bob".to_owned(), Role::User))));
        let refused = identity_of(&people(None), "127.0.0.1", &[b"bob"]);
        assert_eq!(refused, Err(LoginRefusal::NoRole));
        assert_eq!(identity_of(&people(None), "127.0.0.1", &[ada]), found);
    }
}
