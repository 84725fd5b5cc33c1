//! Log-in by a page without a script: with a token, or at a provider of OpenID Connect. Either way
//! the browser ends at a page of this server, whatever the request says.

#[cfg(feature = "oidc")]
mod provider;

use axum::Extension;
use axum::extract::Request;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use maud::{Markup, Render, html};
use url::Url;

use super::refused;
use super::text::address;
use crate::connections::peer_of;
use crate::gateway::Gateway;
use crate::http::{Server, form_body};
use crate::refusals::Surface;

/// The path to which a page's form sends a token.
pub(crate) const LOGIN: &str = "/login";
/// The path of the form that ends a session.
pub(crate) const LOGOUT: &str = "/logout";
/// The path that leads a browser to the provider.
pub(crate) const BEGIN: &str = "/login/oidc";
/// The path to which a provider leads back.
pub(crate) const CALLBACK: &str = "/login/callback";
/// The first page after a log-in.
const FIRST: &str = "/runs";
/// Bytes of the address of a page to which a log-in leads.
const PAGE_MAX: usize = 1_024;

/// The routes of log-ins.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    let own = vec![(LOGIN, post(log_in)), (LOGOUT, post(log_out))];
    #[cfg(feature = "oidc")]
    return [own, provider::routes()].concat();
    #[cfg(not(feature = "oidc"))]
    own
}

/// The ways to log in, for whoever asks for a page without access.
pub(crate) struct LoginForm<'f> {
    /// The page of the request.
    pub(crate) page: &'f str,
    /// The host of the provider.
    pub(crate) provider: Option<&'f str>,
    /// Whether the page answers an attempt.
    pub(crate) was_refused: bool,
}

impl Render for LoginForm<'_> {
    fn render(&self) -> Markup {
        html! {
            @if let Some(provider) = self.provider {
                p { a.button href=(address(BEGIN, [("page", Some(self.page))])) { "Log in at " (provider) } }
            }
            form.login method="post" action=(LOGIN) {
                input type="hidden" name="page" value=(self.page);
                label for="token" { "Token" }
                input id="token" name="token" type="password" autocomplete="current-password" required;
                button type="submit" { "Log in" }
            }
        }
    }
}

/// Returns the page of this server to which a log-in leads: that of the request, in the form of an
/// address, or the first one. No text leads to another server.
fn page_after_login(text: &str) -> String {
    let own = Url::parse("http://own.invalid").ok();
    let page =
        own.as_ref().filter(|_| text.len() <= PAGE_MAX && text.starts_with('/')).and_then(|own| {
            let url = own.join(text).ok()?;
            let is_own = url.origin() == own.origin() && url.username().is_empty();
            let path = url.path();
            // With two of them a browser would read the name of a host.
            let is_page = !path.starts_with("//") && Surface::of(path) == Surface::Page;
            let is_login = path == LOGIN || path.starts_with("/login/");
            (is_own && is_page && !is_login).then(|| url[url::Position::BeforePath..].to_owned())
        });
    page.unwrap_or_else(|| FIRST.to_owned())
}

/// Exchanges a token for a cookie, for a form without a script.
async fn log_in(Extension(gateway): Extension<Gateway>, request: Request) -> Response {
    let peer = peer_of(request.extensions());
    let body = match form_body(request).await {
        Ok(body) => body,
        Err(failure) => return refused(failure, None),
    };
    let (mut token, mut page) = (String::new(), FIRST.to_owned());
    for (name, value) in url::form_urlencoded::parse(body.as_bytes()) {
        match &*name {
            "token" => value.trim().clone_into(&mut token),
            "page" => page = page_after_login(&value),
            _ => {}
        }
    }
    match gateway.access().begin_session(&token, peer).await {
        Ok(cookie) => {
            let headers = [(SET_COOKIE, cookie), (LOCATION, page)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Err(refusal) => {
            let provider = gateway.access().provider_name();
            let provider = provider.as_deref();
            refused(refusal.into(), Some(&LoginForm { page: &page, provider, was_refused: true }))
        }
    }
}

/// Ends the session of a browser at every config. The next page asks for a token again.
async fn log_out(Extension(gateway): Extension<Gateway>, headers: HeaderMap) -> Response {
    let cookie = gateway.access().end_session(&headers);
    (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, FIRST.to_owned())]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_leads_to_a_page_of_this_server_and_to_nothing_else() {
        for (text, page) in [
            ("/runs/3f?event=1#e1", "/runs/3f?event=1#e1"),
            ("/", "/"),
            ("/inbox", "/inbox"),
            // A header can hold no line.
            ("/runs/a\r\nSet-Cookie: x=y", "/runs/aSet-Cookie:%20x=y"),
            ("/runs/\u{e4}", "/runs/%C3%A4"),
        ] {
            assert_eq!(page_after_login(text), page);
        }
        let long = format!("/runs/{}", "a".repeat(PAGE_MAX));
        for text in [
            "https://evil.test/runs",
            "//evil.test/runs",
            "/\\evil.test",
            "\\\\evil.test",
            "/\t/evil.test",
            "/runs/..//evil.test",
            "runs",
            "javascript:alert(1)",
            "/login",
            "/login/oidc",
            "/login/callback?code=x",
            "/api/v1/runs",
            "/api/conversations",
            "/metrics",
            "",
            &long,
        ] {
            assert_eq!(page_after_login(text), FIRST, "{text:?}");
        }
    }
}
