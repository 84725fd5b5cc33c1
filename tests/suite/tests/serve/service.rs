//! The server as a service of systemd: the unit of docs/use/serve-operate.md, and the messages that
//! it sends to its manager.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use conclave_soak::is_skipped;
use conclave_test_support::program;

use super::client::Served;
use super::{WEB, echo};
use crate::cli::text;

#[test]
fn the_unit_of_the_page_has_no_mistakes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/serve-operate.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let unit = page.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next());
    let unit = unit.expect("it shows a unit");
    let installed = "/usr/local/bin/conclave";
    assert!(unit.contains(installed), "{unit}");
    let unit = unit.replace(installed, &program().display().to_string());
    let rig = echo(WEB).with_file("conclave.service", unit);
    let verify = rig.bare("systemd-analyze").args(["verify", "conclave.service"]).output();
    let Ok(verified) = verify else {
        assert!(is_skipped(Err("systemd-analyze is not installed".to_owned())));
        return;
    };
    let printed = text(&verified.stderr);
    // It also names what other units of the machine lack.
    let own = printed.lines().filter(|line| line.contains("conclave.service"));
    assert_eq!(own.collect::<Vec<_>>(), [""; 0], "{printed}");
    assert!(verified.status.success() || !printed.contains("conclave"), "{printed}");
}

#[test]
fn the_manager_gets_signs_of_life_from_a_server_that_is_ready_and_a_word_at_its_end() {
    let rig = echo(WEB);
    let socket = rig.folder().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    let mut buffer = [0; 64];
    let mut message = || {
        let length = manager.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let variables = [
        ("NOTIFY_SOCKET", socket.to_string_lossy().into_owned()),
        ("WATCHDOG_USEC", "100000".to_owned()),
    ];
    let served = Served::start_with_variables(&rig, &variables);
    assert_eq!(message(), "READY=1");
    for _ in 0..3 {
        assert_eq!(message(), "WATCHDOG=1");
    }
    let process = i32::try_from(served.process()).ok().and_then(rustix::process::Pid::from_raw);
    let process = process.expect("an id");
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it lives");
    while message() != "STOPPING=1" {}
    drop(served.ended_with(0));
}
