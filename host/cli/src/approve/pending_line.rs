//! Pending approvals under `--approvals wait`: prints the command that answers each, and asks
//! nothing.

use std::sync::Arc;

use anstyle::Style;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::approval_id;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

use crate::ui::screen::{Screen, total_columns};
use crate::ui::show::entry::EntryText;
use crate::ui::show::{FAINT, ODD, one_line, paint};

/// Columns of arguments that are shown; `conclave approve` shows all.
const SHOWN: usize = 120;

/// The way to leave a terminal without ending its run.
const LEAVING: &str =
    "a closed terminal leaves the run interrupted; Ctrl-C ends it, and the call with it";

/// Prints a line for each pending call.
pub(crate) struct PendingLine {
    pub(crate) screen: Arc<Screen>,
    /// Whether the terminal shows a single run, which Ctrl-C ends.
    pub(crate) is_run: bool,
}

impl Subscriber for PendingLine {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        let (call, request) = match &happening.what {
            RunEvent::Notice { notice: Notice::ApprovalAsked { call, request } } => {
                (call, request.clone())
            }
            RunEvent::Notice { notice: Notice::TopUpAsked { call, top_up } } => {
                (call, top_up.as_approval())
            }
            _ => return,
        };
        let id = approval_id(&happening.room, *call);
        let question = format!(
            " ?    {} of {} waits for an approval",
            one_line(&request.tool, 60),
            request.caller
        );
        let rows = EntryText::default()
            .cut(Style::new(), &request.arguments.to_string())
            .rows(total_columns().min(SHOWN).saturating_sub(6));
        let arguments: String = rows.iter().map(|row| format!("      {row}\n")).collect();
        let leaving = match self.is_run {
            true => format!("\n      {}", paint(FAINT, LEAVING)),
            false => String::new(),
        };
        self.screen.notice(format_args!(
            "{}\n{arguments}      conclave approve {id}   or   conclave refuse {id}{leaving}",
            paint(ODD, question)
        ));
    }
}
