//! The commands, one file each. To add one: declare its arguments in `args.rs`, with a file of their
//! own below `args/`; name its module here; and call it in `dispatch` of `main.rs`. What
//! commands of several areas need stands in a layer below: `session`, `state` or `ui`. A command
//! uses parts of another only if it does that one's work: `call`, `cases` and `grant` check grants
//! as `add` does, `cases` plays calls with parts of `call`, and `push` and `pull` read and write
//! what `sign` does.

pub(crate) mod add;
pub(crate) mod answer;
pub(crate) mod approvals;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod call;
pub(crate) mod can;
pub(crate) mod cases;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod grant;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod lock;
pub(crate) mod manual;
#[cfg(feature = "mcp")]
pub(crate) mod mcp;
pub(crate) mod new;
pub(crate) mod pause;
#[cfg(feature = "registry")]
pub(crate) mod pull;
#[cfg(feature = "registry")]
pub(crate) mod push;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;
#[cfg(feature = "serve")]
pub(crate) mod serve;
#[cfg(feature = "serve")]
pub(crate) mod server;
pub(crate) mod show;
#[cfg(feature = "registry")]
pub(crate) mod sign;
pub(crate) mod stop;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod tell;
pub(crate) mod trajectory;
pub(crate) mod trust;
pub(crate) mod upgrade;
pub(crate) mod wait;
pub(crate) mod watch_plugin;
pub(crate) mod why;
#[cfg(feature = "postgres")]
pub(crate) mod worker;
#[cfg(feature = "postgres")]
pub(crate) mod workers;
