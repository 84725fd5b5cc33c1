//! Runs one target of `conclave-fuzz` under libFuzzer, which keeps inputs that reach new code. The
//! environment names the target, because libFuzzer parses the command line itself.

#![no_main]

use std::sync::OnceLock;

use conclave_fuzz::{Target, mutate, target_named};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// The environment variable with the target's name.
const TARGET: &str = "CONCLAVE_FUZZ_TARGET";

fn target() -> &'static Target {
    static CHOSEN: OnceLock<&'static Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var(TARGET).unwrap_or_default();
        target_named(&name).unwrap_or_else(|| panic!("{TARGET} names no target: `{name}`"))
    })
}

fuzz_target!(|input: &[u8]| {
    target().run(input);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // Every second mutation is libFuzzer's own, because it knows the values that the code compared.
    if seed.is_multiple_of(2) {
        return fuzzer_mutate(data, size, max_size);
    }
    let changed = mutate::structure(&data[..size], u64::from(seed), target());
    let length = changed.len().min(max_size);
    data[..length].copy_from_slice(&changed[..length]);
    length
});
