//! The address of a store: a folder on this machine, or a database that many machines share.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
    url: url::Url,
}

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
        ["postgres://", "postgresql://"].iter().any(|scheme| {
            text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
    }

    fn parse(text: &str) -> Result<Self, AddressError> {
        let url =
            url::Url::parse(text).map_err(|error| AddressError::Malformed(error.to_string()))?;
        Ok(Self { url })
    }

    /// The whole URL, with the password if it has one.
    #[cfg(feature = "postgres")]
    pub(crate) fn url(&self) -> &url::Url {
        &self.url
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        // Neither can fail for a URL with a host; without one there is no password.
        let _ = shown.set_password(None);
        let has_password = |name: &str| name.eq_ignore_ascii_case("password");
        if shown.query_pairs().any(|(name, _)| has_password(&name)) {
            let rest: Vec<(String, String)> = shown
                .query_pairs()
                .filter(|(name, _)| !has_password(name))
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect();
            shown.query_pairs_mut().clear().extend_pairs(rest);
        }
        shown.as_str().trim_end_matches('?').fmt(formatter)
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
        for (text, shown) in [
            ("postgres://ada:hunter2@db:5432/x", "postgres://ada@db:5432/x"),
            ("POSTGRESQL://ada@db/x?Password=hunter2", "postgresql://ada@db/x"),
            ("postgres://db/x?password=hunter2&sslmode=require", "postgres://db/x?sslmode=require"),
        ] {
            let address: StoreAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("hunter2"));
            assert!(!serde_json::to_string(&address).unwrap().contains("hunter2"));
        }
    }
}
