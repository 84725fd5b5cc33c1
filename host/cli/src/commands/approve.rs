//! `conclave approve ID` and `conclave refuse ID`: decide one pending call, from another terminal
//! or after a restart. An id means that one call with the arguments that are shown, and nothing
//! else. The process that has the run in progress applies the decision.

use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::journal::record::setup_in_force;
use conclave_core::policy::budget::check_top_up_arguments;
use conclave_core::tool_calls::arguments::check;
use conclave_core::types::approval::{Approval, ApprovalRequest, arguments_sha256};
use conclave_runtime::store::{ControlCommand, StoreAddress};
use serde_json::Value;

use crate::approve::{
    ApprovalView, KeyChoice, NOT_ALL_SHOWN, Pages, choice, plugin_of, unfit_arguments,
};
use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::json_object::object_of_option;
use crate::state::pending_call::{APPROVALS, PendingCall};
use crate::ui::ask;
use crate::ui::screen::columns;
use crate::ui::show::{FAINT, one_line, paint, printable};
use crate::ui::stderr;

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
    let edited =
        args.arguments.as_deref().map(|text| object_of_option("--arguments", text)).transpose()?;
    let waiting = PendingApproval::find(&args.id, args.store.as_ref())?;
    // Before the question: only the first decision about a call counts.
    if !args.instead {
        waiting.waiting.check_unsaid()?;
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
        stderr::note("not approved; the call is still pending");
        return Ok(exit::FAILED);
    }
    let approval = edited.map_or(Approval::Approved, |arguments| Approval::Edited { arguments });
    waiting.say(approval, args.instead, output)
}

pub(crate) fn refuse(args: &args::Refuse, output: OutputArgs) -> Result<u8, CliError> {
    let waiting = PendingApproval::find(&args.id, args.store.as_ref())?;
    let reason = args.reason.as_deref().map_or(NO, str::trim).chars().take(REASON).collect();
    waiting.say(Approval::Refused { reason }, args.instead, output)
}

/// A call that waits for an approval.
struct PendingApproval {
    waiting: PendingCall,
    request: Box<ApprovalRequest>,
    /// Whether the call asks for a limit increase.
    is_top_up: bool,
}

impl PendingApproval {
    fn find(id: &str, store: Option<&StoreAddress>) -> Result<Self, CliError> {
        let waiting = PendingCall::find(id, store, &APPROVALS)?;
        let is_top_up = waiting.pending.row.wait.kind == TOP_UP;
        // The records are what runs; the row only says where the call is.
        let mut fold = RoomRowFold::default();
        fold.extend(waiting.records()?);
        let request = fold.open_approval(waiting.call()).cloned().map(Box::new);
        let Some(request) = request else {
            let what = format!("by its records, {} asks for no approval", waiting.id());
            return Err(CliError::internal(what).hint("`conclave store check` checks its store"));
        };
        Ok(Self { waiting, request, is_top_up })
    }

    fn id(&self) -> String {
        self.waiting.id()
    }

    fn say(&self, approval: Approval, instead: bool, output: OutputArgs) -> Result<u8, CliError> {
        let call = self.waiting.call();
        // The decision counts only for the arguments that were shown.
        let arguments_sha256 = Some(arguments_sha256(&self.request.arguments));
        let command = ControlCommand::Decide { call, approval, arguments_sha256 };
        self.waiting.settle(command, instead, output)
    }

    /// Checks edited arguments here, so that a mistake is reported before the decision is sent.
    fn check_arguments(&self, arguments: &Value) -> Result<(), CliError> {
        check_top_up_arguments(&self.request, arguments)
            .map_err(|wrong| CliError::usage(format!("--arguments: {wrong}")))?;
        let records = self.waiting.records()?;
        // The run's own setup, and not today's config: the call has to fit the tool that will run.
        let setup = setup_in_force(&records);
        let spec = setup.and_then(|setup| setup.tool(&self.request.tool)).map(|(_, spec)| spec);
        let Some(Err(wrong)) = spec.map(|spec| check(&spec.input_schema, arguments)) else {
            return Ok(());
        };
        Err(unfit_arguments(&self.request.tool, &wrong)
            .hint("not approved; the call is still pending"))
    }

    /// Shows the whole call, since an approval requires that. Returns whether the user approves it;
    /// false unless `is_asked`.
    fn show(&self, edited: Option<&Value>, is_asked: bool) -> Result<bool, CliError> {
        if self.is_top_up {
            let (run, arguments) = (self.waiting.run(), edited.unwrap_or(&self.request.arguments));
            let more = more(&self.request.tool, arguments);
            let what =
                paint(FAINT, format_args!("an approval raises the limit of run {run} by {more}"));
            stderr::line(format_args!("{}\n  {what}", printable(&self.request.source)));
            return Ok(
                is_asked && ask::confirm(&format!("Raise the limit of run {run} by {more}?"))
            );
        }
        let records = self.waiting.records()?;
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
        stderr::line(format_args!("{}{note}", view(columns()).page(0, usize::MAX)));
        Ok(false)
    }
}

/// The increase in the arguments: `4199 tokens`, `$0.25`, `5 min of wall`.
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
        stderr::line(format_args!("{above}{note}"));
        match ask::line(&question).as_deref().and_then(choice) {
            Some(KeyChoice::ShowMore | KeyChoice::Once) if pages.is_outdated() => {
                pages = Pages::new(&view, |_| ROWS_BELOW);
                above = pages.text_after_resize();
            }
            Some(KeyChoice::ShowMore) => above = pages.next(),
            Some(KeyChoice::Once) if pages.is_read() => return true,
            Some(KeyChoice::Once) => above = NOT_ALL_SHOWN.to_owned(),
            // An empty line and the end of the input count as no.
            _ => return false,
        }
    }
}
