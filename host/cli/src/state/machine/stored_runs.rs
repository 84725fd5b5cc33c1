//! Checks of the state folder: its place, its size, its interrupted runs, and the time of a durable
//! write there.

use std::fs;
use std::path::{Path, PathBuf};

use conclave_runtime::store::RunFilter;

use super::Finding;
use crate::state::state_folder::state_folder;
use crate::state::stores::{OpenStores, is_interrupted};
use crate::ui::show::amounts::count;
use crate::ui::show::{bytes, plural, show_path};

/// Entries that are counted. A folder with more is large in any case.
const ENTRIES: usize = 100_000;

/// The findings about stored runs. Empty if nothing is stored.
pub(crate) fn stored_runs() -> Vec<Finding> {
    const WHAT: &str = "stored runs";
    let Some(folder) = state_folder() else {
        return vec![Finding::note(
            WHAT,
            "runs are not stored, so none can be looked up or resumed",
            "set HOME or CONCLAVE_STATE",
        )];
    };
    let place = format!("{} in {}", bytes(size(&folder)), show_path(&folder));
    let finding = match OpenStores::of_state_folder().runs(&RunFilter::default()) {
        Ok(runs) => {
            let found = format!("{}, {place}", plural(runs.len() as u64, "run", "runs"));
            match runs.iter().filter(|run| is_interrupted(run)).count() as u64 {
                0 => Finding::ok(WHAT, found),
                interrupted => Finding::note(
                    WHAT,
                    format!("{found}; {} interrupted", count(interrupted)),
                    "`conclave resume` resumes them, `conclave stop RUN` ends one",
                ),
            }
        }
        Err(error) => Finding::fail(
            WHAT,
            format!("{error} ({place})"),
            "`conclave store check` shows the damage",
        ),
    };
    vec![finding, super::syncing(&nearest(&folder))]
}

/// The folder, or its nearest existing ancestor, since a check creates nothing.
fn nearest(folder: &Path) -> PathBuf {
    folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new(".")).to_owned()
}

/// The bytes of all files below a folder. Links are not followed.
fn size(folder: &Path) -> u64 {
    let (mut to_do, mut total, mut seen) = (vec![folder.to_owned()], 0_u64, 0);
    while let Some(folder) = to_do.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => to_do.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    total += entry.metadata().map_or(0, |data| data.len())
                }
                _ => {}
            }
            if seen >= ENTRIES {
                return total;
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_folder_includes_its_subfolders() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("a/b")).unwrap();
        fs::write(temp.path().join("a/b/c"), [0; 300]).unwrap();
        fs::write(temp.path().join("d"), [0; 40]).unwrap();
        assert_eq!(size(temp.path()), 340);
        assert_eq!(nearest(&temp.path().join("x/y")), temp.path());
        assert_eq!(size(&temp.path().join("x")), 0);
    }
}
