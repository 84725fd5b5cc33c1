//! A conversation: what the person types becomes messages and commands, what the agent says is
//! shown as it comes.

pub(crate) mod command;
pub(crate) mod conversation;
pub(crate) mod open_questions;
pub(crate) mod person_channel;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod transcript;
