//! Gates at tools. A call is checked before the operator's rules and approvers see it, so that what
//! is approved is what runs; a result is checked before anything reads it (R-009).
//!
//! These are the only two doors. Every call of a plugin's tool begins in `run_slot` and ends in
//! `tool_answered`, whether an agent, another tool, an action or a client outside makes it. Polls
//! of background commands stand outside rounds. The host makes them with an id alone, so only their
//! output is checked.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::host_tool_of;
use crate::room::acting::executors::tool_of_action;
use crate::room::background::slots::waits;
use crate::room::gates::{has_gate_at, has_gate_for};
use crate::room::state::consent::Consent;
use crate::room::state::delegation::Waiter;
use crate::room::state::gated::{AnsweredCall, GatedAct, GatedCall, GatedResult, ResultReader};
use crate::room::state::rounds::{Slot, SlotState, ToolRound};
use crate::room::tools::failed;
use crate::room::{Frames, Histories, RoomContext, ToolRounds};
use crate::setup::GatePoint;
use crate::tool_calls::arguments;
use crate::types::action::Action;
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::tool::{ToolError, ToolOutcome};

/// The label of text that derives from outside, as in a message.
const UNTRUSTED: &str = "untrusted";

/// The readable parts of a tool's answer, as a gate reads and changes them.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadableAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// The tool's own words about its failure; present if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ReadableAnswer {
    /// The readable parts of an answer; `None` if a gate could find nothing in it. Refusals and
    /// pauses are the host's own words.
    fn of(answer: &Result<ToolOutcome, ToolError>) -> Option<Self> {
        match answer {
            Ok(ToolOutcome { content, value, attachments, .. }) => {
                let value = value.clone().filter(|value| !value.is_null());
                let has_text = content.is_some() || value.is_some() || !attachments.is_empty();
                has_text.then(|| Self { content: content.clone(), value, error: None })
            }
            Err(error) => {
                let error = Some(words_of(&mut error.clone())?.clone());
                Some(Self { content: None, value: None, error })
            }
        }
    }

    fn to_text(&self) -> String {
        // Texts and JSON values always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the answer with these parts in place of its own.
    fn applied_to(self, answer: &Result<ToolOutcome, ToolError>) -> Result<ToolOutcome, ToolError> {
        match answer {
            Ok(outcome) => {
                let mut value = self.value;
                // The host follows a background command by this part, and no agent reads it.
                if let Some(job) = outcome.value.as_ref().and_then(|it| it.get("background")) {
                    let fields = value.get_or_insert_with(|| json!({}));
                    if let Value::Object(fields) = fields {
                        fields.insert("background".to_owned(), job.clone());
                    }
                }
                Ok(ToolOutcome { content: self.content, value, ..outcome.clone() })
            }
            Err(error) => {
                let mut error = error.clone();
                if let (Some(words), Some(changed)) = (words_of(&mut error), self.error) {
                    *words = changed;
                }
                Err(error)
            }
        }
    }
}

/// The words of a plugin in an error; `None` if all of it is the host's.
fn words_of(error: &mut ToolError) -> Option<&mut String> {
    match error {
        ToolError::InvalidArguments { message } | ToolError::Other { message } => Some(message),
        ToolError::Fault { fault } => Some(&mut fault.message),
        ToolError::Denied { .. } | ToolError::Unavailable { .. } => None,
    }
}

/// Returns an answer that a gate changed.
///
/// # Errors
/// If `text` is not the JSON form of such an answer: a gate neither fails a call nor mends one.
pub(in crate::room) fn changed_answer(
    answer: &Result<ToolOutcome, ToolError>,
    text: &str,
) -> Result<Result<ToolOutcome, ToolError>, String> {
    let bad =
        |why: &dyn Display| format!("its result is not an object of `content` and `value`: {why}");
    let changed: Map<String, Value> = serde_json::from_str(text).map_err(|error| bad(&error))?;
    let changed: ReadableAnswer =
        serde_json::from_value(changed.into()).map_err(|error| bad(&error))?;
    match (&changed.error, answer) {
        (None, Ok(_)) => {}
        (Some(_), Err(_)) if changed.content.is_none() && changed.value.is_none() => {}
        (Some(_), Ok(_)) => {
            return Err("it made an error of a result; to stop it, a gate answers `block`".into());
        }
        (_, Err(_)) => return Err("the tool failed, so its result has `error` alone".into()),
    }
    Ok(changed.applied_to(answer))
}

