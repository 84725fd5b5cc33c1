//! `conclave approve ID` and `conclave refuse ID`: decide one pending call, from another terminal
//! or after a restart. An id means that one call with the arguments that are shown, and nothing
//! else. The process that has the run in progress applies the decision.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use conclave_core::journal::pending_work::WaitKey;
use conclave_core::journal::record::setup_in_force;
use conclave_core::policy::budget::check_top_up_arguments;
use conclave_core::protocol::event::Event;
use conclave_core::tool_calls::arguments::{Wrong, check};
use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::ids::{CallId, ControlId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, DecisionSent, MailState, StoreError, WaitRow, is_in_use,
};
use serde_json::{Value, json};

use crate::approve::{ApprovalView, KeyChoice, NOT_ALL_SHOWN, Pages, choice, plugin_of};
use crate::args::{self, OutputArgs};
use crate::commands::approvals::{decision_word, state_of};
use crate::program::approval_id::{approval_id, parse_approval_id};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::stores::{OpenStores, StoredRoom, unusable};
use crate::ui::screen::columns;
use crate::ui::show::run_state::continued_by;
use crate::ui::show::{FAINT, NAME, one_line, paint, printable};
use crate::ui::{ask, stdout};

/// The time in which a process records a decision; behind it the answer says that it will.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);
/// The interval between two looks whether it has.
const EVERY: Duration = Duration::from_millis(50);
/// The reason of a refusal that gives none.
const NO: &str = "the operator refused it";
/// Characters of a reason that reach the agent.
const REASON: usize = 1_000;
/// The note below arguments that the approver edited.
const EDITED: &str = "these are your arguments, which replace the original ones";
/// Rows below a page: a note about edited arguments, and the question.
const ROWS_BELOW: usize = 3;
/// The question below every page but the last.
const NEXT_PAGE: &str = "      [s] next page";
/// The kind of a pending limit increase.
const TOP_UP: &str = "top-up";

pub(crate) fn approve(args: &args::Approve, output: OutputArgs) -> Result<u8, CliError> {
    let edited = args.arguments.as_deref().map(arguments).transpose()?;
    let waiting = PendingCall::find(&args.id, args.store.as_deref())?;
    if !args.instead {
        waiting.check_unsaid()?;
    }
    if let Some(arguments) = &edited {
        waiting.check_arguments(arguments)?;
    }
    let is_asked = !args.yes && ask::is_user_there();
    let is_approved = waiting.show(edited.as_ref(), is_asked)?;
    if !args.yes && !is_asked {
        let what =
            format!("{} was not approved: no user is at the terminal to confirm it", waiting.id());
        return Err(CliError::policy(what).hint("review it, then pass --yes"));
    }
    if is_asked && !is_approved {
        let _ = writeln!(
            crate::ui::output::stderr(),
            "{}",
            paint(FAINT, "not approved; the call is still pending")
        );
        return Ok(exit::FAILED);
    }
    let approval = edited.map_or(Approval::Approved, |arguments| Approval::Edited { arguments });
    waiting.say(approval, args.instead, output)
}

pub(crate) fn refuse(args: &args::Refuse, output: OutputArgs) -> Result<u8, CliError> {
    let waiting = PendingCall::find(&args.id, args.store.as_deref())?;
    let reason = args.reason.as_deref().map_or(NO, str::trim).chars().take(REASON).collect();
    waiting.say(Approval::Refused { reason }, args.instead, output)
}

fn arguments(text: &str) -> Result<Value, CliError> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(CliError::usage("--arguments is not a JSON object")),
        Err(error) => Err(CliError::usage(format!("--arguments is not JSON: {error}"))),
    }
}

/// A pending call.
struct PendingCall {
    found: StoredRoom,
    call: CallId,
    request: Box<ApprovalRequest>,
    is_live: bool,
    /// Whether the call asks for a limit increase.
    is_top_up: bool,
}

/// A decision that a run has recorded.
struct RecordedDecision {
    /// The id of its message; `None` if the run's own terminal or a browser decided.
    message: Option<ControlId>,
    word: &'static str,
    author: String,
}

