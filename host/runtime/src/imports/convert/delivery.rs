//! Conversions of a delivery strategy's view and decisions.

use conclave_core::types::delivery::{
    Activity, BackgroundStatus, Channel, ChannelKind, Decision, EndedTask, Wake,
};

use crate::imports::bindings::exports::conclave::plugin::delivery_strategy as strategy;
use crate::imports::bindings::plugin::delivery_context as context;

pub(crate) fn wake_out(wake: &Wake) -> strategy::Wake {
    match wake {
        Wake::Ended { task } => strategy::Wake::Ended(task.to_string()),
        Wake::ChannelIdle { channel } => strategy::Wake::ChannelIdle(channel.to_string()),
        Wake::Timer => strategy::Wake::Timer,
        Wake::SendFailed { reason } => strategy::Wake::SendFailed(reason.clone()),
    }
}

/// Converts a decision unchanged; the room checks it.
pub(crate) fn decision_in(decision: strategy::Decision) -> Decision {
    match decision {
        strategy::Decision::Deliver(message) => Decision::Deliver {
            tasks: message.tasks,
            channel: message.channel,
            prompt: message.prompt,
            interrupt: message.interrupt,
        },
        strategy::Decision::MoveToInbox(tasks) => Decision::MoveToInbox { tasks },
        strategy::Decision::Wait(request) => {
            Decision::Wait { channel: request.channel, timeout_ms: request.timeout_ms }
        }
        strategy::Decision::GiveUp(reason) => Decision::GiveUp { reason },
    }
}

pub(crate) fn ended_out(ended: &EndedTask) -> context::EndedTask {
    context::EndedTask {
        task_id: ended.id.to_string(),
        worker: ended.worker.to_string(),
        description: ended.description.clone(),
        status: status_out(ended.status),
        output: ended.output.clone(),
        error: ended.error.clone(),
        duration_ms: ended.duration_ms,
        metadata: ended.metadata.to_string(),
        attempts: ended.attempts,
    }
}

fn status_out(status: BackgroundStatus) -> context::TaskStatus {
    match status {
        BackgroundStatus::Completed => context::TaskStatus::Completed,
        BackgroundStatus::Failed => context::TaskStatus::Failed,
        BackgroundStatus::Cancelled => context::TaskStatus::Cancelled,
        BackgroundStatus::TimedOut => context::TaskStatus::TimedOut,
        BackgroundStatus::Interrupted => context::TaskStatus::Interrupted,
    }
}

pub(crate) fn channel_out(channel: &Channel) -> context::Channel {
    context::Channel {
        id: channel.id.to_string(),
        kind: match channel.kind {
            ChannelKind::Text => context::ChannelKind::Text,
            ChannelKind::Web => context::ChannelKind::Web,
            ChannelKind::Voice => context::ChannelKind::Voice,
            ChannelKind::Agent => context::ChannelKind::Agent,
            ChannelKind::Webhook | ChannelKind::Plugin | ChannelKind::Other => {
                context::ChannelKind::Other
            }
        },
        activity: match channel.activity {
            Activity::Idle => context::Activity::Idle,
            Activity::Speaking => context::Activity::Speaking,
            Activity::UserSpeaking => context::Activity::UserSpeaking,
            Activity::Generating => context::Activity::Generating,
        },
        muted: channel.muted,
    }
}
