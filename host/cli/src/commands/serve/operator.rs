//! The operator's terminal as the server's port to it.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use conclave_core::setup::ChangedComponent;
use conclave_core::types::ids::{ChannelId, RoomId};
use conclave_runtime::store::StoreError;
use conclave_server::{Operator, TlsError};
use serde_json::json;

use crate::args::OutputArgs;
use crate::ui::screen::Screen;
use crate::ui::show::component::changed_lines;
use crate::ui::show::{BAD, FAINT, ODD, paint, plural, printable};
use crate::ui::stdout;

/// Prints what the server reports.
pub(super) struct OperatorTerminal {
    pub(super) screen: Arc<Screen>,
    pub(super) output: OutputArgs,
    /// The address of the page, without a token.
    pub(super) page: String,
}

impl Operator for OperatorTerminal {
    fn components_changed(&self, room: &RoomId, changed: &[ChangedComponent]) {
        for line in changed_lines(changed) {
            self.screen.notice(format_args!("{room}: {line}"));
        }
    }

    fn room_failed(&self, room: &RoomId, error: &dyn Display) {
        self.screen.notice(format_args!("{} {room}: {error}", paint(BAD, "error:")));
    }

    fn tokens_unreadable(&self, error: &io::Error) {
        self.screen.notice(format_args!(
            "{} the tokens of people cannot be read, and none of the state folder is valid: {error}",
            paint(BAD, "error:")
        ));
    }

    fn store_unreadable(&self, error: &StoreError) {
        let what = format!("the store cannot be read for a request: {error}");
        self.screen.notice(format_args!("{} {what}", paint(BAD, "error:")));
    }

    fn certificate_unusable(&self, error: &TlsError) {
        self.screen.notice(format_args!(
            "{} the changed certificate is not used, and the one before stays: {error}",
            paint(BAD, "error:")
        ));
    }

    fn draining(&self, requests: &[String]) {
        let requests = requests.iter().map(|request| printable(request)).collect::<Vec<_>>();
        self.screen.line(paint(FAINT, format_args!("stopping; waits for {}", requests.join(", "))));
    }

    fn given_up(&self, requests: &[String]) {
        let requests = requests.iter().map(|request| printable(request)).collect::<Vec<_>>();
        let what = format!("these requests were not answered: {}", requests.join(", "));
        self.screen.notice(format_args!("{} {what}", paint(ODD, "warning:")));
    }

    fn provider_failed(&self, error: &dyn Display) {
        self.screen.notice(format_args!("{} nobody logs in: {error}", paint(BAD, "error:")));
    }

    fn hooks_refused(&self, channel: Option<&ChannelId>, code: &str, count: u64) {
        let at = channel.map_or_else(|| "no webhook".to_owned(), |it| format!("the channel {it}"));
        let requests = plural(count, "request", "requests");
        let what = format!("{requests} to webhooks refused; the newest was to {at}: {code}");
        self.screen.notice(format_args!("{} {what}", paint(ODD, "warning:")));
    }

    fn token_renewed(&self, token: &str) {
        let url = url(&self.page, token);
        let printed = if self.output.json {
            stdout::queue_json(json!({ "type": "address", "url": url }))
        } else {
            let what = "a browser used the address; for another browser there is a new one:";
            self.screen.line(paint(FAINT, what));
            stdout::queue(format!("{url}\n"))
        };
        if let Err(error) = printed {
            self.screen.notice(format_args!("the next address cannot be printed: {error}"));
        }
    }
}

/// The address that gives access. The token is in the fragment, which browsers send to no server:
/// neither a proxy nor a log sees it.
pub(super) fn url(page: &str, token: &str) -> String {
    format!("{page}/#token={token}")
}
