//! `conclave-counts SCENARIO` runs one hot path of the core. `cargo xtask counts` runs it under
//! callgrind, which counts the instructions inside [`counted`] alone. They do not vary with the
//! load of the machine, so a test can compare them.

mod room;
mod scenarios;

use std::process::ExitCode;

/// The part of a scenario whose instructions are counted. Callgrind knows it by this name.
#[inline(never)]
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work())
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match scenarios::ALL.iter().find(|(known, _)| *known == name) {
        Some((_, run)) => {
            run();
            ExitCode::SUCCESS
        }
        None => {
            for (known, _) in scenarios::ALL {
                println!("{known}");
            }
            if name.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
