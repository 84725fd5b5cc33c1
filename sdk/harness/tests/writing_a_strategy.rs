//! docs/write-plugins/strategy.md: what a reader copies from the page compiles, its tests pass, and
//! the page shows what the harness says.

#[path = "writing_a_strategy/first.rs"]
#[expect(unreachable_pub, reason = "the page shows it as a crate's root")]
mod first;
#[path = "writing_a_strategy"]
mod files {
    #[expect(unreachable_pub, reason = "the page shows it as a crate's root")]
    pub(crate) mod second;
}

use conclave_harness::{Harness, Script};
use conclave_sdk::delivery::{Activity, DeliveryStrategy};

const PAGE: &str = include_str!("../../../docs/write-plugins/strategy.md");

#[test]
fn the_page_has_the_files_as_they_are() {
    let files = [
        include_str!("writing_a_strategy/first.rs"),
        include_str!("writing_a_strategy/second.rs"),
        include_str!("writing_a_strategy/second/tests.rs"),
    ];
    for file in files {
        assert!(
            PAGE.contains(&format!("```rust\n{file}```")),
            "docs/write-plugins/strategy.md does not have this file as it is:\n{file}"
        );
    }
}

#[test]
fn the_page_shows_what_the_harness_says_of_the_first_try() {
    let report = Harness::new(first::Polite::decide)
        .voice("phone", 2_000)
        .activity("phone", Activity::UserSpeaking)
        .at(300)
        .completes("task-1", "48 metres")
        .at(900)
        .refuses("phone", 2)
        .at(1_000)
        .completes("task-2", "in 1844")
        .at(5_000)
        .activity("phone", Activity::Idle)
        .run();
    let broken = report.check().expect_err("it is not polite yet").to_string();
    let excerpt = PAGE
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split_once("…\n```"))
        .expect("the page shows it")
        .0;
    assert!(broken.starts_with(excerpt), "the page shows:\n{excerpt}\nand it says:\n{broken}");
}

#[test]
fn the_page_has_a_script_that_the_second_try_passes() {
    let script = PAGE
        .split("```json\n")
        .nth(1)
        .and_then(|rest| rest.split_once("```"))
        .expect("the page has one")
        .0;
    let script = Script::from_json(script).unwrap_or_else(|error| panic!("{error}"));
    let report = Harness::new(files::second::Polite::decide).script(script).run();
    report.check().unwrap_or_else(|broken| panic!("{broken}"));
}
