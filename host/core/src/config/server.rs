//! `[server]`: the people who may use a server of this config. The server itself verifies tokens.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::grants::fetch::networks;
use super::keys::ValueShape::{Choice, Duration, Named, Spending, Table, Texts, Whole};
use super::keys::{COUNT, COUNT_MAX, ConfigKey, TEXT, TEXTS, key};
use super::reader::{self, ConfigReader, SpannedValue};
use super::{Config, OidcConfig, ProblemCode, Problems, oidc};
use crate::policy::daily_budget::{DailyBudget, DailyBudgets};
use crate::policy::roles::Role;
use crate::types::ids::{CHANNEL_PREFIX, OIDC_PREFIX, OPERATOR, WEBHOOK_PREFIX};
use crate::types::wording::code;

/// A server of the config.
pub(super) const SERVER: &str = "server";
/// The runs that it keeps.
const RETENTION: &str = "server.keep";
/// What each person may spend in a day.
const DAILY_BUDGET: &str = "server.daily_budget";
/// The same for one person.
const PERSONS_BUDGET: &str = "server.daily_budget.people.NAME";
/// The provider at which people log in.
pub(super) const SERVER_OIDC: &str = "server.oidc";
/// The secret of the server at that provider.
pub(super) const SERVER_OIDC_SECRET: &str = "server.oidc.client_secret";
/// The proxy that names them.
const SERVER_PROXY: &str = "server.proxy";
/// The people who may use it.
const SERVER_USERS: &str = "server.users.NAME";

/// The number of days that a config can name.
const DAYS_MAX: u64 = 36_500;

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

