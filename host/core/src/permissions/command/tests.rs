use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> CommandPattern {
    CommandPattern::parse(text).unwrap()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn covers(text: &str, arguments: &str) -> bool {
    pattern(text).covers(&words(arguments))
}

#[test]
fn a_pattern_covers_whole_commands_word_by_word() {
    assert!(covers("/usr/bin/git status", "status"));
    assert!(!covers("/usr/bin/git status", ""));
    assert!(!covers("/usr/bin/git status", "status --short"));
    assert!(covers("/usr/bin/git log *", "log main"));
    assert!(!covers("/usr/bin/git log *", "log"));
    assert!(!covers("/usr/bin/git log *", "log main other"));
    assert!(covers("/usr/bin/cargo test **", "test"));
    assert!(covers("/usr/bin/cargo test **", "test -p core -- --nocapture"));
    assert!(!covers("/usr/bin/cargo test **", "install x"));
    assert!(covers("/usr/bin/make -j* all", "-j8 all"));
    assert!(!covers("/usr/bin/make -j* all", "--jobs all"));
    assert!(covers("/bin/true", ""));
    assert!(pattern("/bin/x a*b*c").covers(&["a b b c".to_owned()]));
    assert!(!pattern("/bin/x a*b*c").covers(&["acb".to_owned()]));
    assert!(!pattern("/bin/x ab*ba").covers(&["aba".to_owned()]), "the parts do not overlap");
}

#[test]
fn a_star_covers_no_option_so_that_a_model_cannot_add_one() {
    assert!(!covers("/usr/bin/git log *", "log --output=/tmp/x"));
    assert!(!covers("/usr/bin/git log *", "log -p"));
    assert!(covers("/usr/bin/git log -*", "log -p"));
    assert!(covers("/usr/bin/x **", ""), "`**` covers none, too");
}

#[test]
fn what_is_no_pattern_is_refused_with_the_reason() {
    let refused = |text| CommandPattern::parse(text).unwrap_err();
    for text in ["", "git", "git status", "./git", "/usr/bin/", "/usr/../bin/git", "/usr/bin/*"] {
        assert_eq!(refused(text), CommandPatternError::Program, "{text}");
    }
    assert_eq!(refused("/bin/x ** y"), CommandPatternError::Rest);
    assert_eq!(refused("/bin/x a\nb"), CommandPatternError::Control);
    assert_eq!(pattern("/bin/x  a   b").as_str(), "/bin/x a b");
}

proptest! {
    #[test]
    fn a_pattern_without_a_star_covers_itself_alone(
        arguments in prop::collection::vec("[-a-z=]{1,8}", 0..5),
        others in prop::collection::vec("[-a-z=]{1,8}", 0..5),
    ) {
        let text = format!("/bin/x {}", arguments.join(" "));
        let pattern = CommandPattern::parse(&text).unwrap();
        prop_assert!(pattern.covers(&arguments));
        prop_assert_eq!(pattern.covers(&others), arguments == others);
    }
}
