//! Recording changes of overlays in PostgreSQL.

use conclave_core::overlay::changes::ChangeRecord;

use super::{Link, check_commit};
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};
use crate::storage::store::writer::overlays::{ChangeAnswer, OverlayChange};
use crate::support::overlay_files::{content_name, overlay_name};

const CHANGE: &str = "SELECT change_overlay(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Records changes in one transaction. They may be sent again.
pub(super) fn change(link: &Link, changes: &[OverlayChange]) -> SqlResult<Vec<ChangeAnswer>> {
    link.batch("BEGIN")?;
    let answers = changes.iter().map(|change| change_one(link, change));
    let answers = answers.collect::<SqlResult<Vec<_>>>()?;
    link.batch("COMMIT")?;
    check_commit(link)?;
    Ok(answers)
}

fn change_one(link: &Link, change: &OverlayChange) -> SqlResult<ChangeAnswer> {
    let wrong = |text: String| SqlError::new(SqlErrorKind::Other, text);
    let (path, is_reverted) = match &change.record {
        ChangeRecord::Written { path, .. } | ChangeRecord::Removed { path, .. } => (path, false),
        ChangeRecord::Reverted { path } => (path, true),
    };
    let record = (!is_reverted).then(|| serde_json::to_string(&change.record));
    let record = record.transpose().map_err(|error| wrong(error.to_string()))?;
    let origin = &change.origin;
    let dir = origin.dir.to_str().ok_or_else(|| wrong("a path is not in UTF-8".to_owned()))?;
    let (sha256, length) = match &change.content {
        Some(part) => (Some(&part.sha256), Some((part.bytes.len() as u64).cast_signed())),
        None => (None, None),
    };
    let row = link.row(
        CHANGE,
        &[
            &change.run.as_str(),
            &change.epoch.cast_signed(),
            &overlay_name(&origin.dir),
            &dir,
            &origin.display_path,
            &change.number.cast_signed(),
            &content_name(path),
            path,
            &record,
            &sha256,
            &length,
        ],
    )?;
    match row.try_get::<_, &str>(0)? {
        "done" => Ok(ChangeAnswer::Recorded),
        "fenced" => Ok(ChangeAnswer::Fenced),
        "behind" => Ok(ChangeAnswer::Behind),
        "no-content" => Ok(ChangeAnswer::NoContent),
        other => Err(wrong(format!("the database answered a change with {other:?}"))),
    }
}
