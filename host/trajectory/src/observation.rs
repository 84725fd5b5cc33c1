//! The observations of both eras: one struct per kind with the union of its extras, and its
//! one-line description. Fields are in the order on the wire (O-027…O-043). `content` is at the top
//! level, before the extras.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::era::{BOTH, Era, FieldSpec, Presence};
use crate::field::{Field, FieldReader, kinds};
use crate::json::Json;
use crate::text::truncate;
use crate::vocabulary::{CommandMetadata, EditSource, ReadSource, RecallType, RecalledKnowledge};

/// Length in characters above which a `run` observation truncates the output of its command
/// (O-043).
pub const MAX_COMMAND_OUTPUT: usize = 30_000;

kinds! {
    /// A result or a notice that an agent receives.
    ///
    /// Every kind has a `content`, which [`Observation::content`] returns.
    Observation;

    /// An empty observation (O-027).
    Null = "null" BOTH {
        /// Usually empty.
        content: String = String::new(), Optional Optional;
    }
    /// The output of a command (O-028, O-043).
    Run = "run" BOTH {
        /// The output.
        content: String = String::new(), Optional Optional;
        /// The command.
        command: String = String::new(), Required Required;
        /// Exit code, process, and more; 2024-07 writes the first two as `exit_code` and
        /// `command_id`.
        metadata: CommandMetadata = CommandMetadata::default(), Absent Optional;
        /// Whether the observation stays out of history.
        hidden: bool = false, Absent Optional;
    }
    /// The output of a Python cell (O-029).
    RunIpython = "run_ipython" BOTH {
        /// The output.
        content: String = String::new(), Optional Optional;
        /// The cell.
        code: String = String::new(), Required Required;
        /// Addresses of the images that the cell made.
        image_urls: Option<Vec<String>> = None, Absent Optional;
    }
    /// A web page (O-030).
    Browse = "browse" BOTH {
        /// The text of the page.
        content: String = String::new(), Optional Optional;
        /// The address.
        url: String = String::new(), Required Required;
        /// The action that opened the page (2025-11).
        trigger_by_action: String = String::new(), Absent Required;
        /// A screenshot, base64.
        screenshot: String = String::new(), Required Optional;
        /// The path of the screenshot.
        screenshot_path: Option<String> = None, Absent Optional;
        /// A screenshot with numbered marks, base64.
        set_of_marks: String = String::new(), Absent Optional;
        /// The HTTP status (2024-07 only).
        status_code: i64 = 200, Optional Absent;
        /// Whether the page failed to load.
        error: bool = false, Optional Optional;
        /// Images that show the goal.
        goal_image_urls: Vec<String> = Vec::new(), Absent Optional;
        /// The addresses of all open pages.
        open_pages_urls: Vec<String> = Vec::new(), Optional Optional;
        /// The index of the active page; −1 if it is not known.
        active_page_index: i64 = -1, Optional Optional;
        /// The DOM of the page.
        dom_object: Map<String, Value> = Map::new(), Optional Optional;
        /// The accessibility tree of the page.
        axtree_object: Map<String, Value> = Map::new(), Optional Optional;
        /// Further properties of its elements.
        extra_element_properties: Map<String, Value> = Map::new(), Optional Optional;
        /// The last action of the browser.
        last_browser_action: String = String::new(), Optional Optional;
        /// The error of that action.
        last_browser_action_error: String = String::new(), Optional Optional;
        /// The identifier of the focused element.
        focused_element_bid: String = String::new(), Optional Optional;
        /// Whether hidden elements are omitted.
        filter_visible_only: bool = false, Absent Optional;
    }
    /// A file's text (O-031).
    Read = "read" BOTH {
        /// The text.
        content: String = String::new(), Optional Optional;
        /// The file.
        path: String = String::new(), Required Required;
        /// The implementation that read the file.
        impl_source: ReadSource = ReadSource::Default, Absent Optional;
    }
    /// A file was written (O-032).
    Write = "write" BOTH {
        /// Usually empty.
        content: String = String::new(), Optional Optional;
        /// The file.
        path: String = String::new(), Required Required;
    }
    /// A file was edited (2025-11 only).
    Edit = "edit" NEW {
        /// The message of the editor.
        content: String = String::new(), Absent Optional;
        /// The file.
        path: String = String::new(), Absent Optional;
        /// Whether the file existed before.
        prev_exist: bool = false, Absent Optional;
        /// The text before the edit.
        old_content: Option<String> = None, Absent Optional;
        /// The text after the edit.
        new_content: Option<String> = None, Absent Optional;
        /// The implementation that edited the file.
        impl_source: EditSource = EditSource::LlmBasedEdit, Absent Optional;
        /// The diff of the edit.
        diff: Option<String> = None, Absent Optional;
        /// The diff as it was rendered before.
        diff_cache as "_diff_cache": Option<String> = None, Absent Optional;
    }
    /// A recall: memories (2024-07, O-033), or context and knowledge (2025-11).
    Recall = "recall" BOTH {
        /// The text for the model.
        content: String = String::new(), Optional Optional;
        /// The memories (2024-07).
        memories: Vec<String> = Vec::new(), Required Absent;
        /// The role in which the model receives them (2024-07).
        role: String = "assistant".to_owned(), Optional Absent;
        /// The kind of the recall (2025-11); `None` in 2024-07.
        recall_type: Option<RecallType> = None, Absent Required;
        /// The name of the repository.
        repo_name: String = String::new(), Absent Optional;
        /// The folder of the repository.
        repo_directory: String = String::new(), Absent Optional;
        /// The branch of the repository.
        repo_branch: String = String::new(), Absent Optional;
        /// The instructions of the repository.
        repo_instructions: String = String::new(), Absent Optional;
        /// Ports by host.
        runtime_hosts: BTreeMap<String, i64> = BTreeMap::new(), Absent Optional;
        /// Further instructions for the agent.
        additional_agent_instructions: String = String::new(), Absent Optional;
        /// The current date.
        date: String = String::new(), Absent Optional;
        /// The description of each secret, by its name.
        custom_secrets_descriptions: BTreeMap<String, String> = BTreeMap::new(), Absent Optional;
        /// Instructions of the conversation.
        conversation_instructions: String = String::new(), Absent Optional;
        /// The working directory.
        working_dir: String = String::new(), Absent Optional;
        /// Knowledge that a keyword triggered.
        microagent_knowledge: Vec<RecalledKnowledge> = Vec::new(), Absent Optional;
    }
    /// The outcome of a delegate (O-034).
    Delegate = "delegate" BOTH {
        /// A sentence that describes the outcome.
        content: String = String::new(), Optional Optional;
        /// The named results.
        outputs: Map<String, Value> = Map::new(), Required Required;
    }
    /// A success (O-035).
    Success = "success" BOTH {
        /// The description of the success.
        content: String = String::new(), Optional Optional;
    }
    /// A failure after which the agent can continue (O-036).
    Error = "error" BOTH {
        /// The description of the failure.
        content: String = String::new(), Optional Optional;
        /// A machine-readable name of the failure.
        error_id: String = String::new(), Absent Optional;
    }
    /// A change of the agent's state (O-037).
    AgentStateChanged = "agent_state_changed" BOTH {
        /// Always empty.
        content: String = String::new(), Optional Optional;
        /// The new state.
        agent_state: String = String::new(), Required Required;
        /// The reason of the change.
        reason: String = String::new(), Absent Optional;
    }
    /// The user's refusal of an action (2025-11 only).
    UserRejected = "user_rejected" NEW {
        /// The message of the user.
        content: String = String::new(), Absent Optional;
    }
    /// A summary that replaces forgotten events (2025-11 only).
    Condense = "condense" NEW {
        /// The summary.
        content: String = String::new(), Absent Optional;
    }
    /// The acknowledgement of a thought (O-045, 2025-11 only).
    Think = "think" NEW {
        /// The fixed text of the acknowledgement.
        content: String = String::new(), Absent Optional;
    }
    /// The result of a tool (2025-11 only), MCP or not.
    Mcp = "mcp" NEW {
        /// The result.
        content: String = String::new(), Absent Optional;
        /// The tool.
        name: String = String::new(), Absent Optional;
        /// The arguments of the call.
        arguments: Map<String, Value> = Map::new(), Absent Optional;
    }
    /// A downloaded file (2025-11 only).
    Download = "download" NEW {
        /// The message of the browser.
        content: String = String::new(), Absent Optional;
        /// The path of the file.
        file_path: String = String::new(), Absent Required;
    }
    /// The list of tasks (O-045, 2025-11 only).
    TaskTracking = "task_tracking" NEW {
        /// The text for the model.
        content: String = String::new(), Absent Optional;
        /// The command that this answers.
        command: String = String::new(), Absent Optional;
        /// The tasks.
        task_list: Vec<Value> = Vec::new(), Absent Optional;
    }
    /// A detected loop (2025-11 only).
    LoopDetection = "loop_detection" NEW {
        /// The text for the user.
        content: String = String::new(), Absent Optional;
    }
}

