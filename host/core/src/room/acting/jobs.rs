//! Background commands (O-094…O-097, done right). The room follows each one with its executor's
//! `poll` tool, and reports output and exit to the agent. Commands that are left are killed when
//! the activation ends.
//!
//! Output never starts a step; it waits for the next one. Polls without output become less
//! frequent. A poll is journalled and counts as a tool call, but costs no turn. The final kill is
//! not counted: an exhausted budget must not leave commands running. The run's result is ready
//! before the kill, and the room stays open until the kill is answered. A second stop does not wait
//! for it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::executors::{offers, without_executor};
use super::{drop_limit, drop_timers, text_of};
use crate::permissions::policy_rules::Decide;
use crate::policy::budget::Budget;
use crate::policy::decision::decide;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::knowledge::newest_said;
use crate::room::scratch::{call_tool, takes_turns};
use crate::room::state::acting::{Job, JobCall, UnreadOutput};
use crate::room::state::consent::Consent;
use crate::room::state::frame::Frame;
use crate::room::state::gated::AnsweredCall;
use crate::room::state::rounds::Slot;
use crate::room::{
    Dialogue, Frames, Invariant, PluginCalls, Purpose, Room, RoomContext, TimerPurpose, ToolRounds,
};
use crate::trajectory::observation::MAX_COMMAND_OUTPUT;
use crate::trajectory::truncate;
use crate::types::action::{Observation, PastAction, exit_code};
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, FrameId, PluginName, TaskName};
use crate::types::message::{Label, ToolCall};
use crate::types::tool::{ToolError, ToolOutcome};
use crate::types::usage::Spent;

/// Background commands that one activation may have at once.
const MAX_JOBS: usize = 16;
/// Milliseconds between two polls by default, and the bounds of an executor's own value.
const POLL_MS: u64 = 1_000;
const POLL_BOUNDS_MS: (u64, u64) = (100, 60_000);
/// The longest pause between polls without output, unless the executor sets a longer one.
const IDLE_POLL_MS: u64 = 10_000;
/// Consecutive polls that may fail.
const MAX_FAULTS: u32 = 3;
/// Reports that are retained. Only commands that begin and end between two steps could make more.
const MAX_NEWS: usize = 64;
/// Characters of a command in texts that only identify it.
const SHOWN_COMMAND: usize = 200;
const POLL: &str = "poll";
pub(in crate::room) const KILL: &str = "kill";

pub(super) fn has_room_for_a_job(frames: &Frames, id: FrameId) -> Result<(), String> {
    match frames.get(&id) {
        Some(frame) if frame.acting.jobs.len() < MAX_JOBS => Ok(()),
        _ => Err(format!(
            "There are {MAX_JOBS} background commands already; stop one with a `kill` action first."
        )),
    }
}

fn poll_later(frames: &Frames, cx: &mut RoomContext, id: FrameId, command_id: i64) {
    let Some(job) = frames.get(&id).and_then(|frame| frame.acting.jobs.get(&command_id)) else {
        return cx.violated(Invariant::CommandKnown, id);
    };
    // The interval doubles with each idle poll; the cap on the exponent keeps the shift in
    // range.
    let longer = job.every_ms.saturating_mul(1 << job.idle.min(10)).min(IDLE_POLL_MS);
    let at = cx.now.plus(longer.max(job.every_ms));
    cx.set_timer(TimerPurpose::Poll { frame: id, command_id }, at);
}

/// Adds output to the command's unread output, so that a flood stays as small as one
/// observation.
fn add_unread_output(frames: &mut Frames, cx: &mut RoomContext, id: FrameId, news: UnreadOutput) {
    let Some(frame) = frames.get_mut(&id) else {
        return cx.violated(Invariant::FrameExists, id);
    };
    let all = &mut frame.acting.news;
    // The id of an ended command can be in use again, so its report is not continued.
    let before =
        all.iter_mut().find(|before| before.command_id == news.command_id && before.goes_on);
    match (before, news.observation) {
        (Some(before), Observation::Command { content: more, exit_code: code, .. }) => {
            if let Observation::Command { content, exit_code, .. } = &mut before.observation {
                content.push_str(&more);
                *content = truncate(content, MAX_COMMAND_OUTPUT);
                *exit_code = code;
            }
            before.goes_on = news.goes_on;
        }
        (_, mut observation) => {
            if let Observation::Command { content, .. } = &mut observation {
                *content = truncate(content, MAX_COMMAND_OUTPUT);
            }
            // The oldest is given up, since the newest tell how the commands stand.
            if all.len() >= MAX_NEWS {
                all.remove(0);
            }
            all.push(UnreadOutput { observation, ..news });
        }
    }
}

