//! Approvals at the terminal: what wants to run, for whom, with what, and a letter that decides. One question at a time. Without a terminal
//! everything that is asked about is refused, and the program says so with its exit code, and which rules would allow it.

mod about;
mod always;
mod keys;
mod shown;
mod top_up;
mod waiting;
mod why;

use std::collections::{BTreeSet, HashSet};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::budget::TopUp;
use conclave_core::ids::PluginName;
use conclave_core::policy::{Approval, ApprovalRequest, Decide, decide};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use serde_json::Value;

use crate::args::Approvals;
use crate::interrupt::Interrupts;
use crate::person::{Person, Question, Reply};
use crate::screen::Held;
use crate::show::{FAINT, ODD, paint, printable};

pub(crate) use about::About;
pub(crate) use shown::told_risk;
pub(crate) use waiting::Waiting;

use keys::Choice;

/// How long a turn may take to stop.
const GRACE: Duration = Duration::from_millis(500);
/// How long a wrong edit may take to come back before others are asked about.
const CHECKED: Duration = Duration::from_millis(500);
/// Clocks differ by this much on whether a question has expired.
const SOON: Duration = Duration::from_millis(50);
/// Characters of a reason that reach the agent.
const REASON: usize = 1_000;

/// The person decides.
pub(crate) struct AtTerminal(Arc<Inner>);

struct Inner {
    person: Arc<Person>,
    interrupts: Interrupts,
    about: About,
    approvals: Approvals,
    /// What may be called for the rest of this run.
    allowed: Mutex<HashSet<Leave>>,
    /// Rules that would have allowed what was refused because nobody could be asked.
    missing: Mutex<BTreeSet<String>>,
    /// Something was refused because nobody could be asked.
    nobody: AtomicBool,
    /// Whoever has it talks with the person.
    floor: Arc<tokio::sync::Mutex<()>>,
    /// Arguments that the person wrote, while nobody knows yet whether they can run.
    edited: Mutex<Option<Edit>>,
}

/// An edit on its way to the tool. Other questions wait, in case it comes back.
struct Edit {
    /// Which call it is of, as it was first asked about.
    original: ApprovalRequest,
    arguments: Value,
    talk: Talk,
}

/// Who has it talks with the person, and nothing else is shown.
struct Talk {
    _floor: tokio::sync::OwnedMutexGuard<()>,
    _held: Held,
}

/// Nobody was there in time: as good as nobody at all.
struct Expiry<'a> {
    nobody: &'a AtomicBool,
    until: Option<Instant>,
}

impl Drop for Expiry<'_> {
    fn drop(&mut self) {
        if self.until.is_some_and(|until| until <= Instant::now() + SOON) {
            self.nobody.store(true, Ordering::SeqCst);
        }
    }
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

/// What became of one question.
enum Said {
    Answer(Approval),
    /// Asked again, with this above.
    Again(String),
}

impl AtTerminal {
    pub(crate) fn new(person: Arc<Person>, interrupts: Interrupts, about: About, approvals: Approvals) -> Arc<Self> {
        let (allowed, missing) = (Mutex::default(), Mutex::default());
        let (nobody, floor, edited) = (AtomicBool::new(false), Arc::default(), Mutex::default());
        Arc::new(Self(Arc::new(Inner { person, interrupts, about, approvals, allowed, missing, nobody, floor, edited })))
    }

    /// Something was refused because nobody could be asked.
    pub(crate) fn has_refused_for_nobody(&self) -> bool {
        self.0.nobody.load(Ordering::SeqCst)
    }

    /// Says on stderr which rules would have allowed what was refused because nobody could be asked.
    pub(crate) fn tell_missing(&self) {
        for missing in self.0.lock_missing().iter() {
            let _ = writeln!(anstream::stderr(), "{} {missing}", paint(FAINT, "help:"));
        }
    }
}

impl Approver for AtTerminal {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Approval> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.decide(request).await })
    }

    fn top_up(&self, top_up: TopUp) -> BoxFuture<'static, Approval> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.top_up(top_up).await })
    }
}

