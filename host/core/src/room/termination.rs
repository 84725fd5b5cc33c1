//! The end of tasks and runs: the checks after each step, the result for the caller, and the hard
//! stops (L-080…L-090).

use crate::room::acting::jobs::is_clearing_up;
use crate::room::delegates::waits_for_delegate;
use crate::room::passages::withholds_result;
use crate::room::responders::caller_name;
use crate::room::{
    BackgroundWork, Dialogue, Frames, Histories, PluginCalls, RoomContext, RunControl,
};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::delegates::children_of;
use super::delivery::is_data;
use super::frame::{Frame, FrameWait, ParsedMessage, Responder, SequenceAnswer};
use super::messages::text_form;
use super::result_types;
use super::steps::is_empty;
use super::{Invariant, Purpose, Room, RoomPhase};
use crate::policy::budget::Budget;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::ReturnType;
use crate::tool_calls::sequence::{Happened, MessageKind};
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::tool_calls::{arguments, routing};
use crate::types::host_tool::HostTool;
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::message::{Label, Message, Role, Signal, ToolCall};
use crate::types::outcome::{EndCause, Outcome, Status};

/// The status, reason and cause with which a frame ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FrameEnd {
    pub(super) status: Status,
    pub(super) reason: String,
    pub(super) cause: Option<EndCause>,
    /// Whether the reason quotes a plugin. Where gates check what leaves the task, such a reason
    /// stays in the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) quotes_plugin: bool,
}

impl FrameEnd {
    pub(super) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), cause: None, quotes_plugin: false }
    }

    /// The end of a task that a plugin's fault has caused, with the plugin's words.
    pub(super) fn of_fault(reason: impl Into<String>) -> Self {
        Self { quotes_plugin: true, ..Self::new(Status::Error, reason) }
    }

    /// The end of a task that asked its user while no user is present.
    pub(super) fn unattended(task: &TaskName) -> Self {
        let reason = format!("{task} asked its user, and nobody is there to answer");
        Self { cause: Some(EndCause::NobodyToAsk), ..Self::new(Status::Stalled, reason) }
    }

    /// The end of a room whose wall time is over. A background task has only one deadline, its own
    /// or the rest of the run, so the reason names both.
    pub(super) fn out_of_time(is_background: bool) -> Self {
        let reason = if is_background {
            "it took longer than its deadline, or the time of its run, allows"
        } else {
            Budget::Wall.reason()
        };
        Self { cause: Some(EndCause::WallTime), ..Self::new(Budget::Wall.status(), reason) }
    }
}

/// Texts with which a user ends a task (L-086).
const QUIT_WORDS: [&str; 6] = ["q", "x", "quit", "exit", "bye", "DONE"];

