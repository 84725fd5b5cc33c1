//! The launcher's side. A first process leaves the machine's namespaces and supervises; a second
//! one, which is the first of a namespace of processes, gives up its rights, starts the program and
//! reports its end. When the second one ends, the kernel kills everything that the program started;
//! where it gives no namespaces, the first one does.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, setrlimit};
use serde::{Deserialize, Serialize};

use super::loopback::open_proxy;
use super::mounts::{make_read_only_except, mount_home, mount_processes};
use super::supervise::{adopt_orphans, block_polite, is_unread, supervise};
use super::system_calls::deny_system_calls;
use crate::imports::exec::{NetworkAccess, ProgramSpec, interpreters};

/// Files in the private folder of a program, beside its home.
pub(super) const SPEC: &str = "spec.json";
pub(super) const REPORT: &str = "report.json";
/// The program's own folder in there: `HOME` and `TMPDIR`.
pub(super) const HOME: &str = "home";
/// The socket by which the host gets the listener of a server's proxy.
pub(super) const PROXY: &str = "proxy.sock";
/// A file that the first process locks for as long as it lives.
pub(super) const LOCK: &str = "launcher.lock";
/// The last argument of the second process.
const INSIDE: &str = "inside";

/// The result, as the launcher reports it to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub(super) enum ProgramReport {
    Exited { code: u8 },
    Killed { signal: u8 },
    Unconfined { reason: String },
    NotStarted { reason: String },
}

/// What the host writes for the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    /// The launcher's own program and arguments, for its second process.
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) spec: ProgramSpec,
}

/// System files and folders that every program may read.
const SYSTEM: &[&str] = &[
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/sbin",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gitconfig",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/dev/random",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
];
/// The names of the machine's users. A server does without: who uses the machine is not its concern.
const USERS: &[&str] = &["/etc/group", "/etc/passwd"];
/// Those that a program with `network` may read besides.
const NETWORK: &[&str] = &[
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/run/systemd/resolve/stub-resolv.conf",
];
/// Devices that every program may read and write.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];
/// The loaders of shared libraries, which the kernel starts together with a program.
const LOADERS: &[&str] = &[
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/lib/ld-musl-riscv64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib64/ld-linux-x86-64.so.2",
];
/// Maximum open files of a process.
pub(super) const FILES: u64 = 1_024;
/// The lowest priority, so that many busy processes cannot keep the host from stopping them.
const NICENESS: i32 = 19;

/// Confines this process and runs a program in it, as its arguments say. Meant for a program started
/// by [`ProgramLauncher`](crate::exec::ProgramLauncher), which must call it before it starts
/// any thread, and exit with the code that it returns.
#[must_use]
pub fn run_confined(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let (folder, is_inside) = match arguments.as_slice() {
        [folder] => (Path::new(folder), false),
        [folder, last] if last == INSIDE => (Path::new(folder), true),
        _ => return 2,
    };
    let spec = std::fs::read(folder.join(SPEC)).ok();
    let Some(launch) = spec.and_then(|json| serde_json::from_slice::<Launch>(&json).ok()) else {
        return 2;
    };
    if !is_inside {
        return match run_outside(&launch, folder) {
            Ok(()) => 0,
            Err(report) => File::create(folder.join(REPORT)).map_or(1, |file| write(file, &report)),
        };
    }
    // It may hold keys of a server, and nobody reads it any more.
    let _ = std::fs::remove_file(folder.join(SPEC));
    // Opened before this process gives up the right to; the program does not inherit it.
    let Ok(file) = File::create(folder.join(REPORT)) else { return 1 };
    write(file, &inside(&launch.spec, folder))
}

fn write(mut file: File, report: &ProgramReport) -> u8 {
    let json = serde_json::to_vec(report).map_err(std::io::Error::from);
    json.and_then(|json| file.write_all(&json)).map_or(1, |()| 0)
}

