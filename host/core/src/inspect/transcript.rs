//! The transcript of a persistent room on one of its channels: what the people there wrote and were
//! sent, and what the room does now. Derived from the room's records by the same fold as every
//! view, so a restarted host shows what the host before it showed. Texts come from people, plugins
//! and models; they are not sanitised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::inspect::telling::tell;
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record};
use crate::protocol::notice::Notice;
use crate::room::Room;
use crate::setup::{GatePoint, TaskSetup};
use crate::types::action::Action;
use crate::types::channel::Activity;
use crate::types::delivery::OutgoingMessage;
use crate::types::ids::{BackgroundId, CallId, ChannelId, Millis, RoomId, TaskName};
use crate::types::message::{Message, Role};
use crate::types::outcome::{Outcome, Status};

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TranscriptEntry {
    pub at: Millis,
    pub kind: EntryKind,
    /// The sender in the channel's words, or the task that speaks; `None` for the host, and for a
    /// person without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub text: String,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    /// A message from a person on this channel.
    User,
    /// The answer of a task.
    Answer,
    /// A question of a task, or the answer of an interactive one, which asks its user afterwards.
    Question,
    /// A text of an agent that still works.
    Interim,
    /// The result of a background task, in the words of its delivery strategy.
    Result,
    /// A message from another channel.
    Relayed,
    /// A fact about the room, in the host's words.
    Note,
}

/// What the room does now, as far as the people of the channel may know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TranscriptStatus {
    /// Whether an agent works for the people of this channel.
    pub is_working: bool,
    /// Whether the room asks and takes the next message as the answer.
    pub is_asking: bool,
    /// The tools that run, in the order of their calls.
    pub tools: Vec<String>,
    /// The background tasks that run, each with its id.
    pub background: Vec<(BackgroundId, TaskName)>,
    /// Whether messages from the channel are accepted.
    pub can_send: bool,
    /// Whether the channel receives messages.
    pub can_receive: bool,
    /// The reason of a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// The reason why the room accepts no messages any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

/// The fold from records to entries.
pub struct Transcript {
    channel: ChannelId,
    root: RoomId,
    /// The room itself, and the child rooms that share the channel and have not ended.
    rooms: BTreeMap<RoomId, FoldedRoom>,
    entries: Vec<TranscriptEntry>,
    /// The keys of sent messages. A message that is sent again has the same key.
    sent: BTreeSet<(RoomId, String)>,
    /// What the agent said last, while it is unknown whether that is its answer.
    speech: Option<(TaskName, String)>,
    /// The task whose work for its user ended last.
    ended: Option<TaskName>,
    tools: BTreeMap<CallId, String>,
    background: BTreeMap<BackgroundId, TaskName>,
    asking: Option<CallId>,
}

#[derive(Default)]
struct FoldedRoom {
    room: Room,
    /// The number of the next record.
    next: u64,
    entry: Option<TaskName>,
}

impl Transcript {
    /// Returns an empty transcript of a room that is about to open.
    #[must_use]
    pub fn new(root: RoomId, channel: ChannelId) -> Self {
        Self {
            channel,
            rooms: BTreeMap::from([(root.clone(), FoldedRoom::default())]),
            root,
            entries: Vec::new(),
            sent: BTreeSet::new(),
            speech: None,
            ended: None,
            tools: BTreeMap::new(),
            background: BTreeMap::new(),
            asking: None,
        }
    }

    /// Returns the transcript of a stored room. `records` returns the records of a room of its run;
    /// it is called for the room and for each child room that shares the channel.
    ///
    /// # Errors
    /// Those of `records`.
    pub fn of_stored<E>(
        root: RoomId,
        channel: ChannelId,
        mut records: impl FnMut(&RoomId) -> Result<Vec<Record>, E>,
    ) -> Result<Self, E> {
        let mut transcript = Self::new(root.clone(), channel);
        let (mut read, mut unread) = (BTreeSet::new(), vec![root]);
        while let Some(room) = unread.pop() {
            for record in records(&room)? {
                unread.extend(transcript.take(&room, record));
            }
            read.insert(room);
        }
        // Each room was folded as a whole; people read its entries between those of the others.
        transcript.entries.sort_by_key(|entry| entry.at);
        Ok(transcript)
    }

