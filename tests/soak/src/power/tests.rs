//! The host's own writes, with a power cut before each change and sync of the disk in turn. Skipped
//! if no disk can be mounted. No test may map a file of the disk into memory, as SQLite does: this
//! process serves the disk, so it would deadlock.

use std::sync::mpsc::channel;

use conclave_runtime::durable_file::{FileAccess, create, make_folders, replace};
use conclave_runtime::plugin::Cache;

use super::*;
use crate::is_skipped;

const HARSH: [Survival; 4] =
    [Survival::Nothing, Survival::NamesOnly, Survival::BytesOnly, Survival::Some];

/// Runs `act` on a new disk after `prepare`, with a power cut before its first operation, its
/// second, and so on until it completes. Passes on the state after each cut, and whether `act` had
/// reported success.
fn at_every_cut<T: Send>(
    prepare: impl Fn(&Path),
    act: impl Fn(&Path) -> Result<T, String> + Sync,
    look: impl Fn(&Path, bool),
) {
    if is_skipped(can_cut_power()) {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for nth in 1.. {
        assert!(nth < 300, "it never ends");
        let mut was_cut = false;
        for (number, survival) in HARSH.iter().enumerate() {
            let folder = temp.path().join(format!("{nth}-{number}"));
            let mut power = Power::on(&folder, Order::Strict, "home").unwrap();
            let home = folder.join("home");
            prepare(&home);
            let done = std::thread::scope(|scope| {
                let (sender, ended) = channel();
                let out = sender.clone();
                power.cut_at(nth, move || out.send(()).unwrap_or_default());
                let (act, home) = (&act, &home);
                let acting = scope.spawn(move || {
                    let done = act(home);
                    sender.send(()).unwrap_or_default();
                    done
                });
                ended.recv().unwrap();
                power.release();
                acting.join().unwrap().is_ok()
            });
            was_cut |= power.is_out();
            power.cut(*survival, &mut Random::new(nth)).unwrap();
            let left = temp.path().join(format!("{nth}-{number}-left"));
            power.copy_to(&left).unwrap();
            look(&left.join("home"), done);
        }
        if !was_cut {
            return;
        }
    }
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

#[test]
fn a_replaced_file_is_the_old_one_or_the_new_one_and_the_new_one_once_it_is_said() {
    at_every_cut(
        |home| replace(&home.join("a"), b"old", &FileAccess::Usual).unwrap(),
        |home| replace(&home.join("a"), b"new", &FileAccess::Private).map_err(text),
        |home, done| match std::fs::read(home.join("a")).unwrap().as_slice() {
            b"new" => {}
            b"old" if !done => {}
            other => panic!("{:?} after {done}", String::from_utf8_lossy(other)),
        },
    );
}

#[test]
fn a_new_file_in_a_new_folder_is_there_once_it_is_said() {
    at_every_cut(
        |_| {},
        |home| {
            make_folders(&home.join("x/y"), 0o700).map_err(text)?;
            create(&home.join("x/y/a"), b"new", &FileAccess::Usual).map_err(text)
        },
        |home, done| assert!(!done || std::fs::read(home.join("x/y/a")).unwrap() == b"new"),
    );
}

#[test]
fn a_cache_opens_after_every_cut_of_its_first_start() {
    at_every_cut(
        |_| {},
        |home| Cache::open(&home.join("cache")).map_err(text),
        |home, _| {
            Cache::open(&home.join("cache")).unwrap();
        },
    );
}

/// Kills a process without a power cut: the next one sees its writes, and may lose power itself.
#[test]
fn a_kill_without_a_cut_keeps_what_was_not_synced() {
    if is_skipped(can_cut_power()) {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("disk");
    let mut power = Power::on(&folder, Order::Strict, "home").unwrap();
    let file = folder.join("home/a");
    std::fs::write(&file, b"not synced").unwrap();
    power.release();
    assert_eq!(std::fs::read(&file).unwrap(), b"not synced");
    power.copy_to(&temp.path().join("left-1")).unwrap();
    assert_eq!(std::fs::read(temp.path().join("left-1/home/a")).unwrap(), b"not synced");
    std::thread::scope(|scope| {
        let (sender, ended) = channel();
        power.cut_at(1, move || sender.send(()).unwrap());
        let acting = scope.spawn(|| std::fs::write(folder.join("home/b"), b"late"));
        ended.recv().unwrap();
        assert_eq!(power.held(), 1, "a process must not learn that the power went");
        power.release();
        assert!(acting.join().unwrap().is_err());
    });
    power.cut(Survival::Nothing, &mut Random::new(1)).unwrap();
    power.copy_to(&temp.path().join("left-2")).unwrap();
    assert!(
        !temp.path().join("left-2/home/a").exists(),
        "the cut takes what the killed process left"
    );
}
