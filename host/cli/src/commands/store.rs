//! `conclave store gc | backup | check`: maintenance of the stores.

#[cfg(feature = "postgres")]
mod database;

use std::path::{Path, PathBuf};

use conclave_core::types::ids::Millis;
use conclave_runtime::store::{
    Collected, Retention, RunFilter, StoreAddress, StoreError, StoreReader,
};
use serde_json::json;

use crate::args::{OutputArgs, StoreCommand};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::store_check;
use crate::state::stores::{OpenStores, open};
use crate::ui::show::amounts::{now, parse_moment, thousands};
use crate::ui::show::table::note;
use crate::ui::show::{GOOD, ODD, bytes, one_line, paint, plural, show_path};
use crate::ui::{ask, stdout};

/// Removed runs that are listed by name.
const NAMED: usize = 8;

pub(crate) fn store(command: &StoreCommand, output: OutputArgs) -> Result<u8, CliError> {
    match command {
        StoreCommand::Gc { before, keep, dry_run, yes, store } => {
            let before =
                before.as_deref().map(|text| parse_moment("--before", text, now())).transpose()?;
            // `--keep` alone removes all other runs, so the user confirms it first.
            if let (None, Some(keep), false, false, true) =
                (before, *keep, *dry_run, *yes, ask::is_user_there())
            {
                let question = format!(
                    "Remove all ended runs except the newest {keep}? --dry-run lists them."
                );
                if !ask::confirm(&question) {
                    return Err(CliError::usage("nothing was removed")
                        .hint("confirm with `y`, or pass --yes"));
                }
            }
            gc(&OpenStores::of(store.as_ref())?, before, *keep, *dry_run, output)
        }
        StoreCommand::Backup { folder, store } => {
            backup(&OpenStores::of(store.as_ref())?, folder, output)
        }
        StoreCommand::Check { store } => check(&OpenStores::of(store.as_ref())?, output),
    }
}

