//! Side effects of a call: each is asked for, done and ended once, even if the call is replayed.

use std::sync::Arc;

use conclave_core::protocol::call_log::{AskedSideEffect, Before};
use conclave_core::types::denial::{Denial, DenialRecord, Layer};
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};

use super::{BusyGuard, CallReplay};

/// How an import must proceed with a side effect.
pub(crate) enum EffectDecision {
    /// Do it, and report the outcome. It is in progress until the guard is dropped.
    Go(BusyGuard),
    /// It was done before, with this outcome; nothing more is reported.
    Told(SideEffectAnswer),
    Refused(Denial),
    /// The call deviates from its replay and ends, so the answer to the guest does not matter.
    Lost,
}

/// The state of a side effect in the call's log.
enum LoggedEffect {
    New,
    Open,
    Leave(EffectDecision),
}

impl CallReplay {
    /// Whether changes on disk must be durable before their end is reported.
    pub(crate) fn survives_power_cuts(&self) -> bool {
        self.effects.survives_power_cuts()
    }

    /// Asks for permission, unless the log already has the answer.
    pub(crate) async fn ask_effect(
        self: &Arc<Self>,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> EffectDecision {
        if self.check().is_err() {
            return EffectDecision::Lost;
        }
        match self.known_effect(ordinal, &side_effect) {
            LoggedEffect::Leave(leave) => return leave,
            LoggedEffect::Open => {}
            LoggedEffect::New => {
                // Reads come first, because the side effect may depend on them.
                {
                    let mut state = self.state();
                    self.keep_reads(&mut state);
                }
                let logged = AskedSideEffect {
                    side_effect: side_effect.clone(),
                    leave: Ok(()),
                    answer: None,
                };
                let leave = self.effects.ask(self.call, ordinal, side_effect).await;
                self.state()
                    .trace
                    .side_effects
                    .insert(ordinal, Box::new(AskedSideEffect { leave: leave.clone(), ..logged }));
                if let Err(denial) = leave {
                    return EffectDecision::Refused(denial);
                }
            }
        }
        EffectDecision::Go(self.busy())
    }

    fn known_effect(&self, ordinal: u32, side_effect: &SideEffect) -> LoggedEffect {
        let state = self.state();
        let leave = state.trace.side_effects.get(&ordinal).map(|logged| logged.leave.clone());
        let may_repeat = state.trace.may_repeat;
        match state.trace.side_effect(ordinal, side_effect) {
            Before::New => LoggedEffect::New,
            Before::Answered(answer) => LoggedEffect::Leave(EffectDecision::Told(answer.clone())),
            Before::Open => match leave {
                Some(Err(denial)) => LoggedEffect::Leave(EffectDecision::Refused(denial)),
                _ if may_repeat => LoggedEffect::Open,
                _ => {
                    self.lose(&format!(
                        "nobody can say whether this was done: {}",
                        side_effect.target()
                    ));
                    LoggedEffect::Leave(EffectDecision::Lost)
                }
            },
            Before::Otherwise => {
                let before = state
                    .trace
                    .side_effects
                    .get(&ordinal)
                    .map_or_else(Default::default, |logged| logged.side_effect.target());
                self.lose(&format!(
                    "it asked for something else than before: {} and not {before}",
                    side_effect.target()
                ));
                LoggedEffect::Leave(EffectDecision::Lost)
            }
        }
    }

    /// Reports the outcome.
    pub(crate) async fn effect_ended(&self, ordinal: u32, answer: SideEffectAnswer) {
        self.effects.ended(self.call, ordinal, answer.clone()).await;
        if let Some(logged) = self.state().trace.side_effects.get_mut(&ordinal) {
            logged.answer = Some(answer);
        }
    }

    /// Keeps a whole refusal, as long as the call stays in this process.
    pub(crate) fn keep_record(&self, ordinal: u32, record: &DenialRecord) {
        self.state().records.insert(ordinal, record.clone());
    }

    /// Returns the refusal of a side effect. After a restart it is rebuilt from the journal's part.
    pub(crate) fn record(&self, ordinal: u32, denial: Denial) -> Box<DenialRecord> {
        let stored = self.state().records.get(&ordinal).cloned();
        Box::new(stored.unwrap_or_else(|| {
            let reason = format!("it was refused before the host stopped: {}", denial.detail);
            DenialRecord { denial, layer: Layer::Runtime, reason, suggestion: None, writes: false }
        }))
    }
}
