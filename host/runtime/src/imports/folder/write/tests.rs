//! Changes through a folder's handle: permitted ones, refused ones, and the check that nothing
//! outside has changed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use conclave_core::permissions::grants::{FileGrant, FileMode};
use conclave_core::types::ids::PluginName;
use tempfile::TempDir;

use super::*;

struct Place {
    temp: TempDir,
    folder: GrantedFolder,
}

impl Place {
    /// Returns a folder with hostile entries, and an adjacent folder that must not change.
    fn new() -> Self {
        Self::with_quota(1_000, 100)
    }

    fn with_quota(bytes: u64, files: u64) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (inside, foreign) = (temp.path().join("inside"), temp.path().join("outside"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("key"), "secret").unwrap();
        let folder = open(&temp, "inside", FileMode::ReadWrite, bytes, files).remove(0);
        Self { temp, folder }
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.temp.path().join("inside").join(path)
    }

    fn foreign_path(&self, path: &str) -> PathBuf {
        self.temp.path().join("outside").join(path)
    }

    fn write(
        &self,
        rest: &str,
        offset: u64,
        bytes: &str,
        truncate: bool,
    ) -> Result<u64, FolderFailure> {
        self.folder.write(FileChange {
            rest,
            offset,
            bytes: bytes.as_bytes(),
            truncate,
            durable: true,
            modes: FileModes::Plugin,
        })
    }

    fn put(&self, rest: &str, bytes: &str) -> Result<u64, FolderFailure> {
        self.write(rest, 0, bytes, true)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.inside(path)).unwrap()
    }
}

fn grant(temp: &TempDir, dir: &str, mode: FileMode, bytes: u64, files: u64) -> FileGrant {
    let path = temp.path().join(dir).to_str().unwrap().to_owned();
    FileGrant { dir: path, display_path: dir.to_owned(), at: format!("/{dir}"), mode, bytes, files }
}

fn open(temp: &TempDir, dir: &str, mode: FileMode, bytes: u64, files: u64) -> Vec<GrantedFolder> {
    GrantedFolder::open_all(&PluginName::from("p"), &[grant(temp, dir, mode, bytes, files)])
        .unwrap()
}

#[test]
fn files_are_made_replaced_patched_cut_and_removed() {
    let place = Place::new();
    assert_eq!(place.put("new/deep/a.txt", "0123456789").unwrap(), 10);
    assert_eq!(place.write("new/deep/a.txt", 2, "xy", false).unwrap(), 10);
    assert_eq!(place.read("new/deep/a.txt"), "01xy456789");
    assert_eq!(place.write("new/deep/a.txt", 3, "!", true).unwrap(), 4);
    assert_eq!(place.read("new/deep/a.txt"), "01x!");
    assert_eq!(place.write("new/deep/a.txt", 6, "z", false).unwrap(), 7);
    assert_eq!(place.read("new/deep/a.txt"), "01x!\0\0z");
    assert_eq!(
        place.write("new/deep/a.txt", 100, "", false).unwrap(),
        7,
        "nothing is no reason to grow"
    );
    assert_eq!(place.write("b.txt", 0, "made in pieces", false).unwrap(), 14);
    assert_eq!(place.put("b.txt", "").unwrap(), 0);
    place.folder.remove("b.txt", true).unwrap();
    place.folder.remove("b.txt", true).unwrap();
    place.folder.remove("no/such/folder", true).unwrap();
    assert!(!place.inside("b.txt").exists());
}

#[test]
fn a_folder_for_reading_is_not_changed_in_any_way() {
    let place = Place::new();
    place.put("a.txt", "as it was").unwrap();
    let folder = open(&place.temp, "inside", FileMode::Read, 1_000, 100).remove(0);
    let before = fs::metadata(place.inside("a.txt")).unwrap();
    for (rest, offset, truncate) in [
        ("a.txt", 0, true),
        ("a.txt", 0, false),
        ("a.txt", 4, true),
        ("new", 0, true),
        ("new/x", 0, false),
    ] {
        assert!(
            matches!(
                folder.write(FileChange {
                    rest,
                    offset,
                    bytes: b"",
                    truncate,
                    durable: true,
                    modes: FileModes::Plugin
                }),
                Err(FolderFailure::ReadOnly)
            ),
            "{rest}"
        );
    }
    assert!(matches!(folder.remove("a.txt", true), Err(FolderFailure::ReadOnly)));
    let after = fs::metadata(place.inside("a.txt")).unwrap();
    assert_eq!(
        (place.read("a.txt").as_str(), before.modified().unwrap()),
        ("as it was", after.modified().unwrap())
    );
    assert!(!place.inside("new").exists());
}

