//! An agent whose every step is an error.

use conclave_sdk::{Agent, Error, Result, Turn, View};

struct Fail;

impl Agent for Fail {
    fn step(_view: &View) -> Result<Turn> {
        Err(Error::other("this agent cannot work"))
    }
}

conclave_sdk::export!(agent: Fail, asks: []);
