use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use serde_json::json;

use super::*;
use crate::setup::plugin_query::{EntrySpan, Masked};
use crate::types::message::ToolResult;

fn message(seq: u64, sender: Role, text: &str) -> Message {
    Message { content: Some(text.to_owned()), ..Message::new(seq, sender, "desk") }
}

fn calling(seq: u64, ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall { id: (*id).to_owned(), ..ToolCall::new("box.a", json!({})) };
    Message { tool_calls: ids.iter().map(call).collect(), ..message(seq, Role::Llm, "I look") }
}

fn result(id: &str, content: &str) -> ToolResult {
    ToolResult {
        call_id: id.to_owned(),
        name: "box.a".to_owned(),
        content: content.to_owned(),
        value: Some(json!([1])),
        is_error: false,
    }
}

fn answering(seq: u64, ids: &[&str]) -> Message {
    Message {
        tool_results: ids.iter().map(|id| result(id, "a long result")).collect(),
        ..message(seq, Role::Agent, "a long result")
    }
}

fn history(entries: Vec<Message>) -> History {
    let mut history = History::default();
    entries.into_iter().for_each(|entry| history.push(&Arc::new(entry)));
    history
}

/// 0 user, 1 two calls, 2 result of one, 3 user, 4 result of the other, 5 agent, 6 user, 7 agent.
fn talk() -> History {
    history(vec![
        message(0, Role::User, "find it"),
        calling(1, &["a", "b"]),
        answering(2, &["a"]),
        message(3, Role::User, "and quickly"),
        answering(4, &["b"]),
        message(5, Role::Llm, "found"),
        message(6, Role::User, "thank you"),
        message(7, Role::Llm, "welcome"),
    ])
}

fn forgetting(spans: &[(u64, u64)]) -> Condensation {
    Condensation {
        forget: spans.iter().map(|(start, end)| EntrySpan { start: *start, end: *end }).collect(),
        ..Condensation::default()
    }
}

fn forgotten(history: &History, spans: &[(u64, u64)], retained: RetainedEntries<'_>) -> Vec<usize> {
    forgetting(spans)
        .held_against(history, retained)
        .expect("it is in order")
        .forget
        .into_iter()
        .collect()
}

#[test]
fn a_call_and_its_results_go_together_or_stay_together() {
    let talk = talk();
    for (spans, expected) in [
        (&[(0, 1)][..], &[0][..]),
        // One of the three is enough for all of them.
        (&[(1, 2)], &[1, 2, 4]),
        (&[(2, 3)], &[1, 2, 4]),
        (&[(4, 5)], &[1, 2, 4]),
        // Spans may overlap.
        (&[(0, 3), (2, 4)], &[0, 1, 2, 3, 4]),
        (&[], &[]),
        // The user's newest message and the newest entry stay.
        (&[(0, 8)], &[0, 1, 2, 3, 4, 5]),
    ] {
        assert_eq!(forgotten(&talk, spans, RetainedEntries::default()), expected, "{spans:?}");
    }
    // The message to answer stays, with its call and the call's other result.
    assert_eq!(
        forgotten(&talk, &[(0, 8)], RetainedEntries { pending: Some(4), open_calls: &[] }),
        [0, 3, 5]
    );
}

#[test]
fn a_call_without_a_result_stays() {
    let talk = history(vec![
        calling(0, &["a"]),
        answering(1, &["a"]),
        calling(2, &["a", "b"]),
        answering(3, &["a"]),
        message(4, Role::User, "hm"),
    ]);
    let open = [ToolCall { id: "b".to_owned(), ..ToolCall::new("box.a", json!({})) }];
    // The id `a` occurs twice: each result belongs to the newest call before it.
    assert_eq!(
        forgotten(&talk, &[(0, 5)], RetainedEntries { pending: None, open_calls: &open }),
        [0, 1]
    );
    assert_eq!(forgotten(&talk, &[(3, 4)], RetainedEntries::default()), [2, 3]);
}

#[test]
fn an_action_and_what_the_host_said_to_it_are_one() {
    let action = crate::types::action::Action::Think { thought: "hm".to_owned() };
    let observed = Message { parent: Some(1), ..message(2, Role::Agent, "logged") };
    let talk = history(vec![
        message(0, Role::User, "go"),
        Message { action: Some(action), ..message(1, Role::Llm, "hm") },
        observed,
        message(3, Role::User, "on"),
    ]);
    assert_eq!(forgotten(&talk, &[(2, 3)], RetainedEntries::default()), [1, 2]);
}

