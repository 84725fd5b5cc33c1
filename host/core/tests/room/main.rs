//! The room, tested from outside: cases as data (`tests/data/room`), properties over arbitrary
//! events, and its cost.

mod acting;
mod admission;
mod arbitrary;
mod budgets;
mod case;
mod cases;
mod checks;
mod condensing;
mod confirming;
mod conversation;
mod corpus;
mod cost;
mod delegates;
mod delegation;
mod delivering;
mod families;
mod gates;
mod handoff;
mod idle;
mod long;
mod matching;
mod nesting;
mod participants;
mod pausing;
mod plan;
mod planning;
mod properties;
mod recorder;
mod rulings;
mod side_effects;
mod stuck;
mod timeline;
mod tool_turns;
mod unfinished;
mod world;
