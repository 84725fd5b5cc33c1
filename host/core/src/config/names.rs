//! Names of plugins, tasks, models and tools, and the joining of paths. Lexical only: nothing here
//! accesses a disk.

use crate::types::host_tool::HostTool;

/// The limit of a name in bytes.
pub const NAME_MAX: usize = 64;

/// Tools of the host, carried out by the room (L-140 and after); those that control a task are
/// granted with `grants.route`.
pub const ORCHESTRATION_TOOLS: [&str; HostTool::ALL.len()] = {
    let mut names = [""; HostTool::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = HostTool::ALL[index].as_str();
        index += 1;
    }
    names
};

/// Actions of the host in later versions, reserved as task names.
pub(crate) const LATER_TOOLS: [&str; 3] = ["delegate", "finish", "reject"];

/// Roles, which are addresses, so no task may have such a name.
pub const ROLE_NAMES: [&str; 4] = ["user", "llm", "agent", "system"];

/// Whether no task may have this name, in any case: addresses ignore it (L-006).
#[must_use]
pub fn is_reserved_task(name: &str) -> bool {
    ROLE_NAMES
        .iter()
        .chain(&ORCHESTRATION_TOOLS)
        .chain(&LATER_TOOLS)
        .any(|word| word.eq_ignore_ascii_case(name))
}

/// The error for a text that cannot be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("is empty")]
    Empty,
    #[error("has more than {NAME_MAX} characters")]
    TooLong,
    #[error("does not begin with a lower-case letter")]
    Start,
    #[error("has {0:?} in it; lower-case ASCII letters, digits, `-` and `_` are allowed")]
    Character(char),
    #[error("does not begin with a letter or a digit")]
    TaskStart,
    #[error("has {0:?} in it; ASCII letters, digits, `-` and `_` are allowed")]
    TaskCharacter(char),
}

/// Checks the name of a plugin or model.
///
/// # Errors
/// The rule that it breaks: lower-case ASCII letters, digits, `-` and `_`, a letter first, 1 to 64
/// of them.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if let Some(other) = name.chars().find(|c| !allowed(*c)) {
        return Err(NameError::Character(other));
    }
    match name.chars().next() {
        None => Err(NameError::Empty),
        Some(first) if !first.is_ascii_lowercase() => Err(NameError::Start),
        Some(_) if name.len() > NAME_MAX => Err(NameError::TooLong),
        Some(_) => Ok(()),
    }
}

/// Checks the name of a task (L-007).
///
/// # Errors
/// The rule that it breaks: ASCII letters, digits, `-` and `_`, a letter or digit first, 1 to 64 of
/// them.
pub fn check_task_name(name: &str) -> Result<(), NameError> {
    if let Some(other) = name.chars().find(|c| !in_task_name(*c)) {
        return Err(NameError::TaskCharacter(other));
    }
    match name.chars().next() {
        None => Err(NameError::Empty),
        Some(first) if !first.is_ascii_alphanumeric() => Err(NameError::TaskStart),
        Some(_) if name.len() > NAME_MAX => Err(NameError::TooLong),
        Some(_) => Ok(()),
    }
}

fn in_task_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// A task's name made from any text, as `proposed_name`.
pub(crate) fn proposed_task_name(text: &str) -> Option<String> {
    let allowed = text.chars().map(|c| if in_task_name(c) { c } else { '-' });
    let name: String = allowed.skip_while(|c| !c.is_ascii_alphanumeric()).take(NAME_MAX).collect();
    let name = name.trim_end_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

/// The error for a text that cannot be the name of a tool in a task's toolbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AliasError {
    #[error("is empty")]
    Empty,
    #[error("has more than {NAME_MAX} characters")]
    TooLong,
    #[error("has {0:?} in it; ASCII letters, digits, `_`, `.` and `-` are allowed")]
    Character(char),
}

/// Checks the agent's name for a tool.
pub(crate) fn check_alias(alias: &str) -> Result<(), AliasError> {
    let in_alias = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    match alias.chars().find(|c| !in_alias(*c)) {
        Some(other) => Err(AliasError::Character(other)),
        None if alias.is_empty() => Err(AliasError::Empty),
        None if alias.len() > NAME_MAX => Err(AliasError::TooLong),
        None => Ok(()),
    }
}

/// A name made from any text as a suggestion; `None` if no valid character is left.
pub(crate) fn proposed_name(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let lowered =
        text.chars().map(|c| c.to_ascii_lowercase()).map(|c| if allowed(c) { c } else { '-' });
    let name: String = lowered.skip_while(|c| !c.is_ascii_lowercase()).take(NAME_MAX).collect();
    let name = name.trim_end_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

/// Joins a path to the config's folder. Absolute paths stay, `.` and empty parts are dropped, `..`
/// stays because a link may precede it.
pub(crate) fn join(folder: &str, path: &str) -> String {
    let joined = if path.starts_with('/') || folder.is_empty() {
        path.to_owned()
    } else {
        format!("{folder}/{path}")
    };
    let root = if joined.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> =
        joined.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    match (root, parts.is_empty()) {
        ("", true) => ".".to_owned(),
        _ => format!("{root}{}", parts.join("/")),
    }
}

/// The error for a text that cannot be a directory's path inside the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("does not begin with `/`")]
    NoSlash,
    #[error("is not `/` and one name")]
    NotOneName,
    #[error("is a way up or to itself")]
    Dots,
    #[error("has {0:?} in it")]
    Character(char),
    #[error("has more than {NAME_MAX} characters")]
    TooLong,
}

