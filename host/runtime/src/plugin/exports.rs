//! The exports of a component, looked up once; `None` for kinds that it lacks.

use conclave_core::setup::PluginKind;
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::{Inspection, LoadError};
use crate::imports::bindings::exports::conclave::plugin::{
    agent, condenser, delivery_strategy, gate, judge, memory, observer, responder,
    security_analyzer, simulated_user, tools,
};
use crate::imports::call::CallState;
use crate::imports::call::log::excerpt;
use crate::sandbox::plain::{Excess, FunctionDocs, PlainTools};

/// The exports of the contract that a component has.
#[derive(Default)]
pub(crate) struct Exports {
    agent: Option<agent::GuestIndices>,
    responder: Option<responder::GuestIndices>,
    memory: Option<memory::GuestIndices>,
    tools: Option<tools::GuestIndices>,
    strategy: Option<delivery_strategy::GuestIndices>,
    analyzer: Option<security_analyzer::GuestIndices>,
    condenser: Option<condenser::GuestIndices>,
    gate: Option<gate::GuestIndices>,
    judge: Option<judge::GuestIndices>,
    simulated_user: Option<simulated_user::GuestIndices>,
    observer: Option<observer::GuestIndices>,
    plain: Option<PlainTools>,
}

impl Exports {
    /// Looks up the exports of a component.
    ///
    /// # Errors
    /// `Types` if one of the contract lacks a function. For a component that is not built for the
    /// contract, `Budget` if its functions and their types are too many, and `NothingExported` if
    /// none of them can be a tool.
    pub(super) fn find(
        code: &InstancePre<CallState>,
        inspection: &Inspection,
        docs: &FunctionDocs,
    ) -> Result<Self, LoadError> {
        if !inspection.is_plain {
            return Self::of_contract(code, inspection)
                .map_err(|error| LoadError::Types(excerpt(&format!("{error:#}"), 600)));
        }
        let plain = PlainTools::find(code.component(), docs)
            .map_err(|Excess { what, limit }| LoadError::Budget { what, limit })?;
        if plain.is_empty() {
            let mut reasons = plain.unserved.join("; ");
            if !reasons.is_empty() {
                reasons.insert_str(0, ": ");
            }
            return Err(LoadError::NothingExported(excerpt(&reasons, 600)));
        }
        Ok(Self { plain: Some(plain), ..Self::default() })
    }

    fn of_contract(
        code: &InstancePre<CallState>,
        inspection: &Inspection,
    ) -> wasmtime::Result<Self> {
        let mut exports = Self::default();
        for kind in &inspection.kinds {
            match kind {
                PluginKind::Agent => exports.agent = Some(agent::GuestIndices::new(code)?),
                PluginKind::Responder => {
                    exports.responder = Some(responder::GuestIndices::new(code)?)
                }
                PluginKind::Memory => exports.memory = Some(memory::GuestIndices::new(code)?),
                PluginKind::Tools => exports.tools = Some(tools::GuestIndices::new(code)?),
                PluginKind::DeliveryStrategy => {
                    exports.strategy = Some(delivery_strategy::GuestIndices::new(code)?)
                }
                PluginKind::SecurityAnalyzer => {
                    exports.analyzer = Some(security_analyzer::GuestIndices::new(code)?)
                }
                PluginKind::Condenser => {
                    exports.condenser = Some(condenser::GuestIndices::new(code)?)
                }
                PluginKind::Gate => exports.gate = Some(gate::GuestIndices::new(code)?),
                PluginKind::Judge => exports.judge = Some(judge::GuestIndices::new(code)?),
                PluginKind::SimulatedUser => {
                    exports.simulated_user = Some(simulated_user::GuestIndices::new(code)?)
                }
                PluginKind::Observer => exports.observer = Some(observer::GuestIndices::new(code)?),
            }
        }
        Ok(exports)
    }

    /// Checks that every export has the contract's type.
    pub(super) fn check_types(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<()> {
        self.agent.as_ref().map(|agent| agent.load(&mut *store, instance)).transpose()?;
        self.responder
            .as_ref()
            .map(|responder| responder.load(&mut *store, instance))
            .transpose()?;
        self.memory.as_ref().map(|memory| memory.load(&mut *store, instance)).transpose()?;
        self.tools.as_ref().map(|tools| tools.load(&mut *store, instance)).transpose()?;
        self.strategy.as_ref().map(|strategy| strategy.load(&mut *store, instance)).transpose()?;
        self.analyzer.as_ref().map(|analyzer| analyzer.load(&mut *store, instance)).transpose()?;
        self.condenser
            .as_ref()
            .map(|condenser| condenser.load(&mut *store, instance))
            .transpose()?;
        self.gate.as_ref().map(|gate| gate.load(&mut *store, instance)).transpose()?;
        self.judge.as_ref().map(|judge| judge.load(&mut *store, instance)).transpose()?;
        self.simulated_user.as_ref().map(|user| user.load(&mut *store, instance)).transpose()?;
        self.observer.as_ref().map(|observer| observer.load(&mut *store, instance)).transpose()?;
        Ok(())
    }

    pub(crate) fn plain(&self) -> Option<&PlainTools> {
        self.plain.as_ref()
    }

    pub(crate) fn agent(&self) -> Option<&agent::GuestIndices> {
        self.agent.as_ref()
    }

    pub(crate) fn responder(&self) -> Option<&responder::GuestIndices> {
        self.responder.as_ref()
    }

    pub(crate) fn memory(&self) -> Option<&memory::GuestIndices> {
        self.memory.as_ref()
    }

    pub(crate) fn tools(&self) -> Option<&tools::GuestIndices> {
        self.tools.as_ref()
    }

    pub(crate) fn strategy(&self) -> Option<&delivery_strategy::GuestIndices> {
        self.strategy.as_ref()
    }

    pub(crate) fn analyzer(&self) -> Option<&security_analyzer::GuestIndices> {
        self.analyzer.as_ref()
    }

    pub(crate) fn condenser(&self) -> Option<&condenser::GuestIndices> {
        self.condenser.as_ref()
    }

    pub(crate) fn gate(&self) -> Option<&gate::GuestIndices> {
        self.gate.as_ref()
    }

    pub(crate) fn judge(&self) -> Option<&judge::GuestIndices> {
        self.judge.as_ref()
    }

    pub(crate) fn simulated_user(&self) -> Option<&simulated_user::GuestIndices> {
        self.simulated_user.as_ref()
    }

    pub(crate) fn observer(&self) -> Option<&observer::GuestIndices> {
        self.observer.as_ref()
    }
}