/// Isolates this process, and starts the second one in it.
fn run_outside(launch: &Launch, folder: &Path) -> Result<(), ProgramReport> {
    let spec = &launch.spec;
    close_inherited();
    let failed = |error: std::io::Error| ProgramReport::NotStarted {
        reason: format!("the launcher cannot lock its folder: {error}"),
    };
    let lock = File::create(folder.join(LOCK)).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let isolated = isolate(spec.network == NetworkAccess::Machine).and_then(|()| {
        // Only in a namespace of its own. With the whole private folder, for the report; Landlock
        // leaves the program its home only.
        make_read_only_except(&writable(spec, folder))?;
        mount_home(&folder.join(HOME), spec.memory)
    });
    refuse_unless(spec, isolated)?;
    if spec.network == NetworkAccess::Proxy {
        let opened = open_proxy(&folder.join(PROXY));
        opened.map_err(|reason| ProgramReport::Unconfined { reason })?;
    }
    require_host()?;
    let unstarted = |error: std::io::Error| ProgramReport::NotStarted {
        reason: format!("the launcher cannot start itself: {error}"),
    };
    adopt_orphans();
    // The second process needs them to mount its own `/proc`, and then drops them.
    let _ = keep_capabilities();
    let mut second = Command::new(&launch.program);
    second.args(&launch.args).arg(folder).arg(INSIDE);
    let mut child = second.spawn().map_err(unstarted)?;
    let _ = drop_capabilities();
    // Blocked after the start, because the second process would inherit it.
    let polite = spec.is_server.then(block_polite).flatten();
    supervise(&mut child, polite.as_ref().map(AsFd::as_fd), true);
    Ok(())
}

/// Gives up all other rights, starts the program and waits for its end.
fn inside(spec: &ProgramSpec, folder: &Path) -> ProgramReport {
    die_with_parent();
    let is_watched = require_parent(folder);
    // Signals to the program's group must not reach this process.
    let _ = rustix::process::setsid();
    // Orphans of the program stay below this process, where they are counted.
    adopt_orphans();
    if is_isolated() {
        // Without it, a program sees numbers and owners of the machine's processes, no more.
        let _ = mount_processes();
    }
    // One after the other, so that `best-effort` has all that there is.
    let confined = refuse_unless(spec, drop_capabilities())
        .and_then(|()| refuse_unless(spec, set_limits(spec)))
        .and_then(|()| refuse_unless(spec, restrict(spec, folder)))
        .and_then(|()| refuse_unless(spec, deny_system_calls(spec.network != NetworkAccess::None)))
        .and_then(|()| require_host());
    if let Err(report) = is_watched.and(confined) {
        return report;
    }
    let home = folder.join(HOME);
    let mut command = Command::new(&spec.program);
    command.args(&spec.arguments).env_clear().env("HOME", &home).env("TMPDIR", &home);
    command.envs(&spec.env).current_dir(spec.directory.as_ref().unwrap_or(&home));
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return ProgramReport::NotStarted { reason: error.to_string() },
    };
    let program = Pid::from_child(&child);
    // This process keeps its priority, because the host kills the others through it.
    let _ = rustix::process::setpriority_process(Some(program), NICENESS);
    loop {
        // Also orphans of the program, whose parent this process becomes.
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                let signal =
                    status.terminating_signal().and_then(|signal| u8::try_from(signal).ok());
                return match (code, signal) {
                    (Some(code), _) => ProgramReport::Exited { code },
                    (None, signal) => ProgramReport::Killed { signal: signal.unwrap_or_default() },
                };
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return ProgramReport::NotStarted { reason: error.to_string() },
        }
    }
}

/// Turns a missing confinement into a refusal, unless the operator accepts it.
fn refuse_unless(spec: &ProgramSpec, result: Result<(), String>) -> Result<(), ProgramReport> {
    match result {
        Err(reason) if spec.required => Err(ProgramReport::Unconfined { reason }),
        _ => Ok(()),
    }
}

/// Closes files that this process inherited, such as those of the operator's shell.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> =
        open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The one of the folder that was just read is closed already.
        let _ = nix::unistd::close(fd);
    }
}

fn die_with_parent() {
    // The first process supervises; without it, nothing would end what the program started.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Checks that the host still reads the output, so that no program starts for a host that was
/// killed.
fn require_host() -> Result<(), ProgramReport> {
    match is_unread() {
        true => Err(ProgramReport::NotStarted { reason: "the host is gone".to_owned() }),
        false => Ok(()),
    }
}

/// Checks that the first process lives, now that its death is a signal.
fn require_parent(folder: &Path) -> Result<(), ProgramReport> {
    match File::open(folder.join(LOCK)).map(|file| file.try_lock()) {
        Ok(Err(std::fs::TryLockError::WouldBlock)) => Ok(()),
        _ => Err(ProgramReport::NotStarted { reason: "the launcher is gone".to_owned() }),
    }
}

/// Moves this process to namespaces of its own, with its own user.
fn isolate(network: bool) -> Result<(), String> {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut namespaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if !network {
        namespaces |= CloneFlags::CLONE_NEWNET;
    }
    let failed = |error: &dyn std::fmt::Display| {
        format!(
            "the system gives this user no namespaces (`kernel.unprivileged_userns_clone`, `kernel.apparmor_restrict_unprivileged_userns`, `user.max_user_namespaces`): {error}"
        )
    };
    unshare(namespaces).map_err(|error| failed(&error))?;
    let map = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(|error| failed(&error))
    };
    // The kernel accepts a `gid_map` of an unprivileged process only after it.
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))
}

