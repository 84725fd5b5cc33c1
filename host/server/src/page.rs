//! The pages of the server: HTML that is rendered here and readable without a script. A page shows
//! what the core's `inspect` and the store say; it decides nothing. Small modules of the page's own
//! keep it current and fetch more, and no other script can run.

mod act;
mod audit;
mod budgets;
mod event;
mod inbox;
pub(crate) mod login;
mod parts;
mod rights;
mod run;
mod runs;
mod talk;
mod text;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use conclave_core::policy::roles::Action;
use maud::{DOCTYPE, Markup, html};

use self::login::LoginForm;
use crate::http::{Failure, Server, now};
use crate::sessions::{Credential, Session};

const STYLE: (&str, &str) = ("text/css; charset=utf-8", include_str!("page/page.css"));
const LIVE: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page/live.js"));
const INBOX: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page/inbox.js"));
const CHAT_STYLE: (&str, &str) = ("text/css; charset=utf-8", include_str!("page/chat.css"));
const CHAT: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page/chat.js"));
const ICON: (&str, &str) = ("image/svg+xml", include_str!("page/icon.svg"));

/// The files of the pages, which need no session.
pub(crate) const FILES: [(&str, (&str, &str)); 6] = [
    ("/page.css", STYLE),
    ("/live.js", LIVE),
    ("/inbox.js", INBOX),
    ("/chat.css", CHAT_STYLE),
    ("/chat.js", CHAT),
    ("/icon.svg", ICON),
];

/// The places of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Conversations,
    Runs,
    Inbox,
    Rights,
    Budgets,
    Audit,
}

impl Place {
    const ALL: [Self; 6] =
        [Self::Runs, Self::Inbox, Self::Conversations, Self::Budgets, Self::Rights, Self::Audit];

    fn path(self) -> &'static str {
        match self {
            Self::Conversations => "/",
            Self::Runs => "/runs",
            Self::Inbox => "/inbox",
            Self::Rights => "/rights",
            Self::Budgets => "/budgets",
            Self::Audit => "/audit",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Conversations => "Conversations",
            Self::Runs => "Runs",
            Self::Inbox => "Inbox",
            Self::Rights => "Rights",
            Self::Budgets => "Budgets",
            Self::Audit => "Audit",
        }
    }

    /// Whether the place shows one config at a time.
    fn is_of_one_config(self) -> bool {
        matches!(self, Self::Budgets | Self::Rights | Self::Audit)
    }

    /// The action that a person must be allowed to see the place.
    fn action(self) -> Action {
        match self {
            Self::Conversations | Self::Runs | Self::Inbox | Self::Budgets => Action::List,
            Self::Rights => Action::Inspect,
            Self::Audit => Action::Audit,
        }
    }
}

/// The path of the form that refuses several calls.
pub(crate) const REFUSE_SELECTED: &str = inbox::REFUSE;

/// The routes of the pages.
pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    let file = |(path, (kind, text))| (path, get(async move || ([(CONTENT_TYPE, kind)], text)));
    // The address of a form is that of its page, for a browser that asks for it later.
    let pages = [
        ("/", get(talk::show)),
        ("/runs", get(runs::list).post(act::start)),
        ("/runs/{run}", get(run::show)),
        ("/runs/{run}/messages", post(act::say).get(act::to_run)),
        ("/runs/{run}/stop", post(act::stop).get(act::to_run)),
        ("/runs/{run}/pause", post(act::pause).get(act::to_run)),
        ("/runs/{run}/resume", post(act::resume).get(act::to_run)),
        ("/runs/{run}/background", get(parts::background)),
        ("/runs/{run}/changes", get(parts::changes).post(act::decide_changes)),
        ("/runs/{run}/audit", get(parts::audit)),
        ("/runs/{run}/budget", get(budgets::of_run)),
        ("/runs/{run}/questions/{id}", post(act::settle).get(act::to_inbox)),
        ("/inbox", get(inbox::list)),
        (inbox::REFUSE, post(act::refuse_selected).get(act::to_list)),
        ("/rights", get(rights::show)),
        ("/budgets", get(budgets::list)),
        ("/audit", get(audit::show)),
    ];
    FILES.into_iter().map(file).chain(pages).chain(login::routes()).collect()
}

/// A page that is not there, or not for this person.
#[derive(Debug)]
pub(crate) struct PageFailure(Failure);

