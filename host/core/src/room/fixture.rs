//! A small context, and parts without a room around them, for the tests of parts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Background, BackgroundWork, Budgets, Deliveries, Frames, Gating, Histories, ModelCalls,
    RoomChannels, RoomContext, RoomPhase,
};
use crate::config::Config;
use crate::config::assemble::assemble;
use crate::permissions::manifest::{CapabilityRequest, Manifest};
use crate::protocol::effect::Effect;
use crate::protocol::event::RunOpening;
use crate::protocol::notice::Notice;
use crate::setup::{PluginFacts, Provenance, Setup, TaskSetup};
use crate::types::capability::Capability;
use crate::types::ids::{FrameId, Millis, TaskName};
use crate::types::message::{Message, Role};
use crate::types::plugin_kind::PluginKind;
use crate::types::request::{Refusal, RequestId, RequestReply};

/// A task that people talk to, and one for background work. A token costs one micro-US-dollar in a
/// prompt, and two in an answer.
const CONFIG: &str = r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
input_price = 1
output_price = 2
[plugins.chat]
source = "chat.wasm"
[plugins.worker]
source = "worker.wasm"
[tasks.desk]
agent = "chat"
[tasks.digest]
agent = "worker"
"#;

/// The context of a run whose entry task `desk` is frame 0, at 1 000 ms. `more` is added to the
/// config. Each plugin exports everything and can use every capability.
pub(super) fn context(more: &str) -> RoomContext {
    let config = Config::parse("conclave.toml", "", &format!("{CONFIG}{more}"))
        .unwrap_or_else(|problems| panic!("{problems}"));
    let ask = |capability: &Capability| {
        let request = CapabilityRequest { optional: true, ..CapabilityRequest::default() };
        (capability.as_str().to_owned(), request)
    };
    let facts = PluginFacts {
        manifest: Manifest {
            asks: Capability::ALL.iter().map(ask).collect(),
            ..Manifest::default()
        },
        kinds: PluginKind::ALL.into(),
        tools: Vec::new(),
        sha256: "00".to_owned(),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    };
    let plugins = config.plugins.keys().map(|name| (name.clone(), facts.clone())).collect();
    let setup = assemble(&config, &plugins).unwrap_or_else(|problems| panic!("{problems}")).setup;
    RoomContext {
        phase: RoomPhase::Running { root: FrameId(0) },
        now: Millis(1_000),
        opened: Millis(1_000),
        opening: RunOpening {
            room: "room".into(),
            entry: setup.entry.clone(),
            limits: setup.limits.clone(),
            inputs: json!({}),
            channel: "terminal".into(),
            ..RunOpening::default()
        },
        setup: Arc::new(setup),
        ..RoomContext::default()
    }
}

impl RoomContext {
    /// Returns the setup, to be changed.
    pub(super) fn setup_mut(&mut self) -> &mut Setup {
        Arc::make_mut(&mut self.setup)
    }

    /// Returns a task of the setup, to be changed.
    pub(super) fn task_mut(&mut self, task: &str) -> &mut TaskSetup {
        Arc::make_mut(self.setup_mut().tasks.get_mut(task).expect("the config has the task"))
    }

    /// Takes the effects since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        self.effects.drain(..).collect()
    }

    /// Takes the notices since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.drain(..).collect()
    }

    /// Takes the effects since the last call, all of which are replies.
    pub(super) fn take_replies(&mut self) -> Vec<(u64, Result<RequestReply, Refusal>)> {
        let reply = |effect| match effect {
            Effect::Reply { request: RequestId(number), reply } => (number, reply),
            effect => panic!("{effect:?} is no reply"),
        };
        self.take_effects().into_iter().map(reply).collect()
    }
}

/// The parts that views borrow.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) cx: RoomContext,
    pub(super) frames: Frames,
    pub(super) histories: Histories,
    pub(super) models: ModelCalls,
    pub(super) budgets: Budgets,
    pub(super) channels: RoomChannels,
    pub(super) gating: Gating,
    pub(super) background: Background,
    pub(super) deliveries: Deliveries,
}

impl Parts {
    /// Returns new parts, with the context of [`context`].
    pub(super) fn new(more: &str) -> Self {
        Self { cx: context(more), ..Self::default() }
    }

    /// Returns a view of all parts; smaller views are taken from it.
    pub(super) fn view(&mut self) -> BackgroundWork<'_> {
        BackgroundWork {
            cx: &mut self.cx,
            frames: &mut self.frames,
            histories: &mut self.histories,
            models: &mut self.models,
            budgets: &mut self.budgets,
            channels: &mut self.channels,
            gating: &mut self.gating,
            background: &mut self.background,
            deliveries: &mut self.deliveries,
        }
    }

    /// Begins an activation of a task. The first one has the id of the context's root.
    pub(super) fn begin(&mut self, task: &str, caller: Option<FrameId>) -> FrameId {
        let id = self.view().dialogue().new_frame(&task.into(), caller, Arc::new(Value::Null));
        self.cx.notices.clear();
        id
    }

    /// The numbers of the messages in a task's history.
    pub(super) fn history_of(&self, task: &str) -> Vec<u64> {
        let memory = self.histories.memories.get(&TaskName::from(task));
        memory
            .map(|memory| memory.history())
            .into_iter()
            .flat_map(|it| it.iter())
            .map(|it| it.seq)
            .collect()
    }
}

/// A message with this number.
pub(super) fn message(seq: u64, sender: Role, text: &str) -> Message {
    Message { content: Some(text.to_owned()), ..Message::new(seq, sender, "somebody") }
}
