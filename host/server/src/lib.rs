//! The server of `conclave serve`: the rooms of configs for browsers. It has the access of
//! people, their connections, the conversations and the page. It makes no decisions about tasks,
//! prints nothing and reads no environment: what its operator has to know goes through
//! [`Operator`].

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]
#![warn(missing_docs)]

mod access;
mod api;
mod cached;
mod connections;
mod conversation;
mod conversations;
mod current_config;
mod daily_spending;
mod entity_tag;
mod error;
mod events;
mod folds;
mod followers;
mod gateway;
mod hooks;
mod http;
mod login_attempts;
mod markdown;
#[cfg(feature = "oidc")]
mod oidc;
mod open_questions;
mod operator;
mod page;
mod people;
mod proxy;
mod readers;
mod readiness;
mod refusals;
mod retention;
mod run_request;
mod runs;
mod server_access;
mod sessions;
mod single_values;
mod tls;
mod tokens;
mod view_cache;
mod visible_configs;

pub use access::{Address, Encryption};
pub use conversations::{Conversations, RoomParts};
pub use error::ServerError;
pub use gateway::{ConfigParts, Gateway, NextConfig};
#[cfg(feature = "oidc")]
pub use oidc::{Oidc, OidcError};
pub use operator::{AnsweredRequest, Operator};
pub use people::People;

pub use runs::API_RUN;
pub use tls::{ServerTls, TlsError, certificate_der};
pub use tokens::{NewToken, PersonToken, TokenFile};
