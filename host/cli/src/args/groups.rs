//! The list of commands in `conclave --help`, in groups. clap has one flat list; this one is built
//! from the commands' own texts.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

/// Headings, and the commands under each, in the order in which a new user needs them.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Run",
        &[
            "run", "chat", "serve", "server", "batch", "mcp", "worker", "wait", "resume", "stop",
            "pause", "tell", "approve", "refuse", "answer",
        ],
    ),
    (
        "Inspect",
        &["runs", "show", "diff", "tasks", "approvals", "audit", "why", "workers", "trajectory"],
    ),
    ("Configure", &["init", "check", "add", "grant", "revoke", "trust", "can"]),
    ("Author", &["plugin", "schema"]),
    ("Maintain", &["doctor", "store", "completions", "man"]),
];
/// Columns of the list, for the narrowest supported terminal.
const WIDTH: usize = 80;
/// The column of a command's description.
const INDENT: usize = 15;

impl Cli {
    /// Parses the command line. Ends the program if it asks for help or is invalid.
    pub(crate) fn read() -> Self {
        let matches = Self::grouped().try_get_matches().unwrap_or_else(|error| {
            let words = std::env::args_os().skip(1);
            with_group(error, words.filter_map(|word| word.into_string().ok())).exit()
        });
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The command line with its commands listed in groups.
    fn grouped() -> Command {
        let command = Self::command().max_term_width(WIDTH);
        let list = list(&command);
        command.help_template(StyledStr::from(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\nOptions:\n{{options}}{{after-help}}"
        )))
    }
}

/// Returns the error of an unknown command with the groups that have a command of this name, such
/// as `plugin` for `inspect`.
fn with_group(mut error: clap::Error, mut arguments: impl Iterator<Item = String>) -> clap::Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let command = Cli::command();
    // In `plugin list`, the group was named, and it has no such command.
    let is_command =
        |argument: &String| argument == name || command.find_subcommand(argument).is_some();
    if arguments.find(is_command).as_ref() != Some(name) {
        return error;
    }
    let groups = command.get_subcommands().filter(|group| group.find_subcommand(name).is_some());
    let tips: Vec<StyledStr> = groups
        .map(|group| format!("`conclave {} {name}` exists", group.get_name()).into())
        .collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

fn list(command: &Command) -> String {
    let style = command.get_styles().get_header();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{style}{heading}:{style:#}");
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            line(&mut text, sub.get_name(), first_sentence(&about));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "`conclave help COMMAND` describes a command in full.");
    text
}

/// The text before the first full stop, colon or semicolon.
fn first_sentence(about: &str) -> &str {
    let end = [". ", ": ", "; "].iter().filter_map(|mark| about.find(mark)).min();
    &about[..end.unwrap_or(about.len())]
}

/// Appends a command and its description, broken at words.
fn line(text: &mut String, name: &str, about: &str) {
    let _ = write!(text, "  {name:<width$}", width = INDENT - 2);
    let mut column = INDENT;
    for (index, word) in about.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:INDENT$}", "");
            column = INDENT;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_is_in_exactly_one_group() {
        let command = Cli::command();
        let known: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        let mut listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        listed.sort_unstable();
        assert_eq!(listed, known.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_command_of_a_group_is_found_without_its_group() {
        let error = |line: &[&str]| {
            let words = || line.iter().map(|word| (*word).to_owned());
            let all = std::iter::once("conclave".to_owned()).chain(words());
            let error = Cli::grouped().try_get_matches_from(all).expect_err("it is unknown");
            with_group(error, words()).to_string()
        };
        let inspect = error(&["--quiet", "inspect", "x.wasm"]);
        assert!(inspect.contains("`conclave plugin inspect` exists"), "{inspect}");
        assert!(!error(&["plugin", "list"]).contains("exists"));
        assert!(!error(&["nonsense"]).contains("exists"));
    }

    #[test]
    fn the_list_fits_a_narrow_terminal_and_is_what_help_prints() {
        let list = anstream::adapter::strip_str(&list(&Cli::command())).to_string();
        let help = Cli::grouped().render_help().to_string();
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > WIDTH).collect();
        assert_eq!(wide, Vec::<&str>::new());
        assert!(
            help.contains(&list) && help.contains("Exit codes:") && help.contains("--json"),
            "{help}"
        );
        assert!(
            list.contains("\nInspect:\n  runs         List stored runs, newest first\n"),
            "{list}"
        );
    }
}
