//! Loop detection, played by the room's own stuck detection. An agent repeats the actions of a
//! case's history, its tools give the answers of that history, and each user message begins the
//! next run of the session.

use std::collections::BTreeMap;

use conclave_core::room::StuckKind;
use conclave_runtime::action::Action;
use conclave_runtime::message::{Message, Role};
use conclave_runtime::native::{IntoTurn, say};
use conclave_runtime::notice::Notice;
use conclave_runtime::outcome::Status;
use serde_json::{Value, json};

use super::Case;
use super::stage::{Move, Part, Seen, Stage, Told, nothing, turn};

/// Every kind of loop that the host detects.
const KINDS: [StuckKind; 5] = [
    StuckKind::SameResult,
    StuckKind::SameError,
    StuckKind::Alternating,
    StuckKind::SameMessage,
    StuckKind::OnlyCondensing,
];
/// More repeats than any case has.
const MOST: u32 = 100;

/// One item of a history.
enum Entry {
    User(String),
    /// An action of the agent and its index in the history.
    Done {
        made: Box<Move>,
        is_message: bool,
        at: usize,
        answer: Option<(String, Told)>,
    },
}

/// A history as the stage plays it.
#[derive(Default)]
struct Script {
    parts: Vec<(String, Vec<Move>)>,
    /// For each move of a part: whether it posts a message, and its index in the history.
    places: Vec<Vec<(bool, usize)>>,
    tools: BTreeMap<String, Vec<Told>>,
}

impl Script {
    fn of(entries: Vec<Entry>) -> Self {
        let mut script = Self::default();
        for entry in entries {
            match entry {
                Entry::User(said) => script.begin(said),
                Entry::Done { made, is_message, at, answer } => {
                    if script.parts.is_empty() {
                        script.begin("go".to_owned());
                    }
                    if let Some((tool, told)) = answer {
                        script.tools.entry(tool).or_default().push(told);
                    }
                    script
                        .parts
                        .last_mut()
                        .into_iter()
                        .for_each(|(_, moves)| moves.push(Move::clone(&made)));
                    script
                        .places
                        .last_mut()
                        .into_iter()
                        .for_each(|places| places.push((is_message, at)));
                }
            }
        }
        script
    }

    fn begin(&mut self, said: String) {
        self.parts.push((said, Vec::new()));
        self.places.push(Vec::new());
    }

    async fn play(&self, repeats: u32) -> Result<Seen, String> {
        let task = format!("stuck_detection = {{ repeats = {repeats}, recovery = \"stop\" }}\n");
        Stage {
            parts: self.parts.clone(),
            tools: self.tools.clone().into_iter().collect(),
            task,
            ..Stage::default()
        }
        .play()
        .await
    }
}

/// Reads an action with its observation, or a message.
fn entry(action: &Value, observation: Option<&Value>, at: usize) -> Result<Entry, String> {
    let kind = action.get("action").and_then(Value::as_str).unwrap_or_default();
    let content =
        || action.pointer("/args/content").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_message = kind == "message";
    if is_message && action.get("source").is_some_and(|source| source == "user") {
        return Ok(Entry::User(content()));
    }
    let answer = match observation.filter(|_| !is_message) {
        None => None,
        Some(told) if told.get("observation").is_some_and(|name| name == "null") => None,
        Some(told) => Some((kind.to_owned(), Told::Value(completed(action, told)))),
    };
    Ok(Entry::Done { made: Box::new(Move::Turn(turn(action)?)), is_message, at, answer })
}

/// Adds the required fields of an observation's kind, which a case may omit.
fn completed(action: &Value, told: &Value) -> Value {
    let mut told = told.clone();
    for (key, value) in [("content", json!("")), ("extras", json!({}))] {
        if told.get(key).is_none() {
            told[key] = value;
        }
    }
    for key in ["command", "path", "code", "url"] {
        if let Some(value) = action.pointer(&format!("/args/{key}"))
            && told["observation"] == action["action"]
            && told["extras"].get(key).is_none()
        {
            told["extras"][key] = value.clone();
        }
    }
    told
}

fn is_stuck(part: &Part) -> bool {
    part.outcome.as_ref().is_some_and(|outcome| outcome.status == Status::InfLoop)
}

