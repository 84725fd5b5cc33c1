use super::{Entry, EntryKind, History, Range};

/// `s` system, `u` user, `a` agent, `c1` a call, `r1` its result, `m1` a lookup in the memory, `L`
/// a long result; several of one agent message are joined by `+`.
fn history(text: &str) -> History {
    let entry = |word: &str| {
        let mut entry =
            Entry { kind: EntryKind::Agent, calls: Vec::new(), results: Vec::new(), chars: 5 };
        for part in word.split('+') {
            let id = part[1..].to_owned();
            match &part[..1] {
                "s" => entry.kind = EntryKind::System,
                "u" => entry.kind = EntryKind::User,
                "c" => entry.calls.push((id, "shell.run".into())),
                "m" => entry.calls.push((id, "recall".into())),
                "r" => {
                    (entry.kind, entry.results) =
                        (EntryKind::Results, [entry.results.clone(), vec![id]].concat())
                }
                "L" => {
                    (entry.kind, entry.results, entry.chars) = (EntryKind::Results, vec![id], 5_000)
                }
                _ => {}
            }
        }
        entry
    };
    History::new(text.split_whitespace().map(entry).collect())
}

#[test]
fn a_cut_parts_no_call_from_its_result() {
    let history = history("u c1 r1 a c2+c3 r2 u r3 a");
    let cuts: Vec<_> = (0..=history.len()).map(|place| history.cut_from(place)).collect();
    assert_eq!(cuts, [0, 1, 3, 3, 4, 8, 8, 8, 8, 9]);
    let cuts: Vec<_> = (0..=history.len()).map(|place| history.cut_until(place)).collect();
    assert_eq!(cuts, [0, 1, 1, 3, 4, 4, 4, 4, 8, 9]);
}

#[test]
fn ids_that_come_again_mean_the_latest_call() {
    let history = history("c1 r1 a c1 r1 a");
    let cuts: Vec<_> = (0..=history.len()).map(|place| history.cut_from(place)).collect();
    assert_eq!(cuts, [0, 2, 2, 3, 5, 5, 6]);
}

#[test]
fn a_call_without_result_and_a_result_without_call_hold_nothing_back() {
    let history = history("c1 a r7 a");
    assert!((0..=history.len()).all(|place| history.cut_from(place) == place));
}

#[test]
fn the_first_and_the_newest_stay() {
    type Case = (&'static str, usize, Option<usize>, bool, Option<Range<usize>>);
    let cases: [Case; 10] = [
        ("u a a a a a", 1, Some(2), false, Some(1..4)),
        ("u a a a a a", 1, Some(5), false, None),
        ("u a a a a a", 1, Some(5), true, Some(1..3)),
        ("u a a a a a", 1, None, false, Some(1..4)),
        ("u c1 r1 a c2 r2", 1, Some(1), false, Some(1..4)),
        ("u c1 r1 a c2 r2", 2, Some(2), false, Some(3..4)),
        ("u c1 r1", 1, Some(1), false, None),
        ("", 1, Some(1), true, None),
        ("u", 1, Some(0), true, None),
        ("u a a a", 9, Some(9), true, Some(2..3)),
    ];
    for (text, first, newest, needed, expected) in cases {
        assert_eq!(
            history(text).recent(first, newest, needed),
            expected,
            "{text} {first} {newest:?} {needed}"
        );
    }
}

#[test]
fn a_tenth_is_progress() {
    let history = history("u a a a a a a a a a a a a a a a a a a a");
    assert!(history.is_progress(2) && !history.is_progress(1) && !history.is_progress(0));
}

#[test]
fn the_window_keeps_what_was_asked_and_the_newest_half() {
    #[expect(clippy::single_range_in_vec_init, reason = "each is the list of ranges that go")]
    let cases: [(&str, &[Range<usize>]); 9] = [
        ("s u a a a a a a", &[2..4]),
        ("s s u m1 r1 a a a a a a a", &[5..6]),
        ("s a u a a a a a a a", &[1..2, 3..5]),
        // The newest half would begin with a result whose call goes.
        ("s u a c1 r1 a a a", &[2..5]),
        ("s u a a c1 r1 r1 a a a", &[2..7]),
        ("s u c1 a a r1 a a", &[2..6]),
        ("u c1 a a a r1", &[]),
        ("a a a a", &[0..2]),
        ("", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(history(text).window(), expected, "{text}");
    }
}

#[test]
fn old_long_results_are_hidden() {
    let history = history("u c1 L1 c2 r2 c3 L3 a");
    assert_eq!(history.old_results(0, 10), [2, 6]);
    assert_eq!(history.old_results(2, 10), [2]);
    assert_eq!(history.old_results(0, 4), [2, 4, 6]);
    assert_eq!(history.old_results(100, 0), [0; 0]);
}