impl Dialogue<'_> {
    /// Returns the end that a task reached with its last step, if any. `ends` is true if the last
    /// answer ends the task by itself (L-081).
    pub(super) fn ending_of(&mut self, id: FrameId, ends: bool) -> Option<FrameEnd> {
        // Before the limits: an answer in the last permitted step is a result, and no exhausted
        // limit.
        if let Some(ending) = self.find_end(id, None, None, ends) {
            return Some(ending);
        }
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (name, steps, is_root, rules) =
            (frame.task.clone(), frame.steps, frame.caller.is_none(), task.loop_detection);
        // If the operator may grant more time, the wall timer asks for it instead.
        let asks = self.cx.asks_for_more();
        if is_root
            && !asks
            && self.cx.opening.deadline.is_some_and(|deadline| self.cx.now >= deadline)
        {
            return Some(FrameEnd::out_of_time(self.cx.opening.depth > 0));
        }
        // L-050f: the lower of the two limits applies. The limit of the run is a hard stop.
        let of_run = self.cx.opening.limits.task_turns.filter(|limit| steps >= *limit);
        if let Some(limit) = of_run {
            return Some(FrameEnd::new(
                Status::MaxTurns,
                format!("{name} made the {limit} steps that limits.run.task_turns allows"),
            ));
        }
        if let Some(limit) = frame.turn_limit.filter(|limit| steps >= *limit) {
            let steps = if limit == 1 { "step" } else { "steps" };
            return Some(FrameEnd::new(
                Status::FixedTurns,
                format!(
                    "{name} made the {limit} {steps} that it is given (tasks.{name}: turns or single_round)"
                ),
            ));
        }
        // L-050g: a loop of the task's messages.
        let frame = self.frames.get_mut(&id)?;
        let how = frame.loops.loops(steps, &rules)?;
        Some(FrameEnd::new(
            Status::InfLoop,
            format!(
                "{name} goes round in circles after {steps} steps: {how} (tasks.{name}.loop_detection)"
            ),
        ))
    }

    /// Returns the end of the task if it is over with `answer`, or with its pending message if
    /// `answer` is `None` (L-080…L-086).
    pub(super) fn find_end(
        &mut self,
        id: FrameId,
        answer: Option<&Arc<Message>>,
        by: Option<&Responder>,
        ends: bool,
    ) -> Option<FrameEnd> {
        let Some((frame, _)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return None;
        };
        if frame.caller.is_none()
            && self.cx.opening.kill_after.is_some_and(|steps| frame.steps >= steps)
        {
            return Some(FrameEnd::new(
                Status::Kill,
                "the run was to be killed after so many steps",
            ));
        }
        // A judge rules on the pending message; a new answer is yet to be judged.
        let ruled = frame.ruled_done.filter(|_| answer.is_none());
        if ruled == Some(true) {
            let reason = format!("the judge of {} ruled that it is done", frame.task);
            return Some(FrameEnd::new(Status::Done, reason));
        }
        let message = answer.cloned().or_else(|| frame.pending.clone());
        let by = by.cloned().or_else(|| frame.last_responder.clone());
        // A ruling that it is not done outweighs the host's own rules.
        if ruled.is_none()
            && let Some(ending) =
                message.as_ref().and_then(|message| self.matches(id, message, by.as_ref()))
        {
            return Some(ending);
        }
        // Needs `&mut self`, so it precedes the borrow of the frame.
        let by_user_alone = self.only_user_ends(id);
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let name = &frame.task;
        // A stalled task's pending message was judged in an earlier step.
        if frame.stalled >= task.max_stalled_steps {
            let reason = format!(
                "nobody in {name} had a valid answer, {} steps in a row",
                task.max_stalled_steps
            );
            return Some(FrameEnd::new(Status::Stalled, reason));
        }
        let declared_end = message
            .as_deref()
            .filter(|_| ruled.is_none())
            .and_then(|message| self.histories.says_over(self.cx, self.frames, id, message));
        // L-086: a result that a sub-task or a tool passes on is not a goodbye of the user.
        let any_goodbye_quits = task.rules().any_goodbye_quits;
        let by_user = |message: &Message| {
            message.sender == Role::User && (any_goodbye_quits || by == Some(Responder::User))
        };
        let goodbye =
            message.as_deref().is_some_and(|message| by_user(message) && says_goodbye(message));
        // L-061: signals of other responders do not end such a task.
        if by_user_alone {
            let quits =
                goodbye || (declared_end.is_some() && message.as_deref().is_some_and(by_user));
            return quits.then(|| FrameEnd::new(Status::UserQuit, "the user said goodbye"));
        }
        if let Some(ending) = declared_end {
            return Some(ending);
        }
        if goodbye {
            return Some(FrameEnd::new(Status::UserQuit, "the user said goodbye"));
        }
        if ends {
            return Some(FrameEnd::new(
                Status::Done,
                format!("{name} is set to end with this answer"),
            ));
        }
        let Some(message) = message else {
            return Some(FrameEnd::new(Status::Done, format!("nobody in {name} said anything")));
        };
        // L-070: a message to the caller is the result.
        let caller = caller_name(self.frames, frame).filter(|_| ruled.is_none())?;
        let is_addressed = message
            .recipient
            .as_deref()
            .is_some_and(|recipient| caller.eq_ignore_ascii_case(recipient));
        is_addressed.then(|| FrameEnd::new(Status::Done, format!("{name} answers to {caller}")))
    }

    /// Returns the end of the task if its newest answers meet `done_if_tool` or a done sequence
    /// (L-082, L-083).
    fn matches(
        &mut self,
        id: FrameId,
        message: &Arc<Message>,
        by: Option<&Responder>,
    ) -> Option<FrameEnd> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        // Most tasks have no such rule, and parsing their messages would be wasted.
        if !task.done_if_tool && task.done_sequences.is_empty() {
            return None;
        }
        let (name, task) = (frame.task.clone(), Arc::clone(task));
        let newest = self.names_called(id, message);
        if task.done_if_tool && !newest.is_empty() {
            return Some(FrameEnd::new(Status::Done, format!("{name} is set to end with a call")));
        }
        let (frame, toolbox) = (self.frames.get(&id)?, self.histories.toolbox(self.cx, &name));
        // The pending message may be in the chain already, and must not be counted twice.
        let is_new = frame.chain.back().is_none_or(|answer| answer.message.seq != message.seq);
        let older = frame.chain.iter().take(frame.chain.len() - usize::from(!is_new));
        let older = older.map(|answer| {
            (Some(Responder::of(answer.message.sender)), &answer.tools, &answer.message)
        });
        // L-094: before the first responder has answered, the sender decides.
        let by = by.cloned().unwrap_or_else(|| Responder::of(message.sender));
        let chain = older.chain([(Some(by), &newest, message)]);
        let happened: Vec<_> = chain
            .map(|(by, tools, message)| (kind_of(by.as_ref(), tools, message), tools, message))
            .collect();
        let titles: Vec<Vec<String>> =
            happened.iter().map(|(_, tools, _)| titles_of(&toolbox, tools)).collect();
        let happened: Vec<Happened<'_>> = happened
            .iter()
            .zip(&titles)
            .map(|((kind, tools, message), titles)| {
                // A sequence names one tool at a time, so a message with several calls has no name
                // to match.
                let tool = if let [only] = tools.as_slice() { Some(only.as_str()) } else { None };
                Happened { kind: *kind, tool, titles, content: message.text() }
            })
            .collect();
        let met = task.done_sequences.iter().find(|sequence| sequence.is_met_by(&happened))?;
        Some(FrameEnd::new(Status::Done, format!("{name} is set to end with {}", met.as_str())))
    }

    /// Returns the names of the calls in a message that the task's agent knows.
    fn names_called(&mut self, id: FrameId, message: &Arc<Message>) -> Vec<String> {
        self.reading_of(id, message).all.iter().map(|call| call.name.clone()).collect()
    }

    /// Appends the pending message to the chain that done sequences are matched against (L-093).
    pub(super) fn remember_answer(&mut self, id: FrameId) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let longest = task
            .done_sequences
            .iter()
            .map(|sequence| sequence.events().len())
            .max()
            .unwrap_or_default();
        let Some(pending) = frame.pending.clone().filter(|_| longest > 0) else { return };
        // A stalled step, or one that passes, leaves the same message pending.
        if frame.chain.back().is_some_and(|answer| answer.message.seq == pending.seq) {
            return;
        }
        let tools = self.names_called(id, &pending);
        let Some(frame) = self.frames.get_mut(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        frame.chain.push_back(SequenceAnswer { message: pending, tools });
        while frame.chain.len() > longest {
            frame.chain.pop_front();
        }
    }

    /// Whether only the user ends the task: an interactive task at the root (L-061). A sub-task
    /// ends like any other (L-161).
    pub(super) fn only_user_ends(&mut self, id: FrameId) -> bool {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return false;
        };
        frame.caller.is_none() && task.only_user_quits_root && self.user_may_respond(id)
    }

    /// Removes calls and signals that end this task from the pending message. Calls that end all
    /// tasks stay (L-061).
    pub(super) fn strip_endings(&mut self, id: FrameId) {
        let Some(frame) = self.frames.get(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        let Some(pending) = self.frames.get_mut(&id).and_then(|frame| frame.pending.as_mut())
        else {
            return;
        };
        let pending = Arc::make_mut(pending);
        pending.signal = None;
        pending.tools.retain(|call| EndScope::of(&toolbox, call) != Some(EndScope::Task));
        if let Some(frame) = self.frames.get_mut(&id) {
            // The cached parse still holds the removed calls.
            frame.reading = ParsedMessage::default();
        }
        self.keep_pending(id);
    }

    /// Returns the result of a task. `None` if it has none, or if gates did not let it pass.
    fn result_message(&mut self, frame: &Frame, ending: &FrameEnd) -> Option<Message> {
        // An error has the host's words, and a goodbye those of the user.
        if matches!(ending.status, Status::Error | Status::UserQuit) {
            return self.form_result(frame, ending);
        }
        if withholds_result(self.cx, frame) {
            return None;
        }
        match frame.closing() {
            Some(closing) => Some(closing.result.clone()),
            None => self.form_result(frame, ending),
        }
    }

    /// Returns the result of a task by the host's rules (L-088). `None` if it has no answer, so that
    /// the caller tries its next responder (L-162).
    pub(super) fn form_result(&mut self, frame: &Frame, ending: &FrameEnd) -> Option<Message> {
        let task = self.cx.setup.tasks.get(&frame.task).cloned()?;
        let rules = task.rules();
        let mut message = match ending.status {
            Status::Stalled | Status::MaxTurns | Status::InfLoop | Status::NotAddressed => {
                return None;
            }
            // An error without content would look like a task that has no answer.
            Status::Error => {
                let mut message = self.cx.stamp(Role::User, frame.task.as_str());
                message.content =
                    Some(format!("The task {} failed: {}", frame.task, ending.reason));
                // The reason may quote a plugin.
                message.labels.extend(rules.marks_results.then_some(Label::Task));
                return Some(message);
            }
            // L-089: when a limit ends the task, the pending message is its result.
            _ => self.cx.stamp(Role::User, frame.task.as_str()),
        };
        // A finished task without a message has an empty result, unlike a stalled one.
        let Some(pending) = &frame.pending else {
            message.content = Some(String::new());
            return Some(message);
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        message.content.clone_from(&pending.content);
        // The signal ended this task, and must not end its caller as well.
        if task.text_rules.signals {
            message.content = message.content.map(|text| routing::without_done(&text).into_owned());
        }
        message.value.clone_from(&pending.value);
        if let Some(Signal::Done { value }) = &pending.signal {
            message.value.clone_from(value);
        }
        message.tool_calls.clone_from(&pending.tool_calls);
        if rules.results_limit_calls {
            // A task must not gain permissions through its caller's grants, nor call host tools on
            // the caller's behalf. Only calls of its own plugins pass.
            let may_go_on = |call: &ToolCall| {
                toolbox
                    .get(&call.name)
                    .is_some_and(|tool| matches!(tool.target, ToolTarget::Plugin { .. }))
            };
            message.tool_calls.retain(may_go_on);
        }
        message.tool_results.clone_from(&pending.tool_results);
        message.tools.clone_from(&pending.tools);
        let ends =
            pending.tools.iter().find_map(|call| Some((call, EndScope::of(&toolbox, call)?)));
        match ends {
            Some((call, EndScope::Everything)) => {
                (message.content, message.value, message.tools) =
                    (Some(String::new()), None, vec![call.clone()]);
            }
            Some((call, EndScope::Task)) => {
                let content = call.arguments.get("content").unwrap_or(&Value::Null);
                message.content = Some(text_form(content));
                let is_text =
                    rules.done_content_is_text && is_host_tool(&toolbox, call, HostTool::Done);
                message.value = Some(content.clone())
                    .filter(|value| !(is_text || value.is_null() || value.is_string()));
                message.tool_calls.clear();
                message.tool_results.clear();
                if is_host_tool(&toolbox, call, HostTool::AgentDone) {
                    message.tools = calls_in(call);
                }
            }
            None => {}
        }
        // The same applies to calls that end a task.
        message.tools.retain(|call| EndScope::of(&toolbox, call) != Some(EndScope::Task));
        message.labels.clone_from(&pending.labels);
        message.led_by.clone_from(&pending.led_by);
        // Text of the child's own agent becomes data for the caller.
        let is_marked =
            pending.labels.iter().any(|label| matches!(label, Label::Tool | Label::Task));
        let is_agents_word = rules.marks_results && pending.sender != Role::User && !is_marked;
        message.labels.extend(is_agents_word.then_some(Label::Task));
        message.attachments.clone_from(&pending.attachments);
        message.from_agent = !message.tools.is_empty() && pending.from_agent;
        let recipient = pending.recipient.clone();
        message.recipient = recipient.filter(|name| {
            rules.results_keep_recipient
                || frame.caller.is_none()
                || is_for_caller(self.frames, self.cx, frame, name)
        });
        message.parent = Some(pending.seq);
        Some(message)
    }
}

impl Histories {
    /// Whether an answer, or the lack of one, ends the task by itself (L-081).
    pub(super) fn is_done_response(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        answer: Option<&Message>,
        by: &Responder,
    ) -> bool {
        let Some((_, task)) = frames.task_of(cx, id) else { return false };
        let answer = answer.filter(|message| !is_empty(message, task));
        let ending =
            if answer.is_some() { &task.done_if_response } else { &task.done_if_no_response };
        if by.name().is_some_and(|name| ending.contains(&name)) {
            return true;
        }
        let says = |message: &Message| {
            (task.text_rules.signals && routing::says_done(message.text()))
                || message.signal.is_some()
                || (*by == Responder::Agent && self.ending_call(cx, frames, id, message).is_some())
        };
        answer.is_some_and(says)
    }

    /// The first call in a message that ends its task, or all tasks.
    fn ending_call<'a>(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        message: &'a Message,
    ) -> Option<(&'a ToolCall, EndScope)> {
        let (frame, task) = frames.task_of(cx, id)?;
        let (toolbox, rules) = (self.toolbox(cx, &frame.task), task.rules());
        // L-171: a message from outside cannot end a task by a call that the agent could not have
        // made itself.
        let counts =
            |call: &&ToolCall| rules.trusts_external_calls || toolbox.trusts(message, call);
        let ending = message
            .tools
            .iter()
            .filter(counts)
            .find_map(|call| Some((call, EndScope::of(&toolbox, call)?)))?;
        // If one of several calls of a model ended the task, the others would be lost, and the
        // errors of those that do not fit. The model is asked to make the ending call alone
        // (L-119).
        let stands_alone = || {
            message.tools.len() == 1
                && self.read(cx, &frame.task, task, message).refused(rules) == 0
        };
        let is_checked = message.sender == Role::Llm && rules.ending_calls_stand_alone;
        (!is_checked || stands_alone()).then_some(ending)
    }

    /// The end of the task if the message declares it over.
    fn says_over(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        message: &Message,
    ) -> Option<FrameEnd> {
        let (frame, task) = frames.task_of(cx, id)?;
        let done_end = || FrameEnd::new(Status::Done, format!("ended by {}", message.sender_name));
        match message.signal {
            Some(Signal::Done { .. }) => return Some(done_end()),
            Some(Signal::Rejected) => {
                return Some(FrameEnd::new(
                    Status::Rejected,
                    format!("{} says that it cannot be done", message.sender_name),
                ));
            }
            None => {}
        }
        if let Some((call, _)) = self.ending_call(cx, frames, id, message) {
            let by_hand = is_host_tool(&self.toolbox(cx, &frame.task), call, HostTool::AgentDone);
            let reason = if by_hand {
                format!("{} has its answer", frame.task)
            } else {
                format!("{} was called in {}", call.name, frame.task)
            };
            return Some(FrameEnd::new(Status::Done, reason));
        }
        (task.text_rules.signals && routing::says_done(message.text())).then(done_end)
    }

    /// Erases the messages that led to the result, here and in the sub-tasks (L-050l).
    fn erase_substeps(&mut self, cx: &RoomContext, frame: &Frame) {
        let Some(task) =
            cx.setup.tasks.get(&frame.task).filter(|task| task.erase_substeps).cloned()
        else {
            return;
        };
        // The seed of a new history stands before the first message.
        let seeds = usize::from(frame.history_start == 0 && task.user_message.is_some());
        let memory = self.memory(cx, &frame.task);
        let keep_from = frame.history_start + seeds + 1;
        let mut tail = memory.split_off(keep_from);
        if let Some(last) = tail.pop() {
            let place = memory.push(&last);
            if let Some(link) = self.links.get_mut(&last.seq) {
                link.place = Some((frame.task.clone(), place));
            }
        }
        for message in tail {
            self.links.remove(&message.seq);
        }
        for subtask in &task.subtasks {
            self.clear_history(subtask, 0);
        }
    }

    /// The result in the type that the caller wanted (L-050i). `None` if it has no such value.
    fn typed(
        &self,
        cx: &RoomContext,
        name: &TaskName,
        message: &Message,
        return_type: &ReturnType,
    ) -> Option<Value> {
        let task = cx.setup.tasks.get(name)?;
        let calls = self.read(cx, name, task, message).all;
        let toolbox = self.toolbox(cx, name);
        // A handler's call was not read by a parser, so nothing has checked its arguments yet.
        let fitting = |call: &ToolCall| {
            let arguments = match toolbox.get(&call.name) {
                Some(tool) => arguments::check(&tool.summary.input_schema, &call.arguments).ok()?,
                None => Value::clone(&call.arguments),
            };
            Some(json!({ "name": call.name, "arguments": arguments }))
        };
        match return_type {
            ReturnType::AnyTool => calls.first().and_then(fitting),
            ReturnType::Tool(tool) => {
                calls.iter().filter(|call| call.name == *tool).find_map(fitting)
            }
            ReturnType::Text if !message.text().is_empty() => Some(json!(message.text())),
            plain => {
                let of_value = message.value.clone().filter(|value| result_types::is(plain, value));
                let of_text = || result_types::from_text(plain, message.text());
                let of_field =
                    || calls.iter().find_map(|call| result_types::field(plain, &call.arguments));
                of_value.or_else(of_text).or_else(of_field)
            }
        }
    }
}

