//! The `blobs` import: attachments. A digest alone gives no access. A plugin can read and pass on
//! only the blobs of its input, and those it kept in this call.

use std::collections::HashMap;
use std::sync::Arc;

use conclave_core::types::action::{Action, Turn};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::Layer;
use conclave_core::types::message::{Blob, Message};
use conclave_core::types::tool::ToolOutcome;

use crate::calls::ToolInput;
use crate::imports::bindings::plugin::blobs::{self, BlobError};
use crate::imports::bindings::plugin::types;
use crate::imports::call::CallInput;
use crate::imports::convert::blob_out;
use crate::observe::subscribe::Level;
use crate::support::blobs::{self as store, BlobsUnavailable};

/// Maximum bytes of one read; a guest continues from its end.
const PIECE: usize = 8 << 20;
/// Maximum bytes of a name.
const NAME: usize = 255;

/// The blobs that one call can reach, by digest.
#[derive(Debug, Default)]
pub(crate) struct ReachableBlobs {
    /// `None` until the messages were searched, because most calls use no blobs.
    known: Option<HashMap<String, Blob>>,
    /// Bytes that the call has kept.
    stored: u64,
}

impl ReachableBlobs {
    fn known(&mut self, input: &CallInput) -> &mut HashMap<String, Blob> {
        self.known.get_or_insert_with(|| input_blobs(input))
    }
}

import_view! {
    /// The `blobs` import of a call.
    BlobsImport { blobs: ReachableBlobs }
}

impl BlobsImport<'_> {
    /// Returns the blob of a digest, with the host's metadata, if this call can reach it.
    fn reach(&mut self, sha256: &str) -> Option<Blob> {
        self.blobs.known(&self.core.input).get(sha256).cloned()
    }

    /// Checks that the plugin may use blobs.
    fn check(&mut self, target: &str) -> Result<(), BlobError> {
        self.core
            .rights()
            .require(Capability::Blobs, target, || None)
            .map_err(|record| BlobError::Denied(self.core.refuse(*record)))
    }

    async fn read_blob(
        &mut self,
        sha256: &str,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, BlobError> {
        self.check(sha256)?;
        // One error for absent and inaccessible blobs, so that a guest cannot probe for others.
        self.reach(sha256).ok_or(BlobError::Unknown)?;
        let remaining = usize::try_from(self.core.unread()).unwrap_or(usize::MAX);
        if remaining == 0 && length > 0 {
            let limit = self.core.plugin.limits().read;
            return Err(BlobError::Other(format!(
                "the call has read the {limit} bytes that it may"
            )));
        }
        let (blobs, name) = (Arc::clone(&self.core.plugin.services.blobs), sha256.to_owned());
        // Off the event loop, because a store may wait for a disk or a server.
        let read = self.core.off_loop(move || blobs.read(&name)).await;
        let broke_off = || Err(BlobsUnavailable("the reading broke off".to_owned()));
        let bytes = read.unwrap_or_else(broke_off).map_err(|error| {
            self.core.book.host_line(Level::Error, &format!("blobs: {error}"));
            BlobError::Other("it cannot be read now".to_owned())
        })?;
        let bytes = bytes.ok_or(BlobError::Unknown)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let length = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(PIECE)
            .min(remaining)
            .min(bytes.len() - start);
        self.core.read.add(length as u64);
        Ok(bytes[start..start + length].to_vec())
    }

    async fn keep_blob(
        &mut self,
        bytes: Vec<u8>,
        media_type: String,
        name: Option<String>,
    ) -> Result<Blob, BlobError> {
        self.check(name.as_deref().unwrap_or("a blob"))?;
        let limit = self.core.plugin.limits().blobs;
        let stored = self.blobs.stored.saturating_add(bytes.len() as u64);
        if stored > limit {
            return Err(BlobError::TooLarge(limit));
        }
        // Checked before storing, so that a refused blob takes no space.
        if let Some(problem) = name.as_deref().and_then(wrong_name) {
            return Err(BlobError::Other(problem.to_owned()));
        }
        let blobs = Arc::clone(&self.core.plugin.services.blobs);
        let keep = move || blobs.keep(&bytes, &media_type, name.as_deref());
        // It waits while the store's queue is full.
        let blob = self.core.off_loop(keep).await;
        let broke_off = || Err(store::BlobError::Other("the writing broke off".to_owned()));
        let blob = blob.unwrap_or_else(broke_off).map_err(|error| match error {
            store::BlobError::TooLarge { limit, .. } => BlobError::TooLarge(limit),
            store::BlobError::MediaType(_) => {
                BlobError::Other("that is no media type, such as image/png".to_owned())
            }
            store::BlobError::Other(text) => {
                self.core.book.host_line(Level::Error, &format!("blobs: {text}"));
                BlobError::Other("it could not be kept".to_owned())
            }
        })?;
        self.blobs.stored = stored;
        self.blobs.known(&self.core.input).insert(blob.sha256.clone(), blob.clone());
        Ok(blob)
    }

    /// Restricts the attachments of a turn to reachable blobs, with the host's metadata.
    pub(crate) fn own_turn(&mut self, mut turn: Turn) -> Turn {
        if let Action::Reply(reply) = &mut turn.action {
            self.own_blobs(&mut reply.attachments);
        }
        turn
    }

    /// Restricts the attachments of a tool's outcome in the same way.
    pub(crate) fn own_outcome(&mut self, mut outcome: ToolOutcome) -> ToolOutcome {
        self.own_blobs(&mut outcome.attachments);
        outcome
    }

    fn own_blobs(&mut self, attachments: &mut Vec<Blob>) {
        for attachment in std::mem::take(attachments) {
            match self.reach(&attachment.sha256) {
                // Length and media type come from the host, not from the guest.
                Some(blob) => attachments.push(blob),
                None => {
                    let reason = "it attached a blob that this call was not given and did not keep; the attachment was left out";
                    let record = self.core.rights().refuse(
                        Capability::Blobs,
                        &attachment.sha256,
                        Layer::Runtime,
                        reason,
                        None,
                    );
                    self.core.refuse(*record);
                }
            }
        }
    }
}

