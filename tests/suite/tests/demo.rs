//! The demo: five components on real input, without a model. The rig rebuilds each run from its
//! journal.

use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig};

/// Returns an example with its guests where the tests have them.
fn example(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut text = std::fs::read_to_string(folder.join(name)).expect("the example is there");
    for guest in ["coordinator", "librarian", "digest", "finder", "agent_hostile_tour", "weather"] {
        let file = conclave_test_support::guest(guest).display().to_string();
        text = text.replace(&format!("../../target/conclave/guests/{guest}.wasm"), &file);
    }
    assert!(!text.contains("\"../../target"), "{text}");
    text
}

/// Returns the demo's config on the test's folder.
fn demo() -> String {
    let text = example("demo.toml");
    assert!(text.contains(r#"dir = "../../docs""#), "the example names its folder");
    text.replace(r#"dir = "../../docs""#, r#"dir = "folder""#)
}

fn lights() -> Rig {
    Rig::new()
        .with_file(
            "folder/lights.txt",
            "Skerryvore was first lit in 1844.\nIt stands on a reef south of Tiree.\nIts tower is 48 metres tall.\n",
        )
        .with_file("folder/sub/keepers.md", "# Keepers\n\nAlan Stevenson built the lighthouse.\nThree keepers lived there at a time.\n")
        .with_file("folder/.hidden/secret.txt", "Skerryvore was first lit in 1999.\n")
}

fn ask(question: &str) -> Ran {
    lights().run(&demo(), question)
}

#[test]
fn a_question_is_answered_with_the_sentence_and_its_line() {
    let ran = ask("When was Skerryvore first lit?");
    assert_eq!(ran.status(), Status::Done);
    assert!(
        ran.content().contains("Skerryvore was first lit in 1844.")
            && ran.content().contains("lights.txt:1"),
        "{}",
        ran.content()
    );
    assert!(!ran.content().contains("1999"), "hidden folders are not searched: {}", ran.content());
}

#[test]
fn another_question_gets_another_line() {
    let ran = ask("Who built the lighthouse?");
    assert!(
        ran.content().contains("Alan Stevenson") && ran.content().contains("sub/keepers.md:3"),
        "{}",
        ran.content()
    );
}

#[test]
fn what_is_not_there_is_not_made_up() {
    let ran = ask("What is the capital of Portugal?");
    assert_eq!(ran.status(), Status::Done);
    assert!(ran.content().contains("nothing"), "{}", ran.content());
}

#[test]
fn the_digest_is_delivered_by_immediate_while_the_answer_is_found() {
    let ran = ask("When was Skerryvore first lit?");
    assert_eq!(ran.heard.len(), 1, "{:?}", ran.heard);
    let (channel, text) = &ran.heard[0];
    assert_eq!(channel.as_str(), "terminal");
    assert!(text.contains("2 files"), "{text}");
    assert_eq!(ran.rooms().len(), 2, "the digest works in a room of its own");
    assert!(ran.denials().is_empty(), "{:?}", ran.denials());
}

#[test]
fn what_a_word_means_is_answered_by_what_explains_it() {
    let rig = lights().with_file(
        "folder/words.md",
        "# Words\n\n| word | what |\n|---|---|\n| **lamp** | what burns in a light |\n\nNo lamp burns by day.\n",
    );
    let ran = rig.run(&demo(), "What is a lamp?");
    assert_eq!(ran.content(), "lamp: what burns in a light  (docs/words.md:5)");
}

/// The run of `cargo xtask demo`.
#[test]
fn a_stranger_is_stopped_three_ways_and_the_question_is_answered() {
    let config = example("stranger.toml").replace(r#"dir = "../../docs""#, r#"dir = "folder""#);
    let ran = lights().run(&config, "When was Skerryvore first lit?");
    assert_eq!(ran.content(), "Skerryvore was first lit in 1844.  (docs/lights.txt:1)");
    let denied: Vec<String> =
        ran.denials().iter().map(|denial| denial.denial.target.clone()).collect();
    assert_eq!(denied.len(), 3, "{denied:?}");
    for target in ["/root/.ssh/id_ed25519", "collect.example.net", "/docs/finder.md"] {
        assert!(denied.iter().any(|denied| denied.contains(target)), "{denied:?}");
    }
    assert!(
        ran.answers().iter().all(|answer| !answer.content.contains("STOLEN")),
        "{:?}",
        ran.answers()
    );
    assert_eq!(ran.heard.len(), 1, "the digest is delivered: {:?}", ran.heard);
}

#[test]
fn the_hostile_tour_is_stopped_six_ways_and_the_task_answers() {
    let config = example("hostile.toml");
    let ran = Rig::new()
        .with_file("data/report.txt", "fine")
        .run(&config.replace(r#"dir = ".""#, r#"dir = "data""#), "How warm is it in Oslo?");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "Oslo: 4.0 °C"));
    let answers = ran.answers();
    assert_eq!(answers.len(), 7, "{answers:?}");
    for answer in &answers[..6] {
        assert!(answer.is_error, "{answer:?}");
        assert!(
            !answer.content.contains("STOLEN") && !answer.content.contains("CALLED HOME"),
            "{answer:?}"
        );
    }
    let kinds: Vec<_> = answers
        .iter()
        .map(|answer| answer.fault.as_ref().map(|fault| fault.kind.as_str()))
        .collect();
    assert_eq!(kinds, [None, None, None, Some("memory"), Some("cpu"), Some("stack"), None]);
    assert!(ran.denials().len() >= 3, "{:?}", ran.denials());
}

/// The demo's own question on the project's own pages: a rewording of a page can make another
/// sentence fit better.
#[test]
fn the_default_question_is_answered_with_a_definition() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folder = format!("dir = {:?}", docs.display().to_string());
    let ran = Rig::new().run(&demo().replace(r#"dir = "folder""#, &folder), "What is a manifest?");
    let answer = ran.content();
    assert!(answer.starts_with("manifest: ") && answer.contains("glossary.md:"), "{answer}");
}
