//! Checks on the repository's text that no compiler makes: every rule and page cited in code exists,
//! and every guest has a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::components;
use crate::failure::XtaskFailure;
use crate::phase;
use crate::place::files_below;
use crate::rust_text::{Token, attribute, item_length};
use crate::sources::{SourceFile, Sources};

/// The folders in which rules are cited.
const CITING: [&str; 5] = ["host", "sdk", "plugins", "docs/examples/plugins", "wit"];

/// Fails with the rules (`L-081`, `O-060`, `R-044`) that are cited and missing from
/// docs/internals/rules.
pub(crate) fn cited_rules_resolve(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut written = BTreeSet::new();
    for page in files_below(&sources.place.root.join("docs/internals/rules"), ".md") {
        let text = sources.place.read(&sources.place.relative(&page))?;
        written.extend(rules_in(&text).map(|(rule, _)| rule.to_owned()));
    }
    let mut unknown: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    // xtask's own tests contain fictitious rule numbers.
    for file in sources.below(&CITING).filter(|file| !file.is_below("host/xtask")) {
        for (rule, line) in rules_in(file.text).filter(|(rule, _)| !written.contains(*rule)) {
            unknown.entry(rule).or_default().push(format!("{}:{line}", file.path));
        }
    }
    let list = unknown.iter().map(|(rule, lines)| format!("    {rule}  {}\n", lines.join(", ")));
    XtaskFailure::unless_empty(
        &list.collect::<String>(),
        "These rules are cited and not written down. Write them down in docs/internals/rules, in \
         own words, or correct the number.",
    )
}

/// Fails with the pages (`docs/use/runs.md`) that comments cite and that do not exist.
pub(crate) fn cited_pages_exist(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut missing = String::new();
    // The comments of plugins name files of their users.
    for file in sources.files().filter(|file| !file.is_below("plugins")) {
        for (page, line) in pages_in(file.text) {
            if !sources.place.root.join(page).is_file() {
                let _ = writeln!(missing, "    {page}  {}:{line}", file.path);
            }
        }
    }
    XtaskFailure::unless_empty(&missing, "These pages are cited and do not exist.")
}

/// Fails with the guests and the plugins of examples that no test runs by name.
pub(crate) fn guests_are_tested(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let folders = ["tests/support", "tests/suite", "tests/conformance"];
    let tests: String = sources.below(&folders).map(|file| file.text).collect();
    let runners: BTreeSet<&str> = runners(&tests).collect();
    let mut guests = components::guests(sources.place)?;
    guests.extend(components::example_names(sources.place)?);
    let untested = untested(&guests, &runners, &tests);
    let list: String = untested.iter().map(|name| format!("    {name}\n")).collect();
    XtaskFailure::unless_empty(
        &list,
        format_args!(
            "Without a test: {} of {} guests. Run each in tests/suite as guest(\"NAME\"), through another function whose first parameter\n\
             is named `guest` (there are {runners:?}), or in a loop `for guest in [..]`; or remove it.",
            untested.len(),
            guests.len(),
        ),
    )
}

/// Fails if the fuzzer's own lock file, which is not the workspace's, does not match the
/// dependencies: `cargo xtask fuzz` would not build. Without an index of the registry cargo cannot
/// check it, and the gate passes.
pub(crate) fn fuzzer_is_locked(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let manifest = "tests/fuzz/libfuzzer/Cargo.toml";
    let mut command = sources.place.cargo([
        "update",
        "--workspace",
        "--locked",
        "--offline",
        "--manifest-path",
        manifest,
    ]);
    let output = phase::output(&mut command)?;
    if output.status.success()
        || !String::from_utf8_lossy(&output.stderr).contains("cannot update the lock file")
    {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\ntests/fuzz/libfuzzer/Cargo.lock does not fit the dependencies, so `cargo xtask fuzz` does not build. Type:\n\n    \
         cargo update --workspace --manifest-path {manifest}\n\nand commit what that changes."
    )))
}

/// Functions that no test calls: sleeps, timeouts and time measurements, because machines can be
/// slow and busy. They match as the end of a longer name too, such as `recv_timeout`.
const TIMED: [&str; 9] = [
    "sleep",
    "sleep_until",
    "elapsed",
    "timeout",
    "timeout_at",
    "wait_timeout_while",
    "duration_since",
    "interval",
    "interval_at",
];

/// The exceptions without tests: components that tests run, benchmarks, and this file, which lists
/// the words.
const NO_TESTS: [&str; 3] = ["tests/guests/", "tests/bench/", "host/xtask/src/gates.rs"];

