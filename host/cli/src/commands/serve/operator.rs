//! The operator's terminal as the server's port to it.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use conclave_core::policy::daily_budget::BudgetUsedUp;
use conclave_core::setup::ChangedComponent;
use conclave_core::types::ids::{ChannelId, Principal, RoomId};
use conclave_runtime::store::StoreError;
use conclave_server::{AnsweredRequest, Operator, TlsError};
use serde_json::json;

use crate::args::OutputArgs;
use crate::ui::journald::Priority;
use crate::ui::log::{self, LogFields};
use crate::ui::screen::Screen;
use crate::ui::show::component::changed_lines;
use crate::ui::show::{BAD, FAINT, ODD, paint, plural, printable};
use crate::ui::stdout;

/// Removed runs that are listed by name.
const NAMED: usize = 8;

/// Prints what the server reports.
pub(super) struct OperatorTerminal {
    pub(super) screen: Arc<Screen>,
    pub(super) output: OutputArgs,
    /// The address of the page, without a token.
    pub(super) page: String,
}

impl OperatorTerminal {
    fn line(&self, fields: &LogFields, text: impl Display) {
        self.screen.log_line(fields, paint(FAINT, text));
    }

    fn warning(&self, fields: &LogFields, text: impl Display) {
        self.screen.log_notice(fields, format_args!("{} {text}", paint(ODD, "warning:")));
    }

    fn error(&self, fields: &LogFields, text: impl Display) {
        self.screen.log_notice(fields, format_args!("{} {text}", paint(BAD, "error:")));
    }
}

impl Operator for OperatorTerminal {
    fn components_changed(&self, room: &RoomId, changed: &[ChangedComponent]) {
        let fields = LogFields::of("components-changed").run(Some(room));
        for line in changed_lines(changed) {
            self.screen.log_notice(&fields, format_args!("{room}: {line}"));
        }
    }

    fn room_failed(&self, room: &RoomId, error: &dyn Display) {
        let fields = LogFields::of("room-failed").run(Some(room));
        self.error(&fields, format_args!("{room}: {error}"));
    }

    fn tokens_unreadable(&self, error: &io::Error) {
        self.error(
            &LogFields::of("tokens-unreadable"),
            format_args!(
                "the tokens of people cannot be read, and none of the state folder is valid: {error}"
            ),
        );
    }

    fn store_unreadable(&self, error: &StoreError) {
        let what = format!("the store cannot be read for a request: {error}");
        self.error(&LogFields::of("store-unreadable"), what);
    }

    fn runs_removed(&self, removed: &[RoomId], with_changes: &[RoomId]) {
        if !removed.is_empty() {
            let count = plural(removed.len() as u64, "ended run", "ended runs");
            let names: Vec<&str> = removed.iter().take(NAMED).map(RoomId::as_str).collect();
            let more = removed.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let what = format!("retention removed {count}: {}{more}", names.join(", "));
            self.line(&LogFields::of("runs-removed"), what);
        }
        for run in with_changes {
            let fields = LogFields::of("run-stays").run(Some(run));
            let what = format!("{run} stays: it has changes to apply or drop: conclave diff {run}");
            self.warning(&fields, what);
        }
    }

    fn runs_not_removed(&self, error: &StoreError) {
        let what = format!("old runs were not removed, and are within an hour: {error}");
        self.error(&LogFields::of("runs-not-removed"), what);
    }

    fn budget_used_up(&self, by: &Principal, run: Option<&RoomId>, refusal: &BudgetUsedUp) {
        let place = run.map_or_else(|| "a new run".to_owned(), |run| format!("a message to {run}"));
        let fields =
            LogFields { principal: Some(by.clone()), ..LogFields::of("budget-used-up").run(run) };
        let (by, refusal) = (printable(&by.0).to_string(), refusal.to_string());
        let what = format!("{place} of {by} was refused: {}", printable(&refusal));
        self.warning(&fields, what);
    }

    fn certificate_unusable(&self, error: &TlsError) {
        let what =
            format!("the changed certificate is not used, and the one before stays: {error}");
        self.error(&LogFields::of("certificate-unusable"), what);
    }

    fn answered(&self, request: &AnsweredRequest) {
        let AnsweredRequest { id, method, path, status, took, principal, config } = request;
        let level = match status {
            500.. => Priority::Error,
            401 | 403 | 429 => Priority::Warning,
            _ if method == "GET" => return,
            _ => Priority::Information,
        };
        let fields = LogFields {
            level: Some(level),
            principal: principal.clone(),
            config: config.clone(),
            request: Some(id.clone()),
            ..LogFields::of("request")
        };
        log::write(&fields, &format!("{method} {path} {status} {} ms", took.as_millis()));
    }

    fn draining(&self, requests: &[String]) {
        let requests = requests.iter().map(|request| printable(request)).collect::<Vec<_>>();
        let what = format!("stopping; waits for {}", requests.join(", "));
        self.line(&LogFields::of("draining"), what);
    }

    fn given_up(&self, requests: &[String]) {
        let requests = requests.iter().map(|request| printable(request)).collect::<Vec<_>>();
        let what = format!("these requests were not answered: {}", requests.join(", "));
        self.warning(&LogFields::of("requests-given-up"), what);
    }

    fn provider_failed(&self, error: &dyn Display) {
        self.error(&LogFields::of("provider-failed"), format_args!("nobody logs in: {error}"));
    }

    fn hooks_refused(&self, channel: Option<&ChannelId>, code: &str, count: u64) {
        let at = channel.map_or_else(|| "no webhook".to_owned(), |it| format!("the channel {it}"));
        let requests = plural(count, "request", "requests");
        let what = format!("{requests} to webhooks refused; the newest was to {at}: {code}");
        self.warning(&LogFields::of("hooks-refused"), &what);
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
