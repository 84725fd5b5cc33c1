//! Pending approvals under `--approvals wait`: prints the command that answers each, and asks
//! nothing.

use std::sync::Arc;

use anstyle::Style;
use conclave_core::protocol::notice::Notice;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

use crate::program::approval_id::approval_id;
use crate::ui::screen::{Screen, total_columns};
use crate::ui::show::entry::EntryText;
use crate::ui::show::{ODD, one_line, paint};

/// Columns of arguments that are shown; `conclave approve` shows all.
const SHOWN: usize = 120;

/// Prints a line for each pending call.
pub(crate) struct PendingLine(pub(crate) Arc<Screen>);

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
        let asked = format!(
            " ?    {} of {} waits for an approval",
            one_line(&request.tool, 60),
            request.caller
        );
        let shown = EntryText::default()
            .cut(Style::new(), &request.arguments.to_string())
            .rows(total_columns().min(SHOWN).saturating_sub(6));
        let shown: String = shown.iter().map(|row| format!("      {row}\n")).collect();
        self.0.notice(format_args!(
            "{}\n{shown}      conclave approve {id}   or   conclave refuse {id}",
            paint(ODD, asked)
        ));
    }
}
