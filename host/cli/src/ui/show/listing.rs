//! A list as every command prints it: rows for people with notes below, or a line of JSON for each
//! item.

use serde_json::Value;

use super::table::note;
use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::ui::stdout;

/// The two forms of a list. Only the one that is printed is made.
pub(crate) struct Listing<R, J> {
    /// The rows, already as wide as they may be: those of [`table::rows`](super::table::rows), or
    /// several for each item.
    pub(crate) rows: R,
    /// The items, for `--json`.
    pub(crate) json: J,
    /// The lines for a list without rows.
    pub(crate) empty: String,
    /// The lines below the rows.
    pub(crate) notes: Vec<String>,
}

impl<R, J> Listing<R, J>
where
    R: IntoIterator<Item = String>,
    J: IntoIterator<Item = Value>,
{
    /// Prints the list; `--quiet` leaves out the notes and the line for an empty list.
    ///
    /// # Errors
    /// Like [`stdout::write`].
    pub(crate) fn print(self, output: OutputArgs) -> Result<u8, CliError> {
        if output.json {
            for item in self.json {
                stdout::json(item)?;
                if stdout::has_gone() {
                    break;
                }
            }
            return Ok(exit::OK);
        }
        let mut is_empty = true;
        for row in self.rows {
            stdout::unbroken(row)?;
            is_empty = false;
            if stdout::has_gone() {
                return Ok(exit::OK);
            }
        }
        if !output.quiet {
            let notes = if is_empty { vec![self.empty] } else { self.notes };
            let lines = notes.iter().flat_map(|text| text.lines());
            lines.map(note).try_for_each(stdout::styled)?;
        }
        Ok(exit::OK)
    }
}
