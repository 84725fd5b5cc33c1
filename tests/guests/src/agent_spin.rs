//! An agent that never returns from a step.

use conclave_sdk::{Agent, Result, Turn, View};

struct Spin;

impl Agent for Spin {
    fn step(_view: &View) -> Result<Turn> {
        loop {
            std::hint::black_box(0);
        }
    }
}

conclave_sdk::export!(agent: Spin, asks: []);
