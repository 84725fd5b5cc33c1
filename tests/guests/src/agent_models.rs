//! An agent that completes the default prompt and finishes with the text, or with the refusal.

use conclave_sdk::{Agent, Error, Result, Turn, View, finish, model};

struct Models;

impl Agent for Models {
    fn step(_view: &View) -> Result<Turn> {
        match model::answer() {
            Ok(completion) => Ok(finish(completion.content.unwrap_or_default())),
            Err(error) => Ok(finish(Error::from(error).to_string())),
        }
    }
}

conclave_sdk::export!(agent: Models, asks: [model?]);