impl RunControl<'_> {
    /// Ends a frame, after its judge and the gates have decided on its result.
    pub(super) fn end_frame(&mut self, id: FrameId, ending: FrameEnd) {
        let Some(ending) = self.background_work().asks_again(id, ending) else { return };
        if !self.decide_first(id, &ending) {
            self.close_frame(id, ending);
        }
    }

    /// Ends a frame: stops its calls and children, and passes the result to its caller. A result
    /// that gates have not let pass is withheld.
    pub(super) fn close_frame(&mut self, id: FrameId, ending: FrameEnd) {
        // The frame leaves the table before its result is delivered, so its calls are already
        // abandoned.
        let Some(frame) = self.background_work().remove_frame(id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let ending = failed_instead(self.cx, &frame, ending);
        let task = self.cx.setup.tasks.get(&frame.task);
        let outlives = task.is_some_and(|task| task.rules().pending_outlives_activation);
        // A run of so many turns is a part of the task: the next run goes on where it stopped.
        let goes_on = !outlives
            && frame.caller.is_none()
            && ending.status == Status::FixedTurns
            && self.cx.opening.turns.is_some();
        if outlives || goes_on {
            let memory = self.histories.memory(self.cx, &frame.task);
            memory.left_pending.clone_from(&frame.pending);
            memory.left_by = goes_on.then(|| frame.pending_sender.clone());
        }
        let notice = Notice::TaskEnded {
            task: frame.task.clone(),
            status: ending.status,
            reason: ending.reason.clone(),
        };
        self.cx.notify(notice);
        self.agent_states.state_at_end(self.cx, &frame.task, ending.status, &ending.reason);
        // After the notice and the agent's state: these do not leave the task.
        let ending = without_quotes(self.cx, &frame, ending);
        let ends_callers = ending.status == Status::InfLoop
            || (ending.cause == Some(EndCause::NobodyToAsk)
                && !is_root_interactive(self.frames, self.cx));
        if ends_callers
            && let Some(caller) = frame.caller
            && !waits_for_delegate(self.frames, caller, id)
        {
            // A caller that only relays messages would loop itself, as in the reference, or have
            // the same question asked again. An interactive root asks its user itself, and ends
            // that way. The frame is put back so that it ends together with its callers.
            self.frames.insert(id, frame);
            self.end_circle(caller, ending);
            return;
        }
        match frame.caller {
            Some(caller) => self.give_result(caller, &frame, &ending),
            None => {
                let status = ending.status;
                self.end_run(&frame, ending);
                // The history of a loop is needed to find its cause.
                if frame.only.is_none() && status != Status::InfLoop {
                    self.histories.erase_substeps(self.cx, &frame);
                }
            }
        }
    }

    /// Ends the work that a sub-task belongs to when it loops or its question has no user: its
    /// delegation, or else the run. Unlike in the reference (O-106), the delegating task is not
    /// ended with it. It reads that there is no answer, and can do something else.
    fn end_circle(&mut self, caller: FrameId, ending: FrameEnd) {
        let mut next = Some(caller);
        while let Some(frame) = next.and_then(|id| self.frames.get(&id)) {
            let (id, above) = (frame.id, frame.caller);
            if above.is_some_and(|above| waits_for_delegate(self.frames, above, id)) {
                self.end_frame(id, ending);
                return;
            }
            next = above;
        }
        self.stop_work(ending);
    }

    fn give_result(&mut self, caller: FrameId, child: &Frame, ending: &FrameEnd) {
        let message = self.dialogue().result_message(child, ending);
        self.histories.erase_substeps(self.cx, child);
        if let (Some(message), Some(pending)) = (&message, &child.pending) {
            self.histories.link(pending).child = Some(message.seq);
        }
        let waits = |frame: &Frame| {
            frame
                .attempt
                .as_ref()
                .is_some_and(|attempt| attempt.wait == FrameWait::Subtask(child.id))
        };
        if self.frames.get(&caller).is_some_and(waits) {
            self.frames.ready(
                self.cx,
                caller,
                message.map(|message| (Responder::Subtask(child.task.clone()), Arc::new(message))),
            );
        } else {
            // It was called as a delegate, and its result belongs to a slot of the caller's round.
            self.dialogue().delegate_ended(caller, child, ending, message.as_ref());
        }
    }

    fn end_run(&mut self, root: &Frame, ending: FrameEnd) {
        let only = root.only.is_some();
        let mut ending = ending;
        let has_result = ending.status != Status::Error && has_answer(self.cx, root);
        let is_withheld =
            has_result && ending.status != Status::UserQuit && withholds_result(self.cx, root);
        if is_withheld {
            ending.reason =
                format!("{}; gates did not check the answer, so it is withheld", ending.reason);
        }
        let message = match root.closing() {
            None if only => root.pending.as_deref().cloned().filter(|_| !is_withheld),
            _ => self.dialogue().result_message(root, &ending),
        };
        let task = self.cx.setup.tasks.get(&root.task).cloned();
        let message = message.filter(|_| has_result).map(Arc::new);
        let return_type =
            self.cx.opening.returns.clone().or_else(|| task.and_then(|task| task.returns.clone()));
        let typed =
            message.as_deref().zip(return_type.as_ref()).and_then(|(message, return_type)| {
                self.histories.typed(self.cx, &root.task, message, return_type)
            });
        if let (Some(return_type), None, Some(_)) = (&return_type, &typed, &message) {
            ending.reason = format!(
                "{}; the result is not {}",
                ending.reason,
                result_types::describe(return_type)
            );
        }
        // What gates decide on has the structured value in its message.
        let structured = self
            .background
            .structured_result()
            .filter(|_| root.closing().is_none() && !withholds_result(self.cx, root));
        let outcome = Arc::new(Outcome {
            content: message.as_ref().and_then(|message| message.content.clone()),
            value: structured
                .or_else(|| message.as_ref().and_then(|message| message.value.clone())),
            recipient: message.as_ref().and_then(|message| message.recipient.clone()),
            tools: message.as_ref().map(|message| message.tools.clone()).unwrap_or_default(),
            typed,
            message,
            spent: self.budgets.spent,
            used: self.budgets.used.clone(),
            cause: ending.cause,
            ..Outcome::new(ending.status, ending.reason)
        });
        // The question for more budget is dropped first, so that no grant can revive the ended run.
        self.budgets.drop_top_up(self.cx);
        self.cx.notify(Notice::ResultReady { outcome: Arc::clone(&outcome) });
        self.cx.phase = RoomPhase::Draining { outcome: Arc::clone(&outcome) };
        self.channels.turn_ended(self.cx, &outcome);
        self.channels.report_shared_channels(self.cx, &outcome);
    }

    /// Ends every activation of a task, and the work it delegated (L-080). At the root this ends
    /// the run.
    pub(super) fn kill_task(&mut self, task: &TaskName, reason: &str) {
        // A working task is never called again below itself, so there is at most one frame.
        let active = self.frames.values().find(|frame| frame.task == *task).map(|frame| frame.id);
        if let Some(id) = active {
            self.close_frame(id, FrameEnd::new(Status::Kill, reason));
        }
        // The ids are copied because killing changes the table of calls.
        let in_background: Vec<CallId> = self.cx.calls
            .iter()
            .filter(|(_, purpose)| matches!(purpose, Purpose::Background { id } if self.background.is_task_of(id, task)))
            .map(|(call, _)| *call)
            .collect();
        for call in in_background {
            if let Some(Purpose::Background { id }) = self.cx.calls.get(&call) {
                let id = id.clone();
                self.background_work().kill_background(&id, reason);
            }
        }
    }

    /// Stops all work in the room at once.
    pub(super) fn stop(&mut self, status: Status, reason: &str) {
        self.stop_with(FrameEnd::new(status, reason));
    }

    /// Stops all work in the room at once, with a cause.
    pub(super) fn stop_with(&mut self, ending: FrameEnd) {
        let FrameEnd { status, ref reason, .. } = ending;
        let was_persistent = self.channels.is_persistent(self.cx);
        if was_persistent {
            // Closed first, so that no queued turn begins while the room stops.
            self.channels.close_to_messages(self.cx, reason);
        }
        let was_running = matches!(self.cx.phase, RoomPhase::Running { .. });
        let is_first = self.background.begin_stop(reason);
        // Not through `end_frame`: a stopped run asks neither its judge nor gates.
        if let RoomPhase::Running { root } = self.cx.phase {
            self.close_frame(root, ending.clone());
        }
        self.frames.clear();
        self.frames.runnable.clear();
        self.background_work().block_all(reason);
        // The ids are copied because each iteration removes calls.
        let calls: Vec<CallId> = self.cx.calls.keys().copied().collect();
        for call in calls {
            if was_running && is_clearing_up(self.cx, call) {
                // A second stop does not wait for the cleanup of the first.
                continue;
            }
            if let Some(Purpose::Background { id }) = self.cx.calls.get(&call) {
                let id = id.clone();
                if is_first
                    && self.background.resumes_after_stop(self.cx, self.budgets, &id, reason)
                {
                    continue;
                }
                self.background_work().background_stopped(&id, &ending);
            }
            self.plugin_calls().abandon(call);
        }
        self.cx.timers.clear();
        if was_persistent && status.is_budget() {
            // The sender of the last message would wait for an answer.
            self.channels.report_channels(self.cx, &format!("The room is closed: {reason}."), None);
        }
    }

    /// Finishes the room once nothing is in flight.
    pub(super) fn finish_if_idle(&mut self) {
        let RoomPhase::Draining { outcome } = &self.cx.phase else { return };
        // A persistent room waits for the next message.
        if self.channels.is_persistent(self.cx) {
            return;
        }
        // A strategy's timer keeps the room open while results wait for it.
        let waits = self.cx.timers.values().any(|purpose| self.deliveries.is_waited_for(purpose));
        if waits || !self.cx.calls.is_empty() {
            return;
        }
        let outcome = Arc::clone(outcome);
        self.budgets.give_up_model_calls(self.cx, self.models);
        // Spending is read again: calls that were just given up are charged as well.
        let outcome = Arc::new(Outcome {
            spent: self.budgets.spent,
            used: self.budgets.used.clone(),
            ..Outcome::clone(&outcome)
        });
        self.cx.timers.clear();
        self.result_delivery().report_undelivered();
        self.cx.effects.push_back(Effect::Finish { outcome: Arc::clone(&outcome) });
        self.cx.phase = RoomPhase::Finished { outcome };
    }
}

