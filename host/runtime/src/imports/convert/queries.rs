//! Conversions of plugin queries, of their replies and of the errors of exports. An oversized reply
//! is a bad answer.

use conclave_core::setup::GatePoint;
use conclave_core::setup::plugin_query::{
    Condensation, CondenseReason, EntrySpan, GATE_INPUT_MAX, GateInput, GateVerdict, JudgedAnswer,
    Masked, ObserverReply, PluginQuery, PluginReply, RESULT_MAX, Ruling, TaskEnding, TaskResult,
    Verdict,
};
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::observed::ObservedEvent;
use conclave_core::types::risk::Risk;

use super::{denied_fault, json_in, message_out, text_in};
use crate::imports::bindings::exports::conclave::plugin::{
    channel, condenser, delivery_strategy, gate, judge, memory, observer,
    security_analyzer as analyzer, simulated_user,
};

/// Maximum bytes of an analyzer's or gate's reason, which a user reads.
const REASON: usize = 4 << 10;
/// Maximum bytes of a summary, which every later prompt carries.
const SUMMARY: usize = 64 << 10;
/// Maximum number of spans, and of masked entries.
const SPANS: usize = 10_000;

/// Converts errors that have the same two cases in the contract.
macro_rules! faults {
    ($($interface:ident::$error:ident),*) => {$(
        impl From<$interface::$error> for Fault {
            fn from(error: $interface::$error) -> Self {
                match error {
                    $interface::$error::Denied(denial) => denied_fault(&denial),
                    $interface::$error::Other(text) => Self::new(FaultKind::Error, text_in(&text)),
                }
            }
        }
    )*};
}

faults!(
    memory::MemoryError,
    analyzer::AnalyzerError,
    condenser::CondenserError,
    gate::GateError,
    judge::JudgeError,
    simulated_user::SimulatedUserError,
    channel::ChannelError,
    delivery_strategy::StrategyError
);

pub(crate) fn verdict_in(verdict: analyzer::Verdict) -> Verdict {
    let risk = match verdict.risk {
        analyzer::Risk::Low => Risk::Low,
        analyzer::Risk::Medium => Risk::Medium,
        analyzer::Risk::High => Risk::High,
    };
    Verdict { risk, reason: verdict.reason }
}

pub(crate) fn reason_out(reason: CondenseReason) -> condenser::Reason {
    match reason {
        CondenseReason::Size => condenser::Reason::Size,
        CondenseReason::Requested => condenser::Reason::Requested,
        CondenseReason::Overflow => condenser::Reason::Overflow,
    }
}

/// Converts a condensation unchanged; the room checks it against the history.
pub(crate) fn condensation_in(condensation: condenser::Condensation) -> Condensation {
    let condenser::Condensation { forget, mask, summary } = condensation;
    Condensation {
        forget: forget
            .into_iter()
            .map(|span| EntrySpan { start: span.start, end: span.end })
            .collect(),
        mask: mask
            .into_iter()
            .map(|masked| Masked { index: masked.index, text: masked.text })
            .collect(),
        summary,
    }
}

pub(crate) fn gate_input_out(input: &GateInput) -> gate::GateInput {
    gate::GateInput {
        point: match input.point {
            GatePoint::Inbound => gate::Point::Inbound,
            GatePoint::Delegate => gate::Point::Delegate,
            GatePoint::Deliver => gate::Point::Deliver,
            GatePoint::Subtask => gate::Point::Subtask,
            GatePoint::Outbound => gate::Point::Outbound,
            GatePoint::ToolCall => gate::Point::ToolCall,
            GatePoint::ToolResult => gate::Point::ToolResult,
        },
        room: input.room.to_string(),
        channel: input.channel.as_ref().map(ToString::to_string),
        from_task: input.from_task.as_ref().map(ToString::to_string),
        to_task: input.to_task.clone(),
        text: input.text.clone(),
        metadata: input.metadata.to_string(),
    }
}

pub(crate) fn gate_verdict_in(verdict: gate::Verdict) -> GateVerdict {
    match verdict {
        gate::Verdict::Allow => GateVerdict::Allow,
        gate::Verdict::Modify(text) => GateVerdict::Modify { text },
        gate::Verdict::Block(reason) => GateVerdict::Block { reason },
    }
}

pub(crate) fn judged_out(answer: &JudgedAnswer) -> judge::Answer {
    judge::Answer {
        message: message_out(&answer.message),
        responder: answer.responder.clone(),
        valid: answer.valid,
        done: answer.is_done,
    }
}

pub(crate) fn ruling_in(ruling: judge::Ruling, feedback: Option<String>) -> Ruling {
    let judge::Ruling { valid, done: is_done } = ruling;
    Ruling { valid, is_done, feedback }
}

pub(crate) fn ending_out(ending: &TaskEnding) -> judge::Ending {
    judge::Ending {
        status: ending.status.as_str().to_owned(),
        reason: ending.reason.clone(),
        result: judge::TaskResult {
            text: ending.result.text.clone(),
            value: ending.result.value.as_ref().map(ToString::to_string),
        },
    }
}