/// Returns the arguments that a gate put in place of those of a call, as the tool's schema requires
/// them.
///
/// # Errors
/// If they are no arguments of this tool or action.
pub(in crate::room) fn changed_arguments(
    frames: &Frames,
    histories: &Histories,
    cx: &RoomContext,
    call: &GatedCall,
    text: &str,
) -> Result<Value, String> {
    let arguments: Value = serde_json::from_str(text)
        .map_err(|error| format!("its arguments for {} are not JSON: {error}", call.tool))?;
    if !arguments.is_object() {
        return Err(format!("its arguments for {} are no JSON object", call.tool));
    }
    let Waiter { frame, slot, .. } = call.waiter;
    let slot = frames.get(&frame).zip(frames.slot(frame, slot));
    let Some((frame, slot)) = slot else { return Ok(arguments) };
    if let Some(action) = &slot.action {
        let checked = Action::from_args(action.name(), &arguments);
        return checked.map(|_| arguments).map_err(|error| error.text);
    }
    let toolbox = histories.toolbox(cx, &frame.task);
    let Some(tool) = toolbox.get(&slot.now.name) else { return Ok(arguments) };
    arguments::check(&tool.summary.input_schema, &arguments)
        .map_err(|wrong| arguments::explain(&call.tool, &wrong))
}

/// The facts of a call for its gates, besides the arguments.
pub(in crate::room) fn call_facts(frames: &Frames, cx: &RoomContext, call: &GatedCall) -> Value {
    let Waiter { frame, slot, .. } = call.waiter;
    slot_facts(frames, cx, (frame, slot), &call.tool)
}

/// The facts of a result for its gates, besides the parts of it that they may change.
pub(in crate::room) fn result_facts(
    frames: &Frames,
    cx: &RoomContext,
    result: &GatedResult,
) -> Value {
    let is_from_a_server =
        cx.setup.plugins.get(&result.answered.plugin).is_some_and(|plugin| plugin.facts.mcp);
    let (mut facts, arguments) = match &result.reader {
        ResultReader::Slot { waiter: Waiter { frame, slot, .. } } => {
            let now = frames.slot(*frame, *slot).map(|slot| &slot.now.arguments);
            let arguments = now.map_or(Value::Null, |arguments| Value::clone(arguments));
            (slot_facts(frames, cx, (*frame, *slot), &result.tool), arguments)
        }
        ResultReader::Poll { frame, command_id, .. } => {
            let job = frames.get(frame).and_then(|frame| frame.acting.jobs.get(command_id));
            let labels: &[&str] =
                if job.is_some_and(|job| job.untrusted) { &[UNTRUSTED] } else { &[] };
            let caller = frames.agent_of(cx, *frame);
            let facts = json!({
                "tool": result.tool, "call": result.answered.call.to_string(), "caller": caller,
                "led_by": [], "labels": labels,
            });
            (facts, json!({ "command_id": command_id }))
        }
    };
    if is_from_a_server {
        facts["labels"] = json!([UNTRUSTED]);
    }
    facts["arguments"] = arguments;
    facts["is_error"] = json!(result.answered.answer.is_err());
    if let Ok(outcome) = &result.answered.answer {
        let types = outcome.attachments.iter().map(|blob| blob.media_type.as_str());
        let next = outcome.follow_up_calls.iter();
        let next = next.map(|call| json!({ "name": call.name, "arguments": call.arguments }));
        facts["attachments"] = types.collect();
        facts["follow_up_calls"] = next.collect();
    }
    facts
}

