//! What an agent is told, of both eras: one struct per kind with the union of its extras, and the
//! line that describes it. The order of the fields here is the order on the wire (O-027…O-043);
//! `content` stands at the top level, before the extras.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::era::{BOTH, Era, FieldSpec, Presence};
use crate::field::{Field, FieldReader, kinds};
use crate::json::Json;
use crate::text::truncate;
use crate::vocabulary::{CommandMetadata, EditSource, ReadSource, RecallType, RecalledKnowledge};

/// Above how many characters the output of a command is cut when a `run` observation is made
/// (O-043).
pub const MAX_COMMAND_OUTPUT: usize = 30_000;

kinds! {
    /// Something an agent is told.
    ///
    /// Every kind has a `content`; [`Observation::content`] reads it whatever the kind.
    Observation;

    /// Nothing to tell (O-027).
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
        /// Keep it out of history.
        hidden: bool = false, Absent Optional;
    }
    /// The output of a Python cell (O-029).
    RunIpython = "run_ipython" BOTH {
        /// The output.
        content: String = String::new(), Optional Optional;
        /// The cell.
        code: String = String::new(), Required Required;
        /// Images it made.
        image_urls: Option<Vec<String>> = None, Absent Optional;
    }
    /// A page (O-030).
    Browse = "browse" BOTH {
        /// The page's text.
        content: String = String::new(), Optional Optional;
        /// The address.
        url: String = String::new(), Required Required;
        /// Which action led here (2025-11).
        trigger_by_action: String = String::new(), Absent Required;
        /// A picture, base64.
        screenshot: String = String::new(), Required Optional;
        /// Where the picture is.
        screenshot_path: Option<String> = None, Absent Optional;
        /// A picture with marks, base64.
        set_of_marks: String = String::new(), Absent Optional;
        /// The status of HTTP (2024-07 only).
        status_code: i64 = 200, Optional Absent;
        /// Whether it failed.
        error: bool = false, Optional Optional;
        /// Pictures of the goal.
        goal_image_urls: Vec<String> = Vec::new(), Absent Optional;
        /// All open pages.
        open_pages_urls: Vec<String> = Vec::new(), Optional Optional;
        /// Which of them is in front.
        active_page_index: i64 = -1, Optional Optional;
        /// The document.
        dom_object: Map<String, Value> = Map::new(), Optional Optional;
        /// The accessibility tree.
        axtree_object: Map<String, Value> = Map::new(), Optional Optional;
        /// More about elements.
        extra_element_properties: Map<String, Value> = Map::new(), Optional Optional;
        /// The browser's last action.
        last_browser_action: String = String::new(), Optional Optional;
        /// And why it failed.
        last_browser_action_error: String = String::new(), Optional Optional;
        /// The element in focus.
        focused_element_bid: String = String::new(), Optional Optional;
        /// Whether hidden elements are left out.
        filter_visible_only: bool = false, Absent Optional;
    }
    /// A file's text (O-031).
    Read = "read" BOTH {
        /// The text.
        content: String = String::new(), Optional Optional;
        /// The file.
        path: String = String::new(), Required Required;
        /// Which implementation read.
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
        /// What the editor says.
        content: String = String::new(), Absent Optional;
        /// The file.
        path: String = String::new(), Absent Optional;
        /// Whether it was there before.
        prev_exist: bool = false, Absent Optional;
        /// Its text before.
        old_content: Option<String> = None, Absent Optional;
        /// Its text after.
        new_content: Option<String> = None, Absent Optional;
        /// Which implementation edited.
        impl_source: EditSource = EditSource::LlmBasedEdit, Absent Optional;
        /// The difference.
        diff: Option<String> = None, Absent Optional;
        /// The difference as it was once shown.
        diff_cache as "_diff_cache": Option<String> = None, Absent Optional;
    }
    /// What was looked up: memories (2024-07, O-033) or context and knowledge (2025-11).
    Recall = "recall" BOTH {
        /// What to tell the model.
        content: String = String::new(), Optional Optional;
        /// The memories (2024-07).
        memories: Vec<String> = Vec::new(), Required Absent;
        /// In whose role they are told (2024-07).
        role: String = "assistant".to_owned(), Optional Absent;
        /// What was asked for (2025-11); none in 2024.
        recall_type: Option<RecallType> = None, Absent Required;
        /// The repository.
        repo_name: String = String::new(), Absent Optional;
        /// Its folder.
        repo_directory: String = String::new(), Absent Optional;
        /// Its branch.
        repo_branch: String = String::new(), Absent Optional;
        /// Its instructions.
        repo_instructions: String = String::new(), Absent Optional;
        /// Hosts and their ports.
        runtime_hosts: BTreeMap<String, i64> = BTreeMap::new(), Absent Optional;
        /// More instructions.
        additional_agent_instructions: String = String::new(), Absent Optional;
        /// Today.
        date: String = String::new(), Absent Optional;
        /// Which secrets there are, and what for.
        custom_secrets_descriptions: BTreeMap<String, String> = BTreeMap::new(), Absent Optional;
        /// Instructions of the conversation.
        conversation_instructions: String = String::new(), Absent Optional;
        /// The folder.
        working_dir: String = String::new(), Absent Optional;
        /// Triggered knowledge.
        microagent_knowledge: Vec<RecalledKnowledge> = Vec::new(), Absent Optional;
    }
    /// What a delegate came to (O-034).
    Delegate = "delegate" BOTH {
        /// A sentence about it.
        content: String = String::new(), Optional Optional;
        /// Its named results.
        outputs: Map<String, Value> = Map::new(), Required Required;
    }
    /// It worked (O-035).
    Success = "success" BOTH {
        /// What worked.
        content: String = String::new(), Optional Optional;
    }
    /// It did not work, and the agent can go on (O-036).
    Error = "error" BOTH {
        /// What went wrong.
        content: String = String::new(), Optional Optional;
        /// A name for programs.
        error_id: String = String::new(), Absent Optional;
    }
    /// The agent's state changed (O-037).
    AgentStateChanged = "agent_state_changed" BOTH {
        /// Empty.
        content: String = String::new(), Optional Optional;
        /// The state.
        agent_state: String = String::new(), Required Required;
        /// Why.
        reason: String = String::new(), Absent Optional;
    }
    /// The user refused the action (2025-11 only).
    UserRejected = "user_rejected" NEW {
        /// What the user said.
        content: String = String::new(), Absent Optional;
    }
    /// A summary that stands for forgotten events (2025-11 only).
    Condense = "condense" NEW {
        /// The summary.
        content: String = String::new(), Absent Optional;
    }
    /// A thought was noted (O-045, 2025-11 only).
    Think = "think" NEW {
        /// The fixed answer.
        content: String = String::new(), Absent Optional;
    }
    /// The result of a tool (2025-11 only); any tool's result is told so.
    Mcp = "mcp" NEW {
        /// The result.
        content: String = String::new(), Absent Optional;
        /// The tool.
        name: String = String::new(), Absent Optional;
        /// What it was called with.
        arguments: Map<String, Value> = Map::new(), Absent Optional;
    }
    /// A file was downloaded (2025-11 only).
    Download = "download" NEW {
        /// What the browser says.
        content: String = String::new(), Absent Optional;
        /// Where the file is.
        file_path: String = String::new(), Absent Required;
    }
    /// The list of tasks (O-045, 2025-11 only).
    TaskTracking = "task_tracking" NEW {
        /// What to tell the model.
        content: String = String::new(), Absent Optional;
        /// The command that was answered.
        command: String = String::new(), Absent Optional;
        /// The list.
        task_list: Vec<Value> = Vec::new(), Absent Optional;
    }
    /// A loop was found (2025-11 only).
    LoopDetection = "loop_detection" NEW {
        /// What to tell the user.
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
    /// What the agent is told.
    pub fn content(&self) -> &str {
        any!(self, it => &it.content)
    }

    /// What the agent is told, to change it.
    pub fn content_mut(&mut self) -> &mut String {
        any!(self, it => &mut it.content)
    }

    /// Whether it tells of a failure: an error, a command that did not end with 0, a page that
    /// failed (O-038).
    pub fn is_error(&self) -> bool {
        match self {
            Observation::Error(_) => true,
            Observation::Run(run) => run.metadata.exit_code != 0,
            Observation::Browse(page) => page.error,
            _ => false,
        }
    }

    /// The top-level `success` that 2025-11 writes for commands and cells (O-038); none for all
    /// other kinds.
    pub fn success(&self) -> Option<bool> {
        match self {
            Observation::Run(run) => Some(run.metadata.exit_code == 0),
            Observation::RunIpython(_) => Some(true),
            _ => None,
        }
    }

    /// Whether the observation keeps itself out of history (O-083).
    pub fn hidden(&self) -> bool {
        matches!(self, Observation::Run(run) if run.hidden)
    }

    /// The line for people that the encoded form derives (O-004).
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

    /// Reads content and extras of a kind; none when a reader of this form does not know the kind.
    ///
    /// `extras` must not have `content`; it is put among them here because every kind has it.
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
            // 2025-11 took any extra of a command and forgot the unknown ones.
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

    /// Content and extras, the extras in the order of the wire.
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
        if let (Observation::Recall(Recall { recall_type: None, .. }), Some(Era::V2025)) =
            (self, form)
            && let Some(field) = extras.iter_mut().find(|(name, _)| *name == "recall_type")
        {
            field.1 = Json::text(RecallType::Knowledge.name());
        }
        (content, extras)
    }

    /// Cuts the output of a command that is over [`MAX_COMMAND_OUTPUT`] characters, unless it is
    /// hidden (O-043).
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
    /// The output of a command, cut when it is long (O-043).
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