/// Runs a body on the payload of any observation.
macro_rules! any {
    ($it:expr, $payload:ident => $body:expr) => {
        match $it {
            Observation::Null($payload) => $body,
            Observation::Run($payload) => $body,
            Observation::RunIpython($payload) => $body,
            Observation::Browse($payload) => $body,
            Observation::Read($payload) => $body,
            Observation::Write($payload) => $body,
            Observation::Edit($payload) => $body,
            Observation::Recall($payload) => $body,
            Observation::Delegate($payload) => $body,
            Observation::Success($payload) => $body,
            Observation::Error($payload) => $body,
            Observation::AgentStateChanged($payload) => $body,
            Observation::UserRejected($payload) => $body,
            Observation::Condense($payload) => $body,
            Observation::Think($payload) => $body,
            Observation::Mcp($payload) => $body,
            Observation::Download($payload) => $body,
            Observation::TaskTracking($payload) => $body,
            Observation::LoopDetection($payload) => $body,
        }
    };
}

impl Observation {
    /// The text for the agent.
    pub fn content(&self) -> &str {
        any!(self, it => &it.content)
    }

    /// Returns the text for the agent, mutably.
    pub fn content_mut(&mut self) -> &mut String {
        any!(self, it => &mut it.content)
    }

    /// Whether this reports a failure: an error, a command with an exit code other than 0, or a
    /// page that failed (O-038).
    pub fn is_error(&self) -> bool {
        match self {
            Observation::Error(_) => true,
            Observation::Run(run) => run.metadata.exit_code != 0,
            Observation::Browse(page) => page.error,
            _ => false,
        }
    }

