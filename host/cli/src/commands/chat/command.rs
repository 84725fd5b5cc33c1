//! The meaning of a typed line: a message, or a command that begins with a slash. Two slashes begin
//! a message that starts with one, and a path is a message too.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A line that the user typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TypedLine {
    /// A message for the agent.
    Message(String),
    Command(ChatCommand),
    /// An empty line.
    Empty,
    /// An invalid command, with the reason.
    Wrong(String),
}

/// A command to the conversation itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChatCommand {
    Help,
    Quit,
    Status,
    Stop,
    /// Attaches a file to the next message.
    Attach(PathBuf),
    /// Saves the conversation as Markdown.
    Save(PathBuf),
    /// Lists the background tasks.
    Tasks,
    /// Cancels a background task.
    Cancel(String),
    /// Sends a text to a background task.
    Tell(String, String),
}

/// The text of `/help`.
pub(crate) const HELP: &str =
    "  /attach FILE   attaches an image or a text file to the next message
  /save FILE     saves the conversation as Markdown
  /status        shows permissions, usage and background tasks
  /tasks         lists background tasks
  /cancel TASK   stops a background task, such as task-1
  /tell TASK …   sends a message to a background task
  /stop          stops the agent; for programs (a person presses Ctrl-C)
  /quit          ends the conversation, as Ctrl-D, quit, exit and bye do
  //…            sends a message that begins with a slash; paths need no //
  Alt-Enter or a backslash at the end starts a new line
  A line that begins with a space is not saved in the history";

/// Words that end a conversation.
const GOODBYES: [&str; 3] = ["quit", "exit", "bye"];
/// Further words that end a task by its rules (L-086). A single letter is easily typed by accident,
/// so these end a conversation only if the task's rule `short_goodbyes_quit` holds.
const SHORT_GOODBYES: [&str; 3] = ["q", "x", "DONE"];

/// Parses a line. `short_goodbyes_quit` enables `SHORT_GOODBYES`.
pub(crate) fn parse(text: &str, short_goodbyes_quit: bool) -> TypedLine {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return TypedLine::Empty;
    }
    match SHORT_GOODBYES.contains(&trimmed) {
        true if short_goodbyes_quit => return TypedLine::Command(ChatCommand::Quit),
        true => {
            return TypedLine::Wrong(format!(
                "{trimmed} on its own would end the task, so it was not sent; /quit ends the conversation"
            ));
        }
        false if GOODBYES.contains(&trimmed) => return TypedLine::Command(ChatCommand::Quit),
        false => {}
    }
    if let Some(message) = trimmed.strip_prefix("//") {
        return TypedLine::Message(format!("/{message}"));
    }
    let Some(command) = trimmed.strip_prefix('/') else {
        return TypedLine::Message(text.trim_end().to_owned());
    };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    // A path, or a lone slash before other words: no command has such a name.
    if name.contains('/') || (name.is_empty() && !rest.is_empty()) {
        return TypedLine::Message(trimmed.to_owned());
    }
    let file = |command: fn(PathBuf) -> ChatCommand| match rest {
        "" => TypedLine::Wrong(format!("/{name} needs a file: /{name} FILE")),
        path => TypedLine::Command(command(file_named(path, std::env::var_os("HOME").as_deref()))),
    };
    let without_argument = |command: ChatCommand| match rest {
        "" => TypedLine::Command(command),
        _ => {
            TypedLine::Wrong(format!("/{name} takes no argument; //{name} … sends it as a message"))
        }
    };
    match name {
        "help" | "?" => without_argument(ChatCommand::Help),
        "quit" | "exit" => without_argument(ChatCommand::Quit),
        "status" => without_argument(ChatCommand::Status),
        "stop" => without_argument(ChatCommand::Stop),
        "tasks" => without_argument(ChatCommand::Tasks),
        "cancel" => match rest {
            "" => TypedLine::Wrong(
                "/cancel needs a task: /cancel task-1; /tasks lists them".to_owned(),
            ),
            task => TypedLine::Command(ChatCommand::Cancel(task_named(task))),
        },
        "tell" => match rest.split_once(char::is_whitespace) {
            Some((task, text)) => {
                TypedLine::Command(ChatCommand::Tell(task_named(task), text.trim().to_owned()))
            }
            None => TypedLine::Wrong(
                "/tell needs a task and a text: /tell task-1 look at the appendix too".to_owned(),
            ),
        },
        "attach" => file(ChatCommand::Attach),
        "save" => file(ChatCommand::Save),
        _ => TypedLine::Wrong(format!(
            "unknown command /{name}; /help lists the commands, //{name} sends it as a message"
        )),
    }
}

