//! A pause reaches the rooms below: each child room is told what its parent was told. What a pause
//! means is the core's.

use conclave_core::protocol::event::Event;

use super::{Driver, UnderWay};

/// What an event makes of a pause: none when it says nothing about one.
fn paused_by(event: &Event) -> Option<Option<String>> {
    match event.effective() {
        Event::Paused { reason } => Some(Some(reason.clone())),
        // A run that begins is not paused.
        Event::Unpaused | Event::RunStarted { .. } | Event::RoomOpened { .. } => Some(None),
        _ => None,
    }
}

/// Why a run is paused after these events.
pub(super) fn paused_after<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<String> {
    events.into_iter().filter_map(paused_by).last().flatten()
}

impl Driver {
    /// Why the run is paused; none when it is not.
    pub(crate) fn paused(&self) -> Option<&str> {
        self.paused.as_deref()
    }

    /// Remembers what an event makes of a pause; gives what child rooms are to be told.
    pub(super) fn note_pause(&mut self, event: &Event) -> Option<Event> {
        self.paused = paused_by(event)?;
        let event = event.effective();
        matches!(event, Event::Paused { .. } | Event::Unpaused).then(|| event.clone())
    }

    /// Once the records are handed over: a child's never come before its parent's.
    pub(super) fn report_children(&self, pauses: Vec<Event>) {
        for pause in pauses {
            for under_way in self.under_way.values() {
                if let UnderWay::Child { events, .. } = under_way {
                    // It may be over.
                    let _ = events.send(pause.clone());
                }
            }
        }
    }
}

/// What a child room is to take first so that it is paused when its parent is: it may have stopped
/// before it was told.
pub(super) fn pause_as(parent: Option<&str>, was_paused: bool) -> Option<Event> {
    match (parent, was_paused) {
        (Some(reason), false) => Some(Event::Paused { reason: reason.to_owned() }),
        (None, true) => Some(Event::Unpaused),
        (Some(_), true) | (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_about_a_pause_holds() {
        let pause = |reason: &str| Event::Paused { reason: reason.to_owned() };
        let other = || Event::TurnStopped { reason: String::new() };
        assert_eq!(paused_after(&[]), None);
        assert_eq!(paused_after(&[pause("a"), other(), pause("b"), other()]), Some("b".to_owned()));
        assert_eq!(paused_after(&[pause("a"), Event::Unpaused, other()]), None);
    }
}
