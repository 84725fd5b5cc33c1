//! Checks of methods and headers from a guest. Headers for framing, host and compression belong to
//! the host.

use conclave_core::permissions::fetch::{is_header_name, is_own_header};

/// Maximum headers of one request.
const COUNT: usize = 64;
/// Checks that the method consists of upper-case letters.
///
/// # Errors
/// The problem, for the guest.
pub(crate) fn check_method(method: &str) -> Result<(), String> {
    let is_method =
        (1..=16).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_method {
        Ok(())
    } else {
        Err("a method is a word in upper case, such as `GET`".to_owned())
    }
}

/// Returns the headers with lower-case names.
///
/// # Errors
/// The problem of a header, for the guest.
pub(crate) fn checked_headers(
    headers: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<(String, String)>, String> {
    let mut checked = Vec::new();
    for (name, value) in headers {
        if checked.len() == COUNT {
            return Err(format!("a request has no more than {COUNT} headers"));
        }
        let name = name.to_ascii_lowercase();
        let excerpt = || name.escape_debug().take(64).collect::<String>();
        if !is_header_name(&name) {
            return Err(format!("`{}` is no name of a header", excerpt()));
        }
        if is_own_header(&name) {
            return Err(format!("the host sets the header `{}` itself", excerpt()));
        }
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return Err(format!(
                "the value of the header `{}` has other characters than visible ASCII and spaces",
                excerpt()
            ));
        }
        checked.push((name, value));
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frames_a_request_is_the_hosts() {
        let check =
            |name: &str, value: &str| checked_headers([(name.to_owned(), value.to_owned())]);
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "CONNECTION",
            "te",
            "upgrade",
            "proxy-authorization",
            "Accept-Encoding",
            "expect",
        ] {
            assert!(check(name, "x").unwrap_err().contains("the host sets"), "{name}");
        }
        for name in ["", ":authority", "a b", "a\r\nb", "ä", "a:"] {
            assert!(check(name, "x").unwrap_err().contains("no name"), "{name:?}");
        }
        for value in ["a\r\nb: c", "a\nb", "\0", "ä", "\u{7f}"] {
            assert!(check("x", value).unwrap_err().contains("other characters"), "{value:?}");
        }
        assert_eq!(check("X-Key", "a b\t~").unwrap(), [("x-key".to_owned(), "a b\t~".to_owned())]);
        assert!(checked_headers((0..65).map(|n| (format!("x-{n}"), String::new()))).is_err());
    }

    #[test]
    fn a_method_is_a_word_in_upper_case() {
        assert!(check_method("GET").is_ok());
        for method in ["", "get", "GE T", "GET\r\n", "VERYVERYVERYLONGX"] {
            assert!(check_method(method).is_err(), "{method:?}");
        }
    }
}
