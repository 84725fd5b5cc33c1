//! `/`: the conversations. Their page is filled by a script of its own; a browser without a session
//! gets it too, because the printed address, whose token only that script sees, leads here.

use axum::Extension;
use axum::response::Html;
use maud::{Markup, html};

use super::{Place, document};
use crate::sessions::Session;

pub(super) async fn show(session: Option<Extension<Session>>) -> Html<String> {
    let session = session.as_ref().map(|Extension(session)| session);
    let place = session.map(|_| Place::Conversations);
    document("Conversations", place, session, &view())
}

/// The elements that the script fills, by their ids.
fn view() -> Markup {
    html! {
        link rel="stylesheet" href="/chat.css";
        script src="/chat.js" defer {}
        section.talk {
            h1.hidden { "Conversations" }
            header {
                label.hidden for="conversations" { "Conversation" }
                select id="conversations" {}
                select id="config" aria-label="Config of a new conversation" hidden {}
                button type="button" id="begin" aria-label="New conversation" { "New" }
            }
            section id="log" tabindex="0" aria-label="Conversation" {
                section id="greeting" aria-labelledby="task" hidden {
                    h2 id="task" dir="auto" {}
                    p id="description" dir="auto" {}
                    p id="agent" {}
                    p id="usage" {}
                }
                div role="log" aria-label="Messages" aria-live="polite" aria-relevant="additions" {
                    ol id="entries" {}
                }
                div.entry.interim id="draft" aria-hidden="true" hidden { b.who {} p dir="auto" {} }
                ol id="pending" aria-label="Messages that are not sent yet" aria-live="polite" {}
            }
            footer {
                p id="status" role="status" {}
                p id="problem" role="alert" {}
                form id="login" hidden {
                    a id="provider" href="/login/oidc?page=/" hidden { "Log in at your provider" }
                    label for="token" { "Token" }
                    input id="token" type="password" autocomplete="current-password" required;
                    button type="submit" { "Log in" }
                }
                form id="form" {
                    label.hidden for="text" { "Message" }
                    textarea id="text" rows="1" maxlength="60000" placeholder="Message"
                        enterkeyhint="send" autocomplete="off" dir="auto" {}
                    button type="button" id="stop" hidden { "Stop" }
                    button type="submit" id="send" { "Send" }
                }
            }
        }
        noscript { "This page needs JavaScript, from this server alone." }
    }
}
