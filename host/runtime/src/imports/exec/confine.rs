//! The launcher's side. A first process leaves the machine's namespaces; a second one, which is the
//! first of a namespace of processes, gives up its rights, starts the program and reports its end.
//! When either is killed, the kernel kills everything that the program started.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope, path_beneath_rules,
};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::{Deserialize, Serialize};

use super::ProgramSpec;

/// Files in the private folder of a program, beside its home.
pub(super) const SPEC: &str = "spec.json";
pub(super) const REPORT: &str = "report.json";
/// The program's own folder in there: `HOME` and `TMPDIR`.
pub(super) const HOME: &str = "home";
/// A file that the first process locks for as long as it lives.
const LOCK: &str = "launcher.lock";
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

/// System files and folders that every program may read and execute.
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
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
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
/// Maximum open files of a process.
const FILES: u64 = 1_024;
/// Lowers the priority as far as it goes: many busy processes must not keep the host from stopping
/// them.
const NICENESS: i32 = 19;

/// Confines this process and runs a program in it, as its arguments say. Meant for a program started
/// by [`ProgramLauncher`](super::ProgramLauncher), which must call it before it starts any thread,
/// and exit with the code that it returns.
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
        return match outside(&launch, folder) {
            Ok(()) => 0,
            Err(report) => File::create(folder.join(REPORT)).map_or(1, |file| write(file, &report)),
        };
    }
    // Opened before this process gives up the right to; the program does not inherit it.
    let Ok(file) = File::create(folder.join(REPORT)) else { return 1 };
    write(file, &inside(&launch.spec, folder))
}

fn write(mut file: File, report: &ProgramReport) -> u8 {
    let json = serde_json::to_vec(report).map_err(std::io::Error::from);
    json.and_then(|json| file.write_all(&json)).map_or(1, |()| 0)
}

/// Isolates this process, and starts the second one in it.
fn outside(launch: &Launch, folder: &Path) -> Result<(), ProgramReport> {
    let spec = &launch.spec;
    close_inherited();
    let failed = |error: std::io::Error| ProgramReport::NotStarted {
        reason: format!("the launcher cannot lock its folder: {error}"),
    };
    let lock = File::create(folder.join(LOCK)).map_err(failed)?;
    lock.lock().map_err(failed)?;
    // Again below, because a process that gains rights loses it.
    die_with_parent();
    refuse_unless(
        spec,
        isolate(spec.network).and_then(|()| {
            // Only in a namespace of its own. With the whole private folder, for the report; Landlock
            // leaves the program its home only.
            close_the_disk(&writable(spec, folder))
        }),
    )?;
    refuse_unless(spec, drop_capabilities())?;
    die_with_parent();
    require_host()?;
    let unstarted = |error: std::io::Error| ProgramReport::NotStarted {
        reason: format!("the launcher cannot start itself: {error}"),
    };
    let mut second = Command::new(&launch.program);
    second.args(&launch.args).arg(folder).arg(INSIDE);
    let mut child = second.spawn().map_err(unstarted)?;
    child.wait().map(drop).map_err(unstarted)
}

/// Gives up all other rights, starts the program and waits for its end.
fn inside(spec: &ProgramSpec, folder: &Path) -> ProgramReport {
    die_with_parent();
    let is_watched = require_parent(folder);
    // Signals to the program's group must not reach this process.
    let _ = rustix::process::setsid();
    // One after the other, so that `best-effort` has all that there is.
    let confined = refuse_unless(spec, set_limits(spec))
        .and_then(|()| refuse_unless(spec, restrict(spec, folder)))
        .and_then(|()| refuse_unless(spec, filter(spec)))
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
    // Not of this process, which must be quick to end them. What it starts meanwhile keeps a higher
    // priority, which costs the host time and no more.
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
fn refuse_unless(spec: &ProgramSpec, done: Result<(), String>) -> Result<(), ProgramReport> {
    match done {
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
    // Without it, a program whose host is killed runs on to its own limits.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Checks that the host still reads the output. If it was killed before `die_with_parent`, no signal
/// comes any more.
fn require_host() -> Result<(), ProgramReport> {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_gone = poll(&mut polled, Some(&now)).is_err()
        || polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
    match is_gone {
        true => Err(ProgramReport::NotStarted { reason: "the host is gone".to_owned() }),
        false => Ok(()),
    }
}

/// Checks that the first process lives, now that its death is a signal. The host may be about to die
/// too: its threads end one after the other, and the first process with the one that started it.
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
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))
}

