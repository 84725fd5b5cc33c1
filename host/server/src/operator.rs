//! The port to the operator of a server, who reads what users of the page may not.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use conclave_core::policy::daily_budget::BudgetUsedUp;
use conclave_core::setup::ChangedComponent;
use conclave_core::types::ids::{ChannelId, Principal, RoomId};
use conclave_runtime::store::StoreError;

use crate::tls::TlsError;

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct AnsweredRequest {
    /// Its id, which the response has in the header `X-Request-Id`.
    pub id: String,
    /// The method.
    pub method: String,
    /// The path, without the query, in which people can write anything.
    pub path: String,
    /// The status of the response.
    pub status: u16,
    /// The time until the response began.
    pub took: Duration,
    /// Who asked; `None` without a session.
    pub principal: Option<Principal>,
    /// The config that answered, if there are several.
    pub config: Option<String>,
}

/// Reports to the operator. It is called from the loops of rooms and must not block for long.
pub trait Operator: Send + Sync + 'static {
    /// A room was resumed with other components than it had before.
    fn components_changed(&self, room: &RoomId, changed: &[ChangedComponent]);

    /// The loop of a room failed, or could not begin.
    fn room_failed(&self, room: &RoomId, error: &dyn Display);

    /// The file with the tokens of people cannot be read: only those of the config are valid.
    fn tokens_unreadable(&self, error: &io::Error);

    /// The store cannot be read, so a request was not answered.
    fn store_unreadable(&self, error: &StoreError);

    /// Retention removed these ended runs, or keeps them because of changes in overlays that wait for
    /// a person; each is reported once.
    fn runs_removed(&self, removed: &[RoomId], with_changes: &[RoomId]);

    /// Old runs could not be removed; it is tried again.
    fn runs_not_removed(&self, error: &StoreError);

    /// A person wanted to start a run, or to send a message to this one, and the budget of the run's
    /// principal is used up.
    fn budget_used_up(&self, by: &Principal, run: Option<&RoomId>, refusal: &BudgetUsedUp);

    /// The certificate of the server has changed and cannot be used: that before stays.
    fn certificate_unusable(&self, error: &TlsError);

    /// A request was answered.
    fn answered(&self, request: &AnsweredRequest);

    /// The server stops, and waits for these requests, each with its method and path.
    fn draining(&self, requests: &[String]);

    /// The server ends without the answers to these requests.
    fn given_up(&self, requests: &[String]);

    /// People cannot log in at their provider, for this reason. It is reported once, until somebody
    /// can again.
    fn provider_failed(&self, error: &dyn Display);

    /// Webhooks were refused, so many since the last report; the newest with this code, at this
    /// channel if the config has it.
    fn hooks_refused(&self, channel: Option<&ChannelId>, code: &str, count: u64);

    /// The token of a public address was used, and this one is valid from now on.
    fn token_renewed(&self, token: &str);
}
