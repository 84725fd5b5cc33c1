//! Checks on the repository's text that no compiler makes: every rule that code cites is written down, every guest has a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::components;
use crate::failure::Failure;
use crate::place::{Place, files_below};

/// Where rules are cited.
const CITING: [(&str, &str); 4] = [("host", ".rs"), ("sdk", ".rs"), ("plugins", ".rs"), ("wit", ".wit")];

/// Fails with the rules (`L-081`, `O-060`, `R-044`) that are cited and that no page of docs/rules names.
pub(crate) fn cited_rules_resolve(place: &Place) -> Result<(), Failure> {
    let pages = files_below(&place.root.join("docs/rules"), ".md");
    let mut written = BTreeSet::new();
    for page in &pages {
        written.extend(rules_in(&text_of(page)?).map(|(rule, _)| rule.to_owned()));
    }
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (folder, ending) in CITING {
        // xtask's own tests hold numbers that nobody wrote.
        for file in files_below(&place.root.join(folder), ending).iter().filter(|file| !file.starts_with(place.root.join("host/xtask"))) {
            for (rule, line) in rules_in(&text_of(file)?) {
                if !written.contains(rule) {
                    unknown.entry(rule.to_owned()).or_default().push(format!("{}:{line}", place.shown(file)));
                }
            }
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let list: String = unknown.iter().map(|(rule, places)| format!("    {rule}  {}\n", places.join(", "))).collect();
    let why = if pages.is_empty() {
        "docs/rules does not hold any page yet."
    } else {
        "Write them down in docs/rules, in own words, or correct the number."
    };
    Err(Failure::new(format!("\n{list}\nCited, but not written down: {} of the rules. {why}", unknown.len())))
}

/// Fails with the guests that no test runs by name.
pub(crate) fn guests_are_tested(place: &Place) -> Result<(), Failure> {
    let tests = sources(place, "tests/support")? + &sources(place, "tests/suite")? + &sources(place, "tests/conformance")?;
    let mut runners: Vec<&str> = runners(&tests).collect();
    let guests = components::guests(place)?;
    let untested = untested(&guests, &runners, &tests);
    if untested.is_empty() {
        return Ok(());
    }
    let list: String = untested.iter().map(|name| format!("    {name}\n")).collect();
    runners.sort_unstable();
    runners.dedup();
    Err(Failure::new(format!(
        "\n{list}\nWithout a test: {} of {} guests. Run each in tests/suite as guest(\"NAME\"), through another function whose first parameter\n\
         is named `guest` (there are {}), or in a loop `for guest in [..]`; or remove it.",
        untested.len(),
        guests.len(),
        runners.join(", ")
    )))
}

/// What no test does: wait for time to pass, or look how long something took. Machines are slow, and busy.
const TIMED: [&str; 2] = ["sleep(", "elapsed()"];

/// Where tests are. Guests and benchmarks are none.
const TESTS: [&str; 7] = ["host", "sdk", "plugins", "wit", "tests/conformance", "tests/soak", "tests/suite"];

/// Files of tests that may, how often, and why no machine is too slow for it.
const TIMED_ALL_THE_SAME: [(&str, usize, &str); 12] = [
    (
        "tests/support/src/program.rs",
        4,
        "the one place that looks again until something is there, and gives up after what is no machine's speed",
    ),
    ("tests/conformance/src/roomkit/stage.rs", 1, "looks again until a record is settled, however long it takes"),
    (
        "tests/conformance/src/pure.rs",
        1,
        "a job of a batch that takes longer than another, as the cases' format has it; none of ours says so",
    ),
    ("tests/conformance/src/workers.rs", 1, "the last resort for a scenario that waits for ever; processor time is what limits the others"),
    ("tests/soak/src/fuse.rs", 1, "the kernel has no word for `mounted`: the device is asked again until it is"),
    ("tests/soak/src/lives.rs", 1, "the time of a soak is told, and nothing depends on it"),
    ("tests/soak/src/child.rs", 3, "the clock of a soak is the system's, and jumps"),
    ("tests/soak/src/world.rs", 1, "answers come late, as the plan of a soak says"),
    ("tests/suite/tests/parking.rs", 1, "TO MEND: a call must compute longer than 25 ms; the runtime has no clock for parking"),
    (
        "host/runtime/tests/embed/sessions.rs",
        1,
        "a journal that takes its time, so that runs are dropped at different entries; nothing is asserted of it",
    ),
    ("host/runtime/tests/embed/one_tool.rs", 1, "ignored: it measures, for whoever asks for it"),
    ("host/models/tests/openai/patience.rs", 1, "the least that a wait may take: a slow machine makes it longer"),
];

/// Fails with the tests that sleep or measure time, but for those that say why they may.
pub(crate) fn tests_wait_for_facts(place: &Place) -> Result<(), Failure> {
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for folder in TESTS.iter().chain(&["tests/support"]) {
        for file in files_below(&place.root.join(folder), ".rs") {
            let shown = place.shown(&file);
            // This file says what it looks for.
            if shown == "host/xtask/src/gates.rs" {
                continue;
            }
            let is_test = shown.starts_with("tests/") || shown.contains("/tests/") || shown.ends_with("/tests.rs");
            let lines: Vec<usize> = timed(&text_of(&file)?, is_test).collect();
            if !lines.is_empty() {
                found.insert(shown, lines);
            }
        }
    }
    let problems = timed_problems(&found, &TIMED_ALL_THE_SAME);
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "\n{problems}\nA test waits for what happens, not for time: for an event, a file, a line (`until` of tests/support), and lets the runner end it\n\
         when that never comes. What may sleep or look at a clock all the same is listed in host/xtask/src/gates.rs with the reason."
    )))
}

