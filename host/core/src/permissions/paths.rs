//! Paths as plugins write them: `/folder/notes/a.txt`. Checks only the text; the host handles the
//! disk.

use crate::types::text::is_deceptive;

/// A path below some folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestPath<'a> {
    /// The folder's name with its slash: `/folder`.
    pub folder: &'a str,
    /// The path below the folder, without a leading slash; empty for the folder itself.
    pub rest: &'a str,
}

/// The limit of a path in bytes: no file system accepts more.
const LONGEST: usize = 4096;

/// The prefix of temporary files that the host is about to rename. Plugins do not see them.
pub const UNFINISHED: &str = ".conclave-unfinished-";
/// The limit of one name in bytes: no common file system accepts more.
const LONGEST_NAME: usize = 255;
/// The limit of nested directories that a plugin can make.
const DEEPEST: usize = 32;
/// Names of devices on some systems, with any extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
const PORTS: [&str; 2] = ["com", "lpt"];

/// Folders at the root of a machine. A path into one of these means the machine, not a folder of
/// the operator's.
const SYSTEM: [&str; 20] = [
    "bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "root", "run",
    "sbin", "srv", "sys", "tmp", "usr", "var", "Users", "Windows",
];
/// Endings and parts of names of files that hold keys.
const KEY_ENDINGS: [&str; 9] =
    [".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keystore", ".gpg", ".asc"];
const KEY_WORDS: [&str; 8] =
    ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "credential", "secret", "password", "token"];

impl<'a> GuestPath<'a> {
    /// Splits a path into folder and rest.
    ///
    /// # Errors
    /// The reason why it is invalid in every folder, for the operator.
    pub fn parse(path: &'a str) -> Result<Self, &'static str> {
        if path.len() > LONGEST {
            return Err("the path is longer than 4096 bytes");
        }
        if path.contains('\0') {
            return Err("the path holds a NUL");
        }
        if path.contains('\\') {
            return Err("the path holds a backslash; parts are separated by `/`");
        }
        let Some(below) = path.strip_prefix('/') else {
            return Err(
                "the path is not absolute; it must start with the folder's name, such as `/folder`",
            );
        };
        for part in below.split('/') {
            match part {
                "" => return Err("the path has an empty part"),
                "." | ".." => return Err("`.` and `..` are no parts of a path"),
                _ => {}
            }
        }
        let end = below.find('/').map_or(path.len(), |slash| slash + 1);
        Ok(Self { folder: &path[..end], rest: path.get(end + 1..).unwrap_or_default() })
    }

    /// Checks that a file can have these names, here and on every system that the folder may be
    /// copied to.
    ///
    /// # Errors
    /// The reason, for the operator.
    pub fn check_new(&self) -> Result<(), &'static str> {
        if self.rest.split('/').count() > DEEPEST {
            return Err("it lies more than 32 directories deep");
        }
        self.rest.split('/').try_for_each(check_name)
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > LONGEST_NAME {
        return Err("a name in it is longer than 255 bytes");
    }
    if name.chars().any(is_deceptive) {
        return Err(
            "a name in it holds a character that is not shown, or that deceives whoever reads it",
        );
    }
    if name.ends_with(['.', ' ']) || name.starts_with(' ') {
        return Err("a name in it ends in a dot, or begins or ends in a space");
    }
    let lower = name.to_ascii_lowercase();
    let stem = lower.split('.').next().unwrap_or_default().trim_end();
    let is_port = PORTS.iter().any(|port| {
        stem.strip_prefix(port)
            .is_some_and(|rest| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit()))
    });
    if DEVICES.contains(&stem) || is_port {
        return Err("a name in it stands for a device on some systems");
    }
    if lower.starts_with(UNFINISHED) {
        return Err("a name in it is one that the host uses itself");
    }
    if cfg!(windows) && name.contains(':') {
        return Err("a name in it holds a colon");
    }
    Ok(())
}

/// The part of a path below a folder, without slashes around it; empty for the folder.
pub(crate) fn rest_below<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_matches('/'))
}

/// The folder whose grant would allow this path. `None` for key and dot files, the machine's own
/// folders, and paths with `..`.
#[must_use]
pub fn suggested_folder(path: &str) -> Option<&str> {
    offer(path).ok()
}