/// Returns the kind of the loop that ended a part, and the number of repeats.
fn found(part: &Part) -> Option<(StuckKind, u32)> {
    let reasons = part.notices.iter().rev().filter_map(|notice| match notice {
        Notice::AgentStuck { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    let reason = reasons.into_iter().next().filter(|_| is_stuck(part))?;
    let all = KINDS.into_iter().flat_map(|kind| (1..=MOST).map(move |repeats| (kind, repeats)));
    all.into_iter().find(|(kind, repeats)| reason.contains(&kind.describe(*repeats)))
}

/// Plays pairs of 2024. The reference looked for four equal pairs in June and for three in July.
pub(super) async fn pairs(case: &Case<'_>) -> Result<Value, String> {
    let pairs = case.list("history")?.iter().enumerate();
    let pairs = pairs
        .map(|(at, pair)| entry(pair.get(0).unwrap_or(&Value::Null), pair.get(1), at))
        .collect::<Result<_, String>>()?;
    let script = Script::of(pairs);
    let mut got = json!({});
    for (era, repeats) in [("2024-06", 4), ("2024-07", 3)] {
        let seen = script.play(repeats).await?;
        got[era] = json!(seen.parts.last().is_some_and(is_stuck));
    }
    Ok(json!({ "stuck": got }))
}

pub(super) async fn events(case: &Case<'_>) -> Result<Value, String> {
    let history = case.list("history")?;
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some(event) = history.get(at) {
        let answer = history.get(at + 1).filter(|next| next.get("observation").is_some());
        if event.get("action").is_some() {
            let is_message = event["action"] == "message";
            entries.push(entry(event, answer, at)?);
            at += if answer.is_some() && !is_message { 2 } else { 1 };
        } else {
            // The case omits the action that this observation answers.
            let action = json!({ "action": "run", "args": { "command": event.pointer("/extras/command").cloned().unwrap_or_else(|| json!("")) } });
            entries.push(entry(&action, Some(event), at)?);
            at += 1;
        }
    }
    let script = Script::of(entries);
    let seen = script.play(4).await?;
    let Some((part, places)) =
        seen.parts.last().zip(script.places.get(seen.parts.len().saturating_sub(1)))
    else {
        return Ok(json!({ "stuck": false, "loop": null }));
    };
    let shown = found(part).map(|(kind, repeats)| {
        let is_message = kind == StuckKind::SameMessage;
        let done: Vec<usize> = places
            .iter()
            .take(part.played)
            .filter(|(said, _)| *said == is_message)
            .map(|(_, at)| *at)
            .collect();
        let start = done
            .len()
            .checked_sub(usize::try_from(repeats).unwrap_or(usize::MAX))
            .and_then(|first| done.get(first));
        // The reference counts repeats of a pair of actions; the host counts the actions.
        let repeats = if kind == StuckKind::Alternating { repeats / 2 } else { repeats };
        json!({ "type": named(kind), "repeats": repeats, "start": start })
    });
    Ok(json!({ "stuck": is_stuck(part), "loop": shown }))
}

fn named(kind: StuckKind) -> &'static str {
    match kind {
        StuckKind::SameResult => "repeating_action_observation",
        StuckKind::SameError => "repeating_action_error",
        StuckKind::Alternating => "repeating_action_observation_pattern",
        StuckKind::SameMessage => "monologue",
        StuckKind::OnlyCondensing => "context_window_error",
        // The reference has no handoffs.
        StuckKind::HandingOn => "handing_on",
    }
}

/// Plays scripts of the SDK, which are words.
pub(super) async fn sdk(case: &Case<'_>) -> Result<Value, String> {
    let given = case
        .any(&["script", "events"])
        .and_then(Value::as_array)
        .ok_or("`in` has neither script nor events")?;
    let mut entries = Vec::new();
    for (at, entry) in given.iter().enumerate() {
        let word = entry
            .as_str()
            .or_else(|| entry.get("ev")?.as_str())
            .ok_or_else(|| format!("{entry} is no word of a script"))?;
        let run = |command: &str, told: Told| {
            let made = Box::new(Move::Turn(
                Action::Run { command: command.to_owned(), background: false }.into_turn(),
            ));
            Entry::Done { made, is_message: false, at, answer: Some(("run".to_owned(), told)) }
        };
        let said = |made: conclave_runtime::action::Turn| Entry::Done {
            made: Box::new(Move::Turn(made)),
            is_message: true,
            at,
            answer: None,
        };
        entries.push(match word {
            "bad" => run("bad", Told::Fails("it failed".to_owned())),
            "same_ok" => run("ls", Told::Value(json!("x"))),
            // The case allows any message here.
            "agent_msg" => said(Action::Talk { content: format!("message {at}") }.into_turn()),
            "say" => said(say("done")),
            "empty" => said(nothing()),
            "user" | "user_msg" => Entry::User("go on".to_owned()),
            other => return Err(format!("a script has no {other:?}")),
        });
    }
    let script = Script::of(entries);
    let seen = script.play(4).await?;
    let part = seen.part()?;
    let status = match &part.outcome {
        _ if is_stuck(part) => "stuck".to_owned(),
        _ if part.was_asked_for_more => "running".to_owned(),
        Some(outcome) if outcome.status == Status::Done => "finished".to_owned(),
        Some(outcome) => outcome.status.as_str().to_ascii_lowercase(),
        None => "waiting_for_user".to_owned(),
    };
    // A script reports the further course, a list of events only the detected loop.
    Ok(match case.get("script") {
        Some(_) => {
            json!({ "status": status, "nudges": nudges(&seen), "corrective_nudges": corrective_nudges(&seen, &script) })
        }
        None => json!({ "stuck": is_stuck(part) }),
    })
}

fn is_nudge(message: &Message) -> bool {
    message.text().starts_with("The same action with the same arguments has failed")
}

/// Returns the number of the host's messages about repeated failures.
fn nudges(seen: &Seen) -> usize {
    seen.notices()
        .filter(
            |notice| matches!(notice, Notice::MessagePosted { message, .. } if is_nudge(message)),
        )
        .count()
}

/// Returns the number of messages that an agent gets after an empty turn, before its next step.
fn corrective_nudges(seen: &Seen, script: &Script) -> usize {
    let mut words = 0;
    for (part, (_, moves)) in seen.parts.iter().zip(&script.parts) {
        let mut steps = 0_usize;
        for notice in &part.notices {
            match notice {
                Notice::StepStarted { .. } => steps += 1,
                Notice::MessagePosted { message, .. } => {
                    let was_silent = steps
                        .checked_sub(1)
                        .and_then(|step| moves.get(step))
                        .is_some_and(is_silent);
                    let is_hosts = message.sender != Role::Llm && message.sender != Role::User;
                    words += usize::from(
                        was_silent && is_hosts && !message.text().is_empty() && !is_nudge(message),
                    );
                }
                _ => {}
            }
        }
    }
    words
}

fn is_silent(made: &Move) -> bool {
    matches!(made, Move::Turn(turn) if *turn == nothing())
}
