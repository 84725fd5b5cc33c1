//! What ends a task after a step: the answer itself, the limit of steps, a loop of messages
//! (L-081, L-085…L-094).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::room::responders::caller_name;
use crate::room::state::closing::FrameEnd;
use crate::room::state::frame::{Frame, SequenceAnswer};
use crate::room::state::responder::Responder;
use crate::room::steps::is_empty;
use crate::room::{Dialogue, Frames, Histories, Invariant, RoomContext};
use crate::tool_calls::routing;
use crate::tool_calls::sequence::{Happened, MessageKind};
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::types::host_tool::HostTool;
use crate::types::ids::FrameId;
use crate::types::message::{Message, Role, Signal, ToolCall};
use crate::types::outcome::Status;

/// Texts with which a user ends a task (L-086).
const QUIT_WORDS: [&str; 6] = ["q", "x", "quit", "exit", "bye", "DONE"];

impl Dialogue<'_> {
    /// Returns the end that a task reached with its last step, if any. `ends` is true if the last
    /// answer ends the task by itself (L-081).
    pub(in crate::room) fn ending_of(&mut self, id: FrameId, ends: bool) -> Option<FrameEnd> {
        // Before the limits: an answer in the last permitted step is a result, and no exhausted
        // limit.
        if let Some(ending) = self.find_end(id, None, None, ends) {
            return Some(ending);
        }
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (name, steps, is_root, rules) = (
            frame.task.clone(),
            frame.counters().steps,
            frame.caller.is_none(),
            task.loop_detection,
        );
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
        if let Some(limit) = frame.counters().turn_limit.filter(|limit| steps >= *limit) {
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
    pub(in crate::room) fn find_end(
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
            && self.cx.opening.kill_after.is_some_and(|steps| frame.counters().steps >= steps)
        {
            return Some(FrameEnd::new(
                Status::Kill,
                "the run was to be killed after so many steps",
            ));
        }
        // A judge rules on the pending message; a new answer is yet to be judged.
        let ruled = frame.turn().ruled_done.filter(|_| answer.is_none());
        if ruled == Some(true) {
            let reason = format!("the judge of {} ruled that it is done", frame.task);
            return Some(FrameEnd::new(Status::Done, reason));
        }
        let message = answer.cloned().or_else(|| frame.turn().pending.clone());
        let by = by.cloned().or_else(|| frame.turn().last_responder.clone());
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
        if frame.counters().stalled >= task.max_stalled_steps {
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
    pub(in crate::room) fn remember_answer(&mut self, id: FrameId) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let longest = task
            .done_sequences
            .iter()
            .map(|sequence| sequence.events().len())
            .max()
            .unwrap_or_default();
        let Some(pending) = frame.turn().pending.clone().filter(|_| longest > 0) else { return };
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
    pub(in crate::room) fn only_user_ends(&mut self, id: FrameId) -> bool {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return false;
        };
        frame.caller.is_none() && task.only_user_quits_root && self.user_may_respond(id)
    }

    /// Removes calls and signals that end this task from the pending message. Calls that end all
    /// tasks stay (L-061).
    pub(in crate::room) fn strip_endings(&mut self, id: FrameId) {
        let Some(frame) = self.frames.get(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        let Some(pending) = self.frames.get_mut(&id).and_then(Frame::pending_mut) else {
            return;
        };
        let pending = Arc::make_mut(pending);
        pending.signal = None;
        pending.tools.retain(|call| EndScope::of(&toolbox, call) != Some(EndScope::Task));
        if let Some(frame) = self.frames.get_mut(&id) {
            // The cached parse still holds the removed calls.
            frame.forget_reading();
        }
        self.keep_pending(id);
    }
}

impl Histories {
    /// Whether an answer, or the lack of one, ends the task by itself (L-081).
    pub(in crate::room) fn is_done_response(
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
}

fn says_goodbye(message: &Message) -> bool {
    QUIT_WORDS.contains(&message.text().trim())
}

/// The scope that a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::room) enum EndScope {
    /// The task that it is made in (L-140, L-141).
    Task,
    /// That task and all its callers (L-143).
    Everything,
}

impl EndScope {
    pub(super) fn of(toolbox: &Toolbox, call: &ToolCall) -> Option<Self> {
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
pub(in crate::room) fn is_host_tool(
    toolbox: &Toolbox,
    call: &ToolCall,
    host_tool: HostTool,
) -> bool {
    match toolbox.get(&call.name) {
        Some(tool) => tool.target == ToolTarget::Host(host_tool),
        None => call.name == host_tool.as_str() || call.name == host_tool.langroid_name(),
    }
}

/// The calls inside an `agent_done` or `agent_send`.
pub(in crate::room) fn calls_in(call: &ToolCall) -> Vec<ToolCall> {
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