/// The test files with permitted calls, their number, and the reason why no machine is too slow for
/// them.
const TIMED_ALL_THE_SAME: [(&str, usize, &str); 28] = [
    (
        "tests/servers/src/oidc.rs",
        1,
        "a token says when it was issued, and its reader compares that with the clock",
    ),
    (
        "tests/support/src/program.rs",
        4,
        "the one place that looks again until something is there, and gives up after what is no machine's speed",
    ),
    (
        "tests/conformance/src/roomkit/stage.rs",
        1,
        "looks again until a record is settled, however long it takes",
    ),
    (
        "tests/conformance/src/pure.rs",
        1,
        "a job of a batch that takes longer than another, as the cases' format has it; none of ours says so",
    ),
    (
        "tests/conformance/src/workers.rs",
        2,
        "how often a process is looked after decides nothing; the last resort is for a scenario that waits for ever, and processor time limits \
         the others",
    ),
    (
        "tests/fuzz/src/drive.rs",
        2,
        "`cargo xtask fuzz` runs for a time that was typed; the tests run a number of executions",
    ),
    ("tests/fuzz/src/main.rs", 1, "`cargo xtask fuzz` ends an input that hangs; no test starts it"),
    (
        "tests/soak/src/fuse.rs",
        1,
        "the kernel has no word for `mounted`: the device is asked again until it is",
    ),
    (
        "tests/soak/src/lives.rs",
        2,
        "when a life is killed at any time, any time is right; one that says nothing for ten minutes hangs; how long a soak took is only told",
    ),
    (
        "tests/servers/src/fault_proxy.rs",
        1,
        "bytes come late, as a test or the plan of a soak says; no test waits for them",
    ),
    (
        "tests/servers/src/patroni.rs",
        1,
        "Patroni has no word for `promoted`: the servers are asked again until one is the primary",
    ),
    (
        "tests/laws/src/queue.rs",
        3,
        "a run is due by the clock of the database; a message meets the host that gives its run back at many moments",
    ),
    (
        "tests/soak/src/cluster.rs",
        6,
        "the faults come in the time that was typed, or that the plan of a test says; runs that have not ended after the last resort are stuck",
    ),
    (
        "tests/soak/src/cluster/fleet.rs",
        2,
        "how long a take-over took is only told; a worker that does not end when it is drained hangs",
    ),
    ("tests/soak/src/cluster/office.rs", 1, "people look at the store now and then"),
    (
        "host/runtime/tests/shared/support.rs",
        1,
        "looks again until the store has something, however long it takes",
    ),
    (
        "tests/soak/src/server.rs",
        8,
        "readers have a time after the last run has ended, and a reader that needs more has lost its event",
    ),
    (
        "tests/soak/src/server/load.rs",
        6,
        "people look at their runs now and then; runs that have not ended after the last resort are stuck",
    ),
    ("tests/soak/src/server/measure.rs", 4, "times are measured, and decide nothing"),
    (
        "tests/soak/src/server/pages.rs",
        3,
        "times are measured, and a run is asked until it has ended",
    ),
    ("tests/soak/src/server/process.rs", 1, "a server that starts is asked until it answers"),
    ("tests/soak/src/server/readers.rs", 2, "a reader waits before it connects again"),
    (
        "tests/soak/src/server/stalled.rs",
        3,
        "the memory of the server is looked at until it has ended the streams",
    ),
    ("tests/soak/src/child.rs", 3, "the clock of a soak is the system's, and jumps"),
    ("tests/soak/src/world.rs", 1, "answers come late, as the plan of a soak says"),
    (
        "tests/suite/tests/looking.rs",
        1,
        "the moment that a run is dated by is compared with another: a slow machine puts them further apart",
    ),
    ("host/runtime/tests/embed/one_tool.rs", 1, "ignored: it measures, for whoever asks for it"),
    (
        "host/models/tests/http/patience.rs",
        1,
        "the least that a wait may take: a slow machine makes it longer",
    ),
];

/// Fails with the tests that sleep or measure time without a listed reason.
pub(crate) fn tests_wait_for_facts(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let files = sources.files().filter(|file| !file.is_below("wit"));
    XtaskFailure::unless_empty(
        &timed_problems(&timed_files(files), &TIMED_ALL_THE_SAME),
        "A test waits for what happens, not for time: for an event, a file, a line (`until` of tests/support), and lets the runner end it\n\
         when that never comes. What may sleep or look at a clock all the same is listed in host/xtask/src/gates.rs with the reason.",
    )
}

