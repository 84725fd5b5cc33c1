//! An observer that behaves as its setting specifies, correctly or not.

use conclave_sdk::observer::{ObservedEvent, Observer, key};
use conclave_sdk::{Error, Result, config, fetch, kv, log};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `log`, `later`, `fetch`, `fail`, `spin` or `trap`.
    mode: String,
}

struct Hostile;

impl Observer for Hostile {
    fn observe(events: &[ObservedEvent]) -> Result<()> {
        let Settings { mode } = config::get()?;
        match mode.as_str() {
            "log" => {}
            // Takes each batch at the second call. Its scratch would not remember a failed call.
            "later" => {
                let name = key(&events[0]);
                if kv::get(&name)?.is_none() {
                    kv::set(&name, b"seen")?;
                    return Err(Error::Unavailable { retry_after_ms: Some(1) });
                }
            }
            "fetch" => drop(fetch::get("https://a.example/").send()?),
            "fail" => return Err(Error::other("the observer fails")),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the observer panics"),
            other => return Err(Error::other(format!("unknown mode {other}"))),
        }
        for event in events {
            log::info!("{} {} {}", key(event), event.kind, event.task.as_deref().unwrap_or("-"));
        }
        Ok(())
    }
}

conclave_sdk::export!(observer: Hostile, manifest: "manifests/hostile_observer.toml");
