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
    /// What may be called for the rest of this run.
    allowed: Mutex<HashSet<Leave>>,
    /// Something was refused because nobody could be asked.
    nobody: AtomicBool,
}

/// What `[r] this run` holds for: a plugin's own calls of a tool, or those that another's answers want of it, and never both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leave {
    tool: String,
    caller: PluginName,
    asked_by: Option<PluginName>,
}

impl Leave {
    fn of(request: &ApprovalRequest) -> Self {
        Self { tool: request.tool.clone(), caller: request.caller.clone(), asked_by: request.asked_by.clone() }
    }
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
        let leave = Leave::of(&request);
        if self.allowed.lock().unwrap_or_else(PoisonError::into_inner).contains(&leave) {
            return Approval::Approved;
        }
        if !self.person.is_there() {
            self.nobody.store(true, Ordering::SeqCst);
            return refused("nobody is there to approve it: stdin and stderr are no terminal");
        }
        let (mut text, is_cut) = shown(&request, SHOWN);
        let mut is_sudden = true;
        loop {
            let mut question = Question::short(std::mem::take(&mut text), keys(is_cut));
            question.is_sudden = std::mem::take(&mut is_sudden);
            match self.person.ask(question).await {
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
                        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).insert(leave);
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
    let ApprovalRequest { task: _, caller, asked_by, tool, arguments, source } = request;
    let rule = paint(FAINT, format_args!("policy: {}", one_line(source, 80)));
    let whose = asked_by.as_ref().map(|plugin| format!(", as a follow-up that {} asks for", paint(NAME, plugin))).unwrap_or_default();
    let mut text = format!(" {}    {} wants to run for {}{whose}   {rule}", paint(ODD, "?"), one_line(tool, 80), paint(NAME, caller));
    let mut is_cut = false;
    let mut cut = |value: &str| {
        let kept: String = value.chars().take(most).collect();
        let left = value.chars().count().saturating_sub(most);
        is_cut |= left > 0;
        let more = if left > 0 { paint(FAINT, format_args!(" … and {left} characters more")) } else { String::new() };
        printable(&kept) + &more
    };
    match arguments {
        Value::Object(fields) if fields.is_empty() => {}
        Value::Object(fields) => {
            let width = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(20);
            for (name, value) in fields {
                let name = cut(&told_apart(name));
                let _ = write!(text, "\n        {name:<width$}  {}", cut(&value.to_string()));
            }
        }
        other => {
            let _ = write!(text, "\n        {}", cut(&other.to_string()));
        }
    }
    (text, is_cut)
}

/// A name as it is; one that could be taken for another, or for more than a name, as JSON has it.
fn told_apart(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use conclave_core::policy::ApprovalRequest;
    use serde_json::{Value, json};

    use super::{Choice, Leave, choice, shown};

    fn request(arguments: Value) -> ApprovalRequest {
        ApprovalRequest {
            task: "desk".into(),
            caller: "librarian".into(),
            asked_by: None,
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
    fn a_follow_up_says_who_wants_it_and_needs_a_leave_of_its_own() {
        let own = request(json!({}));
        let follow_up = ApprovalRequest { asked_by: Some("sneaky".into()), ..own.clone() };
        let text = anstream::adapter::strip_str(&shown(&follow_up, 300).0).to_string();
        assert!(text.contains("notes.save wants to run for librarian, as a follow-up that sneaky asks for   policy"), "{text}");
        assert_ne!(Leave::of(&own), Leave::of(&follow_up));
    }

    #[test]
    fn names_of_arguments_are_told_apart() {
        let long = "k".repeat(400);
        let arguments = json!({ format!("{long}a"): 1, format!("{long}b"): 2, "two words": 3, "two  words": 4 });
        let (text, is_cut) = plain(arguments.clone(), 300);
        assert!(is_cut && text.contains("101 characters more") && text.contains("\"two  words\""), "{text}");
        let (text, is_cut) = plain(arguments, usize::MAX);
        assert!(!is_cut && text.contains(&format!("{long}a")) && text.contains(&format!("{long}b")), "{text}");
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
