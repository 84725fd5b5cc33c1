//! The states of an agent, in the words of rule O-068.

use serde::{Deserialize, Serialize};

/// The state of an agent, in the words of 2024 and 2025-11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    #[default]
    Loading,
    /// A client has connected; only until 2024.
    Init,
    Running,
    AwaitingUserInput,
    Paused,
    Stopped,
    Finished,
    Rejected,
    Error,
    /// This state and those below exist only in 2025-11.
    AwaitingUserConfirmation,
    UserConfirmed,
    UserRejected,
    RateLimited,
}

impl AgentState {
    /// Every state.
    pub const ALL: [Self; 13] = [
        Self::Loading,
        Self::Init,
        Self::Running,
        Self::AwaitingUserInput,
        Self::Paused,
        Self::Stopped,
        Self::Finished,
        Self::Rejected,
        Self::Error,
        Self::AwaitingUserConfirmation,
        Self::UserConfirmed,
        Self::UserRejected,
        Self::RateLimited,
    ];

    /// The state's word in events and files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Init => "init",
            Self::Running => "running",
            Self::AwaitingUserInput => "awaiting_user_input",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Rejected => "rejected",
            Self::Error => "error",
            Self::AwaitingUserConfirmation => "awaiting_user_confirmation",
            Self::UserConfirmed => "user_confirmed",
            Self::UserRejected => "user_rejected",
            Self::RateLimited => "rate_limited",
        }
    }

    /// The state for this word; `None` if there is no such state.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether a child in this state has ended (O-089, O-090).
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Rejected | Self::Error)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_have_words() {
        for state in AgentState::ALL {
            assert_eq!(AgentState::from_name(state.as_str()), Some(state));
            assert_eq!(json!(state), json!(state.as_str()));
        }
        assert_eq!(AgentState::from_name("asleep"), None);
    }
}
