//! Names that a model, or a person, would confuse. Names are ASCII, so the causes are few: case,
//! the marks between words, and digits that resemble letters. Only compares; the callers report.

use std::collections::BTreeMap;

/// Whether two different names look the same at a glance.
#[must_use]
pub fn looks_alike(a: &str, b: &str) -> bool {
    a != b && skeleton(a) == skeleton(b)
}

/// The skeleton of a name: names with the same skeleton look alike.
#[must_use]
pub fn skeleton(name: &str) -> String {
    let mut skeleton = String::with_capacity(name.len());
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            // Several marks count as one: providers get `__` for `.`.
            '_' | '-' | '.' if skeleton.ends_with('_') => {}
            '_' | '-' | '.' => skeleton.push('_'),
            '0' => skeleton.push('o'),
            '1' | 'i' => skeleton.push('l'),
            c => skeleton.push(c),
        }
    }
    skeleton
}

/// Each name that looks like an earlier one, with that one.
pub fn pairs<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(&'a str, &'a str)> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut pairs = Vec::new();
    for name in names {
        match seen.get(&skeleton(name)) {
            Some(earlier) if *earlier != name => pairs.push((*earlier, name)),
            Some(_) => {}
            None => drop(seen.insert(skeleton(name), name)),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_does_not_tell_these_apart() {
        for (a, b) in [
            ("notes_a.x", "notes-a.x"),
            ("files.read", "fi1es.read"),
            ("files.read", "flles.read"),
            ("go.home", "g0.home"),
            ("Done", "done"),
            ("a.b_c", "a-b.c"),
            ("a.b", "a__b"),
        ] {
            assert!(looks_alike(a, b) && looks_alike(b, a), "{a} {b}");
        }
    }

    #[test]
    fn a_glance_tells_these_apart() {
        for (a, b) in [
            ("search.find", "search2.find"),
            ("a.b", "a.b"),
            ("read_file", "readfile"),
            ("a.get", "b.get"),
            ("v2.x", "v3.x"),
            ("", "_"),
        ] {
            assert!(!looks_alike(a, b), "{a} {b}");
        }
    }

    #[test]
    fn every_later_one_is_named_with_the_first() {
        assert_eq!(pairs(["a.l", "b.l", "a.1", "a.i", "a.l"]), [("a.l", "a.1"), ("a.l", "a.i")]);
    }
}
