//! Search in the events of a log by kind, source, time and words (O-116).

use crate::era::Era;
use crate::event::{Body, TrajectoryEvent};

/// The class names of kinds in log readers, with their discriminators.
const ACTION_CLASSES: &[(&str, &str)] = &[
    ("NullAction", "null"),
    ("CmdRunAction", "run"),
    ("CmdKillAction", "kill"),
    ("IPythonRunCellAction", "run_ipython"),
    ("BrowseURLAction", "browse"),
    ("BrowseInteractiveAction", "browse_interactive"),
    ("FileReadAction", "read"),
    ("FileWriteAction", "write"),
    ("FileEditAction", "edit"),
    ("AgentRecallAction", "recall"),
    ("RecallAction", "recall"),
    ("AddTaskAction", "add_task"),
    ("ModifyTaskAction", "modify_task"),
    ("AgentThinkAction", "think"),
    ("AgentTalkAction", "talk"),
    ("AgentFinishAction", "finish"),
    ("AgentRejectAction", "reject"),
    ("AgentDelegateAction", "delegate"),
    ("MessageAction", "message"),
    ("ChangeAgentStateAction", "change_agent_state"),
    ("SystemMessageAction", "system"),
    ("CondensationAction", "condensation"),
    ("CondensationRequestAction", "condensation_request"),
    ("MCPAction", "call_tool_mcp"),
    ("TaskTrackingAction", "task_tracking"),
    ("LoopRecoveryAction", "loop_recovery"),
];

/// The same for observations.
const OBSERVATION_CLASSES: &[(&str, &str)] = &[
    ("NullObservation", "null"),
    ("CmdOutputObservation", "run"),
    ("IPythonRunCellObservation", "run_ipython"),
    ("BrowserOutputObservation", "browse"),
    ("FileReadObservation", "read"),
    ("FileWriteObservation", "write"),
    ("FileEditObservation", "edit"),
    ("AgentRecallObservation", "recall"),
    ("RecallObservation", "recall"),
    ("AgentDelegateObservation", "delegate"),
    ("SuccessObservation", "success"),
    ("ErrorObservation", "error"),
    ("AgentStateChangedObservation", "agent_state_changed"),
    ("UserRejectObservation", "user_rejected"),
    ("AgentCondensationObservation", "condense"),
    ("AgentThinkObservation", "think"),
    ("MCPObservation", "mcp"),
    ("FileDownloadObservation", "download"),
    ("TaskTrackingObservation", "task_tracking"),
    ("LoopDetectionObservation", "loop_detection"),
];

/// A search filter; the default matches all events.
///
/// A type is `run-action`, `run-observation`, `run` (either), `action` or `observation` (any kind),
/// or a class name such as `CmdRunAction`. Any other name matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Types to include; empty for all.
    pub include_types: Vec<String>,
    /// Types to exclude.
    pub exclude_types: Vec<String>,
    /// The source.
    pub source: Option<String>,
    /// The earliest timestamp, compared as text; events without one match.
    pub start_date: Option<String>,
    /// The latest timestamp, compared as text; events without one match.
    pub end_date: Option<String>,
    /// Whether events that stay out of history are excluded.
    pub exclude_hidden: bool,
    /// Text in the encoded event, in any letter case.
    pub query: Option<String>,
    /// The first id.
    pub start_id: Option<i64>,
    /// The last id, inclusive.
    pub end_id: Option<i64>,
    /// Whether the newest comes first.
    pub reverse: bool,
    /// Maximum results after all other conditions; 0 for no limit.
    pub limit: Option<usize>,
}

impl Filter {
    /// Whether the event matches, without regard to ids, order and limit.
    pub fn includes(&self, event: &TrajectoryEvent) -> bool {
        let is = |names: &[String]| names.iter().any(|name| is_type(event, name));
        if !self.include_types.is_empty() && !is(&self.include_types) || is(&self.exclude_types) {
            return false;
        }
        if let Some(source) = self.source.as_deref().filter(|source| !source.is_empty())
            && event.source.as_ref().map(|source| source.name()) != Some(source)
        {
            return false;
        }
        let nonempty = |date: &Option<String>| date.clone().filter(|date| !date.is_empty());
        if let Some(at) = &event.timestamp
            && (nonempty(&self.start_date).is_some_and(|start| *at < start)
                || nonempty(&self.end_date).is_some_and(|end| *at > end))
        {
            return false;
        }
        if self.exclude_hidden && event.hidden() {
            return false;
        }
        match self.query.as_deref().filter(|query| !query.is_empty()) {
            Some(query) => {
                event.to_stored_text(Era::V2025).to_lowercase().contains(&query.to_lowercase())
            }
            None => true,
        }
    }

    /// The unknown type names, for an error message.
    pub fn unknown_types(&self) -> Vec<&str> {
        self.include_types
            .iter()
            .chain(&self.exclude_types)
            .map(String::as_str)
            .filter(|name| !is_known(name))
            .collect()
    }
}

/// The matching events in the filter's order. An event without an id is identified by its position.
pub fn search<'a>(events: &'a [TrajectoryEvent], filter: &Filter) -> Vec<&'a TrajectoryEvent> {
    let id = |(index, event): &(usize, &TrajectoryEvent)| event.id.unwrap_or(*index as i64);
    let inside = |at: i64| {
        filter.start_id.is_none_or(|start| at >= start) && filter.end_id.is_none_or(|end| at <= end)
    };
    let candidates =
        events.iter().enumerate().filter(|pair| inside(id(pair))).map(|(_, event)| event);
    let limit = filter.limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let is_included = |event: &&TrajectoryEvent| filter.includes(event);
    if filter.reverse {
        candidates.rev().filter(is_included).take(limit).collect()
    } else {
        candidates.filter(is_included).take(limit).collect()
    }
}

fn is_type(event: &TrajectoryEvent, name: &str) -> bool {
    let (family, classes) = match event.body {
        Body::Action(_) => ("action", ACTION_CLASSES),
        Body::Observation(_) => ("observation", OBSERVATION_CLASSES),
    };
    let kind = event.kind();
    if name.eq_ignore_ascii_case(family) || name == "Event" || name == kind {
        return true;
    }
    if let Some((of_kind, of_family)) = name.rsplit_once('-') {
        return of_kind == kind && of_family == family;
    }
    classes.iter().any(|(class, of_kind)| *class == name && *of_kind == kind)
}

fn is_known(name: &str) -> bool {
    use crate::{Action, Observation};
    let class =
        || ACTION_CLASSES.iter().chain(OBSERVATION_CLASSES).any(|(class, _)| *class == name);
    match name.rsplit_once('-') {
        Some((kind, "action")) => Action::KINDS.contains(&kind),
        Some((kind, "observation")) => Observation::KINDS.contains(&kind),
        Some(_) => false,
        None => {
            let family = ["action", "observation", "event"]
                .iter()
                .any(|family| name.eq_ignore_ascii_case(family));
            family || Action::KINDS.contains(&name) || Observation::KINDS.contains(&name) || class()
        }
    }
}
