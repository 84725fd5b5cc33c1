//! The ordered log of a session in memory: ids, pages, what each event is stored as, and loading files that may be damaged (O-114).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::action::Action;
use crate::era::Era;
use crate::event::{Body, Event, Source};

/// Why an event was not added: it has an id, so it is in a stream already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyHasId(pub i64);

impl fmt::Display for AlreadyHasId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "already-has-id: the event has id {} and so is in a stream; add a copy without id", self.0)
    }
}

impl std::error::Error for AlreadyHasId {}

/// What is wrong with a stored stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which event.
    pub id: i64,
    /// How.
    pub kind: GapKind,
    /// What is wrong with it.
    pub text: String,
}

/// How an event of a stored stream is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// The last file is no event: it was being written when the host died, and is cut off.
    TornTail,
    /// A file before the last is no event.
    Torn,
    /// A file before the last is not there.
    Missing,
}

/// The ordered log of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventStream {
    events: BTreeMap<i64, Event>,
    next_id: i64,
}

impl EventStream {
    /// Adds an event from that source and says which id it got; an event with an id is refused.
    pub fn add(&mut self, mut event: Event, source: Source) -> Result<i64, AlreadyHasId> {
        if let Some(id) = event.id {
            return Err(AlreadyHasId(id));
        }
        let id = self.next_id;
        event.id = Some(id);
        event.source = Some(source);
        self.events.insert(id, event);
        self.next_id = id.saturating_add(1);
        Ok(id)
    }

    /// The event with that id.
    pub fn get(&self, id: i64) -> Option<&Event> {
        self.events.get(&id)
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The id the next event gets.
    pub fn next_id(&self) -> i64 {
        self.next_id
    }

    /// All events in order.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.values()
    }

    /// All events in order, as a list to search or to view.
    pub fn to_vec(&self) -> Vec<Event> {
        self.events.values().cloned().collect()
    }

    /// What each event says: an observation's content, a message's text; empty for all else.
    pub fn contents(&self) -> Vec<&str> {
        self.events()
            .map(|event| match &event.body {
                Body::Observation(observation) => observation.content(),
                Body::Action(Action::Message(message)) => &message.content,
                Body::Action(Action::Talk(talk)) => &talk.content,
                Body::Action(_) => "",
            })
            .collect()
    }

    /// The event as it is stored, in the form of 2025-11; it has a time stamp only if it was given one.
    pub fn stored(&self, id: i64) -> Option<Value> {
        self.get(id).map(|event| event.to_json(Era::V2025))
    }

    /// The full pages of that many events, each as its first id and the id after its last; none for pages of nothing.
    pub fn pages(&self, size: usize) -> Vec<(i64, i64)> {
        let Some(size) = i64::try_from(size).ok().filter(|size| *size > 0) else { return Vec::new() };
        // Only pages that hold an event: ids may be far apart.
        let mut pages: Vec<i64> = self.events.keys().map(|id| id / size).collect();
        pages.dedup();
        let page = |page: i64| Some((page * size, page.checked_add(1)?.checked_mul(size)?));
        pages.into_iter().filter_map(page).filter(|(_, end)| *end <= self.next_id).collect()
    }

    /// The names of the full pages: `0-5`, `5-10`.
    pub fn page_names(&self, size: usize) -> Vec<String> {
        self.pages(size).into_iter().map(|(start, end)| format!("{start}-{end}")).collect()
    }

    /// Loads a stored stream from its files, each with its id, in any order; what is damaged is reported and all else kept.
    pub fn load<'a>(files: impl IntoIterator<Item = (i64, &'a str)>) -> (EventStream, Vec<Gap>) {
        let files: BTreeMap<i64, &str> = files.into_iter().filter(|(id, _)| *id >= 0).collect();
        let mut stream = EventStream::default();
        let mut gaps = Vec::new();
        let last = files.keys().next_back().copied();
        for (id, text) in files {
            // A gap of many files is one report, or an id typed wrong would make millions.
            if id > stream.next_id {
                let many = id - stream.next_id;
                let text = format!("{many} event files before {id} are missing, from {} on; the rest is loaded.", stream.next_id);
                gaps.push(Gap { id: stream.next_id, kind: GapKind::Missing, text });
            }
            let read = serde_json::from_str(text).map_err(|error| error.to_string());
            match read.and_then(|value: Value| Event::from_json(&value).map_err(|malformed| malformed.to_string())) {
                Ok(mut event) => {
                    event.id = Some(id);
                    stream.events.insert(id, event);
                }
                Err(error) if Some(id) == last => {
                    let text = format!("Event file {id}, the last, is damaged ({error}); it is cut off, and all before it is kept.");
                    gaps.push(Gap { id, kind: GapKind::TornTail, text });
                    stream.next_id = id;
                    break;
                }
                Err(error) => {
                    let text = format!("Event file {id} is damaged ({error}); it is left out, and the rest is loaded.");
                    gaps.push(Gap { id, kind: GapKind::Torn, text });
                }
            }
            stream.next_id = id.saturating_add(1);
        }
        (stream, gaps)
    }
}