/// A table: one key per line.
#[rustfmt::skip]
pub(super) const KEYS: &[ConfigKey] = &[
    key(SERVER, "users", Named(SERVER_USERS), "", "The people who may use the server, each under a name of its own. Without any, and without tokens of `conclave server token`, the printed address gives access."),
    key(SERVER, "proxy", Table(SERVER_PROXY), "", "A proxy that has logged people in, and says in a header who sends a request."),
    key(SERVER, "oidc", Table(SERVER_OIDC), "", "A provider of OpenID Connect, at which people log in."),
    key(SERVER, "keep", Table(RETENTION), "", "How long ended runs of this config stay. Without it no run is removed."),
    key(SERVER, "daily_budget", Table(DAILY_BUDGET), "", "What the runs of each person may spend in a day (UTC)."),
    key(RETENTION, "days", Whole { least: 1, most: DAYS_MAX }, "days = 30", "The number of days for which an ended run stays."),
    key(RETENTION, "runs", Whole { least: 1, most: COUNT_MAX }, "runs = 1_000", "The number of the newest runs that stay, however old they are. Without `days`, all older ones that have ended are removed."),
    key(SERVER_PROXY, "header", TEXT, r#"header = "X-Forwarded-User""#, "The header with the name of the person. From any other address it is dropped.").required(),
    key(SERVER_PROXY, "from", TEXTS, r#"from = ["127.0.0.1/32"]"#, "The addresses and networks of the proxy. Whoever can connect from there is believed.").required(),
    key(SERVER_PROXY, "role", Choice(&Role::WORDS), r#"role = "user""#, "The role of people without an entry of their own. Without it they are refused."),
    key(SERVER_OIDC, "issuer", TEXT, r#"issuer = "https://login.example.org/realms/team""#, "The URL of the provider, exactly as its metadata at `/.well-known/openid-configuration` names itself.").required(),
    key(SERVER_OIDC, "client_id", TEXT, r#"client_id = "conclave""#, "The name of this server at the provider. The provider must lead people back to `/login/callback` of the server's address.").required(),
    key(SERVER_OIDC, "client_secret", Table(SERVER_OIDC_SECRET), r#"client_secret = { env = "OIDC_SECRET" }"#, "The source of the secret that belongs to `client_id`. Without it the server is a public client; PKCE is used either way."),
    key(SERVER_OIDC, "scopes", TEXTS, r#"scopes = ["email", "groups"]"#, "The scopes of a log-in, besides `openid`.").otherwise(r#"`["email", "profile"]`"#),
    key(SERVER_OIDC, "name_claim", TEXT, r#"name_claim = "email""#, "The claim that names the person, who is `oidc:` and its value. `email` counts only with `email_verified`. Take no claim that people can change themselves.").otherwise(r#"`"sub"`"#),
    key(SERVER_OIDC, "roles_claim", TEXT, r#"roles_claim = "realm_access.roles""#, "The claim with groups or roles, a text or a list of texts; dots lead into tables.").otherwise(r#"`"groups"`"#),
    key(SERVER_OIDC, "roles", Texts, r#"roles = { "conclave-operators" = "operator", "staff" = "user" }"#, "The role that a value of `roles_claim` gives. Of several, the last one of `viewer`, `user`, `operator`, `approver` and `admin` counts."),
    key(SERVER_OIDC, "role", Choice(&Role::WORDS), r#"role = "viewer""#, "The role of people whose claims give none. Without it they are refused."),
    key(SERVER_OIDC, "session", Duration { least: 60_000, most: OidcConfig::SESSION_MAX_MS }, r#"session = "8 h""#, "The time after which people log in again.").time(OidcConfig::SESSION_MS),
    key(SERVER_OIDC, "refresh", Duration { least: 1_000, most: OidcConfig::SESSION_MAX_MS }, r#"refresh = "5 min""#, "The interval between two questions to the provider whether a person still has access and the same role. Only for providers that give a refresh token.").time(OidcConfig::REFRESH_MS),
    key(SERVER_OIDC_SECRET, "env", TEXT, r#"env = "OIDC_SECRET""#, "An environment variable."),
    key(SERVER_OIDC_SECRET, "file", TEXT, r#"file = "oidc.txt""#, "A file, from the config's folder; its first line is the secret."),
    key(SERVER_OIDC_SECRET, "command", TEXTS, r#"command = ["pass", "show", "oidc"]"#, "A program and its arguments; the first line of its output is the secret."),
    key(SERVER_USERS, "role", Choice(&Role::WORDS), r#"role = "user""#, "What the person may do: `viewer` reads all runs; `user` starts runs, and reads and steers those only; `operator` starts and steers all; `approver` reads all and decides what waits for an approval; `admin` does everything.").required(),
    key(SERVER_USERS, "token", TEXT, r#"token = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo""#, "The hash of the person's token, as `conclave server token add NAME --role ROLE --for-config` prints it.").otherwise("required without a proxy"),
];

#[rustfmt::skip]
pub(super) const BUDGET_KEYS: &[ConfigKey] = &[
    key(DAILY_BUDGET, "tokens", COUNT, "tokens = 200_000", "The number of input and output tokens of all models."),
    key(DAILY_BUDGET, "cost_usd", Spending, "cost_usd = 2.00", "The cost in US dollars of all models with a known price."),
    key(DAILY_BUDGET, "people", Named(PERSONS_BUDGET), "", "The budgets of single people, by the name in the records, in place of that of each."),
    key(PERSONS_BUDGET, "tokens", COUNT, "tokens = 1_000_000", "The number of tokens of this person's runs. Without it there is no such limit."),
    key(PERSONS_BUDGET, "cost_usd", Spending, "cost_usd = 10.00", "The cost in US dollars of this person's runs. Without it there is no such limit."),
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
    /// The runs that stay; `None` for all.
    pub keep: Option<RunRetention>,
    /// What the runs of people may spend in a day.
    pub daily_budget: DailyBudgets,
}

/// `[server.keep]`: an ended run stays while one of the two keeps it. At least one is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRetention {
    /// The days for which ended runs stay.
    pub days: Option<u64>,
    /// The number of newest runs that stay.
    pub runs: Option<u64>,
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

pub(super) fn read(
    reader: &mut ConfigReader,
    folder: &str,
    root: &reader::Table<'_>,
) -> ServerConfig {
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
    server.keep = retention(reader, &table);
    server.daily_budget = daily_budget(reader, &table);
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

fn retention(reader: &mut ConfigReader, server: &reader::Table<'_>) -> Option<RunRetention> {
    let table = server.get("keep")?.table(reader, RETENTION)?;
    let (days, runs) = (table.read(reader, "days"), table.read(reader, "runs"));
    if table.get("days").is_none() && table.get("runs").is_none() {
        let help = "write `days = 30`, or the number of `runs` that stay";
        reader.absence(&table.span, "`days` is missing in [server.keep]", help.to_owned());
    }
    Some(RunRetention { days, runs })
}

fn daily_budget(reader: &mut ConfigReader, server: &reader::Table<'_>) -> DailyBudgets {
    let item = server.get("daily_budget");
    let Some(table) = item.and_then(|item| item.table(reader, DAILY_BUDGET)) else {
        return DailyBudgets::default();
    };
    let each = budget(reader, &table);
    let mut people = BTreeMap::new();
    for (name, _, table) in table.named_tables(reader, "people", PERSONS_BUDGET) {
        let table = table.checked(reader);
        people.insert(name.to_owned(), budget(reader, &table));
    }
    DailyBudgets { each, people }
}

fn budget(reader: &mut ConfigReader, table: &reader::Table<'_>) -> DailyBudget {
    let (tokens, cost_micro_usd) = (table.read(reader, "tokens"), table.read(reader, "cost_usd"));
    DailyBudget { tokens, cost_micro_usd }
}

fn trusted_proxy(reader: &mut ConfigReader, table: &reader::Table<'_>) -> Option<TrustedProxy> {
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
    use crate::types::ids::Principal;
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
    fn what_stays_and_what_people_may_spend_are_read() {
        let server = parse(
            "[server.keep]\ndays = 30\n[server.daily_budget]\ntokens = 200_000\ncost_usd = 2\n\
             [server.daily_budget.people.\"oidc:lea@example.org\"]\ntokens = 9\n",
        )
        .unwrap()
        .server;
        assert_eq!(server.keep, Some(RunRetention { days: Some(30), runs: None }));
        let budget = |name: &str| server.daily_budget.of(&Principal(name.into()));
        assert_eq!(budget("ada").cost_micro_usd, Some(2_000_000));
        let lea = DailyBudget { tokens: Some(9), cost_micro_usd: None };
        assert_eq!(budget("oidc:lea@example.org"), lea);
        for (lines, code) in [
            ("[server.keep]\n", ProblemCode::MissingKey),
            ("[server.keep]\ndays = 0\n", ProblemCode::OutOfRange),
            ("[server.keep]\ndays = 3\nhours = 3\n", ProblemCode::UnknownKey),
            ("[server.daily_budget]\ntokens = 0\n", ProblemCode::OutOfRange),
            ("[server.daily_budget.people]\nada = 3\n", ProblemCode::WrongType),
            ("[server.daily_budget.people.ada]\nturns = 3\n", ProblemCode::UnknownKey),
        ] {
            let problems = parse(lines).unwrap_err();
            assert_eq!(problems[0].0, code, "{lines}");
        }
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
