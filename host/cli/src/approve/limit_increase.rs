//! The question whether a run gets more of a limit that it has used up: yes, another amount, or no.
//! Without a terminal the answer is no.

use std::sync::atomic::Ordering;

use conclave_core::policy::budget::LimitIncrease;
use conclave_core::types::approval::{Approval, ApprovalAnswer};
use serde_json::{Value, json};

use super::{Approvals, ApproverState, ApproverTurn, by_user, refused, without_user};
use crate::ui::show::{ODD, one_line, paint, printable};
use crate::ui::user::{UserQuestion, UserReply};

const PROMPT: &str = "      [y] raise  [e] another amount  [n] no, end the run  (then Enter) > ";

impl ApproverState {
    pub(super) async fn top_up(&self, top_up: LimitIncrease) -> ApprovalAnswer {
        match self.approvals {
            Approvals::Prompt if self.user.is_there() => {}
            Approvals::Prompt => {
                return without_user("no user can raise it: stdin and stderr are not a terminal");
            }
            Approvals::Refuse => {
                return without_user("limit increases are refused by --approvals refuse");
            }
            // The answer comes from elsewhere, and this future is dropped then.
            Approvals::Wait => return std::future::pending().await,
        }
        let floor = std::sync::Arc::clone(&self.floor).lock_owned().await;
        let _talk = ApproverTurn { _floor: floor, _screen_hold: self.user.hold_the_rest() };
        let (mut above, mut is_sudden) = (question_text(&top_up), true);
        loop {
            let mut question = UserQuestion::short(std::mem::take(&mut above), PROMPT);
            question.is_sudden = std::mem::take(&mut is_sudden);
            let line = match self.user.ask(question).await {
                UserReply::End => {
                    self.lacked_user.store(true, Ordering::SeqCst);
                    return without_user("the input ended (Ctrl-D) before it was raised");
                }
                UserReply::Interrupted => {
                    self.interrupts.raise();
                    return by_user(refused("the user at the terminal stopped it"));
                }
                UserReply::Line(line) => line,
            };
            match line.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return by_user(Approval::Approved),
                "n" | "no" => return by_user(refused("the user at the terminal refused it")),
                "e" | "edit" => match self.amount(&top_up).await {
                    Some(arguments) => return by_user(Approval::Edited { arguments }),
                    None => above = String::new(),
                },
                _ => above = "      type one of these letters, then Enter".to_owned(),
            }
        }
    }

    /// Returns another amount, in the limit's unit. `None` if the user cancels.
    async fn amount(&self, top_up: &LimitIncrease) -> Option<Value> {
        let mut question =
            UserQuestion::short("      raise it by how much? Ctrl-C goes back", "      > ");
        question.initial = bare(&top_up.arguments(top_up.proposed));
        loop {
            let UserReply::Line(line) = self.user.ask(question.clone()).await else {
                return None;
            };
            let arguments = json!({ "add": read(&line) });
            match top_up.amount(&arguments) {
                Ok(_) => return Some(arguments),
                Err(_) => {
                    let example = bare(&top_up.arguments(top_up.proposed));
                    question.text =
                        format!("      {} such as {example}", paint(ODD, "not an amount:"));
                }
            }
            question.initial = line;
        }
    }
}

/// The question: the used-up limit and the proposed increase.
fn question_text(top_up: &LimitIncrease) -> String {
    let problem = top_up
        .problem
        .as_ref()
        .map(|problem| format!("\n      {} {}", paint(ODD, "invalid:"), printable(problem)))
        .unwrap_or_default();
    let proposed = top_up.budget.show(top_up.proposed);
    format!(
        " {}    {}\n      raise it by {proposed}?{problem}",
        paint(ODD, "?"),
        one_line(&top_up.sentence(), 200)
    )
}

/// The amount as a user types it: `0.25`, `5 min`.
fn bare(arguments: &Value) -> String {
    match &arguments["add"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Parses a number if the line is one, and a text otherwise.
fn read(line: &str) -> Value {
    let line = line.trim();
    serde_json::from_str(&line.replace(['_', ' '], ""))
        .ok()
        .filter(Value::is_number)
        .unwrap_or_else(|| Value::from(line))
}

#[cfg(test)]
mod tests {
    use conclave_core::policy::budget::Budget;
    use conclave_core::types::ids::TaskName;

    use super::*;

    #[test]
    fn a_shown_amount_parses_to_the_same_value() {
        for (budget, expected) in
            [(Budget::Cost, "0.25"), (Budget::Wall, "250 s"), (Budget::Tokens, "250000")]
        {
            let proposed = 250_000;
            let top_up = LimitIncrease {
                budget,
                limit: 1,
                used: 1,
                set_aside: 0,
                needed: None,
                proposed,
                task: TaskName::from("desk"),
                problem: None,
            };
            let text = bare(&top_up.arguments(proposed));
            assert_eq!(text, expected);
            assert_eq!(top_up.amount(&json!({ "add": read(&text) })), Ok(proposed));
        }
        assert_eq!((read("50_000"), read(" 5 min")), (json!(50_000), json!("5 min")));
    }
}
