//! The decisions of Conclave, without IO: the task loop, routing, grants, budgets, journal records
//! and the operator's config as a value.
//!
//! The central type is [`room::Room`]: it takes events and emits effects, and nothing else changes
//! it. It has no clock, no files, no randomness, no engine and no executor; `clippy.toml` forbids
//! them.
//!
//! The folders below are in order, the lowest layer first. A folder imports only from those above
//! it in this list; `cargo xtask test` checks this.

pub use conclave_trajectory as trajectory;

/// Values used by all other folders: names, messages, calls, outcomes, refusals.
pub mod types {
    pub mod action;
    pub mod agent_state;
    pub mod approval;
    pub(crate) mod base64_bytes;
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
    pub mod observed;
    pub mod oci;
    pub mod outcome;
    pub mod plan;
    pub mod plugin_kind;
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
/// The capabilities that plugins request, the grants of the operator, and the decision for each
/// capability.
pub mod permissions {
    pub mod command;
    pub mod effective;
    pub mod fetch;
    pub mod grants;
    pub mod manifest;
    pub mod manifest_file;
    pub(crate) mod overlap;
    pub mod paths;
    pub mod policy_rules;
    pub mod secret;
    pub mod task_scope;
}
/// Overlays of granted folders: the changes of a run, their difference to the folder, and their
/// application.
pub mod overlay {
    pub mod apply;
    pub mod attention;
    pub mod changes;
    pub mod diff;
}
/// Tool calls in text: parsed, checked against schemas, described to models, routed.
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
    pub mod daily_budget;
    pub mod decision;
    pub mod permit;
    pub mod roles;
}
pub mod config;
/// The inputs and outputs of a room.
pub mod protocol {
    pub mod call_log;
    pub mod control;
    pub mod effect;
    pub mod event;
    pub mod notice;
}
pub mod room;
/// A room's records: their lines, the fold to a room, the recovery after an interruption.
pub mod journal {
    pub mod admission;
    pub mod durable_first;
    pub mod observed;
    pub mod ownership;
    pub mod pending_work;
    pub mod placement;
    pub mod record;
    pub mod recovery;
    pub mod snapshot;
}
/// Views of runs and permissions for people: timelines, audits, explanations, exports.
pub mod inspect {
    pub mod amounts;
    pub mod approval_reasons;
    pub mod audit;
    pub mod background;
    pub mod explain;
    pub mod export;
    pub mod foreign_text;
    pub mod grant_use;
    pub mod pending_calls;
    pub mod permission_summary;
    pub mod prompts;
    pub mod questions;
    pub mod rights_map;
    pub mod room_row;
    pub mod telling;
    pub mod timeline;
    pub mod transcript;
}
