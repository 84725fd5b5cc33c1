//! A conversation: the user's lines become messages and commands, and the agent's text is shown as
//! it streams.

pub(crate) mod command;
pub(crate) mod conversation;
pub(crate) mod open_questions;
pub(crate) mod person_channel;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod transcript;
