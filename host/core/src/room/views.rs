//! The views of a room. A view borrows the parts that one concern needs. Methods are on the smallest
//! view that has the parts for them, so that the types show what they may touch, and a smaller view
//! cannot call into a larger one.

use super::{
    AgentStates, Background, Budgets, Deliveries, Frames, Gating, Handoffs, Histories, ModelCalls,
    Pausing, Room, RoomChannels, RoomContext,
};

/// The tasks at work and what their agents have said: frames and histories.
pub(super) struct Dialogue<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) histories: &'r mut Histories,
}

/// Calls of plugins on behalf of a task, and the amounts that they use up.
pub(super) struct PluginCalls<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) histories: &'r mut Histories,
    pub(super) models: &'r mut ModelCalls,
    pub(super) budgets: &'r mut Budgets,
}

/// Items on their way through the gates.
pub(super) struct GateChecks<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) gating: &'r mut Gating,
    pub(super) background: &'r mut Background,
}

/// Results of background tasks on their way to a channel or to an agent.
pub(super) struct ResultDelivery<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) budgets: &'r mut Budgets,
    pub(super) channels: &'r mut RoomChannels,
    pub(super) gating: &'r mut Gating,
    pub(super) background: &'r mut Background,
    pub(super) deliveries: &'r mut Deliveries,
}

/// Background tasks, from the request to the result.
pub(super) struct BackgroundWork<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) histories: &'r mut Histories,
    pub(super) models: &'r mut ModelCalls,
    pub(super) budgets: &'r mut Budgets,
    pub(super) channels: &'r mut RoomChannels,
    pub(super) gating: &'r mut Gating,
    pub(super) background: &'r mut Background,
    pub(super) deliveries: &'r mut Deliveries,
}

/// Ends of activations and of runs, and the model calls and budgets that may cause one.
pub(super) struct RunControl<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) histories: &'r mut Histories,
    pub(super) models: &'r mut ModelCalls,
    pub(super) budgets: &'r mut Budgets,
    pub(super) channels: &'r mut RoomChannels,
    pub(super) gating: &'r mut Gating,
    pub(super) agent_states: &'r mut AgentStates,
    pub(super) background: &'r mut Background,
    pub(super) deliveries: &'r mut Deliveries,
}

/// Rounds of tool calls and actions, from the message to the answers.
pub(super) struct ToolRounds<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) histories: &'r mut Histories,
    pub(super) models: &'r mut ModelCalls,
    pub(super) budgets: &'r mut Budgets,
    pub(super) channels: &'r mut RoomChannels,
    pub(super) gating: &'r mut Gating,
    pub(super) handoffs: &'r mut Handoffs,
    pub(super) background: &'r mut Background,
    pub(super) deliveries: &'r mut Deliveries,
}

/// The step loop: which responder answers next, and what its answer leads to.
pub(super) struct StepLoop<'r> {
    pub(super) cx: &'r mut RoomContext,
    pub(super) frames: &'r mut Frames,
    pub(super) histories: &'r mut Histories,
    pub(super) models: &'r mut ModelCalls,
    pub(super) budgets: &'r mut Budgets,
    pub(super) channels: &'r mut RoomChannels,
    pub(super) gating: &'r mut Gating,
    pub(super) handoffs: &'r mut Handoffs,
    pub(super) pausing: &'r mut Pausing,
    pub(super) agent_states: &'r mut AgentStates,
    pub(super) background: &'r mut Background,
    pub(super) deliveries: &'r mut Deliveries,
}

