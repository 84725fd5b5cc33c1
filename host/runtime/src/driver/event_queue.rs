//! The queue of a room's events. An event takes 600 bytes and a channel allocates 32 places at
//! once, so the queue holds boxes: a room that waits stays small.

use conclave_core::protocol::event::Event;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};

/// Adds events to a room's queue, and keeps the queue open.
#[derive(Clone, Debug)]
pub(crate) struct EventSender(UnboundedSender<Box<Event>>);

/// Adds events to a room's queue as long as others keep it open.
#[derive(Clone, Debug)]
pub(crate) struct WeakEventSender(WeakUnboundedSender<Box<Event>>);

/// The events that a room has not handled.
#[derive(Debug)]
pub(crate) struct EventQueue(UnboundedReceiver<Box<Event>>);

/// A new queue.
pub(crate) fn event_queue() -> (EventSender, EventQueue) {
    let (sender, receiver) = unbounded_channel();
    (EventSender(sender), EventQueue(receiver))
}

impl EventSender {
    /// Adds an event.
    ///
    /// # Errors
    /// If the room is over; the error has the event.
    pub(crate) fn send(&self, event: Event) -> Result<(), SendError<Box<Event>>> {
        self.0.send(Box::new(event))
    }

    /// Whether the room is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(crate) fn downgrade(&self) -> WeakEventSender {
        WeakEventSender(self.0.downgrade())
    }
}

impl WeakEventSender {
    /// The sender; `None` if the queue is closed.
    pub(crate) fn upgrade(&self) -> Option<EventSender> {
        self.0.upgrade().map(EventSender)
    }
}

impl EventQueue {
    /// The number of events.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for the next event; `None` once all senders are dropped. The future is cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        self.0.recv().await.map(|event| *event)
    }

    /// Returns the next event without waiting.
    pub(crate) fn try_recv(&mut self) -> Option<Event> {
        self.0.try_recv().ok().map(|event| *event)
    }

    /// Waits for an event, and moves at most `most` to the end of `events`. Moves none once all
    /// senders are dropped. The future is cancel-safe.
    pub(crate) async fn recv_many(&mut self, events: &mut Vec<Event>, most: usize) {
        events.extend(self.recv().await);
        // Nothing is awaited below, so no event can be lost.
        for _ in 1..most {
            let Some(event) = self.try_recv() else { break };
            events.push(event);
        }
    }
}
