//! The comparison of a log with its replay: each executed action, its recorded observation and its
//! new one (O-119).

use std::collections::BTreeMap;

use crate::action::Action;
use crate::event::{Source, TrajectoryEvent};
use crate::observation::Observation;

/// The exit codes of a shell that does not find a program, or may not start it.
const NOT_STARTED: [i64; 2] = [127, 126];

/// An action that an executor carries out, and the observation that answers it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnsweredAction<'a> {
    /// The id of the action's event; without one, its position in the log.
    pub number: i64,
    /// The action.
    pub action: &'a Action,
    /// The observation; `None` if the log has none.
    pub observation: Option<&'a Observation>,
}

/// The result of comparing the two observations of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayVerdict {
    /// The observations agree.
    Same,
    /// The observations disagree. The texts are those that were compared.
    Differs {
        /// The text of the log.
        recorded: String,
        /// The text of the replay.
        replayed: String,
    },
    /// The action could not be executed.
    NotRun {
        /// The text of the error, of the refusal, or of the shell.
        reason: String,
    },
    /// The log has no observation of the action.
    Unrecorded,
}

impl<'a> AnsweredAction<'a> {
    /// The actions of a log that need an executor, with their observations, in order. An
    /// observation names its action, or follows it at once.
    pub fn list(events: &'a [TrajectoryEvent]) -> Vec<AnsweredAction<'a>> {
        let mut answers: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (at, event) in events.iter().enumerate() {
            if let (Some(cause), Some(_)) = (event.cause, observation(event)) {
                answers.entry(cause).or_default().push(at);
            }
        }
        let actions = events.iter().enumerate().filter_map(|(at, event)| {
            let is_executed = event.source != Some(Source::Environment);
            let action = event.action().filter(|it| it.runnable() && is_executed)?;
            let number = event.id.unwrap_or_else(|| i64::try_from(at).unwrap_or(i64::MAX));
            // In several logs of one file, the ids begin anew.
            let by_id = event.id.and_then(|id| answers.get(&id)).and_then(|positions| {
                positions.get(positions.partition_point(|place| *place < at)).map(|at| &events[*at])
            });
            let next = events.get(at + 1).filter(|it| it.cause.is_none());
            let observation = by_id.or(next).and_then(observation);
            Some(AnsweredAction { number, action, observation })
        });
        actions.collect()
    }

    /// Compares the recorded observation with that of a replay.
    pub fn compare(&self, replayed: &Observation) -> ReplayVerdict {
        let Some(recorded) = self.observation else { return ReplayVerdict::Unrecorded };
        if let Some(reason) = not_run(recorded, replayed) {
            return ReplayVerdict::NotRun { reason };
        }
        let (old, new) = (comparable(recorded), comparable(replayed));
        if old == new {
            ReplayVerdict::Same
        } else {
            ReplayVerdict::Differs { recorded: old, replayed: new }
        }
    }
}

/// The observation of an event, unless it is a filler or tells of the run.
fn observation(event: &TrajectoryEvent) -> Option<&Observation> {
    let tells_nothing =
        |it: &&Observation| matches!(it, Observation::Null(_) | Observation::AgentStateChanged(_));
    event.observation().filter(|it| !tells_nothing(it))
}

/// Returns why the replay did not execute the action; `None` if it did, or if the log reports the
/// same failure.
fn not_run(recorded: &Observation, replayed: &Observation) -> Option<String> {
    let failed = match (recorded, replayed) {
        (Observation::Error(_), Observation::Error(_)) => false,
        (_, Observation::Error(_) | Observation::UserRejected(_)) => true,
        (Observation::Run(old), Observation::Run(new)) => {
            let (old, new) = (old.metadata.exit_code, new.metadata.exit_code);
            NOT_STARTED.contains(&new) && old != new
        }
        _ => false,
    };
    failed.then(|| replayed.content().trim_end().to_owned())
}

/// The text of an observation without what OpenHands' container added to it, and with the exit code
/// of a command.
fn comparable(observation: &Observation) -> String {
    match observation {
        Observation::Run(run) => {
            let output = output(&run.content);
            let code = run.metadata.exit_code;
            let line_end = if output.is_empty() { "" } else { "\n" };
            format!("{output}{line_end}[exit code {code}]")
        }
        Observation::Edit(edit) => output(edit.new_content.as_deref().unwrap_or(&edit.content)),
        other => output(other.content()),
    }
}

/// The output of a command or a cell: with the line ends of Linux, without white space at the ends
/// of lines, and without the lines of the container at the end.
fn output(content: &str) -> String {
    let mut lines: Vec<&str> = content.lines().map(str::trim_end).collect();
    while lines.last().is_some_and(|line| line.is_empty() || is_of_container(line)) {
        lines.pop();
    }
    lines.join("\n")
}

/// Whether a line at the end of an output is the container's: a prompt such as
/// `root@0a1b2c:/workspace #`, or a line in brackets about Python.
fn is_of_container(line: &str) -> bool {
    const HEADS: [&str; 3] =
        ["[Python Interpreter: ", "[Jupyter current working directory: ", "[Jupyter Python "];
    let is_note = HEADS.iter().any(|head| line.starts_with(head)) && line.ends_with(']');
    let prompt = line.strip_suffix(['#', '$']).map(str::trim_end);
    let is_name = |name: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !name.is_empty() && name.chars().all(is_part)
    };
    let is_prompt = || {
        let (user, rest) = prompt?.split_once('@')?;
        let (host, folder) = rest.split_once(':')?;
        Some(is_name(user) && is_name(host) && folder.starts_with(['/', '~']))
    };
    is_note || is_prompt() == Some(true)
}
