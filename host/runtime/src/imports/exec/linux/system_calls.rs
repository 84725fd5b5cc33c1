//! The system calls that a program of the machine may not make.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// `fchmodat2`, which not every version of the library of system calls names; the same number on
/// every architecture.
const FCHMODAT2: i64 = 452;
/// The system calls that are newer than these filters, from `open_tree_attr` (Linux 6.15) on.
/// They are not reviewed; programs do without, as on an older kernel.
const LATER_CALLS: std::ops::RangeInclusive<i64> = 467..=511;

/// Forbids system calls that change the machine, look into other processes or leave the
/// confinement.
pub(super) fn deny_system_calls(network: bool) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("seccomp cannot be used: {error}");
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let program = |calls: Vec<(i64, Vec<SeccompRule>)>, errno: i32| {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let calls = calls.into_iter().collect();
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, errno, arch)?;
        BpfProgram::try_from(filter)
    };
    let denied = denied_calls(network).map_err(|error| failed(&error))?;
    let denied = program(denied, libc::EPERM).map_err(|error| failed(&error))?;
    let unknown = program(unknown_calls(), libc::ENOSYS).map_err(|error| failed(&error))?;
    [denied, unknown]
        .iter()
        .try_for_each(|program| seccompiler::apply_filter(program))
        .map_err(|error| failed(&error))
}

/// The system calls that a program finds missing, so that it does without.
fn unknown_calls() -> Vec<(i64, Vec<SeccompRule>)> {
    let calls = [
        // Its flags are in memory, which a filter cannot read. Libraries then use `clone`.
        libc::SYS_clone3,
        // Memory that no process is charged for: of files without a name, and of the queues,
        // semaphores and shared parts of System V and POSIX.
        libc::SYS_memfd_create,
        libc::SYS_memfd_secret,
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        // Their modes are in memory too, or came with a later kernel than their filter's list.
        // Libraries then use `openat` and `fchmodat`.
        libc::SYS_openat2,
        FCHMODAT2,
        // They report what happens in folders that are closed.
        libc::SYS_inotify_init1,
        libc::SYS_inotify_add_watch,
    ];
    let mut calls: Vec<(i64, Vec<SeccompRule>)> =
        calls.into_iter().chain(LATER_CALLS).map(|call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    {
        calls.push((libc::SYS_inotify_init, Vec::new()));
        let x32: Vec<_> = calls.iter().map(|(call, _)| (0x4000_0000 | call, Vec::new())).collect();
        calls.extend(x32);
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
        (libc::SYS_socket, denied_sockets(network)?),
        (libc::SYS_socketpair, pair.into_iter().collect::<Result<_, _>>()?),
        (libc::SYS_prlimit64, vec![limits]),
        (libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?),
        (libc::SYS_setsockopt, larger_buffers()?),
    ];
    calls.extend(privileged_files()?);
    calls.extend(ALWAYS.iter().map(|call| (*call, Vec::new())));
    #[cfg(target_arch = "x86_64")]
    {
        calls.extend([libc::SYS_iopl, libc::SYS_ioperm].map(|call| (call, Vec::new())));
        calls.extend(other_numbers(&calls));
    }
    Ok(calls)
}

/// Returns the rules for sockets: all are forbidden without the network, and all but those of the
/// internet with it.
fn denied_sockets(network: bool) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if !network {
        return Ok(Vec::new());
    }
    // A socket of the machine, such as that of a container engine, is a file that no rule covers.
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others =
        families.map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    // Programs ask for the machine's addresses by `NETLINK_ROUTE`. The other protocols report on
    // sockets, devices and audits of the machine.
    let netlink = condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_NETLINK.unsigned_abs()))?;
    let protocol = u64::from(libc::NETLINK_ROUTE.unsigned_abs());
    let other_protocol = condition(2, SeccompCmpOp::Ne, protocol)?;
    Ok(vec![
        SeccompRule::new(others.into_iter().collect::<Result<_, _>>()?)?,
        SeccompRule::new(vec![netlink, other_protocol])?,
    ])
}

/// Returns the rules against larger buffers of sockets. The host counts each socket with the size
/// that it has by default.
fn larger_buffers() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let options = [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE, libc::SO_RCVBUF, libc::SO_RCVBUFFORCE];
    let socket = || condition(1, SeccompCmpOp::Eq, u64::from(libc::SOL_SOCKET.unsigned_abs()));
    let rules = options.map(|option| {
        let option = condition(2, SeccompCmpOp::Eq, u64::from(option.unsigned_abs()))?;
        SeccompRule::new(vec![socket()?, option])
    });
    rules.into_iter().collect()
}

/// Returns the rules against files that run with the rights of their owner or group: calls that set
/// a mode, and calls that make a file with one. systemd has the same with `RestrictSUIDSGID`.
fn privileged_files() -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    /// The call, the index of its mode, and that of its flags if only some make a file.
    type ModeCall = (i64, u8, Option<u8>);
    const EVERYWHERE: &[ModeCall] = &[
        (libc::SYS_fchmod, 1, None),
        (libc::SYS_fchmodat, 2, None),
        (libc::SYS_mkdirat, 2, None),
        (libc::SYS_mknodat, 2, None),
        (libc::SYS_openat, 3, Some(2)),
    ];
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[ModeCall] = &[
        (libc::SYS_chmod, 1, None),
        (libc::SYS_mkdir, 1, None),
        (libc::SYS_mknod, 1, None),
        (libc::SYS_creat, 1, None),
        (libc::SYS_open, 2, Some(1)),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[ModeCall] = &[];
    // `O_TMPFILE` holds the bit of folders too, which other calls may have.
    const UNNAMED: u64 = 0o20_000_000;
    let makes = [u64::from(libc::O_CREAT.unsigned_abs()), UNNAMED];
    let has = |index, bit| condition(index, SeccompCmpOp::MaskedEq(bit), bit);
    let mut calls = Vec::new();
    for (call, mode, flags) in EVERYWHERE.iter().chain(OLDER).copied() {
        let mut rules = Vec::new();
        for bit in [u64::from(libc::S_ISUID), u64::from(libc::S_ISGID)] {
            match flags {
                None => rules.push(SeccompRule::new(vec![has(mode, bit)?])?),
                Some(flags) => {
                    for make in makes {
                        let conditions = vec![has(mode, bit)?, has(flags, make)?];
                        rules.push(SeccompRule::new(conditions)?);
                    }
                }
            }
        }
        calls.push((call, rules));
    }
    Ok(calls)
}

fn condition(
    index: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operation, value)
}

/// The numbers under which the kernel may offer the same system calls a second time, to programs
/// with short addresses (x32): all of these calls, and those with numbers of their own.
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
