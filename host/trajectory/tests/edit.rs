//! The editor on text.

use conclave_trajectory::action::Edit;
use conclave_trajectory::edit::{EditError, apply, create, insert, str_replace, undo, view};

const TEXT: &str = "one\ntwo\nthree\ntwo and a half\n";

fn replaced(text: &str, old: &str, new: &str) -> Result<String, EditError> {
    str_replace(text, old, new).map(|edited| edited.text)
}

fn inserted(text: &str, line: i64, new: &str) -> Result<String, EditError> {
    insert(text, line, new).map(|edited| edited.text)
}

#[test]
fn a_view_numbers_lines() {
    assert_eq!(view("a\nb", None).as_deref(), Ok("     1\ta\n     2\tb\n"));
    assert_eq!(view(TEXT, Some(&[2, 3])).as_deref(), Ok("     2\ttwo\n     3\tthree\n"));
    assert_eq!(view(TEXT, Some(&[4, -1])).as_deref(), Ok("     4\ttwo and a half\n"));
    assert_eq!(
        view(TEXT, Some(&[4, 99])).as_deref(),
        Ok("     4\ttwo and a half\n"),
        "models guess the end"
    );
    for range in [&[0, 1][..], &[5, 6], &[3, 2], &[1], &[1, 2, 3], &[i64::MIN, i64::MAX]] {
        assert_eq!(
            view(TEXT, Some(range)),
            Err(EditError::BadRange { range: range.to_vec(), lines: 4 })
        );
    }
}

#[test]
fn exactly_one_place_is_replaced() {
    assert_eq!(replaced(TEXT, "three", "3").as_deref(), Ok("one\ntwo\n3\ntwo and a half\n"));
    assert_eq!(replaced(TEXT, "two\nthree\n", "").as_deref(), Ok("one\ntwo and a half\n"));
    assert_eq!(replaced(TEXT, "two", "2"), Err(EditError::ManyMatches { lines: vec![2, 4] }));
    assert_eq!(
        replaced(TEXT, "four", "4"),
        Err(EditError::NoMatch { old: "four".to_owned(), nearly: false })
    );
    assert_eq!(
        replaced(TEXT, "two  \nthree", "x"),
        Err(EditError::NoMatch { old: "two  \nthree".to_owned(), nearly: true })
    );
    assert_eq!(replaced(TEXT, "", "x"), Err(EditError::EmptyText));
    assert_eq!(replaced(TEXT, "one", "one"), Err(EditError::SameText));
}

#[test]
fn the_snippet_shows_the_lines_around_the_change() {
    let text: String = (1..=30).map(|line| format!("line {line}\n")).collect();
    let edited = str_replace(&text, "line 15\n", "x\ny\n").expect("it is there once");
    assert!(edited.snippet.starts_with("    11\tline 11\n"), "{}", edited.snippet);
    assert!(edited.snippet.ends_with("    20\tline 19\n"), "{}", edited.snippet);
}

#[test]
fn lines_are_inserted_after_a_line() {
    for (text, line, new, expected) in [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 1, "x\ny", "a\nx\ny\nb\n"),
        ("a\nb\n", 2, "x\n", "a\nb\nx\n"),
        ("a", 1, "x", "a\nx"),
        ("", 0, "x", "x"),
    ] {
        assert_eq!(inserted(text, line, new).as_deref(), Ok(expected), "{text:?} {line} {new:?}");
    }
    for line in [-1, 3, i64::MAX] {
        assert_eq!(inserted("a\nb\n", line, "x"), Err(EditError::BadLine { line, lines: 2 }));
    }
}

#[test]
fn creating_never_overwrites_and_undo_needs_an_edit() {
    assert_eq!(create(None, "x").map(|edited| edited.text).as_deref(), Ok("x"));
    assert_eq!(create(Some(""), "x"), Err(EditError::Exists));
    assert_eq!(undo(Some("before")).map(|edited| edited.text).as_deref(), Ok("before"));
    assert_eq!(undo(None), Err(EditError::NothingToUndo));
}

fn action(command: &str) -> Edit {
    let text = |text: &str| Some(text.to_owned());
    Edit {
        path: "f".to_owned(),
        command: text(command),
        file_text: text("new\n"),
        old_str: text("one"),
        new_str: text("1"),
        insert_line: Some(0),
        ..Edit::default()
    }
}

#[test]
fn an_action_is_carried_out_with_the_observation_to_tell() {
    for (command, existing, written) in [
        ("create", None, Some("new\n")),
        ("str_replace", Some("one\n"), Some("1\n")),
        ("insert", Some("one\n"), Some("1\none\n")),
        ("undo_edit", Some("one\n"), Some("before\n")),
        ("view", Some("one\n"), None),
    ] {
        let (observation, text) = apply(&action(command), existing, Some("before\n"))
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_eq!(text.as_deref(), written, "{command}");
        assert_eq!(
            (
                observation.prev_exist,
                observation.old_content.as_deref(),
                observation.new_content.as_deref()
            ),
            (existing.is_some(), existing, written)
        );
        assert!(!observation.content.is_empty());
    }
}

#[test]
fn an_action_that_lacks_something_says_what() {
    let bare = |command: &str| Edit {
        path: "f".to_owned(),
        command: Some(command.to_owned()),
        ..Edit::default()
    };
    for (command, existing, says) in [
        ("create", None, "`create` needs `file_text`"),
        ("str_replace", Some("x"), "`str_replace` needs `old_str`"),
        ("insert", Some("x"), "`insert` needs `insert_line`"),
        ("undo_edit", Some("x"), "no edit of this file"),
        ("rename", Some("x"), "no command `rename`. Known are: view"),
        ("", Some("x"), "no command ``"),
        ("view", None, "does not exist"),
    ] {
        let error = apply(&bare(command), existing, None).expect_err("it is refused").to_string();
        assert!(error.contains(says), "{command}: {error}");
    }
    let error =
        apply(&action("str_replace"), None, None).expect_err("there is no file").to_string();
    assert!(error.contains("Use `create`"), "{error}");
}