fn kill_job(frames: &Frames, cx: &mut RoomContext, id: FrameId, command_id: i64, job: &Job) {
    let Some((frame, task)) = frames.task_of(cx, id) else {
        return cx.violated(Invariant::FrameExists, id);
    };
    let (task, agent) = (frame.task.clone(), task.agent.clone());
    kill_for(cx, &task, &agent, command_id, &job.plugin);
}

impl ToolRounds<'_> {
    /// Applies a tool outcome to the agent's background commands, and returns the observation for
    /// the agent.
    pub(super) fn with_job(
        &mut self,
        id: FrameId,
        slot: &Slot,
        (plugin, untrusted): (&PluginName, bool),
        outcome: &ToolOutcome,
        mut observation: Observation,
    ) -> Result<Observation, String> {
        match slot.call.name.as_str() {
            "run" => {
                let Some(background) = outcome
                    .value
                    .as_ref()
                    .and_then(|value| value.get("background"))
                    .filter(|background| background.is_object())
                else {
                    return Ok(observation);
                };
                let Some(command_id) = background.get("command_id").and_then(Value::as_i64) else {
                    return Err(
                        "The executor of run gave a background command without a command_id."
                            .to_owned(),
                    );
                };
                let command = text_of(&slot.now.arguments, "command");
                // The executor's own interval is bounded, or it could force a poll without pause.
                let every_ms = background
                    .get("poll_ms")
                    .and_then(Value::as_u64)
                    .unwrap_or(POLL_MS)
                    .clamp(POLL_BOUNDS_MS.0, POLL_BOUNDS_MS.1);
                let job = Job {
                    command,
                    plugin: plugin.clone(),
                    every_ms,
                    idle: 0,
                    faults: 0,
                    untrusted,
                };
                self.dialogue().begin_job(id, command_id, job)?;
                if let Observation::Command { command_id: own, content, .. } = &mut observation {
                    *own = command_id;
                    if content.is_empty() {
                        // O-094: the reference's text.
                        *content = format!(
                            "Background command started. To stop it, send a `kill` action with command_id {command_id}"
                        );
                    }
                }
            }
            KILL => {
                let killed =
                    slot.now.arguments.get("command_id").and_then(Value::as_i64).unwrap_or(-1);
                // Forgotten once the executor has answered: after a failed kill, the polls go on.
                let job = self.forget_job(id, killed);
                if let Observation::Command { command_id, command, content, .. } = &mut observation
                {
                    *command_id = killed;
                    if let Some(job) = job.filter(|_| command.is_empty()) {
                        *command = job.command;
                    }
                    if content.is_empty() {
                        // O-096: the reference's text.
                        *content = format!("Background command with id {killed} has been killed.");
                    }
                }
            }
            _ => {}
        }
        Ok(observation)
    }

    /// Kills the background command that an action started, if a gate withholds its result: the
    /// agent does not learn its id.
    pub(in crate::room) fn kill_unread_job(
        &mut self,
        id: FrameId,
        slot: &Slot,
        plugin: &PluginName,
        answer: &Result<ToolOutcome, ToolError>,
    ) {
        let value = answer.as_ref().ok().and_then(|outcome| outcome.value.as_ref());
        let background = value.and_then(|value| value.get("background")?.get("command_id"));
        let started = background.and_then(Value::as_i64).filter(|_| slot.action.is_some());
        let agent = self.frames.task_of(self.cx, id);
        let agent = agent.map(|(frame, task)| (frame.task.clone(), task.agent.clone()));
        if let (Some(command_id), Some((task, agent))) = (started, agent) {
            kill_for(self.cx, &task, &agent, command_id, plugin);
        }
    }

    /// Polls a background command.
    pub(in crate::room) fn poll_due(&mut self, id: FrameId, command_id: i64) {
        // The command or its activation may have ended while the timer fired.
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return };
        let Some(job) = frame.acting.jobs.get(&command_id) else { return };
        let (task, agent, plugin) = (frame.task.clone(), task.agent.clone(), job.plugin.clone());
        if self.budgets.is_waiting_for_more()
            || self.budgets.is_used_up(self.cx, self.frames, self.histories, Budget::ToolCalls)
        {
            // A poll alone is no reason to ask for more budget.
            if self.budgets.is_waiting_for_more() || self.cx.asks_for_more() {
                poll_later(self.frames, self.cx, id, command_id);
            }
            return;
        }
        if let Some(record) =
            self.budgets.calls_are_used_up(self.cx, &agent, &format!("{plugin}.{POLL}"))
        {
            // No later poll: unlike a budget of the run, nobody is asked to raise a grant.
            self.cx.denied(&agent, *record);
            return;
        }
        self.budgets.spent = self.budgets.spent.plus(Spent { tool_calls: 1, ..Spent::default() });
        self.budgets.used_by(&agent).tool_calls += 1;
        let about = JobCall::Poll { frame: id, command_id };
        let call = call_executor(self.cx, (task, agent), &plugin, POLL, about, command_id);
        if !takes_turns(self.cx, &plugin) {
            self.frames.set_action_timeout(self.cx, id, call);
        }
    }

    /// Ends a poll or a kill that was pending for too long.
    pub(super) fn job_expired(&mut self, call: CallId, after_ms: u64) {
        let Some(Purpose::Job { about, .. }) = self.cx.calls.get(&call).cloned() else { return };
        self.plugin_calls().abandon(call);
        // An expired kill is only given up: nothing waits for it, and its command is forgotten.
        if let JobCall::Poll { frame, command_id } = about {
            self.poll_failed(
                frame,
                command_id,
                &format!("Tool {POLL} timed out after {after_ms} ms."),
            );
        }
    }

    fn polled(&mut self, id: FrameId, command_id: i64, outcome: &ToolOutcome) {
        let Some(job) =
            self.frames.get_mut(&id).and_then(|frame| frame.acting.jobs.get_mut(&command_id))
        else {
            return self.cx.violated(Invariant::CommandKnown, id);
        };
        let (content, exit) = (poll_output(outcome), exit_of(outcome));
        job.faults = 0;
        job.idle = if content.is_empty() { job.idle.saturating_add(1) } else { 0 };
        let (command, untrusted) = (job.command.clone(), job.untrusted);
        if !content.is_empty() || exit.is_some() {
            let observation = Observation::Command {
                command_id,
                command,
                exit_code: exit.unwrap_or_default(),
                content,
            };
            add_unread_output(
                self.frames,
                self.cx,
                id,
                UnreadOutput { command_id, observation, untrusted, goes_on: exit.is_none() },
            );
        }
        match exit {
            Some(_) => drop(self.forget_job(id, command_id)),
            None => poll_later(self.frames, self.cx, id, command_id),
        }
    }

    fn poll_failed(&mut self, id: FrameId, command_id: i64, why: &str) {
        let Some(job) =
            self.frames.get_mut(&id).and_then(|frame| frame.acting.jobs.get_mut(&command_id))
        else {
            return self.cx.violated(Invariant::CommandKnown, id);
        };
        job.faults += 1;
        if job.faults < MAX_FAULTS {
            poll_later(self.frames, self.cx, id, command_id);
            return;
        }
        // The reason comes from a plugin, and may be long.
        let content = truncate(
            &format!(
                "Background command {command_id} (`{}`) is lost: its executor failed {MAX_FAULTS} times in a row; the last time: {why}",
                truncate(&job.command, SHOWN_COMMAND)
            ),
            MAX_COMMAND_OUTPUT,
        );
        let untrusted = job.untrusted;
        self.forget_job(id, command_id);
        add_unread_output(
            self.frames,
            self.cx,
            id,
            UnreadOutput {
                command_id,
                observation: Observation::Error { content },
                untrusted,
                goes_on: false,
            },
        );
    }

    /// Kills one of the agent's own running commands (O-096, C-321).
    pub(super) fn start_kill(
        &mut self,
        id: FrameId,
        index: usize,
        command_id: i64,
        consent: Consent,
    ) {
        let job = self.frames.get(&id).and_then(|frame| frame.acting.jobs.get(&command_id));
        let Some(plugin) = job.map(|job| job.plugin.clone()) else {
            self.frames.observe(
                self.cx,
                id,
                index,
                Err(format!("There is no background command with id {command_id}.")),
            );
            return;
        };
        if offers(self.cx, &plugin, KILL) {
            self.run_executor(id, index, (&plugin, KILL), consent);
        } else {
            without_executor(self.frames, self.cx, id, index, KILL);
        }
    }

    fn forget_job(&mut self, id: FrameId, command_id: i64) -> Option<Job> {
        let job = self.frames.get_mut(&id)?.acting.jobs.remove(&command_id)?;
        // A late timer or answer of a poll would refer to an unknown command.
        drop_timers(self.cx, |purpose| *purpose == TimerPurpose::Poll { frame: id, command_id });
        let polls = |purpose: &Purpose| matches!(purpose, Purpose::Job { about, .. } if *about == JobCall::Poll { frame: id, command_id });
        let calls: Vec<CallId> = self
            .cx
            .calls
            .iter()
            .filter(|(_, purpose)| polls(purpose))
            .map(|(call, _)| *call)
            .collect();
        calls.into_iter().for_each(|call| self.plugin_calls().abandon(call));
        self.plugin_calls().abandon_checks(|act| act.is_output_of(id, command_id));
        Some(job)
    }
}

