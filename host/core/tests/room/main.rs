//! The room, tested from outside: cases as data (`tests/data/room`), properties over arbitrary events, and what it costs.

mod arbitrary;
mod budgets;
mod case;
mod cases;
mod checks;
mod cost;
mod families;
mod matching;
mod plan;
mod properties;
mod recorder;
mod rulings;
mod side_effects;
mod timeline;
mod unfinished;
mod world;
