//! Logs of other systems and of Conclave.

use conclave_core::trajectory::{Era, Filter, Loaded, SdkEvent, TrajectoryEvent, load, search};
use serde_json::Value;

/// The maximum number of events of one log that are checked in detail.
const EVENTS: usize = 32;

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let loaded = load(&text);
    loaded.events.iter().take(EVENTS).for_each(event);
    loaded.sdk.iter().take(EVENTS).for_each(sdk);
    let found = search(
        &loaded.events,
        &Filter { query: Some("a".to_owned()), exclude_hidden: true, ..Filter::default() },
    );
    assert!(found.len() <= loaded.events.len());
    torn(&text, &loaded);
}

/// Checks that a stored event loses nothing, and that the form of each era reads back.
fn event(event: &TrajectoryEvent) {
    let stored = serde_json::to_string(event).expect("an event can be stored");
    let read: TrajectoryEvent = serde_json::from_str(&stored)
        .unwrap_or_else(|error| panic!("a stored event is read: {error}: {stored}"));
    assert_eq!(&read, event, "a stored event is read as it was: {stored}");
    for era in [Era::V2024, Era::V2025] {
        let json = event.to_json(era);
        let text = event.to_json_text(era);
        assert_eq!(
            serde_json::from_str::<Value>(&text).ok().as_ref(),
            Some(&json),
            "both forms of an event are the same"
        );
        if let Ok(again) = TrajectoryEvent::from_json_of(&json, era) {
            assert_eq!(again.to_json(era), json, "what an era wrote it writes again");
        }
        let _ = event.message(era);
    }
    let _ = event.memory_form(100);
}

fn sdk(event: &SdkEvent) {
    let json = event.to_json();
    let again = SdkEvent::from_json(&json)
        .unwrap_or_else(|error| panic!("an event is read back: {error}: {json}"));
    assert_eq!(again.to_json(), json, "an event is read back as it was");
}

/// Checks that a torn log yields everything before the tear.
fn torn(text: &str, whole: &Loaded) {
    let Some((before, _)) = text.trim_end_matches('\n').rsplit_once('\n') else { return };
    if serde_json::from_str::<Value>(text).is_ok()
        || serde_json::from_str::<Value>(before).is_ok()
        || !whole.problems.is_empty()
    {
        return;
    }
    let torn = load(before);
    assert!(
        torn.problems.is_empty(),
        "lines that were read are no problem without the last: {:?}",
        torn.problems
    );
    assert!(whole.sdk.starts_with(&torn.sdk), "a torn log begins as the whole one");
    if whole.sdk.is_empty() {
        assert!(whole.events.starts_with(&torn.events), "a torn log begins as the whole one");
    }
}
