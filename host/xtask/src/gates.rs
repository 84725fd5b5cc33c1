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
    fn a_guest_is_tested_when_a_test_runs_it() {
        let guests = ["echo", "spin", "kv", "panic", "env"].map(String::from);
        let tests = "fn exceeds(\n  guest_name: &str) {}\nfn guest(name: &str) {}\nlet a = guest(\n    \"echo\",\n); return exceeds(\"spin\", 1); for guest in [\"a\", \"kv\"] { text.contains(\"panic\"); } // env";
        let runners: Vec<&str> = runners(tests).collect();
        assert_eq!(runners, ["exceeds", "guest"], "by parameter, by name");
        assert_eq!(untested(&guests, &runners, tests), ["panic", "env"]);
    }
}
