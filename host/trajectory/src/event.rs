//! One event of a log: the fields that every event has, and its encoding in either era's form or in
//! the union of both.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::action::Action;
use crate::era::Era;
use crate::field::{list, short, whole_number};
use crate::json::Json;
use crate::malformed::{Malformed, MalformedKind};
use crate::observation::Observation;
use crate::text::{remove_bulk, truncate};
use crate::{metrics, spelling, timestamp};

/// The source of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The agent.
    Agent,
    /// The user.
    User,
    /// The host (2025-11).
    Environment,
    /// Any other name in a log.
    Other(String),
}

impl Source {
    /// The name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Source::Agent => "agent",
            Source::User => "user",
            Source::Environment => "environment",
            Source::Other(name) => name,
        }
    }
}

impl From<&str> for Source {
    fn from(name: &str) -> Source {
        match name {
            "agent" => Source::Agent,
            "user" => Source::User,
            "environment" => Source::Environment,
            other => Source::Other(other.to_owned()),
        }
    }
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// An action.
    Action(Action),
    /// An observation.
    Observation(Observation),
}

/// One event of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct TrajectoryEvent {
    /// The position in the stream, from 0; `None` outside a stream.
    pub id: Option<i64>,
    /// The time, ISO 8601 without a zone.
    pub timestamp: Option<String>,
    /// The source.
    pub source: Option<Source>,
    /// The id of the action that an observation answers.
    pub cause: Option<i64>,
    /// The time limit of an action in seconds (2025-11).
    pub timeout: Option<f64>,
    /// The model call that this belongs to (2025-11).
    pub tool_call_metadata: Option<Value>,
    /// The cost of the model so far (2025-11).
    pub llm_metrics: Option<Value>,
    /// The action or observation.
    pub body: Body,
}

impl From<Action> for TrajectoryEvent {
    fn from(action: Action) -> TrajectoryEvent {
        TrajectoryEvent::new(Body::Action(action))
    }
}

impl From<Observation> for TrajectoryEvent {
    fn from(observation: Observation) -> TrajectoryEvent {
        TrajectoryEvent::new(Body::Observation(observation))
    }
}

impl TrajectoryEvent {
    /// An event without a stream and a source.
    pub fn new(body: Body) -> TrajectoryEvent {
        TrajectoryEvent {
            id: None,
            timestamp: None,
            source: None,
            cause: None,
            timeout: None,
            tool_call_metadata: None,
            llm_metrics: None,
            body,
        }
    }

    /// Returns the same event with this source.
    #[must_use]
    pub fn from_source(mut self, source: Source) -> TrajectoryEvent {
        self.source = Some(source);
        self
    }

    /// Returns the same event as the answer to that action.
    #[must_use]
    pub fn caused_by(mut self, cause: i64) -> TrajectoryEvent {
        self.cause = Some(cause);
        self
    }

    /// The action, if it is one.
    pub fn action(&self) -> Option<&Action> {
        match &self.body {
            Body::Action(action) => Some(action),
            Body::Observation(_) => None,
        }
    }

    /// The observation, if it is one.
    pub fn observation(&self) -> Option<&Observation> {
        match &self.body {
            Body::Action(_) => None,
            Body::Observation(observation) => Some(observation),
        }
    }

