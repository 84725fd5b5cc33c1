//! Reads through a folder's handle, with an adjacent folder that must stay out of reach.

use std::fs;
use std::os::unix::fs::symlink;

use conclave_core::permissions::grants::FileMode;
use tempfile::TempDir;

use super::*;

/// Returns a folder with files and links, beside a folder that must stay out of reach.
fn folder() -> (TempDir, GrantedFolder) {
    let temp = tempfile::tempdir().unwrap();
    let (inside, foreign) = (temp.path().join("inside"), temp.path().join("outside"));
    fs::create_dir_all(inside.join("sub")).unwrap();
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("key"), "secret").unwrap();
    fs::write(inside.join("b.txt"), "0123456789").unwrap();
    fs::write(inside.join("a.txt"), "a").unwrap();
    symlink("b.txt", inside.join("to-b")).unwrap();
    symlink("../outside/key", inside.join("up")).unwrap();
    symlink(foreign.join("key"), inside.join("absolute")).unwrap();
    symlink("../outside", inside.join("updir")).unwrap();
    symlink("nowhere", inside.join("dangling")).unwrap();
    symlink("loop", inside.join("loop")).unwrap();
    let grant = FileGrant {
        dir: inside.to_str().unwrap().to_owned(),
        display_path: "inside".to_owned(),
        at: "/f".to_owned(),
        mode: FileMode::Read,
        bytes: 0,
        files: 0,
    };
    let folder = GrantedFolder::open(&PluginName::from("p"), &grant).unwrap();
    (temp, folder)
}

fn read(folder: &GrantedFolder, rest: &str) -> Result<Vec<u8>, FolderFailure> {
    read_at(&folder.open_file(rest)?, 0, 100)
}

#[test]
fn a_file_is_read_in_pieces() {
    let (_temp, folder) = folder();
    let file = folder.open_file("b.txt").unwrap();
    assert_eq!(read_at(&file, 0, 4).unwrap(), b"0123");
    assert_eq!(read_at(&file, 8, usize::MAX).unwrap(), b"89");
    assert_eq!(read_at(&file, 10, 4).unwrap(), b"");
    assert_eq!(read_at(&file, u64::MAX, 4).unwrap(), b"");
}

#[test]
fn links_are_followed_inside_and_refused_outside() {
    let (_temp, folder) = folder();
    assert_eq!(read(&folder, "to-b").unwrap(), b"0123456789");
    for rest in ["up", "absolute", "updir/key"] {
        assert!(
            matches!(read(&folder, rest), Err(FolderFailure::LeadsOutside)),
            "{rest}: {:?}",
            read(&folder, rest)
        );
    }
    assert!(matches!(read(&folder, "dangling"), Err(FolderFailure::NotFound)));
    assert!(read(&folder, "loop").is_err());
}

/// The lexical check comes first; the handle must refuse alone too.
#[test]
fn climbing_is_refused_by_the_handle_too() {
    let (_temp, folder) = folder();
    for rest in ["../outside/key", "sub/../../outside/key", "/etc/passwd"] {
        assert!(
            matches!(read(&folder, rest), Err(FolderFailure::LeadsOutside)),
            "{rest}: {:?}",
            read(&folder, rest)
        );
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let (temp, folder) = folder();
    let fifo = temp.path().join("inside/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for rest in ["", "sub", "pipe"] {
        assert!(matches!(read(&folder, rest), Err(FolderFailure::NotAFile)), "{rest}");
    }
    assert!(matches!(read(&folder, "b.txt/x"), Err(FolderFailure::NotADirectory)));
    assert!(matches!(read(&folder, "missing"), Err(FolderFailure::NotFound)));
}

pub(super) fn request<'a>(
    directory: &'a str,
    after: Option<&'a str>,
    count: usize,
    most: u64,
) -> PageRequest<'a> {
    PageRequest { directory, after, count, most }
}

