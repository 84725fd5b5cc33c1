//! Events of the SDK that followed 2025-11. They are tagged by `kind`, have text ids and a parent,
//! and must have no unknown fields (O-046…O-049). The payloads of tools stay unchanged.

use std::fmt;

use serde_json::{Map, Value};

use crate::tree::{EventTree, ROOT, TreeError};

/// A kind with its required and optional fields, and its default source.
struct KindFields {
    kind: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    source: Option<SdkSource>,
}

const ENVELOPE: [&str; 5] = ["kind", "id", "timestamp", "source", "parent_id"];

const fn shape(
    kind: &'static str,
    source: Option<SdkSource>,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> KindFields {
    KindFields { kind, required, optional, source }
}

const AGENT: Option<SdkSource> = Some(SdkSource::Agent);
const USER: Option<SdkSource> = Some(SdkSource::User);
const ENVIRONMENT: Option<SdkSource> = Some(SdkSource::Environment);
const HOOK: Option<SdkSource> = Some(SdkSource::Hook);

const SHAPES: &[KindFields] = &[
    shape("SystemPromptEvent", AGENT, &["system_prompt", "tools"], &["dynamic_context"]),
    shape(
        "MessageEvent",
        None,
        &["llm_message"],
        &["llm_response_id", "activated_skills", "extended_content", "sender", "critic_result"],
    ),
    shape(
        "ActionEvent",
        AGENT,
        &["thought", "tool_name", "tool_call_id", "tool_call", "llm_response_id"],
        &[
            "reasoning_content",
            "thinking_blocks",
            "responses_reasoning_item",
            "action",
            "security_risk",
            "critic_result",
            "summary",
        ],
    ),
    shape(
        "ObservationEvent",
        ENVIRONMENT,
        &["observation", "action_id", "tool_name", "tool_call_id"],
        &["extended_content"],
    ),
    shape(
        "UserRejectObservation",
        ENVIRONMENT,
        &["action_id", "tool_name", "tool_call_id"],
        &["rejection_reason", "rejection_source"],
    ),
    shape("AgentErrorEvent", AGENT, &["error", "tool_name", "tool_call_id"], &["classification"]),
    shape(
        "Condensation",
        ENVIRONMENT,
        &["llm_response_id"],
        &["forgotten_event_ids", "summary", "summary_offset"],
    ),
    shape("CondensationRequest", ENVIRONMENT, &[], &[]),
    shape("CondensationSummaryEvent", ENVIRONMENT, &["summary"], &[]),
    shape("PauseEvent", USER, &[], &[]),
    shape("InterruptEvent", USER, &[], &[]),
    shape("ConversationErrorEvent", None, &["code", "detail"], &["classification"]),
    shape("ConversationStateUpdateEvent", ENVIRONMENT, &[], &["key", "value"]),
    shape(
        "LLMCompletionLogEvent",
        ENVIRONMENT,
        &["filename", "log_data"],
        &["model_name", "usage_id"],
    ),
    shape("StreamingDeltaEvent", AGENT, &[], &["content", "reasoning_content"]),
    shape("TokenEvent", None, &["prompt_token_ids", "response_token_ids"], &[]),
    shape(
        "HookExecutionEvent",
        HOOK,
        &["hook_event_type", "hook_command", "success", "exit_code"],
        &[
            "tool_name",
            "blocked",
            "stdout",
            "stderr",
            "reason",
            "additional_context",
            "error",
            "action_id",
            "message_id",
            "hook_input",
        ],
    ),
    shape(
        "ACPToolCallEvent",
        AGENT,
        &["tool_call_id", "title"],
        &["status", "tool_kind", "raw_input", "raw_output", "content", "is_error"],
    ),
];

/// The source of an SDK event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SdkSource {
    /// The agent.
    Agent,
    /// The user.
    User,
    /// The host.
    Environment,
    /// A hook.
    Hook,
}

impl SdkSource {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            SdkSource::Agent => "agent",
            SdkSource::User => "user",
            SdkSource::Environment => "environment",
            SdkSource::Hook => "hook",
        }
    }

    /// Parses the name on the wire.
    pub fn parse(name: &str) -> Option<SdkSource> {
        [SdkSource::Agent, SdkSource::User, SdkSource::Environment, SdkSource::Hook]
            .into_iter()
            .find(|source| source.name() == name)
    }
}

/// Why an SDK event was refused: the problem, its place, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdkError(pub String);

impl fmt::Display for SdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SdkError {}

/// An event of an SDK conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct SdkEvent {
    /// The name of the type.
    pub kind: &'static str,
    /// The id; `None` in a log that leaves it to the reader.
    pub id: Option<String>,
    /// The time.
    pub timestamp: Option<String>,
    /// The source.
    pub source: SdkSource,
    /// The parent in the tree; `None` for the first event, and in logs older than the tree.
    pub parent_id: Option<String>,
    /// The other fields, without top-level nulls.
    pub payload: Map<String, Value>,
}

