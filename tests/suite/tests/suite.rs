//! Real components through the whole host: config, load, core, sandboxes, delivery, result. One file per concern. Every run that is made
//! here is also rebuilt by folding its journal (see `conclave-test-support`).

mod agents;
mod by_hand;
mod capabilities;
mod chat;
mod cli;
mod cli_batch;
mod cli_trace;
mod contract;
mod delivery;
mod demo;
mod docs;
mod limits;
mod loading;
mod models;
mod neighbours;
mod operate;
mod reload;
mod servers;
mod wasi;
