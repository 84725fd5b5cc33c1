//! Events that can change nothing any more get no record.

use conclave_core::journal::admission::Admission;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::types::ids::{ControlId, TimerId};
use serde_json::json;

use crate::case::{Case, SECRET, START};
use crate::properties::Recorded;

fn opened() -> Recorded {
    let case = json!({
        "name": "by hand",
        "setup": { "tasks": { "desk": {} }, "plugins": { "desk": {} } },
        "opening": { "deadline": 60_000 },
        "expect": {},
    });
    let case: Case = serde_json::from_value(case).expect("a case of the right form");
    let (setup, opening) = (case.setup().into(), case.opening());
    let mut recorded = Recorded::default();
    recorded.handle(Event::RoomOpened { setup, opening, secret: SECRET }, START);
    recorded
}

#[test]
fn a_timer_that_the_room_dropped_is_late() {
    let mut recorded = opened();
    let timers: Vec<TimerId> =
        recorded
            .take_effects()
            .iter()
            .filter_map(|effect| {
                if let Effect::SetTimer { timer, .. } = effect { Some(*timer) } else { None }
            })
            .collect();
    let [timer] = timers[..] else { panic!("expected the deadline alone: {timers:?}") };
    let fired = Event::TimerFired { timer };
    assert_eq!(Admission::of(&fired, &recorded.room), Admission::Admitted);
    recorded.handle(Event::Cancelled { reason: "enough".to_owned() }, START);
    assert_eq!(Admission::of(&fired, &recorded.room), Admission::Late);
}

#[test]
fn a_control_message_is_admitted_once() {
    let mut recorded = opened();
    let id = ControlId::from("1");
    let message = Box::new(Event::Paused { reason: "lunch".to_owned() });
    let received = Event::ControlReceived { id: id.clone(), by: None, message };
    assert_eq!(Admission::of(&received, &recorded.room), Admission::Admitted);
    recorded.handle(received.clone(), START);
    assert_eq!(Admission::of(&received, &recorded.room), Admission::Repeated(id));
}

#[test]
fn a_control_message_behind_the_end_is_late_and_an_earlier_one_is_confirmed_again() {
    let mut recorded = opened();
    let received = |id: &str| {
        let message = Box::new(Event::Paused { reason: "lunch".to_owned() });
        Event::ControlReceived { id: ControlId::from(id), by: None, message }
    };
    recorded.handle(received("1"), START);
    recorded.handle(Event::Cancelled { reason: "enough".to_owned() }, START);
    assert_eq!(Admission::of(&received("2"), &recorded.room), Admission::Late);
    let repeated = Admission::Repeated(ControlId::from("1"));
    assert_eq!(Admission::of(&received("1"), &recorded.room), repeated);
}
