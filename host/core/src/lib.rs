//! Conclave's decisions, without IO: the task loop, routing, grants, budgets, journal records and
//! the operator's config as a value.
//!
//! The unit is the [`room::Room`]: events go in, effects come out, and nothing else changes it. It
//! knows no clock, no files, no randomness, no engine and no executor; `clippy.toml` fences them
//! off.
//!
//! The folders stand here from the lowest to the highest. A folder imports only from those above it
//! in this list; `cargo xtask test` checks it.

pub use conclave_trajectory as trajectory;

/// Values that everything else speaks of: names, messages, calls, outcomes, refusals.
pub mod types {
    pub mod action;
    pub mod agent_state;
    pub mod approval;
    pub mod capability;
    pub mod channel;
    pub mod completion;
    pub mod confirm;
    pub mod delegation;
    pub mod delivery;
    pub mod denial;
    pub mod durability;
    pub mod fault;
    pub mod fingerprint;
    pub mod handoff;
    pub mod history;
    pub mod host_tool;
    pub mod ids;
    pub mod json_depth;
    pub mod limits;
    pub mod message;
    pub mod outcome;
    pub mod plan;
    pub mod request;
    pub mod risk;
    pub mod room_secret;
    pub mod side_effect;
    pub mod stuck_rules;
    pub mod task_options;
    pub mod text;
    pub mod tool;
    pub mod triggers;
    pub mod units;
    pub mod usage;
    pub mod view;
    pub mod wording;
}
/// What a plugin asked for, what the operator granted, and the one decision for each capability.
pub mod permissions {
    pub mod authorize;
    pub mod fetch;
    pub mod grant;
    pub mod manifest;
    pub mod manifest_file;
    pub mod paths;
    pub mod policy_rules;
    pub mod secret;
    pub mod task_scope;
}
/// Tool calls in text: found, checked against schemas, explained to models, routed.
pub mod tool_calls {
    pub mod arguments;
    pub mod instructions;
    pub mod json;
    pub mod parse;
    pub mod routing;
    pub mod sequence;
    pub mod toolbox;
    pub mod truncate;
    pub mod xml;
}
pub mod setup;
/// Decisions about tool calls by rule and grant, and budgets.
pub mod policy {
    pub mod budget;
    pub mod decision;
    pub mod permit;
}
pub mod config;
/// What goes into a room and what comes out of it.
pub mod protocol {
    pub mod call_log;
    pub mod effect;
    pub mod event;
    pub mod notice;
}
pub mod room;
/// A room's records: their lines, the room they fold to, how an interrupted room resumes.
pub mod journal {
    pub mod pending_work;
    pub mod record;
    pub mod recovery;
}
/// Runs and permissions for people: timelines, audits, explanations, exports.
pub mod inspect {
    pub mod audit;
    pub mod explain;
    pub mod export;
    pub mod permission_summary;
    pub mod timeline;
}