/// The reason for offering no grant for a path, for the operator; `None` if one is offered.
#[must_use]
pub fn why_no_offer(path: &str) -> Option<&'static str> {
    offer(path).err()
}

fn offer(path: &str) -> Result<&str, &'static str> {
    let parsed = GuestPath::parse(path)?;
    let name = parsed.folder.strip_prefix('/').unwrap_or(parsed.folder);
    let lower = path.to_ascii_lowercase();
    if KEY_ENDINGS.iter().any(|ending| lower.ends_with(ending))
        || KEY_WORDS.iter().any(|word| lower.contains(word))
    {
        return Err("it is a key file");
    }
    if path.split('/').any(|part| part.starts_with('.')) {
        return Err("it is a hidden file");
    }
    if SYSTEM.contains(&name) {
        return Err("it is in a system folder");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Err("no folder in a config can have that name");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_folder_and_what_follows() {
        let parse = |path| GuestPath::parse(path).map(|parsed| (parsed.folder, parsed.rest));
        assert_eq!(parse("/folder/notes/a.txt"), Ok(("/folder", "notes/a.txt")));
        assert_eq!(parse("/folder"), Ok(("/folder", "")));
        assert_eq!(parse("/é/ü"), Ok(("/é", "ü")));
        assert_eq!(parse("/folder/...x"), Ok(("/folder", "...x")));
    }

    #[test]
    fn paths_that_climb_trick_or_lie_are_refused() {
        let long = format!("/folder/{}", "a".repeat(LONGEST));
        for path in [
            "",
            "folder/a",
            "./folder",
            "../folder",
            "/",
            "//folder",
            "/folder/",
            "/folder//a",
            "/folder/../etc/passwd",
            "/folder/..",
            "/folder/a/../../b",
            "/folder/.",
            "/./folder",
            "/..",
            "/folder/a\0.txt",
            "/folder\\..\\a",
            "C:\\a",
            "\\\\server\\a",
            &long,
        ] {
            assert!(GuestPath::parse(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn it_is_said_why_no_grant_is_offered() {
        assert_eq!(why_no_offer("/notes/a.txt"), None);
        assert_eq!(why_no_offer("/root/.ssh/id_ed25519"), Some("it is a key file"));
        assert_eq!(why_no_offer("/notes/.env"), Some("it is a hidden file"));
        assert_eq!(why_no_offer("/etc/passwd"), Some("it is in a system folder"));
        assert_eq!(why_no_offer("/notes/../a"), Some("`.` and `..` are no parts of a path"));
    }

    #[test]
    fn names_that_deceive_or_mean_something_elsewhere_are_not_made() {
        let check = |path: &str| GuestPath::parse(path).unwrap().check_new();
        for path in [
            "/f/a.txt",
            "/f/.env",
            "/f/id_rsa",
            "/f/ü/日本.md",
            "/f/...x",
            "/f/console.log",
            "/f/com",
            "/f/comma.txt",
            "/f/nul-1",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        let (deep, long) = (format!("/f{}", "/a".repeat(33)), format!("/f/{}", "a".repeat(256)));
        for path in [
            "/f/a\u{1b}[2Jb",
            "/f/a\nb",
            "/f/a\u{202e}txt.exe",
            "/f/a\u{200b}b",
            "/f/a.",
            "/f/a ",
            "/f/ a",
            "/f/a/b. /c",
            "/f/NUL",
            "/f/con.txt",
            "/f/Aux .x",
            "/f/COM1",
            "/f/lpt9.log",
            "/f/.conclave-unfinished-1",
            "/f/.Conclave-Unfinished-1/x",
            &deep,
            &long,
        ] {
            assert!(check(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_grant_is_suggested_for_plain_folders_alone() {
        assert_eq!(suggested_folder("/notes/a.txt"), Some("notes"));
        for path in [
            "/etc/passwd",
            "/root/.ssh/id_ed25519",
            "/notes/.env",
            "/.ssh/config",
            "/notes/server.key",
            "/notes/id_rsa",
            "/home/me/a.txt",
            "/notes/../a",
            "/notes/my_secrets.txt",
            "/a b/c",
            "notes",
            "/proc/self/environ",
        ] {
            assert_eq!(suggested_folder(path), None, "{path:?}");
        }
    }
}
