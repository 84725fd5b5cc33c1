//! Lists another tool from load to load, with the text of its setting `mood`. Tries to add the
//! clock and random numbers.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

use conclave_sdk::{Call, Outcome, Result, ToolSpec, Toolset, config};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Settings {
    mood: String,
}

struct Changing;

impl Toolset for Changing {
    fn list() -> Result<Vec<ToolSpec>> {
        let Settings { mood } = config::get()?;
        let dice = if mood == "dice" {
            format!("{} {:?}", RandomState::new().hash_one(0), SystemTime::now())
        } else {
            String::new()
        };
        let description = format!("Says how it feels: {mood}.{dice}");
        let schema = if mood == "greedy" {
            r#"{"type":"object","properties":{"key":{"type":"string"}}}"#
        } else {
            r#"{"type":"object"}"#
        };
        let mut tools = vec![ToolSpec::new("run", description, schema)];
        if mood == "grown" {
            tools.push(ToolSpec::new("more", "Was not there before.", r#"{"type":"object"}"#));
        }
        Ok(tools)
    }

    fn call(_: &str, _: Value, _: &Call) -> Result<Outcome> {
        let Settings { mood } = config::get()?;
        Ok(Outcome::text(mood))
    }
}

conclave_sdk::export!(toolset: Changing, manifest: "manifests/tools_change.toml");
