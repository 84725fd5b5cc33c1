//! Approvals at the terminal. Each question shows the call, its callers and its arguments, and a
//! letter decides it. Questions are asked one at a time. Without a terminal, every call that needs
//! an approval is refused; the exit code and a list of the rules that would allow it report that.

mod always;
mod keys;
mod limit_increase;
mod pages;
mod pending_line;
mod request_context;
mod view;
mod why;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anstyle::Style;
use conclave_core::permissions::policy_rules::Decide;
use conclave_core::policy::budget::LimitIncrease;
use conclave_core::policy::decision::DecisionSource;
use conclave_core::setup::Setup;
use conclave_core::types::approval::{
    Approval, ApprovalAnswer, ApprovalAuthor, ApprovalCause, ApprovalRequest, Participant,
};
use conclave_core::types::ids::PluginName;
use conclave_core::types::risk::Risk;
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use serde_json::Value;

use crate::args::Approvals;
use crate::ui::interrupt::Interrupts;
use crate::ui::screen::{ScreenHold, columns};
use crate::ui::show::entry::EntryText;
use crate::ui::show::{FAINT, ODD, paint};
use crate::ui::stderr;
use crate::ui::user::{TerminalUser, UserQuestion, UserReply};

pub(crate) use keys::{KeyChoice, choice};
pub(crate) use pages::{NOT_ALL_SHOWN, Pages};
pub(crate) use pending_line::PendingLine;
pub(crate) use request_context::{RequestContext, plugin_of, unfit_arguments};
pub(crate) use view::ApprovalView;

/// Time that a run gets to stop an interrupted turn before the question returns.
const GRACE: Duration = Duration::from_millis(500);
/// Time that a rejected edit gets to come back before other questions are asked.
const CHECKED: Duration = Duration::from_millis(500);
/// Tolerance between clocks when deciding whether a question has expired.
const SOON: Duration = Duration::from_millis(50);
/// Characters of a refusal's reason that reach the agent.
const REASON: usize = 1_000;

/// An approver that asks the user at the terminal.
pub(crate) struct TerminalApprover(Arc<ApproverState>);

struct ApproverState {
    user: Arc<TerminalUser>,
    interrupts: Interrupts,
    about: RequestContext,
    approvals: Approvals,
    /// Answers that hold for the rest of this run.
    standing: Mutex<HashMap<QuestionKind, AnswerForRun>>,
    /// Rules that would have allowed calls refused for lack of a user.
    missing: Mutex<BTreeSet<String>>,
    /// Whether a call was refused because no user could be asked.
    lacked_user: AtomicBool,
    /// The terminal lock: its holder asks the user.
    floor: Arc<tokio::sync::Mutex<()>>,
    /// Edited arguments that have not been validated yet.
    edited: Mutex<Option<PendingEdit>>,
}

/// An edit that is being validated. Other questions wait, in case it comes back.
struct PendingEdit {
    /// The call as it was first asked about.
    original: ApprovalRequest,
    arguments: Value,
    talk: ApproverTurn,
}

/// The holder of the terminal lock. No other question is shown while it lives.
struct ApproverTurn {
    _floor: tokio::sync::OwnedMutexGuard<()>,
    _screen_hold: ScreenHold,
}

/// A question's expiry. An expired question counts as one without a user.
struct Expiry<'a> {
    lacked_user: &'a AtomicBool,
    until: Option<Instant>,
}

impl Drop for Expiry<'_> {
    fn drop(&mut self) {
        if self.until.is_some_and(|until| until <= Instant::now() + SOON) {
            self.lacked_user.store(true, Ordering::SeqCst);
        }
    }
}

/// The questions that one answer for this run covers: those with the same tool or action, plugins
/// and causes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QuestionKind {
    tool: String,
    executor: Option<PluginName>,
    /// All that led to the call, in order, and whether each is behind the newest delegation. An
    /// answer about one chain of plugins is none about another.
    participants: Vec<(PluginName, bool)>,
    causes: Vec<ApprovalCause>,
}

impl QuestionKind {
    fn of(request: &ApprovalRequest) -> Self {
        Self {
            tool: request.tool.clone(),
            executor: request.executor.clone(),
            participants: request
                .participants()
                .map(|it| (it.plugin().clone(), matches!(it, Participant::Caller(_))))
                .collect(),
            causes: request.causes.clone(),
        }
    }
}