/// Removes old runs. Stores in use are skipped and reported.
fn gc(
    stores: &OpenStores,
    before: Option<Millis>,
    keep: Option<usize>,
    dry: bool,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let readers = stores.readers()?;
    if readers.is_empty() {
        return nothing(output);
    }
    for kind in kinds(&readers) {
        let retention = retention(&kind, before, keep, dry)?;
        for reader in kind {
            match open(reader.address(), "store gc").and_then(|store| store.collect(&retention)) {
                Ok(collected) => report_collected(reader.address(), &collected, dry, output)?,
                Err(StoreError::InUse { store, who }) => report_in_use(&store, &who, output)?,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(exit::OK)
}

/// Groups the stores by folder: those of runs, and those of batches and clients.
fn kinds(readers: &[StoreReader]) -> Vec<Vec<&StoreReader>> {
    let mut kinds: Vec<(Option<&Path>, Vec<&StoreReader>)> = Vec::new();
    for reader in readers {
        // Otherwise the many runs of one kind would push out the few of the other.
        let parent = reader.folder().and_then(Path::parent);
        match kinds.iter_mut().find(|(of, _)| *of == parent) {
            Some((_, kind)) => kind.push(reader),
            None => kinds.push((parent, vec![reader])),
        }
    }
    kinds.into_iter().map(|(_, kind)| kind).collect()
}

/// Returns the retention that keeps this many of the newest runs, counted over all stores of a
/// group.
fn retention(
    readers: &[&StoreReader],
    before: Option<Millis>,
    keep: Option<usize>,
    dry: bool,
) -> Result<Retention, CliError> {
    let of_time = |before| Retention { before, dry, ..Retention::default() };
    let Some(keep) = keep else { return Ok(of_time(before)) };
    let mut ended: Vec<Millis> = Vec::new();
    for reader in readers {
        let runs = reader.runs(&RunFilter::default())?;
        ended.extend(runs.iter().filter_map(|run| run.ended));
    }
    Ok(of_time(Some(limit(ended, before, keep))))
}

fn limit(mut ended: Vec<Millis>, before: Option<Millis>, keep: usize) -> Millis {
    ended.sort_unstable_by(|one, other| other.cmp(one));
    let before = before.unwrap_or(Millis(u64::MAX));
    match keep.checked_sub(1) {
        // There are fewer runs than that, so all are kept.
        Some(last) => ended.get(last).map_or(Millis(0), |last| before.min(*last)),
        None => before,
    }
}

fn report_collected(
    store: &StoreAddress,
    collected: &Collected,
    dry: bool,
    output: OutputArgs,
) -> Result<(), CliError> {
    if output.json {
        let mut value = json!(collected);
        (value["type"], value["store"], value["dry_run"]) =
            ("collected".into(), json!(store), dry.into());
        return stdout::json(value);
    }
    if output.quiet {
        return Ok(());
    }
    let place = one_line(&store.to_string(), 200);
    for run in &collected.remaining_runs {
        stdout::styled(format!(
            "{} {run}: it has changes to apply or drop: conclave diff {run}",
            paint(ODD, "kept")
        ))?;
    }
    if collected.runs.is_empty() && collected.blobs == 0 {
        return stdout::styled(note(format_args!("{place}: nothing to remove")));
    }
    let word = if dry { paint(ODD, "would remove") } else { paint(GOOD, "removed") };
    let runs = plural(collected.runs.len() as u64, "run", "runs");
    let blobs = plural(collected.blobs, "blob", "blobs");
    stdout::styled(format!(
        "{word} {runs} with {} records, {blobs}: {}  {place}",
        thousands(collected.records),
        bytes(collected.bytes)
    ))?;
    let names: Vec<&str> = collected.runs.iter().take(NAMED).map(|run| run.as_str()).collect();
    let more = collected.runs.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if names.is_empty() {
        Ok(())
    } else {
        stdout::styled(note(format_args!("  {}{more}", names.join(", "))))
    }
}

fn report_in_use(store: &StoreAddress, who: &str, output: OutputArgs) -> Result<(), CliError> {
    if output.json {
        return stdout::json(json!({ "type": "in-use", "store": store, "by": who }));
    }
    let place = one_line(&store.to_string(), 200);
    stdout::styled(format!("{} {place}: in use by {}", paint(ODD, "skipped"), one_line(who, 120)))
}

fn backup(stores: &OpenStores, to: &Path, output: OutputArgs) -> Result<u8, CliError> {
    if to.exists() {
        return Err(CliError::usage(format!("{} already exists", show_path(to)))
            .hint("name a folder that does not exist"));
    }
    #[cfg(feature = "postgres")]
    if let [StoreAddress::Postgres(address)] = stores.addresses() {
        return database::backup(address, to, output);
    }
    let (readers, unreadable) = stores.readers_and_unreadable()?;
    if readers.is_empty() && unreadable.is_empty() {
        return nothing(output);
    }
    let mut copy = None;
    for reader in &readers {
        let Some(from) = reader.folder() else { continue };
        let folder = if stores.is_named() { to.to_owned() } else { to.join(place(from)) };
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            crate::state::state_folder::make_private(parent).map_err(|error| {
                CliError::internal(format!("{} could not be created: {error}", show_path(parent)))
            })?;
        }
        reader.backup(&folder)?;
        copy.get_or_insert_with(|| folder.clone());
        let printed = |path: &Path| one_line(&path.display().to_string(), 200);
        stdout::report(
            output,
            json!({ "type": "backup", "store": from, "folder": folder }),
            format_args!("{} {} to {}", paint(GOOD, "copied"), printed(from), printed(&folder)),
        )?;
    }
    if let Some(copy) = copy.filter(|_| !output.result_only()) {
        let copy = shell(&copy.display().to_string());
        stdout::unbroken(note(format_args!("read a copy with: conclave runs --store {copy}")))?;
    }
    // An incomplete copy must not pass for a backup.
    let has_unreadable = store_check::report_unreadable("checked", &unreadable, output)?;
    Ok(if has_unreadable { exit::FAILED } else { exit::OK })
}

/// `stores/1`: the last two names of a store's folder.
fn place(folder: &Path) -> PathBuf {
    let names: Vec<_> = folder.components().rev().take(2).collect();
    names.into_iter().rev().collect()
}

fn check(stores: &OpenStores, output: OutputArgs) -> Result<u8, CliError> {
    let (readers, unreadable) = stores.readers_and_unreadable()?;
    if readers.is_empty() && unreadable.is_empty() {
        return nothing(output);
    }
    let mut code = exit::OK;
    for reader in &readers {
        let checked = reader.check()?;
        store_check::report("checked", reader.address(), &checked, output)?;
        if !checked.problems.is_empty() {
            code = exit::FAILED;
        }
    }
    let has_unreadable = store_check::report_unreadable("checked", &unreadable, output)?;
    Ok(if has_unreadable { exit::FAILED } else { code })
}

fn nothing(output: OutputArgs) -> Result<u8, CliError> {
    if !output.result_only() {
        stdout::styled(note("nothing is stored yet"))?;
    }
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_retains_the_newest_runs_whatever_before_says() {
        let ended = || [5, 9, 7, 3].map(Millis).to_vec();
        assert_eq!(limit(ended(), None, 2), Millis(7));
        assert_eq!(limit(ended(), Some(Millis(4)), 2), Millis(4));
        assert_eq!(limit(ended(), Some(Millis(8)), 2), Millis(7));
        assert_eq!(limit(ended(), Some(Millis(8)), 9), Millis(0));
        assert_eq!(limit(ended(), None, 0), Millis(u64::MAX));
    }

    #[test]
    fn a_copy_has_the_place_of_its_store() {
        assert_eq!(place(Path::new("/state/stores/1")), Path::new("stores/1"));
    }
}