impl Inner {
    async fn decide(self: Arc<Self>, mut request: ApprovalRequest) -> Approval {
        let until = request.expires_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        let nobody = match self.approvals {
            Approvals::Ask if self.person.is_there() => None,
            Approvals::Ask => Some("nobody is there to approve it: stdin and stderr are no terminal"),
            Approvals::Refuse => Some("nobody is asked for approvals"),
            Approvals::Wait => None,
        };
        if let Some(nobody) = nobody {
            self.nobody.store(true, Ordering::SeqCst);
            self.lock_missing().extend(self.about.missing(&request));
            return refused(nobody);
        }
        let _expiry = Expiry { nobody: &self.nobody, until };
        if self.approvals == Approvals::Wait {
            // The word comes from elsewhere, and then nobody waits for this any more.
            return std::future::pending().await;
        }
        let edit = self.take_edit(&request);
        let (original, talk) = match edit {
            Some(edit) => (Some(edit.original), edit.talk),
            None => {
                let floor = Arc::clone(&self.floor).lock_owned().await;
                (None, Talk { _floor: floor, _held: self.person.hold_the_rest() })
            }
        };
        // What was said of another call while this one waited may hold for it too.
        if request.problem.is_none() && self.is_allowed(&request) {
            return Approval::Approved;
        }
        let is_back = original.is_some();
        // Where it begins when the person thinks better of an edit.
        let first = original.unwrap_or_else(|| request.clone());
        if let Some(problem) = request.problem.clone() {
            let above = format!("      {} {}", paint(ODD, "it cannot run:"), printable(&problem));
            if let Some(arguments) = self.edit(&request.arguments, above).await {
                return self.edited(first, arguments, talk);
            }
            request = first.clone();
        }
        match self.ask(&request, until).await {
            Approval::Edited { arguments } => self.edited(first, arguments, talk),
            // Without a word what would run are the arguments that were wrong.
            Approval::Approved if is_back => Approval::Edited { arguments: first.arguments },
            answer => answer,
        }
    }

    /// The edit that this is asked again about.
    fn take_edit(&self, request: &ApprovalRequest) -> Option<Edit> {
        let mut edited = self.edited.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |edit: &Edit| {
            let (tool, caller, asked_by) = (&edit.original.tool, &edit.original.caller, &edit.original.asked_by);
            edit.arguments == request.arguments && (tool, caller, asked_by) == (&request.tool, &request.caller, &request.asked_by)
        };
        if request.problem.is_some() && edited.as_ref().is_some_and(is_this) { edited.take() } else { None }
    }

