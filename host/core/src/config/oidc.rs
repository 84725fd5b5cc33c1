//! `[server.oidc]`: people who log in at a provider of OpenID Connect, and the roles that its
//! claims give them. Decides the name and the role of a person; the server verifies the claims.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::{ConfigReader, SpannedValue, Table};
use super::server::{SERVER_OIDC, SERVER_OIDC_SECRET};
use super::{Config, KeyRef, ProblemCode, Problems, address, idle_keys, model};
use crate::policy::roles::Role;
use crate::types::ids::{OIDC_PREFIX, Principal};
use crate::types::wording::{code, one_of};

/// The scope that makes a request one of OpenID Connect. It is always sent.
const OPENID: &str = "openid";
/// The claim that counts only if the provider has verified it.
const EMAIL: &str = "email";
/// Bytes of a person's name.
const NAME_MAX: usize = 255;

/// `[server.oidc]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// The issuer, exactly as its metadata and its tokens name it.
    pub issuer: String,
    /// The name of this server at the provider.
    pub client_id: String,
    /// The source of the secret that belongs to it; `None` for a public client.
    pub client_secret: Option<KeyRef>,
    /// The scopes of a request, `openid` first.
    pub scopes: Vec<String>,
    /// The claim with the name of the person.
    pub name_claim: String,
    /// The claim with groups or roles.
    pub roles_claim: String,
    /// The roles that values of that claim give.
    pub roles: BTreeMap<String, Role>,
    /// The role of people without such a value; `None` refuses them.
    pub role: Option<Role>,
    /// The time after which people log in again, in milliseconds.
    pub session_ms: u64,
    /// The interval between two questions to the provider whether a person still has access, in
    /// milliseconds.
    pub refresh_ms: u64,
}

/// The reason why no name follows from the claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnnamedPerson {
    /// The claim is absent, no text, or longer than a name.
    #[error("the provider says no usable name")]
    NoName,
    /// The address of mail is not verified.
    #[error("the provider has not verified the address of mail")]
    UnverifiedEmail,
}

impl OidcConfig {
    /// The claim that names people, if the config says nothing else. It never changes and is never
    /// given to somebody else.
    pub const NAME_CLAIM: &str = "sub";
    /// The claim with groups, if the config says nothing else.
    pub const ROLES_CLAIM: &str = "groups";
    /// The scopes besides `openid`, if the config says nothing else.
    pub const SCOPES: &[&str] = &["email", "profile"];
    /// The default of `session`.
    pub const SESSION_MS: u64 = 8 * 60 * 60 * 1_000;
    /// The longest session.
    pub const SESSION_MAX_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
    /// The default of `refresh`.
    pub const REFRESH_MS: u64 = 5 * 60 * 1_000;

    /// Returns the person of verified claims. The name begins with [`OIDC_PREFIX`], so that nobody
    /// of a provider is somebody with a token, or the operator.
    ///
    /// # Errors
    /// If the claim is not there or not usable, or is an address of mail that is not verified.
    pub fn person(&self, claims: &Value) -> Result<Principal, UnnamedPerson> {
        let name = claim(claims, &self.name_claim).and_then(Value::as_str);
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b';' | b'"');
        let name =
            name.filter(|name| (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain));
        let name = name.ok_or(UnnamedPerson::NoName)?;
        if self.name_claim == EMAIL && claims["email_verified"] != Value::Bool(true) {
            return Err(UnnamedPerson::UnverifiedEmail);
        }
        Ok(Principal(format!("{OIDC_PREFIX}{name}").into()))
    }

    /// Returns the role of verified claims: the last one, in the order of [`Role::ALL`], that a
    /// value of the claim gives; else the default one. `None` if the person is refused.
    #[must_use]
    pub fn role_of(&self, claims: &Value) -> Option<Role> {
        let values = match claim(claims, &self.roles_claim) {
            Some(Value::Array(values)) => values.iter().collect(),
            Some(value) => vec![value],
            None => Vec::new(),
        };
        let roles = values.into_iter().filter_map(|value| self.roles.get(value.as_str()?).copied());
        roles.max().or(self.role)
    }
}

/// Returns the claim of this name, or at this path, such as `realm_access.roles`.
fn claim<'c>(claims: &'c Value, name: &str) -> Option<&'c Value> {
    // Some providers have names with dots, which are URLs.
    let at_path = || name.split('.').try_fold(claims, |value, part| value.get(part));
    claims.get(name).or_else(at_path)
}

