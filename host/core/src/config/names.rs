//! What plugins, tasks, models and tools may be called, and where paths lead. Lexical only: nothing here looks at a disk.

/// Bytes of a name at most.
pub const NAME_MAX: usize = 64;

/// Tools of the host, carried out by the room (L-140 and after); those that steer a task are granted with `grants.route`.
pub const ORCHESTRATION_TOOLS: [&str; 10] =
    ["done", "agent_done", "pass", "done_pass", "forward", "send", "agent_send", "result", "final_result", "delegate_task"];

/// Tools and actions of the host that later versions carry out; a task called like one would be in their way.
pub(crate) const LATER_TOOLS: [&str; 6] = ["recipient_message", "add_recipient", "rewind", "delegate", "finish", "reject"];

/// Seats and whoever sits on them: addresses, so no task may be called like one.
pub const SEATS: [&str; 4] = ["user", "llm", "agent", "system"];

/// A word that no task may be called.
#[must_use]
pub fn is_reserved_task(name: &str) -> bool {
    SEATS.contains(&name) || ORCHESTRATION_TOOLS.contains(&name) || LATER_TOOLS.contains(&name)
}

/// A text that cannot be a name.
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
}

/// Checks the name of a plugin, task or model.
///
/// # Errors
/// Which rule it breaks: lower-case ASCII letters, digits, `-` and `_`, a letter first, 1 to 64 of them.
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

/// A name made from any text, to be proposed instead of it; none when nothing of it is left.
pub(crate) fn proposed_name(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let lowered = text.chars().map(|c| c.to_ascii_lowercase()).map(|c| if allowed(c) { c } else { '-' });
    let name: String = lowered.skip_while(|c| !c.is_ascii_lowercase()).take(NAME_MAX).collect();
    let name = name.trim_end_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

/// A path seen from the config's folder: absolute ones stay, `.` and empty parts go, `..` stays because a link may be before it.
pub(crate) fn join(folder: &str, path: &str) -> String {
    let joined = if path.starts_with('/') || folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") };
    let root = if joined.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> = joined.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    match (root, parts.is_empty()) {
        ("", true) => ".".to_owned(),
        _ => format!("{root}{}", parts.join("/")),
    }
}

/// A text that cannot be a place where a plugin sees a directory.
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

/// Checks where a plugin sees a directory: `/` and one name.
pub(crate) fn check_place(at: &str) -> Result<(), PlaceError> {
    let name = at.strip_prefix('/').ok_or(PlaceError::NoSlash)?;
    if let Some(other) = name.chars().find(|c| *c == '\\' || crate::text::is_deceptive(*c)) {
        return Err(PlaceError::Character(other));
    }
    match name {
        "." | ".." => Err(PlaceError::Dots),
        _ if name.is_empty() || name.contains('/') => Err(PlaceError::NotOneName),
        _ if name.chars().count() > NAME_MAX => Err(PlaceError::TooLong),
        _ => Ok(()),
    }
}

/// The place that goes with a directory when the config names none: its last part.
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
    fn a_proposed_name_is_a_name() {
        for (text, expected) in [("My Desk!", Some("my-desk")), ("42", None), ("ÄÖ", None), ("9lives", Some("lives"))] {
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
        for (dir, expected) in
            [("docs", Some("/docs")), ("a/b/", Some("/b")), ("..", None), (".", None), ("/", None), ("./x/.", Some("/x"))]
        {
            assert_eq!(default_place(dir).as_deref(), expected, "{dir:?}");
        }
    }
}
