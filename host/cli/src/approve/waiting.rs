//! With `--approvals wait` nobody is asked here: says which command answers.

use std::sync::Arc;

use conclave_core::notice::Notice;
use conclave_runtime::subscribe::{Happening, Subscriber, What};

use crate::approval_id::approval_id;
use crate::screen::Screen;
use crate::show::{ODD, one_line, paint};

/// Characters of arguments that are shown; `conclave approve` shows all.
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
        let (tool, arguments) = (one_line(&request.tool, 60), one_line(&request.arguments.to_string(), SHOWN));
        let asked = format!(" ?    {tool} {arguments} waits for an approval");
        self.0.notice(format_args!("{}\n      conclave approve {id}   or   conclave refuse {id}", paint(ODD, asked)));
    }
}
