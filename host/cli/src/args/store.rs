//! The value of `--store`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use conclave_runtime::store::StoreAddress;

/// Parses the address of a store. An error does not show the value, which may have a password.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreParser;

impl TypedValueParser for StoreParser {
    type Value = StoreAddress;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<StoreAddress, Error> {
        // A folder's name need not be text.
        let Some(text) = value.to_str() else { return Ok(PathBuf::from(value).into()) };
        text.parse().map_err(|error| {
            let option = argument.map(ToString::to_string).unwrap_or_default();
            let what = format!("`{option}`: {error}\n");
            Error::raw(ErrorKind::ValueValidation, what).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::args::Cli;

    #[cfg(feature = "postgres")]
    #[test]
    fn an_address_that_is_not_valid_is_refused_without_its_password() {
        let arguments = ["conclave", "runs", "--store", "postgres://ada:hunter2@db:x/runs"];
        let error = Cli::command().try_get_matches_from(arguments).unwrap_err().to_string();
        assert!(error.contains("--store <STORE>") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn every_option_with_a_store_takes_a_folder_or_a_database() {
        fn walk(command: &clap::Command, count: &mut usize) {
            for argument in command.get_arguments().filter(|one| one.get_long() == Some("store")) {
                *count += 1;
                assert_eq!(argument.get_value_names(), Some(&["STORE".into()][..]), "{command}");
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("postgres://"), "{command}: {help}");
            }
            command.get_subcommands().for_each(|sub| walk(sub, count));
        }
        let mut count = 0;
        walk(&Cli::command(), &mut count);
        assert!(count > 20, "{count}");
    }
}
