//! Decisions about changes whose command is killed before their end.

use tempfile::TempDir;

use super::*;
use crate::support::overlay_files::{FILES, content_name, overlay_folder, run_folder};

const RUN: &str = "run";

/// Returns a store with a run that has written the files `a`, `b` and `c`, and its folder.
fn store() -> (TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let base = temp.path().canonicalize().unwrap().join("base");
    std::fs::create_dir(&base).unwrap();
    let store = temp.path().join("store");
    let overlay = overlay_folder(&run_folder(&store, RUN), &base);
    let origin = OverlayOrigin { dir: base.clone(), display_path: "base".to_owned() };
    let mut log = OverlayLog::create(&overlay, &origin).unwrap();
    for path in ["a", "b", "c"] {
        std::fs::write(overlay.join(FILES).join(content_name(path)), path).unwrap();
        let path = path.to_owned();
        let record = ChangeRecord::Written { path, base: None, changed_since_read: false };
        log.append_line(&record, true).unwrap();
    }
    (temp, store, base)
}

/// Begins to apply all changes, and is killed after the first file.
fn killed_after_the_first(store: &Path) {
    let changes = RunChanges::read(store, &RoomId::from(RUN)).unwrap();
    let _lock = changes.lock().unwrap();
    let mut opened = changes.checked().unwrap();
    changes.begin(ChangeDecisionKind::Applied).unwrap();
    opened[0].1.apply("a").unwrap();
}

/// Each decision with its files; with an asterisk if it was interrupted.
fn decisions(store: &Path) -> Vec<String> {
    let word = |decision: ChangeDecision| {
        let mark = if decision.is_begin { "*" } else { "" };
        format!("{}{mark} {}", decision.kind.as_str(), decision.files.concat())
    };
    change_decisions(store, &RoomId::from(RUN)).unwrap().into_iter().map(word).collect()
}

#[test]
fn an_application_that_is_killed_is_noted_as_far_as_it_got_and_goes_on() {
    let (_temp, store, base) = store();
    killed_after_the_first(&store);
    assert_eq!(decisions(&store), ["applied* abc"]);
    assert!(base.join("a").is_file() && !base.join("b").exists());
    let rest = RunChanges::read(&*store, &RoomId::from(RUN)).unwrap();
    assert_eq!(rest.apply().unwrap(), 2);
    assert_eq!(decisions(&store), ["applied a", "applied bc"]);
    assert!(["b", "c"].iter().all(|path| base.join(path).is_file()));
}

#[test]
fn what_an_interrupted_application_left_is_dropped_and_noted_as_such() {
    let (_temp, store, base) = store();
    killed_after_the_first(&store);
    let mut rest = RunChanges::read(&*store, &RoomId::from(RUN)).unwrap();
    rest.retain(|path| path == "b");
    assert_eq!(rest.discard().unwrap(), 1);
    assert_eq!(decisions(&store), ["applied a", "dropped b"]);
    let rest = RunChanges::read(&*store, &RoomId::from(RUN)).unwrap();
    assert_eq!((rest.apply().unwrap(), base.join("b").exists()), (1, false));
    assert_eq!(decisions(&store), ["applied a", "dropped b", "applied c"]);
}

#[test]
fn a_command_that_is_killed_after_the_last_file_has_applied_all() {
    let (_temp, store, _) = store();
    killed_after_the_first(&store);
    let changes = RunChanges::read(&*store, &RoomId::from(RUN)).unwrap();
    let mut opened = changes.open().unwrap();
    ["b", "c"].iter().for_each(|path| opened[0].1.apply(path).unwrap());
    assert_eq!(decisions(&store), ["applied abc"]);
}