/// Checks a directory's path inside the plugin: `/` and one name.
pub(crate) fn check_place(at: &str) -> Result<(), PlaceError> {
    let name = at.strip_prefix('/').ok_or(PlaceError::NoSlash)?;
    if let Some(other) = name.chars().find(|c| *c == '\\' || crate::types::text::is_deceptive(*c)) {
        return Err(PlaceError::Character(other));
    }
    match name {
        "." | ".." => Err(PlaceError::Dots),
        _ if name.is_empty() || name.contains('/') => Err(PlaceError::NotOneName),
        _ if name.chars().count() > NAME_MAX => Err(PlaceError::TooLong),
        _ => Ok(()),
    }
}

/// The default path inside the plugin for a directory: its last part.
#[must_use]
pub fn default_place(dir: &str) -> Option<String> {
    let last = dir.split('/').rfind(|part| !part.is_empty() && *part != ".")?;
    let at = format!("/{last}");
    check_place(&at).is_ok().then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_one_rule() {
        let cases = [
            ("desk", Ok(())),
            ("a-1_b", Ok(())),
            ("", Err(NameError::Empty)),
            ("1a", Err(NameError::Start)),
            ("-a", Err(NameError::Start)),
            ("Desk", Err(NameError::Character('D'))),
            ("a.b", Err(NameError::Character('.'))),
            ("dé", Err(NameError::Character('é'))),
        ];
        for (name, expected) in cases {
            assert_eq!(check_name(name), expected, "{name:?}");
        }
        assert_eq!(check_name(&"a".repeat(NAME_MAX)), Ok(()));
        assert_eq!(check_name(&"a".repeat(NAME_MAX + 1)), Err(NameError::TooLong));
    }

    #[test]
    fn tasks_are_named_for_people() {
        let cases = [
            ("Desk", Ok(())),
            ("9-Lives_x", Ok(())),
            ("", Err(NameError::Empty)),
            ("_a", Err(NameError::TaskStart)),
            ("-", Err(NameError::TaskStart)),
            ("a.b", Err(NameError::TaskCharacter('.'))),
            ("dé", Err(NameError::TaskCharacter('é'))),
        ];
        for (name, expected) in cases {
            assert_eq!(check_task_name(name), expected, "{name:?}");
        }
        assert_eq!(check_task_name(&"A".repeat(NAME_MAX)), Ok(()));
        assert_eq!(check_task_name(&"A".repeat(NAME_MAX + 1)), Err(NameError::TooLong));
        for (text, expected) in [("_My Desk!", Some("My-Desk")), ("42", Some("42")), ("ÄÖ", None)]
        {
            assert_eq!(proposed_task_name(text).as_deref(), expected);
        }
    }

    #[test]
    fn no_task_is_called_like_a_tool_of_the_host() {
        for tool in HostTool::ALL {
            assert!(is_reserved_task(tool.as_str()), "{tool:?}");
        }
        for word in ["User", "DONE", "Rewind", "reject"] {
            assert!(is_reserved_task(word), "{word}");
        }
        assert!(!is_reserved_task("users"));
    }

    #[test]
    fn a_proposed_name_is_a_name() {
        for (text, expected) in
            [("My Desk!", Some("my-desk")), ("42", None), ("ÄÖ", None), ("9lives", Some("lives"))]
        {
            assert_eq!(proposed_name(text).as_deref(), expected);
        }
    }

    #[test]
    fn paths_start_at_the_folder_of_the_config() {
        let cases = [
            ("/home/a", "docs", "/home/a/docs"),
            ("/home/a/", "./x.wasm", "/home/a/x.wasm"),
            ("/home/a", "../docs", "/home/a/../docs"),
            ("/home/a", "/etc/", "/etc"),
            ("", "./docs//b", "docs/b"),
            (".", "docs", "docs"),
            ("", ".", "."),
            ("/", ".", "/"),
        ];
        for (folder, path, expected) in cases {
            assert_eq!(join(folder, path), expected, "{folder:?} {path:?}");
        }
    }

    #[test]
    fn a_place_is_a_slash_and_one_name() {
        let cases = [
            ("/docs", Ok(())),
            ("/my docs", Ok(())),
            ("docs", Err(PlaceError::NoSlash)),
            ("", Err(PlaceError::NoSlash)),
            ("/", Err(PlaceError::NotOneName)),
            ("/a/b", Err(PlaceError::NotOneName)),
            ("/..", Err(PlaceError::Dots)),
            ("/.", Err(PlaceError::Dots)),
            ("/a\\b", Err(PlaceError::Character('\\'))),
            ("/a\0", Err(PlaceError::Character('\0'))),
        ];
        for (at, expected) in cases {
            assert_eq!(check_place(at), expected, "{at:?}");
        }
        assert_eq!(check_place(&format!("/{}", "a".repeat(65))), Err(PlaceError::TooLong));
    }

    #[test]
    fn the_place_of_a_directory_is_its_last_part() {
        for (dir, expected) in [
            ("docs", Some("/docs")),
            ("a/b/", Some("/b")),
            ("..", None),
            (".", None),
            ("/", None),
            ("./x/.", Some("/x")),
        ] {
            assert_eq!(default_place(dir).as_deref(), expected, "{dir:?}");
        }
    }
}
