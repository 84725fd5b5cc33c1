//! The kinds of plugin.

use serde::{Deserialize, Serialize};

/// The role of a component, determined by its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginKind {
    Agent,
    Responder,
    Memory,
    Tools,
    DeliveryStrategy,
    SecurityAnalyzer,
    Condenser,
    Gate,
    Judge,
    SimulatedUser,
    Observer,
    Channel,
}

impl PluginKind {
    /// Every kind, in the order of the contract.
    pub const ALL: [Self; 12] = [
        Self::Agent,
        Self::Responder,
        Self::Memory,
        Self::Tools,
        Self::DeliveryStrategy,
        Self::SecurityAnalyzer,
        Self::Condenser,
        Self::Gate,
        Self::Judge,
        Self::SimulatedUser,
        Self::Observer,
        Self::Channel,
    ];

    /// The name of the interface that the component exports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Responder => "responder",
            Self::Memory => "memory",
            Self::Tools => "tools",
            Self::DeliveryStrategy => "delivery-strategy",
            Self::SecurityAnalyzer => "security-analyzer",
            Self::Condenser => "condenser",
            Self::Gate => "gate",
            Self::Judge => "judge",
            Self::SimulatedUser => "simulated-user",
            Self::Observer => "observer",
            Self::Channel => "channel",
        }
    }
}
