//! A strategy in Rust, called as a function: its view of the room and its decisions in the types of
//! the SDK.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conclave_core::types::delivery::{BackgroundStatus, DeliveryView};
use conclave_core::types::{channel, delivery};
use conclave_sdk::delivery::{
    Activity, Channel, ChannelKind, Context, Decision, DeliveryMessage, EndedTask, Snapshot,
    TaskStatus, WaitRequest, Wake,
};
use conclave_sdk::{Result, scratch};

use crate::play::{Answer, Question};

/// The variant of the same name.
macro_rules! same {
    ($from:ty => $to:ty, $value:expr, $($variant:ident)*) => {
        match $value {
            $(<$from>::$variant => <$to>::$variant),*
        }
    };
}

pub(crate) fn ask(
    decide: impl Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>,
    question: Question<'_>,
) -> Answer {
    let wake = match question.wake.clone() {
        delivery::Wake::Ended { task } => Wake::Ended(task.to_string()),
        delivery::Wake::ChannelIdle { channel } => Wake::ChannelIdle(channel.to_string()),
        delivery::Wake::Timer => Wake::Timer,
        delivery::Wake::SendFailed { reason } => Wake::SendFailed(reason),
    };
    let (room, outer) = (snapshot(question.view), scratch::bytes());
    let decisions = match scratch::set_bytes(question.scratch) {
        Err(error) => Err(format!("{error:?}")),
        Ok(()) => {
            let answer = catch_unwind(AssertUnwindSafe(|| decide(wake, &room.context())));
            let answer = answer.map_err(|_| "it panicked".to_owned());
            answer.and_then(|answer| answer.map_err(|error| error.to_string()))
        }
    };
    let scratch = scratch::bytes();
    let _ = scratch::set_bytes(&outer);
    Answer { decisions: decisions.map(|it| it.into_iter().map(decision).collect()), scratch }
}

fn snapshot(view: &DeliveryView) -> Snapshot {
    let ended = |ended: &Arc<delivery::EndedTask>| EndedTask {
        task_id: ended.id.to_string(),
        worker: ended.worker.to_string(),
        description: ended.description.clone(),
        status: same!(
            BackgroundStatus => TaskStatus, ended.status,
            Completed Failed Cancelled TimedOut Interrupted
        ),
        output: ended.output.clone(),
        error: ended.error.clone(),
        duration_ms: ended.duration_ms,
        attempts: ended.attempts,
        metadata: ended.metadata.to_string(),
    };
    let channel = |known: &channel::Channel| Channel {
        id: known.id.to_string(),
        kind: match known.kind {
            channel::ChannelKind::Text => ChannelKind::Text,
            channel::ChannelKind::Web => ChannelKind::Web,
            channel::ChannelKind::Voice => ChannelKind::Voice,
            channel::ChannelKind::Agent => ChannelKind::Agent,
            channel::ChannelKind::Webhook
            | channel::ChannelKind::Plugin
            | channel::ChannelKind::Other => ChannelKind::Other,
        },
        activity: same!(
            channel::Activity => Activity, known.activity, Idle Speaking UserSpeaking Generating
        ),
        muted: known.muted,
    };
    Snapshot {
        room_id: view.room.to_string(),
        now_ms: view.now.0,
        pending_results: view.pending_results.iter().map(ended).collect(),
        channels: view.channels.iter().map(channel).collect(),
        notified_task: view.notified_task.as_ref().map(ToString::to_string),
    }
}

fn decision(decision: Decision) -> delivery::Decision {
    match decision {
        Decision::Deliver(DeliveryMessage { tasks, channel, prompt, interrupt }) => {
            delivery::Decision::Deliver { tasks, channel, prompt, interrupt }
        }
        Decision::MoveToInbox(tasks) => delivery::Decision::MoveToInbox { tasks },
        Decision::Wait(WaitRequest { channel, timeout_ms }) => {
            delivery::Decision::Wait { channel, timeout_ms }
        }
        Decision::GiveUp(reason) => delivery::Decision::GiveUp { reason },
    }
}

pub(crate) fn kind(kind: ChannelKind) -> channel::ChannelKind {
    same!(ChannelKind => channel::ChannelKind, kind, Text Web Voice Agent Other)
}

pub(crate) fn activity(activity: Activity) -> channel::Activity {
    same!(Activity => channel::Activity, activity, Idle Speaking UserSpeaking Generating)
}

pub(crate) fn status(status: TaskStatus) -> BackgroundStatus {
    same!(TaskStatus => BackgroundStatus, status, Completed Failed Cancelled TimedOut Interrupted)
}
