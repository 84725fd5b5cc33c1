//! The mounted file systems as a program of the machine sees them.

use std::ffi::{CString, OsString};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};

/// Bytes of memory for which a program's own folder may have one file: enough for a file in each
/// few blocks, and few enough that empty files do not add up.
const BYTES_PER_FILE: u64 = 16 << 10;

/// Makes all mounted file systems read-only for this process, except these folders. Landlock does
/// not cover changes of owners, permissions and times.
pub(super) fn make_read_only_except(except: &[PathBuf]) -> Result<(), String> {
    let failed = |what: &Path, error: rustix::io::Errno| {
        format!("{} cannot be made read-only: {error}", what.display())
    };
    let root = Path::new("/");
    mount_change(root, MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|error| failed(root, error))?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("the mounted file systems are unknown: {error}"))?;
    for folder in except {
        mount_bind_recursive(folder, folder).map_err(|error| failed(folder, error))?;
    }
    for (point, flags) in table.lines().filter_map(mounted) {
        if except.iter().any(|folder| point.starts_with(folder)) {
            continue;
        }
        let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
        match mount_remount(&point, flags, "") {
            // Another file system or a closed folder hides the mount, so nothing reaches it.
            Ok(())
            | Err(
                rustix::io::Errno::INVAL | rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS,
            ) => {}
            Err(error) => return Err(failed(&point, error)),
        }
    }
    Ok(())
}

/// Gives the program a folder of its own in memory, of at most this size. It is gone with the last
/// process of the namespace, whatever the program left in it.
pub(super) fn mount_home(home: &Path, size: u64) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("its own folder cannot be made: {error}");
    let options = format!("mode=0700,size={size},nr_inodes={}", (size / BYTES_PER_FILE).max(256));
    let options = CString::new(options).map_err(|error| failed(&error))?;
    mount("tmpfs", home, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
        .map_err(|error| failed(&error))
}

/// Shows the processes of this namespace in `/proc`, and no others. The kernel refuses it where
/// parts of `/proc` are hidden, as in many containers.
pub(super) fn mount_processes() -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("proc", "/proc", "proc", flags, None)
}

/// The mount point of a line of `mountinfo`, and its flags, which must not be lost.
fn mounted(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let (point, options) = (fields.next()?, fields.next()?);
    let flags = options.split(',').map(|option| match option {
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        _ => MountFlags::empty(),
    });
    Some((PathBuf::from(unescaped(point)), flags.fold(MountFlags::empty(), |all, flag| all | flag)))
}

/// A path of `mountinfo`, in which spaces and the like are written as `\040`.
fn unescaped(text: &str) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\');
        let code = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_gives_the_path_and_the_flags() {
        let line =
            r"36 35 98:0 / /mnt\040a/\134b rw,nosuid,noexec,relatime shared:1 - ext4 /dev/a rw";
        let expected = (PathBuf::from(r"/mnt a/\b"), MountFlags::NOSUID | MountFlags::NOEXEC);
        assert_eq!(mounted(line), Some(expected));
        assert_eq!(mounted("36 35"), None);
    }
}
