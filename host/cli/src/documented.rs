//! Checks the documentation against the command line. Every `conclave …` on a page must be a valid
//! command, and the pages that list the commands must list all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use crate::args::Cli;

/// The beginning and the end of the row of `docs/reference/status.md` that lists the commands.
const ROW: (&str, &str) = ("| **Command line** ", "; `--watch` for authors");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<(String, String)> {
    let mut folders = vec![root().join("docs")];
    let mut pages =
        vec![root().join("README.md"), root().join("CONTRIBUTING.md"), root().join("SECURITY.md")];
    while let Some(folder) = folders.pop() {
        for path in
            fs::read_dir(folder).expect("it is a folder").flatten().map(|entry| entry.path())
        {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages
        .iter()
        .map(|page| (page.display().to_string(), fs::read_to_string(page).expect("a page is text")))
        .collect()
}

/// The names of all commands without subcommands: `run`, `plugin inspect`, `audit verify`.
fn commands() -> Vec<String> {
    fn walk(command: &Command, before: &str, found: &mut Vec<String>) {
        for sub in
            command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        {
            let words = format!("{before}{}", sub.get_name());
            if !sub.is_subcommand_required_set() {
                found.push(words.clone());
            }
            walk(sub, &format!("{words} "), found);
        }
    }
    let mut found = Vec::new();
    walk(&Cli::command(), "", &mut found);
    found
}

/// `UPDATE_DOCS=1 cargo test -p conclave-host documented` writes the row.
#[test]
fn the_status_page_lists_the_commands_of_this_program() {
    let path = root().join("docs/reference/status.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let list =
        commands().iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ");
    let (before, rest) = page.split_once(ROW.0).expect("the page has the row");
    let (_, after) = rest.split_once(ROW.1).expect("the row has an end");
    let made = format!("{before}{}{list}{}{after}", ROW.0, ROW.1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &made).expect("the page can be written");
        return;
    }
    assert_eq!(page, made, "run `UPDATE_DOCS=1 cargo test -p conclave-host documented`");
}

/// The first block of `docs/reference/cli.md` has a line for each command. `approve ID, conclave
/// refuse ID` and `gc | backup | check` stand for several.
#[test]
fn the_page_of_the_command_line_lists_the_commands_of_this_program() {
    let page = fs::read_to_string(root().join("docs/reference/cli.md")).expect("the page is there");
    let block = page.split("```").nth(1).expect("the page has a block");
    let known: BTreeSet<String> = commands().into_iter().collect();
    let mut listed = BTreeSet::new();
    for part in block
        .lines()
        .flat_map(|line| line.split("conclave ").skip(1).map(str::to_owned).collect::<Vec<_>>())
    {
        let example = part.split("  ").next().unwrap_or_default();
        let words: Vec<&str> =
            example.split([' ', '|', '[', ']', ',']).filter(|word| !word.is_empty()).collect();
        let is_command = |words: &[&str]| known.contains(&words.join(" "));
        listed.extend(
            words.first().filter(|word| is_command(&[word])).map(|word| (*word).to_owned()),
        );
        listed.extend(
            words
                .iter()
                .skip(1)
                .flat_map(|word| {
                    [format!("{} {word}", words[0]), format!("{} {} {word}", words[0], words[1])]
                })
                .filter(|command| known.contains(command)),
        );
    }
    // `trajectory export` and `replay` stand in words behind `show`.
    listed.extend(
        ["export", "replay"]
            .iter()
            .filter(|word| block.contains(**word))
            .map(|word| format!("trajectory {word}")),
    );
    assert_eq!(listed, known);
}

/// Every option and command on a page, in its text or in a block, exists.
#[test]
fn pages_show_commands_that_exist() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for command in spans(&text) {
            count += 1;
            wrong.extend(
                unknown(&command).map(|what| format!("{page}: `conclave {command}`: {what}")),
            );
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(count > 120, "{count}");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    for wrong in ["frobnicate", "run --flurb c.toml", "plugin enspect x.wasm", "audit --newest"] {
        assert!(unknown(wrong).is_some(), "{wrong}");
    }
    for right in [
        "run conclave.toml \"hi\" --trace",
        "audit verify --head HASH",
        "plugin upgrade [NAME…] [--file FILE] [--yes]",
    ] {
        assert_eq!(unknown(right), None, "{right}");
    }
}

/// The rest of each command behind `conclave `, in code spans and at the prompts of blocks.
fn spans(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.split("  #").next().unwrap_or_default();
            let parts =
                command.split([';', '|']).filter_map(|part| part.trim().strip_prefix("conclave "));
            found.extend(parts.map(|part| part.trim_end_matches('\\').trim().to_owned()));
        } else {
            let spans = line
                .split('`')
                .skip(1)
                .step_by(2)
                .filter_map(|span| span.strip_prefix("conclave "));
            found.extend(spans.map(|span| span.trim().to_owned()));
        }
    }
    // `conclave …`, `conclave COMMAND` and the like stand for any command.
    found.retain(|command| command.starts_with(|letter: char| letter.is_ascii_lowercase()));
    found
}

/// The first unknown word of a command: a subcommand or an option.
fn unknown(command: &str) -> Option<String> {
    let root = Cli::command();
    let globals: BTreeSet<String> = options(&root);
    let mut at = &root;
    let mut is_argument = false;
    for word in command.split_whitespace() {
        let word = word.trim_matches(|letter| "[](),".contains(letter));
        if word == "--" {
            return None;
        }
        if let Some(option) = word.strip_prefix("--") {
            let option = option.split(['=', '\'', '"']).next().unwrap_or_default();
            let is_known = options(at).contains(option)
                || globals.contains(option)
                || ["help", "version"].contains(&option);
            if !is_known {
                return Some(format!("there is no option --{option}"));
            }
            is_argument = true;
            continue;
        }
        if is_argument || word == "|" || word == "…" {
            continue;
        }
        match at.find_subcommand(word) {
            Some(sub) => at = sub,
            None if at.get_positionals().next().is_some() => is_argument = true,
            None => return Some(format!("there is no command {word}")),
        }
    }
    None
}

fn options(command: &Command) -> BTreeSet<String> {
    command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
}
