//! The closed vocabularies of action arguments and observation extras.

use serde_json::Value;

use crate::field::{Field, whole_number};
use crate::json::Json;

macro_rules! words {
    ($( $(#[$doc:meta])* $name:ident, $expected:literal { $( $(#[$vdoc:meta])* $variant:ident = $word:literal, )* } )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $name { $( $(#[$vdoc])* $variant, )* }

            impl $name {
                /// The word on the wire.
                pub const fn name(self) -> &'static str {
                    match self { $( $name::$variant => $word, )* }
                }

                /// Parses the word on the wire.
                pub fn parse(word: &str) -> Option<Self> {
                    match word { $( $word => Some($name::$variant), )* _ => None }
                }
            }

            impl Field for $name {
                const EXPECTED: &'static str = $expected;
                fn read(value: &Value) -> Option<Self> {
                    value.as_str().and_then($name::parse)
                }
                fn write(&self) -> Json {
                    Json::text(self.name())
                }
            }
        )*
    };
}

words! {
    /// The confirmation of an action (2025-11).
    Confirmation, "confirmed, rejected or awaiting_confirmation" {
        /// The action may run.
        Confirmed = "confirmed",
        /// The user refused it.
        Rejected = "rejected",
        /// It waits for the user.
        AwaitingConfirmation = "awaiting_confirmation",
    }
    /// The kind of knowledge that a recall requests (2025-11).
    RecallType, "workspace_context or knowledge" {
        /// The workspace: repository, instructions, hosts.
        WorkspaceContext = "workspace_context",
        /// Knowledge triggered by the words of a message.
        Knowledge = "knowledge",
    }
    /// The implementation that reads a file (2025-11).
    ReadSource, "default or oh_aci" {
        /// The plain reader.
        Default = "default",
        /// The editor's `view`.
        OhAci = "oh_aci",
    }
    /// The implementation that edits a file (2025-11).
    EditSource, "oh_aci or llm_based_edit" {
        /// A draft with line range, applied by a model.
        LlmBasedEdit = "llm_based_edit",
        /// The editor: create, str_replace, insert, undo_edit.
        OhAci = "oh_aci",
    }
}

/// The assessed risk of an action (2025-11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecurityRisk {
    /// Not assessed; −1 on the wire.
    #[default]
    Unknown,
    /// 0 on the wire.
    Low,
    /// 1 on the wire.
    Medium,
    /// 2 on the wire.
    High,
}

impl SecurityRisk {
    /// The number on the wire.
    pub const fn number(self) -> i64 {
        match self {
            SecurityRisk::Unknown => -1,
            SecurityRisk::Low => 0,
            SecurityRisk::Medium => 1,
            SecurityRisk::High => 2,
        }
    }
}

impl Field for SecurityRisk {
    const EXPECTED: &'static str = "-1, 0, 1 or 2";
    fn read(value: &Value) -> Option<Self> {
        let number = match value {
            Value::Number(number) => whole_number(number),
            _ => None,
        };
        // O-044: an invalid risk reads as an unknown one.
        Some(match number {
            Some(0) => SecurityRisk::Low,
            Some(1) => SecurityRisk::Medium,
            Some(2) => SecurityRisk::High,
            _ => SecurityRisk::Unknown,
        })
    }
    fn write(&self) -> Json {
        Json::Leaf(Value::from(self.number()))
    }
}

/// One agent and its inputs, in `delegate_all`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelegateOne {
    /// The agent's name.
    pub agent: String,
    /// The inputs.
    pub inputs: serde_json::Map<String, Value>,
}

impl Field for DelegateOne {
    const EXPECTED: &'static str = "an object with `agent` and `inputs`";
    fn read(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let known = map.keys().all(|key| key == "agent" || key == "inputs");
        let inputs = match map.get("inputs") {
            None | Some(Value::Null) => serde_json::Map::new(),
            Some(inputs) => inputs.as_object()?.clone(),
        };
        known.then_some(DelegateOne { agent: map.get("agent")?.as_str()?.to_owned(), inputs })
    }
    fn write(&self) -> Json {
        Json::Object(vec![
            ("agent", Json::text(&self.agent)),
            ("inputs", Json::Leaf(Value::Object(self.inputs.clone()))),
        ])
    }
}

/// One piece of triggered knowledge in a `recall` observation (2025-11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecalledKnowledge {
    /// The name of its source.
    pub name: String,
    /// The word that triggered it.
    pub trigger: String,
    /// The knowledge.
    pub content: String,
}

impl Field for RecalledKnowledge {
    const EXPECTED: &'static str = "an object with `name`, `trigger` and `content`";
    fn read(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let text = |key: &str| map.get(key)?.as_str().map(str::to_owned);
        (map.len() == 3).then_some(())?;
        Some(RecalledKnowledge {
            name: text("name")?,
            trigger: text("trigger")?,
            content: text("content")?,
        })
    }
    fn write(&self) -> Json {
        Json::Object(vec![
            ("name", Json::text(&self.name)),
            ("trigger", Json::text(&self.trigger)),
            ("content", Json::text(&self.content)),
        ])
    }
}

/// Metadata of a command from the shell (O-043).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandMetadata {
    /// The exit code; −1 if unknown.
    pub exit_code: i64,
    /// The process id, or the id of a background command; −1 if there is none.
    pub pid: i64,
    /// The user.
    pub username: Option<String>,
    /// The host name.
    pub hostname: Option<String>,
    /// The folder after the command.
    pub working_dir: Option<String>,
    /// The path of the Python interpreter.
    pub py_interpreter_path: Option<String>,
    /// Text before the output.
    pub prefix: String,
    /// Text after the output.
    pub suffix: String,
}

impl Default for CommandMetadata {
    fn default() -> Self {
        CommandMetadata {
            exit_code: -1,
            pid: -1,
            username: None,
            hostname: None,
            working_dir: None,
            py_interpreter_path: None,
            prefix: String::new(),
            suffix: String::new(),
        }
    }
}

impl Field for CommandMetadata {
    const EXPECTED: &'static str =
        "an object with whole numbers `exit_code` and `pid`, and strings";
    fn read(value: &Value) -> Option<Self> {
        // Other names are ignored, because some writers of logs add their own.
        let map = value.as_object()?;
        let number = |key: &str| map.get(key).map_or(Some(-1), i64::read);
        let maybe = |key: &str| map.get(key).map_or(Some(None), Option::<String>::read);
        let text = |key: &str| map.get(key).map_or(Some(String::new()), String::read);
        Some(CommandMetadata {
            exit_code: number("exit_code")?,
            pid: number("pid")?,
            username: maybe("username")?,
            hostname: maybe("hostname")?,
            working_dir: maybe("working_dir")?,
            py_interpreter_path: maybe("py_interpreter_path")?,
            prefix: text("prefix")?,
            suffix: text("suffix")?,
        })
    }
    fn write(&self) -> Json {
        Json::Object(vec![
            ("exit_code", self.exit_code.write()),
            ("pid", self.pid.write()),
            ("username", self.username.write()),
            ("hostname", self.hostname.write()),
            ("working_dir", self.working_dir.write()),
            ("py_interpreter_path", self.py_interpreter_path.write()),
            ("prefix", self.prefix.write()),
            ("suffix", self.suffix.write()),
        ])
    }
}
