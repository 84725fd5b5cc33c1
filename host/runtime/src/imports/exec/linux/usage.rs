//! The resources that a program uses together with all that it started, as the kernel reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::confine::FILES;

/// Bytes that the kernel keeps for a socket at most: the default limit of what was sent. Programs
/// may not raise it.
const SOCKET: u64 = 208 << 10;
/// Bytes that the kernel keeps for a file or folder besides its content.
const FILE: u64 = 2 << 10;
/// Maximum files and folders of a program's own folder where it is on the disk.
const FOLDER_ENTRIES: usize = 20_000;

/// The use of resources of a process and its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// Processes and their threads.
    pub(super) processes: u64,
    /// In bytes, with shared pages counted for each process, the buffers of sockets as if they were
    /// full, and the files of the program's own folder.
    pub(super) memory: u64,
    pub(super) cpu_ms: u64,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: i32,
    /// In ticks: its own time, and that of children which it has waited for.
    own: u64,
    waited: u64,
    threads: u64,
    pages: u64,
}

/// The usage of all descendants of the launcher's second process, and the time of those that
/// have ended. `launcher` is the first process, and `home` the program's own folder.
pub(super) fn usage_below(launcher: i32, home: &Path) -> ProcessUsage {
    let proc = Path::new("/proc");
    let (mut used, programs) = measure(&processes(proc), launcher);
    let kernel = sockets(proc, &programs).saturating_mul(SOCKET);
    let files = files_in(&proc.join(format!("{launcher}/root")), home);
    used.memory = used.memory.saturating_add(kernel).saturating_add(files);
    used
}

/// All processes below one, in no order.
pub(super) fn descendants(top: i32) -> Vec<i32> {
    let all = processes(Path::new("/proc"));
    let children = children_of(&all);
    below(&children, &[top])
}

/// The number of sockets that processes have open; a socket of several counts once. A process whose
/// open files cannot be listed has as many as it may have.
fn sockets(proc: &Path, programs: &[i32]) -> u64 {
    let (mut found, mut hidden) = (BTreeSet::new(), 0_u64);
    for pid in programs {
        match std::fs::read_dir(proc.join(format!("{pid}/fd"))) {
            Ok(open) => found.extend(open.flatten().filter_map(|entry| {
                let target = std::fs::read_link(entry.path()).ok()?.into_os_string();
                target.into_string().ok().filter(|target| target.starts_with("socket:"))
            })),
            // The kernel hides the files of a process that is about to end too.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && has_memory(proc, *pid) => {
                hidden = hidden.saturating_add(FILES);
            }
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    hidden.saturating_add(found.len() as u64)
}

/// Whether a process has not begun to end.
fn has_memory(proc: &Path, pid: i32) -> bool {
    let stat = std::fs::read_to_string(proc.join(format!("{pid}/stat"))).ok();
    stat.and_then(|stat| parse(&stat)).is_some_and(|stat| stat.pages > 0)
}

/// The bytes that the files of the program's own folder take. `root` is the root of the file system
/// as the launcher sees it.
fn files_in(root: &Path, home: &Path) -> u64 {
    let inside = root.join(home.strip_prefix("/").unwrap_or(home));
    let device = |path: &Path| std::fs::metadata(path).map(|it| it.dev());
    let is_own = matches!((device(&inside), device(home)), (Ok(own), Ok(other)) if own != other);
    if is_own {
        let Ok(all) = rustix::fs::statvfs(&inside) else { return 0 };
        let bytes = all.f_blocks.saturating_sub(all.f_bfree).saturating_mul(all.f_frsize);
        let files = all.f_files.saturating_sub(all.f_ffree);
        return bytes.saturating_add(files.saturating_mul(FILE));
    }
    files_below(home)
}

/// The bytes of the files in a folder, at most [`FOLDER_ENTRIES`] of them; a folder with more, or
/// with paths that are too long to follow, counts as larger than any limit.
fn files_below(folder: &Path) -> u64 {
    let (mut open, mut bytes, mut entries) = (vec![PathBuf::from(folder)], 0_u64, 0_usize);
    while let Some(folder) = open.pop() {
        let listed = match std::fs::read_dir(&folder) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::InvalidFilename => return u64::MAX,
            Err(_) => continue,
        };
        for entry in listed.flatten() {
            entries += 1;
            if entries > FOLDER_ENTRIES {
                return u64::MAX;
            }
            let Ok(found) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(found.blocks().saturating_mul(512)).saturating_add(FILE);
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

/// The number of processes and threads of the whole machine; 0 if it is unknown. One file has
/// it, where [`usage_below`] reads one of each process.
pub(super) fn tasks_of_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    // `0.20 0.18 0.12 1/80 11206`: the runnable ones, and all.
    let tasks = text.split(' ').nth(3).and_then(|field| field.split_once('/')?.1.parse().ok());
    tasks.unwrap_or_default()
}

fn processes(proc: &Path) -> BTreeMap<i32, ProcessStat> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // A process that has ended meanwhile has no file.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, parse(&stat)?))
    });
    stats.collect()
}

