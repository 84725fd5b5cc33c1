//! The actions of both eras and our own: one struct per kind with the union of its arguments, and
//! its one-line description. Fields are in the order on the wire (O-011…O-026, O-041).

use serde_json::{Map, Value};

use crate::era::{Era, FieldSpec};
use crate::field::{LooseId, kinds};
use crate::json::Json;
use crate::python;
use crate::vocabulary::{
    Confirmation, DelegateOne, EditSource, ReadSource, RecallType, SecurityRisk,
};

kinds! {
    /// An action of an agent or of the user.
    Action;

    /// No action; neither published nor stored (O-011).
    Null = "null" BOTH {}
    /// Runs a command in the shell (O-012).
    Run = "run" BOTH {
        /// The command line; empty to read the output of a running one (2025-11).
        command: String = String::new(), Required Required;
        /// Whether it keeps running in the background (2024-07 only).
        background: bool = false, Optional Absent;
        /// Whether the command is input for the running process.
        is_input: bool = false, Absent Optional;
        /// The reason.
        thought: String = String::new(), Optional Optional;
        /// Whether to wait for the end; needs a timeout.
        blocking: bool = false, Absent Optional;
        /// Whether to use a separate process.
        is_static: bool = false, Absent Optional;
        /// The folder, if `is_static`.
        cwd: Option<String> = None, Absent Optional;
        /// Whether the action stays out of history.
        hidden: bool = false, Absent Optional;
        /// The confirmation by the user.
        confirmation_state: Confirmation = Confirmation::Confirmed, Absent Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
    }
    /// Stops a background command (O-013, 2024-07 only).
    Kill = "kill" OLD {
        /// The command's id.
        command_id: LooseId = LooseId::Number(-1), Required Absent;
        /// The reason.
        thought: String = String::new(), Optional Absent;
    }
    /// Runs a Python cell (O-014).
    RunIpython = "run_ipython" BOTH {
        /// The cell.
        code: String = String::new(), Required Required;
        /// The reason.
        thought: String = String::new(), Optional Optional;
        /// Whether the output includes folder and interpreter.
        include_extra: bool = true, Absent Optional;
        /// The confirmation by the user.
        confirmation_state: Confirmation = Confirmation::Confirmed, Absent Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
        /// Code to run first after a restart of the kernel.
        kernel_init_code: String = String::new(), Optional Optional;
    }
    /// Opens a web page (O-015).
    Browse = "browse" BOTH {
        /// The address.
        url: String = String::new(), Required Required;
        /// The reason.
        thought: String = String::new(), Optional Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
        /// Whether to return the accessibility tree.
        return_axtree: bool = false, Absent Optional;
    }
    /// Acts in the browser (O-016).
    BrowseInteractive = "browse_interactive" BOTH {
        /// The browser's actions, as code.
        browser_actions: String = String::new(), Required Required;
        /// The reason.
        thought: String = String::new(), Optional Optional;
        /// A text for the user.
        browsergym_send_msg_to_user: String = String::new(), Optional Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
        /// Whether to return the accessibility tree.
        return_axtree: bool = false, Absent Optional;
    }
    /// Reads a file, or lines of it (O-017, O-136).
    Read = "read" BOTH {
        /// The file.
        path: String = String::new(), Required Required;
        /// The first line, from 0.
        start: i64 = 0, Optional Optional;
        /// The line after the last; −1 for the end.
        end: i64 = -1, Optional Optional;
        /// The reason.
        thought: String = String::new(), Optional Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
        /// The implementation that reads the file.
        impl_source: ReadSource = ReadSource::Default, Absent Optional;
        /// The first and the last line, from 1, for the editor.
        view_range: Option<Vec<i64>> = None, Absent Optional;
    }
    /// Writes a file, or lines of it (O-018, O-137).
    Write = "write" BOTH {
        /// The file.
        path: String = String::new(), Required Required;
        /// The text.
        content: String = String::new(), Required Required;
        /// The first line to replace, from 0.
        start: i64 = 0, Optional Optional;
        /// The line after the last to replace; −1 for the end.
        end: i64 = -1, Optional Optional;
        /// The reason.
        thought: String = String::new(), Optional Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
    }
    /// Edits a file with the editor or by a draft (O-041, 2025-11 only).
    Edit = "edit" NEW {
        /// The file.
        path: String = String::new(), Absent Required;
        /// The editor's command: view, create, str_replace, insert, undo_edit.
        command: Option<String> = Some(String::new()), Absent Optional;
        /// The text of `create`.
        file_text: Option<String> = None, Absent Optional;
        /// The text that `str_replace` replaces.
        old_str: Option<String> = None, Absent Optional;
        /// The new text of `str_replace` and `insert`.
        new_str: Option<String> = None, Absent Optional;
        /// The line after which `insert` adds the text.
        insert_line: Option<i64> = None, Absent Optional;
        /// The draft.
        content: String = String::new(), Absent Optional;
        /// The first line of the draft, from 1.
        start: i64 = 1, Absent Optional;
        /// The last line of the draft; −1 for the end.
        end: i64 = -1, Absent Optional;
        /// The reason.
        thought: String = String::new(), Absent Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
        /// The implementation that edits the file.
        impl_source: EditSource = EditSource::OhAci, Absent Optional;
    }
    /// Recalls memories (2024-07, O-019), or context and knowledge (2025-11).
    Recall = "recall" BOTH {
        /// The kind of the recall (2025-11); `None` in 2024-07.
        recall_type: Option<RecallType> = None, Absent Required;
        /// The search text.
        query: String = String::new(), Required Optional;
        /// The reason.
        thought: String = String::new(), Optional Optional;
    }
    /// Adds a task to the plan (O-020, 2024-07 only).
    AddTask = "add_task" OLD {
        /// The parent's id; empty for the root.
        parent: String = String::new(), Required Absent;
        /// The goal of the task.
        goal: String = String::new(), Required Absent;
        /// Subtasks, each an object with `goal` and optionally `subtasks`.
        /// The reason.
        subtasks: Vec<Value> = Vec::new(), Optional Absent;
        /// Why.
        thought: String = String::new(), Optional Absent;
    }
    /// Changes the state of a task (O-021, 2024-07 only).
    ModifyTask = "modify_task" OLD {
        /// The task's id.
        task_id: LooseId = LooseId::Text(String::new()), Required Absent;
        /// Its new state.
        state: String = String::new(), Required Absent;
        /// The reason.
        thought: String = String::new(), Optional Absent;
    }
    /// Notes a thought (2025-11; 2024-07 has no such kind).
    Think = "think" NEW {
        /// The thought.
        thought: String = String::new(), Absent Optional;
    }
    /// Sends a message to the room without ending the turn; our own kind.
    Talk = "talk" OURS {
        /// The text.
        content: String = String::new(), Absent Required;
    }
    /// Ends with success (O-022).
    Finish = "finish" BOTH {
        /// The message for the user (2025-11).
        final_thought: String = String::new(), Absent Optional;
        /// The named results.
        outputs: Map<String, Value> = Map::new(), Optional Optional;
        /// The reason.
        thought: String = String::new(), Optional Optional;
    }
    /// Ends without success (O-023).
    Reject = "reject" BOTH {
        /// The named results; `reason` is shown.
        outputs: Map<String, Value> = Map::new(), Optional Optional;
        /// The reason.
        thought: String = String::new(), Optional Optional;
    }
    /// Delegates a task to another agent (O-024).
    Delegate = "delegate" BOTH {
        /// The agent's name.
        agent: String = String::new(), Required Required;
        /// The inputs of the task.
        inputs: Map<String, Value> = Map::new(), Required Required;
        /// The reason.
        thought: String = String::new(), Optional Optional;
    }
    /// Sends a message, and optionally waits for an answer (O-025).
    Message = "message" BOTH {
        /// The text.
        content: String = String::new(), Required Required;
        /// Addresses of the attached files.
        file_urls: Option<Vec<String>> = None, Absent Optional;
        /// Addresses of the attached images.
        image_urls: Option<Vec<String>> = None, Absent Optional;
        /// Whether the agent waits for the user.
        wait_for_response: bool = false, Optional Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
    }
    /// Requests another agent state (O-026).
    ChangeAgentState = "change_agent_state" BOTH {
        /// The state.
        agent_state: String = String::new(), Required Required;
        /// The reason.
        thought: String = String::new(), Optional Optional;
    }
    /// The system prompt, first in a log (2025-11 only).
    System = "system" NEW {
        /// The prompt.
        content: String = String::new(), Absent Required;
        /// The descriptions of the tools.
        tools: Option<Vec<Value>> = None, Absent Optional;
        /// The version that wrote it.
        openhands_version: Option<String> = None, Absent Optional;
        /// The class of the agent.
        agent_class: Option<String> = None, Absent Optional;
    }
    /// Forgets events, optionally with a summary (O-042, 2025-11 only).
    Condensation = "condensation" NEW {
        /// The ids of the forgotten events.
        forgotten_event_ids: Option<Vec<i64>> = None, Absent Optional;
        /// The first id of a forgotten range.
        forgotten_events_start_id: Option<i64> = None, Absent Optional;
        /// The last id of the range, inclusive.
        forgotten_events_end_id: Option<i64> = None, Absent Optional;
        /// The summary that replaces them.
        summary: Option<String> = None, Absent Optional;
        /// The position of the summary among the remaining events.
        summary_offset: Option<i64> = None, Absent Optional;
    }
    /// Requests a condensation (2025-11 only).
    CondensationRequest = "condensation_request" NEW {}
    /// Calls a tool of an MCP server (2025-11 only).
    CallToolMcp = "call_tool_mcp" NEW {
        /// The tool.
        name: String = String::new(), Absent Required;
        /// Its arguments.
        arguments: Map<String, Value> = Map::new(), Absent Optional;
        /// The reason.
        thought: String = String::new(), Absent Optional;
        /// The assessed risk.
        security_risk: SecurityRisk = SecurityRisk::Unknown, Absent Optional;
    }
    /// Reads or replaces the task list (O-045, 2025-11 only).
    TaskTracking = "task_tracking" NEW {
        /// `view` or `plan`.
        command: String = "view".to_owned(), Absent Optional;
        /// The whole list, each an object with `title`, `status` and `notes`.
        task_list: Vec<Value> = Vec::new(), Absent Optional;
        /// The reason.
        thought: String = String::new(), Absent Optional;
    }
    /// Chooses how to leave a loop (O-108, 2025-11 only).
    LoopRecovery = "loop_recovery" NEW {
        /// 1 waits for the user, 2 repeats the last user message, 3 stops.
        option: i64 = 1, Absent Optional;
    }
    /// Delegates a task to another agent with context; our own kind.
    DelegateTask = "delegate_task" OURS {
        /// The agent's name.
        agent: String = String::new(), Absent Required;
        /// The goal of the task.
        task: String = String::new(), Absent Required;
        /// Facts for the agent.
        context: Map<String, Value> = Map::new(), Absent Optional;
        /// Channels that the agent may use too.
        share_channels: Vec<String> = Vec::new(), Absent Optional;
        /// The reason.
        thought: String = String::new(), Absent Optional;
    }
    /// Delegates tasks to several agents at once; our own kind.
    DelegateAll = "delegate_all" OURS {
        /// The agents with their tasks.
        delegates: Vec<DelegateOne> = Vec::new(), Absent Required;
        /// The reason.
        thought: String = String::new(), Absent Optional;
    }
}