    /// Folds the next record of a room. Records of rooms that do not share the channel, and those
    /// folded before, change nothing. Returns the child rooms that share the channel from now on.
    pub fn take(&mut self, id: &RoomId, record: Record) -> Vec<RoomId> {
        let is_next = self.rooms.get(id).is_some_and(|folded| folded.next == record.seq);
        // Taken out, so that the entries can change meanwhile.
        let Some(mut folded) = is_next.then(|| self.rooms.remove(id)).flatten() else {
            return Vec::new();
        };
        folded.next += 1;
        if let Event::RoomOpened { opening, .. } = &record.event {
            folded.entry = Some(opening.entry.clone());
        }
        let is_root = *id == self.root;
        folded.room.handle(record.event, record.at);
        let at = folded.room.now();
        while folded.room.poll_task().is_some() {}
        while let Some(notice) = folded.room.poll_notice() {
            if is_root {
                self.notice(&folded, at, notice);
            }
        }
        let (mut sharing, mut is_over) = (Vec::new(), false);
        while let Some(effect) = folded.room.poll_effect() {
            match effect {
                Effect::StartBackground { opening, .. }
                    if opening
                        .bindings
                        .as_ref()
                        .is_some_and(|to| to.contains_key(&self.channel)) =>
                {
                    self.rooms.entry(opening.room.clone()).or_default();
                    sharing.push(opening.room);
                }
                Effect::Send { message, .. } if message.channel == self.channel => {
                    self.send(id, &folded, at, *message);
                }
                Effect::AskUser { call, task, channel, prompt }
                    if is_root && channel == self.channel =>
                {
                    self.ask(&folded, at, (call, task), prompt);
                }
                Effect::AbandonCall { call } if is_root => drop(self.tools.remove(&call)),
                Effect::Finish { .. } => is_over = !is_root,
                _ => {}
            }
        }
        if !is_over {
            self.rooms.insert(id.clone(), folded);
        }
        sharing
    }

    /// The entries so far, the oldest first.
    #[must_use]
    pub fn entries(&self) -> &[TranscriptEntry] {
        &self.entries
    }

    /// Returns what the room does now.
    #[must_use]
    pub fn status(&self) -> TranscriptStatus {
        let Some(FoldedRoom { room, .. }) = self.rooms.get(&self.root) else {
            return TranscriptStatus::default();
        };
        let binding = room.bindings().get(&self.channel);
        let can_receive = binding.is_some_and(|binding| binding.can_receive());
        let over = room.outcome().map(|outcome| outcome.reason.as_str());
        let status = TranscriptStatus {
            can_send: binding.is_some_and(|binding| binding.access.may_write()),
            can_receive,
            paused: room.paused().map(str::to_owned),
            closed: room.closed().or(over).map(str::to_owned),
            ..TranscriptStatus::default()
        };
        if !can_receive {
            return status;
        }
        TranscriptStatus {
            is_working: room.outcome().is_none()
                && room.activity_of(&self.channel) == Activity::Generating,
            is_asking: self.asking.is_some_and(|call| room.is_in_flight(call)),
            tools: self.tools.values().cloned().collect(),
            background: self
                .background
                .iter()
                .map(|(id, task)| (id.clone(), task.clone()))
                .collect(),
            ..status
        }
    }

    /// Whether the text of agents may be shown before it is their answer: the channel receives
    /// messages, and no gate checks what people read.
    #[must_use]
    pub fn shows_interim(&self) -> bool {
        self.rooms.get(&self.root).is_some_and(|folded| self.may_show_interim(&folded.room))
    }

    /// Returns the task that speaks to the people of the channel, with its setup: the entry task, or
    /// the one that the conversation was handed to. `None` before the room's first record.
    #[must_use]
    pub fn speaker(&self) -> Option<(&TaskName, &TaskSetup)> {
        let folded = self.rooms.get(&self.root)?;
        let (name, task) = folded.room.setup().tasks.get_key_value(folded.holder()?)?;
        Some((name, &**task))
    }

    /// Returns whether the task speaks to the people of the channel.
    #[must_use]
    pub fn is_speaker(&self, task: &TaskName) -> bool {
        self.rooms.get(&self.root).is_some_and(|folded| folded.holder() == Some(task))
    }

    /// Whether a call of the room itself still waits for its answer.
    #[must_use]
    pub fn is_in_flight(&self, call: CallId) -> bool {
        self.rooms.get(&self.root).is_some_and(|folded| folded.room.is_in_flight(call))
    }

    fn may_show_interim(&self, room: &Room) -> bool {
        self.can_receive(room)
            && !room.setup().gates.iter().any(|gate| gate.on == GatePoint::Outbound)
    }

    fn can_receive(&self, room: &Room) -> bool {
        room.bindings().get(&self.channel).is_some_and(|binding| binding.can_receive())
    }

    fn add(&mut self, at: Millis, kind: EntryKind, from: Option<String>, text: String) {
        self.entries.push(TranscriptEntry { at, kind, from, text });
    }

    /// Adds a note, unless the channel does not receive messages.
    fn note(&mut self, folded: &FoldedRoom, at: Millis, text: String) {
        if self.can_receive(&folded.room) {
            self.add(at, EntryKind::Note, None, text);
        }
    }

    /// Adds what the agent said last as an interim text: it works on.
    fn add_speech(&mut self, at: Millis) {
        if let Some((task, text)) = self.speech.take() {
            self.add(at, EntryKind::Interim, Some(task.to_string()), text);
        }
    }

