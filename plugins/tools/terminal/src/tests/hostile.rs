//! Commands that try to use up the machine or to leave the folders.

use std::io::Write;

use conclave_sdk::testing::FakeHost;

use super::run;

fn host() -> FakeHost {
    FakeHost::new().writable("/work").file("/work/a.txt", "inside\n")
}

#[test]
fn an_endless_writer_ends_with_its_reader() {
    assert_eq!(run(&mut host(), "yes | head -2; cat /dev/zero | head -c 3 | wc -c").0, "y\ny\n3");
    let (output, _) = run(&mut host(), "while :; do echo x; done | head -1; echo after");
    assert_eq!(output, "x\nafter");
}

#[test]
fn recursion_ends_with_an_error_and_the_shell_lives_on() {
    let mut host = host();
    let (output, code) = run(&mut host, "f() { f; }; f");
    assert!(output.contains("maximum function depth"), "{output}");
    assert_ne!(code, 0);
    let (_, code) = run(&mut host, "bomb() { bomb | bomb & }; bomb");
    assert_eq!(code, 0);
    let nested = format!("{}echo deep{}", "(".repeat(300), ")".repeat(300));
    assert_ne!(run(&mut host, &nested).1, 0);
    let nested = format!("echo {}x{}", "$(echo ".repeat(300), ")".repeat(300));
    run(&mut host, &nested);
    assert_eq!(run(&mut host, "echo alive").0, "alive");
}

#[test]
fn nothing_of_the_machine_is_readable() {
    let mut host = host();
    let (output, _) = run(
        &mut host,
        "cat /proc/self/environ /proc/1/cmdline /proc/self/maps /etc/shadow ../../etc/shadow /work/../root/.ssh/id_rsa; ls /proc/self/fd /home /root",
    );
    for found in ["PATH=", "root:x", "BEGIN", "cargo"] {
        assert!(!output.contains(found), "{output}");
    }
    let (output, _) = run(&mut host, "env; echo $HOME; cat /etc/passwd; hostname; whoami");
    assert!(!output.contains("root"), "{output}");
    assert!(output.ends_with("/home/agent\nagent:x:1000:1000:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nconclave\nagent"), "{output}");
}

#[test]
fn links_lead_nowhere_else() {
    let mut host = host();
    let (output, _) = run(
        &mut host,
        "ln -s /etc/shadow /tmp/l; cat /tmp/l; ln -s ../../../../etc/shadow /tmp/m; cat /tmp/m; ln -s / /tmp/root; cat /tmp/root/etc/shadow; \
         ln -s /tmp/b /tmp/a; ln -s /tmp/a /tmp/b; cat /tmp/a; ln -s /etc /work/out; ls /work/out; ln /etc/passwd /work/hard; ls /work",
    );
    assert!(!output.contains("root:"), "{output}");
    assert_eq!(output.lines().last(), Some("a.txt"), "{output}");
    // Inside the shell a link works as usual, and only where the path may go.
    assert_eq!(run(&mut host, "ln -s /work/a.txt /tmp/in; cat /tmp/in").0, "inside");
}

#[test]
fn a_bomb_of_an_archive_is_refused_before_memory_is_full() {
    // 64 MiB of zeros in 64 KiB.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        bomb.write_all(&vec![0; 1 << 20]).expect("memory can be written");
    }
    let bomb = bomb.finish().expect("memory can be written");
    let mut host = host().file("/work/bomb.gz", &bomb);
    let (output, code) = run(&mut host, "gunzip bomb.gz");
    assert_ne!(code, 0, "{output}");
    assert_eq!(host.content("/work/bomb"), None);
    let (output, _) =
        run(&mut host, "gunzip -c bomb.gz | wc -c; zcat bomb.gz | head -c 1 | wc -c; echo after");
    assert!(output.ends_with("after") && !output.contains("67108864"), "{output}");
}

#[test]
fn memory_files_are_bounded() {
    let mut host = host();
    let append = "for i in {1..20}; do head -c 1000000 /dev/zero >> /tmp/big; done 2>/dev/null";
    let (output, _) = run(&mut host, &format!("{append}; wc -c < /tmp/big; echo after"));
    let length = output.lines().find_map(|line| line.trim().parse::<u64>().ok());
    assert_eq!(length, Some(8_000_000), "{output}");
    assert!(output.contains("\nafter\n"), "{output}");
}