#[test]
fn entries_come_in_order_and_in_pages_without_what_leads_outside() {
    let (temp, folder) = folder();
    std::process::Command::new("mkfifo").arg(temp.path().join("inside/pipe")).status().unwrap();
    let names = |after, count| -> Vec<String> {
        folder
            .page(request("", after, count, 100), None)
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| entry.name)
            .collect()
    };
    assert_eq!(names(None, 100), ["a.txt", "b.txt", "sub", "to-b"]);
    assert_eq!(names(None, 2), ["a.txt", "b.txt"]);
    assert_eq!(names(Some("b.txt"), 1), ["sub"]);
    assert_eq!(names(Some("to-b"), 5), [""; 0]);
    assert_eq!(names(None, 0), [""; 0]);
    assert!(matches!(
        folder.page(request("a.txt", None, 1, 100), None),
        Err(FolderFailure::NotADirectory)
    ));
    assert!(matches!(
        folder.page(request("updir", None, 1, 100), None),
        Err(FolderFailure::LeadsOutside)
    ));
}

#[test]
fn every_entry_that_is_looked_at_counts() {
    let (_temp, folder) = folder();
    let page = folder.page(request("", None, 1, 100), None).unwrap();
    assert_eq!((page.entries.len(), page.seen), (1, 9), "those that are not given, too");
    assert!(folder.page(request("", None, 1, 9), None).is_ok());
    assert!(matches!(folder.page(request("", None, 1, 8), None), Err(FolderFailure::TooMany)));
}

/// Lists a folder of so many files. Returns the names of all pages, and the number of entries read
/// for each.
fn paged(files: usize, count: usize, capacity: usize) -> (Vec<String>, Vec<u64>) {
    let temp = tempfile::tempdir().unwrap();
    for index in 0..files {
        fs::write(temp.path().join(format!("f{index:04}")), "").unwrap();
    }
    let dir = temp.path().to_str().unwrap().to_owned();
    let grant = FileGrant {
        dir,
        display_path: "f".to_owned(),
        at: "/f".to_owned(),
        mode: FileMode::Read,
        bytes: 0,
        files: 0,
    };
    let folder = GrantedFolder::open(&PluginName::from("notes"), &grant).unwrap();
    let (mut names, mut seen, mut listing) = (Vec::new(), Vec::new(), None);
    loop {
        let after: Option<String> = names.last().cloned();
        let page = folder
            .page_of(request("", after.as_deref(), count, u64::MAX), listing, capacity)
            .unwrap();
        seen.push(page.seen);
        if page.entries.is_empty() {
            assert!(page.rest.is_none());
            return (names, seen);
        }
        names.extend(page.entries.into_iter().map(|entry| entry.name));
        listing = page.rest;
    }
}

#[test]
fn a_listing_looks_at_each_entry_once_however_many_pages_it_has() {
    for (files, count) in [(1_000, 1), (1_000, 7), (2_000, 1_000), (0, 10)] {
        let (names, seen) = paged(files, count, 32 << 20);
        assert_eq!(names, (0..files).map(|index| format!("f{index:04}")).collect::<Vec<_>>());
        assert_eq!(seen.iter().sum::<u64>(), files as u64, "{files} by {count}");
        assert_eq!(seen[0], files as u64, "when it begins");
    }
}

#[test]
fn a_directory_whose_names_cannot_all_be_kept_is_read_in_parts() {
    // 69 bytes per name, so 100 names fit.
    let (names, seen) = paged(1_000, 30, 6_900);
    assert_eq!(names, (0..1_000).map(|index| format!("f{index:04}")).collect::<Vec<_>>());
    assert_eq!(seen.iter().filter(|seen| **seen > 0).count(), 10);
}

#[test]
fn a_page_that_does_not_go_on_from_the_last_one_begins_a_listing() {
    let (_temp, folder) = folder();
    let listing = || folder.page(request("", None, 2, 100), None).unwrap().rest;
    let goes_on = |after| folder.page(request("", after, 2, 100), listing()).unwrap().seen;
    assert_eq!(goes_on(Some("b.txt")), 0);
    assert_eq!(goes_on(Some("c")), 0, "forward");
    assert_eq!(goes_on(Some("a.txt")), 9, "back");
    assert_eq!(goes_on(None), 9);
}

#[test]
fn a_folder_that_is_missing_is_told_as_the_operator_wrote_it() {
    let grant = FileGrant {
        dir: "/no/such".to_owned(),
        display_path: "such".to_owned(),
        at: "/f".to_owned(),
        mode: FileMode::Read,
        bytes: 0,
        files: 0,
    };
    let error = GrantedFolder::open(&PluginName::from("notes"), &grant).unwrap_err().to_string();
    assert!(error.starts_with("plugins.notes.grants.files: such cannot be opened: "), "{error}");
}