impl Room {
    pub(super) fn dialogue(&mut self) -> Dialogue<'_> {
        Dialogue { cx: &mut self.cx, frames: &mut self.frames, histories: &mut self.histories }
    }

    pub(super) fn plugin_calls(&mut self) -> PluginCalls<'_> {
        PluginCalls {
            cx: &mut self.cx,
            frames: &mut self.frames,
            histories: &mut self.histories,
            models: &mut self.models,
            budgets: &mut self.budgets,
        }
    }

    pub(super) fn gate_checks(&mut self) -> GateChecks<'_> {
        GateChecks {
            cx: &mut self.cx,
            frames: &mut self.frames,
            gating: &mut self.gating,
            background: &mut self.background,
        }
    }

    pub(super) fn result_delivery(&mut self) -> ResultDelivery<'_> {
        ResultDelivery {
            cx: &mut self.cx,
            frames: &mut self.frames,
            budgets: &mut self.budgets,
            channels: &mut self.channels,
            gating: &mut self.gating,
            background: &mut self.background,
            deliveries: &mut self.deliveries,
        }
    }

    pub(super) fn background_work(&mut self) -> BackgroundWork<'_> {
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

    pub(super) fn run_control(&mut self) -> RunControl<'_> {
        RunControl {
            cx: &mut self.cx,
            frames: &mut self.frames,
            histories: &mut self.histories,
            models: &mut self.models,
            budgets: &mut self.budgets,
            channels: &mut self.channels,
            gating: &mut self.gating,
            agent_states: &mut self.agent_states,
            background: &mut self.background,
            deliveries: &mut self.deliveries,
        }
    }

    pub(super) fn tool_rounds(&mut self) -> ToolRounds<'_> {
        ToolRounds {
            cx: &mut self.cx,
            frames: &mut self.frames,
            histories: &mut self.histories,
            models: &mut self.models,
            budgets: &mut self.budgets,
            channels: &mut self.channels,
            gating: &mut self.gating,
            handoffs: &mut self.handoffs,
            background: &mut self.background,
            deliveries: &mut self.deliveries,
        }
    }

    pub(super) fn step_loop(&mut self) -> StepLoop<'_> {
        StepLoop {
            cx: &mut self.cx,
            frames: &mut self.frames,
            histories: &mut self.histories,
            models: &mut self.models,
            budgets: &mut self.budgets,
            channels: &mut self.channels,
            gating: &mut self.gating,
            handoffs: &mut self.handoffs,
            pausing: &mut self.pausing,
            agent_states: &mut self.agent_states,
            background: &mut self.background,
            deliveries: &mut self.deliveries,
        }
    }
}

impl ResultDelivery<'_> {
    pub(super) fn gate_checks(&mut self) -> GateChecks<'_> {
        GateChecks {
            cx: self.cx,
            frames: self.frames,
            gating: self.gating,
            background: self.background,
        }
    }
}

impl BackgroundWork<'_> {
    pub(super) fn dialogue(&mut self) -> Dialogue<'_> {
        Dialogue { cx: self.cx, frames: self.frames, histories: self.histories }
    }

    pub(super) fn plugin_calls(&mut self) -> PluginCalls<'_> {
        PluginCalls {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
        }
    }

    pub(super) fn gate_checks(&mut self) -> GateChecks<'_> {
        GateChecks {
            cx: self.cx,
            frames: self.frames,
            gating: self.gating,
            background: self.background,
        }
    }

    pub(super) fn result_delivery(&mut self) -> ResultDelivery<'_> {
        ResultDelivery {
            cx: self.cx,
            frames: self.frames,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            background: self.background,
            deliveries: self.deliveries,
        }
    }
}

impl RunControl<'_> {
    pub(super) fn dialogue(&mut self) -> Dialogue<'_> {
        Dialogue { cx: self.cx, frames: self.frames, histories: self.histories }
    }

    pub(super) fn plugin_calls(&mut self) -> PluginCalls<'_> {
        PluginCalls {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
        }
    }

    pub(super) fn result_delivery(&mut self) -> ResultDelivery<'_> {
        ResultDelivery {
            cx: self.cx,
            frames: self.frames,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            background: self.background,
            deliveries: self.deliveries,
        }
    }

    pub(super) fn background_work(&mut self) -> BackgroundWork<'_> {
        BackgroundWork {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            background: self.background,
            deliveries: self.deliveries,
        }
    }
}

impl ToolRounds<'_> {
    pub(super) fn dialogue(&mut self) -> Dialogue<'_> {
        Dialogue { cx: self.cx, frames: self.frames, histories: self.histories }
    }

    pub(super) fn plugin_calls(&mut self) -> PluginCalls<'_> {
        PluginCalls {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
        }
    }

    pub(super) fn background_work(&mut self) -> BackgroundWork<'_> {
        BackgroundWork {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            background: self.background,
            deliveries: self.deliveries,
        }
    }
}

impl StepLoop<'_> {
    pub(super) fn dialogue(&mut self) -> Dialogue<'_> {
        Dialogue { cx: self.cx, frames: self.frames, histories: self.histories }
    }

    pub(super) fn plugin_calls(&mut self) -> PluginCalls<'_> {
        PluginCalls {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
        }
    }

    pub(super) fn background_work(&mut self) -> BackgroundWork<'_> {
        BackgroundWork {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            background: self.background,
            deliveries: self.deliveries,
        }
    }

    pub(super) fn run_control(&mut self) -> RunControl<'_> {
        RunControl {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            agent_states: self.agent_states,
            background: self.background,
            deliveries: self.deliveries,
        }
    }

    pub(super) fn tool_rounds(&mut self) -> ToolRounds<'_> {
        ToolRounds {
            cx: self.cx,
            frames: self.frames,
            histories: self.histories,
            models: self.models,
            budgets: self.budgets,
            channels: self.channels,
            gating: self.gating,
            handoffs: self.handoffs,
            background: self.background,
            deliveries: self.deliveries,
        }
    }
}
