//! `conclave schema`: the JSON Schema of conclave.toml, for editors.

use conclave_core::config::schema::json_schema;

use crate::program::error::CliError;
use crate::program::exit;
use crate::ui::stdout;

pub(crate) fn schema() -> Result<u8, CliError> {
    stdout::json(format!("{:#}", json_schema()))?;
    Ok(exit::OK)
}
