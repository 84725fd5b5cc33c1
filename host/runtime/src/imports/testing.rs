//! The state of a call for unit tests, without observers and models.

use std::collections::BTreeSet;
use std::sync::Arc;

use conclave_core::permissions::grants::Grants;
use conclave_core::permissions::manifest::Manifest;
use conclave_core::setup::{PluginFacts, PluginSetup, Provenance};
use conclave_core::types::denial::{Denial, DenialRecord};
use conclave_core::types::history::History;
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId, TaskName};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::types::usage::Spent;
use conclave_core::types::view::{AgentView, Remaining};
use serde_json::json;

use super::call::{CallCore, CallInput, PluginContext};
use super::state::CallState;
use crate::calls::{CallStart, EffectPort, NoModels, NoSignatures, NoTools, Observer};
use crate::observe::subscribe::Level;
use crate::support::clock::BoxFuture;

/// A plugin without requests and grants.
pub(crate) fn setup() -> PluginSetup {
    let facts = PluginFacts {
        manifest: Manifest::default(),
        kinds: BTreeSet::new(),
        tools: Vec::new(),
        sha256: String::new(),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    };
    PluginSetup {
        facts,
        grants: Grants::default(),
        limits: PluginLimits::default(),
        config: json!({}),
    }
}

/// A call of that plugin.
pub(crate) fn state(setup: PluginSetup) -> CallState {
    let CallCore { plugin, start, input, .. } = core(setup);
    CallState::new(plugin, start, input)
}

/// The part of a call that all imports share.
pub(crate) fn core(setup: PluginSetup) -> CallCore {
    let name = PluginName::from("subject");
    let plugin = PluginContext::new(name.clone(), Arc::new(setup)).unwrap();
    let start = CallStart {
        room: RoomId::from("test"),
        secret: RoomSecret::new([7; RoomSecret::LENGTH]),
        call: CallId(1),
        plugin: name,
        setup: None,
        now: Millis(0),
        scratch: Arc::default(),
        trace: Arc::default(),
        task: None,
        models: Arc::new(NoModels),
        tools: Arc::new(NoTools),
        effects: Arc::new(Nobody),
        signatures: Arc::new(NoSignatures),
        observer: Arc::new(Nobody),
    };
    CallCore::new(Arc::new(plugin), start, CallInput::Nothing)
}

/// An empty view of a task.
pub(crate) fn view() -> AgentView {
    AgentView {
        task: TaskName::from("task"),
        inputs: Arc::default(),
        pending: None,
        history: History::default(),
        since: Arc::default(),
        latest_user_message: None,
        plan: Arc::default(),
        outputs: Arc::default(),
        spent: Spent::default(),
        level: 0,
        last_error: None,
        tools: Arc::default(),
        peers: Arc::default(),
        remaining: Remaining::default(),
        iteration: 0,
    }
}

struct Nobody;

/// Allows every side effect and records nothing.
impl EffectPort for Nobody {
    fn ask(&self, _: CallId, _: u32, _: SideEffect) -> BoxFuture<'static, Result<(), Denial>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(&self, _: CallId, _: u32, _: SideEffectAnswer) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Observer for Nobody {
    fn log(&self, _: CallId, _: Level, _: &str) {}
    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
    fn denied(&self, _: CallId, _: &DenialRecord) {}
}
