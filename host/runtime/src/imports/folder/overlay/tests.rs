//! An overlay answers like a folder that is really written, and leaves its own folder alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use conclave_core::permissions::grants::{FileGrant, FileMode};
use conclave_core::types::ids::{PluginName, RoomId};
use tempfile::TempDir;

use super::super::tests::request;
use super::super::{FileModes, read_at};
use super::*;
use crate::storage::overlay::{
    ChangeDecisionKind, OverlayError, RunChanges, blocked_changes, change_decisions,
    pending_changes,
};

#[cfg(feature = "postgres")]
mod database;

/// A folder with an overlay, in a store beside it.
struct Rig {
    temp: TempDir,
    folder: GrantedFolder,
    run: Arc<RunOverlays>,
}

const RUN: &str = "run";

fn grant(dir: &Path, mode: FileMode, (bytes, files): (u64, u64)) -> GrantedFolder {
    let dir = dir.to_str().unwrap().to_owned();
    let grant =
        FileGrant { dir, display_path: "base".to_owned(), at: "/f".to_owned(), mode, bytes, files };
    GrantedFolder::open(&PluginName::from("p"), &grant).unwrap()
}

fn filled(dir: &Path) {
    fs::create_dir_all(dir.join("d/e")).unwrap();
    fs::create_dir_all(dir.join("out")).unwrap();
    for (path, text) in [("a", "one\ntwo\n"), ("b", "0123456789"), ("d/a", "da"), ("d/e/f", "")] {
        fs::write(dir.join(path), text).unwrap();
    }
    symlink("d", dir.join("link")).unwrap();
    symlink("a", dir.join("to-a")).unwrap();
    symlink("../secret", dir.join("up")).unwrap();
}

impl Rig {
    fn new(quota: (u64, u64)) -> Self {
        let temp = tempfile::tempdir().unwrap();
        filled(&temp.path().join("base"));
        fs::write(temp.path().join("secret"), "key").unwrap();
        let folder = grant(&temp.path().join("base"), FileMode::Overlay, quota);
        let run = RunOverlays::of(OverlayPlace::in_folder(
            &temp.path().join("store"),
            &RoomId::from(RUN),
        ));
        Self { temp, folder, run }
    }

    fn base(&self) -> PathBuf {
        self.temp.path().join("base")
    }

    fn view<T>(
        &self,
        work: impl FnOnce(&OverlayView<'_>) -> Result<T, FolderFailure>,
    ) -> Result<T, FolderFailure> {
        let super::super::FolderAccess::Overlay(grant) = &self.folder.access else {
            panic!("it is an overlay")
        };
        let overlay = self.run.open(&grant.origin)?;
        work(&OverlayView::new(&self.run, &overlay, &self.folder, grant.most))
    }

    fn write(&self, rest: &str, bytes: &[u8]) -> Result<u64, FolderFailure> {
        self.view(|view| view.write(change(rest, 0, bytes, true)))
    }

    fn remove(&self, rest: &str) -> Result<(), FolderFailure> {
        self.view(|view| view.remove(rest, true))
    }

    fn read(&self, rest: &str) -> Result<String, FolderFailure> {
        let file = self.view(|view| view.open_file(rest))?;
        Ok(String::from_utf8(read_at(&file, 0, 1_000)?).unwrap())
    }

    /// Stops and starts the host.
    fn restart(self) -> Self {
        let Self { temp, folder, run } = self;
        let place = run.place.clone();
        drop(run);
        Self { temp, folder, run: RunOverlays::of(place) }
    }

    /// Ends the run and returns its changes.
    fn ended(self) -> (TempDir, RunChanges) {
        drop(self.run);
        let changes = changes(&self.temp);
        (self.temp, changes)
    }
}

fn changes(temp: &TempDir) -> RunChanges {
    RunChanges::read(&temp.path().join("store"), &RoomId::from(RUN)).unwrap()
}

fn change<'a>(rest: &'a str, offset: u64, bytes: &'a [u8], truncate: bool) -> FileChange<'a> {
    FileChange { rest, offset, bytes, truncate, durable: true, modes: FileModes::Plugin }
}

/// Returns the files below a folder, without following links.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

mod model {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Write { path: String, offset: u64, bytes: Vec<u8>, truncate: bool },
        Remove(String),
        Restart,
    }

