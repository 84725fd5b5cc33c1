//! With `--approvals wait` nobody is asked here: says which command answers.

use std::sync::Arc;

use anstyle::Style;
use conclave_core::protocol::notice::Notice;
use conclave_runtime::subscribe::{Happening, Subscriber, What};

use crate::approval_id::approval_id;
use crate::screen::{Screen, total_columns};
use crate::show::entry::Entry;
use crate::show::{ODD, one_line, paint};

/// Columns of arguments that are shown; `conclave approve` shows all.
const SHOWN: usize = 120;

/// Prints a line for each call that waits.
pub(crate) struct Waiting(pub(crate) Arc<Screen>);

impl Subscriber for Waiting {
    fn on(&self, happening: &Happening) {
        let (call, request) = match &happening.what {
            What::Told { told: Notice::ApprovalAsked { call, request } } => (call, request.clone()),
            What::Told { told: Notice::TopUpAsked { call, top_up } } => (call, top_up.as_approval()),
            _ => return,
        };
        let id = approval_id(&happening.room, *call);
        let asked = format!(" ?    {} of {} waits for an approval", one_line(&request.tool, 60), request.caller);
        let shown = Entry::default().cut(Style::new(), &request.arguments.to_string()).rows(total_columns().min(SHOWN).saturating_sub(6));
        let shown: String = shown.iter().map(|row| format!("      {row}\n")).collect();
        self.0.notice(format_args!("{shown}{}\n      conclave approve {id}   or   conclave refuse {id}", paint(ODD, asked)));
    }
}
