//! A delivery strategy: it decides when, where and how results of background tasks are delivered.
//! It only decides: the host speaks, waits and ensures that nothing is delivered twice. [`harness`]
//! checks one natively against scripts, and reports the guarantees that it breaks.

mod context;
mod due;
#[cfg(not(target_family = "wasm"))]
pub mod harness;
mod waited;

use crate::Result;
use crate::bindings::delivery::exports::conclave::plugin::delivery_strategy as contract;

pub use crate::bindings::delivery::conclave::plugin::delivery_context::{
    Activity, Channel, ChannelKind, EndedTask, TaskStatus,
};
pub use context::{Context, Snapshot};
pub use contract::{Decision, Pause, Speech, Wake};
pub use due::{Due, MOST_ATTEMPTS, backoff, due};
pub use waited::Waited;

/// The trait of a delivery strategy; `export!(delivery: X)` exports it.
///
/// ```
/// use conclave_sdk::Result;
/// use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake, attach};
///
/// /// Never interrupts: results wait for the agent's next turn.
/// struct Patient;
///
/// impl DeliveryStrategy for Patient {
///     fn decide(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
///         let waiting = context.waiting();
///         Ok(vec![attach(waiting.iter().map(|ended| &ended.task_id))])
///     }
/// }
/// # assert!(true);
/// ```
pub trait DeliveryStrategy {
    /// Returns the decisions, in order. Without any, everything waits until the next wake. An error
    /// is recorded, and the waiting results are left in the inbox.
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>>;
}

/// Speaks about these tasks on the context's transport, in the host's words.
pub fn speak<T: Into<String>>(tasks: impl IntoIterator<Item = T>) -> Decision {
    said(None, tasks, false)
}

/// Speaks about these tasks on that channel, in the host's words.
pub fn speak_on<T: Into<String>>(
    channel: impl Into<String>,
    tasks: impl IntoIterator<Item = T>,
) -> Decision {
    said(Some(channel.into()), tasks, false)
}

/// Does the same, and stops the channel's present speech. Check [`Channel::activity`] first, so as
/// not to interrupt a user who is speaking.
pub fn interrupt<T: Into<String>>(
    channel: impl Into<String>,
    tasks: impl IntoIterator<Item = T>,
) -> Decision {
    said(Some(channel.into()), tasks, true)
}

fn said<T: Into<String>>(
    channel: Option<String>,
    tasks: impl IntoIterator<Item = T>,
    interrupt: bool,
) -> Decision {
    Decision::Speak(Speech {
        tasks: tasks.into_iter().map(Into::into).collect(),
        channel,
        prompt: None,
        interrupt,
    })
}

/// Returns the same decisions, with this prompt in every speech without one. An empty prompt
/// selects the host's words for the status (R-106).
pub fn worded(decisions: Vec<Decision>, prompt: &str) -> Vec<Decision> {
    let word = |decision| match decision {
        Decision::Speak(Speech { prompt: None, tasks, channel, interrupt })
            if !prompt.is_empty() =>
        {
            Decision::Speak(Speech { prompt: Some(prompt.to_owned()), tasks, channel, interrupt })
        }
        other => other,
    };
    decisions.into_iter().map(word).collect()
}

/// Leaves these results in the inbox, for the agent's next turn.
pub fn attach<T: Into<String>>(tasks: impl IntoIterator<Item = T>) -> Decision {
    Decision::Attach(tasks.into_iter().map(Into::into).collect())
}

/// Asks again after this many milliseconds. The earliest of several waits in one answer counts, and
/// replaces all earlier ones. An answer without any wait leaves them unchanged.
pub fn wait(at_most_ms: u64) -> Decision {
    Decision::Wait(Pause { channel: None, at_most_ms })
}

/// Asks again when the channel is idle, or after this many milliseconds at the latest.
pub fn wait_for(channel: impl Into<String>, at_most_ms: u64) -> Decision {
    Decision::Wait(Pause { channel: Some(channel.into()), at_most_ms })
}

/// Delivers nothing, with a reason.
pub fn give_up(reason: impl Into<String>) -> Decision {
    Decision::GiveUp(reason.into())
}

#[cfg(test)]
mod tests {
    use super::{Decision, Speech, attach, interrupt, speak, speak_on, wait, worded};

    #[test]
    fn speaking_leaves_channel_and_words_to_the_host() {
        let Decision::Speak(speech) = speak(["a", "b"]) else { panic!("no speech") };
        assert_eq!(speech.tasks, ["a", "b"]);
        assert_eq!((speech.channel, speech.prompt, speech.interrupt), (None, None, false));
        let Decision::Speak(speech) = speak_on("phone", ["a"]) else { panic!("no speech") };
        assert_eq!((speech.channel.as_deref(), speech.interrupt), (Some("phone"), false));
        assert!(matches!(interrupt("phone", ["a"]), Decision::Speak(speech) if speech.interrupt));
    }

    #[test]
    fn words_stand_in_speeches_that_have_none() {
        let own = || {
            Decision::Speak(Speech {
                tasks: vec!["b".into()],
                channel: None,
                prompt: Some("mine".into()),
                interrupt: false,
            })
        };
        let told = worded(vec![speak(["a"]), own(), wait(1)], "ready");
        assert!(
            matches!(&told[0], Decision::Speak(speech) if speech.prompt.as_deref() == Some("ready") && speech.tasks == ["a"])
        );
        assert_eq!(told[1..], [own(), wait(1)]);
        assert_eq!(worded(vec![speak(["a"])], ""), [speak(["a"])], "the host's words");
    }

    #[test]
    fn decisions_name_tasks_and_times() {
        assert_eq!(attach(["a"]), Decision::Attach(vec!["a".into()]));
        let Decision::Wait(pause) = wait(250) else { panic!("no pause") };
        assert_eq!((pause.channel, pause.at_most_ms), (None, 250));
    }
}
