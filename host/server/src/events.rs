//! The events of a conversation for one browser, as server-sent events: entries of the transcript,
//! each with an id; the status; and pieces of the text that a model writes. A browser that connects
//! again names the last id, and gets what follows. A slow browser delays no other: it reads from the
//! shared transcript at its own speed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use conclave_core::inspect::transcript::{EntryKind, TranscriptEntry};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::conversation::{Conversation, ConversationState, ConversationStatus};
use crate::http::StreamPermit;
use crate::markdown;

/// Entries that are prepared at once.
const ENTRIES: usize = 100;

/// The position of a browser in a conversation.
struct EventCursor {
    conversation: Arc<Conversation>,
    changes: watch::Receiver<()>,
    /// The number of this process, in the ids. Another process may order entries of several rooms
    /// differently.
    epoch: String,
    next: usize,
    /// Whether the browser must clear its transcript before the next entry.
    resets: bool,
    status: Option<String>,
    /// The number of the draft, and the bytes of it that were sent.
    draft: (u64, usize),
    ready: VecDeque<Event>,
    _permit: StreamPermit,
}

/// Returns the events after the id `last`, or all.
pub(crate) fn events(
    conversation: Arc<Conversation>,
    epoch: &str,
    last: Option<&str>,
    permit: StreamPermit,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let entries = conversation.state().transcript.entries().len();
    let known = last.map(|last| {
        let (of, number) = last.rsplit_once('.')?;
        let next = number.parse::<usize>().ok()?.checked_add(1)?;
        (of == epoch && next <= entries).then_some(next)
    });
    let cursor = EventCursor {
        changes: conversation.changes(),
        conversation,
        epoch: epoch.to_owned(),
        next: known.flatten().unwrap_or(0),
        resets: known == Some(None),
        status: None,
        draft: (0, 0),
        ready: VecDeque::new(),
        _permit: permit,
    };
    unfold(cursor, |mut cursor| async move {
        loop {
            if let Some(event) = cursor.ready.pop_front() {
                return Some((Ok(event), cursor));
            }
            // Marked as seen before the look, so that a change during it leads to another look.
            cursor.changes.borrow_and_update();
            cursor.prepare().await;
            // The conversation owns the sender, so it lives as long as the cursor.
            if cursor.ready.is_empty() && cursor.changes.changed().await.is_err() {
                return None;
            }
        }
    })
}

impl EventCursor {
    /// Prepares what changed since the last time.
    async fn prepare(&mut self) {
        let conversation = Arc::clone(&self.conversation);
        let Some((status, draft)) = self.prepare_entries(&conversation.state()) else { return };
        // Behind the newest entry, and counted without the lock: the room's loop takes it too.
        let status = json!(conversation.with_pending_changes(status).await);
        let text = status.to_string();
        if self.status.as_ref() != Some(&text) {
            self.push("status", None, &status);
            self.status = Some(text);
        }
        if let Some(draft) = draft {
            self.push("draft", None, &draft);
        }
    }

    /// Prepares entries. After the last one, returns the status and the news of the draft.
    fn prepare_entries(
        &mut self,
        state: &ConversationState,
    ) -> Option<(ConversationStatus, Option<Value>)> {
        if std::mem::take(&mut self.resets) {
            self.push("reset", None, &json!({}));
        }
        let entries = state.transcript.entries();
        let until = entries.len().min(self.next + ENTRIES);
        for (number, entry) in entries.iter().enumerate().take(until).skip(self.next) {
            let id = format!("{}.{number}", self.epoch);
            self.push("entry", Some(id), &with_blocks(entry));
        }
        self.next = until;
        let status = (until == entries.len()).then(|| state.status(self.conversation.room()))?;
        let (number, sent) = self.draft;
        let is_new = number != state.draft.number;
        let more = state.draft.text.get(if is_new { 0 } else { sent }..).unwrap_or_default();
        let has_news = !more.is_empty() || (is_new && sent > 0);
        let draft = has_news.then(|| json!({ "number": state.draft.number, "text": more }));
        self.draft = (state.draft.number, state.draft.text.len());
        Some((status, draft))
    }

    fn push(&mut self, kind: &str, id: Option<String>, data: &impl serde::Serialize) {
        // JSON has no line break, and these types always have a JSON form.
        let data = serde_json::to_string(data).unwrap_or_default();
        let event = Event::default().event(kind).data(data);
        self.ready.push_back(match id {
            Some(id) => event.id(id),
            None => event,
        });
    }
}

/// An entry with the blocks of its text if an agent wrote it. Those of people are texts.
fn with_blocks(entry: &TranscriptEntry) -> Value {
    let mut value = json!(entry);
    let is_of_agent = match entry.kind {
        EntryKind::Answer | EntryKind::Question | EntryKind::Interim | EntryKind::Result => true,
        EntryKind::User | EntryKind::Relayed | EntryKind::Note => false,
    };
    if is_of_agent {
        value["blocks"] = json!(markdown::blocks(&entry.text));
    }
    value
}