impl Dialogue<'_> {
    fn begin_job(&mut self, id: FrameId, command_id: i64, job: Job) -> Result<(), String> {
        let Some(frame) = self.frames.get_mut(&id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return Ok(());
        };
        if frame.acting.jobs.contains_key(&command_id) {
            return Err(format!(
                "The executor of run gave its command the id {command_id}, which another background command has."
            ));
        }
        if let Err(full) = has_room_for_a_job(self.frames, id) {
            // The executor started it unasked, and it will not be followed.
            kill_job(self.frames, self.cx, id, command_id, &job);
            return Err(full);
        }
        let plugin = job.plugin.clone();
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.acting.jobs.insert(command_id, job);
        }
        // Without the right to poll, the command runs unobserved until it is killed.
        if self.may_poll(id, &plugin) {
            poll_later(self.frames, self.cx, id, command_id);
        }
        Ok(())
    }

    /// Whether the agent's grant and the rules allow polls. A rule that asks was answered when the
    /// command began.
    fn may_poll(&mut self, id: FrameId, plugin: &PluginName) -> bool {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return false;
        };
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        if !offers(self.cx, plugin, POLL) {
            return false;
        }
        let toolbox = self.histories.toolbox(self.cx, &name);
        let (here, admitted) = (
            self.histories.name_of_tool(self.cx, self.frames, id, plugin, POLL),
            format!("{plugin}.{POLL}"),
        );
        if !toolbox.get(&here).is_some_and(|tool| tool.handled) {
            self.histories.unknown_tool(self.cx, &agent, &name, &toolbox, &admitted);
            return false;
        }
        let setup = Arc::clone(&self.cx.setup);
        decide(&setup, [&agent], &admitted, &json!({})).decide != Decide::Deny
    }

    /// Writes unread command output to the history before a step (O-053, O-054). Returns true if
    /// the pending message already precedes it there.
    pub(in crate::room) fn write_job_output(&mut self, id: FrameId) -> bool {
        let Some(frame) = self.frames.get(&id).filter(|frame| !frame.acting.news.is_empty()) else {
            return false;
        };
        let (task, pending) =
            (frame.task.clone(), frame.turn().pending.as_ref().map(|pending| pending.seq));
        let memory = self.histories.memory(self.cx, &task);
        if !memory.open_calls.is_empty() {
            // A message here would be taken for the result of the open calls.
            return false;
        }
        let is_written =
            newest_said(memory.history()).is_some_and(|last| Some(last.seq) == pending);
        let news = self
            .frames
            .get_mut(&id)
            .map(|frame| std::mem::take(&mut frame.acting.news))
            .unwrap_or_default();
        for UnreadOutput { command_id, observation, untrusted, goes_on } in news {
            let mut message = self.frames.host_message(
                self.cx,
                id,
                output_text(command_id, &observation, goes_on),
            );
            message.labels.extend(untrusted.then_some(Label::Untrusted));
            message.labels.push(Label::Tool);
            self.frames.remember_unsolicited(
                self.cx,
                id,
                PastAction { action: None, observation: Some(observation), seq: message.seq },
            );
            self.write_history(id, &Arc::new(message));
        }
        is_written
    }
}

