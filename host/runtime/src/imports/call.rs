//! One call into a plugin, as its imports see it: the state in its store, its permissions, its
//! replay state, its log and its meter.

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
pub(crate) mod wasi;

use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::PluginName;

pub(crate) use plugin_context::{HostServices, PluginContext, WorksOn};
pub(crate) use replay::{CallReplay, EffectDecision, Packed, Recalled};
pub(crate) use state::{CallInput, CallState, SharedCounter};

/// The room has a view for every query, so this is a fault of the host.
pub(crate) fn no_view(name: &PluginName) -> Fault {
    Fault::new(
        FaultKind::NotStarted,
        format!("there is nothing that {name} could be shown of its task"),
    )
}