    /// The discriminator of the action or observation.
    pub fn kind(&self) -> &'static str {
        match &self.body {
            Body::Action(action) => action.kind(),
            Body::Observation(observation) => observation.kind(),
        }
    }

    /// Whether the event stays out of history.
    pub fn hidden(&self) -> bool {
        match &self.body {
            Body::Action(action) => action.hidden(),
            Body::Observation(observation) => observation.hidden(),
        }
    }

    /// The human-readable line that the encoded form carries (O-004).
    pub fn message(&self, era: Era) -> String {
        match &self.body {
            Body::Action(action) => action.message(era),
            Body::Observation(observation) => observation.message(era),
        }
    }

    /// Reads the union of both eras and our own kinds, including old spellings.
    pub fn from_json(value: &Value) -> Result<TrajectoryEvent, Malformed> {
        read(value, None)
    }

    /// Reads strictly by the rules of one era. 2025-11 refuses `kill`, `add_task`, `modify_task`
    /// and `background` (O-039).
    pub fn from_json_of(value: &Value, era: Era) -> Result<TrajectoryEvent, Malformed> {
        read(value, Some(era))
    }

    /// The event in the form of an era. A kind that this era lacks is written in the form of the
    /// other.
    pub fn to_json(&self, era: Era) -> Value {
        Json::Object(self.fields(Some(era))).into_value()
    }

    /// The same on one line, with the keys in the order of the wire (O-002).
    pub fn to_json_text(&self, era: Era) -> String {
        Json::Object(self.fields(Some(era))).to_text()
    }

    /// The same on one line with a blank after commas and colons, as stored logs of both eras have
    /// it.
    pub fn to_stored_text(&self, era: Era) -> String {
        Json::Object(self.fields(Some(era))).to_spaced_text()
    }

    /// The form for a model in 2024-07: no envelope but the source, no bulk data of the browser,
    /// and the content of an observation truncated (O-008).
    pub fn memory_form(&self, max_chars: usize) -> Value {
        let Value::Object(mut map) = self.to_json(Era::V2024) else { return Value::Null };
        for key in ["id", "cause", "timestamp", "message"] {
            map.remove(key);
        }
        if let Some(Value::Object(extras)) = map.get_mut("extras") {
            remove_bulk(extras);
        }
        if let Some(content) = self.observation().map(Observation::content) {
            map.insert("content".to_owned(), Value::String(truncate(content, max_chars)));
        }
        Value::Object(map)
    }

    /// The timestamp in the form of an era. 2024-07 has one form, with microseconds at most. An
    /// invalid time stays as it is, since no era could read it.
    fn timestamp_in(&self, form: Option<Era>) -> Option<Cow<'_, str>> {
        let text = self.timestamp.as_deref()?;
        let normal = (form == Some(Era::V2024)).then(|| timestamp::normalised(text)).flatten();
        Some(normal.map_or(Cow::Borrowed(text), Cow::Owned))
    }

    /// All fields in the order of O-002. Without an era, it has the fields of both eras and no
    /// derived line.
    fn fields(&self, form: Option<Era>) -> Vec<(&'static str, Json)> {
        let new = form != Some(Era::V2024);
        let mut fields = Vec::new();
        let mut put = |key, json: Option<Json>| fields.extend(json.map(|json| (key, json)));
        put("id", self.id.map(|id| Json::Leaf(id.into())));
        put("timestamp", self.timestamp_in(form).as_deref().map(Json::text));
        put("source", self.source.as_ref().map(|source| Json::text(source.name())));
        put("message", form.map(|era| Json::text(self.message(era))));
        put("cause", self.cause.map(|cause| Json::Leaf(cause.into())));
        let family = if self.action().is_some() { "action" } else { "observation" };
        put(family, Some(Json::text(self.kind())));
        put(
            "tool_call_metadata",
            self.tool_call_metadata.as_ref().filter(|_| new).map(metrics::ordered_call),
        );
        put("llm_metrics", self.llm_metrics.as_ref().filter(|_| new).map(metrics::ordered_metrics));
        match &self.body {
            Body::Action(action) => {
                put("args", Some(Json::Object(action.args(form))));
                put(
                    "timeout",
                    self.timeout.filter(|_| new).map(|seconds| Json::Leaf(seconds.into())),
                );
            }
            Body::Observation(observation) => {
                let (content, extras) = observation.content_and_extras(form);
                put("content", Some(content));
                put("extras", Some(Json::Object(extras)));
                put(
                    "success",
                    observation.success().filter(|_| new).map(|success| Json::Leaf(success.into())),
                );
            }
        }
        fields
    }
}

/// Serialised as the union of both eras, without loss; read by [`TrajectoryEvent::from_json`].
impl Serialize for TrajectoryEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Json::Object(self.fields(None)).into_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TrajectoryEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TrajectoryEvent, D::Error> {
        let value = Value::deserialize(deserializer)?;
        TrajectoryEvent::from_json(&value).map_err(serde::de::Error::custom)
    }
}

/// Serialised as `{"action": …, "args": …}` with the fields of both eras.
impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Json::Object(vec![
            ("action", Json::text(self.kind())),
            ("args", Json::Object(self.args(None))),
        ])
        .into_value()
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Action, D::Error> {
        match TrajectoryEvent::deserialize(deserializer)?.body {
            Body::Action(action) => Ok(action),
            Body::Observation(_) => {
                Err(serde::de::Error::custom("expected an action, found an observation"))
            }
        }
    }
}

