//! The resources that a program uses together with all that it started, as the kernel reports them.

use std::collections::BTreeMap;
use std::path::Path;

/// The use of resources of a process and its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// Processes and their threads.
    pub(super) processes: u64,
    /// In bytes, with shared pages counted for each process.
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

/// Returns the usage of all descendants of the launcher's second process, and the time of those that
/// have ended. `launcher` is the first process.
pub(super) fn usage_below(launcher: i32) -> ProcessUsage {
    measure(&processes(Path::new("/proc")), launcher)
}

/// Returns the number of processes and threads of the whole machine; 0 if it is unknown. One file has
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

fn measure(all: &BTreeMap<i32, ProcessStat>, launcher: i32) -> ProcessUsage {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, stat) in all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let below = |pid: i32| children.get(&pid).into_iter().flatten().copied();
    let seconds = below(launcher).collect::<Vec<_>>();
    let mut ticks: u64 =
        seconds.iter().filter_map(|pid| all.get(pid)).map(|stat| stat.waited).sum();
    let (mut processes, mut pages) = (0_u64, 0_u64);
    let mut open: Vec<i32> = seconds.into_iter().flat_map(below).collect();
    while let Some(pid) = open.pop() {
        open.extend(below(pid));
        let Some(stat) = all.get(&pid) else { continue };
        processes = processes.saturating_add(stat.threads);
        pages = pages.saturating_add(stat.pages);
        ticks = ticks.saturating_add(stat.own).saturating_add(stat.waited);
    }
    ProcessUsage {
        processes,
        memory: pages.saturating_mul(rustix::param::page_size() as u64),
        cpu_ms: ticks.saturating_mul(1_000) / rustix::param::clock_ticks_per_second().max(1),
    }
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
        let used = measure(&all.into(), 10);
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