impl PendingCall {
    fn find(id: &str, store: Option<&Path>) -> Result<Self, CliError> {
        let (room, call) = parse_approval_id(id)?;
        let found = OpenStores::of(store).find(&room)?;
        let waits = found.reader.waits(Some(&found.run())).map_err(|error| unusable(&error))?;
        let is_this =
            |row: &&WaitRow| row.room == found.room && row.wait.key == WaitKey::Call(call);
        let this =
            waits.iter().find(is_this).and_then(|row| Some((row.wait.request.clone()?, row)));
        let Some((request, row)) = this else { return Err(none(&found.room, call, &waits)) };
        let (is_live, is_top_up) = (row.is_live, row.wait.kind == TOP_UP);
        Ok(Self { found, call, request, is_live, is_top_up })
    }

    fn id(&self) -> String {
        approval_id(&self.found.room, self.call)
    }

    /// Returns whether the message decides this call.
    fn is_meant(&self, mail: &ControlMessage) -> bool {
        mail.room == self.found.room
            && matches!(mail.word, ControlCommand::Decide { call, .. } if call == self.call)
    }

    /// Checks that no decision is pending. The first one counts, so another would be lost silently.
    fn check_unsaid(&self) -> Result<(), CliError> {
        let pending = ControlMessage::pending(self.found.reader.folder())
            .map_err(|error| unusable(&error))?;
        match pending.into_iter().find(|mail| self.is_meant(mail)) {
            Some(mail) => Err(self.on_its_way(&mail)),
            None => Ok(()),
        }
    }

    /// Returns the error for a call about which another decision is on its way.
    fn on_its_way(&self, mail: &ControlMessage) -> CliError {
        let word = match &mail.word {
            ControlCommand::Decide { approval, .. } => decision_word(approval),
            _ => "decided",
        };
        let what =
            format!("{} was already {word}; the run has not received that decision yet", self.id());
        CliError::usage(what).hint("--instead replaces that decision")
    }

    /// Returns the error for a call that was decided before this decision arrived, with the
    /// recorded decision.
    fn decided_before(&self) -> CliError {
        let what = match self.recorded() {
            Ok(Some(RecordedDecision { word, author, .. })) => {
                format!("{} was already {word} by {author}; this decision has no effect", self.id())
            }
            Ok(None) => {
                format!("{} is not pending any more; this decision has no effect", self.id())
            }
            Err(error) => return error,
        };
        CliError::usage(what)
            .hint(format!("`conclave show {}` shows the state of the run", self.found.run()))
    }

    /// Returns the recorded decision about the call.
    fn recorded(&self) -> Result<Option<RecordedDecision>, CliError> {
        let records = self.found.reader.records(&self.found.room);
        let records = records.map_err(|error| unusable(&error))?;
        Ok(records.into_iter().find_map(|record| {
            let Event::Decided { call, approval, author } = record.event.effective() else {
                return None;
            };
            let message = match &record.event {
                Event::ControlReceived { id, .. } => Some(id.clone()),
                _ => None,
            };
            let (word, author) = (decision_word(approval), author.to_string());
            (*call == self.call).then_some(RecordedDecision { message, word, author })
        }))
    }

    fn is_pending(&self) -> Result<bool, StoreError> {
        let waits = self.found.reader.waits(Some(&self.found.run()))?;
        Ok(waits
            .iter()
            .any(|row| row.room == self.found.room && row.wait.key == WaitKey::Call(self.call)))
    }

    /// Waits until the run's process has recorded the decision, for a short time. Returns whether
    /// it has.
    ///
    /// # Errors
    /// If another decision was recorded, which came from the run's own terminal.
    fn wait_for_record(&self, mail: &ControlMessage) -> Result<bool, CliError> {
        let (store, until) = (self.found.reader.folder(), Instant::now() + RECORDED_WITHIN);
        while mail.state(store) != MailState::Gone {
            if Instant::now() >= until || !is_in_use(store) {
                return Ok(false);
            }
            std::thread::sleep(EVERY);
        }
        match self.recorded()? {
            Some(recorded) if recorded.message.as_ref() == Some(&mail.id) => Ok(true),
            _ => Err(self.decided_before()),
        }
    }

