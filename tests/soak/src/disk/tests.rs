//! Operations in, the state after a cut out.

use super::*;

/// Returns the disk after a cut as text: each path with its bytes.
fn after(disk: &Disk, survival: Survival, seed: u64) -> BTreeMap<String, String> {
    let mut disk = disk.clone();
    disk.cut();
    disk.restart(survival, &mut Random::new(seed));
    let (mut found, mut open) = (BTreeMap::new(), vec![(ROOT, String::new())]);
    while let Some((folder, path)) = open.pop() {
        for (name, ino, is_folder) in disk.list(folder).unwrap() {
            let path = format!("{path}/{name}");
            if is_folder {
                open.push((ino, path.clone()));
            }
            let bytes = if is_folder {
                "folder"
            } else {
                &String::from_utf8_lossy(disk.read(ino, 0, 1 << 20).unwrap())
            };
            found.insert(path, bytes.to_owned());
        }
    }
    found
}

fn paths<const N: usize>(expected: [(&str, &str); N]) -> BTreeMap<String, String> {
    expected.into_iter().map(|(path, bytes)| (path.to_owned(), bytes.to_owned())).collect()
}

fn file(disk: &mut Disk, name: &str, bytes: &str) -> Ino {
    let ino = disk.make(ROOT, name, false, 0o644).unwrap();
    disk.write(ino, 0, bytes.as_bytes()).unwrap();
    ino
}

#[test]
fn a_file_is_there_when_both_its_bytes_and_its_name_were_synced() {
    let mut disk = Disk::new(Order::Strict);
    let ino = file(&mut disk, "a", "text");
    let states = |disk: &Disk| {
        Survival::ALL.map(|survival| after(disk, survival, 1)).map(|state| state.get("/a").cloned())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(states(&disk)[..4], [None, some("text"), some(""), None]);
    disk.sync(ino, true).unwrap();
    assert_eq!(
        states(&disk)[..4],
        [None, some("text"), some("text"), None],
        "the name is not durable"
    );
    disk.sync_folder(ROOT).unwrap();
    assert_eq!(states(&disk), [(); 5].map(|()| some("text")), "whatever survives else");
}

#[test]
fn a_rename_before_the_sync_leaves_an_empty_file() {
    let mut disk = Disk::new(Order::Strict);
    let old = file(&mut disk, "a", "old");
    disk.sync(old, true).unwrap();
    disk.sync_folder(ROOT).unwrap();
    file(&mut disk, "draft", "new");
    disk.rename((ROOT, "draft"), (ROOT, "a"), false).unwrap();
    assert_eq!(after(&disk, Survival::NamesOnly, 1), paths([("/a", "")]));
    assert_eq!(after(&disk, Survival::Nothing, 1), paths([("/a", "old")]));
    assert_eq!(after(&disk, Survival::Everything, 1), paths([("/a", "new")]));
}

#[test]
fn a_synced_rename_shows_the_old_file_or_the_new_one_and_never_none() {
    let mut disk = Disk::new(Order::Strict);
    let old = file(&mut disk, "a", "old");
    disk.sync(old, true).unwrap();
    disk.sync_folder(ROOT).unwrap();
    let new = file(&mut disk, "draft", "new");
    disk.sync(new, true).unwrap();
    disk.rename((ROOT, "draft"), (ROOT, "a"), false).unwrap();
    let seen: BTreeSet<String> =
        (0..64).map(|seed| after(&disk, Survival::Some, seed)["/a"].clone()).collect();
    assert_eq!(seen, ["new", "old"].map(str::to_owned).into());
}

#[test]
fn a_file_in_a_new_folder_needs_the_folder_above_too() {
    let mut disk = Disk::new(Order::Strict);
    let folder = disk.make(ROOT, "sub", true, 0o755).unwrap();
    let ino = disk.make(folder, "a", false, 0o644).unwrap();
    disk.write(ino, 0, b"x").unwrap();
    disk.sync(ino, true).unwrap();
    disk.sync_folder(folder).unwrap();
    assert_eq!(after(&disk, Survival::Nothing, 1), paths([]));
    disk.sync_folder(ROOT).unwrap();
    assert_eq!(after(&disk, Survival::Nothing, 1), paths([("/sub", "folder"), ("/sub/a", "x")]));
}

#[test]
fn a_removed_file_is_back_until_its_folder_is_synced() {
    let mut disk = Disk::new(Order::Strict);
    let ino = file(&mut disk, "a", "x");
    disk.sync(ino, true).unwrap();
    disk.sync_folder(ROOT).unwrap();
    disk.remove(ROOT, "a", false).unwrap();
    assert_eq!(after(&disk, Survival::Nothing, 1), paths([("/a", "x")]));
    disk.sync_folder(ROOT).unwrap();
    assert_eq!(after(&disk, Survival::Nothing, 1), paths([]));
}

#[test]
fn writes_survive_in_any_order_and_torn_but_a_sector_is_whole() {
    let mut disk = Disk::new(Order::Strict);
    let ino = file(&mut disk, "a", &"0".repeat(1024));
    disk.sync(ino, true).unwrap();
    disk.sync_folder(ROOT).unwrap();
    disk.write(ino, 0, "1".repeat(1024).as_bytes()).unwrap();
    disk.write(ino, 512, "2".repeat(512).as_bytes()).unwrap();
    let seen: BTreeSet<String> = (0..256)
        .map(|seed| after(&disk, Survival::Some, seed)["/a"].clone())
        .map(|bytes| {
            assert!(
                bytes
                    .as_bytes()
                    .chunks(512)
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0])),
                "{bytes}"
            );
            format!("{}{}", &bytes[..1], &bytes[512..513])
        })
        .collect();
    assert_eq!(seen, ["00", "01", "02", "10", "11", "12"].map(str::to_owned).into());
}