/// Parses `PID (NAME) STATE PARENT …`; the name may hold spaces and parentheses.
fn parse(stat: &str) -> Option<ProcessStat> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    // `man 5 proc_pid_stat` counts from 1, and the state is its third field.
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let count = |field: usize| number(field).map(i64::unsigned_abs);
    Some(ProcessStat {
        parent: i32::try_from(number(4)?).ok()?,
        own: count(14)? + count(15)?,
        waited: count(16)? + count(17)?,
        threads: count(20)?,
        pages: count(24)?,
    })
}

type Children = BTreeMap<i32, Vec<i32>>;

fn children_of(all: &BTreeMap<i32, ProcessStat>) -> Children {
    let mut children = Children::new();
    for (pid, stat) in all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    children
}

/// The children of these processes, their children, and so on.
fn below(children: &Children, tops: &[i32]) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = tops.to_vec();
    while let Some(pid) = open.pop() {
        let next = children.get(&pid).into_iter().flatten();
        found.extend(next.clone());
        open.extend(next);
    }
    found
}

/// The usage of the launcher's program, and its processes.
fn measure(all: &BTreeMap<i32, ProcessStat>, launcher: i32) -> (ProcessUsage, Vec<i32>) {
    let children = children_of(all);
    let seconds = children.get(&launcher).cloned().unwrap_or_default();
    let mut ticks: u64 =
        seconds.iter().filter_map(|pid| all.get(pid)).map(|stat| stat.waited).sum();
    let (mut processes, mut pages) = (0_u64, 0_u64);
    let programs = below(&children, &seconds);
    for stat in programs.iter().filter_map(|pid| all.get(pid)) {
        processes = processes.saturating_add(stat.threads);
        pages = pages.saturating_add(stat.pages);
        ticks = ticks.saturating_add(stat.own).saturating_add(stat.waited);
    }
    let used = ProcessUsage {
        processes,
        memory: pages.saturating_mul(rustix::param::page_size() as u64),
        cpu_ms: ticks.saturating_mul(1_000) / rustix::param::clock_ticks_per_second().max(1),
    };
    (used, programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_ended_children_counts_and_the_launchers_own_does_not() {
        let stat =
            |parent, own, waited, pages| ProcessStat { parent, own, waited, threads: 2, pages };
        let all = [
            (1, stat(0, 900, 900, 900)),
            (10, stat(1, 90, 90, 90)),
            (11, stat(10, 80, 7, 80)),
            (12, stat(11, 3, 2, 1)),
            (13, stat(12, 5, 0, 4)),
        ];
        let (used, programs) = measure(&all.into(), 10);
        assert_eq!(programs, [12, 13]);
        let tick = 1_000 / rustix::param::clock_ticks_per_second();
        assert_eq!((used.processes, used.cpu_ms), (4, (7 + 3 + 2 + 5) * tick));
        assert_eq!(used.memory, 5 * rustix::param::page_size() as u64);
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let stat = "7 (a) R 9) S 3 7 7 0 -1 0 0 0 0 0 11 12 13 14 20 0 1 0 5 6 77 0";
        let expected = ProcessStat { parent: 3, own: 23, waited: 27, threads: 1, pages: 77 };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn the_machine_has_at_least_the_tasks_of_this_process() {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count() as u64;
        assert!(tasks_of_machine() >= threads);
    }

    #[test]
    fn this_process_is_found() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(processes(Path::new("/proc")).contains_key(&me));
    }
}
