//! A person's work in a headless Chromium, with axe-core looking at each page.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use conclave_soak::is_skipped;
use conclave_test_support::free_port;

use super::{data, desk, program, python};
use crate::serve::client::Served;
use crate::serve::people::token;

/// The exit code of the story without a browser.
const NO_BROWSER: i32 = 3;

#[test]
#[ignore = "cargo xtask test runs it"]
fn a_person_starts_watches_decides_and_applies_and_every_page_is_accessible() {
    let rig = desk();
    let root = token(&rig, "root", "admin");
    let port = free_port();
    let mut served = Served::start_at(&rig, port, &[]);
    let axe = python().with_file_name("../node_modules/axe-core/axe.min.js");
    // Without one Playwright uses its own, if that was installed.
    let chromium = program(&["chromium", "chromium-browser", "google-chrome"]).unwrap_or_default();
    let mut story = rig
        .bare(python())
        .arg(data("browser.py"))
        .arg(chromium)
        .arg(axe)
        .args([&format!("http://{}", served.address()), &root])
        .arg(std::env::var_os("CONCLAVE_SCREENSHOTS").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python runs");
    let mut stdin = story.stdin.take().expect("it is piped");
    let mut stderr = story.stderr.take().expect("it is piped");
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    for line in BufReader::new(story.stdout.take().expect("it is piped")).lines() {
        assert_eq!(line.expect("it is text"), "restart");
        served = served.killed().start_again(&rig);
        writeln!(stdin, "started").expect("it listens");
    }
    let ended = story.wait().expect("it ends");
    let errors = errors.join().expect("it was read").expect("it is text");
    if ended.code() == Some(NO_BROWSER) {
        assert!(is_skipped(Err(errors)));
        return;
    }
    assert!(ended.success(), "{errors}");
    let forged = std::fs::read_dir(rig.folder().join("data")).expect("a folder");
    assert!(forged.count() > 1, "what was applied is in the folder");
    drop(served);
}
