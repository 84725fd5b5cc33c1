//! Copies of overlays, for the copy of a store. A process may change the overlays meanwhile.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{
    DECISIONS, FILES, OVERLAYS, OverlayLog, READS, content_name, has_content, is_written,
    overlays_of, read,
};
use crate::support::durable_file::{self, FileAccess, make_folders, open_own};

/// Copies the overlays of all runs of a store to another one. A process may change them meanwhile:
/// the copy has each change with a content that it had while it was copied.
///
/// # Errors
/// The operating system's error.
pub(crate) fn copy(store: &Path, to: &Path) -> io::Result<()> {
    let runs = match std::fs::read_dir(store.join(OVERLAYS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        runs => runs?,
    };
    for run in runs {
        let run = run?.path();
        let target = to.join(run.strip_prefix(store).map_err(io::Error::other)?);
        for overlay in overlays_of(&run)? {
            let below = overlay.strip_prefix(&run).map_err(io::Error::other)?;
            match copy_overlay(&overlay, &target.join(below)) {
                // Applied or dropped meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !overlay.is_dir() => {}
                copied => copied?,
            }
        }
        // After the overlays: a decision that is missing would leave changes without a reason.
        copy_file(&run.join(DECISIONS), &target.join(DECISIONS))?;
    }
    Ok(())
}

fn copy_overlay(overlay: &Path, to: &Path) -> io::Result<()> {
    // A busy run may change its files as fast as they are copied; the rest is left out after some
    // attempts.
    const ATTEMPTS: usize = 8;
    let (origin, mut changes) = read(overlay)?;
    for attempt in 1..=ATTEMPTS {
        for (path, _) in changes.iter().filter(|(_, change)| is_written(change)) {
            // Else a link or a pipe in its place would fail the copy; it counts as lost below.
            if !has_content(overlay, path) {
                continue;
            }
            let name = Path::new(FILES).join(content_name(path));
            copy_file(&overlay.join(&name), &to.join(&name))?;
        }
        let now = read(overlay)?.1;
        if now == changes || attempt == ATTEMPTS {
            break;
        }
        changes = now;
    }
    // A record of a removal is there before the content is gone. So a content that stays missing
    // while its record says otherwise is lost, and stays a change of the copy, to be named and
    // dropped. One look is not enough: a busy run may write and remove a file between two of them.
    const LOOKS: usize = 16;
    let is_lost = |path: &str| {
        (0..LOOKS).all(|_| {
            !has_content(overlay, path)
                && read(overlay).is_ok_and(|(_, now)| now.get(path).is_some_and(is_written))
                && !has_content(overlay, path)
        })
    };
    changes.retain(|path, change| !is_written(change) || has_content(to, path) || is_lost(path));
    let mut log = OverlayLog::create(to, &origin)?;
    log.rewrite(&changes)?;
    copy_file(&overlay.join(READS), &to.join(READS))
}

/// Copies a file as it was at one moment, or, if it changes during each of eight attempts, as the
/// last attempt read it; an absent one is no error.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    // A plugin may write to the middle of a file in several steps.
    const ATTEMPTS: usize = 8;
    for _ in 0..ATTEMPTS {
        let mut file = match open_own(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let stamp = |file: &File| file.metadata().and_then(|it| Ok((it.len(), it.modified()?)));
        let before = stamp(&file)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        if let Some(parent) = to.parent() {
            make_folders(parent, 0o700)?;
        }
        durable_file::replace(to, &bytes, &FileAccess::Private)?;
        if stamp(&file)? == before {
            break;
        }
    }
    Ok(())
}