    /// Takes back an earlier decision about this call.
    ///
    /// # Errors
    /// If the run's process has received the earlier decision. That one may take effect, and a new
    /// one would not.
    fn take_back(&self) -> Result<(), CliError> {
        let store = self.found.reader.folder();
        ControlMessage::take_back(store, |mail| self.is_meant(mail))
            .map_err(|error| unusable(&error))?;
        let left = ControlMessage::pending(store)
            .map_err(|error| unusable(&error))?
            .into_iter()
            .find(|mail| self.is_meant(mail));
        let Some(left) = left else { return Ok(()) };
        if is_in_use(store) {
            let what = format!(
                "the run of {} has received an earlier decision and not recorded it yet; that one may take effect",
                self.id()
            );
            return Err(CliError::usage(what)
                .hint(format!("`conclave show {}` shows the state of the run", self.found.run())));
        }
        // The receiving process has ended. A decision that it journalled would have ended the wait,
        // which was checked above.
        left.remove(store).map_err(|error| unusable(&error))
    }

    /// Checks edited arguments here, so that a mistake is reported before the decision is sent.
    fn check_arguments(&self, arguments: &Value) -> Result<(), CliError> {
        check_top_up_arguments(&self.request, arguments)
            .map_err(|wrong| CliError::usage(format!("--arguments: {wrong}")))?;
        let records =
            self.found.reader.records(&self.found.room).map_err(|error| unusable(&error))?;
        let setup = setup_in_force(&records);
        let spec = setup.and_then(|setup| setup.tool(&self.request.tool)).map(|(_, spec)| spec);
        let Some(Err(wrong)) = spec.map(|spec| check(&spec.input_schema, arguments)) else {
            return Ok(());
        };
        Err(unfit_arguments(&self.request.tool, &wrong)
            .hint("not approved; the call is still pending"))
    }

    fn say(&self, approval: Approval, instead: bool, output: OutputArgs) -> Result<u8, CliError> {
        if instead {
            self.take_back()?;
        }
        let decision = decision_word(&approval);
        let mail = ControlMessage::new(
            self.found.room.clone(),
            ControlCommand::Decide { call: self.call, approval },
        );
        let sent = mail.send_decision(self.found.reader.folder(), || self.is_pending());
        match sent.map_err(|error| unusable(&error))? {
            DecisionSent::Sent => {}
            DecisionSent::Rival(other) => return Err(self.on_its_way(&other)),
            DecisionSent::Decided => return Err(self.decided_before()),
        }
        let is_recorded = self.is_live && self.wait_for_record(&mail)?;
        let (id, row) = (self.id(), self.found.row()?);
        if output.json {
            stdout::json(
                json!({ "type": "decision", "id": id, "decision": decision, "run_state": state_of(self.is_live, Some(&row)).1 }),
            )?;
        } else if !output.quiet {
            let when = if is_recorded {
                "its run has the decision".to_owned()
            } else if self.is_live {
                "its run receives the decision now".to_owned()
            } else {
                let by = continued_by(&row);
                format!("its run receives the decision when it is continued: {by}")
            };
            stdout::styled(format!("{} {decision}; {when}", paint(NAME, id)))?;
        }
        Ok(exit::OK)
    }

