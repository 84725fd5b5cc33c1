//! One call into a plugin, as all its imports see it: its permissions, its replay state, its log
//! and its meter. It uses no file of `interfaces`.

mod call_core;
mod lists;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod plugin_context;
mod refusals;
pub(crate) mod replay;
mod secrets;
mod side_effects;
pub(crate) mod stdio;
pub(crate) mod wasi;

use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::PluginName;

pub(crate) use call_core::{CallCore, CallInput, SharedCounter};
pub(crate) use plugin_context::{HostServices, PluginContext, WorksOn};
pub(crate) use refusals::LateRefusals;
pub(crate) use replay::{CallReplay, EffectDecision, Packed, Recalled};
#[cfg(feature = "fetch")]
pub(crate) use secrets::CallSecrets;
pub(crate) use side_effects::{MOST_EFFECTS, digest};

/// The room has a view for every query, so this is a fault of the host.
pub(crate) fn no_view(name: &PluginName) -> Fault {
    Fault::new(
        FaultKind::NotStarted,
        format!("there is nothing that {name} could be shown of its task"),
    )
}
