//! Rows of messages from the channels of a conversation.

use super::super::row::{InboundOutcome, RowSubject};
use super::super::short;
use super::{Now, OpenRowKey};
use crate::protocol::notice::Notice;
use crate::types::request::{Inbound, Refusal, RequestId, RequestReply};

impl Now<'_> {
    pub(super) fn begin_inbound(&mut self, request: RequestId, inbound: &Inbound) {
        let what = RowSubject::Inbound {
            channel: inbound.channel.clone(),
            sender: short(&inbound.sender),
            text: short(&inbound.text),
            outcome: None,
        };
        self.open(OpenRowKey::Inbound(request), self.of.lane, what);
    }

    /// Ends the row of a message by the reply to its sender, which follows the notice about it. A
    /// reply without a notice says again what an earlier one said.
    pub(super) fn end_inbound(&mut self, request: RequestId, reply: Result<RequestReply, Refusal>) {
        let arrival = self.of.arrival.take();
        self.end(&OpenRowKey::Inbound(request), |what| {
            let RowSubject::Inbound { text, outcome, .. } = what else { return };
            *outcome = Some(match (reply, arrival) {
                (Ok(_), Some(Notice::Inbound { text: passed, .. })) => {
                    // The gates may have changed it.
                    *text = short(&passed);
                    InboundOutcome::Accepted
                }
                (Err(_), Some(Notice::InboundRefused { reason, .. })) => {
                    InboundOutcome::Refused { reason: short(&reason) }
                }
                _ => InboundOutcome::Repeated,
            });
        });
    }
}
