//! Conclave's decisions, without IO: the task loop, routing, grants, budgets, journal records and the operator's config as a value.
//!
//! The unit is the [`room::Room`]: events go in, effects come out, and nothing else changes it. It knows no clock, no files, no
//! randomness, no engine and no executor; `clippy.toml` fences them off.

pub use conclave_trajectory as trajectory;

pub mod action;
pub mod assemble;
pub mod audit;
pub mod budget;
pub mod calling;
pub mod channel;
pub mod config;
pub mod config_edit;
pub mod consult;
pub mod control;
pub mod delegation;
pub mod delivery;
pub mod effect;
pub mod event;
pub mod explain;
pub mod export;
pub mod fault;
pub mod fetch;
pub mod files_path;
pub mod grant;
pub mod handoff;
pub mod hidden;
pub mod history;
pub mod ids;
pub mod journal;
pub mod json_depth;
pub mod limits;
pub mod lock;
pub mod lookalike;
pub mod manifest;
pub mod manifest_file;
pub mod may;
pub mod message;
pub mod model;
pub mod narrow;
pub mod notice;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod reload;
pub mod request;
pub mod rights;
pub mod room;
pub mod room_secret;
pub mod secret;
pub mod setup;
pub mod side_effect;
pub mod text;
pub mod timeline;
pub mod tool;
pub mod toolbox;
pub mod trace;
pub mod unfinished;
pub mod view;
pub mod waits;
