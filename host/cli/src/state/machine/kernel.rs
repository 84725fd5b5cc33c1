//! Checks of the kernel: how sandboxes are cleaned, and how many fit.

use std::fs;

use conclave_runtime::engine::{EngineSettings, has_page_map_scan};

use super::Finding;
use crate::ui::show;
use crate::ui::show::amounts::count;

/// Memory maps of a live sandbox, at most: its memory and tables, the guards between them, its
/// stack, and copies of its data.
const MAPS_OF_A_SANDBOX: u64 = 6;
/// Bytes of address space that a pool of 256 slots reserves for each, roughly.
const SPACE_OF_A_SLOT: u64 = 8 << 30;
const FEW_FILES: u64 = 1_024;

pub(crate) fn page_map_scan() -> Finding {
    const WHAT: &str = "page-map scan";
    if has_page_map_scan() {
        return Finding::ok(WHAT, "supported: only written pages of a sandbox are reset");
    }
    Finding::note(
        WHAT,
        "not supported by the kernel: a fresh sandbox costs several times as much",
        "use Linux 6.7 or newer",
    )
}

/// Checks the kernel's limit on memory maps of a process.
pub(crate) fn maps() -> Option<Finding> {
    const WHAT: &str = "map limit";
    let limit = number("/proc/sys/vm/max_map_count")?;
    let slots = u64::from(EngineSettings::default().slots);
    let found = format!(
        "{} maps: room for about {} sandboxes alive at once, of which the host uses {slots}",
        count(limit),
        count(limit / MAPS_OF_A_SANDBOX)
    );
    if limit / MAPS_OF_A_SANDBOX >= slots {
        return Some(Finding::ok(WHAT, found));
    }
    Some(Finding::fail(
        WHAT,
        found,
        format!("sudo sysctl vm.max_map_count={}", slots * MAPS_OF_A_SANDBOX * 2),
    ))
}

/// Checks for a limit on address space. It would break the pool, which reserves much of it and uses
/// little.
pub(crate) fn address_space() -> Option<Finding> {
    const WHAT: &str = "address space";
    let Some(limit) = limit("Max address space")? else {
        return Some(Finding::ok(WHAT, "no limit"));
    };
    let found = format!("limited to {}", show::bytes(limit));
    if limit >= SPACE_OF_A_SLOT * u64::from(EngineSettings::default().slots) {
        return Some(Finding::ok(WHAT, found));
    }
    Some(Finding::fail(
        WHAT,
        found,
        "the pool of sandboxes only reserves address space, but needs it: `ulimit -v unlimited`",
    ))
}

pub(crate) fn open_files() -> Option<Finding> {
    const WHAT: &str = "open files";
    let Some(limit) = limit("Max open files")? else {
        return Some(Finding::ok(WHAT, "no limit"));
    };
    if limit >= FEW_FILES {
        return Some(Finding::ok(WHAT, format!("up to {}", count(limit))));
    }
    Some(Finding::note(WHAT, format!("only {limit}"), "`ulimit -n 4096` for many runs at once"))
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The soft limit of this process. The inner `None` means unlimited, the outer one that the file is
/// missing.
fn limit(name: &str) -> Option<Option<u64>> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse().ok())
}