fn slot_facts(
    frames: &Frames,
    cx: &RoomContext,
    (id, index): (FrameId, usize),
    tool: &str,
) -> Value {
    let Some(slot) = frames.slot(id, index) else { return json!({ "tool": tool }) };
    let is_untrusted = slot.now.untrusted || frames.round(id).is_some_and(ToolRound::is_untrusted);
    let labels: &[&str] = if is_untrusted { &[UNTRUSTED] } else { &[] };
    json!({
        "tool": tool, "call": slot.now.id, "caller": frames.agent_of(cx, id),
        "led_by": slot.now.led_by, "labels": labels,
    })
}

impl Histories {
    /// The `plugin.tool` behind a name in a frame's task.
    fn admitted_name(&self, cx: &RoomContext, frames: &Frames, id: FrameId, name: &str) -> String {
        let task = frames.get(&id).map(|frame| &frame.task);
        let toolbox = task.map(|task| self.toolbox(cx, task)).unwrap_or_default();
        let admitted = toolbox.get(name).and_then(|tool| tool.target.admitted_name());
        // An executor without a name in the task has its own.
        admitted.unwrap_or_else(|| name.to_owned())
    }

    /// The `plugin.tool` that a slot would start; `None` if it would start no tool of a plugin.
    fn tool_to_start(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        slot: &Slot,
    ) -> Option<String> {
        if let Some(action) = &slot.action {
            return tool_of_action(frames, cx, id, action);
        }
        let toolbox = self.toolbox(cx, &frames.get(&id)?.task);
        if host_tool_of(&toolbox, &slot.now).is_some() {
            return None;
        }
        toolbox.get(&slot.now.name).filter(|tool| tool.handled)?.target.admitted_name()
    }
}