/// The id of a task that is given as `task-1` or by its number alone.
fn task_named(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("task-{text}")
    } else {
        text.to_owned()
    }
}

/// The path as a shell would expand it: `~/` is the home folder, and surrounding quotes are
/// removed.
fn file_named(text: &str, home: Option<&OsStr>) -> PathBuf {
    let unquoted = ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
        .filter(|path| !path.is_empty());
    let text = unquoted.unwrap_or(text);
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) if !home.is_empty() => Path::new(home).join(rest),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ChatCommand, TypedLine, file_named};

    fn parse(text: &str) -> TypedLine {
        super::parse(text, false)
    }

    #[test]
    fn whole_words_end_a_conversation_and_letters_do_not() {
        for word in ["quit", " exit", "bye "] {
            assert_eq!(parse(word), TypedLine::Command(ChatCommand::Quit), "{word:?}");
        }
        for word in ["q", "x", "DONE"] {
            assert!(
                matches!(parse(word), TypedLine::Wrong(why) if why.contains("/quit")),
                "{word:?}"
            );
            assert_eq!(super::parse(word, true), TypedLine::Command(ChatCommand::Quit), "{word:?}");
        }
        assert_eq!(parse("x is the letter"), TypedLine::Message("x is the letter".into()));
    }

    #[test]
    fn a_line_is_a_message_unless_it_begins_with_a_slash() {
        assert_eq!(parse("hello /quit \n"), TypedLine::Message("hello /quit".into()));
        assert_eq!(parse("  two\n  lines"), TypedLine::Message("  two\n  lines".into()));
        assert_eq!(parse(" \t"), TypedLine::Empty);
    }

    #[test]
    fn two_slashes_send_a_message_with_one() {
        assert_eq!(
            parse("//etc/hosts is a file"),
            TypedLine::Message("/etc/hosts is a file".into())
        );
        assert_eq!(parse("//"), TypedLine::Message("/".into()));
    }

    #[test]
    fn a_path_is_a_message() {
        for text in ["/invoices/good.csv 31", "/etc/hosts", "/help/me", "/ 31"] {
            assert_eq!(parse(text), TypedLine::Message(text.to_owned()));
        }
        assert!(
            matches!(parse("/invoices 31"), TypedLine::Wrong(why) if why.contains("//invoices"))
        );
    }

    #[test]
    fn commands_take_a_file_or_nothing() {
        assert_eq!(
            parse("/save  my notes.md "),
            TypedLine::Command(ChatCommand::Save("my notes.md".into()))
        );
        assert_eq!(parse("/quit"), TypedLine::Command(ChatCommand::Quit));
        assert!(matches!(parse("/save"), TypedLine::Wrong(why) if why.contains("/save FILE")));
        assert!(matches!(parse("/quit now"), TypedLine::Wrong(_)));
    }

    #[test]
    fn background_tasks_are_named_by_id_or_number() {
        assert_eq!(parse("/tasks"), TypedLine::Command(ChatCommand::Tasks));
        assert_eq!(parse("/cancel 2"), TypedLine::Command(ChatCommand::Cancel("task-2".into())));
        assert_eq!(
            parse("/tell task-1  look again "),
            TypedLine::Command(ChatCommand::Tell("task-1".into(), "look again".into()))
        );
        assert!(
            matches!(parse("/tell task-1"), TypedLine::Wrong(_))
                && matches!(parse("/cancel"), TypedLine::Wrong(_))
        );
    }

    #[test]
    fn a_file_is_named_as_in_a_shell() {
        let path_of = |text: &str| file_named(text, Some("/home/you".as_ref()));
        assert_eq!(
            ["~/a b.md", "\"a b.md\"", "'~/a'"].map(path_of),
            ["/home/you/a b.md", "a b.md", "/home/you/a"].map(Path::new)
        );
        assert_eq!(
            ["~you/a", "~", "it's", "\"", "''"].map(path_of),
            ["~you/a", "~", "it's", "\"", "''"].map(Path::new)
        );
        assert_eq!(file_named("~/a", None), Path::new("~/a"));
    }

    #[test]
    fn an_unknown_command_is_not_sent_to_the_agent() {
        assert!(
            matches!(parse("/savee x"), TypedLine::Wrong(why) if why.contains("/savee") && why.contains("/help"))
        );
    }
}
