//! Approvals at the terminal: what wants to run, for whom, with what, and a letter that decides. Without a terminal everything that a
//! rule asks about is refused, and the program says so with its exit code.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conclave_core::ids::PluginName;
use conclave_core::policy::{Approval, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use serde_json::Value;

use crate::interrupt::Interrupts;
use crate::person::{Person, Question, Reply};
use crate::show::{FAINT, NAME, ODD, one_line, paint, printable};

/// Characters of one argument that are shown before somebody asks for all of it.
const SHOWN: usize = 300;

/// How long a turn may take to stop.
const GRACE: Duration = Duration::from_millis(500);

/// The person decides.
pub(crate) struct AtTerminal(Arc<Inner>);

struct Inner {
    person: Arc<Person>,
    interrupts: Interrupts,
    /// Tools that a plugin may call for the rest of this run.
    allowed: Mutex<HashSet<(String, PluginName)>>,
    /// Something was refused because nobody could be asked.
    nobody: AtomicBool,
}

/// What the person chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Once,
    ThisRun,
    Edit,
    ShowAll,
    Refuse,
}

impl AtTerminal {
    pub(crate) fn new(person: Arc<Person>, interrupts: Interrupts) -> Arc<Self> {
        let inner = Inner { person, interrupts, allowed: Mutex::default(), nobody: AtomicBool::new(false) };
        Arc::new(Self(Arc::new(inner)))
    }

    /// Something was refused because nobody could be asked.
    pub(crate) fn has_refused_for_nobody(&self) -> bool {
        self.0.nobody.load(Ordering::SeqCst)
    }
}

impl Approver for AtTerminal {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Approval> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.decide(request).await })
    }
}

impl Inner {
    async fn decide(&self, request: ApprovalRequest) -> Approval {
        let key = (request.tool.clone(), request.caller.clone());
        if self.allowed.lock().unwrap_or_else(PoisonError::into_inner).contains(&key) {
            return Approval::Approved;
        }
        if !self.person.is_there() {
            self.nobody.store(true, Ordering::SeqCst);
            return refused("nobody is there to approve it: stdin and stderr are no terminal");
        }
        let (mut text, is_cut) = shown(&request, SHOWN);
        loop {
            let reply = self.person.ask(Question::short(std::mem::take(&mut text), keys(is_cut))).await;
            match reply {
                Reply::End => return refused("nobody is there any more to approve it"),
                Reply::Interrupted => {
                    self.interrupts.raise();
                    // What asked is stopped, and nobody waits for this any more, unless it asked in the background.
                    tokio::time::sleep(GRACE).await;
                    return refused("the person at the terminal stopped it");
                }
                Reply::Line(line) => match choice(&line) {
                    Some(Choice::Once) => return Approval::Approved,
                    Some(Choice::ThisRun) => {
                        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
                        return Approval::Approved;
                    }
                    Some(Choice::Refuse) => return refused("the person at the terminal said no"),
                    Some(Choice::ShowAll) => text = shown(&request, usize::MAX).0,
                    Some(Choice::Edit) => {
                        if let Some(arguments) = self.edit(&request.arguments).await {
                            return Approval::Edited { arguments };
                        }
                    }
                    None => text = "      one letter: y, r, e or n".to_owned(),
                },
            }
        }
    }

    /// Other arguments; none when the person thought better of it.
    async fn edit(&self, arguments: &Value) -> Option<Value> {
        let mut question = Question::short("      as JSON; Ctrl-C goes back", "      > ");
        question.initial = arguments.to_string();
        loop {
            let Reply::Line(line) = self.person.ask(question.clone()).await else { return None };
            match serde_json::from_str(&line) {
                Ok(edited) => return Some(edited),
                Err(error) => question.text = format!("      {} {error}", paint(ODD, "not JSON:")),
            }
            question.initial = line;
        }
    }
}

fn refused(reason: &str) -> Approval {
    Approval::Refused { reason: reason.to_owned() }
}

fn keys(is_cut: bool) -> String {
    let all = if is_cut { "[a] show all  " } else { "" };
    format!("      [y] once  [r] this run  [e] edit  {all}[n] refuse  > ")
}

fn choice(line: &str) -> Option<Choice> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Choice::Once),
        "r" | "run" => Some(Choice::ThisRun),
        "e" | "edit" => Some(Choice::Edit),
        "a" | "all" => Some(Choice::ShowAll),
        "n" | "no" => Some(Choice::Refuse),
        _ => None,
    }
}

/// What is asked, and whether an argument was cut.
fn shown(request: &ApprovalRequest, most: usize) -> (String, bool) {
    let ApprovalRequest { task: _, caller, tool, arguments, source } = request;
    let rule = paint(FAINT, format_args!("policy: {}", one_line(source, 80)));
    let mut text = format!(" {}    {} wants to run for {}   {rule}", paint(ODD, "?"), one_line(tool, 80), paint(NAME, caller));
    let mut is_cut = false;
    let mut line = |name: &str, value: &str| {
        let cut: String = value.chars().take(most).collect();
        let left = value.chars().count().saturating_sub(most);
        let more = if left > 0 { paint(FAINT, format_args!(" … and {left} characters more")) } else { String::new() };
        is_cut |= left > 0;
        let _ = write!(text, "\n        {name}{}{more}", printable(&cut));
    };
    match arguments {
        Value::Object(fields) if fields.is_empty() => {}
        Value::Object(fields) => {
            let width = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(20);
            for (name, value) in fields {
                line(&format!("{:<width$}  ", one_line(name, 40)), &value.to_string());
            }
        }
        other => line("", &other.to_string()),
    }
    (text, is_cut)
}

#[cfg(test)]
mod tests {
    use conclave_core::policy::ApprovalRequest;
    use serde_json::{Value, json};

    use super::{Choice, choice, shown};

    fn request(arguments: Value) -> ApprovalRequest {
        ApprovalRequest {
            task: "desk".into(),
            caller: "librarian".into(),
            tool: "notes.save".into(),
            arguments,
            source: "conclave.toml:49".into(),
        }
    }

    fn plain(arguments: Value, most: usize) -> (String, bool) {
        let (text, is_cut) = shown(&request(arguments), most);
        (anstream::adapter::strip_str(&text).to_string(), is_cut)
    }

    #[test]
    fn a_request_shows_what_runs_for_whom_and_with_what() {
        let (text, is_cut) = plain(json!({ "path": "/notes/a.md", "text": "lit in 1844" }), 300);
        assert_eq!(
            text,
            " ?    notes.save wants to run for librarian   policy: conclave.toml:49\n        path  \"/notes/a.md\"\n        text  \"lit in 1844\""
        );
        assert!(!is_cut);
    }

    #[test]
    fn arguments_cannot_deceive_whoever_approves_them() {
        let (text, is_cut) = plain(json!({ "text": "a\u{1b}[2Kb\u{202e}", "na\nme": "x".repeat(400) }), 300);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}') && text.lines().count() == 3, "{text}");
        assert!(is_cut && text.contains("102 characters more"), "{text}");
    }

    #[test]
    fn only_a_clear_answer_is_one() {
        assert_eq!(
            [" Y ", "yes", "r", "n", "e"].map(choice),
            [Some(Choice::Once), Some(Choice::Once), Some(Choice::ThisRun), Some(Choice::Refuse), Some(Choice::Edit)]
        );
        assert_eq!(["", "yn", "ok"].map(choice), [None; 3]);
    }
}
