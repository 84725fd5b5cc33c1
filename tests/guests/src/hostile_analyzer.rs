//! An analyzer that misbehaves as its setting specifies.

use conclave_sdk::actions::Action;
use conclave_sdk::analyzer::{SecurityAnalyzer, Verdict, low};
use conclave_sdk::{Denial, Error, Result, View, config};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `spin`, `trap`, `low`, `refuse`, `fail` or `huge`.
    mode: String,
}

struct Hostile;

impl SecurityAnalyzer for Hostile {
    fn assess(_action: &Action, _thought: &str, _view: &View) -> Result<Verdict> {
        let Settings { mode } = config::get()?;
        match mode.as_str() {
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the analyzer panics"),
            "low" => Ok(low("nothing is ever risky")),
            "refuse" => {
                let denial = Denial {
                    capability: "fetch".into(),
                    target: "https://a.example".into(),
                    detail: "it was not granted".into(),
                };
                Err(Error::Denied(denial))
            }
            "huge" => Ok(low("harmless ".repeat(1_000_000))),
            _ => Err(Error::other("the analyzer does not know")),
        }
    }
}

conclave_sdk::export!(analyzer: Hostile, manifest: "manifests/hostile_analyzer.toml");
