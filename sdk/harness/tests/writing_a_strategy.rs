//! docs/write-plugins/strategy.md: what a reader copies from the page compiles, its case passes, and
//! the page shows what is said of the first version.

#[path = "writing_a_strategy/first.rs"]
#[expect(unreachable_pub, reason = "the page shows it as a crate's root")]
mod first;
#[path = "writing_a_strategy/second.rs"]
#[expect(unreachable_pub, reason = "the page shows it as a crate's root")]
mod second;

use conclave_harness::{Broken, Harness, Script};
use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake};

const PAGE: &str = include_str!("../../../docs/write-plugins/strategy.md");

#[test]
fn the_page_has_the_files_as_they_are() {
    for file in
        [include_str!("writing_a_strategy/first.rs"), include_str!("writing_a_strategy/second.rs")]
    {
        assert!(
            PAGE.contains(&format!("```rust\n{file}```")),
            "docs/write-plugins/strategy.md does not have this file as it is:\n{file}"
        );
    }
}

/// The first block of the page in this language.
fn block(language: &str) -> &'static str {
    let rest = PAGE.split_once(&format!("```{language}\n")).expect("the page has such a block").1;
    rest.split_once("```").expect("the block ends").0
}

/// Plays the script of the page's case.
fn played(
    decide: impl Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>,
) -> std::result::Result<(), Broken> {
    let cases: serde_json::Value = serde_json::from_str(block("json")).expect("cases");
    let script = Script::from_json(&cases[0]["script"].to_string()).expect("a script");
    Harness::new(decide).script(script).run().check()
}

#[test]
fn the_page_shows_what_is_said_of_the_first_version() {
    let broken = played(first::Polite::decide).expect_err("it is not polite yet").to_string();
    // `conclave plugin test` prints the case's name and the time first, and indents the breaches.
    let (_, breaches) = block("text").split_once('\n').expect("the page shows a breach");
    let excerpt = breaches.trim_start().trim_end_matches("        …\n");
    assert!(broken.starts_with(excerpt), "the page shows:\n{excerpt}\nand it says:\n{broken}");
}

#[test]
fn the_case_of_the_page_passes_with_the_second_version() {
    played(second::Polite::decide).unwrap_or_else(|broken| panic!("{broken}"));
}
