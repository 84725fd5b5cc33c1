//! Real components through the whole host: config, load, core, sandboxes, delivery, result. One file per concern. Every run that is made
//! here is also rebuilt by folding its journal (see `conclave-test-support`).

mod agents;
mod any_component;
mod audit;
mod blobs;
mod by_hand;
mod capabilities;
mod chat;
mod cli;
mod cli_batch;
mod cli_trace;
mod compile;
mod contract;
mod delivery;
mod demo;
mod docs;
mod fetch;
mod files_write;
mod kv;
mod limits;
mod loading;
mod lock;
mod mcp;
mod models;
mod narrow;
mod neighbours;
mod operate;
mod policy;
mod reload;
mod secrets;
mod servers;
mod wasi;
