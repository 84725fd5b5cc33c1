//! The fuzz targets and their properties. A [`Target`] takes any bytes and panics if a property is
//! broken. The drivers (libFuzzer in `libfuzzer/`, [`drive`] here) only generate bytes. Findings
//! are panics, aborts, stack overflows, hangs and disproportionate work.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

pub mod drive;
pub mod mutate;
mod random;
mod targets;

pub use random::Random;

/// Counts allocated bytes. Unlike time, this measure of work is the same on every machine.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of bytes that any execution may allocate: for tables that are created once, and for
/// the checks of the properties.
const ALLOCATED_ANYWAY: usize = 4 << 20;

/// A parser of untrusted input.
#[derive(Debug)]
pub struct Target {
    /// The name in `cargo xtask fuzz`, and of the folder in `corpus/`.
    pub name: &'static str,
    /// The input and its properties, in one line.
    pub about: &'static str,
    /// The maximum length of an input in bytes.
    pub longest: usize,
    /// The number of bytes that an execution may allocate for each byte of its input.
    allocated_per_byte: usize,
    /// Words of the input's grammar that the corpus may lack.
    pub words: &'static [&'static str],
    check: fn(&[u8]),
}

impl Target {
    /// Runs the target once and returns its cost.
    ///
    /// # Panics
    /// If a property is broken, which makes the input a finding.
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

/// Runs a part of a target. Returns its result and the bytes that it allocated.
#[cfg(feature = "component")]
pub(crate) fn allocated<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let result = work();
    let bytes = region.change().bytes_allocated;
    (result, bytes)
}

/// The allocations of an execution. Equal inputs have equal costs, so a new cost shows a new path
/// through the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    pub allocations: usize,
    pub bytes: usize,
}

/// Returns all targets, in the order of the documentation.
#[must_use]
pub fn targets() -> &'static [Target] {
    targets::ALL
}

/// Returns the target with that name.
#[must_use]
pub fn target_named(name: &str) -> Option<&'static Target> {
    targets().iter().find(|target| target.name == name)
}
