//! The server of `conclave serve`: the rooms of a config for browsers. It has the access of
//! people, their connections, the conversations and the page. It makes no decisions about tasks,
//! prints nothing and reads no environment: what its operator has to know goes through
//! [`Operator`].

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]
#![warn(missing_docs)]

mod access;
mod api;
mod connections;
mod conversation;
mod conversations;
mod error;
mod events;
mod followers;
mod hooks;
mod http;
mod operator;
mod page;
mod people;
mod proxy;
mod readers;
mod runs;
mod sessions;
mod tls;
mod tokens;

pub use access::{Access, Address, Encryption};
pub use conversations::{Conversations, RoomParts};
pub use error::ServerError;
pub use http::Server;
pub use operator::Operator;
pub use people::People;

pub use runs::API_RUN;
pub use tls::{ServerTls, TlsError};
pub use tokens::{NewToken, PersonToken, TokenFile};
