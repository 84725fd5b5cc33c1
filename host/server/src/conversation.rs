//! A conversation: a persistent room, its transcript, and what its page shows besides. The
//! transcript is folded from the room's records, so nothing is stored for the page alone.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conclave_core::inspect::pending_calls::PendingCalls;
use conclave_core::inspect::transcript::{
    EntryKind, Transcript, TranscriptEntry, TranscriptStatus,
};
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::approval_id;
use conclave_core::types::ids::{
    CallId, ChannelId, Millis, PluginName, Principal, RoomId, TaskName,
};
use conclave_runtime::RoomHandle;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::{BoxFuture, Clock as _, SystemClock};
use conclave_runtime::store::{StoreAddress, StoreError, StoreReader};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use serde::Serialize;
use tokio::sync::watch;

/// Characters of the first message that name a conversation in the list.
const TITLE: usize = 60;

/// A conversation.
pub(crate) struct Conversation {
    room: RoomId,
    /// Who began it.
    owner: Principal,
    /// Set while the room's loop runs.
    handle: OnceLock<RoomHandle>,
    state: Mutex<ConversationState>,
    changed: watch::Sender<()>,
    recorded: watch::Sender<()>,
    store: StoreAddress,
}

/// What the page shows.
pub(crate) struct ConversationState {
    pub(crate) transcript: Transcript,
    /// The text that a model writes now.
    pub(crate) draft: Draft,
    pending: PendingCalls,
    /// Why no more messages are accepted, once the room's loop has ended. The records of the room may
    /// say so earlier, or not at all.
    ended: Option<String>,
    /// When that was, or was found.
    ended_at: Option<Millis>,
}

/// The text of the agent's model while it is generated. It is in no journal.
#[derive(Default)]
pub(crate) struct Draft {
    /// The step that generates it.
    step: Option<CallId>,
    /// The number of the draft, so that a reader notices a new one.
    pub(crate) number: u64,
    pub(crate) text: String,
}

/// The status of a conversation, as the page reads it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ConversationStatus {
    #[serde(flatten)]
    status: TranscriptStatus,
    /// The task that speaks to the people of the page; `None` before the room's first record.
    task: Option<SpeakingTask>,
    approvals: Vec<PendingApproval>,
    /// The number of files that wait in overlays; 0 while the agents work.
    pending_changes: usize,
    /// Those of them that cannot be applied as they are.
    blocked_changes: usize,
}

/// A task in the words of its config, with which the page greets. They are not sanitised.
#[derive(Debug, PartialEq, Serialize)]
struct SpeakingTask {
    name: TaskName,
    /// Empty if the config has none.
    description: String,
    agent: PluginName,
}

/// A call that waits for the operator.
#[derive(Debug, PartialEq, Serialize)]
struct PendingApproval {
    /// The id for `conclave approve`.
    id: String,
    tool: String,
}

/// A line in the list of conversations.
#[derive(Serialize)]
pub(crate) struct ConversationRow {
    id: RoomId,
    /// The beginning of its first message; empty without one.
    title: String,
    is_open: bool,
}

impl Conversation {
    pub(crate) fn new(
        room: RoomId,
        owner: Principal,
        transcript: Transcript,
        pending: PendingCalls,
        store: StoreAddress,
    ) -> Arc<Self> {
        let state = ConversationState {
            transcript,
            draft: Draft::default(),
            pending,
            ended: None,
            ended_at: None,
        };
        let (changed, recorded) = (watch::Sender::new(()), watch::Sender::new(()));
        let (handle, state) = (OnceLock::new(), Mutex::new(state));
        Arc::new(Self { room, owner, handle, state, changed, recorded, store })
    }

    pub(crate) fn room(&self) -> &RoomId {
        &self.room
    }

    pub(crate) fn owner(&self) -> &Principal {
        &self.owner
    }

    /// Stores the handle of the room, whose loop runs now.
    pub(crate) fn begin(&self, handle: RoomHandle) {
        let _ = self.handle.set(handle);
    }

    /// The handle of the room; `None` if the room was over when it was found.
    pub(crate) fn handle(&self) -> Option<&RoomHandle> {
        self.handle.get()
    }

    /// Records that the room's loop has ended.
    pub(crate) fn end(&self, reason: String) {
        let mut state = self.state();
        (state.ended, state.ended_at) = (Some(reason), Some(SystemClock.now()));
        drop(state);
        self.changed.send_replace(());
    }

    /// When the room's loop ended, or was found to have ended.
    pub(crate) fn ended_at(&self) -> Option<Millis> {
        self.state().ended_at
    }

