//! The child that compiles: gives up what it does not need, reads a component, writes machine code,
//! ends. It never runs what it compiles.

use std::io::{Read, Write};

use conclave_core::types::limits::COMPONENT_BYTES;

use super::{DONE, REFUSED};
use crate::sandbox::engine;

/// Compiles one component within limits on this whole process, which is good for nothing else
/// afterwards. For a program that is started with [`Compiler::Child`](super::Compiler::Child): call
/// it first thing, with stdin, stdout and the two numbers that stand at the end of the arguments,
/// and end with the exit code that it gives.
#[must_use]
pub fn compile_component(
    memory: u64,
    cpu_seconds: u64,
    input: impl Read,
    mut output: impl Write,
) -> u8 {
    let compiled = confine(memory, cpu_seconds).and_then(|()| compile(input));
    let (code, bytes) = match compiled {
        Ok(code) => (DONE, code),
        Err(reason) => (REFUSED, reason.into_bytes()),
    };
    match output.write_all(&bytes).and_then(|()| output.flush()) {
        Ok(()) => u8::try_from(code).unwrap_or(u8::MAX),
        Err(_) => u8::MAX,
    }
}

fn compile(input: impl Read) -> Result<Vec<u8>, String> {
    let mut component = Vec::new();
    input
        .take(COMPONENT_BYTES + 1)
        .read_to_end(&mut component)
        .map_err(|error| format!("it could not be read: {error}"))?;
    let engine = engine::compiler().map_err(|error| format!("{error:#}"))?;
    engine.precompile_component(&component).map_err(|error| format!("{error:#}"))
}

/// Address space over what is allowed to be filled: code, stacks of threads, and what allocators
/// set aside.
#[cfg(unix)]
const ADDRESSES: u64 = 16 << 30;
/// Open files: the three pipes, and those that tell how many cores there are.
#[cfg(unix)]
const FILES: u64 = 32;

/// No new rights, no files to write, no core; so much memory and computing, and an end with the
/// parent's.
#[cfg(unix)]
fn confine(memory: u64, cpu_seconds: u64) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, setrlimit};

    let limits = [
        (Resource::Core, 0, 0),
        (Resource::Fsize, 0, 0),
        (Resource::Nofile, FILES, FILES),
        (Resource::Cpu, cpu_seconds, cpu_seconds + 1),
        (Resource::As, memory.saturating_add(ADDRESSES), memory.saturating_add(ADDRESSES)),
        (Resource::Data, memory, memory),
    ];
    for (resource, soft, hard) in limits {
        let set = setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) });
        // Other systems know the names and do not keep to all of them.
        if cfg!(target_os = "linux") {
            set.map_err(|error| format!("the compiler's own limits could not be set: {error}"))?;
        }
    }
    part_from_parent()
}

#[cfg(target_os = "linux")]
fn part_from_parent() -> Result<(), String> {
    let failed = |error| format!("the compiler could not give up its rights: {error}");
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(failed)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn part_from_parent() -> Result<(), String> {
    Ok(())
}

#[cfg(not(unix))]
fn confine(_: u64, _: u64) -> Result<(), String> {
    Ok(())
}
