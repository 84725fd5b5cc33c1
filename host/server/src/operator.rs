//! The port to the operator of a server, who reads what users of the page may not.

use std::fmt::Display;
use std::io;

use conclave_core::setup::ChangedComponent;
use conclave_core::types::ids::{ChannelId, RoomId};
use conclave_runtime::store::StoreError;

use crate::tls::TlsError;

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

    /// The certificate of the server has changed and cannot be used: that before stays.
    fn certificate_unusable(&self, error: &TlsError);

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