impl Action {
    /// Whether the host must answer with a real observation. Other actions are paired with `null`
    /// (O-010).
    pub fn runnable(&self) -> bool {
        match self {
            Action::Run(_)
            | Action::Kill(_)
            | Action::RunIpython(_)
            | Action::Browse(_)
            | Action::BrowseInteractive(_) => true,
            Action::Read(_) | Action::Write(_) | Action::Edit(_) | Action::CallToolMcp(_) => true,
            // In 2024-07 the runtime looks memories up. In 2025-11 the recall is bookkeeping, which
            // the memory answers.
            Action::Recall(recall) => recall.recall_type.is_none(),
            _ => false,
        }
    }

    /// The agent's reason; empty if there is none.
    pub fn thought(&self) -> &str {
        match self {
            Action::Run(it) => &it.thought,
            Action::Kill(it) => &it.thought,
            Action::RunIpython(it) => &it.thought,
            Action::Browse(it) => &it.thought,
            Action::BrowseInteractive(it) => &it.thought,
            Action::Read(it) => &it.thought,
            Action::Write(it) => &it.thought,
            Action::Edit(it) => &it.thought,
            Action::Recall(it) => &it.thought,
            Action::AddTask(it) => &it.thought,
            Action::ModifyTask(it) => &it.thought,
            Action::Think(it) => &it.thought,
            Action::Finish(it) => &it.thought,
            Action::Reject(it) => &it.thought,
            Action::Delegate(it) => &it.thought,
            Action::ChangeAgentState(it) => &it.thought,
            Action::CallToolMcp(it) => &it.thought,
            Action::TaskTracking(it) => &it.thought,
            Action::DelegateTask(it) => &it.thought,
            Action::DelegateAll(it) => &it.thought,
            Action::Null(_)
            | Action::Talk(_)
            | Action::Message(_)
            | Action::System(_)
            | Action::Condensation(_) => "",
            Action::CondensationRequest(_) | Action::LoopRecovery(_) => "",
        }
    }