fn call_executor(
    cx: &mut RoomContext,
    (task, caller): (TaskName, PluginName),
    plugin: &PluginName,
    tool: &str,
    about: JobCall,
    command_id: i64,
) -> CallId {
    let (plugin, arguments) = (plugin.clone(), Arc::new(json!({ "command_id": command_id })));
    let call = cx.next_call(Purpose::Job { task: task.clone(), plugin: plugin.clone(), about });
    let tool = tool.to_owned();
    let effect = Effect::CallTool { call, task, caller, plugin: plugin.clone(), tool, arguments };
    call_tool(cx, &plugin, effect);
    call
}

fn kill_for(
    cx: &mut RoomContext,
    task: &TaskName,
    agent: &PluginName,
    command_id: i64,
    plugin: &PluginName,
) {
    if offers(cx, plugin, KILL) {
        call_executor(
            cx,
            (task.clone(), agent.clone()),
            plugin,
            KILL,
            JobCall::Kill { command_id },
            command_id,
        );
    }
}

/// Whether the call is a final kill, which outlasts its activation.
pub(in crate::room) fn is_clearing_up(cx: &RoomContext, call: CallId) -> bool {
    matches!(cx.calls.get(&call), Some(Purpose::Job { about: JobCall::Kill { .. }, .. }))
}