/// Returns the folders that the program may write, besides one more.
fn writable(spec: &ProgramSpec, own: &Path) -> Vec<PathBuf> {
    spec.write.iter().cloned().chain([own.to_owned()]).collect()
}

/// Makes all mounted file systems read-only for this process, except these folders. Landlock does
/// not cover changes of owners, permissions and times.
fn close_the_disk(except: &[PathBuf]) -> Result<(), String> {
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

/// Returns the mount point of a line of `mountinfo`, and its flags, which must not be lost.
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

/// Returns a path of `mountinfo`, in which spaces and the like are written as `\040`.
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

/// Drops what `root` of the new namespace may do, also in programs that it starts.
fn drop_capabilities() -> Result<(), String> {
    use rustix::thread::{
        CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    };
    for capability in CapabilitySet::all().iter() {
        // A kernel knows no capability that is newer than itself.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)
                .map_err(|error| format!("capabilities cannot be dropped: {error}"))?;
        }
    }
    Ok(())
}

fn set_limits(spec: &ProgramSpec) -> Result<(), String> {
    let seconds = spec.cpu_ms.div_ceil(1_000);
    let processes = u64::from(spec.processes) + 2;
    // This process has its own data, and could start nothing if they were above the limit.
    let memory = spec.memory.saturating_add(own_data());
    let limits = [
        (Resource::Core, 0, 0),
        (Resource::Cpu, seconds, seconds + 1),
        (Resource::Data, memory, memory),
        (Resource::Fsize, spec.file_size, spec.file_size),
        (Resource::Nofile, FILES, FILES),
        // Counted in the namespace of users, with the launcher's two. The host counts too, because
        // `root` is exempt.
        (Resource::Nproc, processes, processes),
    ];
    for (resource, soft, hard) in limits {
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })
            .map_err(|error| format!("limits cannot be set: {error}"))?;
    }
    Ok(())
}

/// Returns the writable memory of this process in bytes.
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
    let network = if spec.network { NETWORK } else { &[] };
    let system = SYSTEM.iter().chain(network).map(PathBuf::from);
    let read = system.chain(spec.read.iter().cloned()).chain([PathBuf::from(&spec.program)]);
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .map_err(|error| failed(&error))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(BEST))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(read, AccessFs::from_read(BEST))))
        .and_then(|rules| rules.add_rules(path_beneath_rules(DEVICES, device)))
        .and_then(|rules| {
            let folders = writable(spec, &folder.join(HOME));
            rules.add_rules(path_beneath_rules(folders, AccessFs::from_all(BEST)))
        })
        .and_then(|rules| rules.restrict_self())
        .map(drop)
        .map_err(|error| failed(&error))
}

/// Forbids system calls that change the machine, look into other processes or leave the confinement.
fn filter(spec: &ProgramSpec) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("seccomp cannot be used: {error}");
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let program = |calls: Vec<(i64, Vec<SeccompRule>)>, errno: i32| {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let calls = calls.into_iter().collect();
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, errno, arch)?;
        BpfProgram::try_from(filter)
    };
    let denied = denied_calls(spec.network).map_err(|error| failed(&error))?;
    let denied = program(denied, libc::EPERM).map_err(|error| failed(&error))?;
    let unknown = program(unknown_calls(), libc::ENOSYS).map_err(|error| failed(&error))?;
    [denied, unknown]
        .iter()
        .try_for_each(|program| seccompiler::apply_filter(program))
        .map_err(|error| failed(&error))
}