/// The files in which tests make these calls, with the lines.
fn timed_files<'a>(
    files: impl Iterator<Item = &'a SourceFile<'a>>,
) -> BTreeMap<&'a str, Vec<usize>> {
    let files: Vec<&SourceFile<'_>> = files.collect();
    let modules: Vec<String> =
        files.iter().flat_map(|file| test_modules(file.path, &file.tokens)).collect();
    let of_module = |path: &str| {
        modules.iter().any(|module| {
            path.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/']))
        })
    };
    let mut found = BTreeMap::new();
    for file in &files {
        if !NO_TESTS.iter().any(|none| file.path.starts_with(none)) {
            let mut lines = Vec::new();
            add_timed(&file.tokens, is_test(file.path) || of_module(file.path), &mut lines);
            lines.dedup();
            found.insert(file.path, lines);
        }
    }
    found.retain(|_, lines| !lines.is_empty());
    found
}

/// Whether the whole file is a test, by its name or its folder's.
fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with("tests/")
        || path.contains("/tests/")
        || name == "tests.rs"
        || name.starts_with("test_")
        || name.ends_with("_test.rs")
        || name.ends_with("_tests.rs")
}

/// The files of modules that are compiled only for tests, without their extension.
fn test_modules(path: &str, tokens: &[Token<'_>]) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let folder = match name.trim_end_matches(".rs") {
        "lib" | "main" | "mod" => folder.to_owned(),
        name => format!("{folder}/{name}"),
    };
    let for_tests = (0..tokens.len()).filter_map(|at| {
        let (_, item) =
            attribute(&tokens[at..]).filter(|(attribute, _)| is_for_tests(attribute))?;
        match item[..item_length(item)] {
            [.., word, module, end] if word.text == "mod" && end.text == ";" => Some(module.text),
            _ => None,
        }
    });
    for_tests.map(|module| format!("{folder}/{module}")).collect()
}

/// Adds the lines in which tests make these calls. In a part that is no test, only items compiled
/// for tests count.
fn add_timed(tokens: &[Token<'_>], is_test: bool, lines: &mut Vec<usize>) {
    let mut rest = tokens;
    let mut before = "";
    while let Some((token, after)) = rest.split_first() {
        rest = match attribute(rest) {
            // A paused clock belongs to the test: no time passes while it waits.
            Some((words, item)) if pauses_clock(words) => &item[item_length(item)..],
            Some((words, item)) if is_for_tests(words) && !is_test => {
                let (tested, after) = item.split_at(item_length(item));
                add_timed(tested, true, lines);
                after
            }
            _ => {
                if is_test && before != "fn" && is_timed_call(rest) {
                    lines.push(token.line);
                }
                after
            }
        };
        before = token.text;
    }
}

fn pauses_clock(attribute: &[Token<'_>]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text).collect();
    words.windows(3).any(|words| words == ["start_paused", "=", "true"])
}

/// Whether an attribute is `#[cfg(test)]`, possibly with other conditions.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text).collect();
    words.get(2) == Some(&"cfg")
        && words
            .windows(3)
            .any(|words| matches!(words, [before, "(" | ",", "test"] if *before != "not"))
}

fn is_timed_call(rest: &[Token<'_>]) -> bool {
    let [name, open, ..] = rest else { return false };
    let is_end = |word: &&str| {
        name.text.strip_suffix(*word).is_some_and(|start| start.is_empty() || start.ends_with('_'))
    };
    open.text == "(" && TIMED.iter().any(is_end)
}

fn timed_problems(found: &BTreeMap<&str, Vec<usize>>, allowed: &[(&str, usize, &str)]) -> String {
    let may = |file: &str| {
        allowed.iter().find(|(path, ..)| *path == file).map_or(0, |(_, times, _)| *times)
    };
    let too_many = found.iter().filter(|(file, lines)| lines.len() > may(file));
    let list = too_many.map(|(file, lines)| {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        format!("    {file}:{}  {} where {} may be\n", lines.join(", "), lines.len(), may(file))
    });
    let stale =
        allowed.iter().filter(|(file, times, _)| found.get(*file).map_or(0, Vec::len) < *times);
    let stale = stale.map(|(file, times, _)| {
        format!("    {file}  is let off {times} times in gates.rs, and needs fewer\n")
    });
    list.chain(stale).collect()
}

/// Returns the functions that run a guest, as their name or that of their first parameter says.
fn runners(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|function| {
        let (name, parameters) = function.split_once('(')?;
        let first = parameters.trim_start();
        let takes_guest = name.contains("guest")
            || first.starts_with("guest:")
            || first.starts_with("guest_name:");
        (takes_guest && name.chars().all(is_word)).then_some(name)
    })
}

fn untested<'a>(guests: &'a [String], runners: &BTreeSet<&str>, tests: &str) -> Vec<&'a str> {
    let runs = |name: &str| {
        tests.match_indices(&format!("\"{name}\"")).any(|(at, _)| is_run(&tests[..at], runners))
    };
    guests.iter().map(String::as_str).filter(|name| !runs(name)).collect()
}

