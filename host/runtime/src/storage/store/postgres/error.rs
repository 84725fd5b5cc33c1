//! What an error of PostgreSQL means for the store.

use std::error::Error as _;

use postgres_types::WrongType;
use tokio_postgres::Error;

use super::connecting::Connecting;
use super::tls;
use crate::storage::store::StoreAddress;
use crate::storage::store::sql::{SqlError, SqlErrorKind};

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let kind = match error.as_db_error() {
            Some(refused) => kind(refused.code().code()),
            // A handshake that is refused is refused again.
            None if tls::remedy(&error).is_some() => SqlErrorKind::Other,
            // Without an answer of the server the connection is gone, or was never there.
            // A column of this name that another product made.
            None if error.source().is_some_and(|source| source.is::<WrongType>()) => {
                SqlErrorKind::Incomplete
            }
            None if error.is_closed() || error.source().is_some_and(is_io) => SqlErrorKind::Unknown,
            None => SqlErrorKind::Other,
        };
        Self::new(kind, text(&error))
    }
}

fn is_io(source: &(dyn std::error::Error + 'static)) -> bool {
    let error = source.downcast_ref::<std::io::Error>();
    // A certificate that is refused now is refused later too.
    error.is_some_and(|error| error.kind() != std::io::ErrorKind::InvalidData)
}

fn kind(code: &str) -> SqlErrorKind {
    match code {
        // A server that was demoted; the URL may name the one that took over.
        "25006" => SqlErrorKind::ReadOnly,
        // The codes of `commit_group` are explained there. A chain that another host took meanwhile
        // is like a transaction in the way: the same is tried again, with the chain read anew.
        "40001" | "40P01" | "CV002" => SqlErrorKind::Conflict,
        "CV001" => SqlErrorKind::WriteRefused,
        "CV003" => SqlErrorKind::BlobMissing,
        // Undefined, or there with another shape: schema, table, column, function, object, type.
        "3F000" | "42P01" | "42703" | "42883" | "42704" | "42804" | "42P07" | "42723" => {
            SqlErrorKind::Incomplete
        }
        "42501" => SqlErrorKind::NoRights,
        "53100" => SqlErrorKind::Full,
        "58030" => SqlErrorKind::Disk,
        "XX001" | "XX002" => SqlErrorKind::Damaged,
        // The server stops, starts, or ended the connection; too many clients may be fewer soon.
        "53300" => SqlErrorKind::Unknown,
        _ if code.starts_with("57P") || code.starts_with("08") => SqlErrorKind::Unknown,
        _ if code.starts_with("23") => SqlErrorKind::Constraint,
        _ => SqlErrorKind::Other,
    }
}

/// Returns what the operator of a database does about an error of this kind.
pub(in crate::storage::store) fn remedy_of(
    kind: SqlErrorKind,
    store: &StoreAddress,
) -> Option<String> {
    let StoreAddress::Postgres(address) = store else { return None };
    match kind {
        SqlErrorKind::Incomplete => Some(
            "the schema `conclave` lacks a part, or is not Conclave's: restore it from a backup, \
             name a database of its own, or if nothing in it is needed: DROP SCHEMA conclave CASCADE;"
                .to_owned(),
        ),
        SqlErrorKind::NoRights => {
            let config = Connecting::of(address).ok()?.config;
            let role = config.get_user().unwrap_or("ROLE");
            let database = config.get_dbname().unwrap_or(role);
            let objects = "SCHEMA conclave";
            Some(format!(
                "as the owner of the database: GRANT CREATE ON DATABASE {database} TO {role}; and if \
                 the schema is there: GRANT USAGE ON {objects} TO {role}; \
                 GRANT ALL ON ALL TABLES IN {objects} TO {role};"
            ))
        }
        _ => None,
    }
}

fn text(error: &Error) -> String {
    let remedy = remedy(error).map(|remedy| format!(": {remedy}")).unwrap_or_default();
    format!("{}{remedy}", what(error))
}

/// Returns how an operator mends what the server refuses a client for.
fn remedy(error: &Error) -> Option<&'static str> {
    let Some(refused) = error.as_db_error() else {
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        return match source.as_str() {
            "server does not support TLS" => Some(
                "ALTER SYSTEM SET ssl = on; or sslmode=disable in the address, on a network that you trust",
            ),
            "password missing" => Some("set PGPASSWORD, or write it into ~/.pgpass"),
            _ => tls::remedy(error),
        };
    };
    match refused.code().code() {
        "28P01" => Some("set PGPASSWORD, or write it into ~/.pgpass"),
        "28000" if refused.message().contains("client certificate") => {
            Some("add this client's certificate to the address: sslcert=FILE&sslkey=FILE")
        }
        _ => None,
    }
}

fn what(error: &Error) -> String {
    if let Some(refused) = error.as_db_error() {
        let hint = refused.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        return format!("PostgreSQL: {}{hint}", refused.message());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    format!("PostgreSQL: {text}")
}
