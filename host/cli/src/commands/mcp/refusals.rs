//! The report to the operator when a client's call is not approved: the rule that would allow it,
//! and the command that explains it. The client and its model get neither.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::policy::permit::leave;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::Setup;
use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::ids::{CallId, RoomId};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

use crate::ui::screen::Screen;
use crate::ui::show::{FAINT, paint};

/// Pending questions that are remembered. For older ones, only the answer is printed.
const ASKED: usize = 512;

/// Prints refusals to stderr.
pub(super) struct RefusalPrinter {
    screen: Arc<Screen>,
    setup: Arc<Setup>,
    has_journal: bool,
    pending: Mutex<HashMap<(RoomId, CallId), ApprovalRequest>>,
}

impl RefusalPrinter {
    pub(super) fn new(screen: Arc<Screen>, setup: Arc<Setup>, has_journal: bool) -> Self {
        Self { screen, setup, has_journal, pending: Mutex::default() }
    }

    fn report(&self, room: &RoomId, seq: Option<u64>, request: &ApprovalRequest) {
        let mut lines = vec![format!(
            "{} was refused: it needs an approval, because {}",
            request.tool, request.source
        )];
        if let Some(leave) = leave(&self.setup, request, false) {
            let place = leave.before.and_then(|index| self.setup.policy.get(index));
            let place = place
                .map(|rule| format!(", before the rule at {}", rule.source))
                .unwrap_or_default();
            lines.push(format!("to allow it, write into the config{place}:"));
            lines.extend(leave.to_toml().lines().map(|line| format!("  {line}")));
        }
        if let Some(seq) = seq.filter(|_| self.has_journal) {
            lines.push(format!("Details: conclave why {room}:{seq}"));
        }
        lines
            .iter()
            .for_each(|line| self.screen.line(format_args!("{:21}{}", "", paint(FAINT, line))));
    }
}

impl Subscriber for RefusalPrinter {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        let RunEvent::Notice { notice } = &happening.what else { return };
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match notice {
            Notice::ApprovalAsked { call, request } => {
                // Bounded, because cancelled calls never get an answer that removes them.
                if pending.len() >= ASKED {
                    pending.clear();
                }
                pending.insert((happening.room.clone(), *call), request.clone());
            }
            Notice::ApprovalGiven { call, approval, .. } => {
                let request = pending.remove(&(happening.room.clone(), *call));
                drop(pending);
                if let (Some(request), Approval::Refused { .. }) = (request, approval) {
                    self.report(&happening.room, happening.seq, &request);
                }
            }
            _ => {}
        }
    }
}