/// Converts a judge's result, whose value must be JSON.
pub(crate) fn task_result_in(result: judge::TaskResult) -> Result<TaskResult, Fault> {
    let judge::TaskResult { text, value } = result;
    let value = value
        .map(|value| json_in(&value, || "the `value` of its result".to_owned()))
        .transpose()?;
    Ok(TaskResult { text, value })
}

pub(crate) fn observed_out(event: &ObservedEvent) -> observer::ObservedEvent {
    observer::ObservedEvent {
        room: event.room.to_string(),
        seq: event.position.seq,
        index: event.position.index,
        time: event.time.0,
        kind: event.kind.clone(),
        task: event.task.as_ref().map(ToString::to_string),
        details: event.details.to_string(),
    }
}

/// Converts an observer's answer. Only an error of its own is a fault.
pub(crate) fn observer_reply_in(
    answer: Result<(), observer::ObserverError>,
) -> Result<ObserverReply, Fault> {
    match answer {
        Ok(()) => Ok(ObserverReply::Taken),
        Err(observer::ObserverError::Unavailable(retry_after_ms)) => {
            Ok(ObserverReply::Unavailable { retry_after_ms })
        }
        // The refusal itself was reported by the import.
        Err(observer::ObserverError::Denied(_)) => Ok(ObserverReply::Denied),
        Err(observer::ObserverError::Other(text)) => {
            Err(Fault::new(FaultKind::Error, text_in(&text)))
        }
    }
}

/// The maximum number of memories in the reply to a query.
pub(crate) fn memories_limit(query: &PluginQuery) -> usize {
    match query {
        PluginQuery::Memories { limit, .. } => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => 0,
    }
}

/// The reply with escaped reasons, with no more memories than `limit`, and without a result value
/// that is null.
///
/// # Errors
/// `BadAnswer` if a part exceeds its limit.
pub(crate) fn checked(mut reply: PluginReply, limit: usize) -> Result<PluginReply, Fault> {
    match &mut reply {
        // The plugin knows the number; more would flood the agent that asked.
        PluginReply::Memories { memories } => memories.truncate(limit),
        PluginReply::Risk { verdict } => {
            fits("the `reason` of its verdict", verdict.reason.len(), "bytes", REASON)?;
            verdict.reason = text_in(&verdict.reason);
        }
        PluginReply::Condense { condensation: Some(condensation) } => {
            let Condensation { forget, mask, summary } = condensation;
            fits("`forget`", forget.len(), "spans", SPANS)?;
            fits("`mask`", mask.len(), "entries", SPANS)?;
            let length = summary.as_ref().map_or(0, String::len);
            fits("its `summary`", length, "bytes", SUMMARY)?;
        }
        PluginReply::Gate { verdict: GateVerdict::Modify { text } } => {
            fits("its text", text.len(), "bytes", GATE_INPUT_MAX)?;
        }
        PluginReply::Gate { verdict: GateVerdict::Block { reason } } => {
            fits("the reason of its `block`", reason.len(), "bytes", REASON)?;
            *reason = text_in(reason);
        }
        PluginReply::Rule { ruling } => {
            ruling.feedback = ruling.feedback.as_deref().map(text_in);
        }
        PluginReply::Conclude { result: Some(TaskResult { text, value }) } => {
            // Null counts as none, because the journal writes both alike.
            value.take_if(|value| value.is_null());
            let length = value.as_ref().map_or(0, |value| value.to_string().len());
            fits("the `text` of its result", text.len(), "bytes", RESULT_MAX)?;
            fits("the `value` of its result", length, "bytes", RESULT_MAX)?;
        }
        PluginReply::AnswerAsUser { text: Some(text) } => {
            fits("its answer", text.len(), "bytes", RESULT_MAX)?;
        }
        PluginReply::Condense { condensation: None }
        | PluginReply::Gate { verdict: GateVerdict::Allow }
        | PluginReply::Conclude { result: None }
        | PluginReply::AnswerAsUser { text: None }
        | PluginReply::Observe { .. }
        | PluginReply::Deliver { .. }
        | PluginReply::Receive { .. } => {}
    }
    Ok(reply)
}

