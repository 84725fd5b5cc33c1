//! The letters that decide a question, and the editable form of arguments.

use std::fmt::Write as _;

use conclave_core::types::text::is_deceptive;
use serde_json::Value;

/// The user's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChoice {
    Once,
    ThisRun,
    Always,
    Edit,
    Refuse,
    RefuseThisRun,
    Why,
    ShowMore,
}

impl KeyChoice {
    /// Whether the call runs with the arguments as shown.
    pub(super) fn runs(self) -> bool {
        matches!(self, Self::Once | Self::ThisRun | Self::Always)
    }

    /// Whether the call runs, with the shown arguments or with edited ones.
    pub(super) fn lets_run(self) -> bool {
        self.runs() || self == Self::Edit
    }
}

/// The second row of letters, and the input prompt behind it.
pub(super) const PROMPT: &str =
    "      [n] refuse  [x] refuse for this run  [w] why  (then Enter) > ";

/// The first row of letters: those that approve the call, and those that show more of it. The
/// letters take two rows, so that they fit into 68 columns.
pub(super) fn letters(is_read: bool, can_always: bool, has_more: bool) -> String {
    let always = if can_always { "  [a] always" } else { "" };
    match (is_read, has_more) {
        (false, _) => "      [s] next page; the last page lets you approve".to_owned(),
        (true, true) => format!("      [y] once  [r] this run{always}  [e] edit  [s] show again"),
        (true, false) => format!("      [y] once  [r] this run{always}  [e] edit"),
    }
}

/// The question that `[a] always` asks, and the row above it. A rule covers these arguments or any
/// arguments, as far as each is possible.
pub(super) fn which_arguments(exact: bool, any: bool) -> (String, &'static str) {
    match (exact, any) {
        (true, true) => (
            "      always allow it with which arguments? Ctrl-C goes back".to_owned(),
            "      [t] these arguments  [y] any arguments  (then Enter) > ",
        ),
        (true, false) => {
            let above = "      any arguments cannot be allowed: a later rule denies some of them\n\
                \u{20}     Ctrl-C goes back";
            (above.to_owned(), "      [t] always with these arguments  (then Enter) > ")
        }
        (false, _) => {
            let above = "      a rule cannot match just these arguments; it would allow any\n\
                \u{20}     Ctrl-C goes back";
            (above.to_owned(), "      [y] always with any arguments  (then Enter) > ")
        }
    }
}

/// The choice that the line names, if any.
pub(crate) fn choice(line: &str) -> Option<KeyChoice> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "once" => Some(KeyChoice::Once),
        "r" | "run" => Some(KeyChoice::ThisRun),
        "a" | "always" => Some(KeyChoice::Always),
        "e" | "edit" => Some(KeyChoice::Edit),
        "n" | "no" | "refuse" => Some(KeyChoice::Refuse),
        "x" | "refuse for this run" => Some(KeyChoice::RefuseThisRun),
        "w" | "why" => Some(KeyChoice::Why),
        "s" | "show" => Some(KeyChoice::ShowMore),
        _ => None,
    }
}

/// The arguments as JSON for an editor. Characters that a reader could miss or misread are escaped
/// (B16).
pub(super) fn editable(arguments: &Value) -> String {
    escaped_input(&arguments.to_string())
}

/// The JSON that the user typed in the form of [`editable`]. Its escapes stand for themselves
/// inside strings, and are errors elsewhere.
pub(super) fn escaped_input(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && !c.is_ascii_control() || !c.is_whitespace() && !is_deceptive(c) {
            escaped.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unclear_keys_are_not_a_choice() {
        let letters = [" Y ", "yes", "r", "a", "n", "x", "e", "w", "s"].map(choice);
        let refuse = [KeyChoice::Refuse, KeyChoice::RefuseThisRun];
        let [n, x] = refuse;
        let meant = [
            KeyChoice::Once,
            KeyChoice::Once,
            KeyChoice::ThisRun,
            KeyChoice::Always,
            n,
            x,
            KeyChoice::Edit,
            KeyChoice::Why,
            KeyChoice::ShowMore,
        ];
        assert_eq!(letters, meant.map(Some));
        assert_eq!(["", "yn", "ok", "ya"].map(choice), [None; 4]);
    }

    /// Invalid arguments can be edited but not approved. Editing requires that all pages were
    /// shown.
    #[test]
    fn edited_arguments_escape_invisible_characters() {
        let arguments = json!({ "path": "/a\u{202e}txt.\u{200b}\u{a0}b\u{7f}\u{e0041}", "text": "Zürich\n 漢字" });
        let text = editable(&arguments);
        assert_eq!(
            text,
            r#"{"path":"/a\u202etxt.\u200b\u00a0b\u007f\udb40\udc41","text":"Zürich\n 漢字"}"#
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), arguments, "it means the same");
        assert_eq!(escaped_input(&text), text);
    }

    #[test]
    fn invalid_arguments_can_be_edited() {
        assert!(!KeyChoice::Edit.runs() && KeyChoice::Edit.lets_run());
        assert!(
            [KeyChoice::Once, KeyChoice::ThisRun, KeyChoice::Always]
                .iter()
                .all(|choice| choice.runs() && choice.lets_run())
        );
        assert!(
            [KeyChoice::Refuse, KeyChoice::RefuseThisRun, KeyChoice::Why, KeyChoice::ShowMore]
                .iter()
                .all(|choice| !choice.lets_run())
        );
    }

    #[test]
    fn a_rule_for_any_arguments_needs_an_explicit_key() {
        let (above, prompt) = which_arguments(false, true);
        assert!(
            above.contains("it would allow any")
                && prompt.contains("[y] always with any")
                && !prompt.contains("[t]")
        );
        let (above, prompt) = which_arguments(true, false);
        assert!(
            above.contains("denies")
                && prompt.contains("[t] always with these")
                && !prompt.contains("[y]")
        );
    }

    #[test]
    fn the_question_about_arguments_says_how_to_answer_and_to_go_back() {
        for (exact, any) in [(true, true), (true, false), (false, true)] {
            let (above, prompt) = which_arguments(exact, any);
            assert!(above.contains("Ctrl-C goes back") && prompt.ends_with("(then Enter) > "));
            assert!(prompt.len() <= 68, "{prompt}");
        }
    }

    #[test]
    fn a_letter_that_does_nothing_is_not_offered() {
        assert_eq!(
            letters(true, true, false),
            "      [y] once  [r] this run  [a] always  [e] edit"
        );
        assert_eq!(
            letters(true, false, true),
            "      [y] once  [r] this run  [e] edit  [s] show again"
        );
        assert!(
            !letters(false, true, true).contains("[y]")
                && letters(false, true, true).contains("[s]")
        );
        assert!([PROMPT, &letters(true, true, true)].iter().all(|line| line.len() <= 68));
    }
}
