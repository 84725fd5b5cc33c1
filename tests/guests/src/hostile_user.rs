//! A simulated user that behaves as its setting specifies, correctly or not.

use conclave_sdk::simulated_user::SimulatedUser;
use conclave_sdk::{Denial, Error, Result, View, config};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `show`, `quit`, `silent`, `huge`, `spin`, `trap`, `refuse`, or anything else to fail.
    mode: String,
}

struct Hostile;

impl SimulatedUser for Hostile {
    fn answer(question: &str, view: &View) -> Result<Option<String>> {
        let Settings { mode } = config::get()?;
        match mode.as_str() {
            "show" if view.history_length() < 3 => {
                Ok(Some(format!("{question:?} in {}", view.task_name())))
            }
            "show" | "quit" => Ok(Some("quit".to_owned())),
            "silent" => Ok(None),
            "huge" => Ok(Some("x".repeat(3 << 20))),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the user panics"),
            "refuse" => Err(Error::Denied(Denial {
                capability: "fetch".into(),
                target: "https://a.example".into(),
                detail: "it was not granted".into(),
            })),
            _ => Err(Error::other("the user does not know")),
        }
    }
}

conclave_sdk::export!(simulated_user: Hostile, manifest: "manifests/hostile_user.toml");
