//! A condenser that misbehaves as its setting says.

use conclave_sdk::condenser::{Condensation, Condenser, Reason, Span};
use conclave_sdk::{Error, Result, View, config};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `everything`, `split`, `longer`, `beyond`, `backwards`, `overlapping`, `nothing`, `empty`, `many`, `huge`, `spin`, `trap` or
    /// `fail`.
    mode: String,
}

struct Hostile;

impl Condenser for Hostile {
    fn condense(_why: Reason, view: &View) -> Result<Option<Condensation>> {
        let Settings { mode } = config::get()?;
        let length = view.history_length();
        let all = Condensation::nothing();
        Ok(Some(match mode.as_str() {
            "everything" => all.forget(0..length),
            // Every second entry: some of them hold calls, or results.
            "split" => (0..length / 2).fold(all, |all, index| all.forget(2 * index..2 * index + 1)),
            "longer" => (0..length).fold(all, |all, index| all.mask(index, "longer ".repeat(1_000))),
            "beyond" => all.forget(length / 2..u64::MAX).mask(length, "beyond").mask(u64::MAX, "beyond"),
            "backwards" => Condensation { forget: vec![Span { start: length, end: 0 }], ..all },
            "overlapping" => all.forget(0..length / 2).forget(0..length / 2).forget(1..length / 4).mask(0, ""),
            "nothing" => return Ok(None),
            "empty" => all,
            "many" => (0..100_000).fold(all, |all, _| all.forget(0..1)),
            "huge" => all.forget(1..length / 2).with_summary("summary ".repeat(1_000_000)),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the condenser panics"),
            _ => return Err(Error::other("the condenser does not know")),
        }))
    }
}

conclave_sdk::export!(condenser: Hostile, manifest: "manifests/hostile_condenser.toml");