    /// The top-level `success` that 2025-11 writes for commands and cells (O-038). `None` for all
    /// other kinds.
    pub fn success(&self) -> Option<bool> {
        match self {
            Observation::Run(run) => Some(run.metadata.exit_code == 0),
            Observation::RunIpython(_) => Some(true),
            _ => None,
        }
    }

    /// Whether the observation stays out of history (O-083).
    pub fn hidden(&self) -> bool {
        matches!(self, Observation::Run(run) if run.hidden)
    }

    /// The human-readable line that the encoded form carries (O-004).
    pub fn message(&self, era: Era) -> String {
        match self {
            Observation::Null(_) => "No observation".to_owned(),
            Observation::Run(it) => format!(
                "Command `{}` executed with exit code {}.",
                it.command, it.metadata.exit_code
            ),
            Observation::RunIpython(_) => "Code executed in IPython cell.".to_owned(),
            Observation::Browse(it) => format!("Visited {}", it.url),
            Observation::Read(it) => format!("I read the file {}.", it.path),
            Observation::Write(it) => format!("I wrote to the file {}.", it.path),
            Observation::Edit(it) => format!("I edited the file {}.", it.path),
            Observation::Recall(it) => match (era, it.recall_type) {
                (Era::V2024, _) => "The agent recalled memories.".to_owned(),
                (Era::V2025, Some(RecallType::WorkspaceContext)) => {
                    "Added workspace context".to_owned()
                }
                (Era::V2025, _) => "Added microagent knowledge".to_owned(),
            },
            Observation::Delegate(_)
            | Observation::AgentStateChanged(_)
            | Observation::LoopDetection(_) => String::new(),
            Observation::Download(it) => {
                format!("Downloaded the file at location: {}", it.file_path)
            }
            Observation::Success(_)
            | Observation::Error(_)
            | Observation::UserRejected(_)
            | Observation::Condense(_) => self.content().to_owned(),
            Observation::Think(_) | Observation::Mcp(_) | Observation::TaskTracking(_) => {
                self.content().to_owned()
            }
        }
    }

