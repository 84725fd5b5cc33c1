//! In which form a request is refused: programs get JSON, API v1 and webhooks a problem document, and browsers a
//! page.

use axum::response::{IntoResponse as _, Response};

use crate::access::is_hook;
use crate::api::{self, API, Problem};
use crate::http::Failure;
use crate::page;
use crate::page::login::{BEGIN, LoginForm};

/// Who asks for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Programs of people and operators.
    Api,
    /// The script of the page of conversations.
    Script,
    /// Browsers.
    Page,
}

impl Surface {
    /// Who asks for this path, also if nothing is there.
    pub(crate) fn of(path: &str) -> Self {
        let is_health = api::health_routes().iter().any(|(health, _)| *health == path);
        let is_v1 =
            path.strip_prefix(API).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if is_v1 || is_health || is_hook(path) {
            return Self::Api;
        }
        if path.starts_with("/api/") { Self::Script } else { Self::Page }
    }

    /// Answers a request that is refused.
    pub(crate) fn refuse(self, failure: Failure, login: Option<&LoginForm<'_>>) -> Response {
        match self {
            Self::Api => Problem::from(failure).into_response(),
            Self::Script => match login.and_then(|login| login.provider) {
                // The script shows where else one can log in.
                Some(_) if failure.is_without_access() => {
                    failure.with("login", BEGIN.into()).into_response()
                }
                _ => failure.into_response(),
            },
            Self::Page => page::refused(failure, login),
        }
    }
}

/// Whether the encoded characters of a path are UTF-8. Handlers read its parts as texts.
pub(crate) fn is_readable(path: &str) -> bool {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => bytes.extend([&[byte], &part.as_bytes()[2..]].concat()),
            None => return false,
        }
    }
    std::str::from_utf8(&bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_pages_and_programs_do_not() {
        for path in
            ["/runs", "/runs/3f2a", "/runs/a/b/c", "/inbox", "/login", "/", "/nothing", "/apis"]
        {
            assert_eq!(Surface::of(path), Surface::Page, "{path}");
        }
        for path in ["/api/v1", "/api/v1/runs", "/api/v1/nothing", "/metrics", "/readyz"] {
            assert_eq!(Surface::of(path), Surface::Api, "{path}");
        }
        for path in ["/api/session", "/api/conversations", "/api/nothing", "/api/v1x"] {
            assert_eq!(Surface::of(path), Surface::Script, "{path}");
        }
    }
}
