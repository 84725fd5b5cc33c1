//! The place of an action's path: below a granted folder, or outside. Only names are examined; the
//! host checks whether links lead out.

/// A path of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// As `files` takes it, such as `/folder/a.txt`.
    Inside(String),
    /// Below no folder, in a form that the host refuses and reports to the operator.
    Outside(String),
}

/// The place. Relative paths start at `root`; `.` and `..` are resolved by name.
pub(crate) fn place(path: &str, root: &str, folders: &[String]) -> Place {
    let absolute = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", root.trim_end_matches('/'))
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in absolute.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Place::Outside(absolute),
            ".." => {}
            name => parts.push(name),
        }
    }
    let plain = format!("/{}", parts.join("/"));
    let below = |folder: &String| {
        plain == *folder
            || plain.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    if folders.iter().any(below) { Place::Inside(plain) } else { Place::Outside(absolute) }
}

#[cfg(test)]
mod tests {
    use super::{Place, place};

    fn inside(path: &str) -> Option<String> {
        match place(path, "/work", &["/work".to_owned(), "/docs".to_owned()]) {
            Place::Inside(path) => Some(path),
            Place::Outside(_) => None,
        }
    }

    #[test]
    fn relative_paths_start_from_the_root() {
        for (path, expected) in [
            ("a.txt", "/work/a.txt"),
            ("./a/./b.txt", "/work/a/b.txt"),
            ("a//b.txt", "/work/a/b.txt"),
            ("a/../b.txt", "/work/b.txt"),
            ("../docs/b.txt", "/docs/b.txt"),
            ("/docs/b.txt", "/docs/b.txt"),
            ("/work/", "/work"),
            ("", "/work"),
            ("~/a", "/work/~/a"),
        ] {
            assert_eq!(inside(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn what_leads_elsewhere_is_outside() {
        for path in [
            "/etc/passwd",
            "../etc/passwd",
            "/work/../etc",
            "../../..",
            "/",
            "/workshop/a",
            "/docs/../../x",
        ] {
            assert_eq!(inside(path), None, "{path}");
        }
    }
}
