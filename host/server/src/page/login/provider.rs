//! The two pages of a log-in at a provider: the one that leads there, and the one to which it leads
//! back.

use axum::Extension;
use axum::extract::State;
use axum::http::header::{HOST, LOCATION, REFRESH, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use maud::html;

use super::{BEGIN, CALLBACK, FIRST, page_after_login};
use crate::gateway::Gateway;
use crate::http::{Failure, Server};
use crate::oidc::{Callback, OidcRefusal, ProviderFailure};
use crate::page::text::address;
use crate::page::{document, refused};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    vec![(BEGIN, get(begin)), (CALLBACK, get(end))]
}

/// Leads to the provider.
async fn begin(State(server): State<Server>, headers: HeaderMap, uri: Uri) -> Response {
    let mut fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let page = fields.find(|(name, _)| name == "page").map(|(_, page)| page_after_login(&page));
    let page = page.unwrap_or_else(|| FIRST.to_owned());
    match server.access().begin_login(host(&headers), page.clone()).await {
        None => refused(Failure::missing(), None),
        Some(Ok((cookie, url))) => {
            (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, url)]).into_response()
        }
        Some(Err(refusal)) => not_logged_in(refusal, &page),
    }
}

/// The host by which the browser came. It was checked.
fn host(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// Ends the log-in.
async fn end(
    State(server): State<Server>,
    Extension(gateway): Extension<Gateway>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let mut callback = Callback::default();
    for (name, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let field = match &*name {
            "code" => &mut callback.code,
            "state" => &mut callback.state,
            "iss" => &mut callback.issuer,
            "error" => &mut callback.error,
            _ => continue,
        };
        *field = Some(value.into_owned());
    }
    match server.access().end_login(&headers, host(&headers), callback).await {
        None => refused(Failure::missing(), None),
        Some(Ok(ended)) => {
            gateway.access().begin_beside(&ended);
            // The cookie is of the browser.
            let page = page_after_login(&ended.page);
            // A redirect would be one of the provider's site, with which a browser sends no cookie
            // that is `Strict`; what this page does is its own.
            let refresh = [(REFRESH, format!("0;url={page}"))];
            let cookies = AppendHeaders(ended.cookies.map(|cookie| (SET_COOKIE, cookie)));
            let body = html! {
                h1 { "Logged in" }
                p { a href=(page) { "Continue" } }
            };
            (refresh, cookies, document("Logged in", None, None, &body)).into_response()
        }
        Some(Err(refusal)) => not_logged_in(refusal, FIRST),
    }
}

/// The page that says why nobody is logged in, and leads to another try.
fn not_logged_in(refusal: OidcRefusal, page: &str) -> Response {
    let status = match refusal {
        OidcRefusal::UnknownLogin => StatusCode::BAD_REQUEST,
        OidcRefusal::Busy => StatusCode::TOO_MANY_REQUESTS,
        OidcRefusal::Provider(ProviderFailure::Unreachable | ProviderFailure::Secret) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        OidcRefusal::Provider(_)
        | OidcRefusal::IdToken(_)
        | OidcRefusal::Denied(_)
        | OidcRefusal::Unnamed(_)
        | OidcRefusal::NoRole => StatusCode::FORBIDDEN,
    };
    let body = html! {
        h1 { "Not logged in" }
        p.problem role="alert" { (refusal) }
        p { a.button href=(address(BEGIN, [("page", Some(page))])) { "Try again" } }
    };
    (status, document("Not logged in", None, None, &body)).into_response()
}