    /// A receiver that is notified after each change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A receiver that is notified after each record of the run, and not while a model writes.
    pub(crate) fn records(&self) -> watch::Receiver<()> {
        self.recorded.subscribe()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the status with the number of files that wait in overlays, which are counted on disk.
    pub(crate) async fn with_pending_changes(
        &self,
        status: ConversationStatus,
    ) -> ConversationStatus {
        // It changes with each write of a turn, and the page needs it at the end.
        if status.status.is_working {
            return status;
        }
        let (store, room) = (self.store.clone(), self.room.clone());
        let counting = conclave_runtime::blocking::spawn(move || {
            let reader = StoreReader::open(&store)?;
            let pending = reader.pending_changes(&room)?;
            let blocked = if pending == 0 { 0 } else { reader.blocked_changes(&room)? };
            Ok::<_, StoreError>((pending, blocked))
        });
        // In an outage the page shows none, as before the first one.
        let counted = counting.await.ok().and_then(Result::ok);
        let (pending_changes, blocked_changes) = counted.unwrap_or_default();
        ConversationStatus { pending_changes, blocked_changes, ..status }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().is_open()
    }

    pub(crate) fn row(&self) -> ConversationRow {
        let state = self.state();
        let mut entries = state.transcript.entries().iter();
        let first = entries.find(|entry: &&TranscriptEntry| entry.kind == EntryKind::User);
        let title = first.map(|entry| entry.text.trim().chars().take(TITLE).collect());
        let is_open = state.is_open();
        ConversationRow { id: self.room.clone(), title: title.unwrap_or_default(), is_open }
    }
}

impl ConversationState {
    fn is_open(&self) -> bool {
        self.ended.is_none() && self.transcript.status().closed.is_none()
    }

    /// The status, without the number of files that wait in overlays.
    pub(crate) fn status(&self, root: &RoomId) -> ConversationStatus {
        let mut status = self.transcript.status();
        if let Some(reason) = &self.ended {
            // The reason of its records says more than that it is over.
            status.closed.get_or_insert_with(|| reason.clone());
            (status.is_working, status.is_asking) = (false, false);
        }
        // An approval of a stopped turn has no answer that would remove it.
        let is_pending = |room: &RoomId, call| room != root || self.transcript.is_in_flight(call);
        let pending = self.pending.open().filter(|(room, call, _)| is_pending(room, *call));
        let approvals = pending.map(|(room, call, tool)| PendingApproval {
            id: approval_id(room, call),
            tool: tool.clone(),
        });
        let approvals = approvals.collect();
        let task = self.transcript.speaker().map(|(name, task)| SpeakingTask {
            name: name.clone(),
            description: task.description.clone(),
            agent: task.agent.clone(),
        });
        ConversationStatus { task, approvals, status, pending_changes: 0, blocked_changes: 0 }
    }

    fn notice(&mut self, room: &RoomId, root: &RoomId, notice: &Notice) {
        match notice {
            Notice::StepStarted { call, task, .. }
                if room == root
                    && self.transcript.is_speaker(task)
                    && self.transcript.shows_interim() =>
            {
                self.draft.step = Some(*call);
            }
            Notice::ModelCalled { call, .. } if self.draft.step == Some(*call) => {
                self.draft.begin();
            }
            _ => {}
        }
    }
}

impl Draft {
    fn begin(&mut self) {
        self.number += 1;
        self.text.clear();
    }
}

impl Subscriber for Conversation {
    fn on(&self, published: &Published) {
        let Published { room, what, at, .. } = published;
        let mut state = self.state();
        match what {
            RunEvent::Recorded { record } => {
                let ends_draft = matches!(&record.event,
                    Event::AgentStepped { call, .. } if state.draft.step == Some(*call))
                    || matches!(record.event.effective(), Event::TurnStopped { .. });
                if *room == self.room && ends_draft {
                    state.draft.step = None;
                    state.draft.begin();
                }
                state.transcript.take(room, (**record).clone());
            }
            RunEvent::Notice { notice } => {
                state.pending.take(room, *at, notice);
                state.notice(room, &self.room, notice);
            }
            RunEvent::Streamed { call, text, .. }
                if *room == self.room && state.draft.step == Some(*call) =>
            {
                state.draft.text.push_str(text);
            }
            _ => return,
        }
        // Released first, because the pages that are woken take the lock.
        drop(state);
        if let RunEvent::Recorded { .. } = what {
            self.recorded.send_replace(());
        }
        self.changed.send_replace(());
    }
}

/// The served channel. The page shows what the room's records say was sent, so a message is accepted
/// as soon as the room sends it. An answer to a question comes as a message.
pub(crate) struct WebChannel(pub(crate) ChannelId);

impl Channels for WebChannel {
    fn ask(
        &self,
        channel: ChannelId,
        _: TaskName,
        _: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        if channel == self.0 {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(None))
    }

    fn serves(&self, channel: &ChannelId) -> bool {
        *channel == self.0
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
