//! The URL of one request, parsed so that the decision, the sent request and the server's likely
//! reading agree. Whether it is granted is decided elsewhere.

use url::Url;

/// The limit of a URL in bytes. Servers refuse longer ones.
const LENGTH: usize = 16 << 10;
/// The limit of percent-encodings of a path within itself.
const LAYERS: usize = 4;

/// A URL that no request can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the address cannot be read; it must be as `https://host/path`")]
    Unreadable,
    #[error("the address must begin with `https://` or `http://`")]
    Scheme,
    #[error("the address has no host, or one that ends in a dot")]
    Host,
    #[error("the address holds a user name or a password")]
    User,
    #[error("the address holds a fragment, which is never sent")]
    Fragment,
    #[error("the address's path would go upwards once a server has decoded it")]
    Path,
    #[error("the address has more than {} bytes", LENGTH)]
    TooLong,
}

/// Parses the URL of a request.
///
/// # Errors
/// The reason why no request can have it.
pub fn target(text: &str) -> Result<Url, TargetError> {
    if text.len() > LENGTH {
        return Err(TargetError::TooLong);
    }
    // `url` would drop these characters silently.
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(TargetError::Unreadable);
    }
    let url = Url::parse(text).map_err(|_| TargetError::Unreadable)?;
    if url.fragment().is_some() {
        return Err(TargetError::Fragment);
    }
    check(&url)?;
    Ok(url)
}

/// Checks that apply to every hop of a chain.
pub(super) fn check(url: &Url) -> Result<(), TargetError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(TargetError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(TargetError::User);
    }
    let is_plain = |host: &str| {
        !host.is_empty() && !host.ends_with('.') && !host.starts_with('.') && !host.contains("..")
    };
    if !url.host_str().is_some_and(is_plain) || url.port() == Some(0) {
        return Err(TargetError::Host);
    }
    if leaves_its_folder(url.path()) {
        return Err(TargetError::Path);
    }
    if url.as_str().len() > 3 * LENGTH { Err(TargetError::TooLong) } else { Ok(()) }
}

/// Whether some server would find a `..` that `url` did not see: behind `%2f` or `%5c`, before a
/// `;`, encoded twice, in overlong UTF-8.
///
/// Allocates only for a path that is encoded twice.
pub(super) fn leaves_its_folder(path: &str) -> bool {
    if goes_up(Decoded(path.as_bytes())) {
        return true;
    }
    let mut layer: Vec<u8> = Vec::new();
    for round in 0..=LAYERS {
        let encoded_again = if round == 0 { path.contains("%25") } else { layer.contains(&b'%') };
        if !encoded_again {
            return false;
        }
        let next: Vec<u8> =
            if round == 0 { Decoded(path.as_bytes()).collect() } else { Decoded(&layer).collect() };
        if round > 0 && next == layer {
            return false;
        }
        layer = next;
        if goes_up(Decoded(&layer)) {
            return true;
        }
    }
    true
}

/// Whether a segment is `.` or `..`, or a byte occurs that is valid in no text.
fn goes_up(path: impl Iterator<Item = u8>) -> bool {
    let (mut dots, mut is_other) = (0_usize, false);
    for byte in path {
        match byte {
            b'/' | b'\\' | b';' => {
                if !is_other && matches!(dots, 1 | 2) {
                    return true;
                }
                // Parameters follow a `;` and do not belong to the segment.
                (dots, is_other) = (0, byte == b';');
            }
            b'.' => dots += 1,
            0 | 0xc0 | 0xc1 => return true,
            _ => is_other = true,
        }
    }
    !is_other && matches!(dots, 1 | 2)
}

/// Bytes with one layer of percent-encoding removed.
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (hex(high), hex(low))
        {
            self.0 = rest;
            return u8::try_from(high * 16 + low).ok();
        }
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_normalised_before_anything_is_decided() {
        let read = |text: &str| target(text).unwrap().to_string();
        assert_eq!(read("HTTPS://API.Example.org:443/a/../b"), "https://api.example.org/b");
        assert_eq!(read("http://0x7f.1/"), "http://127.0.0.1/");
        assert_eq!(read("http://2130706433/"), "http://127.0.0.1/");
        assert_eq!(read("http://[::ffff:127.0.0.1]/"), "http://[::ffff:7f00:1]/");
        assert_eq!(read("https://a.example\\b\\..\\c"), "https://a.example/c");
        assert_eq!(read("https://a.example/v1/%2e%2E/x"), "https://a.example/x");
        assert_eq!(read("https://bücher.example/ü"), "https://xn--bcher-kva.example/%C3%BC");
        assert_eq!(read("https://ⓔxample.org/"), "https://example.org/");
    }

    #[test]
    fn what_no_request_can_have_is_refused() {
        use TargetError::*;
        for (text, error) in [
            ("", Unreadable),
            ("a.example/b", Unreadable),
            ("https://", Unreadable),
            (" https://a.example/", Unreadable),
            ("https://a.example/a\nb", Unreadable),
            ("https://a.example/a\r\nHost: b", Unreadable),
            ("https://1.2.3.4.5/", Unreadable),
            ("file:///etc/passwd", Scheme),
            ("ftp://a.example/", Scheme),
            ("data:text/plain,x", Scheme),
            ("https://u@a.example/", User),
            ("https://u:p@a.example/", User),
            ("https://a.example/#f", Fragment),
            ("https://a.example./", Host),
            ("https://a..example/", Host),
            ("https://a.example:0/", Host),
        ] {
            assert_eq!(target(text).err(), Some(error), "{text:?}");
        }
        assert_eq!(
            target(&format!("https://a.example/{}", "x".repeat(LENGTH))).err(),
            Some(TooLong)
        );
    }

    #[test]
    fn a_path_that_a_server_may_read_upwards_is_refused() {
        for path in [
            "v1/..%2fadmin",
            "v1/%2e%2e%2fadmin",
            "v1/..%5cadmin",
            "v1/a%2f../admin%2f..",
            "v1/..;/admin",
            "v1/..;a=b/admin",
            "v1/%252e%252e/admin",
            "v1/%252e%252e%252fadmin",
            "v1/%25252e%25252e/admin",
            "v1/%c0%ae%c0%ae/admin",
            "v1/a%00",
            "v1/%2e%3b/x",
            "v1/..%252fadmin",
        ] {
            assert_eq!(
                target(&format!("https://a.example/{path}")).err(),
                Some(TargetError::Path),
                "{path}"
            );
        }
    }

    #[test]
    fn ordinary_paths_are_let_through() {
        for path in [
            "",
            "a",
            "a.b",
            "...",
            "a..b",
            "..a",
            ".well-known/x",
            "group%2Fproject",
            "100%25",
            "a;b=c",
            "%C3%BC",
            "a%20b",
            "a%252Fb",
            "%",
            "%zz",
        ] {
            assert!(target(&format!("https://a.example/{path}")).is_ok(), "{path}");
        }
    }
}