pub(super) fn fits(part: &str, length: usize, unit: &str, limit: usize) -> Result<(), Fault> {
    if length <= limit {
        return Ok(());
    }
    let message = format!("{part} has {length} {unit}; it may have {limit}");
    Err(Fault::new(FaultKind::BadAnswer, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(reason: String) -> PluginReply {
        PluginReply::Risk { verdict: Verdict { risk: Risk::Low, reason } }
    }

    fn condensation(change: impl FnOnce(&mut Condensation)) -> PluginReply {
        let mut condensation = Condensation::default();
        change(&mut condensation);
        PluginReply::Condense { condensation: Some(condensation) }
    }

    #[test]
    fn what_is_longer_than_anybody_reads_is_a_bad_answer() {
        let span = EntrySpan { start: 0, end: 1 };
        let masked = Masked { index: 0, text: String::new() };
        let gate = |verdict| PluginReply::Gate { verdict };
        let result = |text: String, value| PluginReply::Conclude {
            result: Some(TaskResult { text, value }),
        };
        let long = || "x".repeat(RESULT_MAX + 1);
        let cases: [(PluginReply, &str); 9] = [
            (
                verdict("x".repeat(REASON + 1)),
                "the `reason` of its verdict has 4097 bytes; it may have 4096",
            ),
            (
                condensation(|c| c.forget = vec![span; SPANS + 1]),
                "`forget` has 10001 spans; it may have 10000",
            ),
            (
                condensation(|c| c.mask = vec![masked.clone(); SPANS + 1]),
                "`mask` has 10001 entries; it may have 10000",
            ),
            (
                condensation(|c| c.summary = Some("x".repeat(SUMMARY + 1))),
                "its `summary` has 65537 bytes; it may have 65536",
            ),
            (
                gate(GateVerdict::Modify { text: "x".repeat(GATE_INPUT_MAX + 1) }),
                "its text has 1048577 bytes; it may have 1048576",
            ),
            (
                gate(GateVerdict::Block { reason: "x".repeat(REASON + 1) }),
                "the reason of its `block` has 4097 bytes; it may have 4096",
            ),
            (
                result(long(), None),
                "the `text` of its result has 1048577 bytes; it may have 1048576",
            ),
            (
                result(String::new(), Some(json!("x".repeat(RESULT_MAX - 1)))),
                "the `value` of its result has 1048577 bytes; it may have 1048576",
            ),
            (
                PluginReply::AnswerAsUser { text: Some(long()) },
                "its answer has 1048577 bytes; it may have 1048576",
            ),
        ];
        for (advice, message) in cases {
            let fault = checked(advice, 0).unwrap_err();
            assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::BadAnswer, message));
        }
        for advice in [
            verdict("x".repeat(3_900)),
            condensation(|c| c.forget = vec![span; SPANS]),
            condensation(|c| c.mask = vec![masked; SPANS]),
            condensation(|c| c.summary = Some("x".repeat(SUMMARY))),
            PluginReply::Condense { condensation: None },
            gate(GateVerdict::Allow),
            gate(GateVerdict::Modify { text: "x".repeat(GATE_INPUT_MAX) }),
            gate(GateVerdict::Block { reason: "no".to_owned() }),
            result("x".repeat(RESULT_MAX), Some(json!("x".repeat(RESULT_MAX - 2)))),
            PluginReply::Conclude { result: None },
            PluginReply::Rule { ruling: Ruling { valid: Some(false), ..Ruling::default() } },
            PluginReply::AnswerAsUser { text: Some("x".repeat(RESULT_MAX)) },
            PluginReply::AnswerAsUser { text: None },
        ] {
            assert_eq!(checked(advice.clone(), 0).unwrap(), advice);
        }
    }

    #[test]
    fn a_value_of_a_result_is_json_and_null_is_none() {
        let result = |value: &str| {
            task_result_in(judge::TaskResult {
                text: "42".to_owned(),
                value: Some(value.to_owned()),
            })
        };
        assert_eq!(result("[42]").unwrap().value, Some(json!([42])));
        let fault = result("{oops").unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadAnswer);
        assert!(fault.message.starts_with("the `value` of its result is not JSON: "), "{fault:?}");
        let null = PluginReply::Conclude { result: Some(result("null").unwrap()) };
        let none = TaskResult { text: "42".to_owned(), value: None };
        assert_eq!(checked(null, 0), Ok(PluginReply::Conclude { result: Some(none) }));
    }

    #[test]
    fn no_more_memories_come_than_were_asked_for() {
        let memories = || PluginReply::Memories {
            memories: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
        };
        assert_eq!(
            checked(memories(), 2).unwrap(),
            PluginReply::Memories { memories: vec!["a".to_owned(), "b".to_owned()] }
        );
        assert_eq!(checked(memories(), 0).unwrap(), PluginReply::Memories { memories: Vec::new() });
        assert_eq!(checked(memories(), usize::MAX).unwrap(), memories());
    }

    #[test]
    fn a_reason_reaches_whoever_decides_without_escapes() {
        assert_eq!(
            checked(verdict("rm\u{1b}[2J\nall".to_owned()), 0).unwrap(),
            verdict("rm\\u{1b}[2J\nall".to_owned())
        );
    }

    #[test]
    fn words_of_the_contract_come_in_as_the_cores() {
        for (guest, risk) in [
            (analyzer::Risk::Low, Risk::Low),
            (analyzer::Risk::Medium, Risk::Medium),
            (analyzer::Risk::High, Risk::High),
        ] {
            assert_eq!(
                verdict_in(analyzer::Verdict { risk: guest, reason: String::new() }).risk,
                risk
            );
        }
        let guest = condenser::Condensation {
            forget: vec![condenser::Span { start: 1, end: 3 }],
            mask: vec![condenser::Masked { index: 4, text: "…".to_owned() }],
            summary: Some("s".to_owned()),
        };
        let ours = Condensation {
            forget: vec![EntrySpan { start: 1, end: 3 }],
            mask: vec![Masked { index: 4, text: "…".to_owned() }],
            summary: Some("s".to_owned()),
        };
        assert_eq!(condensation_in(guest), ours);
    }
}