fn is_root_interactive(frames: &Frames, cx: &RoomContext) -> bool {
    let RoomPhase::Running { root } = cx.phase else { return false };
    frames.task_of(cx, root).is_some_and(|(_, task)| task.interactive)
}

/// Whether a recipient is still meaningful to the caller (L-070): the user, or another sub-task
/// of the caller. The child's own roles and sub-tasks are not, and the caller has the result
/// already.
fn is_for_caller(frames: &Frames, cx: &RoomContext, child: &Frame, name: &str) -> bool {
    let Some((_, caller)) = child.caller.and_then(|caller| frames.task_of(cx, caller)) else {
        return false;
    };
    let is_sibling =
        |task: &TaskName| *task != child.task && task.as_str().eq_ignore_ascii_case(name);
    Role::from_name(name) == Some(Role::User) || caller.subtasks.iter().any(is_sibling)
}

/// Whether the pending message of an entry task is an answer. The opening message of the
/// room is not. In a room without one, the first answer has no parent.
pub(super) fn has_answer(cx: &RoomContext, root: &Frame) -> bool {
    let is_answer = |message: &Arc<Message>| {
        message.parent.is_some() || cx.opening.content.is_none() || root.last_responder.is_some()
    };
    let task = cx.setup.tasks.get(&root.task);
    root.only.is_some()
        || task.is_some_and(|task| task.rules().question_is_result)
        || root.pending.as_ref().filter(|pending| !is_data(pending)).is_some_and(is_answer)
}

