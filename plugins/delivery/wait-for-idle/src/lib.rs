//! Wait-for-idle: results are delivered when no one is speaking. While the channel speaks, or a
//! model prepares its answer, it waits for a limited time, and then speaks anyway; with `interrupt`
//! it speaks at once. While the *user* speaks it always waits, and finally leaves the results for
//! the agent's next turn (R-107 done right).
//!
//! ```toml
//! [plugins.wait-for-idle]
//! source = "stock:wait-for-idle"
//! grants.channels = ["phone"]
//! config = { max_wait = "15 s", buffer = "1 s", interrupt = false, channels = "any" }
//! ```

use conclave_sdk::config::{self, Span};
use conclave_sdk::delivery::{
    Activity, Channel, ChannelKind, Context, Decision, DeliveryStrategy, Due, EndedTask, Waited,
    Wake, deliver_on, due, interrupt, move_to_inbox, wait_for, worded,
};
use conclave_sdk::{Result, scratch};
use serde::{Deserialize, Serialize};

/// The interval between two checks while a user speaks. The end of it also wakes the
/// strategy.
const LOOK_AGAIN_MS: u64 = 15_000;
/// The time from which a user who still speaks counts as gone: the program has not reported it.
const LONGEST_MS: u64 = 10 * 60 * 1_000;

/// The `config` table of this plugin.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    max_wait: Span,
    buffer: Span,
    interrupt: bool,
    channels: Awaited,
    /// Empty: the host's words.
    prompt: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Awaited {
    Any,
    Voice,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_wait: Span::from_secs(15),
            buffer: Span::from_secs(1),
            interrupt: false,
            channels: Awaited::Any,
            prompt: String::new(),
        }
    }
}

/// The memory of a room, since each call is a fresh instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    waited: Waited,
    quiet: Quiet,
}

/// Whether the channel was busy when last checked, and since when it has been idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Quiet {
    #[default]
    Always,
    NotYet,
    Since(u64),
}

struct WaitForIdle;

impl DeliveryStrategy for WaitForIdle {
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        let settings: Settings = config::get()?;
        let memory: Memory = scratch::get()?.unwrap_or_default();
        let (decisions, memory) = next(
            &settings,
            &wake,
            &context.pending_results(),
            context.preferred_channel(),
            context.now_ms(),
            memory,
        );
        scratch::set(&memory)?;
        Ok(worded(decisions, &settings.prompt))
    }
}

fn next(
    settings: &Settings,
    wake: &Wake,
    waiting: &[EndedTask],
    channel: Option<Channel>,
    now: u64,
    mut memory: Memory,
) -> (Vec<Decision>, Memory) {
    let all = || move_to_inbox(waiting.iter().map(|ended| &ended.task_id));
    let Some(channel) = channel else { return (vec![all()], Memory::default()) };
    let waited = memory.waited.ms(waiting, now);
    // The rest of the waiting time; 0 if it is over.
    let left = settings.max_wait.ms().saturating_sub(waited);
    let Due { now: results, rest } = due(wake, waiting);
    let is_awaited = settings.channels == Awaited::Any || channel.kind == ChannelKind::Voice;
    let id = channel.id.as_str();
    if matches!(wake, Wake::ChannelIdle(_)) {
        memory.quiet = Quiet::NotYet;
    }
    let say = if channel.activity == Activity::UserSpeaking {
        if waited >= LONGEST_MS {
            return (vec![all()], Memory::default());
        }
        memory.quiet = Quiet::NotYet;
        wait_for(id, LOOK_AGAIN_MS)
    } else if channel.activity == Activity::Idle || !is_awaited {
        match not_quiet_for(settings.buffer.ms(), &mut memory.quiet, now) {
            // Within that time, the channel may become busy again.
            more @ 1.. => wait_for(id, more),
            0 => deliver_on(id, results.iter().cloned()),
        }
    } else {
        memory.quiet = Quiet::NotYet;
        match left {
            _ if settings.interrupt => interrupt(id, results.iter().cloned()),
            0 => deliver_on(id, results.iter().cloned()),
            left => wait_for(id, left),
        }
    };
    let is_delivery = matches!(say, Decision::Deliver(_));
    if is_delivery {
        memory.quiet = Quiet::Always;
    }
    // Failed results wait for their retry, even if nothing else prevents a message.
    let say = (!is_delivery || !results.is_empty()).then_some(say);
    (say.into_iter().chain(rest).collect(), memory)
}

/// Returns the milliseconds until an idle channel has been idle for long enough; 0 if it was not
/// seen busy.
fn not_quiet_for(buffer: u64, quiet: &mut Quiet, now: u64) -> u64 {
    if *quiet == Quiet::NotYet {
        *quiet = Quiet::Since(now);
    }
    match *quiet {
        Quiet::Since(since) => buffer.saturating_sub(now.saturating_sub(since)),
        _ => 0,
    }
}

conclave_sdk::export!(delivery: WaitForIdle);

#[cfg(test)]
mod tests;
