//! The views of a room. A view borrows the parts that one concern needs. Methods are on the smallest
//! view that has the parts for them, so that the types show what they may touch, and a smaller view
//! cannot call into a larger one.

use super::{
    AgentStates, Background, Budgets, Deliveries, Frames, Gating, Handoffs, Histories, ModelCalls,
    Pausing, Room, RoomChannels, RoomContext,
};

/// Declares a view, and for each type that has all of its parts the method that lends it.
macro_rules! view {
    (
        $(#[doc = $doc:literal])+
        $view:ident { $($part:ident: $type:ty),+ $(,)? }
        $lend:ident by $($larger:ty),+
    ) => {
        $(#[doc = $doc])+
        pub(super) struct $view<'r> {
            pub(super) cx: &'r mut RoomContext,
            $(pub(super) $part: &'r mut $type,)+
        }

        view!(@lend $view { $($part),+ } $lend $($larger),+);
    };
    (@lend $view:ident $parts:tt $lend:ident $($larger:ty),+) => {
        $(impl $larger {
            view!(@method $view $parts $lend self);
        })+
    };
    (@method $view:ident { $($part:ident),+ } $lend:ident $self:tt) => {
        pub(super) fn $lend(&mut $self) -> $view<'_> {
            $view { cx: &mut $self.cx, $($part: &mut $self.$part),+ }
        }
    };
}

view! {
    /// The tasks at work and what their agents have said: frames and histories.
    Dialogue { frames: Frames, histories: Histories }
    dialogue by Room, BackgroundWork<'_>, RunControl<'_>, ToolRounds<'_>, StepLoop<'_>
}

view! {
    /// Calls of plugins on behalf of a task, and the amounts that they use up.
    PluginCalls { frames: Frames, histories: Histories, models: ModelCalls, budgets: Budgets }
    plugin_calls by Room, BackgroundWork<'_>, RunControl<'_>, ToolRounds<'_>, StepLoop<'_>
}

view! {
    /// Items on their way through the gates.
    GateChecks { frames: Frames, gating: Gating, background: Background }
    gate_checks by Room, ResultDelivery<'_>, BackgroundWork<'_>
}

view! {
    /// Results of background tasks on their way to a channel or to an agent.
    ResultDelivery {
        frames: Frames,
        budgets: Budgets,
        channels: RoomChannels,
        gating: Gating,
        background: Background,
        deliveries: Deliveries,
    }
    result_delivery by Room, BackgroundWork<'_>, RunControl<'_>
}

view! {
    /// Background tasks, from the request to the result.
    BackgroundWork {
        frames: Frames,
        histories: Histories,
        models: ModelCalls,
        budgets: Budgets,
        channels: RoomChannels,
        gating: Gating,
        background: Background,
        deliveries: Deliveries,
    }
    background_work by Room, RunControl<'_>, ToolRounds<'_>, StepLoop<'_>
}

view! {
    /// Ends of activations and of runs, and the model calls and budgets that may cause one.
    RunControl {
        frames: Frames,
        histories: Histories,
        models: ModelCalls,
        budgets: Budgets,
        channels: RoomChannels,
        gating: Gating,
        agent_states: AgentStates,
        background: Background,
        deliveries: Deliveries,
    }
    run_control by Room, StepLoop<'_>
}

view! {
    /// Rounds of tool calls and actions, from the message to the answers.
    ToolRounds {
        frames: Frames,
        histories: Histories,
        models: ModelCalls,
        budgets: Budgets,
        channels: RoomChannels,
        gating: Gating,
        handoffs: Handoffs,
        background: Background,
        deliveries: Deliveries,
    }
    tool_rounds by Room, StepLoop<'_>
}

view! {
    /// The step loop: which responder answers next, and what its answer leads to.
    StepLoop {
        frames: Frames,
        histories: Histories,
        models: ModelCalls,
        budgets: Budgets,
        channels: RoomChannels,
        gating: Gating,
        handoffs: Handoffs,
        pausing: Pausing,
        agent_states: AgentStates,
        background: Background,
        deliveries: Deliveries,
    }
    step_loop by Room
}