/// The blobs in the messages of the call's input.
fn input_blobs(input: &CallInput) -> HashMap<String, Blob> {
    let by_digest = |blob: &Blob| (blob.sha256.clone(), blob.clone());
    let attached =
        |message: &Arc<Message>| message.attachments.iter().map(by_digest).collect::<Vec<_>>();
    match input {
        CallInput::Agent(view) => {
            let messages = view.history.iter().chain(&view.pending);
            messages.chain(&view.latest_user_message).flat_map(attached).collect()
        }
        CallInput::Tool(ToolInput { conversation: Some(view), .. }) => {
            let window = view.window().filter_map(|index| view.history.get(index));
            window.chain([&view.calling]).flat_map(attached).collect()
        }
        CallInput::Nothing | CallInput::Tool(_) | CallInput::Delivery(_) => HashMap::new(),
    }
}

/// Returns why a name is refused. Names are shown to users and become file names.
fn wrong_name(name: &str) -> Option<&'static str> {
    if name.len() > NAME {
        return Some("its name is longer than 255 bytes");
    }
    let deceives = crate::support::escape::harmless(name) != name || name.contains(['/', '\\']);
    deceives.then_some("its name holds a slash, or a character that is not shown")
}

impl blobs::Host for BlobsImport<'_> {
    async fn read(
        &mut self,
        sha256: String,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, BlobError>> {
        self.core.enter()?;
        Ok(self.read_blob(&sha256, offset, length).await)
    }

    async fn put(
        &mut self,
        bytes: Vec<u8>,
        media_type: String,
        name: Option<String>,
    ) -> wasmtime::Result<Result<types::Blob, BlobError>> {
        self.core.enter()?;
        Ok(self.keep_blob(bytes, media_type, name).await.map(|blob| blob_out(&blob)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conclave_core::types::action::Reply;
    use conclave_core::types::message::Role;

    use super::*;
    use crate::imports::state::CallState;
    use crate::imports::testing::{setup, state, view};

    async fn keep(
        state: &mut CallState,
        bytes: &[u8],
        media_type: &str,
        name: Option<&str>,
    ) -> Result<Blob, BlobError> {
        let name = name.map(str::to_owned);
        state.blobs().keep_blob(bytes.to_vec(), media_type.to_owned(), name).await
    }

    fn blob(state: &CallState, text: &str) -> Blob {
        state.core.plugin.services.blobs.keep(text.as_bytes(), "text/plain", None).unwrap()
    }

    #[tokio::test]
    async fn what_was_lent_or_kept_can_be_read_and_a_digest_alone_opens_nothing() {
        let mut state = state(setup());
        let (lent, other) = (blob(&state, "lent"), blob(&state, "of another plugin"));
        let message =
            Message { attachments: vec![lent.clone()], ..Message::new(1, Role::User, "user") };
        let mut view = view();
        view.history.push(&Arc::new(message));
        state.core.input = CallInput::Agent(view);
        assert_eq!(state.blobs().read_blob(&lent.sha256, 1, 100).await.unwrap(), b"ent");
        assert_eq!(state.blobs().read_blob(&lent.sha256, 9, 100).await.unwrap(), b"");
        assert!(matches!(
            state.blobs().read_blob(&other.sha256, 0, 100).await,
            Err(BlobError::Unknown)
        ));
        let blob = keep(&mut state, b"kept", "text/plain", Some("a.txt")).await.unwrap();
        assert_eq!(state.blobs().read_blob(&blob.sha256, 0, 2).await.unwrap(), b"ke");
    }

    #[tokio::test]
    async fn an_answer_carries_only_what_the_call_could_reach_and_as_it_is() {
        let mut state = state(setup());
        let other = blob(&state, "of another plugin");
        let blob = keep(&mut state, b"kept", "text/plain", None).await.unwrap();
        let lie = Blob { media_type: "image/png".to_owned(), length: 1 << 40, ..blob.clone() };
        let outcome =
            ToolOutcome { attachments: vec![other.clone(), lie.clone()], ..ToolOutcome::default() };
        let outcome = state.blobs().own_outcome(outcome);
        assert_eq!(outcome.attachments, std::slice::from_ref(&blob));
        let reply = Reply { attachments: vec![lie, other.clone()], ..Reply::default() };
        let turn = Turn {
            action: Action::Reply(reply),
            thought: String::new(),
            wait_for_response: false,
            extra: Vec::new(),
        };
        let turn = state.blobs().own_turn(turn);
        assert!(matches!(&turn.action, Action::Reply(reply) if reply.attachments == [blob]));
        let denials = state.into_report().denials;
        assert_eq!((denials.len(), denials[0].denial.target.as_str()), (1, other.sha256.as_str()));
    }

    #[tokio::test]
    async fn what_a_call_keeps_is_bounded_altogether_and_named_harmlessly() {
        let mut setup = setup();
        setup.limits.blobs = 10;
        let mut state = state(setup);
        keep(&mut state, b"123456", "text/plain", None).await.unwrap();
        assert!(matches!(
            keep(&mut state, b"12345", "text/plain", None).await,
            Err(BlobError::TooLarge(10))
        ));
        keep(&mut state, b"1234", "text/plain", None).await.unwrap();
        for name in ["../a", "a\\b", "a\u{1b}[2J", "\u{202e}gpj.exe", &"a".repeat(256)] {
            assert!(
                matches!(
                    keep(&mut state, b"", "text/plain", Some(name)).await,
                    Err(BlobError::Other(_))
                ),
                "{name:?}"
            );
        }
        assert!(matches!(keep(&mut state, b"", "text", None).await, Err(BlobError::Other(_))));
    }
}