pub(super) fn read(
    reader: &mut ConfigReader,
    folder: &str,
    server: &Table<'_>,
) -> Option<OidcConfig> {
    let table = server.get("oidc")?.table(reader, SERVER_OIDC)?.checked(reader);
    let issuer = table.require(reader, "issuer").and_then(|item| issuer(reader, &item));
    let client_id = table.require(reader, "client_id").and_then(|item| model::full(reader, &item));
    let secret = table.get("client_secret");
    let client_secret =
        secret.and_then(|item| model::key(reader, folder, &item, SERVER_OIDC_SECRET));
    let scopes = table.get("scopes").and_then(|item| scopes(reader, &item));
    let mut text = |name: &str, default: &str| {
        let written = table.get(name).and_then(|item| model::full(reader, &item));
        written.unwrap_or_else(|| default.to_owned())
    };
    let name_claim = text("name_claim", OidcConfig::NAME_CLAIM);
    let roles_claim = text("roles_claim", OidcConfig::ROLES_CLAIM);
    let roles = table.get("roles").map(|item| roles(reader, &item)).unwrap_or_default();
    let role = table.read(reader, "role");
    let (mut session_ms, mut refresh_ms) = (OidcConfig::SESSION_MS, OidcConfig::REFRESH_MS);
    table.set(reader, "session", &mut session_ms);
    table.set(reader, "refresh", &mut refresh_ms);
    let scopes = scopes
        .unwrap_or_else(|| OidcConfig::SCOPES.iter().map(|scope| (*scope).to_owned()).collect());
    let others = scopes.into_iter().filter(|scope| scope != OPENID);
    Some(OidcConfig {
        issuer: issuer?,
        client_id: client_id?,
        client_secret,
        scopes: std::iter::once(OPENID.to_owned()).chain(others).collect(),
        name_claim,
        roles_claim,
        roles,
        role,
        session_ms,
        refresh_ms,
    })
}

/// Reads the URL of an issuer. Whoever could change its answers on the way could be anybody.
fn issuer(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let url = model::http_url(reader, item)?;
    if url.starts_with("https://") || address::is_loopback(&url) {
        return Some(url);
    }
    item.wrong(
        reader,
        "is not encrypted, so others on the network could log in as anybody",
        "write an issuer that begins with `https://`; only one on this machine needs no TLS"
            .to_owned(),
    );
    None
}

fn scopes(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<String>> {
    let scopes: Vec<String> = item.read(reader)?;
    let is_token = |scope: &String| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        !scope.is_empty() && scope.bytes().all(is_plain)
    };
    if let Some(wrong) = scopes.iter().find(|scope| !is_token(scope)) {
        item.wrong(reader, &format!("cannot have {}", code(wrong)), None);
        return None;
    }
    Some(scopes)
}

