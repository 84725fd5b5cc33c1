//! Programs of the machine, by `grants.exec`: which start, what confines them, what stops them, and
//! what the journal holds of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use conclave_core::protocol::event::Event;
use conclave_core::types::denial::Layer;
use conclave_core::types::side_effect::{ProgramEnding, SideEffect, SideEffectAnswer};
use conclave_test_support::{Ran, Rig, calling};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{conclave, text};

/// The guest's report about one program.
#[derive(Debug, Deserialize)]
struct Came {
    ending: String,
    stdout: String,
    stderr: String,
    dropped: u64,
}

fn run(rig: &Rig, grants: &str, arguments: &Value) -> Ran {
    rig.run(&calling("exec_any", "run", arguments, grants), "go")
}

fn came(ran: &Ran) -> Came {
    serde_json::from_str(ran.content()).unwrap_or_else(|error| panic!("{error}: {}", ran.content()))
}

/// The grant of a shell with the programs of the system.
const SHELL: &str = "commands = [\"/bin/sh -c *\"], starts = [\"/usr/bin\"]";

/// Runs a shell script with these further keys of the grant.
fn script(rig: &Rig, keys: &str, script: &str) -> Came {
    let grants = format!("grants.exec = {{ {SHELL}{keys} }}");
    came(&run(rig, &grants, &json!({ "program": "sh", "arguments": ["-c", script] })))
}

/// Returns whether this machine can confine programs. If it cannot, the refusal says so.
fn confines() -> bool {
    let ran = run(&Rig::new(), "grants.exec = [\"/bin/true\"]", &json!({ "program": "true" }));
    if came(&ran).ending == "exit 0" {
        return true;
    }
    let record = ran.denials().into_iter().next().expect("a refusal");
    assert!(record.reason.contains("the program cannot be confined"), "{record:?}");
    eprintln!("skipped: {}", record.reason);
    false
}

#[test]
fn only_a_granted_command_starts() {
    let grants = "grants.exec = [\"/bin/echo hello *\"]";
    let ran = run(&Rig::new(), grants, &json!({ "program": "echo", "arguments": ["bye"] }));
    assert_eq!(came(&ran).ending, "denied echo bye");
    let record = ran.denials().into_iter().next().expect("a refusal");
    assert_eq!(record.layer, Layer::Config);
    assert_eq!(
        record.suggestion.as_deref(),
        Some("[plugins.subject] grants.exec = [\"/bin/echo hello *\", \"/usr/bin/echo bye\"]")
    );
    let started =
        ran.events("test").iter().any(|event| matches!(event, Event::SideEffectAsked { .. }));
    assert!(!started, "nothing was started");
    let ran = run(&Rig::new(), "", &json!({ "program": "/bin/true" }));
    assert_eq!(came(&ran).ending, "denied /bin/true");
    if confines() {
        let ran =
            run(&Rig::new(), grants, &json!({ "program": "echo", "arguments": ["hello", "you"] }));
        assert_eq!(
            (came(&ran).ending.as_str(), came(&ran).stdout.as_str()),
            ("exit 0", "hello you\n")
        );
    }
}

#[test]
fn a_program_has_its_input_its_folder_and_no_environment() {
    if !confines() {
        return;
    }
    let rig = Rig::new().with_file("project/a.txt", "from the project");
    let files =
        "grants.files = [{ dir = \"project\", at = \"/workspace\", mode = \"read-write\" }]";
    let grants = format!("grants.exec = {{ {SHELL}, env = {{ COLOUR = \"blue\" }} }}\n{files}");
    let text = "cat a.txt; echo; cat; pwd; echo new > b.txt; echo x > $TMPDIR/y; env | cut -d= -f1 | sort | tr '\\n' ' '";
    let arguments = json!({ "program": "sh", "arguments": ["-c", text], "directory": "/workspace", "input": "typed\n" });
    let found = came(&run(&rig, &grants, &arguments));
    let folder = rig.folder().join("project").canonicalize().unwrap();
    let expected =
        format!("from the project\ntyped\n{}\nCOLOUR HOME OLDPWD PWD TMPDIR _ ", folder.display());
    let names = |text: &str| text.replace("OLDPWD ", "").replace("_ ", "");
    assert_eq!(names(&found.stdout), names(&expected), "{found:?}");
    assert_eq!(std::fs::read_to_string(folder.join("b.txt")).unwrap(), "new\n");
}

