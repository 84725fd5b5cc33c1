//! Writing files: successful writes, spellings and traps that must fail, quotas, and the journal of
//! writes.

use std::path::Path;

use conclave_core::config::ProblemCode;
use conclave_core::protocol::event::Event;
use conclave_core::types::denial::Layer;
use conclave_core::types::outcome::Status;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_test_support::{Ran, Rig, calling};
use serde_json::{Value, json};

const WRITE: &str = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read-write" }]"#;

fn run(guest: &str, rig: &Rig, tool: &str, arguments: &Value, grants: &str) -> Ran {
    let allowed = "[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";
    rig.run(&(calling(guest, tool, arguments, grants) + allowed), "go")
}

fn pairs(ran: &Ran) -> Vec<(String, String)> {
    serde_json::from_str(ran.content()).unwrap_or_else(|error| panic!("{error}: {}", ran.content()))
}

/// Returns a folder with traps, and the files beside it that must not change.
#[cfg(unix)]
fn trapped() -> (Rig, impl Sized) {
    use std::os::unix::fs::symlink;

    let rig = Rig::new()
        .with_file("data/a.txt", "inside")
        .with_file("data/sub/b.txt", "inside")
        .with_file("secret", "OUTSIDE");
    let data = rig.folder().join("data");
    let links = [
        ("link-up", "../secret"),
        ("link-to-new", "../new"),
        ("link-inside", "a.txt"),
        ("link-dir", ".."),
        ("link-loop", "link-loop"),
    ];
    for (link, to) in links {
        symlink(to, data.join(link)).expect("a link can be made");
    }
    symlink(rig.folder().join("secret"), data.join("link-absolute")).expect("a link can be made");
    std::fs::hard_link(rig.folder().join("secret"), data.join("hard")).expect("a link can be made");
    let command = |program: &str, arguments: &[&str]| {
        std::process::Command::new(program).args(arguments).output().expect("it runs")
    };
    assert!(command("mkfifo", &[data.join("pipe").to_str().expect("a path")]).status.success());
    // Only root can create a device. Otherwise the name is taken by a plain file.
    if !command("mknod", &[data.join("device").to_str().expect("a path"), "c", "1", "5"])
        .status
        .success()
    {
        std::fs::create_dir(data.join("device")).expect("a folder can be made");
    }
    let socket =
        std::os::unix::net::UnixListener::bind(data.join("socket")).expect("a socket can be made");
    (rig, socket)
}

