//! The report of a checked store: `audit verify` and `store check` say the same.

use conclave_runtime::store::{RemovedRun, StoreAddress, StoreCheck};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::state::stores::UnreadableStore;
use crate::ui::show::amounts::{ago, now, thousands};
use crate::ui::show::table::note;
use crate::ui::show::{BAD, FAINT, GOOD, one_line, paint, plural};
use crate::ui::stdout;

/// Problems of one store that are shown; `--json` has all.
const PROBLEMS: usize = 20;

/// Reports stores that cannot be read as damaged. Returns whether there are any.
pub(crate) fn report_unreadable(
    word: &str,
    stores: &[UnreadableStore],
    output: OutputArgs,
) -> Result<bool, CliError> {
    for UnreadableStore { store, reason } in stores {
        let checked = StoreCheck { problems: vec![reason.clone()], ..StoreCheck::default() };
        report(word, store, &checked, output)?;
    }
    Ok(!stores.is_empty())
}

/// Reports the result of checking a store. `word` is the type of the JSON line.
pub(crate) fn report(
    word: &str,
    store: &StoreAddress,
    checked: &StoreCheck,
    output: OutputArgs,
) -> Result<(), CliError> {
    if output.json {
        let mut value = json!(checked);
        (value["type"], value["store"]) = (word.into(), json!(store));
        return stdout::json(value);
    }
    let place = one_line(&store.to_string(), 200);
    if checked.problems.is_empty() {
        if output.quiet {
            return Ok(());
        }
        let some = |count: u64, one: &str, several: &str| {
            format!("{} {}", thousands(count), if count == 1 { one } else { several })
        };
        let (records, rooms) =
            (some(checked.records, "record", "records"), some(checked.rooms, "room", "rooms"));
        let counts = format!("{records} of {rooms}, {}", some(checked.blobs, "blob", "blobs"));
        let verified = format!("{} {place}: {counts}", paint(GOOD, "verified"));
        let removed = removed_runs(&checked.removed_runs);
        let verified = format!("{verified}{removed}");
        return match &checked.heads[..] {
            [] => stdout::styled(verified),
            [head] => {
                let head = paint(FAINT, format_args!("  head {head}"));
                stdout::styled(format!("{verified}{head}"))
            }
            heads => {
                // Each host that wrote at the same time as others has one.
                stdout::styled(format!("{verified}, {} audit chains", heads.len()))?;
                for (chain, head) in (1_u64..).zip(heads) {
                    let row = format_args!("  chain {chain}  head {head}");
                    stdout::styled(paint(FAINT, row))?;
                }
                Ok(())
            }
        };
    }
    let removed = removed_runs(&checked.removed_runs);
    stdout::styled(format!("{} {place}{removed}", paint(BAD, "DAMAGED")))?;
    for problem in checked.problems.iter().take(PROBLEMS) {
        stdout::styled(format!("  {}", one_line(problem, 400)))?;
    }
    if checked.problems.len() > PROBLEMS {
        stdout::styled(note(format_args!(
            "  and {} more; --json lists all",
            checked.problems.len() - PROBLEMS
        )))?;
    }
    Ok(())
}

/// `, 2 runs removed (the last one, RUN, 5 min ago)`, so that an operator sees a removal that nobody
/// made; `--json` lists all. Empty without one.
fn removed_runs(removed: &[RemovedRun]) -> String {
    let Some(last) = removed.last() else { return String::new() };
    let runs = plural(removed.len() as u64, "run", "runs");
    let (run, ago) = (one_line(last.run.as_str(), 200), ago(last.at, now()));
    let last = if removed.len() == 1 { run } else { format!("the last one {run}") };
    format!(", {runs} removed ({last}, {ago})")
}