#[test]
fn a_program_reaches_nothing_outside_its_folders() {
    if !confines() {
        return;
    }
    let rig = Rig::new()
        .with_file("secret/key", "TOP-SECRET")
        .with_file("docs/a.txt", "may be read")
        .with_file("out/b.txt", "");
    let folder = rig.folder().canonicalize().unwrap();
    let secret = folder.join("secret/key");
    std::os::unix::fs::symlink(&secret, folder.join("out/link")).unwrap();
    let before = std::fs::metadata(&secret).unwrap().permissions().mode();
    let pid = std::process::id();
    let files = "grants.files = [{ dir = \"docs\", at = \"/docs\", mode = \"read\" }, { dir = \"out\", at = \"/out\", mode = \"read-write\" }]";
    let grants = format!("grants.exec = {{ {SHELL} }}\n{files}");
    let attempts = [
        format!("cat {}", secret.display()),
        "cat link".to_owned(),
        format!("echo x > {}", secret.display()),
        format!("echo x > {}/new", folder.display()),
        format!("chmod 000 {}", secret.display()),
        format!("touch -d 2001-01-01 {}", secret.display()),
        format!("rm {}", secret.display()),
        format!("mv {} there", secret.display()),
        format!("ln {} there", secret.display()),
        format!("echo x > {}/docs/a.txt", folder.display()),
        format!("chmod 777 {}/docs/a.txt", folder.display()),
        format!("ls {}", folder.display()),
        "ls /root".to_owned(),
        "cat /etc/shadow".to_owned(),
        "echo x > /etc/conclave-test".to_owned(),
        format!("cat /proc/{pid}/environ"),
        format!("cat /proc/{pid}/cmdline"),
        "cat /proc/self/environ".to_owned(),
        format!("kill -0 {pid}"),
        format!("kill -9 {pid}"),
        "mount -t tmpfs none /out".to_owned(),
        "unshare -r true".to_owned(),
        "nsenter -t 1 -m true".to_owned(),
        "chroot / true".to_owned(),
        "hostname attacked".to_owned(),
        "kill -KILL 0".to_owned(),
        "cat /dev/mem".to_owned(),
        "echo x > /dev/tty".to_owned(),
        "echo x > /proc/self/oom_score_adj".to_owned(),
    ];
    for attempt in &attempts {
        let arguments =
            json!({ "program": "sh", "arguments": ["-c", attempt], "directory": "/out" });
        let found = came(&run(&rig, &grants, &arguments));
        assert!(found.ending != "exit 0", "{attempt} succeeded: {found:?}");
        let ended = ["exit ", "signal 9"].iter().any(|end| found.ending.starts_with(end));
        assert!(ended, "{attempt}: {found:?}");
        assert!(!found.stdout.contains("TOP-SECRET"), "{attempt}: {found:?}");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "TOP-SECRET");
    assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode(), before);
    assert_eq!(std::fs::read_to_string(folder.join("docs/a.txt")).unwrap(), "may be read");
    // What the grants do cover works, so that the refusals above mean something.
    let works = format!(
        "cat {0}/docs/a.txt > copy && chmod 700 copy && touch -d 2001-01-01 copy && mv copy moved && kill -0 $$",
        folder.display()
    );
    let arguments = json!({ "program": "sh", "arguments": ["-c", works], "directory": "/out" });
    let found = came(&run(&rig, &grants, &arguments));
    assert_eq!(found.ending, "exit 0", "{found:?}");
    let mode = std::fs::metadata(folder.join("out/moved")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_program_has_no_network_unless_it_is_granted() {
    if !confines() {
        return;
    }
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{}", address.port());
    if !Path::new("/bin/bash").exists() {
        eprintln!("skipped: bash connects in this test");
        return;
    }
    for (network, expected) in [("false", false), ("true", true)] {
        let grants =
            format!("grants.exec = {{ commands = [\"/bin/bash -c *\"], network = {network} }}");
        let arguments = json!({ "program": "bash", "arguments": ["-c", connect] });
        let found = came(&run(&Rig::new(), &grants, &arguments));
        assert_eq!(found.ending == "exit 0", expected, "{found:?}");
    }
}

/// Returns the result of a script in Perl, which makes system calls by their numbers; `None` if Perl
/// is not there.
fn perl(rig: &Rig, keys: &str, script: &str) -> Option<Came> {
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("skipped: Perl makes the system calls in this test");
        return None;
    }
    let grants = format!("grants.exec = {{ commands = [\"/usr/bin/perl -e *\"]{keys} }}");
    Some(came(&run(rig, &grants, &json!({ "program": "perl", "arguments": ["-e", script] }))))
}

