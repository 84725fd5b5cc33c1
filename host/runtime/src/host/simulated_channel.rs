//! A simulated voice channel for tests and for trying out strategies. It makes no sound, is busy
//! for the duration of its words, reports that to the room and can be interrupted. The choice of
//! messages belongs to strategies.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conclave_core::protocol::control::ControlCommand;
use conclave_core::setup::Setup;
use conclave_core::types::channel::{Activity, ChannelKind};
use conclave_core::types::ids::{ChannelId, TaskName};
use conclave_core::types::request::{Refusal, RoomRequest};
use tokio::sync::{oneshot, watch};

use crate::driver::channel::{Channels, HumanAnswer, OutgoingMessage};
use crate::driver::room_handle::RoomHandle;
use crate::support::clock::{BoxFuture, Clock};

/// The answer to an interrupted message, so that its strategy can have it spoken again.
pub const INTERRUPTED: &str = "interrupted";

/// Channels with simulated voices. A message takes a fixed number of milliseconds per word, one
/// message after the other, and the room gets the channel's activity. An interrupting message, or a
/// user who begins to speak, cuts off the current one, which is answered with [`INTERRUPTED`].
///
/// A run adds it by itself for channels whose config sets `simulate`. A program creates its own to
/// simulate its user:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::channel::UnattendedChannel;
/// use conclave_runtime::clock::SystemClock;
/// use conclave_runtime::voice::SimulatedVoice;
///
/// let voice = Arc::new(SimulatedVoice::new(Arc::new(UnattendedChannel), Arc::new(SystemClock), [("phone".into(), 300)]));
/// let options = RunOptions { channels: voice.clone(), ..RunOptions::default() };
/// // While the run goes on: the user says something, and the channel is busy for two seconds.
/// let user = voice.user_speaks_for("phone", Duration::from_secs(2));
/// # drop((options, user));
/// ```
pub struct SimulatedVoice {
    inner: Arc<dyn Channels>,
    voices: Arc<Voices>,
}

impl fmt::Debug for SimulatedVoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedVoice").field("pace", &self.voices.pace).finish_non_exhaustive()
    }
}

struct Voices {
    clock: Arc<dyn Clock>,
    /// Milliseconds per word, by channel.
    pace: BTreeMap<ChannelId, u32>,
    room: Mutex<Option<RoomHandle>>,
    lines: Mutex<HashMap<ChannelId, Arc<ChannelLine>>>,
}

/// One channel.
struct ChannelLine(Mutex<SpeechState>);

struct SpeechState {
    /// Whether a message holds the floor.
    is_taken: bool,
    /// The messages that wait for the floor, next first.
    waiting: VecDeque<oneshot::Sender<FloorPermit>>,
    /// The number of interruptions so far.
    cuts: watch::Sender<u64>,
    /// The keys of the messages that were spoken in full.
    spoken: HashSet<String>,
    is_speaking: bool,
    is_user_speaking: bool,
}

impl SpeechState {
    fn activity(&self) -> Activity {
        match (self.is_user_speaking, self.is_speaking) {
            (true, _) => Activity::UserSpeaking,
            (false, true) => Activity::Speaking,
            (false, false) => Activity::Idle,
        }
    }
}

