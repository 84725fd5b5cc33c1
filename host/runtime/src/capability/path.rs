//! Paths as plugins write them: `/folder/notes/a.txt`. Only the text is looked at here; what stands on the disk is `folder`'s matter.

/// A path that names a place below some folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestPath<'a> {
    /// The folder's name with its slash: `/folder`.
    pub(crate) folder: &'a str,
    /// What follows, without a slash in front; empty for the folder itself.
    pub(crate) rest: &'a str,
}

/// Bytes of a path: no file system takes more.
const LONGEST: usize = 4096;

/// Names of folders at the root of a machine. Whoever asks for these means the machine, not a folder of the operator's.
const SYSTEM: [&str; 20] = [
    "bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var",
    "Users", "Windows",
];
/// Endings and parts of names of files that hold keys.
const KEY_ENDINGS: [&str; 9] = [".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keystore", ".gpg", ".asc"];
const KEY_WORDS: [&str; 8] = ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "credential", "secret", "password", "token"];

impl<'a> GuestPath<'a> {
    /// Takes a path apart.
    ///
    /// # Errors
    /// Why it can name nothing in any folder, for the operator.
    pub(crate) fn parse(path: &'a str) -> Result<Self, &'static str> {
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
            return Err("the path is not absolute; it must start with the folder's name, such as `/folder`");
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
}

/// The grant that would open this path, where it is decent to offer one: not for key and dot files, not for the machine's own folders,
/// not for a path that tries to climb.
pub(crate) fn suggested_folder(path: &str) -> Option<&str> {
    let parsed = GuestPath::parse(path).ok()?;
    let name = parsed.folder.strip_prefix('/')?;
    let lower = path.to_ascii_lowercase();
    let hidden = path.split('/').any(|part| part.starts_with('.'));
    let key = KEY_ENDINGS.iter().any(|ending| lower.ends_with(ending)) || KEY_WORDS.iter().any(|word| lower.contains(word));
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    (plain && !hidden && !key && !SYSTEM.contains(&name)).then_some(name)
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