#[test]
fn only_sockets_of_the_internet_exist_and_only_with_the_network() {
    if !confines() {
        return;
    }
    // Family and protocol: INET, INET6, NETLINK_ROUTE; UNIX, PACKET, ALG, VSOCK, NETLINK_SOCK_DIAG,
    // NETLINK_KOBJECT_UEVENT.
    let tried = "(2,0),(10,0),(16,0),(1,0),(17,0),(38,0),(40,0),(16,4),(16,15)";
    let script = format!(
        "my @tried = ({}); while (@tried) {{ my ($family, $protocol) = @{{shift @tried}}; \
         my $kind = $family == 16 ? 3 : $family == 38 ? 5 : $family == 17 ? 3 : 1; \
         print socket(my $socket, $family, $kind, $protocol) ? 'yes ' : $!{{EPERM}} ? 'no ' : \"$! \"; }}",
        tried.replace('(', "[").replace(')', "]")
    );
    for (network, expected) in
        [("true", "yes yes yes no no no no no no "), ("false", "no no no no no no no no no ")]
    {
        let Some(found) = perl(&Rig::new(), &format!(", network = {network}"), &script) else {
            return;
        };
        assert_eq!(
            (found.ending.as_str(), found.stdout.as_str()),
            ("exit 0", expected),
            "{found:?}"
        );
    }
}