    fn act() -> impl Strategy<Value = Act> {
        let path = || "(d/|d/e/|link/|to-a/|new/|new/n/|a/)?(a|b|f|link|to-a|up|d|e|new|x)";
        prop_oneof![
            6 => (path(), 0..12_u64, prop::collection::vec(any::<u8>(), 0..6), any::<bool>())
                .prop_map(|(path, offset, bytes, truncate)| Act::Write {
                    path, offset: if truncate { 0 } else { offset }, bytes, truncate
                }),
            4 => path().prop_map(Act::Remove),
            1 => Just(Act::Restart),
        ]
    }

    /// Returns a result without what an overlay need not have in common with a folder.
    fn word<T>(result: Result<T, FolderFailure>) -> Result<T, String> {
        result.map_err(|failure| match failure {
            FolderFailure::Other(error) => error.kind().to_string(),
            failure => format!("{failure:?}"),
        })
    }

    /// Removes the directories of `real` that an overlay of `base` no longer has: those without a
    /// file that `base` does not have either.
    fn remove_emptied(real: &Path, base: &Path) {
        for entry in fs::read_dir(real).unwrap() {
            let (real, base) = {
                let name = entry.unwrap().file_name();
                (real.join(&name), base.join(&name))
            };
            if real.is_symlink() || !real.is_dir() {
                continue;
            } else if base.is_dir() || !tree(&real).is_empty() {
                remove_emptied(&real, &base);
            } else {
                fs::remove_dir_all(&real).unwrap();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn an_overlay_reads_and_writes_like_a_folder(acts in prop::collection::vec(act(), 1..25)) {
            let mut rig = Rig::new((1 << 20, 1_000));
            let real = rig.temp.path().join("real");
            filled(&real);
            let direct = grant(&real, FileMode::ReadWrite, (1 << 20, 1_000));
            let before = tree(&rig.base());
            for act in &acts {
                match act {
                    Act::Write { path, offset, bytes, truncate } => {
                        let change = change(path, *offset, bytes, *truncate);
                        let overlaid = word(rig.view(|view| view.write(change)));
                        prop_assert_eq!(overlaid, word(direct.write(change)), "{:?}", act);
                    }
                    Act::Remove(path) => {
                        let overlaid = word(rig.remove(path));
                        prop_assert_eq!(overlaid, word(direct.remove(path, true)), "{:?}", act);
                    }
                    Act::Restart => rig = rig.restart(),
                }
                remove_emptied(&real, &rig.base());
            }
            prop_assert_eq!(tree(&rig.base()), before, "the folder is as it was");
            let real_files = tree(&real);
            for (path, content) in &real_files {
                let file = word(rig.view(|view| view.open_file(path)));
                let bytes = read_at(&file.unwrap(), 0, 1_000).unwrap();
                prop_assert_eq!(&bytes, content, "{}", path);
            }
            for directory in ["", "d", "d/e", "link", "new", "a"] {
                let listed = |page: Result<Page, FolderFailure>| {
                    let entries = page.map(|page| page.entries).unwrap_or_default();
                    entries.into_iter().map(|entry| (entry.name, entry.is_directory, entry.length)).collect::<Vec<_>>()
                };
                let overlaid = rig.view(|view| view.page(request(directory, None, 100, 1_000), None));
                prop_assert_eq!(
                    listed(overlaid),
                    listed(direct.page(request(directory, None, 100, 1_000), None)),
                    "{}", directory
                );
            }
            let (temp, changes) = rig.ended();
            changes.apply().unwrap();
            prop_assert_eq!(tree(&temp.path().join("base")), real_files, "applied");
            prop_assert_eq!(pending_changes(&temp.path().join("store"), &RoomId::from(RUN)), 0);
        }
    }
}

#[test]
fn a_changed_file_has_its_content_under_every_name() {
    let rig = Rig::new((100, 10));
    rig.write("d/a", b"new").unwrap();
    assert_eq!(rig.read("link/a").unwrap(), "new");
    rig.remove("a").unwrap();
    assert!(matches!(rig.read("to-a"), Err(FolderFailure::NotFound)));
    rig.write("d/n/x", b"x").unwrap();
    assert_eq!(rig.read("link/n/x").unwrap(), "x");
    let names = |page: Page| page.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    let listed = rig.view(|view| view.page(request("", None, 100, 100), None)).unwrap();
    assert_eq!(names(listed), ["b", "d", "link", "out"]);
    assert_eq!(
        names(rig.view(|view| view.page(request("link", None, 9, 99), None)).unwrap()),
        ["a", "e", "n"]
    );
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let rig = Rig::new((100, 10));
    rig.write("x", b"x").unwrap();
    for rest in ["up", "../secret", "d/../../secret", "/etc/passwd", "link/../../secret"] {
        for result in [
            rig.read(rest).map(drop),
            rig.view(|view| view.look(rest)).map(drop),
            rig.view(|view| view.page(request(rest, None, 9, 9), None)).map(drop),
            rig.write(rest, b"x").map(drop),
            rig.remove(rest),
        ] {
            assert!(
                matches!(result, Err(FolderFailure::LeadsOutside | FolderFailure::Link)),
                "{rest}: {result:?}"
            );
        }
    }
    assert_eq!(fs::read_to_string(rig.temp.path().join("secret")).unwrap(), "key");
}

#[test]
fn names_of_the_host_are_plain_names_in_an_overlay() {
    let rig = Rig::new((1_000, 20));
    let names = [".wh.a", ".wh..wh..opq", "changes.jsonl", "folder.json", "files/x", "lock"];
    for name in names {
        rig.write(name, name.as_bytes()).unwrap();
    }
    let rig = rig.restart();
    for name in names {
        assert_eq!(rig.read(name).unwrap(), name);
    }
    assert_eq!(rig.read("a").unwrap(), "one\ntwo\n");
}

#[test]
fn a_removed_file_does_not_come_back() {
    let rig = Rig::new((100, 10));
    rig.remove("b").unwrap();
    let rig = rig.restart();
    // A partial write begins an empty file, not the old one.
    rig.view(|view| view.write(change("b", 2, b"x", false))).unwrap();
    assert_eq!(rig.read("b").unwrap(), "\0\0x");
    rig.remove("b").unwrap();
    rig.write("d/a", b"new").unwrap();
    rig.remove("d/a").unwrap();
    // The operator changes the folder meanwhile.
    fs::write(rig.base().join("b"), "again").unwrap();
    let rig = rig.restart();
    for rest in ["b", "d/a", "link/a"] {
        assert!(matches!(rig.read(rest), Err(FolderFailure::NotFound)), "{rest}");
        assert!(rig.view(|view| view.look(rest)).is_err(), "{rest}");
    }
}

#[test]
fn changed_files_count_against_the_quota_and_the_folder_does_not() {
    let rig = Rig::new((20, 3));
    fs::write(rig.base().join("large"), [0; 100]).unwrap();
    // A copy counts as a whole, even if the write shortens nothing and adds one byte.
    let one = change("large", 0, b"x", false);
    assert!(matches!(rig.view(|view| view.write(one)), Err(FolderFailure::Quota(20))));
    assert!(matches!(rig.write("x", &[0; 21]), Err(FolderFailure::Quota(20))));
    let hole = change("x", 1 << 40, b"x", false);
    assert!(matches!(rig.view(|view| view.write(hole)), Err(FolderFailure::Quota(20))));
    rig.write("b", b"012345678901").unwrap();
    assert!(matches!(rig.write("x", &[0; 9]), Err(FolderFailure::Quota(20))));
    rig.write("x", &[0; 8]).unwrap();
    // A removed file of the folder counts as a file, or a guest could fill the disk with records.
    rig.remove("a").unwrap();
    let rig = rig.restart();
    assert!(matches!(rig.write("y", b""), Err(FolderFailure::Quota(3))));
    assert!(matches!(rig.remove("d/a"), Err(FolderFailure::Quota(3))));
    rig.remove("x").unwrap();
    rig.write("y", &[0; 8]).unwrap();
    assert_eq!(pending_changes(&rig.temp.path().join("store"), &RoomId::from(RUN)), 3);
}

#[test]
fn a_write_that_was_interrupted_before_its_record_leaves_nothing() {
    let rig = Rig::new((100, 10));
    rig.write("x", b"x").unwrap();
    let overlay = overlay_folder(rig.run.folder(), &rig.base().canonicalize().unwrap());
    let files = overlay.join(FILES);
    fs::write(files.join(content_name("b")), "half of it").unwrap();
    fs::write(files.join(".conclave-unfinished-1"), "half").unwrap();
    let rig = rig.restart();
    assert_eq!(rig.read("b").unwrap(), "0123456789");
    assert_eq!(fs::read_dir(&files).unwrap().count(), 1);
    // One that is left while the overlay is open is no beginning of the next write.
    fs::write(files.join(content_name("c")), "half of it").unwrap();
    rig.view(|view| view.write(change("c", 2, b"x", false))).unwrap();
    assert_eq!(rig.read("c").unwrap(), "\0\0x");
}

#[test]
fn a_directory_with_a_read_only_grant_of_its_own_stays_closed() {
    let mut rig = Rig::new((100, 10));
    rig.folder.read_only =
        vec![super::super::Identity::of(&rig.folder.directory("d").unwrap()).unwrap()];
    assert!(matches!(rig.write("d/a", b"x"), Err(FolderFailure::Kept)));
    assert!(matches!(rig.remove("d/a"), Err(FolderFailure::Kept)));
    rig.write("a", b"x").unwrap();
}

#[test]
fn changes_are_applied_as_they_are_and_a_script_stays_executable() {
    let rig = Rig::new((100, 10));
    fs::set_permissions(rig.base().join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    rig.write("a", b"new").unwrap();
    rig.write("new/n/x", b"x").unwrap();
    rig.remove("d/a").unwrap();
    rig.write("d/a/below", b"x").unwrap();
    let (temp, changes) = rig.ended();
    let files: Vec<_> = changes.folders[0].files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["a", "d/a", "d/a/below", "new/n/x"]);
    let base = temp.path().join("base");
    // An interrupted application wrote this file, and removed that one.
    fs::write(base.join("a"), "new").unwrap();
    fs::remove_file(base.join("d/a")).unwrap();
    assert_eq!(changes.apply().unwrap(), 4);
    assert_eq!(fs::read_to_string(base.join("d/a/below")).unwrap(), "x");
    assert_eq!(fs::metadata(base.join("a")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(pending_changes(&temp.path().join("store"), &RoomId::from(RUN)), 0);
    let remaining = tree(&temp.path().join("store/overlays").join(RUN));
    assert_eq!(remaining.keys().collect::<Vec<_>>(), ["decisions.jsonl", "lock"]);
}

#[test]
fn decisions_about_changes_are_kept() {
    let rig = Rig::new((100, 10));
    rig.write("a", b"new").unwrap();
    rig.write("b", b"new").unwrap();
    let (temp, mut pending) = rig.ended();
    pending.retain(|path| path == "a");
    pending.apply().unwrap();
    changes(&temp).discard().unwrap();
    let decisions = change_decisions(&temp.path().join("store"), &RoomId::from(RUN)).unwrap();
    let summaries: Vec<_> = decisions
        .iter()
        .map(|one| (one.principal.as_str(), one.kind, one.folder.as_str(), &one.files[..]))
        .collect();
    let (applied, dropped) = (ChangeDecisionKind::Applied, ChangeDecisionKind::Dropped);
    assert_eq!(
        summaries,
        [
            ("operator", applied, "base", &["a".to_owned()][..]),
            ("operator", dropped, "base", &["b".to_owned()][..]),
        ]
    );
}

#[test]
fn a_folder_that_changed_since_is_left_as_it_is() {
    let rig = Rig::new((100, 10));
    rig.write("a", b"new").unwrap();
    rig.write("b", b"new").unwrap();
    rig.write("x", b"new").unwrap();
    rig.write("d/y", b"new").unwrap();
    let base = rig.base();
    fs::write(base.join("b"), "other").unwrap();
    symlink("../secret", base.join("x")).unwrap();
    fs::rename(base.join("d"), base.join("moved")).unwrap();
    symlink("out", base.join("d")).unwrap();
    let before = tree(&base);
    let (temp, mut pending) = rig.ended();
    let Err(OverlayError::Conflicts { files, .. }) = pending.apply() else { panic!("refused") };
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["b", "d/y", "x"], "{files:?}");
    assert_eq!(tree(&base), before, "nothing was applied");
    assert_eq!(fs::read_to_string(temp.path().join("secret")).unwrap(), "key");
    pending.retain(|path| path == "a");
    assert_eq!(pending.apply().unwrap(), 1);
    assert_eq!(fs::read_to_string(base.join("a")).unwrap(), "new");
    assert_eq!(changes(&temp).discard().unwrap(), 3);
    assert!(changes(&temp).folders.is_empty());
}

#[test]
fn changes_of_a_live_run_are_neither_applied_nor_dropped() {
    let rig = Rig::new((100, 10));
    rig.write("a", b"new").unwrap();
    let pending = changes(&rig.temp);
    assert!(matches!(pending.apply(), Err(OverlayError::InUse { .. })));
    assert!(matches!(pending.discard(), Err(OverlayError::InUse { .. })));
    assert_eq!(pending.folders[0].files.len(), 1);
}

/// Returns the paths of the conflicts, after checking that nothing was written.
fn conflicts(pending: &RunChanges, base: &Path) -> Vec<String> {
    let before = tree(base);
    let Err(OverlayError::Conflicts { files, .. }) = pending.apply() else { panic!("refused") };
    assert_eq!(tree(base), before, "nothing was applied");
    files.into_iter().map(|file| file.path).collect()
}

#[test]
fn a_file_of_the_operator_in_the_place_of_a_removed_one_is_not_overwritten() {
    let rig = Rig::new((100, 10));
    rig.remove("a").unwrap();
    rig.write("a/b", b"new").unwrap();
    let base = rig.base();
    fs::remove_file(base.join("a")).unwrap();
    fs::create_dir(base.join("a")).unwrap();
    fs::write(base.join("a/b"), "mine").unwrap();
    let (_temp, mut pending) = rig.ended();
    let file = &pending.folders[0].files[1];
    assert!(file.conflict.is_some() && file.old.is_some(), "{file:?}");
    assert_eq!(conflicts(&pending, &base), ["a", "a/b"]);
    pending.retain(|path| path == "a/b");
    assert_eq!(conflicts(&pending, &base), ["a/b"]);
}

#[test]
fn a_part_of_the_changes_that_needs_another_one_is_refused_before_anything_is_written() {
    let rig = Rig::new((100, 10));
    rig.write("0", b"new").unwrap();
    rig.remove("a").unwrap();
    rig.write("a/b", b"new").unwrap();
    let base = rig.base();
    let (temp, mut pending) = rig.ended();
    pending.retain(|path| path != "a");
    assert_eq!(conflicts(&pending, &base), ["a/b"]);
    assert_eq!(changes(&temp).apply().unwrap(), 3);
    assert_eq!(fs::read_to_string(base.join("a/b")).unwrap(), "new");
}

#[test]
fn changes_are_applied_and_dropped_as_they_were_read() {
    let rig = Rig::new((100, 10)).restart();
    rig.write("a", b"shown").unwrap();
    rig.write("b", b"shown").unwrap();
    let (temp, mut pending) = rig.ended();
    // The run is resumed, and ends, while a person reads the difference.
    let folder = grant(&temp.path().join("base"), FileMode::Overlay, (100, 10));
    let run =
        RunOverlays::of(OverlayPlace::in_folder(&temp.path().join("store"), &RoomId::from(RUN)));
    let rig = Rig { temp, folder, run };
    rig.write("a", b"not shown").unwrap();
    let (temp, base) = (rig.temp, rig.run);
    drop(base);
    let before = tree(&temp.path().join("base"));
    let folder = &pending.folders[0];
    let changed = |result: Result<usize, OverlayError>| matches!(result, Err(OverlayError::ChangedAgain { files, .. }) if files == ["a"]);
    assert!(changed(folder.contents(&folder.files[0]).map(|_| 0)));
    assert!(changed(pending.apply()) && changed(pending.discard()));
    assert_eq!(tree(&temp.path().join("base")), before);
    assert_eq!(changes(&temp).folders[0].files.len(), 2);
    pending.retain(|path| path == "b");
    assert_eq!(pending.apply().unwrap(), 1);
}

#[test]
fn two_versions_of_a_file_are_refused_before_anything_is_written() {
    let rig = Rig::new((100, 10));
    rig.write("d/a", b"one").unwrap();
    rig.write("d/e/f", b"one").unwrap();
    let below = grant(&rig.base().join("d"), FileMode::Overlay, (100, 10));
    let inner = Rig { temp: rig.temp, folder: below, run: Arc::clone(&rig.run) };
    inner.write("a", b"two").unwrap();
    inner.write("x", b"two").unwrap();
    let base = inner.temp.path().join("base");
    drop(rig.run);
    let (temp, mut pending) = inner.ended();
    assert_eq!(conflicts(&pending, &base).len(), 1);
    pending.retain(|path| path != "a");
    assert_eq!(pending.apply().unwrap(), 3);
    assert_eq!(fs::read_to_string(base.join("d/a")).unwrap(), "one");
    assert_eq!(conflicts(&changes(&temp), &base), ["a"], "the folder changed since");
}

#[test]
fn changes_are_not_applied_through_a_link_in_the_place_of_the_folder() {
    let rig = Rig::new((100, 10));
    rig.write("a", b"new").unwrap();
    let (temp, _) = rig.ended();
    let (base, moved) = (temp.path().join("base"), temp.path().join("moved"));
    fs::rename(&base, &moved).unwrap();
    symlink("moved", &base).unwrap();
    assert_eq!(conflicts(&changes(&temp), &moved), ["a"]);
}

#[test]
fn a_file_with_a_second_name_is_removed_and_never_written() {
    let rig = Rig::new((100, 10));
    rig.remove("a").unwrap();
    rig.write("b", b"new").unwrap();
    let base = rig.base();
    for name in ["a", "b"] {
        fs::hard_link(base.join(name), rig.temp.path().join(name)).unwrap();
    }
    let (temp, mut pending) = rig.ended();
    assert_eq!(conflicts(&pending, &base), ["b"]);
    pending.retain(|path| path == "a");
    assert_eq!(pending.apply().unwrap(), 1);
    assert!(!base.join("a").exists());
    assert_eq!(fs::read_to_string(temp.path().join("a")).unwrap(), "one\ntwo\n");
}

#[test]
fn a_change_of_another_file_than_the_run_read_is_a_conflict() {
    let rig = Rig::new((1_000, 10));
    let base = rig.base();
    for path in ["a", "b", "d/a", "d/e/f"] {
        rig.read(path).unwrap();
    }
    assert!(matches!(rig.read("new"), Err(FolderFailure::NotFound)));
    // Somebody saves them before the run writes, another one as it was, and one is the run's alone.
    for path in ["a", "b", "d/a", "new"] {
        fs::write(base.join(path), "what somebody else wrote\n").unwrap();
    }
    // The run goes on in another process.
    let rig = rig.restart();
    rig.read("a").unwrap();
    rig.write("a", b"from the old text").unwrap();
    rig.view(|view| view.write(change("b", 3, b"x", false))).unwrap();
    rig.remove("d/a").unwrap();
    rig.write("d/e/f", b"x").unwrap();
    rig.write("new", b"x").unwrap();
    rig.write("unread", b"x").unwrap();
    // Written again and removed, they are as little known as before.
    rig.write("a", b"again").unwrap();
    rig.write("d/a", b"again").unwrap();
    rig.remove("b").unwrap();
    let store = rig.temp.path().join("store");
    assert_eq!(blocked_changes(&store, &RoomId::from(RUN)), 4);
    let (temp, mut pending) = rig.ended();
    assert_eq!(conflicts(&pending, &base), ["a", "b", "d/a", "new"]);
    pending.retain(|path| path.contains('e') && path != "new");
    assert_eq!(pending.apply().unwrap(), 2, "{pending:?}");
    changes(&temp).discard().unwrap();
    // What a person applied is no change of somebody else.
    let (temp, folder) = (temp, grant(&base, FileMode::Overlay, (1_000, 10)));
    let run =
        RunOverlays::of(OverlayPlace::in_folder(&temp.path().join("store"), &RoomId::from(RUN)));
    let rig = Rig { temp, folder, run };
    rig.read("d/e/f").unwrap();
    rig.write("d/e/f", b"y").unwrap();
    let (_temp, pending) = rig.ended();
    assert_eq!(pending.apply().unwrap(), 1);
}

#[test]
fn a_lost_content_concerns_its_file_alone() {
    let rig = Rig::new((1_000, 10));
    for path in ["a", "b", "new"] {
        rig.write(path, b"x").unwrap();
    }
    let origin = rig.base().canonicalize().unwrap();
    let files = overlay_folder(rig.run.folder(), &origin).join(FILES);
    fs::remove_file(files.join(content_name("b"))).unwrap();
    let base = rig.base();
    let (temp, mut pending) = rig.ended();
    let store = temp.path().join("store");
    let is_lost: Vec<_> = pending.folders[0].files.iter().map(|file| file.is_lost).collect();
    assert_eq!(is_lost, [false, true, false]);
    assert_eq!(blocked_changes(&store, &RoomId::from(RUN)), 1);
    let folder = &pending.folders[0];
    assert_eq!(folder.contents(&folder.files[1]).unwrap().new, None);
    assert_eq!(conflicts(&pending, &base), ["b"]);
    pending.retain(|path| path != "b");
    assert_eq!(pending.apply().unwrap(), 2);
    assert_eq!(changes(&temp).discard().unwrap(), 1);
    assert_eq!(pending_changes(&store, &RoomId::from(RUN)), 0);
}

/// A link would let another file be applied, and a pipe without a writer would be waited for.
#[test]
fn what_is_no_file_in_the_place_of_a_content_is_never_followed() {
    let rig = Rig::new((1_000, 10));
    for path in ["a", "one", "two"] {
        rig.write(path, b"x").unwrap();
    }
    let origin = rig.base().canonicalize().unwrap();
    let files = overlay_folder(rig.run.folder(), &origin).join(FILES);
    let secret = rig.temp.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    for path in ["one", "two"] {
        fs::remove_file(files.join(content_name(path))).unwrap();
    }
    symlink(&secret, files.join(content_name("one"))).unwrap();
    let pipe = files.join(content_name("two"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let base = rig.base();
    let (temp, mut pending) = rig.ended();
    let store = temp.path().join("store");
    assert_eq!(blocked_changes(&store, &RoomId::from(RUN)), 2);
    assert_eq!(conflicts(&pending, &base), ["one", "two"]);
    crate::support::overlay_files::copy(&store, &temp.path().join("copy")).unwrap();
    pending.retain(|path| path == "a");
    assert_eq!(pending.apply().unwrap(), 1);
    assert_eq!(changes(&temp).discard().unwrap(), 2);
    assert!(!base.join("one").exists() && !base.join("two").exists());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
}

#[test]
fn what_a_person_applies_has_the_permissions_of_the_persons_own_files() {
    let rig = Rig::new((1_000, 10));
    rig.write("new/x", b"x").unwrap();
    let base = rig.base();
    let (_temp, pending) = rig.ended();
    pending.apply().unwrap();
    // As this process, with its umask, makes a file and a folder.
    fs::create_dir(base.join("own")).unwrap();
    fs::write(base.join("own/x"), "x").unwrap();
    let mode = |path: &str| fs::metadata(base.join(path)).unwrap().permissions().mode();
    assert_eq!((mode("new"), mode("new/x")), (mode("own"), mode("own/x")));
}

/// The run writes and removes files as fast as it can while the copies are made.
#[test]
fn a_copy_of_a_live_overlay_has_the_content_of_each_of_its_changes() {
    let rig = Rig::new((1_000_000, 100));
    rig.write("kept", b"kept").unwrap();
    let store = rig.temp.path().join("store");
    let rounds = std::sync::atomic::AtomicUsize::new(0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(order) {
                for number in 0..20 {
                    let name = format!("n{number}");
                    let change = FileChange { durable: false, ..change(&name, 0, b"x", true) };
                    rig.view(|view| view.write(change)).unwrap();
                }
                for number in 0..20 {
                    rig.view(|view| view.remove(&format!("n{number}"), false)).unwrap();
                }
                rounds.fetch_add(1, order);
            }
        });
        let mut copies = 0;
        // Each copy is made while the run changes files.
        while copies < 40 || rounds.load(order) < 40 {
            let to = rig.temp.path().join(format!("copy{copies}"));
            crate::support::overlay_files::copy(&store, &to).unwrap();
            let copied = RunChanges::read(&to, &RoomId::from(RUN)).unwrap();
            let files = &copied.folders[0].files;
            assert!(files.iter().any(|file| file.path == "kept"));
            let lost_files: Vec<_> = files.iter().filter(|file| file.is_lost).collect();
            is_over.store(!lost_files.is_empty(), order);
            assert!(lost_files.is_empty(), "{lost_files:?}");
            copies += 1;
        }
        is_over.store(true, order);
    });
}

/// Reads run on the threads of the executor. A write may wait long for the disk.
#[test]
fn no_read_waits_for_a_write() {
    let rig = Rig::new((1_000, 10));
    rig.write("a", b"changed").unwrap();
    rig.view(|view| {
        let _writing = lock_data(&view.overlay.writer);
        assert_eq!(view.look("a")?.length, 7);
        assert_eq!(view.look("b")?.length, 10);
        assert_eq!(read_at(&view.open_file("to-a")?, 0, 10)?, b"changed");
        assert!(!view.page(request("", None, 10, 100), None)?.entries.is_empty());
        Ok(())
    })
    .unwrap();
}

/// The file is sparse: hashing it would take minutes.
#[test]
fn a_file_that_is_too_large_to_be_hashed_is_neither_replaced_nor_removed() {
    let rig = Rig::new((1_000, 10));
    let large = fs::File::create(rig.base().join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let is_refused = |failure| matches!(failure, FolderFailure::TooLarge { most: HASHED });
    assert!(is_refused(rig.write("large", b"x").unwrap_err()));
    assert!(is_refused(rig.remove("large").unwrap_err()));
    assert_eq!(rig.view(|view| view.look("large")).unwrap().length, 1 << 40);
    rig.remove("b").unwrap();
}

#[test]
fn a_digest_belongs_to_the_file_that_is_there_when_it_is_recorded() {
    let rig = Rig::new((1_000, 10));
    let open_file = |name: &str| {
        existing(&rig.folder.dir, name, OpenOptions::new().read(true)).unwrap().unwrap()
    };
    let of_a = HashedFile::of(&open_file("a")).unwrap();
    let (digest_a, b) = (of_a.digest.clone(), open_file("b"));
    let of_b = HashedFile::digest_of(Some(of_a), &b).unwrap();
    assert!(of_b != digest_a && of_b.length == 10, "{of_b:?}");
    let rehashed = HashedFile::of(&open_file("a")).unwrap();
    assert_eq!(HashedFile::digest_of(Some(rehashed), &open_file("a")).unwrap(), digest_a);
}