/// An answer that holds for the rest of the run.
#[derive(Clone, Debug, PartialEq)]
struct AnswerForRun {
    answer: Approval,
    /// The risk of the approved call; `None` if no analyzer assessed it.
    risk: Option<Risk>,
    given_ms: u64,
}

impl AnswerForRun {
    fn new(answer: Approval, request: &ApprovalRequest) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            answer,
            risk: request.risk,
            given_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Whether the answer covers a call of this risk. An approval covers no higher risk, and an
    /// unknown risk only if the approved call's was unknown too. A refusal covers any risk.
    fn answers(&self, risk: Option<Risk>) -> bool {
        match (&self.answer, self.risk, risk) {
            (Approval::Refused { .. }, ..) | (_, None, None) => true,
            (_, Some(approved), Some(risk)) => risk <= approved,
            _ => false,
        }
    }
}

/// The outcome of showing a question once.
enum ApprovalStep {
    Answer(Approval),
    /// Decided, for this call and every such call of this run.
    ForThisRun(Approval),
    /// Ask again, with this text above the question.
    Again(String),
}

impl TerminalApprover {
    pub(crate) fn new(
        user: Arc<TerminalUser>,
        interrupts: Interrupts,
        about: RequestContext,
        approvals: Approvals,
    ) -> Arc<Self> {
        let (standing, missing) = (Mutex::default(), Mutex::default());
        let (lacked_user, floor, edited) =
            (AtomicBool::new(false), Arc::default(), Mutex::default());
        Arc::new(Self(Arc::new(ApproverState {
            user,
            interrupts,
            about,
            approvals,
            standing,
            missing,
            lacked_user,
            floor,
            edited,
        })))
    }

    /// Whether a call was refused because no user could be asked.
    pub(crate) fn has_refused_without_user(&self) -> bool {
        self.0.lacked_user.load(Ordering::SeqCst)
    }

    /// Reports on stderr which rules would have allowed the calls refused for lack of a user.
    pub(crate) fn report_missing(&self) {
        for missing in self.0.lock_missing().iter() {
            stderr::line(format_args!("{} {missing}", paint(FAINT, "help:")));
        }
    }
}

impl Approver for TerminalApprover {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.decide(request).await })
    }

    fn top_up(&self, top_up: LimitIncrease) -> BoxFuture<'static, ApprovalAnswer> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.top_up(top_up).await })
    }
}

impl ApproverState {
    async fn decide(self: Arc<Self>, mut request: ApprovalRequest) -> ApprovalAnswer {
        let until = request.expires_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        let refusal = match self.approvals {
            Approvals::Prompt if self.user.is_there() => None,
            Approvals::Prompt => {
                Some("no user can approve it: stdin and stderr are not a terminal")
            }
            Approvals::Refuse => Some("approvals are refused by --approvals refuse"),
            Approvals::Wait => None,
        };
        if let Some(refusal) = refusal {
            self.lacked_user.store(true, Ordering::SeqCst);
            self.lock_missing().extend(self.about.missing(&request));
            return without_user(refusal);
        }
        let _expiry = Expiry { lacked_user: &self.lacked_user, until };
        if self.approvals == Approvals::Wait {
            // The answer comes from elsewhere, and this future is dropped then.
            return std::future::pending().await;
        }
        let edit = self.take_edit(&request);
        let (original, talk) = match edit {
            Some(edit) => (Some(edit.original), edit.talk),
            None => {
                let floor = Arc::clone(&self.floor).lock_owned().await;
                (None, ApproverTurn { _floor: floor, _screen_hold: self.user.hold_the_rest() })
            }
        };
        // An answer for the rest of the run, given while this call waited, may cover it too.
        if request.problem.is_none()
            && let Some(answer) = self.answered(&request)
        {
            return answer;
        }
        let is_back = original.is_some();
        // The call to return to when the user abandons an edit.
        let first = original.unwrap_or_else(|| request.clone());
        if let Some(problem) = request.problem.clone() {
            let above =
                marked(&EntryText::new(ODD, "it cannot run").in_full(Style::new(), &problem));
            if let Some(arguments) = self.edit(&request, above).await {
                return by_user(self.edited(first, arguments, talk));
            }
            request = first.clone();
        }
        let ApprovalAnswer { approval, author } = self.ask(&request, until).await;
        let approval = match approval {
            Approval::Edited { arguments } => self.edited(first, arguments, talk),
            // A plain approval here would run the arguments that failed validation.
            Approval::Approved if is_back => Approval::Edited { arguments: first.arguments },
            answer => answer,
        };
        approval.by(author)
    }

