//! A [`Disk`] as a mounted folder. Implements the part of the kernel's FUSE protocol that a
//! program's files, SQLite and its shared memory need. The privileged steps are done by the
//! programs `mount` and `umount`. The existing FUSE crate enables a feature of `libc`, which would
//! compile all dependencies of the host a second time.
//!
//! After a power cut no change and no sync is answered, so a program never observes a later
//! operation.

mod wire;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::disk::{Disk, Refusal};
use wire::{Answer, Header};

/// The kernel's FUSE device.
const DEVICE: &str = "/dev/fuse";
/// The maximum size of one write in bytes.
const MOST: usize = 128 << 10;
/// The requirements of a mount, in an error message.
const HELP: &str = "power cuts need Linux with /dev/fuse that can be opened (`modprobe fuse`; in a container \
                    `--device /dev/fuse --cap-add SYS_ADMIN`) and the programs `mount` and `umount` of util-linux";

/// The state shared by a server and its mount.
struct Shared {
    device: File,
    disk: Arc<Mutex<Disk>>,
    state: Mutex<State>,
}

/// A callback for the power cut.
type OnOut = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Whether `mount` succeeded. `None` while it runs.
    is_mounted: Option<bool>,
    /// Requests that arrived without power and wait.
    held: Vec<u64>,
    /// Whether requests without power fail instead of waiting.
    is_released: bool,
    on_out: Option<OnOut>,
}

/// A mounted disk, unmounted on drop.
pub(crate) struct Mount {
    folder: PathBuf,
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the reason why a disk cannot be mounted here, in one line.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mount =
        Mount::new(folder.path(), &Arc::new(Mutex::new(Disk::new(crate::disk::Order::Strict))))?;
    mount.end()
}

impl Mount {
    /// Mounts the disk at this folder.
    ///
    /// # Errors
    /// Describes in one line the missing requirement and how to get it.
    pub(crate) fn new(folder: &Path, disk: &Arc<Mutex<Disk>>) -> Result<Self, String> {
        let missing = |what: &str| format!("{HELP}; here {what}");
        let device = File::options()
            .read(true)
            .write(true)
            .open(DEVICE)
            .map_err(|error| missing(&format!("{DEVICE} fails: {error}")))?;
        let inherited = device.try_clone().map_err(|error| error.to_string())?;
        // The kernel wants the number of the device's descriptor in the mounting program, which is
        // stdin: 0.
        let mut command = Command::new("mount");
        command.args([
            "-i",
            "-t",
            "fuse",
            "-o",
            "fd=0,rootmode=40000,user_id=0,group_id=0,default_permissions",
            "conclave-soak",
        ]);
        command
            .arg(folder)
            .stdin(Stdio::from(inherited))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| missing(&format!("`mount` cannot be started: {error}")))?;
        let shared = Arc::new(Shared { device, disk: Arc::clone(disk), state: Mutex::default() });
        let server = Arc::clone(&shared);
        // Some versions of `mount` access the new mount before they exit, so requests must already
        // be served.
        let serving =
            std::thread::Builder::new().name("disk".to_owned()).spawn(move || server.serve());
        let serving = serving.map_err(|error| error.to_string())?;
        let done = child.wait_with_output().map_err(|error| error.to_string())?;
        lock(&shared.state).is_mounted = Some(done.status.success());
        if !done.status.success() {
            drop(serving.join());
            let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', " ");
            return Err(missing(&format!("`mount` fails: {said}")));
        }
        Ok(Self { folder: folder.to_owned(), shared, serving: Some(serving) })
    }

    /// Calls `on_out` once when the power goes. After that requests wait again.
    pub(crate) fn on_out(&self, on_out: OnOut) {
        let mut state = lock(&self.shared.state);
        state.on_out = Some(on_out);
        // The flag may be left from an earlier process that was killed without a power cut.
        state.is_released = false;
    }

    /// Returns the number of requests that wait for power.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        lock(&self.shared.state).held.len()
    }

    /// Lets waiting requests fail, so that a killed process can exit.
    pub(crate) fn release(&self) {
        let held = {
            let mut state = lock(&self.shared.state);
            state.is_released = true;
            std::mem::take(&mut state.held)
        };
        for unique in held {
            self.shared.answer(unique, Answer::Refused(Refusal::Out as i32));
        }
    }

    /// Unmounts the disk and waits for the server to end.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<(), String> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        self.release();
        // `-l` detaches at once; the mount ends when its last file is closed.
        let done = Command::new("umount")
            .arg("-l")
            .arg(&self.folder)
            .output()
            .map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(format!("umount: {}", String::from_utf8_lossy(&done.stderr).trim()));
        }
        serving.join().map_err(|_| "the disk's server panicked".to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.unmount());
    }
}

/// The server's next step after a read of the device failed.
#[derive(Debug, PartialEq)]
enum AfterRead {
    Again,
    AgainLater,
    End,
}

/// `is_mounted` may be newer than the error: the mount can be completed between the two.
fn after_failed_read(error: Option<i32>, is_mounted: Option<bool>) -> AfterRead {
    match error {
        // EINTR, ENOENT or EAGAIN: interrupted, or an aborted request.
        Some(4 | 2 | 11) => AfterRead::Again,
        // EPERM: the device had no mount.
        Some(1) if is_mounted != Some(false) => AfterRead::AgainLater,
        _ => AfterRead::End,
    }
}

impl Shared {
    fn serve(&self) {
        let mut buffer = vec![0; MOST + (64 << 10)];
        loop {
            match (&self.device).read(&mut buffer) {
                // Some sandboxes replace the device with another one, which has no data.
                Ok(0) => return,
                Ok(length) => self.take(&buffer[..length]),
                Err(error) => {
                    match after_failed_read(error.raw_os_error(), lock(&self.state).is_mounted) {
                        AfterRead::Again => {}
                        AfterRead::AgainLater => std::thread::sleep(Duration::from_millis(1)),
                        AfterRead::End => return,
                    }
                }
            }
        }
    }

    fn take(&self, request: &[u8]) {
        let Some((header, words)) = Header::read(request) else { return };
        if wire::is_silent(header.opcode) {
            return;
        }
        let (answer, went_out) = {
            let mut disk = lock(&self.disk);
            let had_power = !disk.is_out();
            let answer = wire::answer(&mut disk, &header, words, MOST);
            (answer, had_power && disk.is_out())
        };
        let on_out = {
            let mut state = lock(&self.state);
            match answer {
                Answer::Refused(error) if error == Refusal::Out as i32 && !state.is_released => {
                    state.held.push(header.unique)
                }
                answer => self.answer(header.unique, answer),
            }
            went_out.then(|| state.on_out.take()).flatten()
        };
        if let Some(on_out) = on_out {
            on_out();
        }
    }

    /// Sends an answer. Fails silently if the request was aborted meanwhile.
    fn answer(&self, unique: u64, answer: Answer) {
        let _ = (&self.device).write_all(&answer.bytes(unique));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_before_the_mount_was_complete_does_not_end_the_server() {
        let no_mount = Some(1);
        for is_mounted in [None, Some(true)] {
            assert_eq!(after_failed_read(no_mount, is_mounted), AfterRead::AgainLater);
        }
        assert_eq!(after_failed_read(no_mount, Some(false)), AfterRead::End);
        // ENODEV: it was unmounted.
        assert_eq!(after_failed_read(Some(19), Some(true)), AfterRead::End);
    }
}
