//! The address of a store: a folder on this machine, or a database that many machines share.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use conclave_core::types::ids::RoomId;

use crate::storage::overlay::{OverlayError, RunChanges};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreAddress {
    /// A folder with an SQLite file. One process at a time writes to it.
    Folder(PathBuf),
    /// A PostgreSQL database. Many hosts write to it, each to the runs that it owns.
    Postgres(PostgresAddress),
}

/// The address of a PostgreSQL database, as a URL. Its display never has the password.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostgresAddress {
    // In a box, because addresses are part of errors.
    url: Box<url::Url>,
    /// The address as it was written, without passwords. `url` has several hosts as parameters.
    public: String,
}

/// The parameters of a URL that can be shown: `blobs`, and those of libpq that are understood, except
/// the password.
const PUBLIC_PARAMETERS: [&str; 22] = [
    "application_name",
    "blobs",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// The reason why a text is no address of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The URL of the database is malformed.
    #[error("the address of the store is not valid: {0}")]
    Malformed(String),
    /// This program was built without the feature `postgres`.
    #[error("this program was built without PostgreSQL (feature `postgres`)")]
    NoPostgres,
}

impl StoreAddress {
    /// The folder; `None` for a database.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Postgres(_) => None,
        }
    }

    /// The changes of a run; `None` for a database that this program cannot read.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn changes(&self, run: &RoomId) -> Result<Option<RunChanges>, OverlayError> {
        #[cfg(feature = "postgres")]
        return RunChanges::read(self, run).map(Some);
        #[cfg(not(feature = "postgres"))]
        self.folder().map(|folder| RunChanges::read(folder, run)).transpose()
    }
}

impl From<PathBuf> for StoreAddress {
    fn from(folder: PathBuf) -> Self {
        Self::Folder(folder)
    }
}

impl From<&Path> for StoreAddress {
    fn from(folder: &Path) -> Self {
        Self::Folder(folder.to_owned())
    }
}

impl From<&PathBuf> for StoreAddress {
    fn from(folder: &PathBuf) -> Self {
        Self::Folder(folder.clone())
    }
}

impl From<&Self> for StoreAddress {
    fn from(address: &Self) -> Self {
        address.clone()
    }
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if !PostgresAddress::is_meant(text) {
            return Ok(Self::Folder(PathBuf::from(text)));
        }
        if cfg!(not(feature = "postgres")) {
            return Err(AddressError::NoPostgres);
        }
        PostgresAddress::parse(text).map(Self::Postgres)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(formatter),
            Self::Postgres(address) => address.fmt(formatter),
        }
    }
}

impl serde::Serialize for StoreAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PostgresAddress {
    /// Whether a text is meant as the address of a database.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["postgres:", "postgresql:"].iter().any(|scheme| {
            text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
    }

    fn parse(text: &str) -> Result<Self, AddressError> {
        check_characters(text)?;
        let with_hosts = with_hosts_as_parameters(text);
        let url = url::Url::parse(&with_hosts).map(Box::new);
        let url = url.map_err(|error| AddressError::Malformed(error.to_string()))?;
        let public = match with_hosts {
            Cow::Borrowed(_) => without_password((*url).clone()).into(),
            // A URL has one host, so that text is shown.
            Cow::Owned(_) => without_password_in(text),
        };
        let address = Self { url, public };
        // A relative one would be another folder for each working directory.
        match address.blobs() {
            Some(folder) if !folder.is_absolute() => Err(AddressError::Malformed(format!(
                "`blobs` is the absolute path of a folder, not `{}`",
                folder.display()
            ))),
            _ => Ok(address),
        }
    }

    /// The shared folder of large blobs, which the parameter `blobs` names; `None` if all are in
    /// the database.
    #[must_use]
    pub fn blobs(&self) -> Option<PathBuf> {
        let mut pairs = self.url.query_pairs();
        pairs.find(|(name, _)| name == "blobs").map(|(_, folder)| folder.into_owned().into())
    }

    /// Whether the URL has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.url.password().is_some() || self.url.query_pairs().any(|(name, _)| is_password(&name))
    }

    /// The address with this password in its URL.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        // A URL without a host takes none before it.
        if self.url.set_password(Some(password)).is_err() {
            let digits: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let others = self.url.query().map(|query| format!("{query}&")).unwrap_or_default();
            self.url.set_query(Some(&format!("{others}password={digits}")));
        }
        self
    }

    /// The password for this database in the text of a password file of libpq: that of the first
    /// line which fits. `user` connects if the URL names nobody. The library itself reads no file of
    /// a user.
    #[must_use]
    #[cfg(feature = "postgres")]
    pub fn password_in(&self, passfile: &str, user: &str) -> Option<String> {
        super::postgres::password_in(self, passfile, user)
    }

    /// The whole URL, with the password if it has one.
    #[cfg(feature = "postgres")]
    pub(crate) fn url(&self) -> &url::Url {
        &self.url
    }
}