    /// The assessed risk; `None` for kinds without one.
    pub fn security_risk(&self) -> Option<SecurityRisk> {
        match self {
            Action::Run(it) => Some(it.security_risk),
            Action::RunIpython(it) => Some(it.security_risk),
            Action::Browse(it) => Some(it.security_risk),
            Action::BrowseInteractive(it) => Some(it.security_risk),
            Action::Read(it) => Some(it.security_risk),
            Action::Write(it) => Some(it.security_risk),
            Action::Edit(it) => Some(it.security_risk),
            Action::Message(it) => Some(it.security_risk),
            Action::CallToolMcp(it) => Some(it.security_risk),
            _ => None,
        }
    }

    /// Whether the action stays out of history (O-083).
    pub fn hidden(&self) -> bool {
        matches!(self, Action::Run(run) if run.hidden)
    }

    /// The human-readable line that the encoded form carries (O-004).
    pub fn message(&self, era: Era) -> String {
        let old = era == Era::V2024;
        match self {
            Action::Null(_) => "No action".to_owned(),
            Action::Run(it) => format!("Running command: {}", it.command),
            Action::Kill(it) => format!("Killing command: {}", it.command_id),
            Action::RunIpython(it) => format!("Running Python code interactively: {}", it.code),
            Action::Browse(it) if old => format!("Browsing URL: {}", it.url),
            Action::Browse(it) => format!("I am browsing the URL: {}", it.url),
            Action::BrowseInteractive(it) if old => {
                format!("Executing browser actions: {}", it.browser_actions)
            }
            Action::BrowseInteractive(it) => {
                format!("I am interacting with the browser:\n```\n{}\n```", it.browser_actions)
            }
            Action::Read(it) => format!("Reading file: {}", it.path),
            Action::Write(it) => format!("Writing file: {}", it.path),
            Action::Edit(_) | Action::LoopRecovery(_) => String::new(),
            Action::Recall(it) if old => recall_of_2024(&it.query),
            Action::Recall(it) => {
                format!("Retrieving content for: {}", it.query.chars().take(50).collect::<String>())
            }
            Action::AddTask(it) => format!("Added task: {}", it.goal),
            Action::ModifyTask(it) => format!("Set task {} to {}", it.task_id, it.state),
            Action::Think(it) => format!("I am thinking...: {}", it.thought),
            Action::Talk(it) => it.content.clone(),
            Action::Finish(it) if it.thought.is_empty() => {
                "All done! What's next on the agenda?".to_owned()
            }
            Action::Finish(it) => it.thought.clone(),
            Action::Reject(it) => rejection(&it.outputs),
            Action::Delegate(it) => asking(&[&it.agent]),
            Action::DelegateTask(it) => asking(&[&it.agent]),
            Action::DelegateAll(it) => {
                asking(&it.delegates.iter().map(|one| one.agent.as_str()).collect::<Vec<_>>())
            }
            Action::Message(it) => it.content.clone(),
            Action::ChangeAgentState(it) => format!("Agent state changed to {}", it.agent_state),
            Action::System(it) => it.content.clone(),
            Action::Condensation(it) => it.message(),
            Action::CondensationRequest(_) => {
                "Requesting a condensation of the conversation history.".to_owned()
            }
            Action::CallToolMcp(it) => format!(
                "I am interacting with the MCP server with name:\n```\n{}\n```\nand arguments:\n```\n{}\n```",
                it.name,
                python::repr_map(&it.arguments)
            ),
            Action::TaskTracking(it) => match it.task_list.len() {
                0 => "Clearing the task list.".to_owned(),
                1 => "Managing 1 task item.".to_owned(),
                many => format!("Managing {many} task items."),
            },
        }
    }

