//! `[server]`: the people who may use a server of this config. The server itself verifies tokens.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::grants::fetch::networks;
use super::keys::{SERVER, SERVER_PROXY, SERVER_USERS};
use super::reader::{ConfigReader, SpannedValue, Table};
use super::{Config, OidcConfig, ProblemCode, Problems, oidc};
use crate::policy::roles::Role;
use crate::types::ids::{CHANNEL_PREFIX, OIDC_PREFIX, OPERATOR, WEBHOOK_PREFIX};
use crate::types::wording::code;

/// The beginning of a hashed token, and the number of its parts: algorithm, version, costs, salt
/// and hash.
const PHC: (&str, usize) = ("$argon2id$", 5);

/// Headers that mean something else to the server.
const TAKEN: [&str; 9] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "origin",
    "referer",
    "transfer-encoding",
];

/// `[server]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// The people, by name.
    pub users: BTreeMap<String, ServerUser>,
    /// The proxy that says who sends a request.
    pub proxy: Option<TrustedProxy>,
    /// The provider at which people log in.
    pub oidc: Option<OidcConfig>,
}

/// `[server.proxy]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxy {
    /// The header with the name of the person, in lower case.
    pub header: String,
    /// The networks from which the header counts.
    pub from: Vec<IpNet>,
    /// The role of people who are not among the users; `None` refuses them.
    pub role: Option<Role>,
}

/// `[server.users.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUser {
    pub role: Role,
    /// The hash of the token, as a PHC string of argon2id; `None` for a person without a
    /// token, who comes by the proxy.
    pub token_hash: Option<String>,
}

pub(super) fn read(reader: &mut ConfigReader, folder: &str, root: &Table<'_>) -> ServerConfig {
    let mut server = ServerConfig::default();
    let Some(table) = root.get("server").and_then(|item| item.table(reader, SERVER)) else {
        return server;
    };
    let proxy = table.get("proxy").and_then(|item| item.table(reader, SERVER_PROXY));
    server.proxy = proxy.and_then(|table| {
        let table = table.checked(reader);
        trusted_proxy(reader, &table)
    });
    let has_proxy = table.get("proxy").is_some();
    server.oidc = oidc::read(reader, folder, &table);
    for (name, span, table) in table.named_tables(reader, "users", SERVER_USERS) {
        // A proxy has names of its own, such as addresses of mail.
        if !has_proxy {
            super::plugin::check_name(reader, "server.users", name, &span);
        }
        let owner = match name {
            OPERATOR => Some("the runs of the terminal have that owner"),
            _ if name.starts_with(OIDC_PREFIX) => Some("people of `[server.oidc]` have such names"),
            _ if [WEBHOOK_PREFIX, CHANNEL_PREFIX].iter().any(|prefix| name.starts_with(prefix)) => {
                Some("channels have such names")
            }
            _ => None,
        };
        if let Some(owner) = owner {
            let what = format!("a person cannot be called {}", code(name));
            let help = format!("{owner}; choose another name");
            reader.error(ProblemCode::InvalidValue, &span, what, help);
        }
        let table = table.checked(reader);
        let role = table.require(reader, "role").and_then(|item| item.read(reader));
        let item = match has_proxy {
            true => table.get("token"),
            false => table.require(reader, "token"),
        };
        let token_hash = item.as_ref().and_then(|item| token_hash(reader, item));
        // A token that cannot be read has been reported.
        if let Some(role) = role {
            server.users.insert(name.to_owned(), ServerUser { role, token_hash });
        }
    }
    server
}

fn trusted_proxy(reader: &mut ConfigReader, table: &Table<'_>) -> Option<TrustedProxy> {
    let header = table.require(reader, "header").and_then(|item| header(reader, &item));
    let from = table.require(reader, "from").map(|item| networks(reader, &item));
    let role = table.get("role").and_then(|item| item.read(reader));
    Some(TrustedProxy { header: header?, from: from?, role })
}

fn header(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let name = item.string(reader)?.to_ascii_lowercase();
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
    if !name.is_empty() && name.bytes().all(is_plain) && !TAKEN.contains(&&*name) {
        return Some(name);
    }
    let what = format!("{} cannot be a header with a person's name", code(&item.name));
    let help = "name one that the proxy sets itself, such as `X-Forwarded-User`";
    reader.error(ProblemCode::InvalidValue, &item.span, what, help.to_owned());
    None
}

/// Reads a hashed token. A token as it is would let in everybody who reads the config.
fn token_hash(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let text = item.string(reader)?;
    let (start, parts) = PHC;
    if text.starts_with(start) && text.split('$').skip(1).count() == parts {
        return Some(text.to_owned());
    }
    let what = format!("{} must be the hash of a token, and not a token", code(&item.name));
    let help =
        "`conclave server token add NAME --role ROLE --for-config` prints a token and this line";
    reader.secret_error(&item.span, what, help.to_owned());
    None
}

