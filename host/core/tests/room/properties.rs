//! Properties of all rooms: no order of events breaks a room, and every room ends or waits.

use std::collections::VecDeque;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::ids::Millis;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use crate::arbitrary::{Choices, answers, case, event, guarded_case, steers};
use crate::case::{Case, SECRET, START};
use crate::checks::{changes_when_told_again, violations};

/// Returns the config of each property; PROPTEST_CASES raises the number of cases. No file of
/// failures: a seed in a comment of the fix is more useful.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(384),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A room that records its events.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) room: Room,
    pub(crate) records: Vec<Record>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) notices: Vec<Notice>,
}

impl Recorded {
    pub(crate) fn handle(&mut self, event: Event, at: Millis) {
        let seq = self.records.len() as u64;
        self.records.push(Record {
            seq,
            at,
            principal: Principal("tester".into()),
            rules: RULES,
            epoch: 0,
            event: event.clone(),
        });
        self.room.handle(event, at);
        self.effects.extend(std::iter::from_fn(|| self.room.poll_effect()));
        self.notices.extend(std::iter::from_fn(|| self.room.poll_notice()));
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

/// Returns arbitrary events, most of them invalid. The clock sometimes runs backwards.
pub(crate) fn nonsense(row: &[u16]) -> Vec<(Event, Millis)> {
    let mut choices = Choices::new(row);
    let case = case(&mut choices);
    nonsense_of(&case, &mut choices)
}

fn nonsense_of(case: &Case, choices: &mut Choices<'_>) -> Vec<(Event, Millis)> {
    let mut events = Vec::new();
    if choices.below(8) != 7 {
        // Some rooms are persistent.
        let opening = RunOpening { persistent: choices.below(3) == 2, ..case.opening() };
        events.push((
            Event::RoomOpened { setup: case.setup().into(), opening, secret: SECRET },
            START,
        ));
    }
    while !choices.are_over() {
        let event = event(choices, case);
        let at = if choices.below(4) == 0 { Millis(3) } else { START.plus(events.len() as u64) };
        events.push((event, at));
    }
    events
}

/// Runs a room whose effects are all answered, with chosen answers in a chosen order, until no
/// effect is left.
pub(crate) fn answered(row: &[u16], most: usize) -> Recorded {
    let mut choices = Choices::new(row);
    let case = case(&mut choices);
    answered_case(&case, &mut choices, most)
}

/// Runs a room of this case like `answered`.
pub(crate) fn answered_case(case: &Case, choices: &mut Choices<'_>, most: usize) -> Recorded {
    let mut recorded = Recorded::default();
    recorded.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    let mut to_do: VecDeque<Effect> = recorded.take_effects().into();
    loop {
        assert!(recorded.records.len() < most, "the room goes on for ever");
        let at = START.plus(recorded.records.len() as u64);
        if !choices.are_over() && choices.below(16) == 15 {
            recorded.handle(steers(choices), at);
            to_do.extend(recorded.take_effects());
        }
        let Some(effect) = to_do.pop_front() else {
            if recorded.room.paused().is_none() {
                break;
            }
            recorded.handle(Event::Unpaused, at);
            to_do.extend(recorded.take_effects());
            continue;
        };
        if !choices.are_over() && choices.below(3) == 0 && !to_do.is_empty() {
            to_do.push_back(effect);
            continue;
        }
        for event in answers(choices, &effect) {
            let at = START.plus(recorded.records.len() as u64);
            recorded.handle(event, at);
            to_do.extend(recorded.take_effects());
        }
    }
    recorded
}

/// Its user is absent and its sub-task's own responder has no answer, so each step asks for
/// nothing.
const SILENT: &str = include_str!("silent.txt");

/// Its component answers with a delegation that is refused at once, right after its own call has
/// ended.
const RESPONDED: &str = include_str!("responded.txt");

#[test]
fn rooms_that_waited_for_ever_end() {
    for row in [SILENT, RESPONDED] {
        let row: Vec<u16> =
            row.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        assert!(answered(&row, 40_000).room.outcome().is_some());
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_events_breaks_a_room(row in vec(any::<u16>(), 0..900)) {
        let mut recorded = Recorded::default();
        for (event, at) in nonsense(&row) {
            recorded.handle(event, at);
            prop_assert!(recorded.room.outcome().is_none() || recorded.room.calls_in_flight().next().is_none());
        }
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    }

    #[test]
    fn no_order_of_events_breaks_a_room_with_a_plugin_at_every_door(row in vec(any::<u16>(), 0..900)) {
        let mut choices = Choices::new(&row);
        let case = guarded_case(&mut choices);
        let mut recorded = Recorded::default();
        for (event, at) in nonsense_of(&case, &mut choices) {
            recorded.handle(event, at);
        }
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    }

    #[test]
    fn a_room_whose_calls_are_answered_ends(row in vec(any::<u16>(), 0..2_000)) {
        let recorded = answered(&row, 40_000);
        prop_assert!(recorded.room.outcome().is_some(), "it waits for {:?}", recorded.room.calls_in_flight().collect::<Vec<_>>());
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    }

    #[test]
    fn a_room_with_a_plugin_at_every_door_ends_and_folds(row in vec(any::<u16>(), 0..2_000)) {
        let mut choices = Choices::new(&row);
        let case = guarded_case(&mut choices);
        let recorded = answered_case(&case, &mut choices, 40_000);
        prop_assert!(recorded.room.outcome().is_some(), "it waits for {:?}", recorded.room.calls_in_flight().collect::<Vec<_>>());
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
        prop_assert_eq!(changes_when_told_again(&recorded.room, &recorded.records), None);
    }

    #[test]
    fn the_same_events_have_the_same_effects(row in vec(any::<u16>(), 0..900)) {
        let (mut once, mut twice) = (Recorded::default(), Recorded::default());
        for (event, at) in nonsense(&row) {
            once.handle(event.clone(), at);
            twice.handle(event, at);
        }
        prop_assert_eq!(once.effects, twice.effects);
        prop_assert_eq!(once.notices, twice.notices);
    }

    #[test]
    fn a_room_read_from_its_json_goes_on_as_if_nothing_had_happened(row in vec(any::<u16>(), 0..900)) {
        let events = nonsense(&row);
        let (before, after) = events.split_at(events.len() / 2);
        let mut straight = Recorded::default();
        for (event, at) in before {
            straight.handle(event.clone(), *at);
        }
        straight.effects.clear();
        let json = serde_json::to_string(&straight.room).expect("a room is serialisable");
        let mut resumed = Recorded { room: serde_json::from_str(&json).expect("a room reads what it wrote"), ..Recorded::default() };
        for (event, at) in after {
            straight.handle(event.clone(), *at);
            resumed.handle(event.clone(), *at);
        }
        prop_assert_eq!(straight.effects, resumed.effects);
        prop_assert!(straight.room == resumed.room);
    }
}