    /// Reads the arguments of a kind. `None` if `form` does not have the kind.
    pub(crate) fn read(
        kind: &str,
        form: Option<Era>,
        args: &Map<String, Value>,
    ) -> Option<Result<Action, String>> {
        Action::read_kind(kind, form, args)
    }

    /// The arguments in the order on the wire.
    pub(crate) fn args(&self, form: Option<Era>) -> Vec<(&'static str, Json)> {
        let mut args = self.write_fields(form);
        // The 2025-11 form requires `recall_type`. A recall of 2024-07 has none, and asked for
        // knowledge.
        if form == Some(Era::V2025)
            && let Action::Recall(Recall { recall_type: None, .. }) = self
            && let Some(first) = args.first_mut()
        {
            first.1 = Json::text(RecallType::Knowledge.name());
        }
        args
    }
}

fn recall_of_2024(query: &str) -> String {
    format!(
        "Let me dive into my memories to find what you're looking for! Searching for: '{query}'. This might take a moment."
    )
}

fn rejection(outputs: &Map<String, Value>) -> String {
    let mut line = "Task is rejected by the agent.".to_owned();
    if let Some(reason) = outputs.get("reason") {
        line.push_str(" Reason: ");
        match reason {
            Value::String(text) => line.push_str(text),
            other => line.push_str(&other.to_string()),
        }
    }
    line
}

