//! A gate that behaves as its setting specifies, correctly or not.

use conclave_sdk::gate::{Gate, GateInput, Verdict, allow, block, modify};
use conclave_sdk::{Denial, Error, Result, config, files};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `allow`, `modify`, `block`, `show`, `spin`, `trap`, `refuse`, `fail`, `huge`, `nothing`,
    /// `garbage`, `wrong-arguments` or `files`.
    mode: String,
}

struct Hostile;

impl Gate for Hostile {
    fn check(input: &GateInput) -> Result<Verdict> {
        let Settings { mode } = config::get()?;
        match mode.as_str() {
            "allow" => Ok(allow()),
            "modify" => Ok(modify(input.text.replace("folder", "drawer"))),
            "block" => Ok(block("it is blocked here")),
            "show" => Ok(block(format!(
                "{:?} {:?} {:?} {:?} {} {}",
                input.point,
                input.channel,
                input.from_task,
                input.to_task,
                input.text,
                input.metadata
            ))),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the gate panics"),
            "refuse" => {
                let denial = Denial {
                    capability: "fetch".into(),
                    target: "https://a.example".into(),
                    detail: "it was not granted".into(),
                };
                Err(Error::Denied(denial))
            }
            "huge" => Ok(modify("x".repeat(10 << 20))),
            "nothing" => Ok(modify("")),
            "garbage" => Ok(modify("{\"content\": ")),
            "wrong-arguments" => Ok(modify("{\"text\": [], \"content\": 7}")),
            // It has no folder grant, so it never reaches the second line.
            "files" => {
                files::read("/etc/passwd")?;
                Ok(allow())
            }
            _ => Err(Error::other("the gate does not know")),
        }
    }
}

conclave_sdk::export!(gate: Hostile, manifest: "manifests/hostile_gate.toml");