#[test]
fn no_link_is_written_through_or_replaced() {
    let place = Place::new();
    fs::write(place.inside("real.txt"), "real").unwrap();
    let links = [
        ("up", "../outside/key"),
        ("inner", "real.txt"),
        ("dangling", "../outside/made"),
        ("loop", "loop"),
        ("updir", "../outside"),
        ("indir", "sub"),
        ("self", "."),
    ];
    for (link, to) in links {
        symlink(to, place.inside(link)).unwrap();
    }
    symlink(place.foreign_path("key"), place.inside("absolute")).unwrap();
    for rest in [
        "up",
        "inner",
        "dangling",
        "loop",
        "absolute",
        "updir",
        "updir/key",
        "updir/made",
        "indir/a",
        "self/a",
        "updir/deep/er",
        "sub/../x",
    ] {
        for truncate in [true, false] {
            let written = place.write(rest, 0, "overwritten", truncate);
            assert!(written.is_err(), "{rest}: {written:?}");
        }
        if rest != "sub/../x" {
            assert!(matches!(place.folder.remove(rest, true), Err(FolderFailure::Link)), "{rest}");
        }
    }
    assert_eq!(fs::read_to_string(place.foreign_path("key")).unwrap(), "secret");
    assert_eq!(fs::read_dir(place.foreign_path("")).unwrap().count(), 1);
    assert_eq!(place.read("real.txt"), "real");
    assert!(place.inside("up").symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_dir(place.inside("sub")).unwrap().count(), 0);
}

/// The lexical check comes first; this one must suffice alone. As root all files can be opened, so
/// then only the links and the names test it.
#[test]
fn a_sync_depends_on_no_permission_to_write() {
    let place = Place::new();
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(place.inside(path), fs::Permissions::from_mode(mode)).unwrap()
    };
    for (path, bits) in [("read.txt", 0o444), ("write.txt", 0o222), ("shut.txt", 0o000)] {
        place.put(path, "x").unwrap();
        mode(path, bits);
    }
    place.put("sub/a.txt", "a").unwrap();
    fs::hard_link(place.inside("sub/a.txt"), place.inside("second.txt")).unwrap();
    symlink("sub/a.txt", place.inside("link")).unwrap();
    symlink("sub", place.inside("to-sub")).unwrap();
    symlink(".", place.inside("self")).unwrap();
    symlink("nowhere", place.inside("dangling")).unwrap();
    symlink("round", place.inside("round")).unwrap();
    symlink(place.foreign_path("key"), place.inside("out")).unwrap();
    symlink(place.foreign_path(""), place.inside("to-out")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(place.inside("pipe")).status().unwrap();
    assert!(pipe.success());
    for path in [
        "read.txt",
        "write.txt",
        "shut.txt",
        "sub",
        "sub/a.txt",
        "second.txt",
        "gone.txt",
        "no/such/file",
        "",
    ] {
        assert!(place.folder.sync(path).is_ok(), "{path}: {:?}", place.folder.sync(path));
    }
    for path in [
        "link",
        "to-sub",
        "to-sub/a.txt",
        "self",
        "dangling",
        "round",
        "round/a",
        "out",
        "to-out",
        "to-out/key",
        "pipe",
    ] {
        assert!(place.folder.sync(path).is_ok(), "{path}: {:?}", place.folder.sync(path));
    }
    assert_eq!(fs::read_to_string(place.foreign_path("key")).unwrap(), "secret");
    assert!(matches!(place.folder.sync("../outside/key"), Err(FolderFailure::LeadsOutside)));
}

