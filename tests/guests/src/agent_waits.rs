//! Asks a model as often as its settings say, computes a little before each question, and finishes
//! with the answers.

use conclave_sdk::bindings::imports::conclave::plugin::types::Draft;
use conclave_sdk::model::{Part, Request};
use conclave_sdk::{Agent, Error, Result, Role, Turn, View, config, finish, log, model, scratch};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    asks: u32,
    /// Rounds of mixing before each question.
    #[serde(default)]
    rounds: u64,
    /// All are asked before any is waited for, and the last is waited for first.
    #[serde(default)]
    at_once: bool,
}

fn asking(text: &str) -> Request {
    let draft = Draft {
        role: Role::User,
        content: text.to_owned(),
        tool_calls: vec![],
        tool_results: vec![],
        attachments: vec![],
    };
    Request { prompt: vec![Part::Draft(draft)], stream: false, ..Request::default() }
}

struct Waits;

impl Agent for Waits {
    fn step(_: &View) -> Result<Turn> {
        let Settings { asks, rounds, at_once } = config::get()?;
        scratch::set(&"begun")?;
        let mut answers = Vec::new();
        let failed = |error| Error::from(error);
        if at_once {
            let asked: std::result::Result<Vec<_>, _> =
                (0..asks).map(|index| model::start(&asking(&index.to_string()))).collect();
            for pending in asked.map_err(failed)?.iter().rev() {
                answers.push(pending.wait().map_err(failed)?.content.unwrap_or_default());
            }
        } else {
            for index in 0..asks {
                let mixed = (0..rounds).fold(1_u64, |mixed, round| {
                    mixed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(7) ^ round
                });
                log::info!("asks {index} after {mixed}");
                answers.push(
                    model::complete(&asking(&index.to_string()))
                        .map_err(failed)?
                        .content
                        .unwrap_or_default(),
                );
            }
        }
        Ok(finish(answers.join(" ")))
    }
}

conclave_sdk::export!(agent: Waits, manifest: "manifests/agent_waits.toml");
