//! A snapshot copy of a store in its own folder, even while a process writes.

use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::StoreReader;
use crate::storage::store::sql::SqlResult;
use crate::storage::store::{StoreError, schema};
use crate::support::{durable_file, overlay_files};

pub(super) fn backup(reader: &StoreReader, to: &Path) -> Result<(), StoreError> {
    let other = |error: io::Error| StoreError::Other { store: to.into(), what: error.to_string() };
    let Some(folder) = reader.folder() else {
        let what =
            "only a store in a folder is copied; of a database `pg_dump` makes a copy".to_owned();
        return Err(StoreError::Other { store: reader.address().clone(), what });
    };
    make(to).map_err(other)?;
    schema::make(to).map_err(other)?;
    copy(reader, to).map_err(|error| schema::failed(to, error))?;
    // The overlays last: as after a kill, a change may be there without the record of its call. The
    // other way round the run would count on changes that are not there.
    overlay_files::copy(folder, to).map_err(other)?;
    std::fs::File::open(schema::path(to)).and_then(|file| file.sync_all()).map_err(other)?;
    let parent = durable_file::folder_of(to);
    durable_file::sync_folder(to).and_then(|()| durable_file::sync_folder(parent)).map_err(other)
}

/// Creates the folder; fails if it exists, so that nothing is overwritten.
fn make(to: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(to)
}

fn copy(reader: &StoreReader, to: &Path) -> SqlResult<()> {
    let path = schema::path(to);
    reader.tables.execute("VACUUM INTO ?1", &[path.to_string_lossy().as_ref().into()])?;
    let copy = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The copy has no writing process, unlike its original.
    schema::set_meta(&copy, "open", 0)?;
    Ok(copy.pragma_update(None, "journal_mode", "WAL")?)
}