    /// The edit that this request asks about again.
    fn take_edit(&self, request: &ApprovalRequest) -> Option<PendingEdit> {
        let mut edited = self.edited.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |edit: &PendingEdit| {
            edit.arguments == request.arguments
                && edit.original.tool == request.tool
                && edit.original.participants().eq(request.participants())
        };
        if request.problem.is_some() && edited.as_ref().is_some_and(is_this) {
            edited.take()
        } else {
            None
        }
    }

    /// Hands the edit over for validation. Other questions wait until it must have been validated.
    fn edited(
        self: &Arc<Self>,
        original: ApprovalRequest,
        arguments: Value,
        talk: ApproverTurn,
    ) -> Approval {
        let edit = PendingEdit { original, arguments: arguments.clone(), talk };
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

    async fn ask(&self, request: &ApprovalRequest, until: Option<Instant>) -> ApprovalAnswer {
        let can_always = request.problem.is_none() && self.about.can_write(request);
        let performer = self.about.plugin_of(request);
        let view = |columns| ApprovalView::new(request, performer.as_ref(), until, columns);
        let mut pages = Pages::new(view, pages::letter_rows);
        let (mut above, mut is_sudden) = (pages.text(), true);
        loop {
            let letters = keys::letters(pages.is_read(), can_always, pages.has_more());
            let text = if above.is_empty() {
                letters
            } else {
                format!("{}\n{letters}", std::mem::take(&mut above))
            };
            let mut question = UserQuestion::short(text, keys::PROMPT);
            // Only the first page comes unasked; a later one follows a key that the user pressed.
            question.is_sudden = std::mem::take(&mut is_sudden);
            let line = match self.user.ask(question).await {
                UserReply::End => {
                    self.lacked_user.store(true, Ordering::SeqCst);
                    self.lock_missing().extend(self.about.missing(request));
                    return without_user("the input ended (Ctrl-D) before it was approved");
                }
                UserReply::Interrupted => {
                    self.interrupts.raise();
                    // The run stops its turn and drops this future. Only a background task's
                    // question survives that.
                    tokio::time::sleep(GRACE).await;
                    return by_user(refused("the user at the terminal stopped it"));
                }
                UserReply::Line(line) => line,
            };
            let choice = choice(&line).filter(|choice| *choice != KeyChoice::Always || can_always);
            // The terminal may have rewrapped the rows without marks, so an answer to them does not
            // count.
            let needs_pages =
                |choice: KeyChoice| choice == KeyChoice::ShowMore || choice.lets_run();
            if choice.is_some_and(needs_pages) && pages.is_outdated() {
                pages = Pages::new(view, pages::letter_rows);
                above = pages.text_after_resize();
                continue;
            }
            if choice == Some(KeyChoice::ShowMore) {
                above = pages.next();
                continue;
            }
            if choice.is_some_and(KeyChoice::lets_run) && !pages.is_read() {
                above = NOT_ALL_SHOWN.to_owned();
                continue;
            }
            match self.act(choice, request).await {
                ApprovalStep::Answer(answer) => return by_user(answer),
                ApprovalStep::ForThisRun(answer) => {
                    let standing = AnswerForRun::new(answer.clone(), request);
                    self.standing
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(QuestionKind::of(request), standing);
                    return by_user(answer);
                }
                ApprovalStep::Again(text) => above = text,
            }
        }
    }

    async fn act(&self, choice: Option<KeyChoice>, request: &ApprovalRequest) -> ApprovalStep {
        if choice.is_some_and(KeyChoice::runs) && request.problem.is_some() {
            return ApprovalStep::Again(
                "      it cannot run with these arguments: edit them, or refuse".to_owned(),
            );
        }
        match choice {
            Some(KeyChoice::Once) => ApprovalStep::Answer(Approval::Approved),
            Some(KeyChoice::ThisRun) => ApprovalStep::ForThisRun(Approval::Approved),
            Some(KeyChoice::Always) => self.always(request).await,
            Some(KeyChoice::Edit) => match self
                .edit(request, "      arguments as JSON; Ctrl-C goes back".to_owned())
                .await
            {
                Some(arguments) => ApprovalStep::Answer(Approval::Edited { arguments }),
                None => ApprovalStep::Again(String::new()),
            },
            Some(KeyChoice::Refuse) => match self.reason().await {
                Some(reason) => ApprovalStep::Answer(refused(&reason)),
                None => ApprovalStep::Again(String::new()),
            },
            Some(KeyChoice::RefuseThisRun) => match self.reason().await {
                Some(reason) => ApprovalStep::ForThisRun(refused(&reason)),
                None => ApprovalStep::Again(String::new()),
            },
            Some(KeyChoice::Why) => ApprovalStep::Again(why::text(request, &self.about)),
            Some(KeyChoice::ShowMore) | None => {
                ApprovalStep::Again("      type one of these letters, then Enter".to_owned())
            }
        }
    }

    /// Writes the rule that allows the call, after the user has chosen for which arguments.
    async fn always(&self, request: &ApprovalRequest) -> ApprovalStep {
        let can = |is_exact| self.about.leave(request, is_exact).is_some();
        let Some(is_exact) = self.asks_whether_exact(can(true), can(false)).await else {
            return ApprovalStep::Again(String::new());
        };
        match self.about.write(request, is_exact) {
            Ok(text) => {
                stderr::line(text);
                ApprovalStep::Answer(Approval::Approved)
            }
            Err(error) => ApprovalStep::Again(marked(
                &EntryText::new(ODD, "not written").in_full(Style::new(), &error.to_string()),
            )),
        }
    }

    /// Whether the rule is for these arguments only, or `None` if the user cancels. Only choices
    /// that a rule can express are offered.
    async fn asks_whether_exact(&self, exact: bool, any: bool) -> Option<bool> {
        let (mut above, prompt) = keys::which_arguments(exact, any);
        loop {
            let UserReply::Line(line) = self.user.ask(UserQuestion::short(above, prompt)).await
            else {
                return None;
            };
            match line.trim().to_ascii_lowercase().as_str() {
                "t" | "these" if exact => return Some(true),
                "y" | "any" if any => return Some(false),
                _ => above = "      type one of these letters, then Enter".to_owned(),
            }
        }
    }

    /// Returns edited arguments, or `None` if the user cancels. Those that do not fit are edited
    /// again, with the words of `conclave approve --arguments`; the run checks them in full.
    async fn edit(&self, request: &ApprovalRequest, above: String) -> Option<Value> {
        let mut question = UserQuestion::short(above, "      > ");
        question.initial = keys::editable(&request.arguments);
        loop {
            let UserReply::Line(line) = self.user.ask(question.clone()).await else {
                return None;
            };
            match serde_json::from_str(&line) {
                Ok(edited) => match self.about.unfit(request, &edited) {
                    None => return Some(edited),
                    Some(wrong) => {
                        let wrong =
                            EntryText::new(ODD, "it cannot run").in_full(Style::new(), &wrong);
                        question.text = marked(&wrong);
                    }
                },
                Err(error) => question.text = format!("      {} {error}", paint(ODD, "not JSON:")),
            }
            question.initial = keys::escaped_input(&line);
        }
    }

    /// Returns the reason of a refusal, for the agent. `None` if the user cancels.
    async fn reason(&self) -> Option<String> {
        let question = UserQuestion::short(
            "      the reason, which the agent reads; Enter for none, Ctrl-C to go back",
            "      > ",
        );
        let reason = match self.user.ask(question).await {
            UserReply::Line(line) => line.trim().chars().take(REASON).collect::<String>(),
            UserReply::End => String::new(),
            UserReply::Interrupted => return None,
        };
        Some(if reason.is_empty() {
            "the user at the terminal refused it".to_owned()
        } else {
            reason
        })
    }

    /// An earlier answer that covers the request: one for this run, or one by a rule written during
    /// it.
    fn answered(&self, request: &ApprovalRequest) -> Option<ApprovalAnswer> {
        let standing = self
            .standing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&QuestionKind::of(request))
            .cloned();
        match standing.filter(|standing| standing.answers(request.risk)) {
            Some(AnswerForRun { answer, given_ms, .. }) => {
                Some(answer.by(ApprovalAuthor::ForThisRun { at: TERMINAL.to_owned(), given_ms }))
            }
            None => answered_by_rule(&self.about.setup(), request),
        }
    }

