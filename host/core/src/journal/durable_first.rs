//! The order of records and their consequences: which effects wait until their event is durable,
//! and which answers need not.

use crate::config::is_direct_caller;
use crate::permissions::grants::Grants;
use crate::protocol::effect::Effect;
use crate::protocol::event::Event;
use crate::setup::{PluginSetup, Setup};

impl Effect {
    /// Whether the effect has consequences outside the host, or is shown to people as a fact. The
    /// event behind such an effect must be durable first. Any other effect can be repeated.
    #[must_use]
    pub fn leaves(&self, setup: &Setup) -> bool {
        match self {
            Self::CallModel { .. }
            | Self::Send { .. }
            | Self::Reply { .. }
            | Self::Finish { .. } => true,
            // A question to a person relies on the notices shown before it, so those must be
            // durable.
            Self::AskApproval { .. } | Self::AskTopUp { .. } | Self::AskUser { .. } => true,
            Self::AllowSideEffect { leave, .. } => leave.is_ok(),
            Self::StepAgent { agent, .. } if is_direct_caller(agent.as_str()) => false,
            Self::StepAgent { agent: plugin, .. }
            | Self::AskResponder { agent: plugin, .. }
            | Self::CallTool { plugin, .. }
            | Self::QueryPlugin { plugin, .. } => setup
                .plugins
                .get(plugin)
                .is_none_or(|plugin| plugin.facts.mcp || plugin.facts.is_native()),
            Self::AnswerModel { .. }
            | Self::AnswerTools { .. }
            | Self::ConfirmSideEffect { .. }
            | Self::StartBackground { .. }
            | Self::WakeStrategy { .. }
            | Self::SetTimer { .. }
            | Self::TellTask { .. }
            | Self::DetachTask { .. }
            | Self::AbandonCall { .. } => false,
        }
    }
}

impl PluginSetup {
    /// Whether calls of the plugin only compute: it runs in a sandbox, and nothing is granted
    /// to it. Their answers follow from their arguments alone.
    #[must_use]
    pub fn only_computes(&self) -> bool {
        !self.facts.mcp && !self.facts.is_native() && self.grants == Grants::default()
    }
}

impl Event {
    /// Whether the event is part of a call that reached nothing outside its sandbox and tried
    /// nothing that was refused. If all events of a run are, and its plugin
    /// [only computes](PluginSetup::only_computes), a lost record hides no act of the plugin, and the
    /// answer may precede the records.
    #[must_use]
    pub fn only_computes(&self) -> bool {
        match self {
            Self::RoomOpened { .. } => true,
            Self::AgentStepped { report, .. } | Self::ToolAnswered { report, .. } => {
                report.denials.is_empty()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MCP_CLIENT, YOU};
    use crate::permissions::policy_rules::Policy;
    use crate::types::denial::{Denial, DenialRecord, Layer};
    use crate::types::fault::CallReport;
    use crate::types::ids::{CallId, FrameId, PluginName, TaskName};
    use crate::types::limits::RunLimits;
    use crate::types::tool::ToolOutcome;

    fn setup() -> Setup {
        let (tasks, plugins, models, channels) = Default::default();
        Setup {
            entry: TaskName::from("call"),
            tasks,
            plugins,
            models,
            channels,
            gates: Vec::new(),
            observers: Vec::new(),
            policy: Policy::default(),
            policy_now: None,
            limits: RunLimits::default(),
        }
    }

    fn answered(report: CallReport) -> Event {
        Event::ToolAnswered { call: CallId(1), answer: Ok(ToolOutcome::default()), report }
    }

    #[test]
    fn the_step_of_a_direct_caller_stays_inside_and_that_of_an_unknown_agent_does_not() {
        let step = |agent: &str| Effect::StepAgent {
            call: CallId(1),
            frame: FrameId(1),
            task: TaskName::from("call"),
            agent: PluginName::from(agent),
        };
        let setup = setup();
        for caller in [MCP_CLIENT, YOU] {
            assert!(!step(caller).leaves(&setup), "{caller}");
        }
        assert!(step("app").leaves(&setup));
    }

    #[test]
    fn a_side_effect_a_read_and_a_refusal_are_no_computation() {
        assert!(answered(CallReport::default()).only_computes());
        let (capability, target) = ("files".to_owned(), "/etc/passwd".to_owned());
        let denial = Denial { capability, target, detail: String::new() };
        let reason = "nothing is granted".to_owned();
        let (layer, suggestion) = (Layer::Config, None);
        let denials = vec![DenialRecord { denial, layer, reason, suggestion, writes: false }];
        assert!(!answered(CallReport { denials, ..CallReport::default() }).only_computes());
        let call = CallId(1);
        for event in [
            Event::ReadsRecorded { call, reads: Vec::new() },
            Event::Sent { call, failure: None, unknown: false },
            Event::Cancelled { reason: String::new() },
        ] {
            assert!(!event.only_computes(), "{event:?}");
        }
    }
}
