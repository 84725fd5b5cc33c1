//! Channels: how a room reaches people. The command line has a terminal, tests have a list.

use conclave_core::types::ids::{ChannelId, TaskName};
use conclave_core::types::message::Blob;

use crate::driver::room_handle::RoomHandle;
use crate::support::clock::BoxFuture;

pub use conclave_core::types::delivery::Speech;

/// The people's side of a room's channels.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::channel::{HumanAnswer, Channels, Speech};
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
///     fn speak(&self, speech: Speech) -> BoxFuture<'static, Result<(), String>> {
///         Box::pin(async move { if speech.text.len() < 1_000 { Ok(()) } else { Err("that is too long to be read out".to_owned()) } })
///     }
/// }
///
/// let options = RunOptions { channels: Arc::new(Yes), ..RunOptions::default() };
/// # drop(options);
/// ```
pub trait Channels: Send + Sync + 'static {
    /// Asks for an answer to `prompt`; none when nobody is there. A task whose other responders
    /// cannot answer either ends then, with the cause `nobody-to-ask`.
    fn ask(
        &self,
        channel: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>>;

    /// The run of a room begins, and from now on it can be spoken to: what its channels are doing,
    /// what comes in on them. Called for root rooms, again for each run of a session, inside the
    /// run: it must not block.
    fn opened(&self, room: &RoomHandle) {
        let _ = room;
    }

    /// It takes the time that speaking on this channel would take by itself, so the host need not
    /// simulate that (`channels.NAME.simulate`).
    fn simulates(&self, channel: &ChannelId) -> bool {
        let _ = channel;
        false
    }

    /// Says something. A speech with a key that was taken before is taken again, and not said
    /// again: after a crash nobody knows whether it was.
    ///
    /// # Errors
    /// Why the channel did not take it, for the strategy that wanted it said.
    fn speak(&self, speech: Speech) -> BoxFuture<'static, Result<(), String>>;
}

/// What a person answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HumanAnswer {
    pub text: String,
    /// Kept in the host's blobs before.
    pub attachments: Vec<Blob>,
    /// Nobody was asked: the agent first reads what the host has for it, such as the result of a
    /// tool.
    pub passed: bool,
}

impl HumanAnswer {
    /// Returns the answer of a channel that lets the agent go on without asking anybody.
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

/// Nobody is there, and whatever is said is taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnattendedChannel;

impl Channels for UnattendedChannel {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn speak(&self, _: Speech) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
