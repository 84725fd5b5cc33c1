//! A parser for the subset of TOML that xtask reads: string values in the repository's own
//! Cargo.toml files, one to a line.
//!
//! A real parser would cost more build time than the rest of xtask.

/// Returns the string at `key` in each section with this header, such as `[lib]` or `[[example]]`.
pub(crate) fn strings(text: &str, header: &str, key: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == header;
        } else if inside {
            found.extend(string_at(line, key));
        }
    }
    found
}

/// Returns the first part of each key in the sections whose headers end in `ending`, such as
/// `dependencies]`.
pub(crate) fn keys<'a>(text: &'a str, ending: &'a str) -> impl Iterator<Item = String> + 'a {
    let mut is_inside = false;
    text.lines().filter_map(move |line| {
        if line.starts_with('[') {
            is_inside = line.trim_end().ends_with(ending);
            return None;
        }
        let key = line.split_once('=').map_or("", |(key, _)| key);
        let name = key.split('.').next().unwrap_or_default().trim();
        (is_inside && !name.is_empty() && !name.starts_with('#')).then(|| name.to_owned())
    })
}

pub(crate) fn string(text: &str, header: &str, key: &str) -> Option<String> {
    strings(text, header, key).into_iter().next()
}

/// Returns the strings of a list, which can span several lines. Comments and brackets in it are not
/// supported.
pub(crate) fn list(text: &str, header: &str, key: &str) -> Vec<String> {
    let section = text.split_once(&format!("{header}\n")).map_or("", |(_, section)| section);
    let Some(at) = section.lines().position(|line| {
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
    }) else {
        return Vec::new();
    };
    let lines: Vec<&str> = section.lines().skip(at).collect();
    let list = lines.join("\n");
    let inside = list
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(inside, _)| inside);
    inside.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn string_at(line: &str, key: &str) -> Option<String> {
    let value =
        line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    value.split_once('"').map(|(value, _)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{keys, list, string, strings};

    const TEXT: &str = "[package]\nname = \"a\"\n[[example]]\nname = \"b\"\nname2 = \"x\"\n\n[[example]] \n name=\"c\" # why\n[lib]\nname = \"d\"\n";

    #[test]
    fn a_key_is_read_only_in_its_section() {
        assert_eq!(string(TEXT, "[package]", "name").as_deref(), Some("a"));
        assert_eq!(string(TEXT, "[lib]", "name").as_deref(), Some("d"));
        assert_eq!(string(TEXT, "[bin]", "name"), None);
    }

    #[test]
    fn repeated_sections_give_one_string_each() {
        assert_eq!(strings(TEXT, "[[example]]", "name"), ["b", "c"]);
    }

    #[test]
    fn keys_are_those_of_all_sections_of_a_kind() {
        let text = "[dependencies]\na.workspace = true\n# b = 1\nc = { path = \"c=d\" }\n\n[features]\nd = []\n[target.'cfg(unix)'.dev-dependencies]\ne = \"1\"\n";
        assert_eq!(keys(text, "dependencies]").collect::<Vec<_>>(), ["a", "c", "e"]);
    }

    #[test]
    fn a_list_may_go_over_lines() {
        let text = "[a]\nmembers = [\"x\"]\n[workspace]\nresolver = \"3\"\nmembers = [\n  \"a/b\", \"c/*\",\n  \"d\",\n]\nother = [\"e\"]\n";
        assert_eq!(list(text, "[workspace]", "members"), ["a/b", "c/*", "d"]);
        assert!(list(text, "[workspace]", "missing").is_empty());
    }
}