/// Serialised as `{"observation": …, "content": …, "extras": …}` with the fields of both eras.
impl Serialize for Observation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (content, extras) = self.content_and_extras(None);
        let fields = vec![
            ("observation", Json::text(self.kind())),
            ("content", content),
            ("extras", Json::Object(extras)),
        ];
        Json::Object(fields).into_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Observation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Observation, D::Error> {
        match TrajectoryEvent::deserialize(deserializer)?.body {
            Body::Observation(observation) => Ok(observation),
            Body::Action(_) => {
                Err(serde::de::Error::custom("expected an observation, found an action"))
            }
        }
    }
}

fn read(value: &Value, form: Option<Era>) -> Result<TrajectoryEvent, Malformed> {
    let Value::Object(data) = value else {
        return Err(Malformed::value(format!(
            "An event must be an object with `action` or `observation`, and is {}.",
            short(value)
        )));
    };
    let (body, stamp) = if let Some(kind) = data.get("action") {
        read_action(kind, data, form)?
    } else if let Some(kind) = data.get("observation") {
        (read_observation(kind, data, form)?, None)
    } else {
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        return Err(Malformed::value(format!(
            "An event must have `action` or `observation`; this one has: {}.",
            list(&keys)
        )));
    };
    let mut event = TrajectoryEvent::new(body);
    // 2025-11 writes −1 for an event without an id.
    event.id = read_id(data, "id")?.filter(|id| *id != -1);
    event.cause = read_id(data, "cause")?;
    event.timestamp = read_timestamp(data, form)?.or(stamp);
    event.source = read_source(data, form)?;
    if form == Some(Era::V2024) {
        return Ok(event);
    }
    event.timeout = match data.get("timeout") {
        Some(Value::Number(number)) if event.action().is_some() => number.as_f64(),
        None | Some(Value::Null) => None,
        Some(_) if event.action().is_none() => None,
        Some(other) => {
            return Err(Malformed::value(format!(
                "`timeout` must be a number of seconds, and is {}.",
                short(other)
            )));
        }
    };
    event.tool_call_metadata =
        data.get("tool_call_metadata").filter(|value| !value.is_null()).cloned();
    event.llm_metrics =
        data.get("llm_metrics").filter(|value| !value.is_null()).map(metrics::normalised);
    Ok(event)
}

fn read_action(
    kind: &Value,
    data: &Map<String, Value>,
    form: Option<Era>,
) -> Result<(Body, Option<String>), Malformed> {
    let refuse = |text: String| Malformed::new(MalformedKind::MalformedAction, text);
    let Value::String(kind) = kind else {
        return Err(refuse(format!(
            "`action` must be a string, and is {}. {}",
            short(kind),
            known(Action::KINDS, Action::kind_in, form)
        )));
    };
    let mut args = match data.get("args") {
        None => Map::new(),
        Some(Value::Object(args)) => args.clone(),
        Some(other) => {
            return Err(refuse(format!(
                "`args` of action `{kind}` must be an object, and is {}.",
                short(other)
            )));
        }
    };
    let stamp = match form {
        Some(Era::V2024) => None,
        _ => spelling::update_args(&mut args),
    };
    let stamp = stamp.and_then(|stamp| stamp.as_str().map(str::to_owned));
    let action = match Action::read(kind, form, &args) {
        Some(read) => read.map_err(|text| refuse(format!("Action {text}")))?,
        None => {
            return Err(refuse(format!(
                "Action `{kind}` does not exist. {}",
                known(Action::KINDS, Action::kind_in, form)
            )));
        }
    };
    match &action {
        Action::Condensation(condensation) => {
            condensation.check().map_err(|text| Malformed::value(format!("Action {text}")))?
        }
        Action::Recall(recall)
            if form.is_none() && recall.recall_type.is_none() && !args.contains_key("query") =>
        {
            return Err(refuse(
                "Action `recall` needs `query` (2024-07) or `recall_type` (2025-11).".to_owned(),
            ));
        }
        _ => {}
    }
    Ok((Body::Action(action), stamp))
}