impl ChannelLine {
    fn new() -> Self {
        Self(Mutex::new(SpeechState {
            is_taken: false,
            waiting: VecDeque::new(),
            cuts: watch::Sender::new(0),
            spoken: HashSet::new(),
            is_speaking: false,
            is_user_speaking: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, SpeechState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_off(&self) {
        self.lock().cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Waits for the floor; an interrupting message goes to the front of the queue.
    async fn turn(self: &Arc<Self>, interrupts: bool) -> FloorPermit {
        let handed_on = {
            let mut talk = self.lock();
            if !talk.is_taken {
                talk.is_taken = true;
                return FloorPermit(Some(Arc::clone(self)));
            }
            let (hand_on, handed_on) = oneshot::channel();
            match interrupts {
                true => talk.waiting.push_front(hand_on),
                false => talk.waiting.push_back(hand_on),
            }
            handed_on
        };
        // The queue lives in the line, and this future keeps the line alive. An error without a
        // permit would let two messages overlap.
        handed_on.await.unwrap_or(FloorPermit(None))
    }
}

/// The floor. Dropping the permit passes it to the next waiting message, and skips those that were
/// dropped.
struct FloorPermit(Option<Arc<ChannelLine>>);

impl Drop for FloorPermit {
    fn drop(&mut self) {
        let Some(line) = self.0.take() else { return };
        loop {
            let mut talk = line.lock();
            let Some(next) = talk.waiting.pop_front() else {
                talk.is_taken = false;
                return;
            };
            // Unlocked first: the next message may lock the line as soon as it has the floor.
            drop(talk);
            match next.send(Self(Some(Arc::clone(&line)))) {
                Ok(()) => return,
                // The permit is emptied before its drop, because a drop would pass it on a second
                // time.
                Err(mut refused) => drop(refused.0.take()),
            }
        }
    }
}

impl Voices {
    fn line(&self, channel: &ChannelId) -> Arc<ChannelLine> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lines.entry(channel.clone()).or_insert_with(|| Arc::new(ChannelLine::new())))
    }

    fn room(&self) -> Option<RoomHandle> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The pace from the room's current binding, else from the config.
    fn pace(&self, channel: &ChannelId) -> Option<u32> {
        let bound = self.room().and_then(|room| room.bindings().get(channel)?.simulate_ms);
        bound.or_else(|| self.pace.get(channel).copied())
    }

    /// Reports a channel's activity without waiting; a room that is over ignores it.
    fn report(&self, channel: &ChannelId) {
        let Some(room) = self.room() else { return };
        let line = self.line(channel);
        // Sent under the lock, so that reports arrive in the order of their changes.
        let talk = line.lock();
        let what = RoomRequest::Activity { channel: channel.clone(), activity: talk.activity() };
        room.control(ControlCommand::Ask { what: Box::new(what) });
    }

    async fn wait(&self, how_long: Duration) {
        let at = self.clock.now().plus(u64::try_from(how_long.as_millis()).unwrap_or(u64::MAX));
        self.clock.sleep_until(at).await;
    }

    async fn say(
        self: Arc<Self>,
        inner: Arc<dyn Channels>,
        message: OutgoingMessage,
        word_ms: u32,
    ) -> Result<(), String> {
        let line = self.line(&message.channel);
        if message.interrupt {
            line.cut_off();
        }
        let _turn = line.turn(message.interrupt).await;
        // Checked with the floor, because the same key may have been spoken during the wait.
        if line.lock().spoken.contains(&message.key) {
            return Ok(());
        }
        // Subscribed before the message begins, so that no interruption is missed.
        let mut cuts = line.lock().cuts.subscribe();
        let words = u32::try_from(message.text.split_whitespace().count()).unwrap_or(u32::MAX);
        let (channel, key) = (message.channel.clone(), message.key.clone());
        inner.send(message).await?;
        let _saying = BusySpeech::begin(&self, &channel);
        tokio::select! {
            biased;
            // The sender lives in the line, which this future holds.
            _ = cuts.changed() => Err(INTERRUPTED.to_owned()),
            () = self.wait(Duration::from_millis(u64::from(word_ms) * u64::from(words))) => {
                if !key.is_empty() {
                    line.lock().spoken.insert(key);
                }
                Ok(())
            }
        }
    }
}

/// Keeps a channel busy until it is dropped, however the message ends.
struct BusySpeech {
    voices: Arc<Voices>,
    channel: ChannelId,
}

impl BusySpeech {
    fn begin(voices: &Arc<Voices>, channel: &ChannelId) -> Self {
        voices.line(channel).lock().is_speaking = true;
        voices.report(channel);
        Self { voices: Arc::clone(voices), channel: channel.clone() }
    }
}

impl Drop for BusySpeech {
    fn drop(&mut self) {
        self.voices.line(&self.channel).lock().is_speaking = false;
        self.voices.report(&self.channel);
    }
}

/// Keeps a channel's user speaking until it is dropped.
struct UserSaying {
    voices: Arc<Voices>,
    channel: ChannelId,
}

impl Drop for UserSaying {
    fn drop(&mut self) {
        self.voices.line(&self.channel).lock().is_user_speaking = false;
        self.voices.report(&self.channel);
    }
}

impl SimulatedVoice {
    /// Returns channels whose entries in `pace`, in milliseconds per word, are voices simulated by
    /// this clock. Each message also goes to `channels` when it begins.
    #[must_use]
    pub fn new(
        channels: Arc<dyn Channels>,
        clock: Arc<dyn Clock>,
        pace: impl IntoIterator<Item = (ChannelId, u32)>,
    ) -> Self {
        let voices = Voices {
            clock,
            pace: pace.into_iter().collect(),
            room: Mutex::default(),
            lines: Mutex::default(),
        };
        Self { inner: channels, voices: Arc::new(voices) }
    }

    /// The channels, wrapped if the setup has voices to simulate that they do not simulate
    /// themselves.
    pub(crate) fn around(
        channels: Arc<dyn Channels>,
        clock: &Arc<dyn Clock>,
        setup: &Setup,
    ) -> Arc<dyn Channels> {
        let voices = setup.channels.iter().filter(|(channel, binding)| {
            binding.kind == ChannelKind::Voice && !channels.simulates(channel)
        });
        let pace: Vec<(ChannelId, u32)> = voices
            .filter_map(|(channel, binding)| Some((channel.clone(), binding.simulate_ms?)))
            .collect();
        match pace.is_empty() {
            true => channels,
            false => Arc::new(Self::new(channels, Arc::clone(clock), pace)),
        }
    }

    /// Lets the user of a channel speak until this future completes or is dropped; the channel's
    /// current message is cut off.
    pub fn user_speaks_for(
        &self,
        channel: impl Into<ChannelId>,
        how_long: Duration,
    ) -> BoxFuture<'static, ()> {
        let (voices, channel) = (Arc::clone(&self.voices), channel.into());
        Box::pin(async move {
            let line = voices.line(&channel);
            line.lock().is_user_speaking = true;
            line.cut_off();
            voices.report(&channel);
            let _saying = UserSaying { voices: Arc::clone(&voices), channel };
            voices.wait(how_long).await;
        })
    }

    /// Reports the activity of a channel independently of its messages, such as a model that is
    /// generating its next one.
    ///
    /// # Errors
    /// As [`RoomHandle::activity`]; it has no effect before a room is open.
    pub async fn set_activity(
        &self,
        channel: impl Into<ChannelId>,
        activity: Activity,
    ) -> Result<(), Refusal> {
        match self.voices.room() {
            Some(room) => room.activity(channel, activity).await,
            None => Ok(()),
        }
    }
}

impl Channels for SimulatedVoice {
    fn ask(
        &self,
        channel: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        self.inner.ask(channel, task, prompt)
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        match self.voices.pace(&message.channel) {
            Some(word_ms) => {
                Box::pin(Arc::clone(&self.voices).say(Arc::clone(&self.inner), message, word_ms))
            }
            None => self.inner.send(message),
        }
    }

    fn serves(&self, channel: &ChannelId) -> bool {
        self.voices.pace.contains_key(channel) || self.inner.serves(channel)
    }

    fn opened(&self, room: &RoomHandle) {
        *self.voices.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room.clone());
        self.inner.opened(room);
    }

    fn simulates(&self, channel: &ChannelId) -> bool {
        self.voices.pace.contains_key(channel) || self.inner.simulates(channel)
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::ids::Millis;
    use tokio::sync::Notify;

    use super::*;
    use crate::driver::channel::UnattendedChannel;

    /// A clock that stands still until it is moved.
    #[derive(Default)]
    struct Hands {
        now: Mutex<u64>,
        moved: Arc<watch::Sender<u64>>,
        slept: Arc<Notify>,
    }

    impl Hands {
        fn move_on(&self, ms: u64) {
            *self.now.lock().unwrap() += ms;
            self.moved.send_replace(*self.now.lock().unwrap());
        }
    }

    impl Clock for Hands {
        fn now(&self) -> Millis {
            Millis(*self.now.lock().unwrap())
        }

        fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
            let mut moved = self.moved.subscribe();
            self.slept.notify_one();
            Box::pin(async move {
                let _ = moved.wait_for(|now| *now >= at.0).await;
            })
        }
    }

    /// Records the messages.
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Channels for Heard {
        fn ask(
            &self,
            channel: ChannelId,
            task: TaskName,
            prompt: String,
        ) -> BoxFuture<'static, Option<HumanAnswer>> {
            UnattendedChannel.ask(channel, task, prompt)
        }

        fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
            self.0.lock().unwrap().push(message.text);
            Box::pin(std::future::ready(Ok(())))
        }
    }

    fn voice() -> (Arc<SimulatedVoice>, Arc<Hands>, Arc<Heard>) {
        let (hands, sink) = (Arc::new(Hands::default()), Arc::new(Heard::default()));
        let voice =
            SimulatedVoice::new(sink.clone(), hands.clone(), [(ChannelId::from("phone"), 100)]);
        (Arc::new(voice), hands, sink)
    }

    fn message(text: &str, key: &str, interrupt: bool) -> OutgoingMessage {
        OutgoingMessage {
            channel: ChannelId::from("phone"),
            text: text.to_owned(),
            interrupt,
            key: key.to_owned(),
            tasks: Vec::new(),
        }
    }

    /// Starts a message and waits until it is being spoken.
    async fn start_speaking(
        voice: &SimulatedVoice,
        hands: &Hands,
        message: OutgoingMessage,
    ) -> tokio::task::JoinHandle<Result<(), String>> {
        let saying = tokio::spawn(voice.send(message));
        hands.slept.notified().await;
        saying
    }

    #[tokio::test]
    async fn it_speaks_for_as_long_as_its_words_take() {
        let (voice, hands, sink) = voice();
        let saying = start_speaking(&voice, &hands, message("one two three", "a", false)).await;
        assert_eq!(voice.voices.line(&"phone".into()).lock().activity(), Activity::Speaking);
        hands.move_on(299);
        tokio::task::yield_now().await;
        assert!(!saying.is_finished());
        hands.move_on(1);
        assert_eq!(saying.await.unwrap(), Ok(()));
        assert_eq!(voice.voices.line(&"phone".into()).lock().activity(), Activity::Idle);
        // The same key once more is accepted and not spoken.
        assert_eq!(voice.send(message("one two three", "a", false)).await, Ok(()));
        assert_eq!(*sink.0.lock().unwrap(), ["one two three"]);
        // Another channel is not simulated.
        let desk = OutgoingMessage {
            channel: ChannelId::from("desk"),
            ..message("hello there", "b", false)
        };
        assert_eq!(voice.send(desk).await, Ok(()));
    }

    #[tokio::test]
    async fn a_message_that_interrupts_cuts_off_the_one_that_is_said_and_is_next() {
        let (voice, hands, sink) = voice();
        let first = start_speaking(&voice, &hands, message("a long story", "a", false)).await;
        let second = tokio::spawn(voice.send(message("another", "b", false)));
        while voice.voices.line(&"phone".into()).lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        let urgent = tokio::spawn(voice.send(message("fire", "c", true)));
        assert_eq!(first.await.unwrap(), Err(INTERRUPTED.to_owned()));
        hands.slept.notified().await;
        hands.move_on(100);
        assert_eq!(urgent.await.unwrap(), Ok(()));
        hands.slept.notified().await;
        hands.move_on(100);
        assert_eq!(second.await.unwrap(), Ok(()));
        assert_eq!(*sink.0.lock().unwrap(), ["a long story", "fire", "another"]);
        // An interrupted message was not spoken, so the same key is spoken again.
        let repeated = start_speaking(&voice, &hands, message("a long story", "a", false)).await;
        hands.move_on(300);
        assert_eq!(repeated.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_user_who_speaks_is_not_talked_over() {
        let (voice, hands, _) = voice();
        let saying = start_speaking(&voice, &hands, message("a long story", "a", false)).await;
        let user = tokio::spawn(voice.user_speaks_for("phone", Duration::from_millis(50)));
        assert_eq!(saying.await.unwrap(), Err(INTERRUPTED.to_owned()));
        assert_eq!(voice.voices.line(&"phone".into()).lock().activity(), Activity::UserSpeaking);
        hands.move_on(50);
        user.await.unwrap();
        assert_eq!(voice.voices.line(&"phone".into()).lock().activity(), Activity::Idle);
    }

    #[tokio::test]
    async fn a_message_that_is_given_up_leaves_the_channel_free() {
        let (voice, hands, _) = voice();
        let saying = start_speaking(&voice, &hands, message("a long story", "a", false)).await;
        saying.abort();
        assert!(saying.await.unwrap_err().is_cancelled());
        assert_eq!(voice.voices.line(&"phone".into()).lock().activity(), Activity::Idle);
        let next = start_speaking(&voice, &hands, message("next", "b", false)).await;
        hands.move_on(100);
        assert_eq!(next.await.unwrap(), Ok(()));
    }
}