    fn lock_missing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of the rule that allows the call by now. A rule answers only questions that rules and
/// grants ask; a question of `tasks.NAME.confirm` needs a user (B1).
fn answered_by_rule(setup: &Setup, request: &ApprovalRequest) -> Option<ApprovalAnswer> {
    let decision = request.decide(setup, &request.arguments);
    match decision.why {
        DecisionSource::Rule { rule, .. }
            if request.is_for_rules() && decision.decide == Decide::Allow =>
        {
            Some(Approval::Approved.by(ApprovalAuthor::Rule { source: rule.source.clone() }))
        }
        _ => None,
    }
}

/// An entry indented like the program's own rows of a question.
fn marked(entry: &EntryText) -> String {
    let rows = entry.rows(columns().saturating_sub(MARGIN));
    rows.iter().map(|row| format!("{:1$}{row}", "", MARGIN)).collect::<Vec<_>>().join("\n")
}

/// Columns in front of the program's own rows of a question.
const MARGIN: usize = 6;

/// The approver's location in the journal.
const TERMINAL: &str = "the terminal";

fn refused(reason: &str) -> Approval {
    Approval::Refused { reason: reason.to_owned() }
}

fn by_user(approval: Approval) -> ApprovalAnswer {
    approval.by(ApprovalAuthor::Person { at: TERMINAL.to_owned() })
}

fn without_user(reason: &str) -> ApprovalAnswer {
    refused(reason).by(ApprovalAuthor::Nobody)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use conclave_core::permissions::grants::ToolPattern;
    use conclave_core::permissions::policy_rules::{Policy, Rule};
    use conclave_core::types::approval::Delegator;
    use serde_json::json;

    use super::request_context::testing::request;
    use super::*;

    #[test]
    fn an_answer_for_this_run_covers_only_the_same_kind_of_question() {
        let own = request(json!({}));
        let follow_up = ApprovalRequest { led_by: vec!["sneaky".into()], ..own.clone() };
        let confirmed = ApprovalRequest { causes: vec![ApprovalCause::Confirm], ..own.clone() };
        let both = ApprovalRequest {
            causes: vec![ApprovalCause::Rule(0), ApprovalCause::Confirm],
            ..own.clone()
        };
        let action =
            ApprovalRequest { tool: "write".into(), executor: Some("notes".into()), ..own.clone() };
        let delegator = Delegator {
            task: "main".into(),
            plugin: "driver".into(),
            brief: String::new(),
            led_by: Vec::new(),
        };
        let delegated = ApprovalRequest { delegators: vec![delegator], ..own.clone() };
        for other in [follow_up, confirmed, both, action, delegated] {
            assert_ne!(QuestionKind::of(&own), QuestionKind::of(&other), "{other:?}");
        }
        let other_arguments =
            ApprovalRequest { arguments: json!({ "path": "/other" }), ..own.clone() };
        assert_eq!(QuestionKind::of(&own), QuestionKind::of(&other_arguments));
    }

    /// B1: the program approved a call that `confirm` asked about, because a rule allowed it.
    #[test]
    fn a_rule_does_not_answer_a_confirm_question() {
        let about = request_context::testing::about(
            Path::new("/nowhere"),
            Path::new("/nowhere/conclave.toml"),
        );
        let mut setup = Setup::clone(&about.setup());
        setup.policy = Policy::from(vec![Rule {
            tool: ToolPattern("notes.*".to_owned()),
            caller: None,
            arguments: Vec::new(),
            only: false,
            decide: Decide::Allow,
            expires_ms: None,
            source: "conclave.toml:3".to_owned(),
        }]);
        let by_rule = request(json!({}));
        let author = answered_by_rule(&setup, &by_rule).map(|answer| answer.author);
        assert_eq!(author, Some(ApprovalAuthor::Rule { source: "conclave.toml:3".to_owned() }));
        for causes in
            [vec![ApprovalCause::Confirm], vec![ApprovalCause::Grants, ApprovalCause::Confirm]]
        {
            assert_eq!(
                answered_by_rule(&setup, &ApprovalRequest { causes, ..by_rule.clone() }),
                None
            );
        }
        setup.policy = Policy::default();
        assert_eq!(answered_by_rule(&setup, &by_rule), None, "grants answer nothing");
    }

    #[test]
    fn an_approval_covers_no_higher_risk_and_a_refusal_covers_any() {
        let standing = |answer: Approval, risk| AnswerForRun { answer, risk, given_ms: 0 };
        let medium = standing(Approval::Approved, Some(Risk::Medium));
        let answered = [Some(Risk::Low), Some(Risk::Medium), Some(Risk::High), None]
            .map(|risk| medium.answers(risk));
        assert_eq!(answered, [true, true, false, false]);
        let unknown = standing(Approval::Approved, None);
        assert!(
            unknown.answers(None)
                && !unknown.answers(Some(Risk::High))
                && !unknown.answers(Some(Risk::Low))
        );
        assert!(standing(refused("no"), Some(Risk::Low)).answers(Some(Risk::High)));
    }
}