    /// Shows the whole call, since an approval requires that. Returns whether the user approves it;
    /// false unless `is_asked`.
    fn show(&self, edited: Option<&Value>, is_asked: bool) -> Result<bool, CliError> {
        let mut err = crate::ui::output::stderr();
        if self.is_top_up {
            let (run, arguments) = (self.found.run(), edited.unwrap_or(&self.request.arguments));
            let more = more(&self.request.tool, arguments);
            let what =
                paint(FAINT, format_args!("an approval raises the limit of run {run} by {more}"));
            let _ = writeln!(err, "{}\n  {what}", printable(&self.request.source));
            return Ok(
                is_asked && ask::confirm(&format!("Raise the limit of run {run} by {more}?"))
            );
        }
        let records =
            self.found.reader.records(&self.found.room).map_err(|error| unusable(&error))?;
        let setup = setup_in_force(&records);
        let mut request = ApprovalRequest::clone(&self.request);
        if let Some(edited) = edited {
            request.arguments = edited.clone();
        }
        let performer = setup.and_then(|setup| plugin_of(setup, &request));
        let view = |columns| ApprovalView::new(&request, performer.as_ref(), None, columns);
        let note = edited.map(|_| format!("\n      {}", paint(FAINT, EDITED))).unwrap_or_default();
        if is_asked {
            return Ok(is_let_run(view, &note));
        }
        let _ = writeln!(err, "{}{note}", view(columns()).page(0, usize::MAX));
        Ok(false)
    }
}

/// Returns the increase in the arguments: `4199 tokens`, `$0.25`, `5 min of wall`.
fn more(key: &str, arguments: &Value) -> String {
    let amount = match arguments.get("add").unwrap_or(arguments) {
        Value::String(text) => one_line(text, 40),
        amount => one_line(&amount.to_string(), 40),
    };
    match key.strip_prefix("limits.run.").unwrap_or(key) {
        "cost_usd" => format!("${amount}"),
        key @ ("wall" | "cpu") => format!("{amount} of {key}"),
        key => format!("{amount} {}", key.replace('_', " ")),
    }
}

/// Returns the error for a call that is not pending, with the calls of that run that are.
fn none(room: &RoomId, call: CallId, waits: &[WaitRow]) -> CliError {
    let others = waits.iter().filter_map(|row| match (row.wait.key, &row.wait.request) {
        (WaitKey::Call(call), Some(_)) => Some(approval_id(&row.room, call)),
        _ => None,
    });
    let others: Vec<String> = others.collect();
    let what = format!(
        "{} is not pending: it was decided, has expired, or never existed",
        approval_id(room, call)
    );
    let hint = match others.as_slice() {
        [] => "`conclave approvals` lists the pending calls".to_owned(),
        others => format!("pending calls of this run: {}", others.join(", ")),
    };
    CliError::usage(what).hint(hint)
}

/// Shows the pages of a question. Returns whether the user approves the call, which takes the last
/// page and an unchanged terminal size. `note` stands below that page.
fn is_let_run(view: impl Fn(usize) -> ApprovalView, note: &str) -> bool {
    let mut pages = Pages::new(&view, |_| ROWS_BELOW);
    let mut above = pages.text();
    loop {
        let (note, question) = match pages.is_read() {
            true => (note, format!("Approve it? {}", paint(FAINT, "[y/N]"))),
            false => ("", NEXT_PAGE.to_owned()),
        };
        let _ = writeln!(crate::ui::output::stderr(), "{above}{note}");
        match ask::line(&question).as_deref().and_then(choice) {
            Some(KeyChoice::ShowMore | KeyChoice::Once) if pages.is_outdated() => {
                pages = Pages::new(&view, |_| ROWS_BELOW);
                above = pages.text_after_resize();
            }
            Some(KeyChoice::ShowMore) => above = pages.next(),
            Some(KeyChoice::Once) if pages.is_read() => return true,
            Some(KeyChoice::Once) => above = NOT_ALL_SHOWN.to_owned(),
            _ => return false,
        }
    }
}
/// Returns the error for `--arguments` that the schema of a tool refuses.
pub(crate) fn unfit_arguments(tool: &str, wrong: &[Wrong]) -> CliError {
    let place =
        |path: &str| if path.is_empty() { "the whole".to_owned() } else { format!("`{path}`") };
    let wrong: Vec<String> =
        wrong.iter().map(|wrong| format!("{} {}", place(&wrong.path), wrong.reason)).collect();
    CliError::usage(printable(&format!("--arguments do not fit {tool}: {}", wrong.join("; "))))
}