    /// Gives the edit to whoever looks whether it can run; others are asked about once that must have been found out.
    fn edited(self: &Arc<Self>, original: ApprovalRequest, arguments: Value, talk: Talk) -> Approval {
        let edit = Edit { original, arguments: arguments.clone(), talk };
        *self.edited.lock().unwrap_or_else(PoisonError::into_inner) = Some(edit);
        let inner = Arc::downgrade(self);
        let mine = arguments.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CHECKED).await;
            if let Some(inner) = inner.upgrade() {
                let mut edited = inner.edited.lock().unwrap_or_else(PoisonError::into_inner);
                drop(edited.take_if(|edit| edit.arguments == mine));
            }
        });
        Approval::Edited { arguments }
    }

    async fn ask(&self, request: &ApprovalRequest, until: Option<Instant>) -> Approval {
        let (text, is_cut) = shown::shown(request, &self.about, until, shown::SHOWN);
        let can_always = request.problem.is_none() && self.about.can_write(request);
        let prompt = keys::prompt(is_cut, can_always);
        let (mut text, mut is_sudden) = (text, true);
        loop {
            let mut question = Question::short(std::mem::take(&mut text), prompt.clone());
            question.is_sudden = std::mem::take(&mut is_sudden);
            let line = match self.person.ask(question).await {
                Reply::End => {
                    self.nobody.store(true, Ordering::SeqCst);
                    self.lock_missing().extend(self.about.missing(request));
                    return refused("nobody is there any more to approve it");
                }
                Reply::Interrupted => {
                    self.interrupts.raise();
                    // What asked is stopped, and nobody waits for this any more, unless it asked in the background.
                    tokio::time::sleep(GRACE).await;
                    return refused("the person at the terminal stopped it");
                }
                Reply::Line(line) => line,
            };
            let choice = keys::choice(&line).filter(|choice| *choice != Choice::Always || can_always);
            match self.act(choice, request, until).await {
                Said::Answer(answer) => return answer,
                Said::Again(above) => text = above,
            }
        }
    }

    async fn act(&self, choice: Option<Choice>, request: &ApprovalRequest, until: Option<Instant>) -> Said {
        let runs = matches!(choice, Some(Choice::Once | Choice::ThisRun | Choice::Always));
        if runs && request.problem.is_some() {
            return Said::Again("      it cannot run with these arguments: edit them, or refuse".to_owned());
        }
        match choice {
            Some(Choice::Once) => Said::Answer(Approval::Approved),
            Some(Choice::ThisRun) => {
                self.allowed.lock().unwrap_or_else(PoisonError::into_inner).insert(Leave::of(request));
                Said::Answer(Approval::Approved)
            }
            Some(Choice::Always) => self.always(request).await,
            Some(Choice::Edit) => match self.edit(&request.arguments, "      as JSON; Ctrl-C goes back".to_owned()).await {
                Some(arguments) => Said::Answer(Approval::Edited { arguments }),
                None => Said::Again(String::new()),
            },
            Some(Choice::Refuse) => match self.reason().await {
                Some(reason) => Said::Answer(refused(&reason)),
                None => Said::Again(String::new()),
            },
            Some(Choice::Why) => Said::Again(why::text(request, &self.about)),
            Some(Choice::ShowAll) => Said::Again(shown::shown(request, &self.about, until, usize::MAX).0),
            None => Said::Again("      one letter, as below".to_owned()),
        }
    }

    /// Writes the rule that allows it, once the person has said for which arguments.
    async fn always(&self, request: &ApprovalRequest) -> Said {
        let can = |is_exact| self.about.leave(request, is_exact).is_some();
        let Some(is_exact) = self.asks_whether_exact(can(true), can(false)).await else { return Said::Again(String::new()) };
        match self.about.write(request, is_exact) {
            Ok(told) => {
                let _ = writeln!(anstream::stderr(), "{told}");
                Said::Answer(Approval::Approved)
            }
            Err(error) => Said::Again(format!("      {} {}", paint(ODD, "not written:"), printable(&error.to_string()))),
        }
    }

    /// None when the person thought better of it. What no rule can say is not offered.
    async fn asks_whether_exact(&self, exact: bool, any: bool) -> Option<bool> {
        let (mut above, prompt) = keys::which_arguments(exact, any);
        loop {
            let Reply::Line(line) = self.person.ask(Question::short(above, prompt)).await else { return None };
            match line.trim().to_ascii_lowercase().as_str() {
                "t" | "these" if exact => return Some(true),
                "y" | "any" if any => return Some(false),
                _ => above = "      one letter, as below".to_owned(),
            }
        }
    }

    /// Other arguments; none when the person thought better of it.
    async fn edit(&self, arguments: &Value, above: String) -> Option<Value> {
        let mut question = Question::short(above, "      > ");
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

    /// Why not, for the agent; none when the person thought better of it.
    async fn reason(&self) -> Option<String> {
        let question = Question::short("      why not? The agent reads it. Enter for no reason; Ctrl-C goes back", "      > ");
        let said = match self.person.ask(question).await {
            Reply::Line(line) => line.trim().chars().take(REASON).collect::<String>(),
            Reply::End => String::new(),
            Reply::Interrupted => return None,
        };
        Some(if said.is_empty() { "the person at the terminal said no".to_owned() } else { said })
    }

    /// Said before, in this run or by a rule that was written in it.
    fn is_allowed(&self, request: &ApprovalRequest) -> bool {
        let setup = self.about.setup();
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).contains(&Leave::of(request))
            || decide(&setup, request.callers(), &request.tool, &request.arguments).decide == Decide::Allow
    }

    fn lock_missing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(reason: &str) -> Approval {
    Approval::Refused { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::Leave;
    use super::about::testing::request;
    use conclave_core::policy::ApprovalRequest;
    use serde_json::json;

    #[test]
    fn a_follow_up_needs_a_leave_of_its_own() {
        let own = request(json!({}));
        let follow_up = ApprovalRequest { asked_by: Some("sneaky".into()), ..own.clone() };
        assert_ne!(Leave::of(&own), Leave::of(&follow_up));
    }
}