#[test]
fn climbing_is_refused_by_the_handle_too() {
    let place = Place::new();
    for rest in [
        "../outside/key",
        "../outside/new",
        "sub/../../outside/key",
        "/etc/conclave-test",
        "..",
        "sub/..",
        ".",
        "sub/.",
        "",
    ] {
        assert!(place.put(rest, "x").is_err(), "{rest}");
        assert!(place.write(rest, 1, "x", false).is_err(), "{rest}");
        assert!(place.folder.remove(rest, true).is_err(), "{rest}");
    }
    assert_eq!(fs::read_to_string(place.foreign_path("key")).unwrap(), "secret");
    assert!(!place.foreign_path("new").exists());
}

#[test]
fn a_file_with_a_second_name_is_not_written() {
    let place = Place::new();
    fs::hard_link(place.foreign_path("key"), place.inside("hard")).unwrap();
    for truncate in [true, false] {
        assert!(matches!(
            place.write("hard", 0, "overwritten", truncate),
            Err(FolderFailure::HardLink)
        ));
    }
    place.folder.remove("hard", true).unwrap();
    assert_eq!(
        fs::read_to_string(place.foreign_path("key")).unwrap(),
        "secret",
        "one of its names is gone, not the file"
    );
}

#[test]
fn what_is_no_file_is_neither_written_nor_removed() {
    let place = Place::new();
    let pipe = place.inside("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.inside("socket")).unwrap();
    let mut special = vec!["pipe", "socket", "sub"];
    // Only root can create a device.
    let made = std::process::Command::new("mknod")
        .args([place.inside("zero").to_str().unwrap(), "c", "1", "5"])
        .output()
        .unwrap();
    if made.status.success() {
        special.push("zero");
    }
    for rest in special {
        assert!(matches!(place.put(rest, "x"), Err(FolderFailure::NotAFile)), "{rest}");
        assert!(matches!(place.write(rest, 0, "x", false), Err(FolderFailure::NotAFile)), "{rest}");
        assert!(matches!(place.folder.remove(rest, true), Err(FolderFailure::NotAFile)), "{rest}");
        assert!(place.inside(rest).symlink_metadata().is_ok());
    }
    fs::write(place.inside("file"), "").unwrap();
    assert!(matches!(place.put("file/below", "x"), Err(FolderFailure::NotADirectory)));
}

#[test]
fn what_a_plugin_wrote_cannot_be_run_and_is_not_for_everybody() {
    let place = Place::new();
    let mode = |path: &str| fs::metadata(place.inside(path)).unwrap().permissions().mode() & 0o7777;
    place.put("new/a", "x").unwrap();
    place.write("new/b", 0, "x", false).unwrap();
    for (path, most) in [("new/a", 0o640), ("new/b", 0o640), ("new", 0o750)] {
        assert_eq!(mode(path) & !most, 0, "{path}: {:o}", mode(path));
    }
    for (name, truncate) in [("whole.sh", true), ("part.sh", false)] {
        fs::write(place.inside(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(place.inside(name), fs::Permissions::from_mode(0o6755)).unwrap();
        place.write(name, 0, "echo hacked", truncate).unwrap();
        assert_eq!(mode(name), 0o644, "{name}");
    }
}

#[test]
fn a_whole_file_is_put_in_place_at_once_and_nothing_is_left_over() {
    let place = Place::new();
    place.put("a", "old").unwrap();
    let (mut reader, inode) = (
        fs::File::open(place.inside("a")).unwrap(),
        fs::metadata(place.inside("a")).unwrap().ino(),
    );
    place.put("a", "new").unwrap();
    let mut seen = String::new();
    io::Read::read_to_string(&mut reader, &mut seen).unwrap();
    assert_eq!((seen.as_str(), place.read("a").as_str()), ("old", "new"));
    assert_ne!(fs::metadata(place.inside("a")).unwrap().ino(), inode);
    assert_eq!(fs::read_dir(place.inside("")).unwrap().count(), 2);
}

#[test]
fn bytes_count_altogether_and_holes_count_too() {
    let place = Place::with_quota(100, 100);
    fs::write(place.inside("sub/there-before"), [0; 60]).unwrap();
    assert!(matches!(place.put("a", &"x".repeat(41)), Err(FolderFailure::Quota(100))));
    assert!(!place.inside("a").exists(), "nothing was written");
    place.put("a", &"x".repeat(40)).unwrap();
    assert!(matches!(place.write("a", 40, "x", false), Err(FolderFailure::Quota(100))));
    assert!(matches!(place.write("b", 50, "x", false), Err(FolderFailure::Quota(100))));
    assert!(matches!(place.write("b", u64::MAX, "x", false), Err(FolderFailure::Quota(100))));
    assert!(
        matches!(place.write("b", 1 << 40, "", true), Err(FolderFailure::Quota(100))),
        "a hole of a terabyte"
    );
    place.put("a", "less").unwrap();
    place.write("b", 35, "x", false).unwrap();
    assert!(matches!(place.put("c", "x"), Err(FolderFailure::Quota(100))));
    place.folder.remove("b", true).unwrap();
    place.put("c", "x").unwrap();
}

#[test]
fn files_and_directories_count_altogether() {
    let place = Place::with_quota(100, 4);
    place.put("a", "").unwrap();
    assert!(matches!(place.put("x/y/z", ""), Err(FolderFailure::Quota(4))));
    assert!(!place.inside("x").exists(), "no directory was made either");
    place.put("x/y", "").unwrap();
    assert!(matches!(place.put("b", ""), Err(FolderFailure::Quota(4))));
    place.put("a", "x").unwrap();
    place.folder.remove("a", true).unwrap();
    place.put("b", "").unwrap();
    fs::write(place.inside("from-outside"), "").unwrap();
    let reopened = open(&place.temp, "inside", FileMode::ReadWrite, 100, 4).remove(0);
    assert!(matches!(
        reopened.write(FileChange {
            rest: "b",
            offset: 0,
            bytes: b"",
            truncate: true,
            durable: true,
            modes: FileModes::Plugin
        }),
        Err(FolderFailure::Quota(4))
    ));
    reopened.remove("from-outside", true).unwrap();
}

#[test]
fn two_plugins_in_one_directory_share_its_room_however_fast_they_are() {
    let place = Place::with_quota(1_000, 1_000);
    let other = open(&place.temp, "inside", FileMode::ReadWrite, 1_000, 1_000).remove(0);
    let write = |folder: &GrantedFolder, name: &str| {
        for index in 0..100 {
            let _ = folder.write(FileChange {
                rest: &format!("{name}{index}"),
                offset: 0,
                bytes: &[0; 10],
                truncate: true,
                durable: true,
                modes: FileModes::Plugin,
            });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&place.folder, "a"));
        scope.spawn(|| write(&other, "b"));
    });
    let files =
        fs::read_dir(place.inside("")).unwrap().map(|file| file.unwrap().metadata().unwrap());
    assert_eq!(files.filter(fs::Metadata::is_file).map(|file| file.len()).sum::<u64>(), 1_000);
}

#[test]
fn a_directory_that_was_granted_for_reading_keeps_that_inside_a_wider_grant() {
    let place = Place::new();
    fs::create_dir_all(place.inside("sub/deep")).unwrap();
    let grants = [
        grant(&place.temp, "inside", FileMode::ReadWrite, 1_000, 100),
        grant(&place.temp, "inside/sub", FileMode::Read, 0, 0),
        FileGrant { at: "/again".to_owned(), ..grant(&place.temp, "inside", FileMode::Read, 0, 0) },
    ];
    let folders = GrantedFolder::open_all(&PluginName::from("p"), &grants).unwrap();
    let write = |folder: usize, rest: &str| {
        folders[folder].write(FileChange {
            rest,
            offset: 0,
            bytes: b"x",
            truncate: true,
            durable: true,
            modes: FileModes::Plugin,
        })
    };
    assert!(matches!(write(0, "sub/a"), Err(FolderFailure::Kept)));
    assert!(matches!(write(0, "sub/deep/a"), Err(FolderFailure::Kept)));
    assert!(matches!(folders[0].remove("sub/deep/a", true), Err(FolderFailure::Kept)));
    assert!(matches!(write(1, "a"), Err(FolderFailure::ReadOnly)));
    assert!(matches!(write(2, "a"), Err(FolderFailure::ReadOnly)));
    assert_eq!(write(0, "a").unwrap(), 1, "the same directory, under the name that may write");
}
