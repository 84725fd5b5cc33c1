//! Librarian: answers a question with sentences from a folder. A search tool finds them, and the
//! librarian chooses. It has no model, so it only quotes, and says so if nothing fits.

mod choose;
mod found;
mod question;
mod quote;

use conclave_prose::files;
use conclave_sdk::{Agent, Result, Role, ToolOutput, Turn, View, call, finish};
use serde_json::json;

use found::Found;
use question::Question;

/// Sentences to choose from. A search tool ranks by rare words, so the answer may have a low rank.
const HITS: u32 = 40;

struct Librarian;

impl Agent for Librarian {
    fn step(view: &View) -> Result<Turn> {
        let question = question(view);
        if let Some(output) = view.tool_outputs().iter().find(|output| is_find(&output.name)) {
            return Ok(finish(answer(&question, output)));
        }
        if question.terms.is_empty() {
            return Ok(finish("There is no word in your question that I could search for."));
        }
        let asked = view.pending().is_some_and(|message| message.sender == Role::User);
        if view.iteration() > 0 && !asked {
            // The search was called and returned no result. Searching again would never end.
            return Ok(finish("I searched, but got no result."));
        }
        match view.tool("find") {
            Some(tool) => {
                Ok(call(tool.name, json!({ "query": question.keywords(), "limit": HITS }))
                    .because("the folder may know"))
            }
            None => Ok(finish("I have no search tool: I need one that is named `find`.")),
        }
    }
}

/// The latest question from the history, since each step is a fresh instance.
fn question(view: &View) -> Question {
    let asked = view.history().rev().find(|message| message.sender == Role::User);
    let message = asked.or_else(|| view.pending());
    Question::new(&message.map(|message| message.content).unwrap_or_default())
}

fn is_find(tool: &str) -> bool {
    tool == "find" || tool.ends_with(".find")
}

fn answer(question: &Question, output: &ToolOutput) -> String {
    if output.is_error {
        return format!("I could not search: {}", output.content);
    }
    let found = Found::read(output);
    let chosen = choose::best(question, &found.hits);
    if chosen.is_empty() {
        let place = found.files.map_or_else(|| "the folder".to_owned(), files);
        return format!(
            "I found nothing about {} in {place}{}.",
            question.keywords(),
            too_large(found.left_out)
        );
    }
    chosen.into_iter().map(quote::of).collect::<Vec<_>>().join("\n")
}

/// A user without an answer should learn that some files were not searched.
fn too_large(left_out: usize) -> String {
    match left_out {
        0 => String::new(),
        1 => " (1 was too large to search)".into(),
        _ => format!(" ({left_out} were too large to search)"),
    }
}

conclave_sdk::export!(agent: Librarian);

#[cfg(test)]
mod tests {
    use conclave_sdk::ToolOutput;
    use serde_json::json;

    use super::{Question, answer};

    fn output(value: serde_json::Value) -> ToolOutput {
        let name = "search.find".to_owned();
        ToolOutput {
            call_id: "1".into(),
            name,
            content: String::new(),
            value: Some(value.to_string()),
            is_error: false,
        }
    }

    #[test]
    fn an_answer_is_a_sentence_and_its_place() {
        let hits = json!([{ "path": "/folder/docs/lights.txt", "line": 1, "text": "Skerryvore was first lit in 1844.", "score": 6.5 }]);
        let question = Question::new("When was Skerryvore lit? Note it down.");
        let expected = "Skerryvore was first lit in 1844.  (folder/docs/lights.txt:1)";
        assert_eq!(answer(&question, &output(json!({ "files": 41, "hits": hits }))), expected);
    }

    #[test]
    fn nothing_found_is_said() {
        let question = Question::new("What is the capital of France?");
        let hits = json!([{ "path": "/folder/a.md", "line": 9, "text": "Ships from France pass it.", "score": 2.0 }]);
        for hits in [json!([]), hits] {
            let answer = answer(&question, &output(json!({ "files": 41, "hits": hits })));
            assert_eq!(answer, "I found nothing about capital France in 41 files.");
        }
    }

    #[test]
    fn files_that_were_not_searched_are_mentioned() {
        let answered = |files, left_out| {
            let value = json!({ "files": files, "left_out": left_out, "hits": [] });
            answer(&Question::new("Who built Skerryvore?"), &output(value))
        };
        assert_eq!(
            answered(6, 1),
            "I found nothing about built Skerryvore in 6 files (1 was too large to search)."
        );
        assert_eq!(
            answered(1, 2),
            "I found nothing about built Skerryvore in 1 file (2 were too large to search)."
        );
        assert_eq!(answered(1, 0), "I found nothing about built Skerryvore in 1 file.");
    }

    #[test]
    fn a_refusal_is_said() {
        let mut refused = output(json!(null));
        refused.is_error = true;
        refused.content = "files was refused: /folder".into();
        assert_eq!(
            answer(&Question::new("Who?"), &refused),
            "I could not search: files was refused: /folder"
        );
    }
}
