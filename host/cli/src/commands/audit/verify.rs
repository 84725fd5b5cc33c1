//! `conclave audit verify` and `conclave audit head`: whether the stores are unchanged, and a hash
//! to note elsewhere.

use conclave_runtime::store::{StoreCheck, StoreReader};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::store_check;
use crate::state::stores::OpenStores;
use crate::ui::show::table::note;
use crate::ui::show::{FAINT, one_line, paint};
use crate::ui::stdout;

/// Checks all stores. Exits with 1 if one is damaged. A noted hash must be part of the chain of
/// some store.
pub(super) fn verify(
    stores: &OpenStores,
    expected_head: Option<&str>,
    output: OutputArgs,
) -> Result<u8, CliError> {
    if let Some(expected_head) = expected_head
        && !is_hash(expected_head)
    {
        return Err(CliError::usage(format!("{expected_head:?} is not a hash"))
            .hint("write what `conclave audit head` printed: 64 characters of 0-9 and a-f"));
    }
    let (readers, unreadable) = stores.readers_and_unreadable()?;
    let expected_head = expected_head.map(str::to_ascii_lowercase);
    let checked = check_all(&readers, expected_head.as_deref())?;
    let broken = checked.iter().any(|(_, checked)| !checked.problems.is_empty());
    for (reader, checked) in &checked {
        store_check::report("verified", reader.address(), checked, output)?;
    }
    let broken = store_check::report_unreadable("verified", &unreadable, output)? || broken;
    if checked.is_empty() && unreadable.is_empty() && !output.result_only() {
        stdout::styled(note("no runs are stored, so there is nothing to verify"))?;
    }
    // A noted hash cannot be found if its store is gone.
    let missing = checked.is_empty() && expected_head.is_some();
    Ok(if broken || missing { exit::FAILED } else { exit::OK })
}

/// Checks each store. The hash belongs to one of them; the others are checked against their own
/// chains only.
fn check_all<'a>(
    readers: &'a [StoreReader],
    expected_head: Option<&str>,
) -> Result<Vec<(&'a StoreReader, StoreCheck)>, CliError> {
    let plain = |reader: &'a StoreReader| Ok((reader, reader.verify(None)?));
    let mut checked: Vec<(&StoreReader, StoreCheck)> =
        readers.iter().map(plain).collect::<Result<_, CliError>>()?;
    let Some(expected_head) = expected_head else { return Ok(checked) };
    let mut against = Vec::new();
    for reader in readers {
        against.push(reader.verify(Some(expected_head))?);
    }
    let is_in = |index: usize| against[index].problems.len() == checked[index].1.problems.len();
    if (0..readers.len()).any(is_in) {
        return Ok(checked);
    }
    for ((_, checked), against) in checked.iter_mut().zip(against) {
        *checked = against;
    }
    Ok(checked)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Prints the newest hash of each store.
pub(super) fn head(stores: &OpenStores, output: OutputArgs) -> Result<u8, CliError> {
    let (readers, unreadable) = stores.readers_and_unreadable()?;
    for reader in readers {
        let checked = reader.verify(None)?;
        let Some(head) = &checked.head else { continue };
        if output.json {
            stdout::json(
                json!({ "type": "head", "store": reader.address(), "head": head, "records": checked.records }),
            )?;
        } else {
            let store = reader.address().to_string();
            stdout::styled(format!("{head}  {}", paint(FAINT, one_line(&store, 200))))?;
        }
    }
    // A missing head must not look like that of an empty store.
    Ok(if store_check::report_unreadable("head", &unreadable, output)? {
        exit::FAILED
    } else {
        exit::OK
    })
}

#[cfg(test)]
mod tests {
    use super::is_hash;

    #[test]
    fn a_hash_is_sixty_four_digits() {
        assert!(is_hash(&"0aF1".repeat(16)));
        for wrong in [String::new(), "a".repeat(63), "g".repeat(64), "a".repeat(65)] {
            assert!(!is_hash(&wrong), "{wrong}");
        }
    }
}
