//! The reference's controller of one agent, of three eras, as a state machine (O-068…O-091): events and answers of the agent go in, published
//! events and the question whether the agent is to step come out. Nothing sleeps, polls or calls back. This host's own loop is the room; this
//! is how theirs goes, for their logs and for the cases that restate it.

mod confirming;
mod delegation;
mod events;
mod limits;
mod seat;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use conclave_trajectory::{Action, Era, Event, Observation, Source, observation};

use super::agent_state::AgentState;

pub use seat::{Past, Saved, Seat, TrafficControl};

/// Whose loop it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    V2024_06,
    V2024_07,
    V2025_11,
}

impl Profile {
    /// The profile with this word: `2024-07`; `2024` is the later one.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Some(match word {
            "2024-06" => Self::V2024_06,
            "2024-07" | "2024" => Self::V2024_07,
            "2025-11" => Self::V2025_11,
            _ => return None,
        })
    }

    /// The wire form of its events.
    #[must_use]
    pub fn era(self) -> Era {
        if self == Self::V2025_11 { Era::V2025 } else { Era::V2024 }
    }
}

/// What is settled before an agent begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub profile: Profile,
    /// Its name.
    pub agent: String,
    /// Names that it may delegate to; none: any.
    pub others: Option<Vec<String>>,
    pub max_iterations: u64,
    /// Dollars.
    pub max_budget: Option<f64>,
    /// Only 2024-06.
    pub max_chars: u64,
    /// Nobody is there to talk to.
    pub headless: bool,
    pub confirmation: bool,
    pub has_analyzer: bool,
    /// A prompt that is too long asks for a condensation.
    pub truncates: bool,
}

impl Options {
    /// As the reference is set up when nobody says otherwise (O-076).
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        Self {
            profile,
            agent: "Agent".to_owned(),
            others: None,
            max_iterations: if profile == Profile::V2025_11 { 500 } else { 100 },
            max_budget: None,
            max_chars: 5_000_000,
            headless: true,
            confirmation: false,
            has_analyzer: false,
            truncates: true,
        }
    }
}

/// What an agent answered when it was asked to step.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Action(Box<Action>),
    /// No action at all.
    Nothing,
    /// Something that no action could be made of; the text is for the model (O-072, O-084).
    Malformed(String),
    /// Its prompt did not fit.
    TooLong,
    /// The model refuses for now; `for_good` when it was asked as often as it may be (O-087).
    RateLimited {
        for_good: bool,
    },
    /// Anything else, by the name of the error.
    Broke(String),
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until an event comes.
    Idle(Idle),
    /// The agent is to step; its answer goes to [`Controller::said`]. Level 0 is the root's.
    Ask { level: usize },
}

/// Why nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    NotRunning,
    /// An action waits for its observation.
    Pending,
    /// A step has ended, here or in a child.
    Stepped,
    /// No event gave a reason to step.
    NoReason,
    /// A limit was reached, or the agent is stuck.
    Stopped,
}

/// An agent with the children that it delegated to, and the part of the stream that nobody has taken yet.
#[derive(Clone, Debug)]
pub struct Controller {
    options: Options,
    /// The root, its child, that one's child; the last is at work.
    seats: Vec<Seat>,
    next_id: i64,
    published: Vec<Arc<Event>>,
    unread: VecDeque<Arc<Event>>,
    asked: Option<usize>,
    /// What went wrong where nobody could hear it (O-075).
    lost: Vec<String>,
}

impl Controller {
    /// An agent that has done nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let seat = Seat::root(&options);
        Self::with(options, seat)
    }

    /// An agent of a session that was stored: it is loading, and knows what it may go back to (O-118).
    #[must_use]
    pub fn restored(options: Options, saved: Saved) -> Self {
        let seat = Seat::restored(&options, saved);
        Self::with(options, seat)
    }

    fn with(options: Options, seat: Seat) -> Self {
        Self { options, seats: vec![seat], next_id: 0, published: Vec::new(), unread: VecDeque::new(), asked: None, lost: Vec::new() }
    }

    /// What is stored of it.
    #[must_use]
    pub fn saved(&self) -> Saved {
        self.root().saved(self.options.profile)
    }

    /// Takes in an event from outside: of the user, of a runtime, of a memory. Gives its id in the stream.
    pub fn receive(&mut self, event: Event) -> (i64, Step) {
        let id = self.publish(event);
        (id, self.drain())
    }

    /// Lets the agent step, if it may: what the loop of 2024 does again and again.
    pub fn step(&mut self) -> Step {
        let step = self.begin_step(0);
        self.settled(step)
    }

    /// Takes in what the agent answered.
    pub fn said(&mut self, answer: Answer) -> Step {
        let Some(at) = self.asked.take() else { return Step::Idle(Idle::NoReason) };
        self.finish_step(at, answer);
        let step = self.drain();
        match step {
            Step::Ask { .. } => step,
            Step::Idle(_) => {
                (0..at).rev().for_each(|parent| self.child_has_stepped(parent));
                self.drain();
                Step::Idle(Idle::Stepped)
            }
        }
    }

    /// Sets the root's state, as somebody outside may.
    pub fn set_state(&mut self, state: AgentState) -> Step {
        self.enter(0, state);
        self.drain()
    }

    /// The events since this was last called, in the order of the stream.
    pub fn take_published(&mut self) -> Vec<Arc<Event>> {
        std::mem::take(&mut self.published)
    }

    /// The agent itself.
    #[must_use]
    pub fn root(&self) -> &Seat {
        &self.seats[0]
    }

    /// The same, to be set up.
    pub fn root_mut(&mut self) -> &mut Seat {
        &mut self.seats[0]
    }

    /// The child that it delegated to, while there is one.
    #[must_use]
    pub fn child(&self) -> Option<&Seat> {
        self.seats.get(1)
    }

    /// What went wrong where nobody could hear it (O-075).
    #[must_use]
    pub fn lost(&self) -> &[String] {
        &self.lost
    }

    fn has_child(&self, at: usize) -> bool {
        self.seats.len() > at + 1
    }

    fn is_of_2024(&self) -> bool {
        self.options.profile != Profile::V2025_11
    }

    fn publish(&mut self, mut event: Event) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        event.id = Some(id);
        let event = Arc::new(event);
        self.unread.push_back(Arc::clone(&event));
        self.published.push(event);
        id
    }

    fn publish_error(&mut self, content: impl Into<String>) {
        let error = Observation::Error(observation::Error { content: content.into(), ..Default::default() });
        self.publish(Event::from(error).from_source(Source::Agent));
    }

    /// Everybody reads what was published, until an agent has to step or nothing is left.
    fn drain(&mut self) -> Step {
        let mut step = Step::Idle(Idle::NoReason);
        while self.asked.is_none() {
            let Some(event) = self.unread.pop_front() else { break };
            step = self.read(&event);
        }
        match self.asked {
            Some(level) => Step::Ask { level },
            None => step,
        }
    }

    fn settled(&mut self, step: Step) -> Step {
        match self.drain() {
            ask @ Step::Ask { .. } => ask,
            Step::Idle(_) => step,
        }
    }
}
