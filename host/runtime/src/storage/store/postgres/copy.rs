//! A copy of a database by the operator's `pg_dump`: the state that it copies, how it connects, and
//! the files of the shared folder that belong to that state.

use std::path::Path;

use tokio_postgres::config::{Host, TargetSessionAttrs};

use super::blob_folder::{BlobFolder, FilesLock};
use super::connecting::Connecting;
use super::link::Link;
use super::tls::TlsMode;
use super::{blob_folder, reader};
use crate::storage::store::sql::{SqlError, SqlResult};
use crate::storage::store::{PostgresAddress, StoreAddress, StoreError};

/// The major version of libpq that knows the authorities of the operating system.
const KNOWS_AUTHORITIES: i64 = 16;

/// One state of a database, which can be copied until this is dropped: no file of its shared folder
/// is removed meanwhile.
pub struct DatabaseCopy {
    address: StoreAddress,
    connecting: Connecting,
    link: Link,
    folder: Option<BlobFolder>,
    _files: FilesLock,
    snapshot: String,
}

/// The files that were copied from a shared folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedFiles {
    /// The number of files.
    pub files: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

impl DatabaseCopy {
    /// Begins a copy of the present state.
    ///
    /// # Errors
    /// `Missing`, `Older` or `Newer`; `BlobFolder` if its shared folder cannot be reached; or `Other`
    /// for an error of the database.
    pub fn begin(address: &PostgresAddress) -> Result<Self, StoreError> {
        reader::open_reader(address)?;
        let place = StoreAddress::Postgres(address.clone());
        Self::open(address).map_err(|error| error.of(place))
    }

    fn open(address: &PostgresAddress) -> SqlResult<Self> {
        let connecting = Connecting::of(address)?;
        let link = reader::connected(&connecting)?;
        let folder = blob_folder::join_as_reader(&link, address)?;
        // Before the state is fixed, so that each of its files is still there.
        let files = FilesLock::shared(reader::connected(&connecting)?)?;
        link.batch(reader::BEGIN)?;
        let snapshot = link.row("SELECT pg_export_snapshot()", &[])?.try_get(0)?;
        let address = StoreAddress::Postgres(address.clone());
        Ok(Self { address, connecting, link, folder, _files: files, snapshot })
    }

    /// The name of the state for `pg_dump --snapshot`.
    #[must_use]
    pub fn snapshot(&self) -> &str {
        &self.snapshot
    }

    /// Returns the major version of the server.
    ///
    /// # Errors
    /// `Other` for an error of the database; the same for all methods below.
    pub fn server_version(&self) -> Result<i64, StoreError> {
        let version = "SELECT CAST(current_setting('server_version_num') AS BIGINT) / 10000";
        self.number(version)
    }

    /// Returns the number of rooms.
    pub fn rooms(&self) -> Result<i64, StoreError> {
        self.number("SELECT count(*) FROM rooms")
    }

    fn number(&self, query: &str) -> Result<i64, StoreError> {
        let row = self.link.row(query, &[]).and_then(|row| Ok(row.try_get(0)?));
        row.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: SqlError) -> StoreError {
        error.of(&self.address)
    }

    /// Returns the variables by which a program of PostgreSQL with this major version of libpq
    /// connects as this host does. The password is among them, and so in no argument.
    #[must_use]
    pub fn libpq_variables(&self, version: i64) -> Vec<(&'static str, String)> {
        let config = &self.connecting.config;
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        };
        let list = |words: Vec<String>| (!words.is_empty()).then(|| words.join(","));
        let text = |text: Option<&str>| text.map(str::to_owned);
        let tls = &self.connecting.tls;
        let file = |path: &Path| path.display().to_string();
        let roots = match &tls.roots {
            Some(path) => Some(file(path)),
            None if tls.mode == TlsMode::VerifyFull && version >= KNOWS_AUTHORITIES => {
                Some("system".to_owned())
            }
            None => None,
        };
        let is_primary = config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite;
        let password = config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into());
        let variables = [
            ("PGHOST", list(config.get_hosts().iter().map(host).collect())),
            ("PGPORT", list(config.get_ports().iter().map(u16::to_string).collect())),
            ("PGUSER", text(config.get_user())),
            ("PGDATABASE", text(config.get_dbname())),
            ("PGPASSWORD", password),
            ("PGOPTIONS", text(config.get_options())),
            ("PGSSLMODE", Some(tls.mode.name().to_owned())),
            ("PGSSLROOTCERT", roots),
            ("PGSSLCERT", tls.certificate.as_ref().map(|(certificate, _)| file(certificate))),
            ("PGSSLKEY", tls.certificate.as_ref().map(|(_, key)| file(key))),
            ("PGTARGETSESSIONATTRS", is_primary.then(|| "read-write".to_owned())),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Copies the large blobs of this state into a new folder, durably; `None` if all are in the
    /// database.
    pub fn copy_files(&self, to: &Path) -> Result<Option<CopiedFiles>, StoreError> {
        let blobs = "SELECT sha256 FROM blobs WHERE bytes IS NULL ORDER BY sha256";
        let rows = self.link.rows(blobs, &[]).map_err(|error| self.failed(error))?;
        let digests: SqlResult<Vec<String>> = rows.iter().map(|row| Ok(row.try_get(0)?)).collect();
        let digests = digests.map_err(|error| self.failed(error))?;
        let Some(folder) = &self.folder else { return Ok(None) };
        let bytes = folder.copy(&digests, to).map_err(|error| self.failed(error))?;
        Ok(Some(CopiedFiles { files: digests.len() as u64, bytes }))
    }
}
