use proptest::prelude::*;

use super::*;
use crate::permissions::grants::Grants;
use crate::permissions::manifest::{CapabilityRequest, Manifest};

fn words(text: &str) -> Vec<String> {
    text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn rights_with<T>(commands: &[&str], work: impl FnOnce(&Rights<'_>) -> T) -> T {
    let asks = [("exec".to_owned(), CapabilityRequest::default())];
    let manifest = Manifest { asks: asks.into(), ..Manifest::default() };
    let commands = commands.iter().map(|text| CommandPattern::parse(text).unwrap()).collect();
    let grants = Grants { exec: Some(ExecGrant::new(commands)), ..Grants::default() };
    work(&Rights { plugin: "build", manifest: &manifest, grants: &grants, narrowed: None })
}

#[test]
fn a_program_is_named_by_its_path_or_its_last_component() {
    rights_with(&["/usr/bin/git status", "/opt/git log *"], |rights| {
        let path = |program: &str, arguments: &str| {
            rights.may_run(program, &words(arguments)).map(|(pattern, _)| pattern.program())
        };
        let ambiguous = path("git", "status").unwrap_err().reason;
        assert_eq!(ambiguous, "\"git\" names /usr/bin/git and /opt/git; write the path");
        assert_eq!(path("/usr/bin/git", "status"), Ok("/usr/bin/git"));
        assert_eq!(path("/opt/git", "log main"), Ok("/opt/git"));
        assert!(path("/opt/git", "status").is_err());
        assert!(path("bin/git", "status").is_err());
    });
    rights_with(&["/usr/bin/git status", "/usr/bin/git log"], |rights| {
        let found = rights.may_run("git", &words("log")).map(|(pattern, _)| pattern.as_str());
        assert_eq!(found, Ok("/usr/bin/git log"));
    });
}

#[test]
fn a_refusal_names_the_smallest_command() {
    rights_with(&["/usr/bin/git status"], |rights| {
        let refused = |program: &str, arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
            let record = rights.may_run(program, &arguments).unwrap_err();
            (record.denial.target, record.reason, record.suggestion)
        };
        let (target, reason, suggestion) = refused("git", &["commit", "-m", "two words"]);
        assert_eq!(target, "git commit -m 'two words'");
        assert_eq!(reason, "no command of plugins.build.grants.exec covers these arguments");
        assert_eq!(
            suggestion.unwrap(),
            "[plugins.build] grants.exec = [\"/usr/bin/git status\", \"/usr/bin/git commit -m two*words\"]"
        );
        let (_, reason, _) = refused("rm", &["-rf", "/"]);
        assert_eq!(reason, "no command of plugins.build.grants.exec covers this program");
        assert_eq!(refused("../git", &[]).2, None, "there is nothing that could be granted");
        assert_eq!(refused("git", &["a\u{1b}"]).2.unwrap().matches('*').count(), 1);
    });
}

#[test]
fn programs_see_no_overlay_and_no_folder_that_the_manifest_does_not_request() {
    let folder = |at: &str, mode| FileGrant {
        dir: at.to_owned(),
        display_path: at.to_owned(),
        at: at.to_owned(),
        mode,
        bytes: 1,
        files: 1,
    };
    let files = vec![
        folder("/read", FileMode::Read),
        folder("/write", FileMode::ReadWrite),
        folder("/overlay", FileMode::Overlay),
    ];
    let grants = Grants { files, ..Grants::default() };
    let seen = |asks: &[&str]| -> Vec<String> {
        let asks = asks.iter().map(|ask| ((*ask).to_owned(), CapabilityRequest::default()));
        let manifest = Manifest { asks: asks.collect(), ..Manifest::default() };
        let rights =
            Rights { plugin: "build", manifest: &manifest, grants: &grants, narrowed: None };
        rights.program_folders().map(|grant| grant.at.clone()).collect()
    };
    assert_eq!(seen(&["exec", "files"]), ["/read", "/write"]);
    assert_eq!(seen(&["exec"]), Vec::<String>::new());
}

#[test]
fn a_command_of_any_length_is_refused_and_not_searched() {
    rights_with(&["/usr/bin/git **"], |rights| {
        let many = vec![String::new(); ARGUMENTS + 1];
        assert_eq!(rights.may_run("git", &many).unwrap_err().layer, Layer::Runtime);
        let long = ["x".repeat(ARGUMENT_BYTES + 1)];
        assert_eq!(rights.may_run("git", &long).unwrap_err().layer, Layer::Runtime);
    });
}

proptest! {
    #[test]
    fn the_proposed_command_is_allowed_once_it_is_granted(
        program in "[a-z]{1,6}|/[a-z]{1,4}/[a-z]{1,4}",
        arguments in prop::collection::vec("[-*a-z =\u{e9}]{0,8}", 0..5),
    ) {
        if let Some(pattern) = smallest_pattern(&program, &arguments) {
            let granted = [pattern.as_str()];
            rights_with(&granted, |rights| {
                prop_assert!(rights.may_run(&program, &arguments).is_ok());
                Ok(())
            })?;
        }
    }
}
