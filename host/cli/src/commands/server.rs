//! `conclave server token add|list|revoke`: the tokens of people, in a file of the state folder that
//! running servers read again.

use std::io;
use std::path::Path;

use conclave_core::config::check_name;
use conclave_runtime::clock::{Clock as _, SystemClock};
use conclave_server::{NewToken, PersonToken, TokenFile};
use serde_json::json;

use crate::args::{OutputArgs, ServerCommand, TokenAdd, TokenCommand, TokenRevoke};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::state_folder::state_folder;
use crate::ui::show::{FAINT, NAME, paint, printable, show_path};
use crate::ui::{stderr, stdout};

pub(crate) fn server(command: &ServerCommand, output: OutputArgs) -> Result<u8, CliError> {
    let ServerCommand::Token(command) = command;
    match command {
        TokenCommand::Add(args) => add(args, output),
        TokenCommand::List => list(output),
        TokenCommand::Revoke(args) => revoke(args, output),
    }
}

/// The file with the tokens of this user.
///
/// # Errors
/// If no state folder is known.
fn token_file() -> Result<TokenFile, CliError> {
    state_folder().map(|folder| TokenFile::in_folder(&folder)).ok_or_else(|| {
        CliError::internal("tokens need a state folder, and none is known")
            .hint("set HOME or CONCLAVE_STATE")
    })
}

fn unusable(path: &Path, error: &io::Error) -> CliError {
    let what = format!("{} cannot be used: {error}", show_path(path));
    CliError::internal(what).hint("remove the file to begin anew; all its tokens are revoked then")
}

fn add(args: &TokenAdd, output: OutputArgs) -> Result<u8, CliError> {
    let TokenAdd { name, role, config, for_config } = args;
    check_name(name).map_err(|error| {
        CliError::usage(format!("{name} cannot be the name of a person: it {error}"))
    })?;
    let NewToken { token, hash } = NewToken::of(name)?;
    let mut made = json!({ "type": "token", "name": name, "role": role, "token": token });
    if *for_config {
        made["hash"] = hash.as_str().into();
        if output.json {
            stdout::json(made)?;
        } else {
            let lines = format!("[server.users.{name}]\nrole = \"{role}\"\ntoken = \"{hash}\"");
            stdout::unbroken(format_args!("{token}\n\n{lines}"))?;
        }
        return Ok(exit::OK);
    }
    let config = config.as_deref().map(std::path::absolute).transpose();
    let config =
        config.map_err(|error| CliError::usage(format!("no path of a config: {error}")))?;
    let file = token_file()?;
    let created = SystemClock.now();
    let stored = PersonToken { name: name.clone(), role: *role, config, hash, created };
    let edited = file.edit(|tokens| {
        let is_first = tokens.is_empty();
        tokens.push(stored);
        is_first
    });
    let is_first = edited.map_err(|error| unusable(file.path(), &error))?;
    if output.json {
        stdout::json(made)?;
        return Ok(exit::OK);
    }
    stdout::unbroken(token)?;
    if !output.quiet {
        stderr::note(printable(&format!("{name} logs in with this token; it is shown only now")));
        if is_first {
            stderr::note(
                "servers that run ask for a token from now on, and their printed addresses give no access",
            );
        }
    }
    Ok(exit::OK)
}

fn list(output: OutputArgs) -> Result<u8, CliError> {
    let file = token_file()?;
    let tokens = file.read().map_err(|error| unusable(file.path(), &error))?;
    for PersonToken { name, role, config, created, .. } in &tokens {
        if output.json {
            stdout::json(json!({
                "type": "token", "name": name, "role": role, "config": config, "created": created,
            }))?;
            continue;
        }
        let config = config.as_deref().map_or_else(|| "all configs".to_owned(), show_path);
        let line = format!("{} {role} {}", paint(NAME, printable(name)), paint(FAINT, config));
        stdout::unbroken(line)?;
    }
    if tokens.is_empty() && !output.result_only() {
        stderr::note("nobody has a token; give one: conclave server token add NAME --role ROLE");
    }
    Ok(exit::OK)
}

fn revoke(args: &TokenRevoke, output: OutputArgs) -> Result<u8, CliError> {
    let file = token_file()?;
    let edited = file.edit(|tokens| {
        let names: Vec<String> = tokens.iter().map(|token| token.name.clone()).collect();
        tokens.retain(|token| token.name != args.name);
        (names.len() - tokens.len(), names)
    });
    let (count, names) = edited.map_err(|error| unusable(file.path(), &error))?;
    if count == 0 {
        let what = format!("{} has no token", args.name);
        let known = names.iter().map(String::as_str);
        return Err(CliError::usage(what).known(&args.name, "those with a token are", known));
    }
    stdout::report(
        output,
        json!({ "type": "token_revoked", "name": args.name, "count": count }),
        printable(&format!("{} has no token any more", args.name)),
    )?;
    Ok(exit::OK)
}
