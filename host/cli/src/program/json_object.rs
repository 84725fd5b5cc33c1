//! JSON objects on the command line.

use serde_json::Value;

use crate::program::error::CliError;

/// Parses a JSON object. Returns a description of the text if it is something else.
pub(crate) fn json_object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(error) => Err(format!("not valid JSON: {error}")),
    }
}

/// Parses the value of `option`, such as `--arguments`.
pub(crate) fn object_of_option(option: &str, text: &str) -> Result<Value, CliError> {
    json_object(text).map_err(|why| CliError::usage(format!("{option} is {why}")))
}
