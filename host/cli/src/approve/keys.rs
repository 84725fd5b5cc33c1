//! The letters that decide, and no others.

/// What the person chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Once,
    ThisRun,
    Always,
    Edit,
    Refuse,
    Why,
    ShowAll,
}

/// The letters that there are.
pub(super) fn prompt(is_cut: bool, can_always: bool) -> String {
    let always = if can_always { "[a] always  " } else { "" };
    let all = if is_cut { "[s] show all  " } else { "" };
    format!("      [y] once  [r] this run  {always}[e] edit  [n] refuse  {all}[w] why  > ")
}

/// What `[a] always` asks, and what stands above: a rule holds for these arguments or for any, as far as there can be one.
pub(super) fn which_arguments(exact: bool, any: bool) -> (String, &'static str) {
    match (exact, any) {
        (true, true) => (String::new(), "      always with [t] these arguments  [y] any arguments; Ctrl-C goes back > "),
        (true, false) => {
            let above = "      not for any arguments: a later rule denies some of them".to_owned();
            (above, "      always with [t] these arguments; Ctrl-C goes back > ")
        }
        (false, _) => {
            let above = "      no rule can be about just these arguments; it would hold whatever they are".to_owned();
            (above, "      always with [y] any arguments; Ctrl-C goes back > ")
        }
    }
}

/// The letter, when the line is one.
pub(super) fn choice(line: &str) -> Option<Choice> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "once" => Some(Choice::Once),
        "r" | "run" => Some(Choice::ThisRun),
        "a" | "always" => Some(Choice::Always),
        "e" | "edit" => Some(Choice::Edit),
        "n" | "no" | "refuse" => Some(Choice::Refuse),
        "w" | "why" => Some(Choice::Why),
        "s" | "all" | "show all" => Some(Choice::ShowAll),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_is_one() {
        let letters = [" Y ", "yes", "r", "a", "n", "e", "w", "s"].map(choice);
        let meant =
            [Choice::Once, Choice::Once, Choice::ThisRun, Choice::Always, Choice::Refuse, Choice::Edit, Choice::Why, Choice::ShowAll];
        assert_eq!(letters, meant.map(Some));
        assert_eq!(["", "yn", "ok", "ya"].map(choice), [None; 4]);
    }

    #[test]
    fn any_arguments_are_never_taken_for_granted() {
        let (above, prompt) = which_arguments(false, true);
        assert!(above.contains("whatever they are") && prompt.contains("[y] any") && !prompt.contains("[t]"));
        let (above, prompt) = which_arguments(true, false);
        assert!(above.contains("denies") && prompt.contains("[t] these") && !prompt.contains("[y]"));
    }

    #[test]
    fn a_letter_that_does_nothing_is_not_offered() {
        assert_eq!(prompt(false, true), "      [y] once  [r] this run  [a] always  [e] edit  [n] refuse  [w] why  > ");
        assert!(!prompt(true, false).contains("[a]") && prompt(true, false).contains("[s] show all"));
    }
}
