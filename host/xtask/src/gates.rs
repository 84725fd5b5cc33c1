//! Checks on the repository's text that no compiler makes: every rule and page cited in code exists,
//! and every guest has a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::components;
use crate::failure::XtaskFailure;
use crate::phase;
use crate::place::{Checkout, files_below};

/// The folders and file types in which rules are cited.
const CITING: [(&str, &str); 5] = [
    ("host", ".rs"),
    ("sdk", ".rs"),
    ("plugins", ".rs"),
    ("docs/examples/plugins", ".rs"),
    ("wit", ".wit"),
];

/// Fails with the rules (`L-081`, `O-060`, `R-044`) that are cited and missing from
/// docs/internals/rules.
pub(crate) fn cited_rules_resolve(place: &Checkout) -> Result<(), XtaskFailure> {
    let pages = files_below(&place.root.join("docs/internals/rules"), ".md");
    let mut written = BTreeSet::new();
    for page in &pages {
        written.extend(rules_in(&text_of(page)?).map(|(rule, _)| rule.to_owned()));
    }
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (folder, ending) in CITING {
        // xtask's own tests contain fictitious rule numbers.
        for file in files_below(&place.root.join(folder), ending)
            .iter()
            .filter(|file| !file.starts_with(place.root.join("host/xtask")))
        {
            for (rule, line) in rules_in(&text_of(file)?) {
                if !written.contains(rule) {
                    unknown
                        .entry(rule.to_owned())
                        .or_default()
                        .push(format!("{}:{line}", place.relative(file)));
                }
            }
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let list: String = unknown
        .iter()
        .map(|(rule, locations)| format!("    {rule}  {}\n", locations.join(", ")))
        .collect();
    let why = if pages.is_empty() {
        "docs/internals/rules does not hold any page yet."
    } else {
        "Write them down in docs/internals/rules, in own words, or correct the number."
    };
    Err(XtaskFailure::new(format!(
        "\n{list}\nCited, but not written down: {} of the rules. {why}",
        unknown.len()
    )))
}

/// Fails with the pages (`docs/use/runs.md`) that comments cite and that do not exist.
pub(crate) fn cited_pages_exist(place: &Checkout) -> Result<(), XtaskFailure> {
    let mut missing = String::new();
    // The comments of plugins name files of their users.
    let citing = CITING.into_iter().filter(|(folder, _)| *folder != "plugins");
    for (folder, ending) in citing.chain([("tests", ".rs")]) {
        for file in &files_below(&place.root.join(folder), ending) {
            for (page, line) in pages_in(&text_of(file)?) {
                if !place.root.join(page).is_file() {
                    let _ = writeln!(missing, "    {page}  {}:{line}", place.relative(file));
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!("\n{missing}\nThese pages are cited and do not exist.")))
}

/// Fails with the guests and the plugins of examples that no test runs by name.
pub(crate) fn guests_are_tested(place: &Checkout) -> Result<(), XtaskFailure> {
    let tests = sources(place, "tests/support")?
        + &sources(place, "tests/suite")?
        + &sources(place, "tests/conformance")?;
    let mut runners: Vec<&str> = runners(&tests).collect();
    let mut guests = components::guests(place)?;
    guests.extend(components::example_names(place)?);
    let untested = untested(&guests, &runners, &tests);
    if untested.is_empty() {
        return Ok(());
    }
    let list: String = untested.iter().map(|name| format!("    {name}\n")).collect();
    runners.sort_unstable();
    runners.dedup();
    Err(XtaskFailure::new(format!(
        "\n{list}\nWithout a test: {} of {} guests. Run each in tests/suite as guest(\"NAME\"), through another function whose first parameter\n\
         is named `guest` (there are {}), or in a loop `for guest in [..]`; or remove it.",
        untested.len(),
        guests.len(),
        runners.join(", ")
    )))
}

/// Fails if the fuzzer's own lock file, which is not the workspace's, does not match the
/// dependencies: `cargo xtask fuzz` would not build. Without an index of the registry cargo cannot
/// check it, and the gate passes.
pub(crate) fn fuzzer_is_locked(place: &Checkout) -> Result<(), XtaskFailure> {
    let manifest = "tests/fuzz/libfuzzer/Cargo.toml";
    let mut command = place.cargo([
        "update",
        "--workspace",
        "--locked",
        "--offline",
        "--manifest-path",
        manifest,
    ]);
    let output = command.output().map_err(|error| phase::not_started(&command, &error))?;
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

/// Calls that no test makes: sleeps, timeouts and time measurements, because machines can be slow
/// and busy. They match as the end of a longer name too, such as `recv_timeout(`.
const TIMED: [&str; 9] = [
    "sleep(",
    "sleep_until(",
    "elapsed()",
    "timeout(",
    "timeout_at(",
    "wait_timeout_while(",
    "duration_since(",
    "interval(",
    "interval_at(",
];

/// The folders that contain tests.
const TESTS: [&str; 5] = ["host", "sdk", "plugins", "docs/examples/plugins", "tests"];

/// The exceptions without tests: components that tests run, benchmarks, and this file, which lists
/// the words.
const NO_TESTS: [&str; 3] = ["tests/guests/", "tests/bench/", "host/xtask/src/gates.rs"];

/// The test files with permitted calls, their number, and the reason why no machine is too slow for
/// them.
const TIMED_ALL_THE_SAME: [(&str, usize, &str); 13] = [
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
pub(crate) fn tests_wait_for_facts(place: &Checkout) -> Result<(), XtaskFailure> {
    let files = TESTS.iter().flat_map(|folder| files_below(&place.root.join(folder), ".rs"));
    let files = files
        .map(|file| Ok((place.relative(&file), text_of(&file)?)))
        .collect::<Result<Vec<_>, XtaskFailure>>()?;
    let problems = timed_problems(&timed_files(&files), &TIMED_ALL_THE_SAME);
    if problems.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\n{problems}\nA test waits for what happens, not for time: for an event, a file, a line (`until` of tests/support), and lets the runner end it\n\
         when that never comes. What may sleep or look at a clock all the same is listed in host/xtask/src/gates.rs with the reason."
    )))
}

/// Returns the files in which tests make these calls, with the lines.
fn timed_files(files: &[(String, String)]) -> BTreeMap<String, Vec<usize>> {
    let modules: Vec<String> =
        files.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    let of_module = |file: &str| {
        modules.iter().any(|module| {
            file.strip_prefix(module).is_some_and(|rest| rest.starts_with(['.', '/']))
        })
    };
    let tests =
        files.iter().filter(|(file, _)| !NO_TESTS.iter().any(|none| file.starts_with(none)));
    let found =
        tests.map(|(file, text)| (file.clone(), timed(text, is_test(file) || of_module(file))));
    found.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// Returns whether the whole file is a test, by its name or its folder's.
fn is_test(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    file.starts_with("tests/")
        || file.contains("/tests/")
        || name == "tests.rs"
        || name.starts_with("test_")
        || name.ends_with("_test.rs")
        || name.ends_with("_tests.rs")
}

/// Returns the files of modules that are compiled only for tests, without their extension.
fn test_modules(file: &str, text: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').unwrap_or_default();
    let folder = match name.trim_end_matches(".rs") {
        "lib" | "main" | "mod" => folder.to_owned(),
        name => format!("{folder}/{name}"),
    };
    let mut is_next = false;
    let mut modules = Vec::new();
    for line in text.lines().map(code_of).map(str::trim) {
        let module =
            line.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")).map(|(_, name)| name);
        match module {
            _ if is_for_tests(line) => is_next = true,
            _ if line.is_empty() || line.starts_with("#[") => {}
            Some(module) if is_next => {
                modules.push(format!("{folder}/{module}"));
                is_next = false;
            }
            _ => is_next = false,
        }
    }
    modules
}

/// Returns the lines, from 1, in which tests make these calls. In a file that is no test, only
/// items compiled for tests count.
fn timed(text: &str, is_test: bool) -> Vec<usize> {
    let (mut tested, mut paused): (Option<Item>, Option<Item>) = (None, None);
    let mut lines = Vec::new();
    for (line, number) in text.lines().map(code_of).zip(1..) {
        if tested.is_none() && is_for_tests(line) {
            tested = Some(Item::below(line));
        } else if paused.is_none()
            && line.trim_start().starts_with("#[")
            && line.contains("start_paused = true")
        {
            // A paused clock belongs to the test: no time passes while it waits.
            paused = Some(Item::below(line));
        }
        if (is_test || tested.is_some())
            && paused.is_none()
            && TIMED.iter().any(|word| calls(line, word))
        {
            lines.push(number);
        }
        tested = tested.filter(|item| !item.ends_with(line));
        paused = paused.filter(|item| !item.ends_with(line));
        if tested.is_some() && line.ends_with('{') && line.contains("mod ") {
            // A module of tests is the last item of its file.
            tested = Some(Item { indent: None });
        }
    }
    lines
}

/// The item below an attribute, as rustfmt lays it out.
struct Item {
    /// The indentation in characters; `None` if it extends to the end of the file.
    indent: Option<usize>,
}

impl Item {
    fn below(attribute: &str) -> Self {
        Self { indent: Some(indent(attribute)) }
    }

    fn ends_with(&self, line: &str) -> bool {
        let code = line.trim();
        self.indent == Some(indent(line))
            && !code.starts_with("#[")
            && (code.starts_with('}') || code.ends_with([';', ',', '}']))
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns a line without its comment.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default().trim_end()
}

/// Returns whether the line is `#[cfg(test)]`, possibly with other conditions.
fn is_for_tests(line: &str) -> bool {
    let Some(condition) = line.trim().strip_prefix("#[cfg(") else { return false };
    condition.match_indices("test").any(|(at, word)| {
        let (before, after) = (&condition[..at], &condition[at + word.len()..]);
        !before.ends_with("not(")
            && (before.is_empty() || before.ends_with(['(', ' ']))
            && after.starts_with([')', ','])
    })
}

/// Returns whether such a function is called, and not defined.
fn calls(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].trim_end_matches(is_word);
        let prefix = &code[before.len()..at];
        (prefix.is_empty() || prefix.ends_with('_')) && !before.ends_with("fn ")
    })
}

fn timed_problems(found: &BTreeMap<String, Vec<usize>>, allowed: &[(&str, usize, &str)]) -> String {
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

fn untested<'a>(guests: &'a [String], runners: &[&str], tests: &str) -> Vec<&'a str> {
    let runs = |name: &str| {
        tests.match_indices(&format!("\"{name}\"")).any(|(at, _)| is_run(&tests[..at], runners))
    };
    guests.iter().map(String::as_str).filter(|name| !runs(name)).collect()
}

/// Returns whether a name behind this text is passed to a runner, or is in a list that
/// `for guest in` iterates.
fn is_run(before: &str, runners: &[&str]) -> bool {
    let caller = before.trim_end().strip_suffix('(').unwrap_or_default();
    let looped = before.rsplit("for ").next().unwrap_or_default();
    runners.contains(&caller.rsplit(|letter| !is_word(letter)).next().unwrap_or_default())
        || ["guest in [", "(guest,"].iter().any(|start| looped.starts_with(start))
            && !looped.contains('{')
}

fn sources(place: &Checkout, folder: &str) -> Result<String, XtaskFailure> {
    files_below(&place.root.join(folder), ".rs").iter().map(|file| text_of(file)).collect()
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

fn text_of(file: &Path) -> Result<String, XtaskFailure> {
    fs::read_to_string(file).map_err(|error| XtaskFailure::io("read", file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn no_test_of_the_repository_waits_for_time() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        tests_wait_for_facts(&place).unwrap_or_else(|failure| panic!("{}", failure.text));
    }

    #[test]
    fn a_test_that_sleeps_or_measures_is_found() {
        let text = "fn a() { sleep(x); }\n#[cfg(test)]\nmod tests {\n  thread::sleep(x); // y\n  // sleep(x)\n  assert!(began.elapsed() < x);\n  fn oversleep() {}\n  oversleep();\n}\n";
        assert_eq!(timed(text, false), [4, 6]);
        assert_eq!(timed(text, true), [1, 4, 6]);
        let found = [("a.rs".to_owned(), vec![4, 6]), ("b.rs".to_owned(), vec![1])].into();
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
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
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
        let found: Vec<String> = timed_files(&files).into_keys().collect();
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
        let runners: Vec<&str> = runners(tests).collect();
        assert_eq!(runners, ["exceeds", "guest"], "by parameter, by name");
        assert_eq!(untested(&guests, &runners, tests), ["panic", "env"]);
    }
}
