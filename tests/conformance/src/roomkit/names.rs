//! The table of the reference's words and ours. The inputs of a case use the reference's words, and
//! the report is converted back to them.

use conclave_runtime::binding::{ChannelAccess, ChannelKind, Visibility};
use conclave_runtime::delegation::BackgroundState;
use conclave_runtime::delivery::{BackgroundStatus, DeliveryState};
use conclave_runtime::request::RefusalCode;

/// The reference's channel types; any other type is text.
const KINDS: [(&str, ChannelKind); 4] = [
    ("voice", ChannelKind::Voice),
    ("realtime_voice", ChannelKind::Voice),
    ("websocket", ChannelKind::Web),
    ("ai", ChannelKind::Agent),
];

/// The reference's strategies, and our components of `plugins/delivery`.
pub(super) const STRATEGIES: [(&str, &str); 5] = [
    ("immediate", "immediate"),
    ("wait_for_idle", "wait-for-idle"),
    ("context_only", "context-only"),
    ("queued", "queued"),
    ("digest", "digest-delivery"),
];

/// Returns the channel kind: `category` distinguishes users from agents, `type` gives the medium.
pub(super) fn kind(category: &str, kind: Option<&str>) -> ChannelKind {
    let named = |name: &str| {
        KINDS
            .iter()
            .find(|(theirs, _)| *theirs == name)
            .map_or(ChannelKind::Text, |(_, ours)| *ours)
    };
    if category == "intelligence" {
        ChannelKind::Agent
    } else {
        kind.map_or(ChannelKind::Text, named)
    }
}

/// Returns the visibility; RoomKit has other words for people and agents.
pub(super) fn visibility(theirs: &str) -> Visibility {
    Visibility::parse(match theirs {
        "transport" => "people",
        "intelligence" => "agents",
        other => other,
    })
}

pub(super) fn access(theirs: &str) -> ChannelAccess {
    ChannelAccess::from_name(&theirs.replace('_', "-")).unwrap_or_default()
}

pub(super) fn access_word(ours: ChannelAccess) -> &'static str {
    match ours {
        ChannelAccess::ReadWrite => "read_write",
        ChannelAccess::ReadOnly => "read_only",
        ChannelAccess::WriteOnly => "write_only",
        ChannelAccess::None => "none",
    }
}

/// Returns the reference's task state. It has no states for a timeout and for an interruption: both
/// are failures.
pub(super) fn state(ours: BackgroundState) -> &'static str {
    match ours {
        BackgroundState::Pending => "pending",
        BackgroundState::Running => "in_progress",
        BackgroundState::Completed => "completed",
        BackgroundState::Cancelled => "cancelled",
        BackgroundState::Failed | BackgroundState::TimedOut | BackgroundState::Interrupted => {
            "failed"
        }
    }
}

pub(super) fn status(ours: BackgroundStatus) -> &'static str {
    state(ours.into())
}

/// Returns the reference's error or reason for a refusal.
pub(super) fn refusal(ours: RefusalCode) -> &'static str {
    match ours {
        RefusalCode::RoomNotFound => "room_not_found",
        RefusalCode::RoomClosed => "room_closed",
        RefusalCode::UnknownAgent => "channel_not_registered",
        RefusalCode::UnknownChannel => "unavailable",
        RefusalCode::NotGranted => "not_granted",
        RefusalCode::EmptyTask => "empty_task",
        RefusalCode::BadArguments => "bad_arguments",
        RefusalCode::LimitReached | RefusalCode::BudgetUsedUp => "limit_reached",
        RefusalCode::ChannelNotShared => "channel_not_shared",
        RefusalCode::UnknownTask => "unknown_task",
        RefusalCode::TaskEnded => "task_ended",
        RefusalCode::NoAccess => "no_access",
        RefusalCode::RateLimited => "rate_limited",
        RefusalCode::ChainDepth => "event_chain_depth_limit",
        RefusalCode::Blocked => "blocked",
        RefusalCode::Busy => "busy",
        RefusalCode::ObserverStopped => "observer_stopped",
        RefusalCode::KeyReused => "key_reused",
    }
}

/// Returns the reference's outcome for a delivery state.
pub(super) fn outcome(ours: DeliveryState) -> &'static str {
    match ours {
        DeliveryState::None => "unknown",
        DeliveryState::Waiting | DeliveryState::Delivering => "queued",
        DeliveryState::Delivered | DeliveryState::Read => "sent",
        DeliveryState::Inbox => "context",
        DeliveryState::Blocked => "blocked",
        DeliveryState::DeadLetter => "failed",
    }
}
