//! `--watch`, for authors: a rebuilt component is used from the next call on. A finished run starts
//! again once its config or one of its components has changed.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::PluginSource;
use conclave_runtime::reload::{FileVersion, FileWatch, Reloaded};
use conclave_runtime::{Prepared, RoomHandle};

use crate::state::setup;
use crate::ui::screen::Screen;
use crate::ui::show::{NAME, ODD, paint};

/// The interval between two checks of the files. A change counts at the second check that sees it.
const EVERY: Duration = Duration::from_millis(200);

/// Watches for rebuilt components until the run ends, or the guard is dropped.
pub(crate) fn rebuilt_components(
    prepared: &Prepared,
    run: RoomHandle,
    screen: Arc<Screen>,
) -> FileWatch {
    prepared.reloader().watch(EVERY, move |reloaded| match reloaded {
        // The run reports it to all subscribers and to its journal.
        Reloaded::Replaced { plugin, sha256, .. } => run.note_replaced(&plugin, &sha256),
        Reloaded::Refused { plugin, reason } => {
            screen.line(format!(
                "{} {}: the rebuilt component was rejected: {reason}",
                paint(ODD, "warning:"),
                paint(NAME, plugin)
            ));
        }
    })
}

/// Resolves once the config or one of its components has changed and is no longer being written.
pub(crate) async fn changes(config: &Path) {
    let files = files(config);
    let stamps =
        || -> Vec<Option<FileVersion>> { files.iter().map(|file| FileVersion::of(file)).collect() };
    let first = stamps();
    // A component that is missing is being built.
    settled(first, stamps, |now| now.iter().all(Option::is_some)).await;
}

/// Resolves once one of these files has changed since this call, or there are others. Files may be
/// missing.
pub(crate) fn changes_of(
    files: impl Fn() -> Vec<PathBuf> + Send,
) -> impl Future<Output = ()> + Send {
    let stamps = move || -> Vec<(PathBuf, Option<FileVersion>)> {
        files().into_iter().map(|file| (file.clone(), FileVersion::of(&file))).collect()
    };
    let first = stamps();
    settled(first, stamps, |_| true)
}

/// Resolves once the stamps differ from the first ones, and two checks in a row are equal: then no
/// file is still being written.
async fn settled<T: Clone + PartialEq>(
    first: T,
    stamps: impl Fn() -> T,
    is_whole: impl Fn(&T) -> bool,
) {
    let mut last = first.clone();
    loop {
        tokio::time::sleep(EVERY).await;
        let now = stamps();
        if now != first && now == last && is_whole(&now) {
            return;
        }
        last = now;
    }
}

/// The config, and the components that it names as far as it can be read.
fn files(config: &Path) -> Vec<PathBuf> {
    let mut files = vec![config.to_owned()];
    if let Ok(config) = setup::read_config(config, &setup::Models::new()) {
        files.extend(config.plugins.values().filter_map(|plugin| match &plugin.source {
            PluginSource::File(path) => Some(PathBuf::from(&path.path)),
            PluginSource::Stock(_)
            | PluginSource::Native(_)
            | PluginSource::Url { .. }
            | PluginSource::Oci { .. }
            | PluginSource::Mcp(_) => None,
        }));
    }
    files
}
