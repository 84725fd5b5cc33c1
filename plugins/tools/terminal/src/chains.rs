//! `a && b &`. The library puts only `b` into the background, bash all of it. Here such a chain gets
//! braces before the library sees it.

use bashkit::parser::{Command, CommandList, CompoundCommand, ListOperator, Parser};

use crate::script::{commands_of, printed};

/// The script with braces around chains in the background. Everything else stays as it is written,
/// and a script that cannot be parsed too: the shell reports it.
pub(crate) fn with_braces(script: &str) -> String {
    if !script.contains('&') {
        return script.to_owned();
    }
    let Ok(parsed) = Parser::new(script).parse() else { return script.to_owned() };
    let starts: Vec<usize> = parsed.command_starts.iter().map(|(offset, _)| *offset).collect();
    let (Some(first), true) = (starts.first(), starts.len() == parsed.commands.len()) else {
        return script.to_owned();
    };
    let mut out = script[..*first].to_owned();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(script.len());
        let Some(text) = script.get(*start..end) else { return script.to_owned() };
        let mut changed = std::slice::from_ref(&parsed.commands[index]).to_vec();
        let rewritten = if put_braces(&mut changed) { reprinted(text) } else { None };
        out.push_str(rewritten.as_deref().unwrap_or(text));
    }
    out
}

fn reprinted(text: &str) -> Option<String> {
    let mut commands = commands_of(text)?;
    put_braces(&mut commands);
    Some(printed(&commands) + "\n")
}

/// Changes the chains of these commands and below. Returns whether there were any.
fn put_braces(commands: &mut [Command]) -> bool {
    let mut changed = false;
    for command in commands {
        changed |= match command {
            Command::Simple(_) => false,
            Command::Pipeline(pipeline) => put_braces(&mut pipeline.commands),
            Command::List(list) => put_braces_in(list),
            Command::Compound(compound, _) => put_braces_below(compound),
            Command::Function(function) => put_braces(std::slice::from_mut(&mut function.body)),
        };
    }
    changed
}

fn put_braces_below(compound: &mut CompoundCommand) -> bool {
    match compound {
        CompoundCommand::If(found) => {
            let mut changed = put_braces(&mut found.condition) | put_braces(&mut found.then_branch);
            for (condition, branch) in &mut found.elif_branches {
                changed |= put_braces(condition) | put_braces(branch);
            }
            changed | found.else_branch.as_mut().is_some_and(|branch| put_braces(branch))
        }
        CompoundCommand::For(found) => put_braces(&mut found.body),
        CompoundCommand::ArithmeticFor(found) => put_braces(&mut found.body),
        CompoundCommand::While(found) => {
            put_braces(&mut found.condition) | put_braces(&mut found.body)
        }
        CompoundCommand::Until(found) => {
            put_braces(&mut found.condition) | put_braces(&mut found.body)
        }
        CompoundCommand::Case(found) => {
            found.cases.iter_mut().fold(false, |done, case| put_braces(&mut case.commands) | done)
        }
        CompoundCommand::Select(found) => put_braces(&mut found.body),
        CompoundCommand::Subshell(commands) | CompoundCommand::BraceGroup(commands) => {
            put_braces(commands)
        }
        CompoundCommand::Time(found) => {
            found.command.as_mut().is_some_and(|command| put_braces(std::slice::from_mut(command)))
        }
        CompoundCommand::Coproc(found) => put_braces(std::slice::from_mut(&mut found.body)),
        CompoundCommand::Arithmetic(_) | CompoundCommand::Conditional(_) => false,
    }
}

fn put_braces_in(list: &mut CommandList) -> bool {
    let mut changed = put_braces(std::slice::from_mut(&mut list.first));
    for (_, command) in &mut list.rest {
        changed |= put_braces(std::slice::from_mut(command));
    }
    // Each chain: the operator in front of it, its first command, and the links after it.
    let mut chains = vec![(None, (*list.first).clone(), Vec::new())];
    for (operator, command) in std::mem::take(&mut list.rest) {
        match operator {
            ListOperator::And | ListOperator::Or => {
                if let Some((_, _, links)) = chains.last_mut() {
                    links.push((operator, command));
                }
            }
            ListOperator::Semicolon | ListOperator::Background => {
                chains.push((Some(operator), command, Vec::new()));
            }
        }
    }
    let is_background: Vec<bool> = chains
        .iter()
        .skip(1)
        .map(|(operator, ..)| *operator == Some(ListOperator::Background))
        .chain([false])
        .collect();
    let mut rest = Vec::new();
    for ((operator, first, links), is_background) in chains.into_iter().zip(is_background) {
        let (first, links) = if is_background && !links.is_empty() {
            changed = true;
            let chain = CommandList { first: Box::new(first), rest: links, span: list.span };
            let group = CompoundCommand::BraceGroup(vec![Command::List(chain)]);
            (Command::Compound(group, Vec::new()), Vec::new())
        } else {
            (first, links)
        };
        match operator {
            None => *list.first = first,
            Some(operator) => rest.push((operator, first)),
        }
        rest.extend(links);
    }
    list.rest = rest;
    changed
}

#[cfg(test)]
mod tests {
    use super::with_braces;

    #[test]
    fn only_chains_in_the_background_change() {
        let scripts =
            ["a && b", "a & b", "a && b; c & d\n", "echo 'x && y &'", "if ((", "[[ a && b ]] &"];
        for script in scripts {
            assert_eq!(with_braces(script), script);
        }
        // A line ends each command, so a space in place of it is enough here.
        let flat =
            |script: &str| with_braces(script).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(flat("cd x && run & wait"), "{ { cd x && run } & wait }");
        assert_eq!(flat("if t; then a || b & fi"), "{ if t; then { a || b } & fi }");
        assert_eq!(with_braces("x\na && b &\ny").lines().last(), Some("y"));
    }
}
