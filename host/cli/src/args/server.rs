//! The arguments of `conclave server`, which is about the people of a server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use conclave_core::policy::roles::Role;

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Give people tokens for `conclave serve`, each with a role, and revoke them
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it once; only its hash is stored, in your state folder
    Add(TokenAdd),
    /// List the tokens by name and role
    List,
    /// Revoke the tokens of a person; running servers end that person's sessions within a second
    Revoke(TokenRevoke),
}

#[derive(Debug, Args)]
pub(crate) struct TokenAdd {
    /// The name of the person
    pub(crate) name: String,
    /// What the person may do: viewer, user, operator, approver or admin
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub(crate) role: Role,
    /// The only config whose server takes the token [default: all]
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Store nothing, and print lines with the hash for `[server.users]` of a config
    #[arg(long, conflicts_with = "config")]
    pub(crate) for_config: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevoke {
    /// The name of the person
    pub(crate) name: String,
}

fn role(word: &str) -> Result<Role, String> {
    Role::of_word(word).ok_or_else(|| format!("the roles are {}", Role::WORDS.join(", ")))
}
