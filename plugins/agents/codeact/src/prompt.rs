//! The prompt: the task's system text, how to act, the history, and the newest observation in
//! OpenHands' words.

use conclave_sdk::model::{self, Part, Range, Request};
use conclave_sdk::{Draft, Role, View};

use crate::observation;

/// The tags, each with the tool of an executor that carries it out.
const FORMS: [(&str, &str); 3] = [
    (
        "run",
        "<execute_bash>\na command of the shell, or several lines of a script\n</execute_bash>",
    ),
    ("run_ipython", "<execute_ipython>\ncode of Python; its variables live on\n</execute_ipython>"),
    ("browse", "<execute_browse>\nthe address of a page\n</execute_browse>"),
];

/// The request for the next action. `delegates` is true if pages are another task's.
pub(crate) fn request(view: &View, delegates: bool) -> Request {
    let may = |tool: &str| view.tool(tool).is_some() || (tool == "browse" && delegates);
    let how = instructions(may, view.tool("done").is_some());
    let mut prompt = vec![Part::System, Part::Draft(system(how))];
    match observation::newest(view) {
        // The note replaces the host's own message about it, which is the last one.
        Some(text) => {
            let end = view.history_length().saturating_sub(1);
            prompt.extend([Part::History(Range { start: 0, end }), model::note(text)]);
        }
        None => prompt.push(model::history()),
    }
    Request { prompt, ..Request::default() }
}

fn instructions(may: impl Fn(&str) -> bool, has_done: bool) -> String {
    let forms: Vec<&str> =
        FORMS.iter().filter(|(tool, _)| may(tool)).map(|(_, form)| *form).collect();
    let done = if has_done { ", or the tool `done`" } else { "" };
    format!(
        "Work in small steps: one action, then read its observation, then the next one. Look before you change something, \
         and check afterwards that the change works.\n\
         Act by calling your tools. If you are offered no tools, write one of these tags in your answer, after a sentence that says why:\n\
         {}\n\
         When the task is done, end it with <finish>the answer</finish>{done}. A text without an action is a message to the user.",
        forms.join("\n")
    )
}

fn system(content: String) -> Draft {
    Draft {
        role: Role::System,
        content,
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::instructions;

    #[test]
    fn only_tags_with_an_executor_are_explained() {
        let all = instructions(|_| true, true);
        for tag in ["<execute_bash>", "<execute_ipython>", "<execute_browse>", "the tool `done`"] {
            assert!(all.contains(tag), "{tag}: {all}");
        }
        let shell = instructions(|tool| tool == "run", false);
        assert!(shell.contains("<execute_bash>") && shell.contains("<finish>"), "{shell}");
        assert!(!shell.contains("ipython") && !shell.contains("`done`"), "{shell}");
    }
}