#[cfg(unix)]
fn assert_unharmed(folder: &Path) {
    let read = |path: &str| {
        std::fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    assert_eq!(
        (read("secret").as_str(), read("data/a.txt").as_str(), read("data/sub/b.txt").as_str()),
        ("OUTSIDE", "inside", "inside")
    );
    let names = |path: &str| {
        let mut names: Vec<String> = std::fs::read_dir(folder.join(path))
            .expect("it is there")
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["data", "secret"]);
    let there = [
        "a.txt",
        "device",
        "hard",
        "link-absolute",
        "link-dir",
        "link-inside",
        "link-loop",
        "link-to-new",
        "link-up",
        "pipe",
        "socket",
        "sub",
    ];
    assert_eq!(names("data"), there);
    assert!(!Path::new("/tmp/conclave-test").exists() && !Path::new("/etc/conclave-test").exists());
}

#[test]
fn a_granted_folder_can_be_written_and_every_change_is_journalled_before_its_end() {
    let rig = Rig::new().with_file("data/keep", "x");
    let ran =
        run("files_write", &rig, "run", &json!({ "path": "/folder/new/a.txt", "bytes": 3 }), WRITE);
    let results: Vec<String> = pairs(&ran).into_iter().map(|(_, result)| result).collect();
    assert_eq!(results[..2], ["Ok(())", "Ok(6)"], "{results:?}");
    assert!(results[2].contains("QuotaExceeded"), "past the end of all files: {results:?}");
    assert_eq!(results[3], "Ok(())");
    assert!(
        rig.folder().join("data/new").is_dir() && !rig.folder().join("data/new/a.txt").exists()
    );
    let told: Vec<String> = ran
        .events("test")
        .iter()
        .filter_map(|event| match event {
            Event::SideEffectAsked {
                ordinal,
                side_effect: SideEffect::WriteFile { path, offset, bytes, .. },
                ..
            } => Some(format!("{ordinal} write {path} {offset} {}", bytes.length)),
            Event::SideEffectAsked {
                ordinal,
                side_effect: SideEffect::RemoveFile { path },
                ..
            } => Some(format!("{ordinal} remove {path}")),
            Event::SideEffectEnded {
                ordinal, answer: SideEffectAnswer::Done { length }, ..
            } => Some(format!("{ordinal} done {length}")),
            _ => None,
        })
        .collect();
    let expected = [
        "0 write /folder/new/a.txt 0 3",
        "0 done 3",
        "1 write /folder/new/a.txt 3 3",
        "1 done 6",
        "2 remove /folder/new/a.txt",
        "2 done 0",
    ];
    assert_eq!(told, expected);
}

#[cfg(unix)]
#[test]
fn no_spelling_and_no_trap_changes_anything_outside_or_anything_that_is_no_file() {
    let (rig, _socket) = trapped();
    let ran = run("files_write_escape", &rig, "run", &json!({}), WRITE);
    let tried = pairs(&ran);
    assert!(tried.len() > 50, "{}", tried.len());
    for (path, result) in &tried {
        // A link in the folder to an outside file may be removed; no other operation succeeds.
        let removed_nothing = result.replace("REMOVED", "");
        assert!(
            !["WROTE", "PATCHED", "MADE"].iter().any(|success| result.contains(success)),
            "{path:?}: {result}"
        );
        assert_eq!(&removed_nothing, result, "{path:?}");
    }
    assert_unharmed(rig.folder());
    let denials = ran.denials();
    assert!(denials.iter().any(|record| record.reason.contains("hard link")), "{denials:?}");
    assert!(denials.iter().any(|record| record.reason.contains("through a link")), "{denials:?}");
    assert!(
        denials
            .iter()
            .all(|record| record.suggestion.as_ref().is_none_or(|line| !line.contains("etc"))),
        "{denials:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_folder_for_reading_stays_as_it_is_and_the_operator_learns_what_would_open_it() {
    let (rig, _socket) = trapped();
    let grant = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read" }]"#;
    let ran = run("files_write_escape", &rig, "run", &json!({}), grant);
    assert!(pairs(&ran).iter().all(|(_, result)| {
        !["WROTE", "PATCHED", "MADE", "REMOVED"].iter().any(|success| result.contains(success))
    }));
    assert_unharmed(rig.folder());
    let ran =
        run("files_write", &rig, "run", &json!({ "path": "/folder/a.txt", "bytes": 3 }), grant);
    let denials = ran.denials();
    let record = denials.first().unwrap_or_else(|| panic!("{}", ran.content()));
    assert_eq!(record.layer, Layer::Config);
    let line = r#"[plugins.subject] grants.files = [{ dir = "data", at = "/folder", mode = "read-write" }]"#;
    assert_eq!(record.suggestion.as_deref(), Some(line));
    let ran =
        run("files_write", &rig, "run", &json!({ "path": "/folder/.env", "bytes": 3 }), grant);
    assert!(
        ran.denials().iter().all(|record| record.suggestion.is_none()),
        "no line for a hidden file: {:?}",
        ran.denials()
    );
}

#[test]
fn a_quota_holds_whatever_way_the_folder_is_filled() {
    let grant = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read-write", bytes = "10 kB", files = 20 }]"#;
    for (way, most) in [
        ("bytes", 10),
        ("append", 10),
        ("sparse", 1),
        ("cut", 2),
        ("files", 20),
        ("directories", 5),
    ] {
        let rig = Rig::new();
        std::fs::create_dir(rig.folder().join("data")).expect("a folder can be made");
        let ran = run("files_quota", &rig, "run", &json!({ "way": way }), grant);
        let (steps, how) =
            ran.content().split_once(": ").unwrap_or_else(|| panic!("{way}: {}", ran.content()));
        assert!(
            how.starts_with("FileError::QuotaExceeded") || how.starts_with("QuotaExceeded"),
            "{way}: {how}"
        );
        assert_eq!(steps.parse::<u32>().ok(), Some(most), "{way}");
        let (bytes, entries) = measure(&rig.folder().join("data"));
        assert!(bytes <= 10_000 && entries <= 20, "{way}: {bytes} bytes in {entries} entries");
    }
}

fn measure(folder: &Path) -> (u64, u64) {
    let entries =
        std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it can be read"));
    entries.fold((0, 0), |(bytes, count), entry| {
        let metadata = entry.metadata().expect("it is there");
        let (more, below) =
            if metadata.is_dir() { measure(&entry.path()) } else { (metadata.len(), 0) };
        (bytes + more, count + 1 + below)
    })
}

#[test]
fn what_is_written_again_and_again_counts_once_and_a_call_has_an_end() {
    let rig = Rig::new().with_file("data/a", "");
    let ran = run(
        "files_quota",
        &rig,
        "run",
        &json!({ "way": "again" }),
        &format!("{WRITE}\nlimits = {{ cpu = \"20 s\", wall = \"100 s\" }}"),
    );
    // A thousand steps of one or two changes each are within the limit of one call.
    assert_eq!((ran.status(), ran.content()), (Status::Done, "NEVER REFUSED"));
}

#[test]
fn no_folder_is_granted_for_writing_from_which_a_plugin_could_grant_itself_more() {
    let config = calling(
        "files_write",
        "run",
        &json!({}),
        r#"grants.files = [{ dir = ".", at = "/folder", mode = "read-write" }]"#,
    );
    let problems = conclave_test_support::refused(&Rig::new(), &config);
    assert_eq!(problems.codes(), [ProblemCode::ProtectedFolder], "{problems}");
}