#[test]
fn sockets_of_the_machine_are_out_of_reach_with_the_network_too() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    if !confines() {
        return;
    }
    let rig = Rig::new().with_file("work/a", "");
    let path = rig.folder().canonicalize().unwrap().join("work/socket");
    let _in_file = UnixListener::bind(&path).unwrap();
    let name = format!("conclave-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let grants = "grants.exec = { commands = [\"/usr/bin/perl -e *\"], network = true }\n\
                  grants.files = [{ dir = \"work\", at = \"/work\", mode = \"read-write\" }]";
    let script = format!(
        "use Socket; for my $name (\"{}\", \"\\0{name}\") {{ \
         my $made = socket(my $socket, 1, 1, 0) || socketpair($socket, my $other, 1, 1, 0); \
         print connect($socket, pack_sockaddr_un($name)) ? 'reached ' : 'refused '; \
         print socketpair(my $one, my $two, 1, 2, 0) ? 'datagrams ' : 'none '; }}",
        path.display()
    );
    if !Path::new("/usr/bin/perl").exists() {
        return;
    }
    let arguments = json!({ "program": "perl", "arguments": ["-e", script] });
    let found = came(&run(&rig, grants, &arguments));
    assert_eq!(
        (found.ending.as_str(), found.stdout.as_str()),
        ("exit 0", "refused none refused none "),
        "{found:?}"
    );
}

#[test]
fn system_calls_past_the_confinement_are_refused_under_both_of_their_numbers() {
    if !confines() {
        return;
    }
    // Each would otherwise succeed, or end with another error than EPERM.
    #[cfg(target_arch = "x86_64")]
    let (calls, again) = (
        [
            ("io_uring_setup", 425, "1, 0"),
            ("userfaultfd", 323, "1"),
            ("keyctl", 250, "0, -3, 0"),
            ("perf_event_open", 298, "0, 0, -1, -1, 0"),
            ("kcmp", 312, "$$, $$, 0, 0, 0"),
            ("pidfd_getfd", 438, "-1, 0, 0"),
            ("process_vm_readv", 310, "$$, 0, 0, 0, 0, 0"),
        ],
        [0, 0x4000_0000],
    );
    #[cfg(target_arch = "aarch64")]
    let (calls, again) = (
        [
            ("io_uring_setup", 425, "1, 0"),
            ("userfaultfd", 282, "1"),
            ("keyctl", 219, "0, -3, 0"),
            ("perf_event_open", 241, "0, 0, -1, -1, 0"),
            ("kcmp", 272, "$$, $$, 0, 0, 0"),
            ("pidfd_getfd", 438, "-1, 0, 0"),
            ("process_vm_readv", 270, "$$, 0, 0, 0, 0, 0"),
        ],
        [0],
    );
    let attempts =
        again.iter().flat_map(|bit| calls.map(|(name, number, rest)| (name, bit | number, rest)));
    let script: String = attempts
        .map(|(name, number, rest)| {
            format!(
                "syscall({number}, {rest}) == -1 && $!{{EPERM}} or print \"{name} {number}: $! \"; "
            )
        })
        .collect();
    let Some(found) = perl(&Rig::new(), "", &format!("{script} print 'end'")) else { return };
    assert_eq!((found.ending.as_str(), found.stdout.as_str()), ("exit 0", "end"), "{found:?}");
}

/// Keys of a grant, a script, and how it ends: with the first text where the kernel gives
/// namespaces, and with the second where it gives none. `*` stands for any end but a good one. The
/// sleeping processes have this number of seconds, by which they are found.
fn limits(seconds: u32) -> Vec<(&'static str, String, [&'static str; 2])> {
    let same =
        |keys, script: &str, end| (keys, script.replace("600", &seconds.to_string()), [end, end]);
    vec![
        same(", timeout = \"300 ms\"", "sleep 600 & exec sleep 600", "limit timeout = 300 ms"),
        same(
            ", timeout = \"300 ms\"",
            "setsid sleep 600 & trap '' TERM INT; sleep 600",
            "limit timeout = 300 ms",
        ),
        // The parent of the sleeping one has ended, and it has a session and a group of its own.
        same(
            ", timeout = \"300 ms\"",
            "(setsid sh -c 'sleep 600 & sleep 600 &' &); sleep 600",
            "limit timeout = 300 ms",
        ),
        same("", "setsid sleep 600 & (sleep 600 &); exit 3", "exit 3"),
        // A busy machine gives it that second late.
        same(
            ", cpu = \"1 s\", timeout = \"10 min\"",
            "sleep 600 & while :; do :; done",
            "limit cpu = 1 s",
        ),
        same(
            ", processes = 20",
            "i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i+1)); done; wait",
            "limit processes = 20",
        ),
        same(", memory = \"64 MiB\"", "x=0123456789abcdef; while :; do x=$x$x; done", "*"),
        same(
            ", file_size = \"1 MiB\"",
            "sleep 600 & exec head -c 9000000 /dev/zero > $TMPDIR/big",
            "limit file_size = 1 MiB",
        ),
        // A folder of memory is full; one on the disk is measured.
        (
            ", memory = \"32 MiB\", file_size = \"8 MiB\"",
            "set -e; i=0; while [ $i -lt 100 ]; do head -c 8000000 /dev/zero > $HOME/f$i; i=$((i+1)); done"
                .to_owned(),
            ["*", "limit memory = 32 MiB"],
        ),
        same(
            ", memory = \"32 MiB\"",
            "set -e; i=0; while [ $i -lt 100000 ]; do : > $HOME/f$i; i=$((i+1)); done",
            "*",
        ),
    ]
}

fn assert_no_process(seconds: u32) {
    let wanted = format!("sleep\0{seconds}\0");
    let sleeping = |pid: &String| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(wanted.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let alive: Vec<_> = names.filter(sleeping).collect();
    assert!(alive.is_empty(), "they still run: {alive:?}");
}

fn assert_end(found: &str, expected: &str, script: &str) {
    match expected {
        "*" => assert!(found != "exit 0", "{script}: {found}"),
        expected => assert_eq!(found, expected, "{script}"),
    }
}

#[test]
fn every_limit_stops_a_program_with_all_that_it_started() {
    if !confines() {
        return;
    }
    let rig = Rig::new();
    for (keys, text, [expected, _]) in limits(6_001) {
        assert_end(&script(&rig, keys, &text).ending, expected, &text);
        assert_no_process(6_001);
    }
}

/// Returns the output of a run on a machine that gives its users no namespaces.
fn without_namespaces(rig: &Rig, arguments: &[&str]) -> std::process::Command {
    let run = rig.conclave(arguments);
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let mut command = rig.bare("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(run.get_program()).args(run.get_args());
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
fn every_limit_stops_a_program_without_namespaces_too() {
    if !confines() {
        return;
    }
    for (keys, script, [_, expected]) in limits(6_002) {
        let grant = format!("grants.exec = {{ {SHELL}, confinement = \"best-effort\"{keys} }}");
        let arguments = json!({ "program": "sh", "arguments": ["-c", script] });
        let config = calling("exec_any", "run", &arguments, &grant);
        let rig = Rig::new().with_file("conclave.toml", config);
        let ran = without_namespaces(&rig, &["run", "go"]).output().expect("util-linux is there");
        let output = text(&ran.stdout);
        let came: Came = serde_json::from_str(output.trim())
            .unwrap_or_else(|error| panic!("{error}: {output}{}", text(&ran.stderr)));
        assert_end(&came.ending, expected, &script);
        assert_no_process(6_002);
        let temp = std::fs::read_dir(rig.root().join("tmp")).unwrap().count();
        assert_eq!(temp, 0, "nothing is left of the private folder");
    }
}

#[test]
fn memory_that_no_process_is_charged_for_is_refused_or_counted() {
    if !confines() {
        return;
    }
    // Numbers of `msgget`, `semget`, `shmget`, `mq_open`; and the largest send buffer.
    #[cfg(target_arch = "x86_64")]
    let calls = [("msgget", 68), ("semget", 64), ("shmget", 29), ("mq_open", 240)];
    #[cfg(target_arch = "aarch64")]
    let calls = [("msgget", 186), ("semget", 190), ("shmget", 194), ("mq_open", 180)];
    let tried = calls.map(|(name, number)| {
        format!("syscall({number}, 0, 1000, 0x3ff, 0) == -1 && $!{{ENOSYS}} or print '{name} ';")
    });
    let buffers = "use Socket; socketpair(my $one, my $two, 1, 1, 0) or print 'pair '; \
                   setsockopt($one, SOL_SOCKET, SO_SNDBUF, 1 << 20) and print 'larger '; print 'end';";
    let tried = tried.concat() + buffers;
    let Some(found) = perl(&Rig::new(), "", &tried) else { return };
    assert_eq!((found.ending.as_str(), found.stdout.as_str()), ("exit 0", "end"), "{found:?}");
    let pairs = "use Socket; my @all; my $part = 'x' x 4096; \
                 for (1..450) { socketpair(my $one, my $two, 1, 1, 0) or die; $one->blocking(0); \
                 1 while syswrite($one, $part); push @all, $one, $two; } sleep 600;";
    let keys = ", memory = \"64 MiB\"";
    let Some(found) = perl(&Rig::new(), keys, &format!("use IO::Handle; {pairs}")) else { return };
    assert_eq!(found.ending, "limit memory = 64 MiB", "{found:?}");
}

#[test]
fn a_program_makes_no_file_that_runs_with_the_rights_of_its_owner() {
    if !confines() {
        return;
    }
    let rig = Rig::new().with_file("out/a", "");
    #[cfg(target_arch = "x86_64")]
    let calls = [
        "90, $a, 04755",
        "90, $a, 02755",
        "91, $f, 04755",
        "268, -100, $a, 04755",
        "452, -100, $a, 04755, 0",
        "83, $n, 02777",
        "258, -100, $n, 02777",
        "133, $n, 0104755, 0",
        "259, -100, $n, 0104755, 0",
        "85, $n, 04755",
        "2, $n, 0101, 04755",
        "257, -100, $n, 0101, 04755",
        "2, $d, 020200002, 04755",
    ];
    #[cfg(target_arch = "aarch64")]
    let calls = [
        "52, $f, 04755",
        "53, -100, $a, 04755",
        "452, -100, $a, 04755, 0",
        "34, -100, $n, 02777",
        "33, -100, $n, 0104755, 0",
        "56, -100, $n, 0101, 04755",
        "56, -100, $d, 020040002, 04755",
    ];
    let tried: String =
        calls.iter().map(|call| format!("syscall({call}) == -1 or print '{call}; ';")).collect();
    let script = format!(
        "my ($a, $n, $d) = ('a', 'n', '.'); open(my $file, '<', 'a'); my $f = fileno($file); {tried} \
         syscall({}) == 0 or print 'plain '; print 'end'",
        if cfg!(target_arch = "x86_64") { "90, $a, 0700" } else { "53, -100, $a, 0700" }
    );
    let grants = "grants.exec = [\"/usr/bin/perl -e *\"]\n\
                  grants.files = [{ dir = \"out\", at = \"/out\", mode = \"read-write\" }]";
    if !Path::new("/usr/bin/perl").exists() {
        return;
    }
    let arguments = json!({ "program": "perl", "arguments": ["-e", script], "directory": "/out" });
    let found = came(&run(&rig, grants, &arguments));
    assert_eq!((found.ending.as_str(), found.stdout.as_str()), ("exit 0", "end"), "{found:?}");
    let modes = std::fs::read_dir(rig.folder().join("out")).unwrap().flatten();
    let modes: Vec<u32> =
        modes.map(|entry| entry.metadata().unwrap().permissions().mode() & 0o7777).collect();
    assert_eq!(modes, [0o700]);
}

#[test]
fn a_program_starts_no_other_program_than_the_grant_lists() {
    if !confines() {
        return;
    }
    let rig = Rig::new().with_file("work/orders", "").with_file("work/env-script", "");
    let folder = rig.folder().canonicalize().unwrap();
    let copied = folder.join("work/copied");
    std::fs::copy("/bin/echo", &copied).unwrap();
    std::fs::set_permissions(&copied, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(folder.join("tools")).unwrap();
    std::fs::copy("/bin/echo", folder.join("tools/say")).unwrap();
    let files = "grants.files = [{ dir = \"work\", at = \"/work\", mode = \"read-write\" }]";
    let tried = "/usr/bin/env echo one; ./copied two; cp copied x; /bin/sh -c 'echo three'; \
                 cat orders > $HOME/new; \"$SAY\" four";
    let say = folder.join("tools/say");
    for (starts, expected) in [("", "three\n"), (", starts = [\"tools\"]", "three\nfour\n")] {
        let env = format!(", env = {{ SAY = {say:?} }}, read = [\"tools\"]");
        let grants =
            format!("grants.exec = {{ commands = [\"/bin/sh -c *\"]{env}{starts} }}\n{files}");
        let arguments =
            json!({ "program": "sh", "arguments": ["-c", tried], "directory": "/work" });
        let found = came(&run(&rig, &grants, &arguments));
        assert_eq!(found.stdout, expected, "{found:?}");
        assert!(!folder.join("work/x").exists());
    }
}

/// A plugin that writes a repository gives git orders by its config.
#[test]
fn a_repository_that_a_plugin_wrote_starts_nothing_by_git() {
    let git = Path::new("/usr/bin/git");
    if !confines() || !git.exists() {
        return;
    }
    let rig = Rig::new().with_file("repo/a", "");
    let folder = rig.folder().join("repo");
    let mut init = rig.bare("git");
    assert!(init.args(["init", "-q"]).current_dir(&folder).status().unwrap().success());
    let config = folder.join(".git/config");
    let orders = "[core]\n\tfsmonitor = \"sh -c 'echo PWNED >&2; echo PWNED > pwned'\"\n";
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap() + orders).unwrap();
    let grants = "grants.exec = [\"/usr/bin/git status\"]\n\
                  grants.files = [{ dir = \"repo\", at = \"/repo\", mode = \"read-write\" }]";
    let arguments = json!({ "program": "git", "arguments": ["status"], "directory": "/repo" });
    let found = came(&run(&rig, grants, &arguments));
    assert!(found.stdout.contains("No commits yet"), "{found:?}");
    assert!(!found.stderr.contains("PWNED\n") && !folder.join("pwned").exists(), "{found:?}");
}

#[test]
fn a_program_does_not_learn_its_number_on_the_machine() {
    if !confines() {
        return;
    }
    let found = script(
        &Rig::new(),
        "",
        "readlink /proc/self; ls -d /proc/[0-9]* | wc -l; ls -d /proc/$PPID",
    );
    let numbers: Vec<&str> = found.stdout.lines().collect();
    let own = numbers.first().and_then(|own| own.parse::<u32>().ok());
    assert!(own.is_some_and(|own| own < 10), "{found:?}");
}

/// A program that nests folders until nothing can remove them by following them.
#[test]
fn a_deep_folder_of_a_program_ends_with_it() {
    if !confines() {
        return;
    }
    let nest = "chdir $ENV{HOME}; mkdir 'd'; for (1..30000) { mkdir 'n' or last; rename 'd', 'n/d'; rename 'n', 'd'; } print 'end'";
    let Some(found) = perl(&Rig::new(), "", nest) else { return };
    assert_eq!((found.ending.as_str(), found.stdout.as_str()), ("exit 0", "end"), "{found:?}");
}

#[test]
fn output_beyond_the_limit_is_dropped_and_counted() {
    if !confines() {
        return;
    }
    let found = script(
        &Rig::new(),
        ", output = \"1 KiB\"",
        "head -c 5000 /dev/zero | tr '\\0' x; echo end >&2",
    );
    assert_eq!(found.ending, "exit 0");
    assert_eq!(found.stdout.len() + found.stderr.len(), 1_024);
    assert_eq!(found.dropped, 5_000 + 4 - 1_024);
    let found = script(&Rig::new(), ", timeout = \"500 ms\"", "yes");
    assert_eq!(found.ending, "limit timeout = 500 ms");
    assert_eq!(found.stdout.len(), 256 << 10);
}

#[test]
fn a_run_starts_as_many_programs_as_its_grant_says() {
    if !confines() {
        return;
    }
    let call = json!({ "name": "subject.run", "arguments": { "program": "true" } });
    let replies = json!({ "replies": [{ "calls": [call, call, call] }, "end"] });
    let config = format!(
        "entry = \"desk\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.desk]\nsource = \"stock:chat\"\ngrants.tools = [\"subject.*\"]\ngrants.model = [\"default\"]\n\
         [plugins.subject]\nsource = {:?}\ngrants.exec = {{ commands = [\"/bin/true\"], runs = 2 }}\n\
         [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n[tasks.desk]\nagent = \"desk\"\n",
        conclave_test_support::guest("exec_any").display().to_string()
    );
    let ran = Rig::new().with_file("replies.json", replies.to_string()).run(&config, "go");
    let asked = ran
        .events("test")
        .iter()
        .filter(|event| matches!(event, Event::SideEffectEnded { .. }))
        .count();
    assert_eq!(asked, 2);
    let record = ran.denials().into_iter().next().expect("the third is refused");
    assert!(record.reason.contains("run the 2 programs"), "{record:?}");
}

#[test]
fn the_journal_holds_the_command_before_it_starts_and_its_end() {
    if !confines() {
        return;
    }
    let grants = "grants.exec = [\"/bin/sh -c *\"]";
    let arguments =
        json!({ "program": "sh", "arguments": ["-c", "echo out; exit 7"], "input": "abc" });
    let ran = run(&Rig::new(), grants, &arguments);
    let events = ran.events("test");
    let asked = events.iter().find_map(|event| match event {
        Event::SideEffectAsked { side_effect, .. } => Some(side_effect.clone()),
        _ => None,
    });
    let Some(SideEffect::RunProgram { program, arguments, directory, input }) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!((program.as_str(), arguments[1].as_str()), ("/bin/sh", "echo out; exit 7"));
    assert_eq!((directory, input.map(|input| input.length)), (None, Some(3)));
    let ended = events.iter().find_map(|event| match event {
        Event::SideEffectEnded { answer, .. } => Some(answer.clone()),
        _ => None,
    });
    let Some(SideEffectAnswer::Ran { ending, stdout, dropped, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((ending, stdout.length, dropped), (ProgramEnding::Exited { code: 7 }, 4, 0));
}

#[test]
fn a_program_that_a_plugin_can_replace_is_not_granted() {
    let rig = Rig::new().with_file("bin/tool", "#!/bin/sh\n").with_file("keys/s", "x");
    let config = |exec: &str, files: &str| {
        let folder = rig.folder().canonicalize().unwrap();
        let exec = exec.replace("RIG", &folder.display().to_string());
        let grants = format!("grants.exec = {exec}\n{files}");
        let secret = "[secrets.s]\nfrom = { file = \"keys/s\" }\nhosts = [\"a.example\"]\n";
        calling("exec_any", "run", &json!({ "program": "tool" }), &grants) + secret
    };
    let writes = "grants.files = [{ dir = \"bin\", at = \"/bin\", mode = \"read-write\" }]";
    let refused = |exec: &str, files: &str| {
        rig.prepare(&config(exec, files)).err().unwrap_or_default().to_string()
    };
    assert!(
        refused("[\"RIG/bin/tool\"]", writes).contains("which a plugin of this config may write")
    );
    assert_eq!(refused("[\"RIG/bin/tool\"]", &writes.replace("read-write", "read")), "");
    assert!(refused("[\"RIG/bin/none\"]", "").contains("there is no program"));
    let read = "{ commands = [\"/bin/true\"], read = [\"keys\"] }";
    assert!(refused(read, "").contains("programs could read"));
    // A link, or an interpreter, that a plugin can write is a program that it can replace.
    let folder = rig.folder().canonicalize().unwrap();
    std::os::unix::fs::symlink("/bin/echo", folder.join("bin/link")).unwrap();
    assert!(
        refused("[\"RIG/bin/link\"]", writes).contains("which a plugin of this config may write")
    );
    std::fs::create_dir(folder.join("other")).unwrap();
    let script = format!("#!{}/bin/tool\n", folder.display());
    std::fs::write(folder.join("other/script"), script).unwrap();
    assert!(
        refused("[\"RIG/other/script\"]", writes)
            .contains("which a plugin of this config may write")
    );
    // A folder below one that programs may write could be replaced by a link that leads out.
    std::fs::create_dir(folder.join("bin/below")).unwrap();
    let below = "grants.files = [{ dir = \"bin\", at = \"/bin\", mode = \"read-write\" }, { dir = \"bin/below\", at = \"/below\", mode = \"read\" }]";
    assert!(refused("[\"/bin/true\"]", below).contains("it is below"));
    let read = "{ commands = [\"/bin/true\"], read = [\"bin/below\"] }";
    assert!(refused(read, writes).contains("it is below"));
    let temp = std::env::temp_dir();
    let private =
        format!("grants.files = [{{ dir = {temp:?}, at = \"/tmp\", mode = \"read-write\" }}]");
    assert!(refused("[\"/bin/true\"]", &private).contains("private folders"));
    let overlay = "grants.files = [{ dir = \"bin\", at = \"/bin\", mode = \"overlay\" }]";
    let arguments = json!({ "program": "true", "directory": "/bin" });
    let grants = format!("grants.exec = [\"/bin/true\"]\n{overlay}");
    let found = came(&run(&rig, &grants, &arguments));
    assert_eq!(found.ending, "error /bin is an overlay, which programs of the machine cannot see");
}

#[test]
fn a_working_directory_does_not_lead_out_through_a_link() {
    let rig = Rig::new().with_file("project/a", "");
    std::os::unix::fs::symlink("/", rig.folder().join("project/out")).unwrap();
    let grants = "grants.exec = [\"/bin/true\"]\n\
                  grants.files = [{ dir = \"project\", at = \"/p\", mode = \"read-write\" }]";
    let arguments = json!({ "program": "true", "directory": "/p/out" });
    let found = came(&run(&rig, grants, &arguments));
    assert_eq!(found.ending, "error /p/out is not a directory");
}

/// Kills the host while it starts a program, at many moments.
#[test]
fn a_killed_host_leaves_no_program() {
    if !confines() {
        return;
    }
    let rig = Rig::new();
    // A number that no other process of the machine has in its command line.
    let marker = format!("7{:07}", std::process::id());
    let call = json!({ "name": "subject.run", "arguments": { "program": "sleep", "arguments": [marker] } });
    let rig = rig
        .with_file("replies.json", json!({ "replies": [{ "calls": [call] }, "end"] }).to_string());
    let config = format!(
        "entry = \"desk\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.desk]\nsource = \"stock:chat\"\ngrants.tools = [\"subject.*\"]\ngrants.model = [\"default\"]\n\
         [plugins.subject]\nsource = {:?}\ngrants.exec = [\"/bin/sleep *\"]\n\
         [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n[tasks.desk]\nagent = \"desk\"\n",
        conclave_test_support::guest("exec_any").display().to_string()
    );
    let rig = rig.with_file("conclave.toml", config);
    let holding = |text: &str| -> Vec<String> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
        let holds = |pid: &String| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(text)
        };
        names.filter(holds).collect()
    };
    // The path of a program's private folder is in the launcher's command line.
    let launched = rig.root().join("tmp").display().to_string();
    for spins in [0_u32, 200, 2_000, 10_000, 40_000] {
        let null = std::process::Stdio::null;
        let mut command = rig.conclave(&["run", "go"]);
        let mut host = command.stdout(null()).stderr(null()).spawn().unwrap();
        while holding(&launched).is_empty() {
            assert_eq!(host.try_wait().unwrap(), None, "the host starts a program");
            std::thread::yield_now();
        }
        (0..spins).for_each(|_| std::thread::yield_now());
        host.kill().unwrap();
        host.wait().unwrap();
        // Whoever is left ends by itself, or the test does not end.
        while !holding(&launched).is_empty() || !holding(&marker).is_empty() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_person_can_ask_about_a_command() {
    let grant = "grants.exec = [\"/bin/echo hello *\"]";
    let rig = Rig::new().with_file(
        "conclave.toml",
        calling("exec_any", "run", &json!({ "program": "echo" }), grant),
    );
    let (yes, no) = ("echo hello 'all of you'", "echo hello -n");
    let asked = conclave(&rig, &["can", "subject", "exec", yes]);
    assert!(asked.status.success(), "{}{}", text(&asked.stdout), text(&asked.stderr));
    let asked = conclave(&rig, &["can", "subject", "exec", no]);
    assert!(!asked.status.success(), "{}", text(&asked.stdout));
    let wider = "/usr/bin/echo hello -n";
    assert!(text(&asked.stdout).contains(wider), "{}", text(&asked.stdout));
}

/// A machine that gives its users no namespaces.
#[test]
fn a_program_that_cannot_be_confined_starts_only_if_the_operator_says_so() {
    if !confines() {
        return;
    }
    let arguments = json!({ "program": "sh", "arguments": ["-c", "echo ran"] });
    for (confinement, expected) in [("required", false), ("best-effort", true)] {
        let grant = format!(
            "grants.exec = {{ commands = [\"/bin/sh -c *\"], confinement = {confinement:?} }}"
        );
        let config = calling("exec_any", "run", &arguments, &grant);
        let rig = Rig::new().with_file("conclave.toml", config);
        let mut command = without_namespaces(&rig, &["run", "go", "--json"]);
        let ran = command.output().expect("util-linux is there");
        let output = text(&ran.stdout);
        assert_eq!(output.contains("ran\\\\n"), expected, "{output}{}", text(&ran.stderr));
        let refused = "the program cannot be confined, so it was not started";
        assert_eq!(output.contains(refused), !expected, "{output}{}", text(&ran.stderr));
    }
}
