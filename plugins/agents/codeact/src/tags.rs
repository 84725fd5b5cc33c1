//! The tags of OpenHands' CodeAct in a model's text: `<execute_bash>`, `<execute_ipython>`,
//! `<execute_browse>` and `<finish>`.

use conclave_sdk::trajectory::truncate;
use conclave_sdk::{Error, Result, Turn, act, finish};
use serde_json::json;

/// Characters of a wrong answer that are shown to its model again.
const SHOWN: usize = 500;
const REMEDY: &str = "Write one of these, with its closing tag: <execute_bash>command</execute_bash>, \
                      <execute_ipython>code</execute_ipython>, <execute_browse>address</execute_browse>, \
                      <finish>answer</finish>.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Bash,
    Ipython,
    Browse,
    Finish,
}

impl Tag {
    const ALL: [Self; 4] = [Self::Bash, Self::Ipython, Self::Browse, Self::Finish];

    const fn name(self) -> &'static str {
        match self {
            Self::Bash => "execute_bash",
            Self::Ipython => "execute_ipython",
            Self::Browse => "execute_browse",
            Self::Finish => "finish",
        }
    }
}

/// Returns the first action in a text, or `None` if the text is a message. The text behind the
/// action is dropped, because models go on with an observation of their own invention.
///
/// `browsing` is the task for `<execute_browse>`; `is_cut` is true if the model stopped at its token
/// limit.
///
/// # Errors
/// `invalid-arguments` with the remedy, for the model.
pub(crate) fn action(text: &str, browsing: Option<&str>, is_cut: bool) -> Result<Option<Turn>> {
    let opening = |tag: Tag| text.find(&format!("<{}>", tag.name())).map(|at| (at, tag));
    let Some((at, tag)) = Tag::ALL.into_iter().filter_map(opening).min_by_key(|(at, _)| *at) else {
        return match unknown(text) {
            Some(name) => Err(wrong(text, &format!("There is no tag <{name}>."))),
            None => Ok(None),
        };
    };
    let (thought, rest) = (text[..at].trim(), &text[at + tag.name().len() + 2..]);
    let closing = format!("</{}>", tag.name());
    let body = match rest.split_once(&closing) {
        Some((body, _)) => body,
        None if is_cut => {
            let what = format!(
                "The text was cut off at the token limit before {closing}, so nothing ran. Do it in smaller parts."
            );
            return Err(wrong(text, &what));
        }
        // A model whose server stops at the closing tag leaves it out.
        None => rest,
    };
    let written = format!("{}{closing}", &text[..at + tag.name().len() + 2 + body.len()]);
    let body = body.trim_matches('\n').trim_end();
    if body.trim().is_empty() && tag != Tag::Finish {
        return Err(wrong(
            text,
            &format!("There is nothing between <{}> and {closing}.", tag.name()),
        ));
    }
    let turn = match tag {
        // As in the reference, the shell's `exit` ends the task.
        Tag::Bash if body.trim() == "exit" => return Ok(Some(finish(thought))),
        Tag::Finish => {
            let answer = body.trim();
            return Ok(Some(finish(if answer.is_empty() { thought } else { answer })));
        }
        Tag::Bash => act::run(body),
        Tag::Ipython => act::run_cell(body),
        Tag::Browse => match browsing {
            Some(task) => {
                let what = format!("{thought}\nI should start with: {}", body.trim());
                act::delegate(task, json!({ "task": what.trim() }))
            }
            None => act::browse(address(body)),
        },
    };
    Ok(Some(turn.because(thought).with_text(written)))
}

/// The address in `goto("address")`, or the text itself.
fn address(body: &str) -> &str {
    let body = body.trim();
    let inner = body.strip_prefix("goto(").and_then(|rest| rest.strip_suffix(')'));
    inner.map_or(body, |inner| inner.trim().trim_matches(['"', '\'']))
}

/// The name of a tag that looks like one of the actions'.
fn unknown(text: &str) -> Option<&str> {
    let name = |(at, _): (usize, &str)| {
        let (name, _) = text[at + 1..].split_once('>')?;
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(name)
    };
    text.match_indices("<execute_").find_map(name)
}

/// The answer itself is in no history, so the error has to show it.
fn wrong(text: &str, what: &str) -> Error {
    Error::invalid_arguments(format!("{what} {REMEDY}\nYou wrote: {}", truncate(text, SHOWN)))
}

#[cfg(test)]
mod tests {
    use conclave_sdk::{Error, act, finish};
    use serde_json::json;

    use super::action;

    fn read(text: &str) -> Option<conclave_sdk::Turn> {
        action(text, None, false).unwrap()
    }

    fn error(text: &str, is_cut: bool) -> String {
        match action(text, None, is_cut) {
            Err(Error::InvalidArguments(text)) => text,
            other => panic!("it was read: {other:?}"),
        }
    }

    #[test]
    fn each_tag_is_its_action() {
        for (text, thought, expected) in [
            ("I look.\n<execute_bash>\nls -a\n</execute_bash>", "I look.", act::run("ls -a")),
            (
                "<execute_ipython>\nif True:\n    print(1)\n\n</execute_ipython>",
                "",
                act::run_cell("if True:\n    print(1)"),
            ),
            (
                "<execute_browse>\nhttps://a.example\n</execute_browse>",
                "",
                act::browse("https://a.example"),
            ),
            (
                "<execute_browse>goto(\"https://a.example\")</execute_browse>",
                "",
                act::browse("https://a.example"),
            ),
        ] {
            assert_eq!(read(text), Some(expected.because(thought).with_text(text)), "{text}");
        }
    }

    #[test]
    fn an_invented_observation_is_dropped_and_a_missing_end_is_added() {
        let ls = || act::run("ls").with_text("<execute_bash>ls</execute_bash>");
        let invented = "<execute_bash>ls</execute_bash>\nOBSERVATION:\na.md\n<finish></finish>";
        assert_eq!(read(invented), Some(ls()));
        assert_eq!(read("<execute_bash>ls"), Some(ls()));
    }

    #[test]
    fn a_finish_has_its_answer_and_a_text_without_a_tag_is_a_message() {
        assert_eq!(read("Good.<finish>It is 48 m.</finish>"), Some(finish("It is 48 m.")));
        assert_eq!(read("It is 48 m.\n<finish></finish>"), Some(finish("It is 48 m.")));
        assert_eq!(read("Bye. <execute_bash>exit</execute_bash>"), Some(finish("Bye.")));
        assert_eq!(read("Which tower, if a < b > c?"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn browsing_is_delegated_to_the_task_that_does_it() {
        let text = "Its height. <execute_browse>goto('https://a.example')</execute_browse>";
        let task = "Its height.\nI should start with: goto('https://a.example')";
        let expected = act::delegate("web", json!({ "task": task }));
        assert_eq!(
            action(text, Some("web"), false).unwrap(),
            Some(expected.because("Its height.").with_text(text))
        );
    }

    #[test]
    fn an_error_names_the_remedy_and_shows_the_text() {
        for (text, is_cut, what) in [
            ("<execute_bash> \n</execute_bash>", false, "nothing between <execute_bash>"),
            ("<execute_shell>ls</execute_shell>", false, "no tag <execute_shell>"),
            ("<execute_bash>cat <<END\nand so", true, "cut off at the token limit"),
        ] {
            let error = error(text, is_cut);
            assert!(error.contains(what) && error.contains("<finish>answer</finish>"), "{error}");
            assert!(error.ends_with(text), "{error}");
        }
        let long = error(&format!("<execute_x>{}", "y".repeat(10_000)), false);
        assert!(long.len() < 1_200, "{}", long.len());
    }
}