impl ToolRounds<'_> {
    /// Lets gates check the call of a slot before it starts. Returns false if none has to. `consent`
    /// is the consent that it has so far.
    pub(in crate::room) fn check_call(
        &mut self,
        id: FrameId,
        index: usize,
        consent: Consent,
    ) -> bool {
        if !has_gate_at(self.cx, GatePoint::ToolCall) {
            return false;
        }
        let Some(round) = self.frames.round(id) else { return false };
        let seq = round.message.seq;
        let Some(slot) = round.slots.get(index).filter(|slot| slot.is_open()) else { return false };
        let tool = self.histories.tool_to_start(self.cx, self.frames, id, slot);
        let covers = |tool: &String| has_gate_for(self.cx, GatePoint::ToolCall, tool);
        let Some(tool) = tool.filter(covers) else { return false };
        let text = slot.now.arguments.to_string();
        let waiter = Waiter { frame: id, slot: index, seq };
        let call = Box::new(GatedCall { waiter, tool, text, is_changed: false, consent });
        self.frames.set_slot(self.cx, id, index, SlotState::InBackground);
        self.gate_checks().wait_for_gates(GatedAct::ToolCall { call });
        true
    }

    /// Puts a call that the gates let pass to the operator's rules.
    pub(in crate::room) fn call_passed(&mut self, call: &GatedCall) {
        let Waiter { frame: id, slot: index, .. } = call.waiter;
        if !waits(self.frames, &call.waiter) {
            return;
        }
        if call.is_changed {
            let changed = changed_arguments(self.frames, self.histories, self.cx, call, &call.text);
            let changed =
                changed.and_then(|arguments| self.frames.edit_slot(self.cx, id, index, arguments));
            // They fitted when the gate answered. The run may have been resumed with another
            // config since.
            if let Err(problem) = changed {
                return self.call_blocked(call, &problem);
            }
        }
        self.frames.set_slot(self.cx, id, index, SlotState::Ready);
        // Nobody consented to what a gate changed.
        let consent = if call.is_changed { Consent::NotYet } else { call.consent.clone() };
        self.start_slot(id, index, consent);
        self.dialogue().resume_round(id);
    }

    /// Answers a call that a gate blocked, with the reason for its caller.
    pub(in crate::room) fn call_blocked(&mut self, call: &GatedCall, reason: &str) {
        let Waiter { frame: id, slot: index, .. } = call.waiter;
        if !waits(self.frames, &call.waiter) {
            return;
        }
        let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
        let (now, is_action) = (slot.now.clone(), slot.action.is_some());
        let result = failed(&now, format!("{} was not run: {reason}", now.name));
        if is_action {
            self.frames.refuse_act(self.cx, id, index, result);
        } else {
            let outcome = self.frames.result_outcome(self.cx, id, result);
            self.frames.report_answer(self.cx, id, &now, &outcome);
            self.frames.answer_slot(self.cx, id, index, outcome.into());
        }
        self.dialogue().resume_round(id);
    }

    /// Lets gates check the answer to a slot's call. Returns the answer if none has to.
    pub(super) fn check_answer(
        &mut self,
        (id, index): (FrameId, usize),
        answered: AnsweredCall,
    ) -> Option<AnsweredCall> {
        if !has_gate_at(self.cx, GatePoint::ToolResult) {
            return Some(answered);
        }
        let slot = self
            .frames
            .round(id)
            .and_then(|round| Some((round.message.seq, round.slots.get(index)?.now.name.clone())));
        let Some((seq, name)) = slot else { return Some(answered) };
        let tool = self.histories.admitted_name(self.cx, self.frames, id, &name);
        let waiter = Waiter { frame: id, slot: index, seq };
        let answered = self.check_result(ResultReader::Slot { waiter }, tool, answered);
        if answered.is_none() {
            self.frames.set_slot(self.cx, id, index, SlotState::InBackground);
        }
        answered
    }

    /// Lets gates check the output of a background command. Returns the answer if none has to.
    pub(in crate::room) fn check_poll(
        &mut self,
        task: &TaskName,
        (frame, command_id): (FrameId, i64),
        tool: &str,
        answered: AnsweredCall,
    ) -> Option<AnsweredCall> {
        if !has_gate_at(self.cx, GatePoint::ToolResult) {
            return Some(answered);
        }
        let says_nothing =
            |outcome: &ToolOutcome| outcome.content.as_ref().is_none_or(String::is_empty);
        if answered.answer.as_ref().is_ok_and(says_nothing) {
            return Some(answered);
        }
        let tool = format!("{}.{tool}", answered.plugin);
        let reader = ResultReader::Poll { task: task.clone(), frame, command_id };
        self.check_result(reader, tool, answered)
    }

    fn check_result(
        &mut self,
        reader: ResultReader,
        tool: String,
        answered: AnsweredCall,
    ) -> Option<AnsweredCall> {
        if !has_gate_for(self.cx, GatePoint::ToolResult, &tool) {
            return Some(answered);
        }
        let Some(readable) = ReadableAnswer::of(&answered.answer) else { return Some(answered) };
        let text = readable.to_text();
        let result = Box::new(GatedResult { reader, tool, answered, text, is_changed: false });
        self.gate_checks().wait_for_gates(GatedAct::ToolResult { result });
        None
    }

    /// Whether gates check the results of a plugin's tool.
    pub(in crate::room) fn is_result_gated(&self, plugin: &PluginName, tool: &str) -> bool {
        has_gate_at(self.cx, GatePoint::ToolResult)
            && has_gate_for(self.cx, GatePoint::ToolResult, &format!("{plugin}.{tool}"))
    }
}

