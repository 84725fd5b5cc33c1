//! Converts traps to faults: the exceeded limit or the failure of the guest, in one sentence for
//! users.

use conclave_core::types::fault::{Fault, FaultKind};
use wasmtime::component::ResourceTableError;
use wasmtime::{Error, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::imports::call::meter::Broken;
use crate::imports::call::plugin_context::PluginContext;
use crate::imports::call::stdio::panic_message;
use crate::imports::state::CallState;
use crate::support::escape::excerpt;

/// Number of frames above which a stray pointer is taken for a stack overflow.
const DEEP: usize = 32;
/// Maximum characters of a guest's text in a fault.
const WORDS: usize = 600;

/// Returns why a call has no answer. `stderr` is the end of the guest's output.
pub(crate) fn fault(error: &Error, state: &CallState, stderr: &str) -> Fault {
    let plugin = &state.core.plugin;
    if let Some(fault) = state.core.replay.fault() {
        return fault;
    }
    if let Some(kind) = state.core.meter.broken().or_else(|| broken_in_engine(error)) {
        return broken(kind, plugin);
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return Fault::new(
            FaultKind::Trap,
            format!("it ended itself with exit code {}{}", exit.0, last_words(stderr)),
        );
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => recursion(),
        Some(Trap::MemoryOutOfBounds) if is_deep_recursion(error) => recursion(),
        Some(Trap::UnreachableCodeReached) => Fault::new(FaultKind::Panic, panic_sentence(stderr)),
        Some(trap) => {
            Fault::new(FaultKind::Trap, format!("it trapped: {trap}{}", last_words(stderr)))
        }
        // Displayed faults begin with "was stopped" or "could not be started".
        None => Fault::new(FaultKind::Trap, excerpt(&error.root_cause().to_string(), WORDS)),
    }
}

/// The fault of an exceeded limit.
pub(crate) fn broken(kind: FaultKind, plugin: &PluginContext) -> Fault {
    Fault::new(kind, plugin.limit_sentence(kind))
}

/// The engine's messages for its own limits that have no error type. They contain no text of a
/// guest and must match exactly, since other errors may quote them. Tests of every limit pin them.
const ENGINE_TEXTS: [(&str, FaultKind); 3] = [
    ("cannot allocate another handle: store handle limit exceeded", FaultKind::Handles),
    ("cannot lend resource: store handle limit exceeded", FaultKind::Handles),
    (
        "too much data is being copied between the host and the guest: fuel allocated for hostcalls has been exhausted",
        FaultKind::Output,
    ),
];
/// The prefix of such a message, before the number of instances.
const TOO_MANY_INSTANCES: &str = "resource limit exceeded: instance count too high at ";

/// The limit of the engine that was exceeded, if any.
fn broken_in_engine(error: &Error) -> Option<FaultKind> {
    if let Some(broken) = error.downcast_ref::<Broken>() {
        return Some(broken.0);
    }
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(ResourceTableError::Full))
    };
    if error.chain().any(is_full) {
        return Some(FaultKind::Handles);
    }
    let cause = error.root_cause().to_string();
    let count = cause.strip_prefix(TOO_MANY_INSTANCES);
    if count
        .is_some_and(|count| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Some(FaultKind::Instances);
    }
    ENGINE_TEXTS.iter().find(|(text, _)| *text == cause).map(|(_, kind)| *kind)
}

fn recursion() -> Fault {
    Fault::new(FaultKind::Stack, "it recursed too deep: its stack ran out")
}

/// Whether the guest overflowed the stack that its language keeps in memory. It then writes below
/// its memory, deep in a recursion of few functions.
fn is_deep_recursion(error: &Error) -> bool {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return false };
    let mut functions: Vec<u32> =
        backtrace.frames().iter().map(wasmtime::FrameInfo::func_index).collect();
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
    stderr.lines().rev().find(|line| !line.trim().is_empty()).map_or_else(String::new, |line| {
        format!("; its last words were: {}", excerpt(line.trim(), WORDS))
    })
}

#[cfg(test)]
mod tests {
    use conclave_core::types::tool::ToolError;

    use super::*;
    use crate::imports::testing::{setup, state};

    #[test]
    fn what_the_engine_refuses_is_one_sentence() {
        let error = Error::msg("unknown handle index 7\n").context("error while executing");
        let fault = fault(&error, &state(setup()), "");
        assert_eq!(
            (fault.kind, fault.message.as_str()),
            (FaultKind::Trap, "unknown handle index 7\\n")
        );
        let text = ToolError::Fault { fault }.to_text("notes.add");
        assert_eq!(text.matches("stopped").count(), 1, "{text}");
    }

    #[test]
    fn the_engines_words_beside_others_are_no_broken_limit() {
        let state = state(setup());
        let kind = |text: String| {
            fault(&Error::msg(text).context("error while executing"), &state, "").kind
        };
        let texts = ENGINE_TEXTS.iter().map(|(text, kind)| ((*text).to_owned(), *kind));
        let known = texts.chain([(format!("{TOO_MANY_INSTANCES}31"), FaultKind::Instances)]);
        for (text, broken) in known {
            assert_eq!(kind(text.clone()), broken, "{text}");
            assert_eq!(kind(format!("unknown import: `{text}`")), FaultKind::Trap, "{text}");
        }
        let full = || Error::from(ResourceTableError::Full);
        assert_eq!(fault(&full(), &state, "").kind, FaultKind::Handles);
        assert_eq!(
            fault(&full().context("while a handle was made"), &state, "").kind,
            FaultKind::Handles
        );
    }
}