/// Removes a plugin's words from the reason of an end, if gates check what leaves the task.
fn without_quotes(cx: &RoomContext, frame: &Frame, ending: FrameEnd) -> FrameEnd {
    if !(ending.quotes_plugin && withholds_result(cx, frame)) {
        return ending;
    }
    let reason =
        "a plugin failed; its words are in the log alone, because gates check what leaves the task";
    FrameEnd { reason: reason.to_owned(), quotes_plugin: false, ..ending }
}

/// Turns a success into `Status::Error` if the last step of the root failed. The host's message
/// about the failure is not an answer.
pub(super) fn failed_instead(cx: &RoomContext, frame: &Frame, ending: FrameEnd) -> FrameEnd {
    let task = cx.setup.tasks.get(&frame.task);
    let fails = task.is_none_or(|task| task.rules().failed_step_fails_run);
    // The pending message of a failed step is the host's, on the agent role.
    let is_told = frame.faults > 0
        && frame.caller.is_none()
        && frame.pending.as_ref().is_some_and(|it| it.sender == Role::Agent);
    match frame.pending.as_ref().filter(|_| is_told && fails && ending.status.is_success()) {
        Some(report) => FrameEnd::of_fault(report.text()),
        None => ending,
    }
}

impl BackgroundWork<'_> {
    pub(super) fn remove_frame(&mut self, id: FrameId) -> Option<Frame> {
        let frame = self.frames.remove(&id)?;
        self.abandon_calls_of(id);
        self.plugin_calls().end_jobs(&frame);
        children_of(&frame).into_iter().for_each(|child| drop(self.remove_frame(child)));
        Some(frame)
    }

    fn abandon_calls_of(&mut self, id: FrameId) {
        self.stop_waited_for(id);
        self.abandon_passages(id);
        let calls: Vec<CallId> = self
            .cx
            .calls
            .iter()
            .filter(|(_, purpose)| purpose.frame() == Some(id))
            .map(|(call, _)| *call)
            .collect();
        calls.into_iter().for_each(|call| self.plugin_calls().abandon(call));
    }
}

