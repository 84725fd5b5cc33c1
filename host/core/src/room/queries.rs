//! Queries to plugins: how a frame's query is sent, and which part each answer is for. Their
//! purposes are in `calls`.

use super::{Frames, Purpose, QueryPurpose, Room, RoomContext};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::plugin_query::{PluginQuery, PluginReply};
use crate::types::fault::{CallReport, Fault, FaultKind};
use crate::types::ids::{CallId, FrameId, PluginName};

/// Sends a query to a plugin on behalf of a frame; `consulted` takes the answer. `None` if the
/// frame is over.
pub(super) fn consult(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    plugin: &PluginName,
    question: PluginQuery,
    about: QueryPurpose,
) -> Option<CallId> {
    let task = frames.get(&id)?.task.clone();
    let plugin = plugin.clone();
    let call = cx.next_call(Purpose::QueryPlugin { frame: id, plugin: plugin.clone(), about });
    cx.effects.push_back(Effect::QueryPlugin { call, task, plugin, question });
    Some(call)
}

impl Room {
    /// Leads a plugin's answer to the part that asked.
    pub(super) fn consulted(
        &mut self,
        call: CallId,
        answer: Result<PluginReply, Fault>,
        report: &CallReport,
    ) {
        let (frame, plugin, about) = match self.cx.calls.get(&call).cloned() {
            Some(Purpose::QueryPlugin { frame, plugin, about }) => (frame, plugin, about),
            Some(Purpose::Gate { plugin, number }) => {
                return self.gate_answered(call, &plugin, number, answer, report);
            }
            Some(Purpose::Observer { .. }) => return self.observer_answered(call, answer, report),
            _ => return,
        };
        // Read before `end_call`, which drops it.
        let removals = self.histories.removals.get(&call).cloned().unwrap_or_default();
        let answer = answer.and_then(|reply| {
            if is_reply_to(&about, &reply) { Ok(reply) } else { Err(another_question()) }
        });
        self.end_call(call, answer.is_ok(), report);
        if let Err(fault) = &answer {
            self.cx.notify(Notice::PluginFaulted {
                call,
                plugin: plugin.clone(),
                fault: fault.clone(),
            });
        }
        match about {
            QueryPurpose::Memories { slot } => self.tool_rounds().recalled(frame, slot, answer),
            QueryPurpose::Risk { slot } => self.tool_rounds().assessed(frame, slot, answer),
            QueryPurpose::Condense => {
                if let Err(fault) = self.run_control().condensed(frame, answer, &removals) {
                    self.cx.notify(Notice::PluginFaulted { call, plugin, fault });
                }
                self.step_loop().resume_step(frame);
            }
            QueryPurpose::Rule => self.step_loop().ruled(frame, &plugin, answer),
            QueryPurpose::Conclude => self.run_control().concluded(frame, &plugin, answer),
            QueryPurpose::AnswerAsUser => self.step_loop().answered_as_user(frame, &plugin, answer),
        }
    }
}

fn is_reply_to(about: &QueryPurpose, reply: &PluginReply) -> bool {
    matches!(
        (about, reply),
        (QueryPurpose::Memories { .. }, PluginReply::Memories { .. })
            | (QueryPurpose::Risk { .. }, PluginReply::Risk { .. })
            | (QueryPurpose::Condense, PluginReply::Condense { .. })
            | (QueryPurpose::Rule, PluginReply::Rule { .. })
            | (QueryPurpose::Conclude, PluginReply::Conclude { .. })
            | (QueryPurpose::AnswerAsUser, PluginReply::AnswerAsUser { .. })
    )
}

fn another_question() -> Fault {
    Fault::new(FaultKind::BadAnswer, "it answered another question than the one that it was asked")
}
