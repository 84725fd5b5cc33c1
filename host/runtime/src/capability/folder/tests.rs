//! Reading under a folder's handle, with a neighbour that must stay out of reach.

use std::fs;
use std::os::unix::fs::symlink;

use conclave_core::grant::FileMode;
use tempfile::TempDir;

use super::*;

/// A folder with files and links, and a neighbour that must stay out of reach.
fn folder() -> (TempDir, Folder) {
    let temp = tempfile::tempdir().unwrap();
    let (inside, outside) = (temp.path().join("inside"), temp.path().join("outside"));
    fs::create_dir_all(inside.join("sub")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("key"), "secret").unwrap();
    fs::write(inside.join("b.txt"), "0123456789").unwrap();
    fs::write(inside.join("a.txt"), "a").unwrap();
    symlink("b.txt", inside.join("to-b")).unwrap();
    symlink("../outside/key", inside.join("up")).unwrap();
    symlink(outside.join("key"), inside.join("absolute")).unwrap();
    symlink("../outside", inside.join("updir")).unwrap();
    symlink("nowhere", inside.join("dangling")).unwrap();
    symlink("loop", inside.join("loop")).unwrap();
    let grant = FileGrant {
        dir: inside.to_str().unwrap().to_owned(),
        shown: "inside".to_owned(),
        at: "/f".to_owned(),
        mode: FileMode::Read,
        bytes: 0,
        files: 0,
    };
    let folder = Folder::open(&PluginName::from("p"), &grant).unwrap();
    (temp, folder)
}

fn read(folder: &Folder, rest: &str) -> Result<Vec<u8>, Trouble> {
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
        assert!(matches!(read(&folder, rest), Err(Trouble::LeadsOutside)), "{rest}: {:?}", read(&folder, rest));
    }
    assert!(matches!(read(&folder, "dangling"), Err(Trouble::NotFound)));
    assert!(read(&folder, "loop").is_err());
}

/// The lexical wall stands before this one; this one must hold by itself.
#[test]
fn climbing_is_refused_by_the_handle_too() {
    let (_temp, folder) = folder();
    for rest in ["../outside/key", "sub/../../outside/key", "/etc/passwd"] {
        assert!(matches!(read(&folder, rest), Err(Trouble::LeadsOutside)), "{rest}: {:?}", read(&folder, rest));
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let (temp, folder) = folder();
    let fifo = temp.path().join("inside/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for rest in ["", "sub", "pipe"] {
        assert!(matches!(read(&folder, rest), Err(Trouble::NotAFile)), "{rest}");
    }
    assert!(matches!(read(&folder, "b.txt/x"), Err(Trouble::NotADirectory)));
    assert!(matches!(read(&folder, "missing"), Err(Trouble::NotFound)));
}

#[test]
fn entries_come_in_order_and_in_pages_without_what_leads_outside() {
    let (temp, folder) = folder();
    std::process::Command::new("mkfifo").arg(temp.path().join("inside/pipe")).status().unwrap();
    let names =
        |after, count| -> Vec<String> { folder.entries("", after, count, 100).unwrap().0.into_iter().map(|entry| entry.name).collect() };
    assert_eq!(names(None, 100), ["a.txt", "b.txt", "sub", "to-b"]);
    assert_eq!(names(None, 2), ["a.txt", "b.txt"]);
    assert_eq!(names(Some("b.txt"), 1), ["sub"]);
    assert_eq!(names(Some("to-b"), 5), [""; 0]);
    assert_eq!(names(None, 0), [""; 0]);
    assert!(matches!(folder.entries("a.txt", None, 1, 100), Err(Trouble::NotADirectory)));
    assert!(matches!(folder.entries("updir", None, 1, 100), Err(Trouble::LeadsOutside)));
}

#[test]
fn every_entry_that_is_looked_at_counts() {
    let (_temp, folder) = folder();
    let (entries, seen) = folder.entries("", None, 1, 100).unwrap();
    assert_eq!((entries.len(), seen), (1, 9), "those that are not given, too");
    assert!(folder.entries("", None, 1, 9).is_ok());
    assert!(matches!(folder.entries("", None, 1, 8), Err(Trouble::TooMany)));
}

#[test]
fn a_folder_that_is_missing_is_told_as_the_operator_wrote_it() {
    let grant =
        FileGrant { dir: "/no/such".to_owned(), shown: "such".to_owned(), at: "/f".to_owned(), mode: FileMode::Read, bytes: 0, files: 0 };
    let error = Folder::open(&PluginName::from("notes"), &grant).unwrap_err().to_string();
    assert!(error.starts_with("plugins.notes.grants.files: such cannot be opened: "), "{error}");
}