/// Reports an executor call to observers. Polls without output are not reported, so call and
/// answer are sent together.
fn report_job(
    cx: &mut RoomContext,
    task: &TaskName,
    tool: &str,
    command_id: i64,
    answered: &AnsweredCall,
) {
    let AnsweredCall { call, plugin, answer, report } = answered;
    let call = *call;
    let Some(caller) = cx.setup.tasks.get(task).map(|task| task.agent.clone()) else {
        return;
    };
    let tool_call = ToolCall::new(format!("{plugin}.{tool}"), json!({ "command_id": command_id }));
    let (name, arguments) = (tool_call.name.clone(), tool_call.arguments);
    let task_name = task.clone();
    cx.notify(Notice::ToolCalled {
        call,
        task: task_name,
        caller,
        name,
        arguments,
        within: None,
        led_by: Vec::new(),
    });
    let (content, fault) = match answer {
        Ok(outcome) => (poll_output(outcome), None),
        Err(error @ ToolError::Fault { fault }) => {
            (error.to_text(&tool_call.name), Some(fault.clone()))
        }
        Err(error) => (error.to_text(&tool_call.name), None),
    };
    let (task, name, report) = (task.clone(), tool_call.name, report.clone());
    cx.notify(Notice::ToolAnswered {
        call: Some(call),
        task,
        name,
        arguments: None,
        content,
        is_error: answer.is_err(),
        fault,
        report,
    });
}

impl Room {
    /// Takes an executor's answer to a poll, or to a kill that no call waits for.
    pub(in crate::room) fn job_answered(
        &mut self,
        call: CallId,
        answer: Result<ToolOutcome, ToolError>,
        report: CallReport,
    ) {
        let Some(Purpose::Job { task, plugin, about }) = self.cx.calls.get(&call).cloned() else {
            return;
        };
        self.end_call(call, answer.is_ok(), &report);
        drop_limit(&mut self.cx, call);
        let mut answered = AnsweredCall { call, plugin, answer, report };
        match about {
            JobCall::Kill { command_id } => {
                // No agent reads it, so no gate is asked, and observers learn no more than the end.
                if self.tool_rounds().is_result_gated(&answered.plugin, KILL) {
                    answered.answer = answered.answer.map(|_| ToolOutcome::default());
                }
                report_job(&mut self.cx, &task, KILL, command_id, &answered)
            }
            JobCall::Poll { frame, command_id } => {
                let at = (frame, command_id);
                let checked = self.tool_rounds().check_poll(&task, at, POLL, answered);
                if let Some(answered) = checked {
                    self.tool_rounds().poll_ended((&task, at), answered, None);
                }
            }
        }
    }
}

