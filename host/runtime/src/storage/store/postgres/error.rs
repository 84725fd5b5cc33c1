//! What an error of PostgreSQL means for the store.

use std::error::Error as _;

use tokio_postgres::Error;

use super::tls;
use crate::storage::store::sql::{SqlError, SqlErrorKind};

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let kind = match error.as_db_error() {
            Some(refused) => kind(refused.code().code()),
            // A handshake that is refused is refused again.
            None if tls::remedy(&error).is_some() => SqlErrorKind::Other,
            // Without an answer of the server the connection is gone, or was never there.
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
