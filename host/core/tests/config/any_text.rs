//! No text makes the parser panic, and each of its problems can be printed.

use conclave_core::config::{ProblemCode, Severity};
use proptest::prelude::*;

use crate::support::{LIBRARY, RULES, parse};

/// Parses a text, and checks the properties that hold for any text.
fn check(text: &str) {
    let lines = text.matches('\n').count() + 1;
    let problems = match parse(text) {
        Ok(config) => {
            assert!(!config.warnings.has_errors());
            config.warnings
        }
        Err(problems) => {
            assert!(problems.has_errors());
            problems
        }
    };
    for problem in &problems.0 {
        assert!((1..=lines).contains(&problem.line) && problem.column >= 1, "{problem:?}");
        assert!(problem.severity == Severity::Warning || !problem.what.is_empty());
        let display = problem.to_string();
        assert!(!display.chars().any(|c| c.is_control() && c != '\n'), "{display:?}");
        assert!(display.len() < 20_000, "{display}");
    }
}

/// A change of a text, at a position in thousandths of its length.
#[derive(Clone, Debug)]
enum Change {
    Cut { at: usize, length: usize },
    Repeat { at: usize, length: usize },
    Insert { at: usize, text: String },
    SwapLines { a: usize, b: usize },
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0..1000_usize;
    let piece = prop_oneof![
        "\\PC{0,4}",
        proptest::sample::select(vec![
            "[",
            "]",
            "{",
            "}",
            "=",
            "\"",
            "'''",
            ".",
            ",",
            "#",
            "\n",
            "\\u0000",
            "\u{1b}",
            "\u{feff}",
            "-",
            "1979-05-27",
            "nan",
            "true",
            "[[",
            "0x",
            "\r"
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        (at(), 1..40_usize).prop_map(|(at, length)| Change::Cut { at, length }),
        (at(), 1..80_usize).prop_map(|(at, length)| Change::Repeat { at, length }),
        (at(), piece).prop_map(|(at, text)| Change::Insert { at, text }),
        (at(), at()).prop_map(|(a, b)| Change::SwapLines { a, b }),
    ]
}

fn apply(text: &str, change: &Change) -> String {
    let chars: Vec<char> = text.chars().collect();
    let place = |at: usize| chars.len() * at / 1000;
    let part = |range: std::ops::Range<usize>| chars[range].iter().collect::<String>();
    match change {
        Change::Cut { at, length } => {
            let (start, end) = (place(*at), (place(*at) + length).min(chars.len()));
            part(0..start) + &part(end..chars.len())
        }
        Change::Repeat { at, length } => {
            let end = (place(*at) + length).min(chars.len());
            part(0..end) + &part(place(*at)..chars.len())
        }
        Change::Insert { at, text } => part(0..place(*at)) + text + &part(place(*at)..chars.len()),
        Change::SwapLines { a, b } => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let (a, b) = (lines.len() * a / 1000, lines.len() * b / 1000);
                lines.swap(a, b);
            }
            lines.join("\n")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        check(&text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_change_of_a_config_is_read_or_refused(changes in proptest::collection::vec(change(), 1..6)) {
        check(&changes.iter().fold(LIBRARY.to_owned(), |text, change| apply(&text, change)));
    }

    #[test]
    fn any_change_of_a_tasks_rules_is_read_or_refused(changes in proptest::collection::vec(change(), 1..6)) {
        check(&changes.iter().fold(RULES.to_owned(), |text, change| apply(&text, change)));
    }
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    let dots = vec!["a"; 79].join(".");
    let cases = [
        format!("{} = 1", vec!["a"; 10_000].join(".")),
        format!("a = {}", "[".repeat(10_000)),
        format!("a = {}1{}", "{ a = ".repeat(10_000), "}".repeat(10_000)),
        format!("[plugins.chat.config]\nx = {}{}", "[".repeat(70), "]".repeat(70)),
        format!(
            "[plugins.chat.config]\nx = {}1{}",
            format!("{{ {dots} = ").repeat(70),
            "}".repeat(70)
        ),
        format!("plugins.chat.config = {}1{}", format!("{{ {dots} = ").repeat(70), "}".repeat(70)),
    ];
    cases.iter().for_each(|text| check(text));
}

#[test]
fn a_chain_of_many_subtasks_is_followed() {
    let tasks: String = (0..2_000)
        .map(|n| format!("[tasks.t{n}]\nagent = \"chat\"\nsubtasks = [\"t{}\"]\n", (n + 1) % 2_000))
        .collect();
    let text = format!("entry = \"t0\"\n[plugins.chat]\nsource = \"stock:chat\"\n{tasks}");
    let problems = parse(&text).unwrap_err();
    assert_eq!(problems.codes(), [ProblemCode::TaskCycle], "{problems}");
    assert!(problems.0[0].what.len() < 200, "{problems}");
}
