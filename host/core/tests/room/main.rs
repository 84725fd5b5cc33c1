//! The room, tested from outside: cases as data (`tests/data/room`), properties over arbitrary events, and what it costs.

mod acting;
mod arbitrary;
mod budgets;
mod case;
mod cases;
mod checks;
mod condensing;
mod confirming;
mod cost;
mod delegates;
mod families;
mod matching;
mod pausing;
mod plan;
mod planning;
mod properties;
mod recorder;
mod rulings;
mod side_effects;
mod stuck;
mod timeline;
mod unfinished;
mod world;
