//! Plugin queries other than steps and tool calls, with real components: memories, risks of
//! actions, condensing of histories, rulings of judges, answers of simulated users. None is lost or
//! paid for twice when a process ends in the middle.

mod condensing;
mod confirming;
mod cut_off;
mod judging;
mod remembering;
mod world;