#[test]
fn with_one_journal_a_sync_of_any_file_commits_all_names() {
    for (order, there) in [(Order::Strict, false), (Order::Journalled, true)] {
        let mut disk = Disk::new(order);
        file(&mut disk, "a", "");
        let other = file(&mut disk, "b", "x");
        disk.sync(other, true).unwrap();
        assert_eq!(after(&disk, Survival::Nothing, 1).contains_key("/a"), there);
    }
}

#[test]
fn of_a_journal_only_the_end_is_torn_off() {
    let mut disk = Disk::new(Order::Journalled);
    for name in ["a", "b", "c"] {
        file(&mut disk, name, "");
    }
    for seed in 0..64 {
        let left: Vec<String> = after(&disk, Survival::Some, seed).into_keys().collect();
        assert!(["/a", "/b", "/c"].map(str::to_owned).starts_with(&left), "{left:?}");
    }
}

#[test]
fn the_power_goes_before_the_nth_operation_and_nothing_is_done_after() {
    let mut disk = Disk::new(Order::Strict);
    disk.cut_at(Some(3));
    let ino = file(&mut disk, "a", "x");
    assert_eq!((disk.sync(ino, true), disk.is_out()), (Err(Refusal::Out), true));
    assert_eq!(disk.write(ino, 0, b"y"), Err(Refusal::Out));
    disk.restart(Survival::Everything, &mut Random::new(1));
    assert_eq!(disk.list(ROOT).unwrap().len(), 1);
    assert!(disk.write(ino, 0, b"y").is_ok(), "the power is back");
}

#[test]
fn one_seed_gives_one_state() {
    let mut disk = Disk::new(Order::Strict);
    for name in ["a", "b", "c", "d"] {
        file(&mut disk, name, &name.repeat(3_000));
    }
    for seed in 0..16 {
        assert_eq!(after(&disk, Survival::Some, seed), after(&disk, Survival::Some, seed));
    }
    assert!(
        (0..16).any(|seed| after(&disk, Survival::Some, seed) != after(&disk, Survival::Some, 0))
    );
}

#[test]
fn permissions_are_durable_after_a_whole_sync_and_not_after_one_of_the_data() {
    let mut disk = Disk::new(Order::Strict);
    let ino = file(&mut disk, "a", "x");
    disk.sync_folder(ROOT).unwrap();
    disk.set_mode(ino, 0o600).unwrap();
    let mode = |disk: &Disk| {
        let mut disk = disk.clone();
        disk.restart(Survival::Nothing, &mut Random::new(1));
        disk.status(ino).unwrap().mode
    };
    disk.sync(ino, true).unwrap();
    assert_eq!(mode(&disk), 0o644);
    disk.sync(ino, false).unwrap();
    assert_eq!(mode(&disk), 0o600);
}

#[test]
fn names_are_refused_as_an_operating_system_does() {
    let mut disk = Disk::new(Order::Strict);
    let a = file(&mut disk, "a", "x");
    let folder = disk.make(ROOT, "sub", true, 0o755).unwrap();
    disk.make(folder, "b", false, 0o644).unwrap();
    assert_eq!(disk.make(ROOT, "a", false, 0o644), Err(Refusal::Exists));
    assert_eq!(disk.make(a, "c", false, 0o644), Err(Refusal::NotAFolder));
    assert_eq!(disk.remove(ROOT, "sub", true), Err(Refusal::NotEmpty));
    assert_eq!(disk.remove(ROOT, "sub", false), Err(Refusal::IsAFolder));
    assert_eq!(disk.remove(ROOT, "none", false), Err(Refusal::NotFound));
    assert_eq!(disk.rename((ROOT, "a"), (folder, "b"), true), Err(Refusal::Exists));
    disk.rename((ROOT, "a"), (folder, "b"), false).unwrap();
    assert_eq!(disk.status(a).unwrap().links, 1);
    disk.link(a, ROOT, "again").unwrap();
    assert_eq!(disk.status(a).unwrap().links, 2);
}
