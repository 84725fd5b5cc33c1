//! The power of a child's machine: a disk under its store, its keys and its folders, which loses
//! what was not synced when the power goes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, Ino, Order, ROOT, Refusal, Survival};
use crate::fuse::{self, Mount};
use crate::random::Random;

/// A machine whose power can be cut.
pub(crate) struct Power {
    folder: PathBuf,
    disk: Arc<Mutex<Disk>>,
    mount: Option<Mount>,
}

impl Power {
    /// With a disk shown in this folder, on which nothing is but one empty folder of this name.
    pub(crate) fn on(folder: &Path, order: Order, name: &str) -> Result<Self, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mut disk = Disk::new(order);
        let made = disk.make(ROOT, name, true, 0o755).and_then(|_| disk.sync_folder(ROOT));
        made.map_err(|refusal| format!("{refusal:?}"))?;
        let disk = Arc::new(Mutex::new(disk));
        let mount = Mount::new(folder, &disk)?;
        Ok(Self { folder: folder.to_owned(), disk, mount: Some(mount) })
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the power go at the `nth` change or sync of the disk from now on, and says so.
    pub(crate) fn cut_at(&self, nth: u64, on_out: impl FnOnce() + Send + 'static) {
        if let Some(mount) = &self.mount {
            mount.on_out(Box::new(on_out));
        }
        self.disk().cut_at(Some(nth));
    }

    /// The power went.
    pub(crate) fn is_out(&self) -> bool {
        self.disk().is_out()
    }

    /// Requests that wait for power.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.mount.as_ref().map_or(0, Mount::held)
    }

    /// Writes what the disk shows into a new folder elsewhere. Whoever serves the disk looks at
    /// this copy: a program that maps a file of a disk into memory which it serves itself can come
    /// to wait for itself, and looking changes nothing.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<(), String> {
        copy_below(&self.disk(), ROOT, folder).map_err(|error| error.to_string())
    }

    /// Nobody waits for the disk any more: whoever used it was killed.
    pub(crate) fn release(&self) {
        if let Some(mount) = &self.mount {
            mount.release();
        }
    }

    /// The power goes, now or when it did, and comes back. Nobody may use the disk meanwhile.
    pub(crate) fn cut(&mut self, survival: Survival, random: &mut Random) -> Result<(), String> {
        self.disk().cut();
        if let Some(mount) = self.mount.take() {
            mount.end()?;
        }
        self.disk().restart(survival, random);
        self.mount = Some(Mount::new(&self.folder, &self.disk)?);
        Ok(())
    }
}

fn copy_below(disk: &Disk, folder: Ino, to: &Path) -> std::io::Result<()> {
    let refused = |refusal: Refusal| std::io::Error::from_raw_os_error(refusal as i32);
    std::fs::create_dir_all(to)?;
    for (name, ino, is_folder) in disk.list(folder).map_err(refused)? {
        let to = to.join(name);
        let status = disk.status(ino).map_err(refused)?;
        if is_folder {
            copy_below(disk, ino, &to)?;
        } else {
            std::fs::write(&to, disk.read(ino, 0, usize::MAX).map_err(refused)?)?;
        }
        std::fs::set_permissions(&to, PermissionsExt::from_mode(status.mode))?;
    }
    Ok(())
}

/// What keeps power from being cut here, in one line.
///
/// # Errors
/// That line.
pub fn can_cut_power() -> Result<(), String> {
    fuse::check()
}

#[cfg(test)]
mod tests;