/// Returns whether a name behind this text is passed to a runner, or is in a list that
/// `for guest in` iterates.
fn is_run(before: &str, runners: &BTreeSet<&str>) -> bool {
    let caller = before.trim_end().strip_suffix('(').unwrap_or_default();
    let looped = before.rsplit("for ").next().unwrap_or_default();
    runners.contains(caller.rsplit(|letter| !is_word(letter)).next().unwrap_or_default())
        || ["guest in [", "(guest,"].iter().any(|start| looped.starts_with(start))
            && !looped.contains('{')
}

/// Returns every rule number in a text with its line, from 1.
fn rules_in(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines()
        .zip(1..)
        .flat_map(|(line, number)| rules_in_line(line).map(move |rule| (rule, number)))
}

/// Returns the pages that comments cite, with their lines.
fn pages_in(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let comments = text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//"));
    comments.flat_map(|(line, number)| {
        line.match_indices("docs/").filter_map(move |(at, _)| {
            let path = &line[at..];
            let end = path.find(|letter: char| !is_word(letter) && !"/-.".contains(letter));
            let path = path[..end.unwrap_or(path.len())].trim_end_matches('.');
            path.ends_with(".md").then_some((path, number))
        })
    })
}

/// Returns the matches of `[LOR]-\d+[a-z]?` as whole words.
fn rules_in_line(line: &str) -> impl Iterator<Item = &str> {
    let dashes = line.match_indices('-').map(|(at, _)| at);
    dashes.filter_map(move |dash| {
        let before = &line[..dash];
        let start = before.strip_suffix(['L', 'O', 'R'])?;
        let digits = line[dash + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let mut end = dash + 1 + digits;
        end += usize::from(line[end..].starts_with(|letter: char| letter.is_ascii_lowercase()));
        let word = digits > 0 && !start.ends_with(is_word) && !line[end..].starts_with(is_word);
        word.then(|| &line[start.len()..end])
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_text::tokens;

    fn rules(line: &str) -> Vec<&str> {
        rules_in_line(line).collect()
    }

    #[test]
    fn rule_numbers_are_words_of_their_own() {
        assert_eq!(rules("/// Rewinds (L-081, O-060) and `R-044a`."), ["L-081", "O-060", "R-044a"]);
        assert_eq!(
            rules("L-052..L-055 and XL-1, L-1x2, CR-7, L-, R-12"),
            ["L-052", "L-055", "R-12"]
        );
        assert_eq!(rules("é-3 O-3é L-9"), ["L-9"]);
    }

    #[test]
    fn rules_come_with_their_lines() {
        assert_eq!(rules_in("a\nL-1\n\nb O-2").collect::<Vec<_>>(), [("L-1", 2), ("O-2", 4)]);
    }

    #[test]
    fn pages_are_cited_in_comments() {
        let text =
            "/// See docs/use/runs.md.\nlet page = \"docs/a.md\";\n  // (docs/b-c.md), docs/d.txt";
        assert_eq!(
            pages_in(text).collect::<Vec<_>>(),
            [("docs/use/runs.md", 1), ("docs/b-c.md", 3)]
        );
    }

    fn timed(text: &str, is_test: bool) -> Vec<usize> {
        let mut lines = Vec::new();
        add_timed(&tokens(text), is_test, &mut lines);
        lines
    }

    #[test]
    fn a_test_that_sleeps_or_measures_is_found() {
        let text = "fn a() { sleep(x); }\n#[cfg(test)]\nmod tests {\n  thread::sleep(x); // y\n  // sleep(x)\n  assert!(began.elapsed() < x);\n  fn oversleep() {}\n  oversleep();\n}\n";
        assert_eq!(timed(text, false), [4, 6]);
        assert_eq!(timed(text, true), [1, 4, 6]);
        let found = [("a.rs", vec![4, 6]), ("b.rs", vec![1])].into();
        assert_eq!(timed_problems(&found, &[("a.rs", 2, "why"), ("b.rs", 1, "why")]), "");
        assert_eq!(
            timed_problems(&found, &[("a.rs", 1, "why"), ("b.rs", 1, "why")]),
            "    a.rs:4, 6  2 where 1 may be\n"
        );
        let stale =
            timed_problems(&found, &[("a.rs", 2, "why"), ("b.rs", 1, "why"), ("c.rs", 1, "why")]);
        assert_eq!(stale, "    c.rs  is let off 1 times in gates.rs, and needs fewer\n");
    }

    #[test]
    fn whatever_gives_up_after_a_time_is_found() {
        for call in [
            "tokio::time::timeout(x, y).await;",
            "receiver.recv_timeout(x);",
            "condvar.wait_timeout(guard, x);",
            "condvar.wait_timeout_while(guard, x, y);",
            "assert!(now.duration_since(began) < x);",
            "until.saturating_duration_since(now);",
            "tokio::time::sleep_until(x).await;",
            "tokio::time::interval(x);",
            "timeout_at(x, y).await;",
        ] {
            assert_eq!(timed(call, true), [1], "{call}");
        }
        for other in [
            "fn sleep_until(&self, at: Millis) {",
            "fn a_turn_in_an_interval() {",
            "let timeout = 3;",
            "// timeout(x, y)",
        ] {
            assert_eq!(timed(other, true), [0_usize; 0], "{other}");
        }
    }

    #[test]
    fn a_test_whose_clock_stands_still_may_wait() {
        let text = "#[tokio::test(start_paused = true)]\nasync fn a() {\n    sleep(x).await;\n}\n\n#[tokio::test]\nasync fn b() {\n    sleep(x).await;\n}\n";
        assert_eq!(timed(text, true), [8]);
    }

    #[test]
    fn what_is_compiled_for_tests_is_looked_at_and_nothing_else() {
        for condition in
            ["test", "all(test, unix)", "any(test, feature = \"x\")", "all(unix, test)"]
        {
            let text = format!(
                "#[cfg({condition})]\n#[expect(dead_code)]\nfn a() {{\n    sleep(x);\n}}\n\nfn b() {{\n    sleep(x);\n}}\n"
            );
            assert_eq!(timed(&text, false), [4], "{condition}");
        }
        for condition in ["not(test)", "feature = \"test-server\"", "doctest", "all(doctest, unix)"]
        {
            let text = format!("#[cfg({condition})]\nfn a() {{\n    sleep(x);\n}}\n");
            assert_eq!(timed(&text, false), [0_usize; 0], "{condition}");
        }
        let field =
            "struct A {\n    #[cfg(test)]\n    visited: u64,\n}\nfn b() {\n    sleep(x);\n}\n";
        assert_eq!(timed(field, false), [0_usize; 0]);
    }

    #[test]
    fn files_of_tests_are_known_by_their_names_and_by_who_declares_them() {
        let file = SourceFile::new;
        let sleeps = "fn a() {\n    sleep(x);\n}\n";
        let files = [
            file(
                "host/a/src/lib.rs",
                "mod real;\n#[cfg(any(test, feature = \"testing\"))]\npub mod fake;\n",
            ),
            file("host/a/src/real.rs", "#[cfg(test)]\nmod told;\nfn a() {\n    sleep(x);\n}\n"),
            file("host/a/src/real/told.rs", sleeps),
            file("host/a/src/fake.rs", sleeps),
            file("host/a/src/fake/inner.rs", sleeps),
            file("host/a/src/fakes.rs", sleeps),
            file("host/a/src/test_server.rs", sleeps),
            file("host/a/src/wire_tests.rs", sleeps),
            file("host/a/src/latest.rs", sleeps),
            file("tests/new/src/lib.rs", sleeps),
            file("tests/guests/src/a.rs", sleeps),
        ];
        let found: Vec<&str> = timed_files(files.iter()).into_keys().collect();
        assert_eq!(
            found,
            [
                "host/a/src/fake.rs",
                "host/a/src/fake/inner.rs",
                "host/a/src/real/told.rs",
                "host/a/src/test_server.rs",
                "host/a/src/wire_tests.rs",
                "tests/new/src/lib.rs",
            ]
        );
    }

    #[test]
    fn a_guest_is_tested_when_a_test_runs_it() {
        let guests = ["echo", "spin", "kv", "panic", "env"].map(String::from);
        let tests = "fn exceeds(\n  guest_name: &str) {}\nfn guest(name: &str) {}\nlet a = guest(\n    \"echo\",\n); return exceeds(\"spin\", 1); for guest in [\"a\", \"kv\"] { text.contains(\"panic\"); } // env";
        let runners: BTreeSet<&str> = runners(tests).collect();
        assert_eq!(runners, BTreeSet::from(["exceeds", "guest"]), "by parameter, by name");
        assert_eq!(untested(&guests, &runners, tests), ["panic", "env"]);
    }
}
