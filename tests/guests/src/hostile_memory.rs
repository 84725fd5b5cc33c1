//! A memory that misbehaves as the query specifies: `many`, `long`, `huge`, `spin`, `trap`,
//! `refuse`, `fail`. It repeats any other query.

use conclave_sdk::memory::Memory;
use conclave_sdk::{Denial, Error, Result};

struct Hostile;

impl Memory for Hostile {
    fn search(query: &str, limit: u32) -> Result<Vec<String>> {
        match query {
            "many" => Ok((0..limit.saturating_add(1_000))
                .map(|number| format!("memory {number}"))
                .collect()),
            "long" => Ok(vec!["m".repeat(200_000)]),
            "huge" => Ok(vec!["m".repeat(64 * 1024 * 1024)]),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the memory panics"),
            "refuse" => {
                let denial = Denial {
                    capability: "kv".into(),
                    target: "notes".into(),
                    detail: "it was not granted".into(),
                };
                Err(Error::Denied(denial))
            }
            "fail" => Err(Error::other("the memory does not know")),
            _ => Ok(vec![format!("asked for {limit} about {query}")]),
        }
    }
}

conclave_sdk::export!(memory: Hostile, asks: []);
