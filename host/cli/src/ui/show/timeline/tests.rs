//! Tests of the timeline in the terminal: it is aligned, fits its width, and contains nothing that
//! steers the terminal.

use conclave_core::inspect::timeline::RowSubject;

use super::*;
use crate::ui::show::columns::width;
use crate::ui::show::page::tests::{about, row, timeline};

fn plain(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
}

fn step(says: &str) -> RowSubject {
    let sandbox = Some(conclave_core::inspect::timeline::SandboxUsage {
        wall_us: 1_200,
        cpu_ms: 0,
        memory: 943_719,
    });
    RowSubject::Step {
        task: "answer".into(),
        agent: "librarian".into(),
        says: says.into(),
        fault: None,
        sandbox,
    }
}

fn task() -> RowSubject {
    RowSubject::Task {
        task: "answer".into(),
        agent: "librarian".into(),
        caller: None,
        status: None,
        reason: String::new(),
    }
}

#[test]
fn each_row_has_its_time_its_bar_and_its_place() {
    let rows = vec![
        row(0, 0, Some(1_000), task()),
        row(1, 0, Some(500), step("calls search.find")),
        row(1, 500, Some(1_000), step("It was 1844.")),
    ];
    let printed = plain(&lines(&timeline("When?", rows), &about("conclave.toml"), 100, false));
    let rows: Vec<&str> =
        printed.iter().skip_while(|line| !line.is_empty()).skip(1).map(String::as_str).collect();
    assert_eq!(
        rows,
        [
            "0.00  1.0 s ████████████████ task answer       agent librarian",
            "0.00 500 ms ████████           step librarian  calls search.find (1 ms · 922 KiB)",
            "0.50 500 ms         ████████   step librarian  It was 1844. (1 ms · 922 KiB)",
        ]
    );
}

#[test]
fn texts_begin_in_one_column_unless_a_name_is_long() {
    let long = RowSubject::Other { event: "an-event-whose-name-takes-a-third-of-the-line".into() };
    let rows = vec![
        row(0, 0, Some(1_000), task()),
        row(1, 0, Some(500), step("first")),
        row(5, 500, Some(1_000), step("second")),
        row(1, 700, Some(1_000), long),
    ];
    let printed = plain(&lines(&timeline("When?", rows), &about("conclave.toml"), 80, false));
    let column = |text: &str| {
        let line = printed.iter().find(|line| line.contains(text)).expect("a row");
        width(line.split(text).next().unwrap_or_default())
    };
    assert_eq!(column("agent librarian"), column("first"));
    assert_eq!(column("first"), column("second"));
}

#[test]
fn a_message_cannot_forge_rows_and_is_wrapped() {
    let message = format!("one\n  9 denials\n{}", "word ".repeat(20));
    let printed = plain(&lines(&timeline(&message, vec![]), &about("conclave.toml"), 60, false));
    let marked = printed.iter().filter(|line| line.starts_with("  │ "));
    let words = marked.map(|line| line.matches("word").count()).sum::<usize>();
    assert_eq!(words, 2 * 20, "in the message and in the reason: {printed:#?}");
    assert!(printed.iter().all(|line| !line.contains("denials") || line.starts_with("  │ ")));
}

#[test]
fn a_run_counts_its_denials_by_the_word_that_its_end_used() {
    let mut timeline = timeline("When?", vec![]);
    timeline.totals.denials = 1;
    let printed = plain(&lines(&timeline, &about("conclave.toml"), 100, false)).join("\n");
    assert!(printed.contains("1 denial") && !printed.contains("refusal"), "{printed}");
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_steers_it() {
    let hostile = "\u{1b}[2J\u{202e}漢字 ".repeat(40);
    let rows = vec![
        row(0, 0, Some(10), task()),
        row(1, 0, None, step(&hostile)),
        row(30, 3, Some(3), step(&hostile)),
    ];
    let timeline = timeline(&hostile, rows);
    for total in [40, 60, 80, 120, 200] {
        for line in plain(&lines(&timeline, &about(&hostile), total, false)) {
            assert!(width(&line) <= total, "{total}: {line}");
            assert!(!line.contains('\u{1b}') && !line.contains('\u{202e}'), "{line:?}");
        }
    }
}

#[test]
fn a_burst_of_the_same_call_is_one_line_and_all_shows_each() {
    let tool = |name: &str, is_error: bool| RowSubject::Tool {
        task: "answer".into(),
        caller: None,
        name: name.into(),
        arguments: "{}".into(),
        answer: "found".into(),
        is_error,
        fault: None,
        sandbox: Some(conclave_core::inspect::timeline::SandboxUsage {
            wall_us: 700,
            cpu_ms: 0,
            memory: 943_719,
        }),
    };
    let mut rows = vec![row(0, 0, Some(1_000), task())];
    rows.extend((0..40).map(|at| row(1, at, Some(at + 1), tool("search.read", at == 39))));
    rows.extend((0..3).map(|at| row(1, 100 + at, Some(101 + at), tool("search.find", false))));
    let timeline = timeline("x", rows);
    let printed = plain(&lines(&timeline, &about("x"), 100, false));
    let tools: Vec<&String> = printed.iter().filter(|line| line.contains("tool search.")).collect();
    assert_eq!(tools.len(), 5, "one line for 39, what failed, and three: {printed:#?}");
    assert!(
        tools[0].contains("39 ms")
            && tools[0].contains("tool search.read  39 times (27 ms · 922 KiB)"),
        "{}",
        tools[0]
    );
    assert_eq!(
        plain(&lines(&timeline, &about("x"), 100, true))
            .iter()
            .filter(|line| line.contains("tool search."))
            .count(),
        43
    );
}

#[test]
fn what_a_person_says_is_theirs() {
    let user = RowSubject::User {
        task: "talk".into(),
        channel: "terminal".into(),
        prompt: String::new(),
        answer: Some("hello".into()),
    };
    let RowText { name, text, tone, .. } = words(&row(0, 0, Some(5), user));
    assert_eq!((name.as_str(), text.as_str(), tone), ("you:", "“hello”", Tone::Name));
}

#[test]
fn a_long_run_shows_its_ends_and_what_stands_out() {
    let stalled =
        RowSubject::Stalled { task: "answer".into(), stalled: 1, of: 5, skipped: Vec::new() };
    let mut rows = vec![row(0, 0, Some(10_000), task())];
    rows.extend((0..10_000).map(|at| {
        row(1, at, Some(at + 1), if at == 6_000 { stalled.clone() } else { step("again") })
    }));
    let timeline = timeline("x", rows);
    let printed = plain(&lines(&timeline, &about("x"), 100, false));
    assert!(printed.len() < 30, "{}", printed.len());
    let folded: Vec<&String> = printed.iter().filter(|line| line.contains("more rows")).collect();
    assert_eq!(folded.len(), 2, "{printed:#?}");
    assert!(folded[0].contains("5 995 more rows (5 995 step) in 6.0 s"), "{}", folded[0]);
    let stalled = words(&row(1, 6_000, Some(6_001), stalled)).text;
    assert!(printed.iter().any(|line| line.contains(&stalled)), "{printed:#?}");
    let all = lines(&timeline, &about("x"), 100, true);
    assert!(all.len() > 10_000);
}