impl SdkEvent {
    /// The known kinds.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        SHAPES.iter().map(|shape| shape.kind)
    }

    /// Whether an encoded event looks like one of the SDK rather than of an earlier era.
    pub fn looks_like(value: &Value) -> bool {
        let earlier = |key: &str| value.get(key).is_some_and(Value::is_string);
        value.get("kind").is_some_and(Value::is_string)
            && !earlier("action")
            && !earlier("observation")
    }

    /// Reads an event. Unknown kinds, and unknown and missing fields are errors; all are reported
    /// at once.
    pub fn from_json(value: &Value) -> Result<SdkEvent, SdkError> {
        let refuse = |text: String| Err(SdkError(text));
        let Value::Object(map) = value else {
            return refuse("An event must be an object with `kind`.".to_owned());
        };
        let Some(kind) = map.get("kind").and_then(Value::as_str) else {
            return refuse("An event must have a `kind`, the name of its type.".to_owned());
        };
        let Some(shape) = SHAPES.iter().find(|shape| shape.kind == kind) else {
            let known: Vec<&str> = SdkEvent::kinds().collect();
            return refuse(format!(
                "Kind `{kind}` does not exist. Known are: {}.",
                known.join(", ")
            ));
        };
        let known = |key: &str| {
            ENVELOPE.contains(&key)
                || shape.required.contains(&key)
                || shape.optional.contains(&key)
        };
        let unknown: Vec<&str> = map.keys().map(String::as_str).filter(|key| !known(key)).collect();
        let missing: Vec<&str> = shape
            .required
            .iter()
            .copied()
            .filter(|key| map.get(*key).is_none_or(Value::is_null))
            .collect();
        if !unknown.is_empty() || !missing.is_empty() {
            return refuse(format!(
                "`{kind}` has wrong fields (unknown: {}; missing: {}). Known besides {} are: {}.",
                crate::field::list(&unknown),
                crate::field::list(&missing),
                ENVELOPE.join(", "),
                crate::field::list(&[shape.required, shape.optional].concat()),
            ));
        }
        let text = |key: &str| match map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(SdkError(format!(
                "`{key}` of `{kind}` must be a string, and is {}.",
                crate::field::short(other)
            ))),
        };
        let id = text("id")?;
        if id.as_deref() == Some(ROOT) {
            return refuse(format!("`id` of `{kind}` must not be `{ROOT}`, which names the root."));
        }
        let source = match text("source")? {
            Some(name) => SdkSource::parse(&name)
                .ok_or_else(|| SdkError(format!("`source` of `{kind}` must be agent, user, environment or hook, and is `{name}`.")))?,
            None => shape.source.ok_or_else(|| SdkError(format!("`{kind}` needs a `source`: agent, user, environment or hook.")))?,
        };
        if map.get("summary_offset").and_then(Value::as_i64).is_some_and(|offset| offset < 0) {
            return refuse(format!("`summary_offset` of `{kind}` must not be negative."));
        }
        let payload = map
            .iter()
            .filter(|(key, value)| !ENVELOPE.contains(&key.as_str()) && !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Ok(SdkEvent {
            kind: shape.kind,
            id,
            timestamp: text("timestamp")?,
            source,
            parent_id: text("parent_id")?,
            payload,
        })
    }

    /// The stored form of the event, without nulls at any depth.
    pub fn to_json(&self) -> Value {
        let mut map = self.payload.clone();
        map.insert("kind".to_owned(), self.kind.into());
        map.insert("source".to_owned(), self.source.name().into());
        for (key, text) in
            [("id", &self.id), ("timestamp", &self.timestamp), ("parent_id", &self.parent_id)]
        {
            map.insert(key.to_owned(), text.clone().into());
        }
        let mut value = Value::Object(map);
        remove_nulls(&mut value);
        value
    }

    /// A text field of the payload.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.payload.get(key).and_then(Value::as_str)
    }

    /// The file name of the event at this position of the log.
    pub fn file_name(&self, index: usize) -> Option<String> {
        self.id.as_deref().map(|id| file_name(index, id))
    }
}

/// The file name of an event: its position with at least five digits, and its id.
pub fn file_name(index: usize, id: &str) -> String {
    format!("event-{index:05}-{id}.json")
}

/// Parses position and id from the file name of an event; `None` for any other name.
pub fn parse_file_name(name: &str) -> Option<(usize, &str)> {
    let (index, id) = name.strip_prefix("event-")?.strip_suffix(".json")?.split_once('-')?;
    let digits = index.len() >= 5 && index.bytes().all(|byte| byte.is_ascii_digit());
    let hex = id.len() >= 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if digits && hex { Some((index.parse().ok()?, id)) } else { None }
}

/// The tree of a log, and the positions of events with an invalid id or parent. Those events are in
/// the tree nonetheless. Events without an id are identified by their position.
pub fn tree_of(events: &[SdkEvent]) -> (EventTree, Vec<(usize, TreeError)>) {
    let (mut tree, mut wrong) = (EventTree::default(), Vec::new());
    for (at, event) in events.iter().enumerate() {
        let id = event.id.clone().unwrap_or_else(|| format!("#{at}"));
        let parent = event.parent_id.as_deref();
        if let Err(error) = tree.append(&id, parent) {
            tree.insert(&id, parent);
            wrong.push((at, error));
        }
    }
    (tree, wrong)
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