fn asking(agents: &[&str]) -> String {
    format!("I'm asking {} for help with this task.", agents.join(", "))
}

/// The events that a condensation forgets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgotten<'a> {
    /// The events with these ids.
    Ids(&'a [i64]),
    /// All events from the first to the second id, inclusive.
    Range(i64, i64),
}

impl Forgotten<'_> {
    /// Whether the event with this id is forgotten.
    pub fn contains(&self, id: i64) -> bool {
        match self {
            Forgotten::Ids(ids) => ids.contains(&id),
            Forgotten::Range(start, end) => (*start..=*end).contains(&id),
        }
    }
}

impl Condensation {
    /// The forgotten events; `None` if the fields contradict each other (O-042).
    pub fn forgotten(&self) -> Option<Forgotten<'_>> {
        let range = self.forgotten_events_start_id.zip(self.forgotten_events_end_id);
        match (&self.forgotten_event_ids, range) {
            (Some(ids), None) => Some(Forgotten::Ids(ids)),
            (None, Some((start, end))) => Some(Forgotten::Range(start, end)),
            _ => None,
        }
    }

    /// Checks the two rules of O-042: the events are given in exactly one way, and a summary comes
    /// with its offset.
    pub fn check(&self) -> Result<(), String> {
        if self.forgotten().is_none() {
            return Err("`condensation` must name what is forgotten in exactly one way: either `forgotten_event_ids`, or both \
                        `forgotten_events_start_id` and `forgotten_events_end_id`."
                .to_owned());
        }
        if self.summary.is_some() != self.summary_offset.is_some() {
            return Err(
                "`condensation` must give `summary` and `summary_offset` together, or neither."
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn message(&self) -> String {
        if let Some(summary) = self.summary.as_deref().filter(|summary| !summary.is_empty()) {
            return format!("Summary: {summary}");
        }
        // A range can be very long. Above this length the line only names its ends.
        const LISTED: i64 = 10_000;
        let ids = match self.forgotten() {
            Some(Forgotten::Ids(ids)) => {
                ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
            }
            Some(Forgotten::Range(start, end)) if end.saturating_sub(start) > LISTED => {
                format!("{start}, …, {end}")
            }
            Some(Forgotten::Range(start, end)) => {
                (start..=end).map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
            }
            None => String::new(),
        };
        format!("Condenser is dropping the events: [{ids}].")
    }
}
