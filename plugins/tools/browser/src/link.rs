//! The resolution of links, with as much of the rules for addresses as pages need.
//!
//! The crate `url` does it all, and doubles the component with its tables of host names. The host
//! parses each address with it when the link is opened.

/// The absolute address of a link, or `None` if it cannot be opened.
pub(crate) fn resolved(base: &str, href: &str) -> Option<String> {
    let href: String = href.trim().chars().filter(|letter| !letter.is_control()).collect();
    let href = href.split('#').next().unwrap_or_default();
    if href.is_empty() {
        return None;
    }
    if let Some(scheme) = scheme(href) {
        return matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https" | "mailto")
            .then(|| href.to_owned());
    }
    let (scheme, rest) = base.split_once("://")?;
    if let Some(host) = href.strip_prefix("//") {
        return Some(format!("{scheme}://{host}"));
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if href.starts_with('?') {
        return Some(format!("{scheme}://{host}/{path}{href}"));
    }
    let (href, query) =
        href.split_once('?').map_or((href, None), |(href, query)| (href, Some(query)));
    let mut parts: Vec<&str> = if href.starts_with('/') {
        Vec::new()
    } else {
        path.rsplit_once('/').map_or(Vec::new(), |(folder, _)| folder.split('/').collect())
    };
    for part in href.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if matches!(href.rsplit('/').next(), Some("." | "..")) {
        parts.push("");
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{scheme}://{host}/{}{query}", parts.join("/")))
}

fn scheme(href: &str) -> Option<&str> {
    let (scheme, _) = href.split_once(':')?;
    let is_one = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
    is_one.then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::resolved;

    #[test]
    fn relative_links_start_from_the_page() {
        for (href, expected) in [
            ("b", Some("https://a.example/d/b")),
            ("./b/c", Some("https://a.example/d/b/c")),
            ("../../../b", Some("https://a.example/b")),
            ("..", Some("https://a.example/")),
            ("?p=2", Some("https://a.example/d/e?p=2")),
            ("/x?y=/z/../w", Some("https://a.example/x?y=/z/../w")),
            ("b?c:d", Some("https://a.example/d/b?c:d")),
            ("HTTP://b.example", Some("HTTP://b.example")),
            ("mailto:a@b.example", Some("mailto:a@b.example")),
            ("data:text/html,x", None),
            ("java\nscript:x()", None),
            ("#x", None),
            ("", None),
        ] {
            assert_eq!(resolved("https://a.example/d/e?f#g", href).as_deref(), expected, "{href}");
        }
        assert_eq!(resolved("https://a.example", "b").as_deref(), Some("https://a.example/b"));
    }
}