/// The same address, with several hosts as parameters: a URL has one host, and libpq takes a list,
/// such as `postgres://ada@one:5432,two:5433/runs`.
fn with_hosts_as_parameters(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !hosts.contains(',') {
        return text.into();
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        // The colons of an IPv6 address are in brackets.
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port),
            _ => (host, "5432"),
        };
        names.push(name.trim_matches(['[', ']']));
        ports.push(port);
    }
    let mut parameters = format!("host={}&port={}", names.join(","), ports.join(","));
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    for (name, value) in [("user", user), ("password", password)] {
        if !value.is_empty() {
            parameters.push_str(&format!("&{name}={value}"));
        }
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let others = if query.is_empty() { "" } else { "&" };
    let path = if path.is_empty() { "/" } else { path };
    format!("{scheme}://{path}?{parameters}{others}{query}").into()
}

/// Refuses characters that end the server's name within a password. The rest of the password would
/// be part of the database's name, and would be shown.
fn check_characters(text: &str) -> Result<(), AddressError> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if rest.contains('#') || rest[end..].contains('@') {
        let what = "write `/`, `?`, `#` and `@` in a password or a parameter as %2F, %3F, %23, %40";
        return Err(AddressError::Malformed(what.to_owned()));
    }
    Ok(())
}

/// Whether a parameter of a URL is a password: `password`, or `sslpassword` of a key.
fn is_password(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("password")
}

/// The URL without passwords, and without parameters that nobody knows: a name may be misspelt. The
/// rest stays as it was written.
fn without_password(mut url: url::Url) -> url::Url {
    // Cannot fail for a URL with a host; without one there is no password.
    let _ = url.set_password(None);
    let query = url.query().and_then(public_query);
    url.set_query(query.as_deref());
    url
}

/// The same for a text with several hosts.
fn without_password_in(text: &str) -> String {
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let (scheme, place) = address.split_once("://").unwrap_or(("postgres", address));
    let place = match place.rsplit_once('@') {
        Some((login, place)) => format!("{}@{place}", login.split(':').next().unwrap_or_default()),
        None => place.to_owned(),
    };
    let query = public_query(query).map(|query| format!("?{query}"));
    format!("{scheme}://{place}{}", query.unwrap_or_default())
}

/// The parameters of a query that can be shown; `None` if there are none.
fn public_query(query: &str) -> Option<String> {
    let is_public = |pair: &&str| {
        url::form_urlencoded::parse(pair.as_bytes())
            .all(|(name, _)| PUBLIC_PARAMETERS.contains(&name.as_ref()))
    };
    let pairs: Vec<&str> = query.split('&').filter(is_public).collect();
    let query = pairs.join("&");
    (!query.is_empty()).then_some(query)
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.public.fmt(formatter)
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_folder_unless_it_is_the_url_of_a_database() {
        for folder in ["runs", "/var/lib/conclave", "postgres", "./postgres:/x", "http://x", ""] {
            let address = folder.parse::<StoreAddress>().unwrap();
            assert_eq!(address, StoreAddress::Folder(folder.into()), "{folder}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn no_password_is_shown() {
        for (text, display) in [
            ("postgres://ada:hunter2@db:5432/x", "postgres://ada@db:5432/x"),
            ("POSTGRESQL://ada@db/x?Password=hunter2", "postgresql://ada@db/x"),
            (
                "postgres://ada:hunter2@a:1,b/x?port=1&pasword=hunter2",
                "postgres://ada@a:1,b/x?port=1",
            ),
            ("postgres://db/x?password=hunter2&sslmode=require", "postgres://db/x?sslmode=require"),
            ("postgres://db/x?sslpassword=hunter2&sslkey=k", "postgres://db/x?sslkey=k"),
        ] {
            let address: StoreAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), display);
            assert!(!format!("{address:?}").contains("hunter2"));
            assert!(!serde_json::to_string(&address).unwrap().contains("hunter2"));
            let StoreAddress::Postgres(database) = address else { panic!("{text}") };
            assert!(database.has_password(), "{text}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_password_whose_characters_end_the_name_of_the_server_is_refused_and_not_shown() {
        for password in ["1/hunter2", "1?hunter2", "1#hunter2", "hunter2/x", "hunter2@x#"] {
            let text = format!("postgres://ada:{password}@db/runs");
            let error = text.parse::<StoreAddress>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        assert!("postgres://ada:hunter%2F2@db/runs".parse::<StoreAddress>().is_ok());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn an_address_names_a_folder_for_large_blobs() {
        for (text, folder) in [
            ("postgres://db/x?blobs=/mnt/a%20b", Some("/mnt/a b")),
            ("postgres://one,two/x?sslmode=require&blobs=/mnt", Some("/mnt")),
            ("postgres://db/x", None),
        ] {
            let Ok(StoreAddress::Postgres(database)) = text.parse() else { panic!("{text}") };
            assert_eq!(database.blobs(), folder.map(PathBuf::from), "{text}");
            // Commands are shown with it, and others are started with it.
            let address: StoreAddress = database.to_string().parse().unwrap();
            assert_eq!(address, StoreAddress::Postgres(database));
        }
        let relative = "postgres://db/x?blobs=mnt".parse::<StoreAddress>();
        assert!(matches!(relative, Err(AddressError::Malformed(_))));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_password_is_added_and_not_shown() {
        for text in ["postgres://ada@db/x", "postgres:///x?host=/run/postgresql"] {
            let Ok(StoreAddress::Postgres(database)) = text.parse() else { panic!("{text}") };
            assert!(!database.has_password(), "{text}");
            let with = database.clone().with_password("hun:ter/2@");
            assert!(with.has_password() && with.to_string() == database.to_string(), "{with}");
        }
    }
}
