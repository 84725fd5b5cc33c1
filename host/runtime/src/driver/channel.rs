//! Channels, through which a room reaches people. The command line implements a terminal, tests a
//! list.

use conclave_core::types::ids::{ChannelId, TaskName};
use conclave_core::types::message::Blob;

use crate::driver::room_handle::RoomHandle;
use crate::support::clock::BoxFuture;

pub use conclave_core::types::delivery::OutgoingMessage;

/// The human end of a room's channels.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::channel::{HumanAnswer, Channels, OutgoingMessage};
/// use conclave_runtime::clock::BoxFuture;
/// use conclave_runtime::ids::{ChannelId, TaskName};
///
/// /// Somebody who says yes to everything, and to whom results are said.
/// struct Yes;
///
/// impl Channels for Yes {
///     fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
///         Box::pin(async { Some(HumanAnswer::from("yes".to_owned())) })
///     }
///
///     fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
///         Box::pin(async move { if message.text.len() < 1_000 { Ok(()) } else { Err("that is too long to be read out".to_owned()) } })
///     }
/// }
///
/// let options = RunOptions { channels: Arc::new(Yes), ..RunOptions::default() };
/// # drop(options);
/// ```
pub trait Channels: Send + Sync + 'static {
    /// Asks for an answer to `prompt`. `None` if no person is there: the task then ends with the
    /// cause `nobody-to-ask`, unless another responder can answer.
    fn ask(
        &self,
        channel: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>>;

    /// Called when a room's run begins, with a handle for messages and activity of its channels. It
    /// is called for root rooms only, and again for each run of a session. It runs inside the run
    /// and must not block.
    fn opened(&self, room: &RoomHandle) {
        let _ = room;
    }

    /// Whether messages on this channel reach somebody here. In a room that this implementation
    /// opens, the host sends none on any other channel: a result for it stays in the inbox of its
    /// task. By default every channel is served.
    fn serves(&self, channel: &ChannelId) -> bool {
        let _ = channel;
        true
    }

    /// Whether this implementation takes the time of speaking itself, so that the host need not
    /// simulate it (`channels.NAME.simulate`).
    fn simulates(&self, channel: &ChannelId) -> bool {
        let _ = channel;
        false
    }

    /// Sends a text on its channel. A message whose key was accepted before returns `Ok` without
    /// output: after a crash the host cannot know whether it was sent.
    ///
    /// # Errors
    /// Returns why the channel did not accept the message; the strategy that sent it receives this
    /// text.
    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>>;
}

/// The answer of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HumanAnswer {
    /// The text of the answer; empty if the question was passed over.
    pub text: String,
    /// The attachments; the host's blobs already hold them.
    pub attachments: Vec<Blob>,
    /// The question was passed over: the agent first reads pending input, such as the result of a
    /// tool.
    pub passed: bool,
}

impl HumanAnswer {
    /// The answer of a channel that lets the agent continue without asking a person.
    #[must_use]
    pub fn pass() -> Self {
        Self { passed: true, ..Self::default() }
    }
}

impl From<String> for HumanAnswer {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// Channels without a person: questions get no answer, and every message is accepted, because the
/// embedding program reads them in the run's events: `Notice::Delivered` has the text. A program
/// that does not read its events implements [`Channels::serves`], so that results wait in the inbox
/// instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnattendedChannel;

impl Channels for UnattendedChannel {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
