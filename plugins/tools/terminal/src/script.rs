//! Scripts as commands, and commands as text.

use bashkit::parser::{Command, CompoundCommand, ParseOptions, Parser, function_string};

/// Parser operations for one script, and levels of it.
const PARSED: usize = 1_000_000;
const DEPTH: usize = 100;

/// The commands of a script that can be printed again. `None` if it cannot be parsed.
pub(crate) fn commands_of(text: &str) -> Option<Vec<Command>> {
    // Only inside a function does the parser keep the words as they were written.
    let wrapped = format!("f () {{\n{text}\n}}");
    let parser = Parser::with_limits(&wrapped, DEPTH, PARSED)
        .with_options(ParseOptions { extglob: true, ..ParseOptions::default() });
    let script = parser.parse().ok()?;
    let [Command::Function(function)] = &script.commands[..] else { return None };
    match &*function.body {
        Command::Compound(CompoundCommand::BraceGroup(commands), redirects)
            if redirects.is_empty() =>
        {
            Some(commands.clone())
        }
        _ => None,
    }
}

/// Returns commands as the text of a group.
pub(crate) fn printed(commands: &[Command]) -> String {
    let group = Command::Compound(CompoundCommand::BraceGroup(commands.to_vec()), Vec::new());
    let text = function_string("f", &group);
    text.split_once('\n').map(|(_, group)| group.trim_end().to_owned()).unwrap_or(text)
}
