//! Promises and their violations.

use super::*;

fn digest(bytes: &[u8]) -> Digest {
    let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Digest { sha256, length: bytes.len() as u64 }
}

fn write(offset: u64, bytes: &str, truncate: bool) -> SideEffect {
    SideEffect::WriteFile {
        path: "/data/a".to_owned(),
        offset,
        truncate,
        bytes: digest(bytes.as_bytes()),
    }
}

/// Returns the problem with these bytes after these changes, each with the resulting length.
fn problem(changes: &[(SideEffect, Option<u64>)], there: Option<&str>) -> Option<String> {
    let mut promises = Promises::default();
    for (change, length) in changes {
        let before = promises.asked("run", change);
        if let Some(length) = length {
            promises.done(change, before, *length);
        }
    }
    let mut found = Found::default();
    found.compare("file", &promises.content["/data/a"], there.map(str::as_bytes));
    found.problems.pop()
}

#[test]
fn a_write_that_is_done_is_there_with_its_bytes() {
    let done = [(write(0, "text", true), Some(4))];
    assert_eq!(problem(&done, Some("text")), None);
    for (there, part) in
        [(None, "is not there"), (Some(""), "has 0"), (Some("\0\0\0\0"), "other bytes")]
    {
        assert!(problem(&done, there).unwrap().contains(part), "{there:?}");
    }
}

#[test]
fn of_a_write_without_an_end_nothing_is_asked() {
    let open = [(write(0, "old", true), Some(3)), (write(0, "new", true), None)];
    assert_eq!((problem(&open, None), problem(&open, Some("new"))), (None, None));
}

#[test]
fn pieces_are_looked_at_each_and_a_later_one_covers_an_earlier() {
    let pieces = [
        (write(0, "", true), Some(0)),
        (write(0, "abc", false), Some(3)),
        (write(3, "def", false), Some(6)),
    ];
    assert_eq!(problem(&pieces, Some("abcdef")), None);
    assert!(problem(&pieces, Some("abc\0\0\0")).unwrap().contains("other bytes from 3"));
    let covered = [&pieces[..], &[(write(0, "xyz", false), Some(6))]].concat();
    assert_eq!(problem(&covered, Some("xyzdef")), None);
}

#[test]
fn what_was_removed_is_not_there() {
    let remove = SideEffect::RemoveFile { path: "/data/a".to_owned() };
    let changes = [(write(0, "a", true), Some(1)), (remove, Some(0))];
    assert_eq!(problem(&changes, None), None);
    assert!(problem(&changes, Some("a")).unwrap().contains("was removed"));
}