impl ToolRounds<'_> {
    /// Hands a result that the gates let pass to its reader.
    pub(in crate::room) fn result_passed(&mut self, result: GatedResult) {
        let GatedResult { reader, mut answered, text, is_changed, .. } = result;
        if is_changed {
            match changed_answer(&answered.answer, &text) {
                Ok(answer) => answered.answer = answer,
                // It was checked when the gate answered.
                Err(problem) => return self.hand_over_result(reader, answered, Some(problem)),
            }
        }
        self.hand_over_result(reader, answered, None);
    }

    /// Hands the reader of a result the reason why a gate withholds it.
    pub(in crate::room) fn result_blocked(&mut self, result: GatedResult, reason: &str) {
        self.hand_over_result(result.reader, result.answered, Some(reason.to_owned()));
    }

    fn hand_over_result(
        &mut self,
        reader: ResultReader,
        answered: AnsweredCall,
        withheld: Option<String>,
    ) {
        match reader {
            ResultReader::Slot { waiter } if waits(self.frames, &waiter) => {
                self.tool_ended((waiter.frame, waiter.slot), answered, withheld.as_deref());
            }
            // The activation went on without it.
            ResultReader::Slot { .. } => {}
            ResultReader::Poll { task, frame, command_id } => {
                let job = self.frames.get(&frame).map(|frame| &frame.acting.jobs);
                if job.is_some_and(|jobs| jobs.contains_key(&command_id)) {
                    self.poll_ended((&task, (frame, command_id)), answered, withheld.as_deref());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::fault::{Fault, FaultKind};
    use crate::types::message::Blob;

    fn outcome(content: Option<&str>, value: Option<Value>) -> Result<ToolOutcome, ToolError> {
        let content = content.map(str::to_owned);
        Ok(ToolOutcome { content, value, ..ToolOutcome::default() })
    }

    fn text(answer: &Result<ToolOutcome, ToolError>) -> Option<String> {
        ReadableAnswer::of(answer).map(|readable| readable.to_text())
    }

    #[test]
    fn a_gate_reads_the_words_of_a_plugin_and_none_of_the_host() {
        let value = json!({ "exit_code": 1 });
        let both = text(&outcome(Some("a"), Some(value)));
        assert_eq!(both.as_deref(), Some(r#"{"content":"a","value":{"exit_code":1}}"#));
        assert_eq!(text(&outcome(None, Some(Value::Null))), None, "there is no result");
        let (sha256, media_type) = ("00".to_owned(), "image/png".to_owned());
        let picture = Blob { sha256, media_type, length: 1, name: None };
        let picture = ToolOutcome { attachments: vec![picture], ..ToolOutcome::default() };
        assert_eq!(text(&Ok(picture)).as_deref(), Some("{}"), "a gate can block it");
        let fault = Fault::new(FaultKind::Trap, "the key is hunter2");
        let failed = text(&Err(ToolError::Fault { fault }));
        assert_eq!(failed.as_deref(), Some(r#"{"error":"the key is hunter2"}"#));
        assert_eq!(text(&Err(ToolError::Unavailable { retry_after_ms: None })), None);
    }

    #[test]
    fn a_changed_result_has_the_form_of_the_one_that_it_replaces() {
        let failed = || Err(ToolError::Other { message: "key 1".to_owned() });
        let passed = || outcome(Some("key 1"), Some(json!({ "key": 1 })));
        let changed = |answer: Result<ToolOutcome, ToolError>, text: &str| {
            changed_answer(&answer, text).map(|answer| self::text(&answer).unwrap_or_default())
        };
        let same = r#"{"content":"key …"}"#;
        assert_eq!(changed(passed(), same).as_deref(), Ok(same), "the value is gone");
        assert_eq!(changed(passed(), "{}").as_deref(), Ok(""), "nothing of it is left");
        let same = r#"{"error":"key …"}"#;
        assert_eq!(changed(failed(), same).as_deref(), Ok(same));
        let garbage =
            ["key …", "[]", "\"key …\"", r#"{"contents":"key …"}"#, r#"{"error":"no"}"#, "{"];
        for text in garbage {
            assert!(changed(passed(), text).is_err(), "{text}");
        }
        for text in ["{}", r#"{"content":"it went well"}"#, r#"{"error":"a","content":"b"}"#] {
            assert!(changed(failed(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_gate_makes_the_host_lose_a_background_command() {
        let job = json!({ "command_id": 7 });
        let answer = outcome(Some("a"), Some(json!({ "background": job, "exit_code": 0 })));
        for text in ["{}", r#"{"content":"…","value":{"background":{"command_id":8}}}"#] {
            let changed = changed_answer(&answer, text).unwrap().unwrap();
            assert_eq!(changed.value.unwrap()["background"], job);
        }
    }
}
