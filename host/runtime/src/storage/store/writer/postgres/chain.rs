//! The audit chain that a host appends to, and no other host at the same time. The host computes the
//! lines; the database refuses them unless they follow the newest line of that chain.

use super::{HostEntry, Link, SqlResult};
use crate::storage::store::chain::{ChainHead, removal_hash};
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

    /// Notes in the chain that retention removes the records of a run, up to a line of each of these
    /// chains. A reader takes no run for removed without such a line.
    pub(super) fn note_removal(
        &mut self,
        link: &Link,
        entry: &HostEntry,
        run: &str,
        at: i64,
        up_to: &[(i64, i64)],
    ) -> SqlResult<()> {
        if up_to.is_empty() {
            return Ok(());
        }
        let (number, before) = self.head(link, entry)?;
        let mut head = before;
        let mut lines = Vec::with_capacity(up_to.len());
        for (chain, last) in up_to {
            let [of_chain, to_line, time] = [*chain, *last, at].map(i64::cast_unsigned);
            let digest = removal_hash(run, of_chain, to_line, time);
            head = head.next(run, to_line, time, &digest);
            lines.push((*chain, *last, digest, head));
        }
        // First, so that a host that lost its chain meets no line of the one that has it now.
        let has_followed = link.run(
            "UPDATE chains SET number = ?1, hash = ?2
             WHERE chain = ?3 AND host = ?4 AND number = ?5 AND hash = ?6",
            &[
                &head.number.cast_signed(),
                &&head.hash[..],
                &number,
                &entry.host,
                &before.number.cast_signed(),
                &&before.hash[..],
            ],
        )?;
        if has_followed == 0 {
            let what = "the audit chain of this host does not go on behind its newest line";
            return Err(SqlError::new(SqlErrorKind::Conflict, what));
        }
        for (chain, last, digest, line) in &lines {
            let line_number = line.number.cast_signed();
            link.run(
                "WITH line AS (INSERT INTO audit (chain, number, room, seq, at, record, hash)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7))
                 INSERT INTO removed (run, at, chain, last, line_chain, line_number)
                     VALUES (?3, ?5, ?8, ?4, ?1, ?2)",
                &[&number, &line_number, &run, last, &at, &&digest[..], &&line.hash[..], chain],
            )?;
        }
        self.went_on(Some(head));
        Ok(())
    }

    /// Forgets the newest line, so that it is read before the next commit.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}
