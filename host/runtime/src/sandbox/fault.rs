//! What a trap means: which limit was broken or what went wrong in the guest, in one sentence for people.

use conclave_core::fault::{Fault, FaultKind};
use wasmtime::component::ResourceTableError;
use wasmtime::{Error, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::grantee::Grantee;
use super::log::excerpt;
use super::meter::Broken;
use super::state::CallState;
use super::stdio::panic_message;

/// Frames from which a stray pointer is more likely a stack that ran out.
const DEEP: usize = 32;
/// Characters of a guest's words in a fault.
const WORDS: usize = 600;

/// Why a call has no answer. `stderr` is what the guest wrote last.
pub(crate) fn fault(error: &Error, state: &CallState, stderr: &str) -> Fault {
    let grantee = &state.grantee;
    if let Some(fault) = state.past.fault() {
        return fault;
    }
    if let Some(kind) = state.meter.broken().or_else(|| broken_in_engine(error)) {
        return broken(kind, grantee);
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return Fault::new(FaultKind::Trap, format!("it ended itself with exit code {}{}", exit.0, last_words(stderr)));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => recursion(),
        Some(Trap::MemoryOutOfBounds) if is_deep_recursion(error) => recursion(),
        Some(Trap::UnreachableCodeReached) => Fault::new(FaultKind::Panic, panic_sentence(stderr)),
        Some(trap) => Fault::new(FaultKind::Trap, format!("it trapped: {trap}{}", last_words(stderr))),
        // Whoever shows a fault begins with "was stopped" or "could not be started".
        None => Fault::new(FaultKind::Trap, excerpt(&error.root_cause().to_string(), WORDS)),
    }
}

/// A broken limit.
pub(crate) fn broken(kind: FaultKind, grantee: &Grantee) -> Fault {
    Fault::new(kind, grantee.limit_sentence(kind))
}

/// Limits that the engine itself keeps. It has no types for two of them; the tests of every limit hold these texts in place.
fn broken_in_engine(error: &Error) -> Option<FaultKind> {
    if let Some(broken) = error.downcast_ref::<Broken>() {
        return Some(broken.0);
    }
    if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
        return Some(FaultKind::Handles);
    }
    let cause = error.root_cause().to_string();
    if cause.contains("instance count too high") {
        return Some(FaultKind::Instances);
    }
    if cause.contains("store handle limit exceeded") || cause.contains("resource table has no free keys") {
        return Some(FaultKind::Handles);
    }
    cause.contains("fuel allocated for hostcalls has been exhausted").then_some(FaultKind::Output)
}

fn recursion() -> Fault {
    Fault::new(FaultKind::Stack, "it recursed too deep: its stack ran out")
}

/// Languages keep a stack of their own in memory. When it runs out, the guest writes below its memory, deep in a few functions that call
/// each other.
fn is_deep_recursion(error: &Error) -> bool {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return false };
    let mut functions: Vec<u32> = backtrace.frames().iter().map(wasmtime::FrameInfo::func_index).collect();
    let frames = functions.len();
    functions.sort_unstable();
    functions.dedup();
    frames >= DEEP && functions.len() <= frames / 4
}

fn panic_sentence(stderr: &str) -> String {
    match panic_message(stderr) {
        Some(message) => excerpt(&message, WORDS),
        None => "it executed `unreachable`, and left no message".to_owned(),
    }
}

fn last_words(stderr: &str) -> String {
    stderr
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map_or_else(String::new, |line| format!("; its last words were: {}", excerpt(line.trim(), WORDS)))
}

#[cfg(test)]
mod tests {
    use conclave_core::tool::ToolError;

    use super::*;
    use crate::sandbox::testing::{setup, state};

    #[test]
    fn what_the_engine_refuses_is_one_sentence() {
        let error = Error::msg("unknown handle index 7\n").context("error while executing");
        let fault = fault(&error, &state(setup()), "");
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Trap, "unknown handle index 7\\n"));
        let shown = ToolError::Fault { fault }.to_text("notes.add");
        assert_eq!(shown.matches("stopped").count(), 1, "{shown}");
    }
}