fn read_observation(
    kind: &Value,
    data: &Map<String, Value>,
    form: Option<Era>,
) -> Result<Body, Malformed> {
    let refuse = |text: String| Malformed::new(MalformedKind::BadObservationArgs, text);
    let unknown = |what: String| {
        let text = format!("{what} {}", known(Observation::KINDS, Observation::kind_in, form));
        Malformed::new(MalformedKind::UnknownObservation, text)
    };
    let Value::String(kind) = kind else {
        return Err(unknown(format!("`observation` must be a string, and is {}.", short(kind))));
    };
    let mut extras = match data.get("extras") {
        None => Map::new(),
        Some(Value::Object(extras)) => extras.clone(),
        Some(other) => {
            return Err(refuse(format!(
                "`extras` of observation `{kind}` must be an object, and is {}.",
                short(other)
            )));
        }
    };
    if form != Some(Era::V2024) {
        // In 2024-07 the exit code is optional and defaults to 0.
        if form.is_none()
            && kind == "run"
            && extras.contains_key("command_id")
            && !extras.contains_key("metadata")
        {
            extras.entry("exit_code").or_insert(Value::from(0));
        }
        spelling::update_extras(&mut extras);
    }
    let content = data.get("content").cloned().unwrap_or(Value::Null);
    if let Some(recall_type) = extras.get("recall_type").filter(|_| form != Some(Era::V2024))
        && !recall_type.is_null()
        && recall_type.as_str().and_then(crate::vocabulary::RecallType::parse).is_none()
    {
        let text = format!(
            "`recall_type` must be workspace_context or knowledge, and is {}.",
            short(recall_type)
        );
        return Err(Malformed::value(text));
    }
    let observation = match Observation::read(kind, form, content, &extras) {
        Some(read) => read.map_err(|text| refuse(format!("Observation {text}")))?,
        None => return Err(unknown(format!("Observation `{kind}` does not exist."))),
    };
    if form.is_none()
        && kind == "recall"
        && !extras.contains_key("memories")
        && !extras.contains_key("recall_type")
    {
        return Err(refuse(
            "Observation `recall` needs `memories` (2024-07) or `recall_type` (2025-11)."
                .to_owned(),
        ));
    }
    Ok(Body::Observation(observation))
}

fn known(kinds: &[&'static str], kind_in: fn(&str, Era) -> bool, form: Option<Era>) -> String {
    let known: Vec<&str> =
        kinds.iter().copied().filter(|kind| form.is_none_or(|era| kind_in(kind, era))).collect();
    format!("Known are: {}.", list(&known))
}

fn read_id(data: &Map<String, Value>, key: &str) -> Result<Option<i64>, Malformed> {
    match data.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) if whole_number(number).is_some() => Ok(whole_number(number)),
        Some(other) => Err(Malformed::value(format!(
            "`{key}` must be a whole number, and is {}.",
            short(other)
        ))),
    }
}

fn read_timestamp(
    data: &Map<String, Value>,
    form: Option<Era>,
) -> Result<Option<String>, Malformed> {
    let refuse = |value| {
        Malformed::value(format!(
            "`timestamp` must be an ISO-8601 date and time, and is {}.",
            short(value)
        ))
    };
    match (data.get("timestamp"), form) {
        (None | Some(Value::Null), _) => Ok(None),
        (Some(value), Some(Era::V2024)) => {
            value.as_str().and_then(timestamp::normalised).map(Some).ok_or_else(|| refuse(value))
        }
        (Some(Value::String(text)), _) => Ok(Some(text.clone())),
        (Some(other), _) => Err(refuse(other)),
    }
}

fn read_source(data: &Map<String, Value>, form: Option<Era>) -> Result<Option<Source>, Malformed> {
    let known = match form {
        Some(Era::V2024) => "agent or user",
        Some(Era::V2025) => "agent, user or environment",
        None => "a string",
    };
    let refuse =
        |value| Malformed::value(format!("`source` must be {known}, and is {}.", short(value)));
    match data.get("source") {
        None => Ok(None),
        Some(Value::Null) if form.is_none() => Ok(None),
        Some(value) => match (value.as_str().map(Source::from), form) {
            (Some(source @ (Source::Agent | Source::User)), _) => Ok(Some(source)),
            (Some(Source::Environment), None | Some(Era::V2025)) => Ok(Some(Source::Environment)),
            (Some(source), None) => Ok(Some(source)),
            _ => Err(refuse(value)),
        },
    }
}