impl PluginCalls<'_> {
    /// Drops a call. Its answer will be ignored.
    pub(super) fn abandon(&mut self, call: CallId) {
        if let Some(purpose) = self.cx.calls.remove(&call) {
            self.forget_requests(call, Some(&purpose));
            self.models.without_model.remove(&call);
            self.models.incomplete.remove(&call);
            self.models.does_not_fit.remove(&call);
            // An effect that was never polled needs no `AbandonCall`.
            let unpolled = |cx: &RoomContext| cx.effects.len() + cx.awaiting_scratch.len();
            let before = unpolled(self.cx);
            self.cx.effects.retain(|effect| effect.starts() != Some(call));
            self.cx.awaiting_scratch.retain(|effect| effect.starts() != Some(call));
            if unpolled(self.cx) == before {
                self.cx.effects.push_back(Effect::AbandonCall { call });
            }
        }
    }
}

impl Room {
    /// Stops the work of the entry task, except for its background tasks. An interactive task then
    /// turns to its user, as after any step. Any other task has no user to turn to, so the run
    /// ends.
    pub(super) fn stop_turn(&mut self, reason: &str) {
        let RoomPhase::Running { root } = self.cx.phase else { return };
        let Some((frame, task)) = self.frames.task_of(&self.cx, root) else {
            return self.cx.violated(Invariant::FrameExists, root);
        };
        let name = frame.task.clone();
        if !task.interactive {
            self.run_control().stop_work(FrameEnd::new(Status::Kill, reason));
            return;
        }
        if self.cx.calls.values().any(|purpose| *purpose == Purpose::User { frame: root }) {
            // It already waits for its user, so there is no turn to stop.
            return;
        }
        let children = self.frames.get(&root).map(children_of).unwrap_or_default();
        children.into_iter().for_each(|child| drop(self.background_work().remove_frame(child)));
        if let Some(frame) = self.frames.get_mut(&root) {
            (frame.attempt, frame.hold) = (None, None);
        }
        self.background_work().abandon_calls_of(root);
        self.handoffs.forget(root);
        let text = format!("This turn was stopped: {reason}");
        let message = Arc::new(self.frames.host_message(&mut self.cx, root, text));
        // The agent's next step reads that its turn was stopped.
        self.dialogue().write_history(root, &message);
        self.dialogue().put_pending(root, Responder::Agent, message);
        // Lets the next step ask the user.
        self.histories.memory(&self.cx, &name).human_tried = false;
        self.cx.notify(Notice::TurnStopped { task: name, reason: reason.to_owned() });
        self.frames.runnable.push_back(root);
    }
}

