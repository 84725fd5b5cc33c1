//! One call into a plugin, seen from its imports: the state in its store, what the plugin may do,
//! the answers of an earlier attempt, its log and its meter.

mod lists;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod network;
pub(crate) mod plugin_context;
pub(crate) mod replay;
pub(crate) mod state;
pub(crate) mod stdio;
#[cfg(test)]
pub(crate) mod testing;
mod wasi;

use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::PluginName;

pub(crate) use plugin_context::{PluginContext, PluginStores, WorksOn};
pub(crate) use replay::{CallReplay, EffectDecision, Packed, Recalled};
pub(crate) use state::{CallInput, CallState, SharedCounter};

/// The room has a view for whatever it asks, so this fault is the host's.
pub(crate) fn no_view(name: &PluginName) -> Fault {
    Fault::new(
        FaultKind::NotStarted,
        format!("there is nothing that {name} could be shown of its task"),
    )
}