    /// Reads the content and the extras of a kind. `None` if `form` does not have the kind.
    ///
    /// `extras` must not contain `content`; it is inserted here because every kind has it.
    pub(crate) fn read(
        kind: &str,
        form: Option<Era>,
        content: Value,
        extras: &Map<String, Value>,
    ) -> Option<Result<Observation, String>> {
        if kind == "run" && form == Some(Era::V2024) {
            return Some(Run::read_2024(content, extras).map(Observation::Run));
        }
        let mut fields = extras.clone();
        if fields.insert("content".to_owned(), content).is_some() {
            return Some(Err(format!(
                "`{kind}` has `content` among its extras; it belongs at the top level."
            )));
        }
        if kind == "run" {
            // The 2025-11 reader accepts unknown extras of a command and drops them.
            fields.retain(|name, _| Run::SPECS.iter().any(|spec| spec.name == name));
        }
        let read = Observation::read_kind(kind, form, &fields)?;
        Some(read.map(|mut observation| {
            if form == Some(Era::V2025) {
                observation.cut_output();
            }
            observation
        }))
    }

    /// The content and the extras, the extras in the order on the wire.
    pub(crate) fn content_and_extras(
        &self,
        form: Option<Era>,
    ) -> (Json, Vec<(&'static str, Json)>) {
        let content = Json::text(self.content());
        if let (Observation::Run(run), Some(Era::V2024)) = (self, form) {
            return (content, run.extras_2024());
        }
        let mut extras = self.write_fields(form);
        extras.retain(|(name, _)| *name != "content");
        // The 2025-11 form requires `recall_type`; a recall that was read from 2024-07 has none.
        if let (Observation::Recall(Recall { recall_type: None, .. }), Some(Era::V2025)) =
            (self, form)
            && let Some(field) = extras.iter_mut().find(|(name, _)| *name == "recall_type")
        {
            field.1 = Json::text(RecallType::Knowledge.name());
        }
        (content, extras)
    }

    /// Truncates the output of a command at [`MAX_COMMAND_OUTPUT`] characters, unless it is hidden
    /// (O-043).
    pub fn cut_output(&mut self) {
        if let Observation::Run(run) = self
            && !run.hidden
        {
            run.content = truncate(&run.content, MAX_COMMAND_OUTPUT);
        }
    }
}

/// The extras of a `run` observation in 2024-07.
const RUN_OF_2024: &[FieldSpec] = &[
    FieldSpec { name: "command_id", old: Presence::Required, new: Presence::Absent },
    FieldSpec { name: "command", old: Presence::Required, new: Presence::Absent },
    FieldSpec { name: "exit_code", old: Presence::Optional, new: Presence::Absent },
    FieldSpec { name: "content", old: Presence::Optional, new: Presence::Absent },
];

impl Run {
    /// The output of a command, truncated if it is long (O-043).
    pub fn new(command: impl Into<String>, content: impl AsRef<str>, exit_code: i64) -> Run {
        Run {
            content: truncate(content.as_ref(), MAX_COMMAND_OUTPUT),
            command: command.into(),
            metadata: CommandMetadata { exit_code, ..CommandMetadata::default() },
            hidden: false,
        }
    }

    fn read_2024(content: Value, extras: &Map<String, Value>) -> Result<Run, String> {
        let mut fields = extras.clone();
        if fields.insert("content".to_owned(), content).is_some() {
            return Err(
                "`run` has `content` among its extras; it belongs at the top level.".to_owned()
            );
        }
        let reader = FieldReader::new("run", BOTH, Some(Era::V2024), RUN_OF_2024, &fields)?;
        let pid = reader.take(&RUN_OF_2024[0], || -1)?;
        let command = reader.take(&RUN_OF_2024[1], String::new)?;
        let exit_code = reader.take(&RUN_OF_2024[2], || 0)?;
        let content = reader.take(&RUN_OF_2024[3], String::new)?;
        Ok(Run {
            content,
            command,
            metadata: CommandMetadata { exit_code, pid, ..CommandMetadata::default() },
            hidden: false,
        })
    }

    fn extras_2024(&self) -> Vec<(&'static str, Json)> {
        vec![
            ("command_id", self.metadata.pid.write()),
            ("command", self.command.write()),
            ("exit_code", self.metadata.exit_code.write()),
        ]
    }
}