/// The lines, from 1, in which tests do what they should not; where the whole file is no test, those below `#[cfg(test)]`.
fn timed(text: &str, is_test: bool) -> impl Iterator<Item = usize> {
    let mut is_test = is_test;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        is_test |= line.trim() == "#[cfg(test)]";
        let code = line.split("//").next().unwrap_or_default();
        let is_timed =
            |word: &str| code.match_indices(word).any(|(at, _)| !code[..at].ends_with(|letter: char| is_word(letter) && letter != '_'));
        (is_test && TIMED.iter().any(|word| is_timed(word))).then_some(number)
    })
}

fn timed_problems(found: &BTreeMap<String, Vec<usize>>, allowed: &[(&str, usize, &str)]) -> String {
    let may = |file: &str| allowed.iter().find(|(path, ..)| *path == file).map_or(0, |(_, times, _)| *times);
    let too_many = found.iter().filter(|(file, lines)| lines.len() > may(file));
    let list = too_many.map(|(file, lines)| {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        format!("    {file}:{}  {} where {} may be\n", lines.join(", "), lines.len(), may(file))
    });
    let stale = allowed.iter().filter(|(file, times, _)| found.get(*file).map_or(0, Vec::len) < *times);
    let stale = stale.map(|(file, times, _)| format!("    {file}  is let off {times} times in gates.rs, and needs fewer\n"));
    list.chain(stale).collect()
}

/// Functions that run a guest: their own name or that of their first parameter says so.
fn runners(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|function| {
        let (name, parameters) = function.split_once('(')?;
        let first = parameters.trim_start();
        let takes_guest = name.contains("guest") || first.starts_with("guest:") || first.starts_with("guest_name:");
        (takes_guest && name.chars().all(is_word)).then_some(name)
    })
}

fn untested<'a>(guests: &'a [String], runners: &[&str], tests: &str) -> Vec<&'a str> {
    let runs = |name: &str| tests.match_indices(&format!("\"{name}\"")).any(|(at, _)| is_run(&tests[..at], runners));
    guests.iter().map(String::as_str).filter(|name| !runs(name)).collect()
}

/// Whether a name that stands behind this text is given to a runner, or is of a list that `for guest in` goes through.
fn is_run(before: &str, runners: &[&str]) -> bool {
    let caller = before.trim_end().strip_suffix('(').unwrap_or_default();
    let looped = before.rsplit("for ").next().unwrap_or_default();
    runners.contains(&caller.rsplit(|letter| !is_word(letter)).next().unwrap_or_default())
        || ["guest in [", "(guest,"].iter().any(|start| looped.starts_with(start)) && !looped.contains('{')
}

fn sources(place: &Place, folder: &str) -> Result<String, Failure> {
    files_below(&place.root.join(folder), ".rs").iter().map(|file| text_of(file)).collect()
}

/// Every rule number in a text with the line it stands in, from 1.
fn rules_in(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines().zip(1..).flat_map(|(line, number)| rules_in_line(line).map(move |rule| (rule, number)))
}

/// `[LOR]-\d+[a-z]?` as a word of its own.
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

fn text_of(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::io("read", file, &error))
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
        assert_eq!(rules("L-052..L-055 and XL-1, L-1x2, CR-7, L-, R-12"), ["L-052", "L-055", "R-12"]);
        assert_eq!(rules("é-3 O-3é L-9"), ["L-9"]);
    }

    #[test]
    fn rules_come_with_their_lines() {
        assert_eq!(rules_in("a\nL-1\n\nb O-2").collect::<Vec<_>>(), [("L-1", 2), ("O-2", 4)]);
    }

    #[test]
    fn no_test_of_the_repository_waits_for_time() {
        let place = Place::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        tests_wait_for_facts(&place).unwrap_or_else(|failure| panic!("{}", failure.text));
    }

    #[test]
    fn a_test_that_sleeps_or_measures_is_found() {
        let text = "fn a() { sleep(x); }\n#[cfg(test)]\nmod tests {\n  thread::sleep(x); // y\n  // sleep(x)\n  assert!(began.elapsed() < x);\n  fn oversleep() {}\n  oversleep();\n}\n";
        assert_eq!(timed(text, false).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(timed(text, true).collect::<Vec<_>>(), [1, 4, 6]);
        let found = [("a.rs".to_owned(), vec![4, 6]), ("b.rs".to_owned(), vec![1])].into();
        assert_eq!(timed_problems(&found, &[("a.rs", 2, "why"), ("b.rs", 1, "why")]), "");
        assert_eq!(timed_problems(&found, &[("a.rs", 1, "why"), ("b.rs", 1, "why")]), "    a.rs:4, 6  2 where 1 may be\n");
        let stale = timed_problems(&found, &[("a.rs", 2, "why"), ("b.rs", 1, "why"), ("c.rs", 1, "why")]);
        assert_eq!(stale, "    c.rs  is let off 1 times in gates.rs, and needs fewer\n");
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