fn says_goodbye(message: &Message) -> bool {
    QUIT_WORDS.contains(&message.text().trim())
}

/// The scope that a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndScope {
    /// The task that it is made in (L-140, L-141).
    Task,
    /// That task and all its callers (L-143).
    Everything,
}

impl EndScope {
    fn of(toolbox: &Toolbox, call: &ToolCall) -> Option<Self> {
        let tool = toolbox.get(&call.name);
        if tool.is_some_and(|tool| tool.is_final)
            || is_host_tool(toolbox, call, HostTool::FinalResult)
        {
            return Some(Self::Everything);
        }
        let ends = is_host_tool(toolbox, call, HostTool::Done)
            || is_host_tool(toolbox, call, HostTool::AgentDone);
        ends.then_some(Self::Task)
    }
}

/// Whether the call is of this host tool under its configured name. A call from a handler may use
/// the tool's own name.
pub(super) fn is_host_tool(toolbox: &Toolbox, call: &ToolCall, host_tool: HostTool) -> bool {
    match toolbox.get(&call.name) {
        Some(tool) => tool.target == ToolTarget::Host(host_tool),
        None => call.name == host_tool.as_str() || call.name == host_tool.langroid_name(),
    }
}

/// The calls inside an `agent_done` or `agent_send`.
pub(super) fn calls_in(call: &ToolCall) -> Vec<ToolCall> {
    let handed = call.arguments.get("tools").and_then(Value::as_array).into_iter().flatten();
    let read = |handed: &Value| {
        let name = handed.get("name").and_then(Value::as_str)?;
        let arguments = handed
            .get("arguments")
            .or_else(|| handed.get("args"))
            .cloned()
            .unwrap_or_else(|| json!({}));
        Some(ToolCall {
            untrusted: call.untrusted
                || handed.get("untrusted").is_some_and(|it| *it == json!(true)),
            led_by: call.led_by.clone(),
            ..ToolCall::new(name, arguments)
        })
    };
    handed.filter_map(read).collect()
}

/// The kind of a message for done sequences (L-094).
fn kind_of(by: Option<&Responder>, tools: &[String], message: &Message) -> MessageKind {
    let of_sender = |role: Role| match role {
        Role::Llm => MessageKind::LlmResponse,
        Role::Agent => MessageKind::AgentResponse,
        Role::User | Role::System => MessageKind::UserResponse,
    };
    match by {
        Some(Responder::Agent) => MessageKind::AgentResponse,
        Some(Responder::User) => MessageKind::UserResponse,
        Some(Responder::Subtask(_)) => of_sender(message.sender),
        Some(Responder::Llm) if tools.is_empty() => MessageKind::LlmResponse,
        _ if tools.is_empty() => MessageKind::NoResponse,
        _ => MessageKind::Tool,
    }
}

fn titles_of(toolbox: &Toolbox, tools: &[String]) -> Vec<String> {
    let [only] = tools else { return Vec::new() };
    toolbox.get(only).and_then(|tool| tool.title.clone()).into_iter().collect()
}
