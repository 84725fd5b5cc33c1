//! Checks of the disk: whether compiled code can be cached, and the time of a durable write.

use std::fs::OpenOptions;
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conclave_runtime::plugin::Cache;

use super::Finding;
use crate::ui::show;
use crate::ui::show::show_path;

/// Writes that are timed. Their median is stable enough, and on a slow disk they take two seconds.
const WRITES: usize = 64;
const SLOW: Duration = Duration::from_millis(20);

/// Checks that compiled components are cached in this folder.
pub(crate) fn cache(folder: Option<&Path>) -> Finding {
    const WHAT: &str = "compiled code";
    let Some(folder) = folder else {
        return Finding::note(
            WHAT,
            "no cache folder is known, so every start compiles every plugin",
            "set HOME, XDG_CACHE_HOME or CONCLAVE_CACHE",
        );
    };
    match Cache::open(folder) {
        Ok(_) => Finding::ok(WHAT, format!("cached in {}", show_path(folder))),
        Err(error) => Finding::note(
            WHAT,
            error.to_string(),
            "make the folder usable; until then, every start compiles every plugin",
        ),
    }
}

/// Measures a durable write in a folder.
pub(crate) fn syncing(folder: &Path) -> Finding {
    const WHAT: &str = "durable write";
    match measure(folder) {
        Ok((median, slowest)) => {
            let found = format!(
                "{} (median), {} at worst, in {}: about {} events a second with durability `sync`",
                show::time(median),
                show::time(slowest),
                show_path(folder),
                per_second(median)
            );
            if median <= SLOW {
                Finding::ok(WHAT, found)
            } else {
                Finding::note(
                    WHAT,
                    found,
                    "each event of durability `sync` waits for one; put the state on a faster disk (CONCLAVE_STATE), or use `group`",
                )
            }
        }
        Err(error) => Finding::fail(
            WHAT,
            format!("{} cannot be written: {error}", show_path(folder)),
            "change to a folder that you can write to",
        ),
    }
}

/// The rate of events if each waits for a write of its own; with `group`, many share one.
fn per_second(median: Duration) -> String {
    let median = u64::try_from(median.as_micros()).unwrap_or(u64::MAX).max(1);
    show::amounts::count(1_000_000 / median)
}

/// Returns the median and the slowest time to write a page. Each page is on the disk before the
/// next is written.
fn measure(folder: &Path) -> Result<(Duration, Duration)> {
    let path = folder.join(format!(".conclave-doctor-{}", std::process::id()));
    let removed = RemovedFile(path.clone());
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    drop(removed);
    times.sort_unstable();
    Ok((times[WRITES / 2], times[WRITES - 1]))
}

/// A temporary folder with an empty folder `empty` in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    /// If the machine has no place for temporary files.
    pub(crate) fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("conclave-doctor-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("empty"))?;
        Ok(Self(folder))
    }

    /// The path in the form that configs take.
    pub(crate) fn config_path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes the file when dropped.
struct RemovedFile(PathBuf);

impl Drop for RemovedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
