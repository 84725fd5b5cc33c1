//! The audit chain that a host appends to, and no other host at the same time. The host computes the
//! lines; the database refuses them unless they follow the newest line of that chain.

use super::{HostEntry, Link, SqlResult};
use crate::storage::store::chain::ChainHead;
use crate::storage::store::record::Hash;
use crate::storage::store::sql::{SqlError, SqlErrorKind};

/// The chain of this host.
#[derive(Debug, Default)]
pub(super) struct HostChain {
    /// Its number and its newest line; `None` if these must be read: before the first commit, and
    /// after one that failed, of which an earlier attempt may have taken effect.
    known: Option<(i64, ChainHead)>,
}

impl HostChain {
    /// Returns the chain and its newest line. A host without a chain takes the first one that no
    /// live host has, so that there are only as many as hosts that wrote at the same time.
    pub(super) fn head(&mut self, link: &Link, entry: &HostEntry) -> SqlResult<(i64, ChainHead)> {
        if let Some(known) = self.known {
            return Ok(known);
        }
        let take = "SELECT of_chain, last_number, last_hash FROM take_chain(?1)";
        let row = link.row(take, &[&entry.host])?;
        let hash = Hash::try_from(row.try_get::<_, &[u8]>(2)?).map_err(|_| {
            SqlError::new(SqlErrorKind::Damaged, "a line of the audit chain is cut")
        })?;
        let head = ChainHead { number: row.try_get::<_, i64>(1)?.cast_unsigned(), hash };
        let known = (row.try_get(0)?, head);
        self.known = Some(known);
        Ok(known)
    }

    /// Notes the newest line after a commit; `None` if it had none.
    pub(super) fn went_on(&mut self, newest: Option<ChainHead>) {
        if let (Some((_, head)), Some(newest)) = (&mut self.known, newest) {
            *head = newest;
        }
    }

    /// Forgets the newest line, so that it is read before the next commit.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}
