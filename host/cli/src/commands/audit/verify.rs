//! `conclave audit verify` and `conclave audit head`: whether the stores are unchanged, and the
//! hashes to note elsewhere.

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

/// Checks all stores. Exits with 1 if one is damaged. Each noted hash must be part of a chain of some
/// store.
pub(super) fn verify(
    stores: &OpenStores,
    noted_heads: &[String],
    output: OutputArgs,
) -> Result<u8, CliError> {
    if let Some(head) = noted_heads.iter().find(|head| !is_hash(head)) {
        return Err(CliError::usage(format!("{head:?} is not a hash"))
            .hint("write what `conclave audit head` printed: 64 characters of 0-9 and a-f"));
    }
    let (readers, unreadable) = stores.readers_and_unreadable()?;
    let checked = check_all(&readers, noted_heads)?;
    let broken = checked.iter().any(|(_, checked)| !checked.problems.is_empty());
    for (reader, checked) in &checked {
        store_check::report("verified", reader.address(), checked, output)?;
    }
    let broken = store_check::report_unreadable("verified", &unreadable, output)? || broken;
    if checked.is_empty() && unreadable.is_empty() && !output.result_only() {
        stdout::styled(note("no runs are stored, so there is nothing to verify"))?;
    }
    // A noted hash cannot be found if its store is gone.
    let missing = checked.is_empty() && !noted_heads.is_empty();
    Ok(if broken || missing { exit::FAILED } else { exit::OK })
}

/// Checks each store. A hash belongs to one of them; the others are checked against their own
/// chains only.
fn check_all<'a>(
    readers: &'a [StoreReader],
    noted_heads: &[String],
) -> Result<Vec<(&'a StoreReader, StoreCheck)>, CliError> {
    let against = |heads: &[&str]| -> Result<Vec<(&'a StoreReader, StoreCheck)>, CliError> {
        readers.iter().map(|reader| Ok((reader, reader.verify(heads)?))).collect()
    };
    let checked = against(&[])?;
    let mut missing = Vec::new();
    for head in noted_heads {
        let with_head = against(&[head])?;
        let is_in =
            |index: usize| with_head[index].1.problems.len() == checked[index].1.problems.len();
        if !(0..readers.len()).any(is_in) {
            missing.push(head.as_str());
        }
    }
    if missing.is_empty() { Ok(checked) } else { against(&missing) }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Prints the newest hash of each chain of each store.
pub(super) fn head(stores: &OpenStores, output: OutputArgs) -> Result<u8, CliError> {
    let (readers, unreadable) = stores.readers_and_unreadable()?;
    for reader in readers {
        let checked = reader.verify(&[])?;
        let store = one_line(&reader.address().to_string(), 200);
        for (head, chain) in checked.heads.iter().zip(1_u64..) {
            if output.json {
                let (store, records) = (reader.address(), checked.records);
                stdout::json(
                    json!({ "type": "head", "store": store, "head": head, "records": records }),
                )?;
                continue;
            }
            // A store with one writing process has one chain, which needs no number.
            let chain = match checked.heads.len() {
                1 => String::new(),
                count => format!(" chain {chain} of {count}"),
            };
            stdout::styled(format!("{head}  {}", paint(FAINT, format_args!("{store}{chain}"))))?;
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