impl PageFailure {
    /// The answer for a run of which no record can be read.
    fn unreadable(run: &str) -> Self {
        let what = format!("the run {run} has no readable records");
        Self(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "failed", what))
    }
}

impl<T: Into<Failure>> From<T> for PageFailure {
    fn from(failure: T) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        refused(self.0, None)
    }
}

/// The page in place of one that is refused. Without access it has the form to log in, which leads
/// to the page of the request.
pub(crate) fn refused(failure: Failure, login: Option<&LoginForm<'_>>) -> Response {
    let (status, body) = failure.into_parts();
    let message = text::sentence(body["message"].as_str().unwrap_or_default());
    let configs = body["configs"].as_array().filter(|_| status == StatusCode::BAD_REQUEST);
    // Whoever has not tried to log in yet has made no mistake.
    let is_first_look = login.is_some_and(|login| !login.was_refused);
    let title = match status {
        StatusCode::UNAUTHORIZED => "Log in",
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        _ if configs.is_some() => "Choose a config",
        _ => "That failed",
    };
    let page = document(
        title,
        None,
        None,
        &html! {
            h1 { (title) }
            @match (login, configs) {
                // The page is of one config, and the address names none.
                (Some(login), Some(configs)) => {
                    p { "This page shows one config at a time." }
                    ul.choices {
                        @for name in configs.iter().filter_map(|name| name.as_str()) {
                            li {
                                a.button href=(text::address(login.page, [("config", Some(name))])) {
                                    (text::foreign(name))
                                }
                            }
                        }
                    }
                }
                (Some(login), None) if status == StatusCode::UNAUTHORIZED => {
                    p.problem[!is_first_look] role="alert" { (message) }
                    (login)
                }
                _ => {
                    p.problem role="alert" { (message) }
                    p { a href="/runs" { "All runs" } }
                }
            }
        },
    );
    (status, page).into_response()
}

/// A page of a place.
fn page(title: &str, place: Place, session: &Session, body: &Markup) -> Html<String> {
    document(title, Some(place), Some(session), body)
}

fn document(
    title: &str,
    place: Option<Place>,
    session: Option<&Session>,
    body: &Markup,
) -> Html<String> {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Conclave" }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/page.css";
                script src="/live.js" type="module" {}
            }
            body class=[session.is_none().then_some("alone")] {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    a.home href="/runs" { "Conclave" }
                    @if let Some(session) = session { (navigation(place, session)) }
                }
                main id="content" tabindex="-1" { (body) }
            }
        }
    };
    Html(document.into_string())
}

fn navigation(here: Option<Place>, session: &Session) -> Markup {
    let may = |place: &Place| session.may_somewhere(place.action());
    let config = |place: &Place| {
        let first = || session.first_config_where(place.action());
        session.config().or_else(|| first().filter(|_| place.is_of_one_config()))
    };
    html! {
        nav aria-label="Pages" {
            ul {
                @for place in Place::ALL.iter().filter(|place| may(place)) {
                    li {
                        a href=(text::address(place.path(), [("config", config(place))]))
                            aria-current=[(here == Some(*place)).then_some("page")] {
                            (place.name())
                        }
                    }
                }
            }
        }
        (chooser(here, session))
        p.who {
            @if let Some(name) = session.name() { b { (text::foreign(name)) } " " }
            // Of several configs the role at one says nothing about the others.
            @if session.config().is_some() || session.configs().next().is_none() {
                span { (session.identity.role.as_str()) }
            }
        }
        @if session.identity.credential != Credential::Proxy {
            form.logout method="post" action=(login::LOGOUT) { button type="submit" { "Log out" } }
        }
    }
}

/// The configs that the person sees, if there are several: each leads to its part of the place.
fn chooser(here: Option<Place>, session: &Session) -> Markup {
    let here = here.unwrap_or(Place::Runs);
    let path = here.path();
    html! {
        @if session.configs().next().is_some() {
            nav.configs aria-label="Configs" {
                ul {
                    @if !here.is_of_one_config() {
                        li {
                            a href=(path)
                                aria-current=[session.config().is_none().then_some("true")] {
                                "All configs"
                            }
                        }
                    }
                    @for name in session.configs() {
                        li {
                            a href=(text::address(path, [("config", Some(name))]))
                                aria-current=[(session.config() == Some(name)).then_some("true")] {
                                (text::foreign(name))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The present time.
#[cfg(test)]
mod tests;
