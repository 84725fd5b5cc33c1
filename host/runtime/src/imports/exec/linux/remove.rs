//! Removes a folder that a program filled as it liked: however deep, and without permissions.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// A folder on the way down: its name in the one above, and the folders in it that are still full.
struct Level {
    name: CString,
    full: Vec<CString>,
}

/// Removes a folder with all that is in it. What is left when something cannot be removed stays.
///
/// Neither recursion nor paths, and two open folders at once: it goes down and up by one name.
pub(super) fn remove_tree(top: &Path) {
    // An absent folder was removed before.
    let _ = remove_below(top).and_then(|()| rustix::fs::unlinkat(CWD, top, AtFlags::REMOVEDIR));
}

fn remove_below(top: &Path) -> Result<(), Errno> {
    let mut folder = open(CWD, top)?;
    let mut levels = vec![Level { name: CString::default(), full: empty(&folder)? }];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.full.pop() {
            folder = open(&folder, name.as_c_str())?;
            levels.push(Level { name, full: empty(&folder)? });
            continue;
        }
        let Some(level) = levels.pop().filter(|_| !levels.is_empty()) else { break };
        folder = open(&folder, c"..")?;
        rustix::fs::unlinkat(&folder, level.name.as_c_str(), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Opens a folder, and follows no link. A program may have taken the permissions to do so.
fn open(
    dir: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg + Copy,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(&dir, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(&dir, name, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Removes the files and the empty folders of a folder, and returns the others.
fn empty(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    // Without the permission to write, nothing can be removed.
    rustix::fs::fchmod(folder, Mode::RWXU)?;
    let mut full = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if [c".", c".."].contains(&name.as_c_str()) {
            continue;
        }
        let found = rustix::fs::statat(folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(folder, name.as_c_str(), flags) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if is_folder => full.push(name),
            removed => removed?,
        }
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_tree_that_is_deeper_than_any_stack_and_path_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("home");
        fs::create_dir(&top).unwrap();
        // As a program builds it: a new folder around the one before.
        fs::create_dir(top.join("d")).unwrap();
        for _ in 0..20_000 {
            fs::create_dir(top.join("n")).unwrap();
            fs::rename(top.join("d"), top.join("n/d")).unwrap();
            fs::rename(top.join("n"), top.join("d")).unwrap();
        }
        fs::write(temp.path().join("outside"), "").unwrap();
        std::os::unix::fs::symlink(temp.path(), top.join("d/link")).unwrap();
        let closed = top.join("closed");
        fs::create_dir_all(closed.join("below/deeper")).unwrap();
        fs::create_dir_all(closed.join("beside/deeper")).unwrap();
        fs::write(closed.join("below/file"), "").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o0)).unwrap();
        remove_tree(&top);
        assert!(!top.exists());
        assert!(temp.path().join("outside").exists());
        remove_tree(&top);
    }
}