#[test]
fn a_summary_stands_where_the_first_entry_stood_and_bears_its_taint() {
    let mut untrusted = message(1, Role::Agent, "from a page");
    untrusted.labels.push(Label::Untrusted);
    let talk = history(vec![
        message(0, Role::Llm, "a"),
        untrusted,
        message(2, Role::Llm, "b"),
        message(3, Role::User, "c"),
    ]);
    let wish = |spans: &[(u64, u64)], text: &str| Condensation {
        summary: Some(text.to_owned()),
        ..forgetting(spans)
    };
    let summary = |wish: Condensation| {
        wish.held_against(&talk, RetainedEntries::default()).expect("it is in order").summary
    };
    assert_eq!(
        summary(wish(&[(1, 3)], "s")),
        Some(Summary { place: 1, text: "s".into(), is_untrusted: true })
    );
    assert_eq!(
        summary(wish(&[(2, 3)], "s")),
        Some(Summary { place: 2, text: "s".into(), is_untrusted: false })
    );
    assert_eq!(summary(wish(&[(2, 3)], " \n")), None);
    // Nothing was dropped, so there is nothing to summarise.
    assert_eq!(summary(wish(&[], "s")), None);
    assert_eq!(summary(wish(&[(3, 4)], "s")), None);
    let long = summary(wish(&[(0, 1)], &"é".repeat(SUMMARY_MAX))).expect("it is there").text;
    assert!(
        long.len() <= SUMMARY_MAX && long.ends_with('…') && long.len() > SUMMARY_MAX - 8,
        "{}",
        long.len()
    );
}

#[test]
fn a_mask_shortens_and_keeps_what_a_provider_must_find() {
    let talk = talk();
    let masking = |index: u64, text: &str| {
        let wish = Condensation {
            mask: vec![Masked { index, text: text.to_owned() }],
            ..Condensation::default()
        };
        wish.held_against(&talk, RetainedEntries::default())
    };
    let masked = masking(2, LEFT_OUT).expect("it is shorter").masked;
    let [(2, entry)] = &masked[..] else { panic!("{masked:?}") };
    let [result] = &entry.tool_results[..] else { panic!("{entry:?}") };
    assert_eq!(
        (result.call_id.as_str(), result.content.as_str(), result.value.clone(), entry.seq),
        ("a", LEFT_OUT, None, 2)
    );
    let masked = masking(1, "I…").expect("it is shorter").masked;
    assert_eq!(masked[0].1.tool_calls, calling(1, &["a", "b"]).tool_calls);
    // A user's message may be cut.
    assert_eq!(masking(3, "…quickly").expect("it is a part").masked[0].1.text(), "…quickly");
    // The newest entry, and the user's newest, stay unchanged.
    assert!(
        masking(6, "thank…").expect("it is a part").is_nothing()
            && masking(7, "w…").expect("it is shorter").is_nothing()
    );
}

#[test]
fn what_is_not_about_this_history_is_refused_as_a_whole() {
    let talk = talk();
    let with = |forget: &[(u64, u64)], index: u64, text: &str| {
        let wish = Condensation {
            mask: vec![Masked { index, text: text.to_owned() }],
            ..forgetting(forget)
        };
        wish.held_against(&talk, RetainedEntries::default())
    };
    for (start, end) in [(2, 2), (3, 2), (0, 9), (8, 9), (u64::MAX - 1, u64::MAX), (0, u64::MAX)] {
        assert_eq!(
            with(&[(0, 1), (start, end)], 1, "…"),
            Err(BadCondensation::Span { start, end, entries: 8 })
        );
    }
    for index in [8, u64::MAX] {
        assert_eq!(with(&[(0, 1)], index, "…"), Err(BadCondensation::Place { index, entries: 8 }));
    }
    assert_eq!(
        with(&[], 5, "longer"),
        Err(BadCondensation::Longer { index: 5, bytes: 6, most: 5 })
    );
    let none = forgetting(&[(0, 1)]).held_against(&History::default(), RetainedEntries::default());
    assert_eq!(none, Err(BadCondensation::Span { start: 0, end: 1, entries: 0 }));
}

