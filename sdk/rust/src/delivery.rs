//! A delivery strategy: it decides when, where and how results of background tasks are delivered.
//! It only decides: the host delivers, waits and ensures that nothing is delivered twice.
//! A case of `conclave plugin test` plays a script to one, and reports the guarantees that it breaks.

mod context;
mod due;
mod waited;

use crate::Result;
use crate::bindings::delivery::exports::conclave::plugin::delivery_strategy as contract;

pub use crate::bindings::delivery::conclave::plugin::delivery_context::{
    Activity, Channel, ChannelKind, EndedTask, TaskStatus,
};
pub use context::{Context, Snapshot};
pub use contract::{Decision, DeliveryMessage, WaitRequest, Wake};
pub use due::{Due, MOST_ATTEMPTS, backoff, due};
pub use waited::Waited;

/// The trait of a delivery strategy; `export!(delivery: X)` exports it.
///
/// ```
/// use conclave_sdk::Result;
/// use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake, move_to_inbox};
///
/// /// Never interrupts: results wait for the agent's next turn.
/// struct Patient;
///
/// impl DeliveryStrategy for Patient {
///     fn decide(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
///         let results = context.pending_results();
///         Ok(vec![move_to_inbox(results.iter().map(|ended| &ended.task_id))])
///     }
/// }
/// # assert!(true);
/// ```
pub trait DeliveryStrategy {
    /// Returns the decisions, in order. Without any, everything waits until the next wake. An error
    /// is recorded, and the waiting results are left in the inbox.
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>>;
}

/// Delivers these results on the preferred channel, in the host's words.
pub fn deliver<T: Into<String>>(tasks: impl IntoIterator<Item = T>) -> Decision {
    deliver_to(None, tasks, false)
}

/// Delivers these results on that channel, in the host's words.
pub fn deliver_on<T: Into<String>>(
    channel: impl Into<String>,
    tasks: impl IntoIterator<Item = T>,
) -> Decision {
    deliver_to(Some(channel.into()), tasks, false)
}

/// Does the same, and stops the channel's current output. Check [`Channel::activity`] first, so as
/// not to interrupt a user who is speaking.
pub fn interrupt<T: Into<String>>(
    channel: impl Into<String>,
    tasks: impl IntoIterator<Item = T>,
) -> Decision {
    deliver_to(Some(channel.into()), tasks, true)
}

fn deliver_to<T: Into<String>>(
    channel: Option<String>,
    tasks: impl IntoIterator<Item = T>,
    interrupt: bool,
) -> Decision {
    Decision::Deliver(DeliveryMessage {
        tasks: tasks.into_iter().map(Into::into).collect(),
        channel,
        prompt: None,
        interrupt,
    })
}

/// The same decisions, with this prompt in every message without one. An empty prompt selects the
/// host's words for the status (R-106).
pub fn worded(decisions: Vec<Decision>, prompt: &str) -> Vec<Decision> {
    let word = |decision| match decision {
        Decision::Deliver(DeliveryMessage { prompt: None, tasks, channel, interrupt })
            if !prompt.is_empty() =>
        {
            Decision::Deliver(DeliveryMessage {
                prompt: Some(prompt.to_owned()),
                tasks,
                channel,
                interrupt,
            })
        }
        other => other,
    };
    decisions.into_iter().map(word).collect()
}

/// Leaves these results in the inbox, for the agent's next turn.
pub fn move_to_inbox<T: Into<String>>(tasks: impl IntoIterator<Item = T>) -> Decision {
    Decision::MoveToInbox(tasks.into_iter().map(Into::into).collect())
}

/// Asks again after this many milliseconds. The earliest of several waits in one answer counts, and
/// replaces all earlier ones. An answer without any wait leaves them unchanged.
pub fn wait(timeout_ms: u64) -> Decision {
    Decision::Wait(WaitRequest { channel: None, timeout_ms })
}

/// Asks again when the channel is idle, or after this many milliseconds at the latest.
pub fn wait_for(channel: impl Into<String>, timeout_ms: u64) -> Decision {
    Decision::Wait(WaitRequest { channel: Some(channel.into()), timeout_ms })
}

/// Delivers nothing, with a reason.
pub fn give_up(reason: impl Into<String>) -> Decision {
    Decision::GiveUp(reason.into())
}

#[cfg(test)]
mod tests {
    use super::{
        Decision, DeliveryMessage, deliver, deliver_on, interrupt, move_to_inbox, wait, worded,
    };

    #[test]
    fn speaking_leaves_channel_and_words_to_the_host() {
        let Decision::Deliver(message) = deliver(["a", "b"]) else { panic!("no message") };
        assert_eq!(message.tasks, ["a", "b"]);
        assert_eq!((message.channel, message.prompt, message.interrupt), (None, None, false));
        let Decision::Deliver(message) = deliver_on("phone", ["a"]) else { panic!("no message") };
        assert_eq!((message.channel.as_deref(), message.interrupt), (Some("phone"), false));
        assert!(
            matches!(interrupt("phone", ["a"]), Decision::Deliver(message) if message.interrupt)
        );
    }

    #[test]
    fn words_stand_in_messages_that_have_none() {
        let own = || {
            Decision::Deliver(DeliveryMessage {
                tasks: vec!["b".into()],
                channel: None,
                prompt: Some("mine".into()),
                interrupt: false,
            })
        };
        let decisions = worded(vec![deliver(["a"]), own(), wait(1)], "ready");
        assert!(
            matches!(&decisions[0], Decision::Deliver(message) if message.prompt.as_deref() == Some("ready") && message.tasks == ["a"])
        );
        assert_eq!(decisions[1..], [own(), wait(1)]);
        assert_eq!(worded(vec![deliver(["a"])], ""), [deliver(["a"])], "the host's words");
    }

    #[test]
    fn decisions_name_tasks_and_times() {
        assert_eq!(move_to_inbox(["a"]), Decision::MoveToInbox(vec!["a".into()]));
        let Decision::Wait(pause) = wait(250) else { panic!("no pause") };
        assert_eq!((pause.channel, pause.timeout_ms), (None, 250));
    }
}
