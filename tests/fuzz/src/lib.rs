//! What is fuzzed, and what must hold for it. A [`Target`] takes any bytes and panics when a
//! property is broken; the drivers (libFuzzer in `libfuzzer/`, [`drive`] here) only think of bytes.
//! A panic, an abort, a stack overflow, a hang and work out of proportion are findings.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

pub mod drive;
pub mod mutate;
mod random;
mod targets;

pub use random::Random;

/// Counts bytes: work is held to its input by a count, which is the same on every machine.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that an execution may allocate whatever it is given: tables that are made once, and the
/// comparisons of the properties.
const ALLOCATED_ANYWAY: usize = 4 << 20;

/// One thing that reads what strangers wrote.
#[derive(Debug)]
pub struct Target {
    /// The word behind `cargo xtask fuzz`, and the folder in `corpus/`.
    pub name: &'static str,
    /// What is read, and what must hold, in a line.
    pub about: &'static str,
    /// Bytes of an input at most.
    pub longest: usize,
    /// Bytes that an execution may allocate for each byte of its input.
    allocated_per_byte: usize,
    /// What the inputs' grammar knows, beside what the corpus holds.
    pub words: &'static [&'static str],
    check: fn(&[u8]),
}

impl Target {
    /// Runs the target once and returns what it cost.
    ///
    /// # Panics
    /// When a property is broken: the input is a finding.
    pub fn run(&self, input: &[u8]) -> Cost {
        let input = &input[..input.len().min(self.longest)];
        let region = Region::new(ALLOCATOR);
        (self.check)(input);
        let change = region.change();
        let (cost, most) =
            (change.bytes_allocated, ALLOCATED_ANYWAY + self.allocated_per_byte * input.len());
        assert!(
            cost <= most,
            "{cost} bytes were allocated for an input of {}, and {most} may be",
            input.len()
        );
        Cost { allocations: change.allocations, bytes: cost }
    }
}

/// What an execution allocated: the same for the same input, so it tells apart what took another
/// way through the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    pub allocations: usize,
    pub bytes: usize,
}

/// All targets, in the order of the documentation.
#[must_use]
pub fn targets() -> &'static [Target] {
    targets::ALL
}

/// The target of that name.
#[must_use]
pub fn target_named(name: &str) -> Option<&'static Target> {
    targets().iter().find(|target| target.name == name)
}
