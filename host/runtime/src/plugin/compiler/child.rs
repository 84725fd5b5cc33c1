//! The child process that compiles: it drops its privileges, reads a component, writes machine code
//! and exits. It never runs the code.

use std::io::{Read, Write};

use conclave_core::types::limits::COMPONENT_BYTES;

use super::{DONE, REFUSED};
use crate::sandbox::engine;

/// Compiles one component under limits on this whole process, which cannot be used for anything
/// else afterwards. Meant for a program started by [`Compiler::Child`](super::Compiler::Child).
/// Call it first, with stdin, stdout and the two numbers at the end of the arguments, and exit with
/// the code it returns.
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

/// Address space above the memory limit, for code, thread stacks and reserved allocator memory.
#[cfg(unix)]
const ADDRESSES: u64 = 16 << 30;
/// Maximum open files: the three pipes, and the files that report the number of cores.
#[cfg(unix)]
const FILES: u64 = 32;

/// Drops privileges, forbids file writes and core dumps, limits memory and CPU time, and ties the
/// process to its parent.
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
        // Other systems accept some of these limits without enforcing them.
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
