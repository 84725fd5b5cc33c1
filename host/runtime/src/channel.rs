//! Channels: how a room reaches people. The command line has a terminal, tests have a list.

use conclave_core::ids::{ChannelId, TaskName};

use crate::clock::BoxFuture;

/// The people's side of a room's channels.
pub trait Channels: Send + Sync + 'static {
    /// Asks for an answer to `prompt`; none when nobody is there.
    fn ask(&self, channel: ChannelId, task: TaskName, prompt: String) -> BoxFuture<'static, Option<String>>;

    /// Says something.
    ///
    /// # Errors
    /// Why the channel did not take it, for the strategy that wanted it said.
    fn speak(&self, channel: ChannelId, text: String, interrupt: bool) -> BoxFuture<'static, Result<(), String>>;
}

/// Nobody is there, and whatever is said is taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Channels for Nobody {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    fn speak(&self, _: ChannelId, _: String, _: bool) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
