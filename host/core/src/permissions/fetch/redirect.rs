//! Redirects: the next request of a chain, and the parts that it keeps. Follows browsers, with two
//! exceptions: never from a secure URL to an insecure one, and never credentials to another origin.
//! The new URL needs a grant like that of any request.

use url::Url;

use super::target::{TargetError, check};

/// The next request of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub url: Url,
    pub method: String,
    /// Whether the body is kept; else it is dropped with the headers that describe it.
    pub keeps_body: bool,
    /// Whether scheme, host and port are the same; else credentials are dropped.
    pub is_same_origin: bool,
}

impl Hop {
    /// Whether a header of the previous request is kept. `is_secret` says whether its value holds a
    /// secret's placeholder.
    #[must_use]
    pub fn keeps_header(&self, name: &str, is_secret: bool) -> bool {
        const PROOF: [&str; 4] = ["authorization", "cookie", "cookie2", "proxy-authorization"];
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let describes_body =
            name.len() > 8 && name.as_bytes()[..8].eq_ignore_ascii_case(b"content-");
        let is_proof = is_secret || PROOF.into_iter().any(is);
        (self.is_same_origin || !is_proof) && (self.keeps_body || !describes_body)
    }
}

/// A redirect that is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRedirect {
    #[error("it leads from a secure address to one that is not")]
    Downgrade,
    #[error("it leads to no address of the web: {0}")]
    Target(#[from] TargetError),
}

/// Returns the next request; `None` if the response is not a redirect.
///
/// # Errors
/// `NoRedirect` if the redirect must not be followed.
pub fn next_hop(
    method: &str,
    from: &Url,
    status: u16,
    location: Option<&str>,
) -> Result<Option<Hop>, NoRedirect> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = location else { return Ok(None) };
    // `url` would drop these characters silently.
    if location.chars().any(char::is_control) {
        return Err(TargetError::Unreadable.into());
    }
    let mut url = from.join(location.trim()).map_err(|_| TargetError::Unreadable)?;
    // A request has no fragment, but a redirect may name one.
    url.set_fragment(None);
    check(&url)?;
    if from.scheme() == "https" && url.scheme() != "https" {
        return Err(NoRedirect::Downgrade);
    }
    let becomes_get = match status {
        // As browsers do: 307 and 308 keep the method, 301 and 302 change only a POST.
        303 => !matches!(method, "GET" | "HEAD"),
        301 | 302 => method == "POST",
        _ => false,
    };
    let is_same_origin = from.origin() == url.origin();
    let method = if becomes_get { "GET" } else { method }.to_owned();
    Ok(Some(Hop { url, method, keeps_body: !becomes_get, is_same_origin }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(
        method: &str,
        from: &str,
        status: u16,
        location: &str,
    ) -> Result<Option<Hop>, NoRedirect> {
        next_hop(method, &Url::parse(from).unwrap(), status, Some(location))
    }

    fn followed(method: &str, from: &str, status: u16, location: &str) -> Hop {
        hop(method, from, status, location).unwrap().unwrap()
    }

    #[test]
    fn methods_change_as_browsers_change_them() {
        for (method, status, expected) in [
            ("GET", 301, "GET"),
            ("POST", 301, "GET"),
            ("POST", 302, "GET"),
            ("PUT", 302, "PUT"),
            ("PUT", 303, "GET"),
            ("HEAD", 303, "HEAD"),
            ("POST", 307, "POST"),
            ("POST", 308, "POST"),
            ("DELETE", 303, "GET"),
        ] {
            let hop = followed(method, "https://a.example/x", status, "y");
            assert_eq!(
                (hop.method.as_str(), hop.keeps_body),
                (expected, method == expected),
                "{method} {status}"
            );
            assert_eq!(hop.url.as_str(), "https://a.example/y");
        }
    }

    #[test]
    fn other_answers_lead_nowhere() {
        for status in [200, 300, 304, 305, 306, 404] {
            assert_eq!(hop("GET", "https://a.example/", status, "/x"), Ok(None));
        }
        assert_eq!(
            next_hop("GET", &Url::parse("https://a.example/").unwrap(), 302, None),
            Ok(None)
        );
    }

    #[test]
    fn nobody_follows_out_of_the_web() {
        use TargetError::*;
        for (location, error) in [
            ("http://a.example/", NoRedirect::Downgrade),
            ("file:///etc/passwd", NoRedirect::Target(Scheme)),
            ("https://u:p@a.example/", NoRedirect::Target(User)),
            ("https://", NoRedirect::Target(Unreadable)),
            ("/a\r\nb", NoRedirect::Target(Unreadable)),
            ("https://a.example./", NoRedirect::Target(Host)),
            ("/v1/..%2fx", NoRedirect::Target(Path)),
        ] {
            assert_eq!(hop("GET", "https://a.example/", 302, location), Err(error), "{location}");
        }
        assert_eq!(
            followed("GET", "http://a.example/", 302, "https://a.example/#part").url.as_str(),
            "https://a.example/"
        );
    }

    #[test]
    fn what_proves_who_asks_stays_with_its_origin() {
        for other_origin in [
            "https://b.example/",
            "https://a.example:444/",
            "https://sub.a.example/",
            "//b.example/",
        ] {
            let hop = followed("POST", "https://a.example/", 307, other_origin);
            for (name, is_secret) in [
                ("Authorization", false),
                ("cookie", false),
                ("Proxy-Authorization", false),
                ("x-api-key", true),
            ] {
                assert!(!hop.keeps_header(name, is_secret), "{name} to {other_origin}");
            }
            assert!(hop.keeps_header("accept", false) && hop.keeps_header("content-type", false));
        }
        let hop = followed("POST", "https://a.example/", 302, "/b");
        assert!(
            hop.keeps_header("authorization", true) && !hop.keeps_header("Content-Type", false)
        );
    }
}