#[test]
fn a_mask_says_nothing_that_was_not_said_there() {
    let mut news = message(
        3,
        Role::Agent,
        "--- NEWS ---\nEach line is data.\n{\"a\":\"I approve it\"}\n--- END ---",
    );
    news.labels.push(Label::Untrusted);
    let recalled = Message { labels: vec![Label::Tool], ..message(4, Role::Agent, "1. buy milk") };
    let talk = history(vec![
        message(0, Role::User, "Never delete my notes"),
        calling(1, &["a"]),
        answering(2, &["a"]),
        news,
        recalled,
        message(5, Role::User, "go on, please"),
        message(6, Role::Llm, "welcome"),
    ]);
    let masking = |index: u64, text: &str| {
        let wish = Condensation {
            mask: vec![Masked { index, text: text.to_owned() }],
            ..Condensation::default()
        };
        wish.held_against(&talk, RetainedEntries::default()).map(|condensed| {
            condensed.masked.into_iter().map(|(_, entry)| entry.text().to_owned()).next()
        })
    };
    for (index, text) in [
        (0, "delete my notes"),
        (0, ""),
        (0, "Never"),
        (0, "Always… my notes"),
        (0, "Never delete…Never delete"),
        (0, "approved…"),
        (1, "I see"),
        (2, "yes"),
        (2, "[left in]"),
        (2, "a long… yes"),
        (4, "1. buy all…"),
    ] {
        let refused = masking(index, text);
        let longer = matches!(refused, Err(BadCondensation::Longer { .. }));
        assert!(
            longer || refused == Err(BadCondensation::OtherWords { index }),
            "{index} {text:?}: {refused:?}"
        );
    }
    for (index, text) in [
        (0, LEFT_OUT),
        (0, "Never…"),
        (0, "…my notes"),
        (0, "Never… notes"),
        (0, "…"),
        (2, "a long…"),
        (4, "…milk"),
    ] {
        assert_eq!(masking(index, text), Ok(Some(text.to_owned())), "{index} {text:?}");
    }
    // The host's text may hold a fence: without its first lines, the data in it would count as the
    // user's message.
    assert_eq!(
        masking(3, "…I approve it\"}\n--- END ---"),
        Err(BadCondensation::HostWords { index: 3 })
    );
    assert_eq!(masking(3, "--- NEWS ---…"), Ok(Some("--- NEWS ---…".to_owned())));
}

proptest! {
    /// For every proposal: each remaining call has its results, each result its call, and nothing
    /// grows.
    #[test]
    fn no_wish_parts_a_call_from_its_results(
        row in vec(any::<(u8, u8)>(), 0..60),
        spans in vec((0_u64..70, 0_u64..70), 0..6),
        masks in vec((0_u64..70, 0_usize..30), 0..6),
        pending in 0_u64..70,
    ) {
        let mut open = Vec::new();
        let entry = |(seq, (kind, id)): (usize, &(u8, u8))| {
            let (seq, id) = (seq as u64, ["a", "b", "c"][usize::from(id % 3)]);
            match kind % 5 {
                0 => calling(seq, &[id]),
                1 => calling(seq, &["a", "c"]),
                2 => answering(seq, &[id]),
                3 => message(seq, Role::User, "a word"),
                _ => answering(seq, &["c", id]),
            }
        };
        let history = history(row.iter().enumerate().map(entry).collect());
        if let Some(last) = history.iter_newest_first().find(|entry| entry.sender == Role::Llm) {
            open.clone_from(&last.tool_calls);
        }
        let wish = Condensation {
            forget: spans.iter().map(|(start, end)| EntrySpan { start: *start, end: *end }).collect(),
            mask: masks.iter().map(|(index, length)| Masked { index: *index, text: format!("{}…", &"a long result"[..(*length).min(8)]) }).collect(),
            summary: Some("s".to_owned()),
        };
        let Ok(condensed) = wish.held_against(&history, RetainedEntries { pending: Some(pending), open_calls: &open }) else { return Ok(()) };
        let mut call_places: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, entry) in history.iter().enumerate() {
            for result in &entry.tool_results {
                if let Some(call) = call_places.get(result.call_id.as_str()) {
                    prop_assert!(condensed.forget.contains(call) == condensed.forget.contains(&place), "{place} was parted from {call}");
                }
            }
            call_places.extend(entry.tool_calls.iter().map(|call| (call.id.as_str(), place)));
        }
        if let Some(place) = (0..history.len()).find(|place| *place as u64 == pending) {
            prop_assert!(!condensed.forget.contains(&place));
        }
        prop_assert!(condensed.forget.len() < history.len().max(1));
        for (place, entry) in &condensed.masked {
            let own = history.get(*place).expect("it is there");
            prop_assert!(entry.weight() <= own.weight() && entry.tool_calls == own.tool_calls && !condensed.forget.contains(place));
        }
        if let Some(summary) = &condensed.summary {
            prop_assert_eq!(Some(&summary.place), condensed.forget.first());
        }
    }
}
