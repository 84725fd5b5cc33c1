//! One command, one file.

pub(crate) mod add;
pub(crate) mod approvals;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod can;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod grant;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod lock;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod stop;
pub(crate) mod store;
pub(crate) mod upgrade;
pub(crate) mod why;