fn roles(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> BTreeMap<String, Role> {
    let mut roles = BTreeMap::new();
    let entries = item.entries(reader, "a table of roles").into_iter().flatten();
    for (value, role) in entries {
        match role.get_ref().as_str().and_then(Role::of_word) {
            Some(role) => drop(roles.insert(value.get_ref().to_string(), role)),
            None => {
                let what = format!("the role of {} is none", code(value.get_ref()));
                let help = format!("write {}", one_of(Role::WORDS));
                reader.error(ProblemCode::InvalidValue, &role.span(), what, help);
            }
        }
    }
    roles
}

/// Adds a warning for each key without effect.
pub(super) fn check(config: &Config, oidc: &OidcConfig, problems: &mut Problems) {
    let mut warn = |path: &str, what: &str, why: &str, help: &str| {
        idle_keys::warn(config, problems, path, what.to_owned(), why, help);
    };
    if oidc.roles.is_empty() && oidc.role.is_none() {
        warn(
            "server.oidc",
            "nobody can log in by `[server.oidc]`",
            "no claim gives a role, and there is no default one",
            "write `role = \"user\"`, or roles such as `roles = { \"operators\" = \"operator\" }`",
        );
    }
    if oidc.roles.is_empty() && config.is_written("server.oidc.roles_claim") {
        warn(
            "server.oidc.roles_claim",
            "`roles_claim` has no effect",
            "no value of the claim gives a role",
            "write roles such as `roles = { \"operators\" = \"operator\" }`, or leave the key out",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NEEDED: &str = "issuer = \"https://login.example.org\"\nclient_id = \"conclave\"\n";

    fn parse(lines: &str) -> Result<Config, Vec<ProblemCode>> {
        let text = format!(
            "entry = \"desk\"\n[channels.web]\nkind = \"web\"\n[plugins.chat]\nsource = \"stock:chat\"\n\
             [tasks.desk]\nagent = \"chat\"\n[server.oidc]\n{lines}\n"
        );
        let codes = |problems: Problems| problems.0.iter().map(|problem| problem.code).collect();
        Config::parse("c.toml", "", &text).map_err(codes)
    }

    fn oidc(lines: &str) -> OidcConfig {
        parse(&format!("{NEEDED}{lines}")).unwrap().server.oidc.unwrap()
    }

    fn warnings(lines: &str) -> Vec<ProblemCode> {
        let config = parse(&format!("{NEEDED}{lines}")).unwrap();
        config.warnings.0.iter().map(|problem| problem.code).collect()
    }

    #[test]
    fn the_defaults_are_safe_and_each_key_is_read() {
        let plain = oidc("");
        assert_eq!((&*plain.name_claim, &*plain.roles_claim, plain.role), ("sub", "groups", None));
        assert_eq!(plain.scopes, ["openid", "email", "profile"]);
        assert_eq!((plain.session_ms, plain.refresh_ms), (28_800_000, 300_000));
        let full = oidc(
            "client_secret = { env = \"S\" }\nscopes = [\"groups\", \"openid\"]\nname_claim = \"email\"\n\
             roles_claim = \"realm.roles\"\nrole = \"viewer\"\nsession = \"1 h\"\nrefresh = \"1 min\"\n\
             [server.oidc.roles]\n\"Team Leads\" = \"approver\"",
        );
        assert_eq!(full.client_secret, Some(KeyRef::Env("S".to_owned())));
        assert_eq!(full.scopes, ["openid", "groups"]);
        assert_eq!(full.roles, [("Team Leads".to_owned(), Role::Approver)].into());
        assert_eq!((full.role, full.session_ms), (Some(Role::Viewer), 3_600_000));
    }

    #[test]
    fn what_would_be_unsafe_or_nothing_is_refused_or_warned_of() {
        for (lines, expected) in [
            ("client_id = \"c\"", ProblemCode::MissingKey),
            ("issuer = \"https://a.example\"", ProblemCode::MissingKey),
            ("issuer = \"http://a.example\"\nclient_id = \"c\"", ProblemCode::InvalidValue),
            ("issuer = \"https://a.example\"\nclient_id = \"\"", ProblemCode::InvalidValue),
        ] {
            assert_eq!(parse(lines).unwrap_err(), [expected], "{lines}");
        }
        for (lines, expected) in [
            ("client_secret = \"hunter2\"", ProblemCode::PlaintextKey),
            ("scopes = [\"a b\"]", ProblemCode::InvalidValue),
            ("role = \"root\"", ProblemCode::InvalidValue),
            ("roles = { admins = \"root\" }", ProblemCode::InvalidValue),
            ("session = \"8 d\"", ProblemCode::InvalidValue),
            ("secret = \"x\"", ProblemCode::UnknownKey),
        ] {
            assert_eq!(parse(&format!("{NEEDED}{lines}")).unwrap_err(), [expected], "{lines}");
        }
        assert!(parse("issuer = \"http://127.0.0.1:1/x\"\nclient_id = \"c\"").is_ok());
        assert_eq!(warnings("role = \"user\""), []);
        assert_eq!(warnings(""), [ProblemCode::NoEffect], "nobody can log in");
        assert_eq!(warnings("role = \"user\"\nroles_claim = \"x\""), [ProblemCode::NoEffect]);
        assert_eq!(warnings("roles = { a = \"user\" }\nroles_claim = \"x\""), []);
    }

    #[test]
    fn a_person_is_named_by_a_claim_that_nobody_else_can_have() {
        let by_sub = oidc("");
        let name_of = |config: &OidcConfig, claims: Value| {
            config.person(&claims).map(|Principal(name)| name.to_string())
        };
        assert_eq!(name_of(&by_sub, json!({ "sub": "auth0|17" })).as_deref(), Ok("oidc:auth0|17"));
        assert_eq!(name_of(&by_sub, json!({ "sub": "operator" })).as_deref(), Ok("oidc:operator"));
        let long = "x".repeat(NAME_MAX + 1);
        for sub in [json!(""), json!(17), json!("a b"), json!("a\nb"), json!("ä"), json!(long)] {
            let refused = name_of(&by_sub, json!({ "sub": sub }));
            assert_eq!(refused, Err(UnnamedPerson::NoName), "{sub}");
        }
        let by_email = oidc("name_claim = \"email\"");
        let email = |verified: Value| json!({ "email": "ada@x.org", "email_verified": verified });
        assert_eq!(name_of(&by_email, email(json!(true))).as_deref(), Ok("oidc:ada@x.org"));
        for verified in [json!(false), json!("true"), json!(1), Value::Null] {
            let refused = name_of(&by_email, email(verified));
            assert_eq!(refused, Err(UnnamedPerson::UnverifiedEmail));
        }
    }

    #[test]
    fn a_role_comes_from_the_values_of_a_claim_or_is_the_default() {
        let roles = "[server.oidc.roles]\nstaff = \"user\"\nops = \"operator\"";
        let config = oidc(&format!("roles_claim = \"realm.roles\"\n{roles}"));
        let role = |value: Value| config.role_of(&json!({ "realm": { "roles": value } }));
        assert_eq!(role(json!(["staff", "ops", "x"])), Some(Role::Operator));
        assert_eq!(role(json!("staff")), Some(Role::User));
        for other in [json!([]), json!("Staff"), json!(["x", 1]), Value::Null] {
            assert_eq!(role(other.clone()), None, "{other}");
        }
        assert_eq!(config.role_of(&json!({ "realm.roles": ["ops"] })), Some(Role::Operator));
        let default = OidcConfig { role: Some(Role::Viewer), ..config };
        assert_eq!(default.role_of(&json!({})), Some(Role::Viewer));
    }
}