    fn notice(&mut self, folded: &FoldedRoom, at: Millis, notice: Notice) {
        match notice {
            Notice::Inbound { channel, sender, text, .. } if channel == self.channel => {
                self.add_speech(at);
                let from = Some(sender).filter(|sender| !sender.is_empty());
                self.add(at, EntryKind::User, from, text);
            }
            Notice::MessagePosted { task, message, .. } => {
                // A message of the host about the agent's own may precede the answer.
                let text = message_text(&message).filter(|_| self.may_show_interim(&folded.room));
                if let Some(text) = text.filter(|_| folded.holder() == Some(&task)) {
                    self.add_speech(at);
                    self.speech = Some((task, text));
                }
            }
            Notice::StepStarted { task, .. } if folded.holder() == Some(&task) => {
                self.add_speech(at)
            }
            Notice::ToolCalled { call, task, name, .. } => {
                if folded.holder() == Some(&task) {
                    self.add_speech(at);
                }
                self.tools.insert(call, name);
            }
            Notice::ToolAnswered { call: Some(call), .. } => drop(self.tools.remove(&call)),
            Notice::TaskEnded { task, .. } => self.ended = Some(task),
            Notice::TurnStopped { reason, .. } => {
                self.add_speech(at);
                self.note(folded, at, stopped(&reason));
            }
            Notice::ResultReady { outcome } => self.result(folded, at, &outcome),
            Notice::HandedOff { .. } => {
                self.add_speech(at);
                self.note(folded, at, format!("{}.", tell(&notice).headline()));
            }
            Notice::BackgroundStarted { id, task, .. } => {
                self.note(folded, at, format!("{task} ({id}) started in the background."));
                self.background.insert(id, task);
            }
            Notice::BackgroundEnded { ref ended } => {
                self.background.remove(&ended.id);
                self.note(folded, at, format!("{}.", tell(&notice).headline()));
            }
            Notice::UserMessageDropped { .. } => {
                self.note(folded, at, format!("{}.", tell(&notice).sentence()));
            }
            Notice::RoomClosed { reason } => {
                self.add_speech(at);
                self.note(folded, at, format!("The conversation was closed: {reason}."));
            }
            _ => {}
        }
    }

    /// Takes the end of a turn. Its answer follows as a message.
    fn result(&mut self, folded: &FoldedRoom, at: Millis, outcome: &Outcome) {
        self.speech = None;
        self.tools.clear();
        if outcome.status == Status::Kill {
            self.note(folded, at, stopped(&outcome.reason));
        }
    }

    fn send(&mut self, id: &RoomId, folded: &FoldedRoom, at: Millis, message: OutgoingMessage) {
        if !self.sent.insert((id.clone(), message.key.clone())) {
            return;
        }
        let of_task = |task: &BackgroundId| {
            folded.room.tasks().find(|record| record.id == *task).map(|record| &record.worker)
        };
        let (kind, from) = if !message.tasks.is_empty() {
            let workers: BTreeSet<&TaskName> = message.tasks.iter().filter_map(of_task).collect();
            let workers: Vec<&str> = workers.into_iter().map(TaskName::as_str).collect();
            (EntryKind::Result, workers.join(", "))
        } else if message.key.starts_with("inbound-") {
            (EntryKind::Relayed, String::new())
        } else if *id == self.root {
            let task = self.ended.as_ref().or_else(|| folded.holder());
            (EntryKind::Answer, task.map(ToString::to_string).unwrap_or_default())
        } else {
            (EntryKind::Result, folded.entry.as_ref().map(ToString::to_string).unwrap_or_default())
        };
        self.add(at, kind, Some(from).filter(|from| !from.is_empty()), message.text);
    }

    fn ask(
        &mut self,
        folded: &FoldedRoom,
        at: Millis,
        (call, task): (CallId, TaskName),
        prompt: String,
    ) {
        self.speech = None;
        self.tools.clear();
        self.asking = Some(call);
        if self.can_receive(&folded.room) && !prompt.trim().is_empty() {
            self.add(at, EntryKind::Question, Some(task.to_string()), prompt);
        }
    }
}

impl FoldedRoom {
    /// The task that holds the conversation.
    fn holder(&self) -> Option<&TaskName> {
        self.room.handed_to().or(self.entry.as_ref())
    }
}

/// The text of an agent's own message to its user; `None` for any other message. The text of an
/// action is for the agent's model.
fn message_text(message: &Arc<Message>) -> Option<String> {
    if message
        .action
        .as_ref()
        .is_some_and(|action| !matches!(action, Action::Talk { .. } | Action::Think { .. }))
    {
        return None;
    }
    let is_elsewhere =
        message.recipient.as_deref().is_some_and(|name| Role::from_name(name).is_none());
    let text = message.text();
    (message.sender == Role::Llm && !is_elsewhere && !text.trim().is_empty())
        .then(|| text.to_owned())
}

fn stopped(reason: &str) -> String {
    format!("The turn was stopped: {reason}.")
}
