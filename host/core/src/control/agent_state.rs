//! The states that an agent is in, of all eras of the reference, and what is left of one when a session is saved and restored (O-068…O-070,
//! O-118).

use serde::{Deserialize, Serialize};

use super::controller::Profile;

/// What an agent is doing, in the words of 2024 and 2025-11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    #[default]
    Loading,
    /// Only until 2024: a client has come.
    Init,
    Running,
    AwaitingUserInput,
    Paused,
    Stopped,
    Finished,
    Rejected,
    Error,
    /// From here on only 2025-11.
    AwaitingUserConfirmation,
    UserConfirmed,
    UserRejected,
    RateLimited,
}

impl AgentState {
    /// All of them.
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

    /// Its word in events and files.
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

    /// The state with this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether an agent of that era can be in it (O-068).
    #[must_use]
    pub fn is_of(self, profile: Profile) -> bool {
        match self {
            Self::Init => profile != Profile::V2025_11,
            Self::AwaitingUserConfirmation | Self::UserConfirmed | Self::UserRejected | Self::RateLimited => profile == Profile::V2025_11,
            _ => true,
        }
    }

    /// Entering it resets the agent (O-069).
    #[must_use]
    pub fn resets(self) -> bool {
        matches!(self, Self::Stopped | Self::Error)
    }

    /// A child in it is over (O-089, O-090).
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Rejected | Self::Error)
    }

    /// What a restored session may go back to; none: it begins anew (O-118).
    #[must_use]
    pub fn to_resume(self) -> Option<Self> {
        matches!(self, Self::Running | Self::Paused | Self::AwaitingUserInput | Self::Finished).then_some(self)
    }
}

/// The states of a conversation of the SDK (O-068).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    #[default]
    Idle,
    Running,
    Paused,
    WaitingForConfirmation,
    Finished,
    Error,
    Stuck,
    Deleting,
}

impl ConversationStatus {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::WaitingForConfirmation => "waiting_for_confirmation",
            Self::Finished => "finished",
            Self::Error => "error",
            Self::Stuck => "stuck",
            Self::Deleting => "deleting",
        }
    }

    /// Nothing happens any more until somebody asks for it.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Error | Self::Stuck)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_have_words_and_eras() {
        for state in AgentState::ALL {
            assert_eq!(AgentState::named(state.as_str()), Some(state));
            assert_eq!(json!(state), json!(state.as_str()));
        }
        assert_eq!(AgentState::named("asleep"), None);
        let of = |profile| AgentState::ALL.into_iter().filter(|state| state.is_of(profile)).count();
        assert_eq!([of(Profile::V2024_06), of(Profile::V2024_07), of(Profile::V2025_11)], [9, 9, 12]);
    }

    #[test]
    fn four_states_are_resumed() {
        let resumed: Vec<&str> = AgentState::ALL.into_iter().filter_map(AgentState::to_resume).map(AgentState::as_str).collect();
        assert_eq!(resumed, ["running", "awaiting_user_input", "paused", "finished"]);
    }
}
