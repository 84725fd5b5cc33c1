//! A judge that behaves as its setting specifies, correctly or not. Every mode that does not rule
//! leaves the host's ruling, and every one that is not about results leaves the result.

use conclave_sdk::judge::{Answer, Ending, Judge, TaskResult};
use conclave_sdk::{Denial, Error, Result, View, config};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `leave`, `never-valid`, `never-done`, `always-done`, `replace`, `explain`, `explain-much`,
    /// `explain-not-done`; of rulings `spin`, `trap`, `refuse`, `fail`; of results `result-spin`, `result-trap`, `result-fail`, `huge`,
    /// `huge-value`, `no-json`.
    mode: String,
}

fn mode() -> Result<String> {
    Ok(config::get::<Settings>()?.mode)
}

fn spin() -> ! {
    loop {
        std::hint::black_box(0);
    }
}

struct Hostile;

impl Judge for Hostile {
    fn valid(answer: &Answer, _view: &View) -> Result<Option<bool>> {
        match mode()?.as_str() {
            "never-valid" | "explain" | "explain-much" => Ok(Some(false)),
            "spin" => spin(),
            "trap" => panic!("the judge panics"),
            "refuse" => Err(Error::Denied(Denial {
                capability: "fetch".into(),
                target: "https://a.example".into(),
                detail: "it was not granted".into(),
            })),
            "fail" => Err(Error::other(format!("it cannot judge {}", answer.responder))),
            _ => Ok(None),
        }
    }

    fn done(_answer: &Answer, _view: &View) -> Result<Option<bool>> {
        Ok(match mode()?.as_str() {
            "never-done" | "explain-not-done" => Some(false),
            "always-done" => Some(true),
            _ => None,
        })
    }

    fn feedback(answer: &Answer, _view: &View) -> Result<Option<String>> {
        Ok(match mode()?.as_str() {
            "explain" | "explain-not-done" => {
                Some(format!("{:?} names no year.", answer.message.content))
            }
            "explain-much" => Some("ä".repeat(1 << 20)),
            _ => None,
        })
    }

    fn result(ending: &Ending, _view: &View) -> Result<Option<TaskResult>> {
        let long = || "x".repeat(3 << 20);
        Ok(Some(match mode()?.as_str() {
            "replace" => TaskResult::text(format!("{}: {}", ending.status, ending.result.text)),
            "huge" => TaskResult::text(long()),
            "huge-value" => TaskResult::text("").with_value(&long().into()),
            "no-json" => TaskResult { value: Some("{oops".to_owned()), ..TaskResult::text("") },
            "result-spin" => spin(),
            "result-trap" => panic!("the judge panics"),
            "result-fail" => return Err(Error::other("it cannot conclude")),
            _ => return Ok(None),
        }))
    }
}

conclave_sdk::export!(judge: Hostile, manifest: "manifests/hostile_judge.toml");
