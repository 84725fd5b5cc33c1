//! The views of a room. A view borrows the parts that one concern needs. Methods that need a view
//! are on the smallest one that has the parts for them, so that the types show what they may touch,
//! and a smaller view cannot call into a larger one. A larger view lends a smaller one by a method
//! of its name: `self.dialogue()`.

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
    pub(super) gating: &'r mut Gating,
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

/// Declares the method that lends a view, on each of the types behind `by`. They have all of the
/// view's parts.
macro_rules! lend {
    ($method:ident -> $view:ident $parts:tt by $($larger:ty),+) => {
        $(impl $larger {
            lend!(@method $method $view $parts self);
        })+
    };
    (@method $method:ident $view:ident { $($part:ident),+ } $self:tt) => {
        pub(super) fn $method(&mut $self) -> $view<'_> {
            $view { cx: &mut $self.cx, $($part: &mut $self.$part),+ }
        }
    };
}

lend! {
    dialogue -> Dialogue { frames, histories }
    by Room, BackgroundWork<'_>, RunControl<'_>, ToolRounds<'_>, StepLoop<'_>
}
lend! {
    plugin_calls -> PluginCalls { frames, histories, models, budgets, gating }
    by Room, BackgroundWork<'_>, RunControl<'_>, ToolRounds<'_>, StepLoop<'_>
}
lend! {
    gate_checks -> GateChecks { frames, gating, background }
    by Room, ResultDelivery<'_>, BackgroundWork<'_>, ToolRounds<'_>
}
lend! {
    result_delivery -> ResultDelivery { frames, budgets, channels, gating, background, deliveries }
    by Room, BackgroundWork<'_>, RunControl<'_>
}
lend! {
    background_work -> BackgroundWork {
        frames, histories, models, budgets, channels, gating, background, deliveries
    }
    by Room, RunControl<'_>, ToolRounds<'_>, StepLoop<'_>
}
lend! {
    run_control -> RunControl {
        frames, histories, models, budgets, channels, gating, agent_states, background,
        deliveries
    }
    by Room, StepLoop<'_>
}
lend! {
    tool_rounds -> ToolRounds {
        frames, histories, models, budgets, channels, gating, handoffs, background, deliveries
    }
    by Room, StepLoop<'_>
}
lend! {
    step_loop -> StepLoop {
        frames, histories, models, budgets, channels, gating, handoffs, pausing, agent_states,
        background, deliveries
    }
    by Room
}
