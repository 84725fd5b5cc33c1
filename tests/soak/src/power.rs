//! The power supply of a child's machine: a disk for its store, keys and folders, which loses
//! unsynced data when the power goes.

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
    /// Mounts a disk at this folder, with one empty folder of this name on it.
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

    /// Cuts the power at the `nth` change or sync of the disk from now on, then calls `on_out`.
    pub(crate) fn cut_at(&self, nth: u64, on_out: impl FnOnce() + Send + 'static) {
        if let Some(mount) = &self.mount {
            mount.on_out(Box::new(on_out));
        }
        self.disk().cut_at(Some(nth));
    }

    /// Returns whether the power is out.
    pub(crate) fn is_out(&self) -> bool {
        self.disk().is_out()
    }

    /// Returns the number of requests that wait for power.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.mount.as_ref().map_or(0, Mount::held)
    }

    /// Copies the visible state of the disk into a new folder elsewhere. The process that serves
    /// the disk must only read this copy: it could deadlock if it mapped a file of its own disk
    /// into memory. Copying changes nothing on the disk.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<(), String> {
        copy_below(&self.disk(), ROOT, folder).map_err(|error| error.to_string())
    }

    /// Lets waiting requests fail, because the process that made them was killed.
    pub(crate) fn release(&self) {
        if let Some(mount) = &self.mount {
            mount.release();
        }
    }

    /// Cuts the power, unless it is already out, and turns it on again. No process may use the disk
    /// meanwhile.
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

/// Returns the reason why power cannot be cut here, in one line.
///
/// # Errors
/// That reason.
pub fn can_cut_power() -> Result<(), String> {
    fuse::check()
}

#[cfg(test)]
mod tests;