/// Adds a warning for each key without effect.
pub(super) fn check(config: &Config, problems: &mut Problems) {
    if let Some(provider) = &config.server.oidc {
        oidc::check(config, provider, problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo";

    fn parse(lines: &str) -> Result<Config, Vec<(ProblemCode, String)>> {
        let text = format!(
            "entry = \"desk\"\n[plugins.chat]\nsource = \"stock:chat\"\n[tasks.desk]\nagent = \"chat\"\n{lines}"
        );
        let problems = |problems: Problems| {
            problems.0.iter().map(|problem| (problem.code, problem.to_string())).collect()
        };
        Config::parse("c.toml", "", &text).map_err(problems)
    }

    #[test]
    fn users_have_a_role_and_the_hash_of_a_token() {
        let web = "[channels.web]\nkind = \"web\"\n";
        let users = format!(
            "[server.users.ada]\nrole = \"approver\"\ntoken = \"{HASH}\"\n\
             [server.users.bob]\nrole = \"user\"\ntoken = \"{HASH}\"\n"
        );
        let config = parse(&format!("{web}{users}")).unwrap();
        let roles: Vec<_> =
            config.server.users.iter().map(|(name, user)| (name.as_str(), user.role)).collect();
        assert_eq!(roles, [("ada", Role::Approver), ("bob", Role::User)]);
        assert_eq!(config.server.users["ada"].token_hash.as_deref(), Some(HASH));
        assert!(config.warnings.0.is_empty(), "{:?}", config.warnings);
        let without_page = parse(&users).unwrap().warnings;
        assert!(without_page.0.is_empty(), "they start runs by the API: {without_page:?}");
    }

    #[test]
    fn a_proxy_names_people_who_need_no_token() {
        let web = "[channels.web]\nkind = \"web\"\n";
        let proxy = "[server.proxy]\nheader = \"X-Forwarded-User\"\nfrom = [\"127.0.0.1\", \"10.0.0.0/8\"]\n";
        let users = "[server.users.\"ada@example.org\"]\nrole = \"admin\"\n";
        let server = parse(&format!("{web}{proxy}{users}")).unwrap().server;
        assert_eq!(server.users["ada@example.org"].token_hash, None);
        let found = server.proxy.unwrap();
        assert_eq!((found.header.as_str(), found.from.len()), ("x-forwarded-user", 2));
        assert_eq!(found.role, None);
        let default = parse(&format!("{web}{proxy}role = \"viewer\"\n")).unwrap().server;
        assert_eq!(default.proxy.unwrap().role, Some(Role::Viewer));
        for (lines, code) in [
            ("header = \"X-User\"", ProblemCode::MissingKey),
            ("from = [\"127.0.0.1\"]", ProblemCode::MissingKey),
            ("header = \"Cookie\"\nfrom = [\"127.0.0.1\"]", ProblemCode::InvalidValue),
            ("header = \"X User\"\nfrom = [\"127.0.0.1\"]", ProblemCode::InvalidValue),
            ("header = \"X-User\"\nfrom = [\"127.0.0.1\"]\nusers = 1", ProblemCode::UnknownKey),
        ] {
            let problems = parse(&format!("{web}[server.proxy]\n{lines}\n")).unwrap_err();
            assert_eq!(problems[0].0, code, "{lines}");
        }
        assert!(
            parse(&format!("{web}[server.proxy]\nheader = \"X-U\"\nfrom = [\"here\"]\n")).is_err()
        );
    }

    #[test]
    fn a_wrong_user_is_refused_and_no_token_is_shown() {
        for (lines, code) in [
            (format!("role = \"root\"\ntoken = \"{HASH}\""), ProblemCode::InvalidValue),
            (format!("token = \"{HASH}\""), ProblemCode::MissingKey),
            ("role = \"user\"".to_owned(), ProblemCode::MissingKey),
            ("role = \"user\"\ntoken = \"hunter2\"".to_owned(), ProblemCode::PlaintextKey),
            (
                "role = \"user\"\ntoken = \"$argon2id$hunter2\"".to_owned(),
                ProblemCode::PlaintextKey,
            ),
            (format!("role = \"user\"\ntoken = \"{HASH}\"\nrooms = []"), ProblemCode::UnknownKey),
        ] {
            let problems = parse(&format!("[server.users.ada]\n{lines}\n")).unwrap_err();
            assert_eq!(problems[0].0, code, "{lines}");
            assert!(problems.iter().all(|(_, text)| !text.contains("hunter2")), "{problems:?}");
        }
        let web = "[channels.web]\nkind = \"web\"\n";
        let proxy = "[server.proxy]\nheader = \"X-U\"\nfrom = [\"127.0.0.1\"]\n";
        for name in ["operator", "oidc:ada"] {
            let user = format!("{web}{proxy}[server.users.\"{name}\"]\nrole = \"user\"\n");
            assert_eq!(parse(&user).unwrap_err()[0].0, ProblemCode::InvalidValue, "{name}");
        }
        let name = parse(&format!("[server.users.\"A b\"]\nrole = \"user\"\ntoken = \"{HASH}\"\n"));
        assert_eq!(name.unwrap_err()[0].0, ProblemCode::InvalidName);
    }
}