/// The folders that the program may write, besides one more.
fn writable(spec: &ProgramSpec, own: &Path) -> Vec<PathBuf> {
    spec.write.iter().cloned().chain([own.to_owned()]).collect()
}

/// Whether this process is the first of a namespace of processes.
fn is_isolated() -> bool {
    std::process::id() == 1
}

/// Passes the capabilities to mount, and to drop capabilities, on to a child. Without it, only a
/// child of `root` has them.
fn keep_capabilities() -> rustix::io::Result<()> {
    use rustix::thread::{
        CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
    };
    let needed = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];
    let mut sets = capabilities(None)?;
    sets.inheritable = needed.into_iter().collect();
    set_capabilities(None, sets)?;
    needed.into_iter().try_for_each(|it| configure_capability_in_ambient_set(it, true))
}

/// Removes all capabilities of this process, and those that it and its children could gain as
/// `root`.
fn drop_capabilities() -> Result<(), String> {
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capability_is_in_bounding_set,
        remove_capability_from_bounding_set, set_capabilities,
    };
    for capability in CapabilitySet::all().iter() {
        // A kernel knows no capability that is newer than itself.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)
                .map_err(|error| format!("capabilities cannot be dropped: {error}"))?;
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|error| format!("capabilities cannot be dropped: {error}"))
}

fn set_limits(spec: &ProgramSpec) -> Result<(), String> {
    let seconds = spec.cpu_ms.div_ceil(1_000);
    // This process has its own data, and could start nothing if they were above the limit.
    let memory = spec.memory.saturating_add(own_data());
    let limits = [
        (Resource::Core, 0, 0),
        // The soft limit raises SIGXCPU, by which the host knows the cause; the hard one ends a
        // program that ignores the signal.
        (Resource::Cpu, seconds, seconds + 1),
        (Resource::Data, memory, memory),
        (Resource::Fsize, spec.file_size, spec.file_size),
        (Resource::Nofile, FILES, FILES),
        (Resource::Msgqueue, 0, 0),
    ];
    // Counted in the namespace of users, with the launcher's two processes; without a namespace all
    // processes of the user would count. The host counts too, because `root` is exempt.
    let processes = u64::from(spec.processes) + 2;
    let processes = is_isolated().then_some((Resource::Nproc, processes, processes));
    for (resource, soft, hard) in limits.into_iter().chain(processes) {
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })
            .map_err(|error| format!("limits cannot be set: {error}"))?;
    }
    Ok(())
}

/// The writable memory of this process in bytes.
fn own_data() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|line| line.split(' ').nth(5)?.parse::<u64>().ok());
    pages.unwrap_or_default().saturating_mul(rustix::param::page_size() as u64)
}

/// Closes all files and folders except those that the program may read or write.
fn restrict(spec: &ProgramSpec, folder: &Path) -> Result<(), String> {
    // Later versions of the kernel cover more; the read-only mounts cover it for the others.
    const LEAST: ABI = ABI::V1;
    const BEST: ABI = ABI::V5;
    let failed = |error: &dyn std::fmt::Display| {
        format!("the kernel has no Landlock (Linux 5.13 with `lsm=…,landlock`): {error}")
    };
    let network = if spec.network == NetworkAccess::Machine { NETWORK } else { &[] };
    let users = if spec.is_server { &[] } else { USERS };
    let system = SYSTEM.iter().chain(users).chain(network).map(PathBuf::from);
    let read = system.chain(spec.read.iter().cloned());
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    let starts = [PathBuf::from(&spec.program)]
        .into_iter()
        .chain(interpreters(Path::new(&spec.program), spec.env.get("PATH").map(String::as_str)));
    let starts = starts.chain(LOADERS.iter().map(PathBuf::from)).chain(spec.starts.iter().cloned());
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .map_err(|error| failed(&error))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(BEST))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(read, look)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(starts, AccessFs::from_read(BEST))))
        .and_then(|rules| rules.add_rules(path_beneath_rules(DEVICES, device)))
        .and_then(|rules| {
            let folders = writable(spec, &folder.join(HOME));
            let all_but_start = AccessFs::from_all(BEST) & !BitFlags::from(AccessFs::Execute);
            rules.add_rules(path_beneath_rules(folders, all_but_start))
        })
        .and_then(|rules| rules.restrict_self())
        .map(drop)
        .map_err(|error| failed(&error))
}
