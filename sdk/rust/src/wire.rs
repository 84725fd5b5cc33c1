//! Turns and observations in the fixed JSON of both eras (O-001 and after), for agents whose model
//! writes actions as JSON, and for logs. [`conclave_trajectory`] defines the form, for the host
//! too; this module connects it to the contract's types.

mod actions;
mod observations;

use serde_json::Value;

use crate::trajectory::{Body, Era, Malformed, TrajectoryEvent};
use crate::{Error, Message, Observation, PastAction, Result, Turn};

/// The error for a malformed action. A step that passes it on ends as the contract's `malformed`,
/// which returns it to the model.
pub(crate) fn refused(malformed: &Malformed) -> Error {
    Error::InvalidArguments(malformed.text.clone())
}

impl Turn {
    /// The turn in the form of that era. A reply with several tool calls is several actions, and so
    /// an array.
    ///
    /// ```
    /// use conclave_sdk::act;
    /// use conclave_sdk::trajectory::Era;
    ///
    /// let form = act::run("ls").because("to look around").to_json(Era::V2024);
    /// assert_eq!(form["action"], "run");
    /// assert_eq!(form["args"]["thought"], "to look around");
    /// ```
    pub fn to_json(&self, era: Era) -> Value {
        let mut forms: Vec<_> = actions::forms(self, era);
        if forms.len() == 1 { forms.remove(0) } else { Value::Array(forms) }
    }

    /// Parses an action that a model wrote: JSON of either era, alone, in a code block or
    /// surrounded by words. An array of calls becomes a reply with all of them. The error names the
    /// problem and the remedy, for the model.
    ///
    /// ```
    /// use conclave_sdk::{Error, Turn, act};
    ///
    /// let turn = Turn::from_json(r#"I look first: {"action": "run", "args": {"command": "ls"}}"#)?;
    /// assert_eq!(turn, act::run("ls"));
    ///
    /// let Err(Error::InvalidArguments(text)) = Turn::from_json(r#"{"action": "run", "args": {"cmd": "ls"}}"#) else { panic!() };
    /// assert!(text.contains("unknown: cmd; missing: command"), "{text}");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_value(&value_in(text)?)
    }

    /// Does the same for JSON that is parsed already.
    pub fn from_value(value: &Value) -> Result<Self> {
        match value {
            Value::Array(forms) => actions::reply_of(forms),
            form => match TrajectoryEvent::from_json(form)
                .map_err(|malformed| refused(&malformed))?
                .body
            {
                Body::Action(action) => actions::turn(action),
                Body::Observation(_) => Err(Error::invalid_arguments(
                    "an observation was written where an action is wanted",
                )),
            },
        }
    }
}

impl Observation {
    /// The observation in the form of that era.
    pub fn to_json(&self, era: Era) -> Value {
        observations::form(self, era)
    }

    /// Parses an observation of either era. The error names the problem.
    pub fn from_json(value: &Value) -> Result<Self> {
        match TrajectoryEvent::from_json(value).map_err(|malformed| refused(&malformed))?.body {
            Body::Observation(observation) => Ok(observations::observation(observation)),
            Body::Action(_) => Err(Error::invalid_arguments(
                "an action was written where an observation is wanted",
            )),
        }
    }
}

/// Returns the first JSON object or array in a text, since models put words and code blocks around
/// it. The text after it is ignored.
pub fn value_in(text: &str) -> Result<Value> {
    let mut first_error = None;
    for (start, _) in text.match_indices(['{', '[']).take(32) {
        match serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next() {
            Some(Ok(value)) if is_form(&value) => return Ok(value),
            Some(Err(error)) if first_error.is_none() => first_error = Some(error),
            _ => {}
        }
    }
    Err(match first_error {
        Some(error) => Error::InvalidArguments(format!(
            "what was written is no JSON: {error}. Write one JSON object and nothing else."
        )),
        None => Error::invalid_arguments(
            "there is no JSON object in what was written. Write one JSON object and nothing else.",
        ),
    })
}

/// Texts often contain `[1]` or `[sic]`, so a list counts only if it holds objects.
fn is_form(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        value => value.is_object(),
    }
}

/// The log events of one entry of the past: the action, then its observation.
pub(crate) fn events_of(past_action: PastAction) -> Vec<TrajectoryEvent> {
    let seq = i64::try_from(past_action.seq).ok();
    let actions =
        past_action.action.into_iter().flat_map(|action| actions::events(&Turn::from(action)));
    let observation = past_action.observation.as_ref().and_then(observations::event);
    let mut events: Vec<_> = actions.collect();
    if let Some(observation) = observation {
        events.push(observation);
    }
    events.iter_mut().for_each(|event| event.id = seq);
    events
}

/// The log events of one message of a history.
pub(crate) fn events_of_message(message: Message) -> Vec<TrajectoryEvent> {
    let seq = i64::try_from(message.seq).ok();
    let mut events = observations::events_of_message(message);
    events.iter_mut().for_each(|event| event.id = seq);
    events
}

#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