impl ToolRounds<'_> {
    /// Takes the output of a background command. `withheld` is the reason why a gate withholds it.
    pub(in crate::room) fn poll_ended(
        &mut self,
        (task, (frame, command_id)): (&TaskName, (FrameId, i64)),
        mut answered: AnsweredCall,
        withheld: Option<&str>,
    ) {
        if let Some(reason) = withheld {
            answered.answer = withheld_output(&answered.answer, reason);
        }
        // Polls without output are not reported; failures always are.
        let is_news = answered
            .answer
            .as_ref()
            .map_or(true, |outcome| !poll_output(outcome).is_empty() || exit_of(outcome).is_some());
        if is_news {
            report_job(self.cx, task, POLL, command_id, &answered);
        }
        match &answered.answer {
            Ok(outcome) => self.polled(frame, command_id, outcome),
            Err(error) => self.poll_failed(frame, command_id, &error.to_text(POLL)),
        }
    }
}

impl PluginCalls<'_> {
    /// Kills the background commands of an activation that ends.
    pub(in crate::room) fn end_jobs(&mut self, frame: &Frame) {
        if frame.acting.jobs.is_empty() {
            return;
        }
        let id = frame.id;
        // The frame is gone, so neither timers nor answers of polls may find it.
        drop_timers(
            self.cx,
            |purpose| matches!(purpose, TimerPurpose::Poll { frame, .. } if *frame == id),
        );
        let polls = |purpose: &Purpose| matches!(purpose, Purpose::Job { about: JobCall::Poll { frame, .. }, .. } if *frame == id);
        let calls: Vec<CallId> = self
            .cx
            .calls
            .iter()
            .filter(|(_, purpose)| polls(purpose))
            .map(|(call, _)| *call)
            .collect();
        calls.into_iter().for_each(|call| self.abandon(call));
        let Some(agent) = self.cx.setup.tasks.get(&frame.task).map(|task| task.agent.clone())
        else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        for (command_id, job) in &frame.acting.jobs {
            kill_for(self.cx, &frame.task, &agent, *command_id, &job.plugin);
        }
    }
}

/// Returns the answer to a poll with a gate's reason in place of its output. The exit code stays: it
/// ends the command.
fn withheld_output(
    answer: &Result<ToolOutcome, ToolError>,
    reason: &str,
) -> Result<ToolOutcome, ToolError> {
    let content = format!("The output is withheld: {reason}");
    let outcome = answer.as_ref().map_err(|_| ToolError::Other { message: content.clone() })?;
    let value = exit_of(outcome).map(|exit_code| json!({ "exit_code": exit_code }));
    Ok(ToolOutcome { content: Some(content), value, ..ToolOutcome::default() })
}

/// The output of a poll, cut to the limit of an observation (O-009).
fn poll_output(outcome: &ToolOutcome) -> String {
    outcome
        .content
        .as_deref()
        .map(|content| truncate(content, MAX_COMMAND_OUTPUT))
        .unwrap_or_default()
}

/// The exit code of a command, which the reference never reports (O-095).
pub(in crate::room) fn exit_of(outcome: &ToolOutcome) -> Option<i32> {
    outcome.value.as_ref()?.get("exit_code")?.as_i64().map(exit_code)
}

/// The text of an observation for the model.
fn output_text(command_id: i64, observation: &Observation, goes_on: bool) -> String {
    match observation {
        Observation::Command { command, content, .. } if goes_on => {
            format!(
                "Output of background command {command_id} (`{}`):\n{content}",
                truncate(command, SHOWN_COMMAND)
            )
        }
        Observation::Command { command, exit_code, content, .. } => {
            let command = truncate(command, SHOWN_COMMAND);
            let end = format!(
                "Background command {command_id} (`{command}`) has ended with exit code {exit_code}."
            );
            if content.is_empty() { end } else { format!("{end} Its last output:\n{content}") }
        }
        other => other.content().to_owned(),
    }
}
