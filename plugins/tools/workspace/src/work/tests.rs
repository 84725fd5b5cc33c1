use std::collections::BTreeMap;

use conclave_sdk::files::{Entry, EntryKind, FileError, FileErrorKind, Root};
use conclave_sdk::{Denial, Error};
use serde_json::{Value, json};

use super::{Disk, LARGEST_WRITTEN, Workspace};
use crate::tools::{arguments, specs};

/// A disk with `/work` for writing and `/docs` for reading.
#[derive(Default)]
struct Fake {
    files: BTreeMap<String, Vec<u8>>,
    before: Vec<(String, String)>,
    /// Bytes that can be stored.
    room: usize,
}

fn failed(path: &str, kind: FileErrorKind) -> FileError {
    FileError { path: path.to_owned(), kind }
}

fn denied(path: &str) -> FileError {
    let denial = Denial {
        capability: "files".into(),
        target: path.into(),
        detail: "It was granted for reading only.".into(),
    };
    failed(path, FileErrorKind::Denied(denial))
}

impl Disk for Fake {
    fn roots(&self) -> Vec<Root> {
        vec![
            Root { path: "/work".into(), writable: true },
            Root { path: "/docs".into(), writable: false },
        ]
    }

    fn read(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, FileError> {
        if path.ends_with("link") || !(path.starts_with("/work") || path.starts_with("/docs")) {
            return Err(denied(path));
        }
        if self.list(path).is_ok() {
            return Err(failed(path, FileErrorKind::NotAFile));
        }
        let content = self.files.get(path).ok_or_else(|| failed(path, FileErrorKind::NotFound))?;
        Ok((content.len() <= most).then(|| content.clone()))
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for (file, content) in &self.files {
            let Some(rest) = file.strip_prefix(path).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            let (name, kind) = rest
                .split_once('/')
                .map_or((rest, EntryKind::File), |(name, _)| (name, EntryKind::Directory));
            entries.insert(
                name.to_owned(),
                Entry { name: name.to_owned(), kind, length: content.len() as u64 },
            );
        }
        if entries.is_empty() {
            Err(failed(path, FileErrorKind::NotADirectory))
        } else {
            Ok(entries.into_values().collect())
        }
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), FileError> {
        if path.starts_with("/docs") {
            return Err(denied(path));
        }
        if self.list(path).is_ok() {
            return Err(failed(path, FileErrorKind::NotAFile));
        }
        self.files.insert(path.to_owned(), text.into());
        Ok(())
    }

    fn before(&self) -> Vec<(String, String)> {
        self.before.clone()
    }

    fn keep(&mut self, before: &[(String, String)]) -> bool {
        let fits = before.iter().map(|(_, text)| text.len()).sum::<usize>() <= self.room;
        if fits {
            self.before = before.to_vec();
        }
        fits
    }
}

fn workspace() -> Workspace<Fake> {
    let mut fake = Fake { room: 1_000, ..Fake::default() };
    for (path, text) in [
        ("/work/a.txt", "a\nb\nc\nd\ne\n"),
        ("/work/src/lib.rs", "fn a() {}\n"),
        ("/work/.hidden", ""),
        ("/docs/b.txt", "docs\n"),
    ] {
        fake.files.insert(path.into(), text.into());
    }
    fake.files.insert("/work/binary".into(), vec![0xff, 0xfe]);
    Workspace::open(fake, "").unwrap()
}

fn told(result: Result<String, Error>) -> String {
    match result {
        Ok(text) | Err(Error::Other(text)) => text,
        Err(error) => panic!("{error:?}"),
    }
}

fn edited(workspace: &mut Workspace<Fake>, edit: Value) -> String {
    told(workspace.edit(arguments(edit).unwrap()).map(|outcome| outcome.content.unwrap()))
}

fn text(workspace: &Workspace<Fake>, path: &str) -> String {
    String::from_utf8(workspace.disk.files[path].clone()).unwrap()
}

#[test]
fn reading_takes_the_range_of_the_action() {
    for (read, expected) in [
        (json!({ "path": "a.txt" }), "a\nb\nc\nd\ne\n"),
        (json!({ "path": "/work/a.txt", "start": 0, "end": -1 }), "a\nb\nc\nd\ne\n"),
        (json!({ "path": "a.txt", "start": 1, "end": 3 }), "b\nc\n"),
        (json!({ "path": "a.txt", "start": 5, "end": 9 }), "d\ne\n"),
        (json!({ "path": "a.txt", "start": 3, "end": 2 }), "d\n"),
        (json!({ "path": "a.txt", "start": 10, "end": -1 }), ""),
        (json!({ "path": "a.txt", "view_range": [2, 3] }), "     2\tb\n     3\tc\n"),
        (
            json!({ "path": "a.txt", "thought": "look", "security_risk": -1, "impl_source": "default", "view_range": null }),
            "a\nb\nc\nd\ne\n",
        ),
    ] {
        assert_eq!(told(workspace().read(arguments(read.clone()).unwrap())), expected, "{read}");
    }
}

#[test]
fn what_cannot_be_read_has_a_text_of_its_own() {
    let outside = |path: &str| {
        format!(
            "You're not allowed to access this path: {path}. You can only access paths inside the workspace."
        )
    };
    for (path, expected) in [
        ("missing.txt", "File not found: missing.txt".to_owned()),
        ("/etc/passwd", outside("/etc/passwd")),
        ("../../etc/passwd", outside("../../etc/passwd")),
        ("link", outside("link")),
        ("src", "Path is a directory: src. You can only read files".to_owned()),
        ("binary", "File could not be decoded as utf-8: binary".to_owned()),
    ] {
        assert_eq!(told(workspace().read(arguments(json!({ "path": path })).unwrap())), expected);
    }
    let mut large = workspace();
    large.disk.files.insert("/work/large".into(), vec![b'x'; 17 * 1024 * 1024]);
    let expected =
        "The file large has more than 16777216 bytes, and such files are not read for this.";
    assert_eq!(told(large.read(arguments(json!({ "path": "large" })).unwrap())), expected);
}

#[test]
fn a_long_text_is_cut_in_the_middle() {
    let mut workspace = workspace();
    workspace.disk.files.insert("/work/long".into(), "x".repeat(1_000_000).into());
    let shown = told(workspace.read(arguments(json!({ "path": "long" })).unwrap()));
    assert!(
        shown.len() < 201_000 && shown.contains("[... Observation truncated due to length ...]")
    );
}

#[test]
fn writing_replaces_lines() {
    for (write, file, expected) in [
        (json!({ "path": "new/deep/b.txt", "content": "a\n" }), "/work/new/deep/b.txt", "a\n"),
        (
            json!({ "path": "a.txt", "content": "X", "start": 2, "end": -1 }),
            "/work/a.txt",
            "a\nb\nX\n",
        ),
        (
            json!({ "path": "a.txt", "content": "X\nY", "start": 1, "end": 4, "thought": "" }),
            "/work/a.txt",
            "a\nX\nY\ne\n",
        ),
        (json!({ "path": "fresh", "content": "x", "start": 3, "end": 4 }), "/work/fresh", "x\n"),
        (json!({ "path": "binary", "content": "now text" }), "/work/binary", "now text"),
    ] {
        let mut workspace = workspace();
        let path = write["path"].as_str().unwrap().to_owned();
        assert_eq!(
            told(workspace.write(arguments(write).unwrap())),
            format!("I wrote to the file {path}.")
        );
        assert_eq!(text(&workspace, file), expected);
    }
}

#[test]
fn what_cannot_be_written_is_said_and_stays() {
    let mut workspace = workspace();
    for (write, expected) in [
        (
            json!({ "path": "/docs/b.txt", "content": "x" }),
            "You're not allowed to write to this path: /docs/b.txt. It was granted for reading only.",
        ),
        (
            json!({ "path": "../x", "content": "x" }),
            "You're not allowed to access this path: ../x. You can only access paths inside the workspace.",
        ),
        (
            json!({ "path": "src", "content": "x" }),
            "Path is a directory: src. You can only read files",
        ),
        (
            json!({ "path": "binary", "content": "x", "start": 1 }),
            "File could not be decoded as utf-8: binary",
        ),
        (
            json!({ "path": "big", "content": "x".repeat(LARGEST_WRITTEN + 1) }),
            "The file big would have 1000001 bytes, and at most 1000000 are written.",
        ),
    ] {
        assert_eq!(told(workspace.write(arguments(write).unwrap())), expected);
    }
    assert_eq!(text(&workspace, "/docs/b.txt"), "docs\n");
}

#[test]
fn edits_are_made_and_undone_in_turn() {
    let mut workspace = workspace();
    let replace = |old: &str, new: &str| json!({ "path": "a.txt", "command": "str_replace", "old_str": old, "new_str": new });
    assert!(edited(&mut workspace, replace("b\n", "B\n")).starts_with("The file a.txt is edited."));
    assert!(
        edited(
            &mut workspace,
            json!({ "path": "a.txt", "command": "insert", "insert_line": 0, "new_str": "first" })
        )
        .contains("first")
    );
    assert_eq!(text(&workspace, "/work/a.txt"), "first\na\nB\nc\nd\ne\n");
    let undo = json!({ "path": "./a.txt", "command": "undo_edit" });
    edited(&mut workspace, undo.clone());
    assert_eq!(text(&workspace, "/work/a.txt"), "a\nB\nc\nd\ne\n");
    edited(&mut workspace, undo.clone());
    assert_eq!(text(&workspace, "/work/a.txt"), "a\nb\nc\nd\ne\n");
    assert!(edited(&mut workspace, undo).starts_with("There is no edit of ./a.txt to undo"));
}

#[test]
fn an_edit_that_makes_no_sense_changes_nothing() {
    let mut workspace = workspace();
    for (edit, expected) in [
        (
            json!({ "path": "a.txt", "command": "str_replace", "old_str": "z", "new_str": "" }),
            "No replacement was made",
        ),
        (
            json!({ "path": "a.txt", "command": "str_replace", "old_str": "\n", "new_str": "" }),
            "No replacement was made",
        ),
        (json!({ "path": "a.txt", "command": "str_replace" }), "`str_replace` needs `old_str`."),
        (json!({ "path": "a.txt", "command": "create", "file_text": "x" }), "The file exists"),
        (
            json!({ "path": "a.txt", "command": "insert", "insert_line": 9, "new_str": "x" }),
            "`insert_line` is 9",
        ),
        (
            json!({ "path": "none.txt", "command": "str_replace", "old_str": "a", "new_str": "b" }),
            "File not found: none.txt",
        ),
        (json!({ "path": "a.txt", "command": "burn" }), "The editor has no command `burn`."),
        (json!({ "path": "a.txt" }), "The editor has no command ``."),
        (
            json!({ "path": "/etc/hosts", "command": "view" }),
            "You're not allowed to access this path: /etc/hosts.",
        ),
    ] {
        let said = edited(&mut workspace, edit);
        assert!(said.starts_with(expected), "{said}");
    }
    assert_eq!(text(&workspace, "/work/a.txt"), "a\nb\nc\nd\ne\n");
    assert!(workspace.disk.before.is_empty());
}

#[test]
fn an_edit_is_an_observation_in_the_fixed_form() {
    let edit = arguments(
        json!({ "path": "new.txt", "command": "create", "file_text": "x\n", "security_risk": 0 }),
    )
    .unwrap();
    let outcome = workspace().edit(edit).unwrap();
    let value: Value = serde_json::from_str(&outcome.value.unwrap()).unwrap();
    let observation = &value["observation"];
    assert_eq!(
        (&observation["observation"], &observation["content"]),
        (&json!("edit"), &json!("The file new.txt is created."))
    );
    assert_eq!(observation["extras"]["path"], "new.txt");
    assert_eq!(observation["extras"]["prev_exist"], false);
    assert_eq!(observation["extras"]["new_content"], "x\n");
}

#[test]
fn what_is_too_large_to_be_kept_is_said() {
    let mut workspace = workspace();
    edited(
        &mut workspace,
        json!({ "path": "a.txt", "command": "insert", "insert_line": 0, "new_str": "x" }),
    );
    workspace.disk.files.insert("/work/large.txt".into(), "y\n".repeat(1_000).into());
    let said = edited(
        &mut workspace,
        json!({ "path": "large.txt", "command": "insert", "insert_line": 0, "new_str": "x" }),
    );
    assert!(
        said.ends_with("This edit cannot be undone: the text before was too large to be kept."),
        "{said}"
    );
    assert!(workspace.disk.before.is_empty(), "an older text must not come back");
}

#[test]
fn viewing_shows_lines_and_directories() {
    let mut workspace = workspace();
    assert_eq!(
        edited(
            &mut workspace,
            json!({ "path": "a.txt", "command": "view", "view_range": [5, -1] })
        ),
        "     5\te\n"
    );
    let expected = "Files and directories in ., two levels deep, without hidden ones:\na.txt\nbinary\nsrc/\nsrc/lib.rs";
    assert_eq!(edited(&mut workspace, json!({ "path": ".", "command": "view" })), expected);
    assert_eq!(
        edited(&mut workspace, json!({ "path": "none", "command": "view" })),
        "File not found: none"
    );
    for number in 0..600 {
        workspace.disk.files.insert(format!("/work/src/{number}"), Vec::new());
    }
    let said = edited(&mut workspace, json!({ "path": "", "command": "view" }));
    assert!(
        said.ends_with("(Only the first 500 are shown.)") && said.lines().count() == 502,
        "{said}"
    );
}

#[test]
fn the_root_is_a_granted_folder() {
    let Ok(mut docs) =
        Workspace::open(Fake { files: workspace().disk.files, ..Fake::default() }, "docs")
    else {
        panic!()
    };
    assert_eq!(told(docs.read(arguments(json!({ "path": "b.txt" })).unwrap())), "docs\n");
    let Err(Error::Other(text)) = Workspace::open(Fake::default(), "/elsewhere") else { panic!() };
    assert_eq!(
        text,
        "The setting `root` is /elsewhere, which is in none of the granted folders: /work, /docs."
    );
}

#[test]
fn schemas_are_objects_and_let_other_arguments_pass() {
    for spec in specs() {
        let schema: Value = serde_json::from_str(&spec.input_schema).unwrap();
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &Value::Null),
            "{}",
            spec.name
        );
        assert!(schema["properties"]["path"].is_object());
    }
}
