//! PostgreSQL as the engine of a store, which many hosts share.

mod blob_folder;
mod connecting;
mod copy;
mod error;
mod kv;
mod lease;
mod link;
mod password;
mod reader;
mod schema;
mod session;
mod statement;
mod tls;
mod values;

pub(super) use blob_folder::{
    BlobFolder, join as join_blob_folder, require as require_blob_folder,
};
pub use copy::{CopiedFiles, DatabaseCopy};
pub(super) use error::remedy_of;
pub use kv::PostgresKv;
pub(super) use lease::{HostEntry, Lease};
pub(crate) use link::Link;
pub(super) use password::password_in;
pub(super) use reader::{PostgresReader, open_reader};
#[cfg(test)]
pub(super) use schema::make_first_format;
pub(super) use schema::{call_safely, check_commit};
pub(super) use session::PATIENCE;
pub(crate) use session::{Session, SessionError};
pub(super) use values::{value, without_nul};

pub(crate) use super::sql::SqlResult;

#[cfg(test)]
mod testing;
#[cfg(test)]
pub(crate) use testing::TestDatabase;