/// Returns the system calls that a program finds missing, so that it does without.
fn unknown_calls() -> Vec<(i64, Vec<SeccompRule>)> {
    let calls = [
        // Its flags are in memory, which a filter cannot read. Libraries then use `clone`.
        libc::SYS_clone3,
        // Memory that no process is charged for.
        libc::SYS_memfd_create,
        libc::SYS_memfd_secret,
        libc::SYS_shmget,
        // They report what happens in folders that are closed.
        libc::SYS_inotify_init1,
        libc::SYS_inotify_add_watch,
    ];
    let mut calls: Vec<(i64, Vec<SeccompRule>)> =
        calls.map(|call| (call, Vec::new())).into_iter().collect();
    #[cfg(target_arch = "x86_64")]
    {
        calls.push((libc::SYS_inotify_init, Vec::new()));
        let again: Vec<_> =
            calls.iter().map(|(call, _)| (0x4000_0000 | call, Vec::new())).collect();
        calls.extend(again);
    }
    calls
}

/// Returns the forbidden system calls, some only with certain arguments.
fn denied_calls(network: bool) -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    const ALWAYS: &[i64] = &[
        // Other namespaces and mounts.
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_fanotify_init,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
        // Other processes.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_perf_event_open,
        // Parts of the kernel with many defects, or that act past these filters.
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // The machine itself.
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_syslog,
        libc::SYS_vhangup,
    ];
    let condition = |index: u8, operation: SeccompCmpOp, value: u64| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operation, value)
    };
    let rule = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let namespaces = namespaces
        .map(|flag| u64::from(flag.unsigned_abs()))
        .map(|flag| rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?]));
    // A socket of the machine, such as that of a container engine, is a file that no rule covers.
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let socket = if network {
        let others =
            families.map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
        vec![rule(others.into_iter().collect::<Result<_, _>>()?)?]
    } else {
        Vec::new()
    };
    // A pair of datagram sockets can send to a socket of the machine, one of streams cannot.
    let pair = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| {
        rule(vec![condition(1, SeccompCmpOp::MaskedEq(0xf), u64::from(kind.unsigned_abs()))?])
    });
    // The limits of another process, such as the second one of the launcher.
    let limits = rule(vec![condition(0, SeccompCmpOp::Ne, 0)?])?;
    // Puts keys into a terminal, as if the user had typed them.
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX]
        .map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, request)?]));
    let mut calls: Vec<(i64, Vec<SeccompRule>)> = vec![
        (libc::SYS_clone, namespaces.into_iter().collect::<Result<_, _>>()?),
        (libc::SYS_socket, socket),
        (libc::SYS_socketpair, pair.into_iter().collect::<Result<_, _>>()?),
        (libc::SYS_prlimit64, vec![limits]),
        (libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?),
    ];
    calls.extend(ALWAYS.iter().map(|call| (*call, Vec::new())));
    #[cfg(target_arch = "x86_64")]
    {
        calls.extend([libc::SYS_iopl, libc::SYS_ioperm].map(|call| (call, Vec::new())));
        calls.extend(other_numbers(&calls));
    }
    Ok(calls)
}

/// Returns the numbers under which the kernel may offer the same system calls a second time, to
/// programs with short addresses (x32): all of these calls, and those with numbers of their own.
#[cfg(target_arch = "x86_64")]
fn other_numbers(calls: &[(i64, Vec<SeccompRule>)]) -> Vec<(i64, Vec<SeccompRule>)> {
    const SHORT: i64 = 0x4000_0000;
    let same = calls.iter().map(|(call, rules)| (SHORT | call, rules.clone()));
    same.chain((512..=547).map(|call| (SHORT | call, Vec::new()))).collect()
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

    #[test]
    fn every_filter_is_a_program_that_the_kernel_takes() {
        for network in [true, false] {
            let calls = denied_calls(network).unwrap().into_iter().collect();
            let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
            let errno = SeccompAction::Errno(1);
            let filter = SeccompFilter::new(calls, SeccompAction::Allow, errno, arch).unwrap();
            // The kernel takes 4 096 instructions.
            assert!(BpfProgram::try_from(filter).unwrap().len() < 4_096);
        }
    }
}
