//! Detects whether SQLite's write-ahead log was torn by a crash or changed afterwards. SQLite stops
//! silently at the first frame with a wrong checksum. A changed byte in the middle would therefore
//! drop all later commits unnoticed.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME: usize = 24;
/// The maximum size of a log that is checked, in bytes. A longer one is implausible, because
/// checkpoints keep the log short.
const WAL_BYTES: u64 = 512 << 20;

/// Returns the number of intact commits behind the first frame that SQLite rejects. A torn end has
/// at most one, because each commit is on the disk before the next begins; a single one is
/// therefore not reported.
///
/// # Errors
/// Fails with an error of the operating system.
pub(super) fn lost_commits(wal: &Path) -> io::Result<u64> {
    match fs::metadata(wal) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= WAL_BYTES => {
            Ok(lost_in(&fs::read(wal)?))
        }
        Ok(_) => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Whether the log has frames behind a header that SQLite rejects, so that none of them is read. A
/// header is on the disk before the first frame is written.
pub(super) fn has_invalid_header(wal: &Path) -> bool {
    let mut start = Vec::new();
    let read = fs::File::open(wal)
        .and_then(|file| file.take((HEADER + FRAME + 1) as u64).read_to_end(&mut start));
    read.is_ok() && is_header_invalid(&start)
}

/// Whether the header is invalid, if these bytes go beyond the head of the first frame.
fn is_header_invalid(bytes: &[u8]) -> bool {
    let is_valid = |log: WalLog| log.add((0, 0), &bytes[..HEADER - 8]) == log.sum;
    bytes.len() > HEADER + FRAME && !WalLog::of(bytes).is_some_and(is_valid)
}

/// The description of the damage.
pub(super) fn damage(commits: u64) -> String {
    format!(
        "{commits} commits lie behind a changed byte of its write-ahead log (log.db-wal), and are not read"
    )
}

fn lost_in(bytes: &[u8]) -> u64 {
    let Some(log) = WalLog::of(bytes) else { return 0 };
    let (mut sum, mut is_whole, mut lost_commits) = (log.sum, true, 0);
    for frame in bytes[HEADER..].chunks_exact(FRAME + log.page) {
        let (head, page) = frame.split_at(FRAME);
        let of_this_log = head[8..16] == bytes[16..24];
        let stored = (word(head, 16), word(head, 20));
        let is_right = of_this_log && log.add(log.add(sum, &head[..8]), page) == stored;
        is_whole &= is_right;
        let is_commit = word(head, 4) != 0;
        lost_commits += u64::from(!is_whole && is_right && is_commit);
        // Each frame's checksum continues that of the one before. Frames behind a changed one are
        // checked against its stored sum.
        sum = stored;
    }
    if lost_commits > 1 { lost_commits } else { 0 }
}

struct WalLog {
    page: usize,
    is_big_endian: bool,
    sum: (u32, u32),
}

impl WalLog {
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER || !matches!(word(bytes, 0), 0x377f_0682 | 0x377f_0683) {
            return None;
        }
        let page = usize::try_from(word(bytes, 8))
            .ok()
            .filter(|page| page.is_power_of_two() && (512..=65_536).contains(page))?;
        Some(Self {
            page,
            is_big_endian: word(bytes, 0) & 1 == 1,
            sum: (word(bytes, 24), word(bytes, 28)),
        })
    }

    /// Adds words to SQLite's checksum, in pairs.
    fn add(&self, (mut one, mut two): (u32, u32), bytes: &[u8]) -> (u32, u32) {
        for pair in bytes.chunks_exact(8) {
            one = one.wrapping_add(self.word(pair, 0)).wrapping_add(two);
            two = two.wrapping_add(self.word(pair, 4)).wrapping_add(one);
        }
        (one, two)
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = word(bytes, at);
        if self.is_big_endian { word } else { word.swap_bytes() }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// A log with this number of commits, as a killed process leaves it.
    fn log(commits: u32) -> Vec<u8> {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.db");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (v TEXT)").unwrap();
        for commit in 0..commits {
            connection
                .execute("INSERT INTO t VALUES (?)", [format!("{commit}").repeat(900)])
                .unwrap();
        }
        fs::read(temp.path().join("a.db-wal")).unwrap()
    }

    #[test]
    fn a_torn_end_is_no_damage_and_a_changed_middle_is() {
        let log = log(12);
        assert_eq!(lost_in(&log), 0);
        for length in (0..log.len()).step_by(97) {
            assert_eq!(lost_in(&log[..length]), 0, "cut at {length}");
        }
        let middle = HEADER + (log.len() - HEADER) / 2;
        let mut changed = log.clone();
        changed[middle] ^= 1;
        assert!(lost_in(&changed) > 1);
        // A bad last commit may be torn as well as changed.
        let mut last = log.clone();
        *last.last_mut().unwrap() ^= 1;
        assert_eq!(lost_in(&last), 0);
        assert_eq!(lost_in(b"no log"), 0);
        assert!(!is_header_invalid(&log) && !is_header_invalid(&log[..HEADER]));
        for byte in 0..HEADER {
            let mut changed = log.clone();
            changed[byte] ^= 1;
            assert!(is_header_invalid(&changed), "{byte}");
        }
    }
}
